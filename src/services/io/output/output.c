/* Writes new files and replaces old files. See output.h for ownership and threads. */
#include "services/io/output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "services/io/request.h"

/* MOST_BYTES: maximum size of one write, so that a cancelled save ends soon */
enum { MOST_BYTES = 64 << 20 };

tdict_status tdict_folder_fail(const tdict_folder *folder, const char *noun, const char *verb, int code,
                               tdict_error *err) {
  return tdict_fail_errno(err, code, folder->path, "%s: the %s cannot be %s", folder->what, noun, verb);
}

static tdict_status fail_io(const tdict_folder *folder, const char *verb, int code, tdict_error *err) {
  return tdict_folder_fail(folder, "file", verb, code, err);
}

tdict_access tdict_access_of_file(int folder, const char *name) {
  struct stat info;
  if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(info.st_mode))
    return (tdict_access){.exists = false};
  return (tdict_access){true, info.st_mode & 0777, info.st_uid, info.st_gid};
}

int tdict_access_give(const tdict_access *old, int fd) {
  struct stat info;
  mode_t mode = old->mode;
  if (!old->exists) return 0;
  if (fstat(fd, &info) != 0) return errno;
  if (info.st_uid != old->owner) (void)!fchown(fd, old->owner, (gid_t)-1); /* usually, only root may do this */
  if (info.st_gid != old->group && fchown(fd, (uid_t)-1, old->group) != 0) {
    const mode_t both = mode >> 3 & mode & 07;
    mode = (mode & ~(mode_t)077) | both << 3 | both;
  }
  return fchmod(fd, mode) == 0 ? 0 : errno;
}

