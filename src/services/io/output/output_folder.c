/* Creates directories under temporary names, and swaps them with the old ones. See output_folder.h for ownership. */
#include "services/io/output/output_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"

enum { DIRECTORY_FLAGS = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC };

static tdict_status fail_io(const tdict_output_folder *f, const char *verb, int code, tdict_error *err) {
  return tdict_folder_fail(&f->parent, "directory", verb, code, err);
}

static tdict_access access_of(int fd) {
  struct stat info;
  if (fd < 0 || fstat(fd, &info) != 0) return (tdict_access){.exists = false};
  return (tdict_access){true, info.st_mode & 03777, info.st_uid, info.st_gid};
}

/* Prepares a new directory: if it has the set-group-ID bit, files in it get its group. Returns the errno, or 0. */
static int begin_access(const tdict_access *old, int fd) {
  tdict_access first = *old;
  first.mode = S_IRWXU | (old->mode & S_ISGID);
  return tdict_access_give(&first, fd);
}

static int fail_at_name(void *user, int folder, const char *name) {
  (void)user, (void)folder, (void)name;
  return ENOTEMPTY;
}

/* Opens the old directory. It must be of the format or empty, so that a wrong path deletes no other files. */
static tdict_status open_old(tdict_output_folder *f, const char *mark, tdict_error *err) {
  struct stat info;
  const int old = f->root.old_fd = openat(f->parent.fd, f->parent.name, DIRECTORY_FLAGS);
  if (old < 0) return fail_io(f, "opened", errno, err);
  const bool has_mark = fstatat(old, mark, &info, AT_SYMLINK_NOFOLLOW) == 0;
  int code = has_mark || errno == ENOENT ? 0 : errno;
  if (has_mark && S_ISREG(info.st_mode)) return TDICT_OK;
  if (!code) code = tdict_names_visit(old, fail_at_name, NULL);
  if (!code) return TDICT_OK;
  if (code != ENOTEMPTY) return fail_io(f, "read", code, err);
  return tdict_fail_at(err, TDICT_EFORMAT, f->parent.path,
                       "%s: the path names a directory with files but without '%s', which is not replaced",
                       f->parent.what, mark);
}

