/* Writes new files and replaces old files. See output.h for ownership and threads. */
#include "io/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "io/request.h"

/* MOST_BYTES: maximum size of one write, so that a cancelled save ends soon */
enum { MOST_BYTES = 64 << 20, MOST_TRIES = 100, MOST_NAME = 200 };

tdict_status tdict_folder_fail(const tdict_folder *folder, const char *noun, const char *verb, int code,
                               tdict_error *err) {
  tdict_fail_native(err, TDICT_EIO, code, "%s: the %s cannot be %s: %s", folder->what, noun, verb, strerror(code));
  return tdict_error_at(err, TDICT_EIO, folder->path);
}

static tdict_status fail_io(const tdict_folder *folder, const char *verb, int code, tdict_error *err) {
  return tdict_folder_fail(folder, "file", verb, code, err);
}

uint64_t tdict_output_unique(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  /* The address of a local variable differs between threads and, with address randomization, between processes. */
  uint64_t mixed = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
  mixed ^= (uint64_t)getpid() << 40 ^ (uint64_t)(uintptr_t)&now << 16;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return mixed ^ mixed >> 31;
}

/* Checks what is at the path now, and stores the permissions of an old file. */
static tdict_status look_at_old_file(tdict_folder *folder, tdict_error *err) {
  struct stat info;
  if (fstatat(folder->fd, folder->name, &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? TDICT_OK : fail_io(folder, "inspected", errno, err);
  if (S_ISREG(info.st_mode)) folder->mode = info.st_mode & 0777;
  if (S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)) return TDICT_OK;
  tdict_fail(err, TDICT_EFORMAT, "%s: the path names %s, wanted a regular file or no file", folder->what,
             S_ISDIR(info.st_mode) ? "a directory" : "a device, FIFO or socket");
  return tdict_error_at(err, TDICT_EFORMAT, folder->path);
}

tdict_status tdict_folder_open_parent(tdict_folder *folder, const char *what, const char *path, tdict_error *err) {
  char folder_path[4096];
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  const size_t length = slash ? (size_t)(slash - path) + 1 : 0;
  *folder = (tdict_folder){.what = what, .path = path, .name = name, .fd = -1};
  if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
    tdict_fail(err, TDICT_EINVAL, "%s: the path '%.150s' does not end with the name of a file", what, path);
    return tdict_error_at(err, TDICT_EINVAL, path);
  }
  if (length >= sizeof folder_path || strlen(name) > MOST_NAME) return fail_io(folder, "opened", ENAMETOOLONG, err);
  memcpy(folder_path, length ? path : ".", length ? length : 1);
  folder_path[length ? length : 1] = 0;
  folder->fd = open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return folder->fd < 0 ? fail_io(folder, "created", errno, err) : TDICT_OK;
}

tdict_status tdict_folder_open(tdict_folder *folder, const char *what, const char *path, tdict_error *err) {
  tdict_status status = tdict_folder_open_parent(folder, what, path, err);
  if (status == TDICT_OK) status = look_at_old_file(folder, err);
  if (status != TDICT_OK) tdict_folder_close(folder);
  return status;
}

tdict_status tdict_folder_flush(const tdict_folder *folder, tdict_error *err) {
  /* EINVAL: the file system cannot flush folders. */
  if (fsync(folder->fd) == 0 || errno == EINVAL) return TDICT_OK;
  return fail_io(folder, "made safe: all bytes are written, but the folder was not flushed", errno, err);
}

void tdict_folder_close(tdict_folder *folder) {
  if (folder->fd >= 0) close(folder->fd);
  folder->fd = -1;
}

