/* Creates directories under temporary names, and swaps a complete new directory with the old directory. See
 * output_folder.h for ownership and threads. */
#include "io/output_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

enum { MOST_TRIES = 100, DIRECTORY_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

static tdict_status fail_io(const tdict_output_folder *f, const char *verb, int code, tdict_error *err) {
  return tdict_folder_fail(&f->parent, "directory", verb, code, err);
}

/* Returns the next name of a directory, except "." and "..". Returns NULL and sets errno to 0 after the last name.
 * Returns NULL and sets errno to the error on failure. */
static const char *next_name(DIR *dir) {
  struct dirent *entry;
  do {
    errno = 0;
    entry = readdir(dir);
  } while (entry && (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0));
  return entry ? entry->d_name : NULL;
}

static int remove_entry(int at, const char *name);

/* Removes everything in a directory and closes `fd`. Returns the first errno, or 0. */
static int empty_directory(int fd) {
  DIR *dir = fdopendir(fd);
  int code = dir ? 0 : errno;
  if (!dir) close(fd);
  for (const char *name; dir && !code && (name = next_name(dir)) != NULL;) code = remove_entry(fd, name);
  if (dir && !code) code = errno;
  if (dir) closedir(dir);
  return code;
}

/* Removes a file, a link or a directory with its files. Never follows a link. Returns the errno, or 0. */
static int remove_entry(int at, const char *name) {
  if (unlinkat(at, name, 0) == 0) return 0;
  if (errno != EISDIR && errno != EPERM) return errno;
  const int fd = openat(at, name, DIRECTORY_FLAGS);
  const int code = fd < 0 ? errno : empty_directory(fd);
  if (code) return code;
  return unlinkat(at, name, AT_REMOVEDIR) == 0 ? 0 : errno;
}

/* Checks that an old directory belongs to the format or is empty, so that a wrong path does not delete other files of
 * the program. */
static tdict_status check_mark(const tdict_output_folder *f, const char *mark, tdict_error *err) {
  struct stat info;
  const int fd = openat(f->parent.fd, f->parent.name, DIRECTORY_FLAGS);
  if (fd < 0) return fail_io(f, "opened", errno, err);
  const bool has_mark = fstatat(fd, mark, &info, AT_SYMLINK_NOFOLLOW) == 0;
  int code = has_mark || errno == ENOENT ? 0 : errno;
  bool is_ours = has_mark && S_ISREG(info.st_mode);
  DIR *dir = fdopendir(fd);
  if (!dir && !code) code = errno;
  if (dir && !is_ours && !code) is_ours = !next_name(dir) && errno == 0;
  if (dir)
    closedir(dir);
  else
    close(fd);
  if (code) return fail_io(f, "read", code, err);
  if (is_ours) return TDICT_OK;
  tdict_fail(err, TDICT_EFORMAT, "%s: the path names a directory with files but without '%s', which is not replaced",
             f->parent.what, mark);
  return tdict_error_at(err, TDICT_EFORMAT, f->parent.path);
}

/* Checks that no file has the final name, or that the name belongs to a directory that may be replaced. */
static tdict_status look_at_old(tdict_output_folder *f, const char *mark, tdict_error *err) {
  struct stat info;
  if (fstatat(f->parent.fd, f->parent.name, &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? TDICT_OK : fail_io(f, "inspected", errno, err);
  if (S_ISDIR(info.st_mode)) {
    f->replaces = true;
    f->old_mode = info.st_mode & 0777;
    return check_mark(f, mark, err);
  }
  tdict_fail(err, TDICT_EFORMAT, "%s: the path names a %s, wanted a directory or nothing", f->parent.what,
             S_ISREG(info.st_mode)   ? "file"
             : S_ISLNK(info.st_mode) ? "symbolic link"
                                     : "device, FIFO or socket");
  return tdict_error_at(err, TDICT_EFORMAT, f->parent.path);
}

/* Creates a directory with a temporary name. Returns the errno, or 0. */
static int make_temporary(const tdict_output_folder *f, mode_t mode, char name[TDICT_OUTPUT_NAME_BYTES]) {
  for (int i = 0; i < MOST_TRIES; i++) {
    tdict_output_name_temporary(name, f->parent.name);
    if (mkdirat(f->parent.fd, name, mode) == 0) return 0;
    if (errno != EEXIST) return errno;
  }
  return EEXIST;
}

/* Finds out whether the file system can exchange names, before the caller writes a large tree: exchanges the new
 * directory with another empty directory. */
static tdict_status try_exchange(tdict_output_folder *f, bool allows_gap, tdict_error *err) {
  char other[TDICT_OUTPUT_NAME_BYTES];
  int code = make_temporary(f, 0700, other);
  if (code) return fail_io(f, "created", code, err);
  if (renameat2(f->parent.fd, f->name, f->parent.fd, other, RENAME_EXCHANGE) != 0) code = errno;
  f->exchanges = code == 0;
  if (unlinkat(f->parent.fd, other, AT_REMOVEDIR) != 0) return fail_io(f, "removed", errno, err);
  if (f->exchanges || (allows_gap && (code == EINVAL || code == ENOSYS || code == EOPNOTSUPP))) return TDICT_OK;
  if (code != EINVAL && code != ENOSYS && code != EOPNOTSUPP) return fail_io(f, "exchanged", code, err);
  tdict_fail_native(err, TDICT_ENOTSUP, code,
                    "%s: the file system cannot exchange two directories; remove the old directory, or set the option "
                    "allows_gap",
                    f->parent.what);
  return tdict_error_at(err, TDICT_ENOTSUP, f->parent.path);
}

tdict_status tdict_output_folder_create(tdict_output_folder *out, const tdict_output_folder_options *options,
                                        tdict_error *err) {
  const char *path = options->path;
  size_t length = strlen(path);
  memset(out, 0, sizeof *out);
  out->root.fd = out->parent.fd = -1;
  while (length > 1 && path[length - 1] == '/') length--;
  snprintf(out->target, sizeof out->target, "%.*s", (int)(length < sizeof out->target ? length : 0), path);
  tdict_status status = tdict_folder_open_parent(&out->parent, options->what, out->target, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  out->parent.path = path;
  status = look_at_old(out, options->mark, err);
  /* Until the new directory has the permissions of the old directory, only this user may read the new directory. */
  int code = status == TDICT_OK ? make_temporary(out, out->replaces ? 0700 : 0777, out->name) : 0;
  if (code) status = fail_io(out, "created", code, err);
  if (code) out->name[0] = 0;
  if (status == TDICT_OK && out->replaces) status = try_exchange(out, options->allows_gap, err);
  if (status == TDICT_OK) {
    out->root = (tdict_folder){.what = options->what, .path = path, .name = out->name, .fd = -1};
    out->root.is_cancelled = options->is_cancelled;
    out->root.fd = openat(out->parent.fd, out->name, DIRECTORY_FLAGS);
    if (out->root.fd < 0) status = fail_io(out, "opened", errno, err);
  }
  if (status != TDICT_OK) tdict_output_folder_discard(out);
  return status;
}

tdict_status tdict_output_folder_enter(const tdict_folder *in, const char *name, tdict_folder *out, tdict_error *err) {
  *out = (tdict_folder){.what = in->what, .path = in->path, .fd = -1, .is_cancelled = in->is_cancelled};
  if (mkdirat(in->fd, name, 0777) != 0) {
    if (errno != EEXIST) return tdict_folder_fail(in, "directory", "created", errno, err);
    tdict_fail(err, TDICT_EEXIST, "%s: the name '%.150s' exists already", in->what, name);
    return tdict_error_at(err, TDICT_EEXIST, in->path);
  }
  out->fd = openat(in->fd, name, DIRECTORY_FLAGS);
  return out->fd < 0 ? tdict_folder_fail(in, "directory", "opened", errno, err) : TDICT_OK;
}

static tdict_status flush(const tdict_folder *folder, tdict_error *err) {
  tdict_error why = {0};
  if (tdict_folder_flush(folder, &why) == TDICT_OK) return TDICT_OK;
  return tdict_folder_fail(folder, "directory", "flushed to the disk", why.native, err);
}

tdict_status tdict_output_folder_leave(tdict_folder *folder, tdict_error *err) {
  tdict_status status = flush(folder, err);
  tdict_folder_close(folder);
  return status;
}

void tdict_output_folder_discard(tdict_output_folder *f) {
  tdict_folder_close(&f->root);
  if (f->name[0]) (void)remove_entry(f->parent.fd, f->name);
  tdict_folder_close(&f->parent);
}

/* Moves a directory to another name of the same folder. Returns the errno, or 0. */
static int move(const tdict_output_folder *f, const char *from, const char *to, unsigned flags) {
  return renameat2(f->parent.fd, from, f->parent.fd, to, flags) == 0 ? 0 : errno;
}

/* Gives the new directory its final name. After success, f->name is the name of the old directory, if there is an old
 * directory. Returns the errno, or 0. */
static int swap(tdict_output_folder *f) {
  const char *final = f->parent.name;
  char aside[TDICT_OUTPUT_NAME_BYTES];
  if (f->replaces && f->exchanges) return move(f, f->name, final, RENAME_EXCHANGE);
  if (!f->replaces) return renameat(f->parent.fd, f->name, f->parent.fd, final) == 0 ? 0 : errno;
  tdict_output_name_temporary(aside, final);
  int code = renameat(f->parent.fd, final, f->parent.fd, aside) == 0 ? 0 : errno;
  if (code) return code;
  if (renameat(f->parent.fd, f->name, f->parent.fd, final) != 0) {
    code = errno;
    (void)!renameat(f->parent.fd, aside, f->parent.fd, final);
    return code;
  }
  memcpy(f->name, aside, sizeof f->name);
  return 0;
}

static tdict_status remove_old(const tdict_output_folder *f, tdict_error *err) {
  if (!f->replaces) return TDICT_OK;
  const int code = remove_entry(f->parent.fd, f->name);
  return code ? fail_io(f, "cleaned up: the new directory is in place, but the old one cannot be removed", code, err)
              : TDICT_OK;
}

tdict_status tdict_output_folder_replace(tdict_output_folder *f, tdict_error *err) {
  tdict_status status = tdict_folder_check_cancelled(&f->root, err);
  if (status == TDICT_OK && f->replaces && fchmod(f->root.fd, f->old_mode) != 0)
    status = fail_io(f, "given its permissions", errno, err);
  if (status == TDICT_OK) status = flush(&f->root, err);
  tdict_folder_close(&f->root);
  const int code = status == TDICT_OK ? swap(f) : 0;
  if (code) status = fail_io(f, "renamed", code, err);
  if (status != TDICT_OK) {
    tdict_output_folder_discard(f);
    return status;
  }
  tdict_error why = {0};
  status = tdict_folder_flush(&f->parent, &why);
  if (status == TDICT_OK) {
    status = remove_old(f, err);
  } else {
    /* After the exchange back, f->name is the new directory again. */
    const bool is_old = f->exchanges && move(f, f->name, f->parent.name, RENAME_EXCHANGE) == 0;
    if (f->replaces) (void)remove_entry(f->parent.fd, f->name);
    if (is_old)
      status = fail_io(f, "replaced, because its folder was not flushed to the disk", why.native, err);
    else if (err)
      *err = why;
  }
  tdict_folder_close(&f->parent);
  return status;
}