/* Checks what is at the path now, and stores the permissions of an old file. */
static tdict_status look_at_old_file(tdict_folder *folder, tdict_error *err) {
  struct stat info;
  if (fstatat(folder->fd, folder->name, &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? TDICT_OK : fail_io(folder, "inspected", errno, err);
  if (S_ISREG(info.st_mode)) folder->old = tdict_access_of_file(folder->fd, folder->name);
  if (S_ISREG(info.st_mode) || S_ISLNK(info.st_mode)) return TDICT_OK;
  return tdict_fail_at(err, TDICT_EFORMAT, folder->path, "%s: the path names %s, wanted a regular file or no file",
                       folder->what, S_ISDIR(info.st_mode) ? "a directory" : "a device, FIFO or socket");
}

tdict_status tdict_folder_open_parent(tdict_folder *folder, const char *what, const char *path, tdict_error *err) {
  char folder_path[4096];
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  const size_t length = slash ? (size_t)(slash - path) + 1 : 0;
  *folder = (tdict_folder){.what = what, .path = path, .name = name, .fd = -1, .old_fd = -1};
  if (!name[0] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
    return tdict_fail_at(err, TDICT_EINVAL, path, "%s: the path '%.150s' does not end with the name of a file", what,
                         path);
  if (length >= sizeof folder_path || strlen(name) > NAME_MAX) return fail_io(folder, "opened", ENAMETOOLONG, err);
  memcpy(folder_path, length ? path : ".", length ? length : 1);
  folder_path[length ? length : 1] = 0;
  folder->fd = open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder->fd >= 0) return TDICT_OK;
  if (errno != ENOENT) return fail_io(folder, "created", errno, err);
  tdict_fail_native(err, TDICT_EIO, ENOENT, "%s: the folder '%.150s' does not exist", what, folder_path);
  return tdict_error_at(err, TDICT_EIO, path);
}

tdict_status tdict_folder_open(tdict_folder *folder, const char *what, const char *path,
                               tdict_temporary_remover remove_more, tdict_error *err) {
  tdict_status status = tdict_folder_open_parent(folder, what, path, err);
  if (status == TDICT_OK) status = look_at_old_file(folder, err);
  if (status == TDICT_OK)
    tdict_temporary_clean(folder->fd, folder->name, remove_more);
  else
    tdict_folder_close(folder);
  return status;
}

tdict_status tdict_folder_flush(const tdict_folder *folder, tdict_error *err) {
  /* EINVAL: the file system cannot flush folders. */
  if (fsync(folder->fd) == 0 || errno == EINVAL) return TDICT_OK;
  return fail_io(folder, "made safe: all bytes are written, but the folder was not flushed", errno, err);
}

void tdict_folder_close(tdict_folder *folder) {
  if (folder->fd >= 0) close(folder->fd);
  if (folder->old_fd >= 0) close(folder->old_fd);
  folder->fd = folder->old_fd = -1;
}

static mode_t first_mode(const tdict_access *old) { return old->exists ? 0600 : 0666; }

tdict_status tdict_output_create_temporary(tdict_output *out, const tdict_folder *folder, tdict_error *err) {
  *out = (tdict_output){.folder = folder, .old = folder->old};
  const int code = tdict_temporary_create(&out->file, folder->fd, folder->name, false, first_mode(&out->old));
  return code ? fail_io(folder, "created", code, err) : TDICT_OK;
}

tdict_status tdict_output_create(tdict_output *out, const tdict_folder *folder, const char *name, tdict_error *err) {
  *out = (tdict_output){.folder = folder, .old = folder->old};
  if (folder->old_fd >= 0) out->old = tdict_access_of_file(folder->old_fd, name);
  snprintf(out->file.name, sizeof out->file.name, "%s", name);
  const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
  out->file.fd = openat(folder->fd, name, flags, first_mode(&out->old));
  if (out->file.fd >= 0) return TDICT_OK;
  if (errno != EEXIST) return fail_io(folder, "created", errno, err);
  return tdict_fail_at(err, TDICT_EEXIST, folder->path, "%s: a file has the name '%.150s' already", folder->what, name);
}

tdict_status tdict_folder_check_cancelled(const tdict_folder *folder, tdict_error *err) {
  const tdict_save_watch *watch = &folder->watch;
  tdict_status status = tdict_io_progress_check(watch->progress, err);
  if (watch->is_cancelled && atomic_load_explicit(watch->is_cancelled, memory_order_relaxed))
    status = tdict_fail(err, TDICT_ECANCELLED, "%s: cancelled", folder->what);
  return status == TDICT_OK ? status : tdict_error_at(err, status, folder->path);
}

tdict_status tdict_folder_ask(const tdict_folder *folder, tdict_error *err) {
  (void)!tdict_io_progress_ask(folder->watch.progress, NULL);
  return tdict_folder_check_cancelled(folder, err);
}

tdict_status tdict_output_write_at(const tdict_output *out, uint64_t offset, const void *data, size_t bytes,
                                   tdict_error *err) {
  const char *from = data;
  while (bytes) {
    tdict_status status = tdict_folder_check_cancelled(out->folder, err);
    if (status != TDICT_OK) return status;
    ssize_t count = pwrite(out->file.fd, from, bytes < MOST_BYTES ? bytes : MOST_BYTES, (off_t)offset);
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

static tdict_status flush(const tdict_output *out, tdict_error *err) {
  const int code = tdict_access_give(&out->old, out->file.fd);
  if (code) return fail_io(out->folder, "given its permissions", code, err);
  return fsync(out->file.fd) == 0 ? TDICT_OK : fail_io(out->folder, "flushed to the disk", errno, err);
}

/* Closes the descriptor. Returns the errno, or 0. */
static int close_file(tdict_output *out) {
  const int fd = out->file.fd;
  out->file.fd = -1; /* Linux closes the descriptor even if close() fails */
  return fd < 0 || close(fd) == 0 || errno == EINTR ? 0 : errno;
}

tdict_status tdict_output_close(tdict_output *out, tdict_error *err) {
  tdict_status status = flush(out, err);
  const int code = status == TDICT_OK ? close_file(out) : 0;
  if (code) status = fail_io(out->folder, "closed", code, err);
  out->is_whole = status == TDICT_OK;
  return status;
}

void tdict_output_end(tdict_output *out) {
  if (!out->is_whole) unlinkat(out->folder->fd, out->file.name, 0);
  (void)close_file(out); /* the bytes of a whole file are on the disk */
}

tdict_status tdict_output_replace(tdict_output *out, tdict_error *err) {
  const tdict_folder *folder = out->folder;
  tdict_status status = flush(out, err);
  if (status == TDICT_OK) status = tdict_folder_ask(folder, err);
  if (status != TDICT_OK) return status;
  if (renameat(folder->fd, out->file.name, folder->fd, folder->name) != 0)
    return fail_io(folder, "renamed", errno, err);
  out->is_whole = true;
  return tdict_folder_flush(folder, err);
}

tdict_status tdict_output_file(const tdict_save_request *request, tdict_temporary_remover remove_more,
                               tdict_output_writer write, void *user, tdict_error *err) {
  tdict_folder folder;
  tdict_output to;
  tdict_status status = tdict_folder_open(&folder, request->what, request->path, remove_more, err);
  if (status != TDICT_OK) return status;
  folder.watch = request->watch;
  status = tdict_output_create_temporary(&to, &folder, err);
  if (status == TDICT_OK) {
    status = write(user, &to, err);
    if (status == TDICT_OK) status = tdict_output_replace(&to, err);
    tdict_output_end(&to);
  }
  tdict_folder_close(&folder);
  return status;
}