/* Creates the file out->name. Returns the errno, or 0. */
static int create(tdict_output *out, const tdict_folder *folder) {
  out->folder = folder;
  out->offset = 0;
  out->fd = openat(folder->fd, out->name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (out->fd < 0) return errno;
  /* Keep the permissions of the file that is replaced. Another user could otherwise read a private file. */
  if (!folder->mode || fchmod(out->fd, folder->mode) == 0) return 0;
  const int code = errno;
  tdict_output_discard(out);
  return code;
}

void tdict_output_name_temporary(char name[TDICT_OUTPUT_NAME_BYTES], const char *base) {
  snprintf(name, TDICT_OUTPUT_NAME_BYTES, ".%s.%016" PRIx64 ".tmp", base, tdict_output_unique());
}

tdict_status tdict_output_create_temporary(tdict_output *out, const tdict_folder *folder, tdict_error *err) {
  int code = EEXIST;
  for (int i = 0; i < MOST_TRIES && code == EEXIST; i++) {
    tdict_output_name_temporary(out->name, folder->name);
    code = create(out, folder);
  }
  return code ? fail_io(folder, "created", code, err) : TDICT_OK;
}

tdict_status tdict_output_create(tdict_output *out, const tdict_folder *folder, const char *name, tdict_error *err) {
  snprintf(out->name, sizeof out->name, "%s", name);
  const int code = create(out, folder);
  if (code != EEXIST) return code ? fail_io(folder, "created", code, err) : TDICT_OK;
  tdict_fail(err, TDICT_EEXIST, "%s: a file has the name '%.150s' already", folder->what, name);
  return tdict_error_at(err, TDICT_EEXIST, folder->path);
}

tdict_status tdict_folder_check_cancelled(const tdict_folder *folder, tdict_error *err) {
  if (!folder->is_cancelled || !atomic_load_explicit(folder->is_cancelled, memory_order_relaxed)) return TDICT_OK;
  tdict_fail(err, TDICT_ECANCELLED, "%s: cancelled", folder->what);
  return tdict_error_at(err, TDICT_ECANCELLED, folder->path);
}

tdict_status tdict_output_write_at(const tdict_output *out, uint64_t offset, const void *data, size_t bytes,
                                   tdict_error *err) {
  const char *from = data;
  while (bytes) {
    tdict_status status = tdict_folder_check_cancelled(out->folder, err);
    if (status != TDICT_OK) return status;
    ssize_t count = pwrite(out->fd, from, bytes < MOST_BYTES ? bytes : MOST_BYTES, (off_t)offset);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return fail_io(out->folder, "written", count ? errno : ENOSPC, err);
    from += count;
    bytes -= (size_t)count;
    offset += (uint64_t)count;
  }
  return TDICT_OK;
}

tdict_status tdict_output_write(tdict_output *out, const void *data, size_t bytes, tdict_error *err) {
  tdict_status status = tdict_output_write_at(out, out->offset, data, bytes, err);
  if (status == TDICT_OK) out->offset += bytes;
  return status;
}

tdict_status tdict_output_close(tdict_output *out, tdict_error *err) {
  const char *verb = "flushed to the disk";
  int code = fsync(out->fd) == 0 ? 0 : errno;
  if (!code) {
    verb = "closed";
    code = close(out->fd) == 0 || errno == EINTR ? 0 : errno;
    out->fd = -1; /* Linux closes the descriptor even if close() fails */
  }
  return code ? fail_io(out->folder, verb, code, err) : TDICT_OK;
}

void tdict_output_discard(tdict_output *out) {
  if (out->fd >= 0) close(out->fd);
  out->fd = -1;
  unlinkat(out->folder->fd, out->name, 0);
}

tdict_status tdict_output_replace(tdict_output *out, bool *is_named, tdict_error *err) {
  const tdict_folder *folder = out->folder;
  tdict_status status = tdict_folder_check_cancelled(folder, err);
  if (status != TDICT_OK) {
    tdict_output_discard(out);
    return status;
  }
  if (renameat(folder->fd, out->name, folder->fd, folder->name) != 0) {
    const int code = errno;
    tdict_output_discard(out);
    return fail_io(folder, "renamed", code, err);
  }
  *is_named = true;
  return tdict_folder_flush(folder, err);
}

tdict_status tdict_output_file(const tdict_save_request *request, tdict_output_writer write, void *user,
                               tdict_error *err) {
  tdict_folder folder;
  tdict_output to;
  bool is_named = false;
  tdict_status status = tdict_folder_open(&folder, request->what, request->path, err);
  if (status != TDICT_OK) return status;
  folder.is_cancelled = request->is_cancelled;
  status = tdict_output_create_temporary(&to, &folder, err);
  if (status == TDICT_OK) {
    status = write(user, &to, err);
    if (status == TDICT_OK) status = tdict_output_close(&to, err);
    if (status == TDICT_OK)
      status = tdict_output_replace(&to, &is_named, err);
    else
      tdict_output_discard(&to);
  }
  tdict_folder_close(&folder);
  return status;
}