/* Checks that no file has the final name, or that the name belongs to a directory that may be replaced. */
static tdict_status look_at_old(tdict_output_folder *f, const char *mark, tdict_error *err) {
  struct stat info;
  if (fstatat(f->parent.fd, f->parent.name, &info, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? TDICT_OK : fail_io(f, "inspected", errno, err);
  if (S_ISDIR(info.st_mode)) {
    f->replaces = true;
    return open_old(f, mark, err);
  }
  const char *kind = S_ISREG(info.st_mode)   ? "file"
                     : S_ISLNK(info.st_mode) ? "symbolic link"
                                             : "device, FIFO or socket";
  return tdict_fail_at(err, TDICT_EFORMAT, f->parent.path, "%s: the path names a %s, wanted a directory or nothing",
                       f->parent.what, kind);
}

/* Tries early whether the file system can exchange names, with two empty directories in the new directory. */
static tdict_status try_exchange(tdict_output_folder *f, bool allows_gap, tdict_error *err) {
  static const char *const names[] = {"a", "b"};
  int code = 0;
  for (int i = 0; i < 2; i++)
    if (mkdirat(f->root.fd, names[i], 0700) != 0) return fail_io(f, "created", errno, err);
  if (renameat2(f->root.fd, names[0], f->root.fd, names[1], RENAME_EXCHANGE) != 0) code = errno;
  f->exchanges = code == 0;
  for (int i = 0; i < 2; i++)
    if (unlinkat(f->root.fd, names[i], AT_REMOVEDIR) != 0) return fail_io(f, "removed", errno, err);
  if (f->exchanges || (allows_gap && (code == EINVAL || code == ENOSYS || code == EOPNOTSUPP))) return TDICT_OK;
  if (code != EINVAL && code != ENOSYS && code != EOPNOTSUPP) return fail_io(f, "exchanged", code, err);
  tdict_fail_native(err, TDICT_ENOTSUP, code,
                    "%s: the file system cannot exchange two directories; remove the old directory, or set the option "
                    "allows_gap",
                    f->parent.what);
  return tdict_error_at(err, TDICT_ENOTSUP, f->parent.path);
}

/* Creates the new directory. Until it has the permissions of the old directory, only this user may read it. */
static tdict_status create_root(tdict_output_folder *f, tdict_error *err) {
  tdict_temporary root;
  f->root.old = access_of(f->root.old_fd);
  int code = tdict_temporary_create(&root, f->parent.fd, f->parent.name, true, f->replaces ? 0700 : 0777);
  if (code) return fail_io(f, "created", code, err);
  memcpy(f->name, root.name, sizeof f->name);
  f->root.fd = root.fd;
  code = begin_access(&f->root.old, root.fd);
  return code ? fail_io(f, "created", code, err) : TDICT_OK;
}

tdict_status tdict_output_folder_create(tdict_output_folder *out, const tdict_save_request *request, const char *mark,
                                        tdict_error *err) {
  const char *path = request->path;
  size_t length = strlen(path);
  memset(out, 0, sizeof *out);
  out->root = (tdict_folder){.what = request->what, .path = path, .name = out->name, .fd = -1, .old_fd = -1};
  out->root.watch = request->watch;
  out->parent.fd = out->parent.old_fd = -1;
  while (length > 1 && path[length - 1] == '/') length--;
  snprintf(out->target, sizeof out->target, "%.*s", (int)(length < sizeof out->target ? length : 0), path);
  tdict_status status = tdict_folder_open_parent(&out->parent, request->what, out->target, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  out->parent.path = path;
  tdict_temporary_clean(out->parent.fd, out->parent.name, NULL);
  status = look_at_old(out, mark, err);
  if (status == TDICT_OK) status = create_root(out, err);
  if (status == TDICT_OK && out->replaces) status = try_exchange(out, request->options->allows_gap, err);
  if (status != TDICT_OK) tdict_output_folder_discard(out);
  return status;
}

static tdict_status make_directory(const tdict_folder *in, const char *name, tdict_folder *out, tdict_error *err) {
  if (mkdirat(in->fd, name, out->old.exists ? 0700 : 0777) != 0) {
    if (errno != EEXIST) return tdict_folder_fail(in, "directory", "created", errno, err);
    return tdict_fail_at(err, TDICT_EEXIST, in->path, "%s: the name '%.150s' exists already", in->what, name);
  }
  out->fd = openat(in->fd, name, DIRECTORY_FLAGS);
  const int code = out->fd < 0 ? errno : begin_access(&out->old, out->fd);
  return code ? tdict_folder_fail(in, "directory", "opened", code, err) : TDICT_OK;
}

tdict_status tdict_output_folder_enter(const tdict_folder *in, const char *name, tdict_folder *out, tdict_error *err) {
  *out = (tdict_folder){.what = in->what, .path = in->path, .fd = -1, .old_fd = -1, .watch = in->watch};
  if (in->old_fd >= 0) out->old_fd = openat(in->old_fd, name, DIRECTORY_FLAGS);
  if (in->old_fd >= 0 && out->old_fd < 0 && errno != ENOENT && errno != ENOTDIR && errno != ELOOP)
    return tdict_folder_fail(in, "old directory", "opened", errno, err);
  out->old = access_of(out->old_fd);
  tdict_status status = make_directory(in, name, out, err);
  if (status != TDICT_OK) tdict_folder_close(out);
  return status;
}

static tdict_status flush(const tdict_folder *folder, tdict_error *err) {
  tdict_error why = {0};
  const int code = tdict_access_give(&folder->old, folder->fd);
  if (code) return tdict_folder_fail(folder, "directory", "given its permissions", code, err);
  if (tdict_folder_flush(folder, &why) == TDICT_OK) return TDICT_OK;
  return tdict_folder_fail(folder, "directory", "flushed to the disk", why.native, err);
}

tdict_status tdict_output_folder_leave(tdict_folder *folder, tdict_error *err) {
  tdict_status status = flush(folder, err);
  tdict_folder_close(folder);
  return status;
}

/* Closes all descriptors, which releases the locks. */
static void close_all(tdict_output_folder *f) {
  tdict_folder_close(&f->root);
  tdict_folder_close(&f->parent);
}

void tdict_output_folder_discard(tdict_output_folder *f) {
  if (f->name[0]) (void)tdict_entry_remove(f->parent.fd, f->name);
  close_all(f);
}

/* Moves a directory to another name of the same folder. Returns the errno, or 0. */
static int move(const tdict_output_folder *f, const char *from, const char *to, unsigned flags) {
  return renameat2(f->parent.fd, from, f->parent.fd, to, flags) == 0 ? 0 : errno;
}

/* Gives the new directory its final name. f->name then is the old directory, if any. Returns the errno, or 0. */
static int swap(tdict_output_folder *f) {
  const char *final = f->parent.name;
  char aside[TDICT_OUTPUT_NAME_BYTES];
  if (f->replaces && f->exchanges) return move(f, f->name, final, RENAME_EXCHANGE);
  if (!f->replaces) return renameat(f->parent.fd, f->name, f->parent.fd, final) == 0 ? 0 : errno;
  tdict_temporary_name_old(aside, final);
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
  const int code = tdict_entry_remove(f->parent.fd, f->name);
  return code ? fail_io(f, "cleaned up: the new directory is in place, but the old one cannot be removed", code, err)
              : TDICT_OK;
}

/* Flushes the parent folder after the swap. On failure, gives the old directory its name again if possible. */
static tdict_status flush_parent(tdict_output_folder *f, tdict_error *err) {
  tdict_error why = {0};
  tdict_status status = tdict_folder_flush(&f->parent, &why);
  if (status == TDICT_OK) return remove_old(f, err);
  /* After the exchange back, f->name is the new directory again. */
  const bool is_old = f->exchanges && move(f, f->name, f->parent.name, RENAME_EXCHANGE) == 0;
  if (f->replaces) (void)tdict_entry_remove(f->parent.fd, f->name);
  if (is_old) return fail_io(f, "replaced, because its folder was not flushed to the disk", why.native, err);
  if (err) *err = why;
  return status;
}

tdict_status tdict_output_folder_replace(tdict_output_folder *f, tdict_error *err) {
  tdict_status status = tdict_folder_ask(&f->root, err);
  if (status == TDICT_OK) status = flush(&f->root, err);
  /* A failure is ignored: the old directory is then locked by tdict_append(), or the file system has no locks. */
  if (f->replaces) (void)tdict_temporary_lock(f->root.old_fd);
  const int code = status == TDICT_OK ? swap(f) : 0;
  if (code) status = fail_io(f, "renamed", code, err);
  if (status != TDICT_OK) {
    tdict_output_folder_discard(f);
    return status;
  }
  close(f->root.fd); /* the lock would keep tdict_append() away */
  f->root.fd = -1;
  status = flush_parent(f, err);
  close_all(f);
  return status;
}
