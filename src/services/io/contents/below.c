/* Opens paths name by name, so that no symbolic link is followed. See below.h for ownership and threads. */
#include "services/io/contents/below.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/file.h"

typedef struct walk {
  const char *what, *path;
  int root;
} walk;

static tdict_status fail_path(const walk *w, const char *why, tdict_error *err) {
  return tdict_fail_at(err, TDICT_EFORMAT, w->path, "%s: %.150s %s", w->what, w->path, why);
}

static tdict_status fail_open(const walk *w, int code, tdict_error *err) {
  if (code == ELOOP || code == ENOTDIR) return fail_path(w, "leads through a symbolic link or a file", err);
  return tdict_fail_errno(err, code, w->path, "%s: %.150s cannot be opened", w->what, w->path);
}

bool tdict_below_is_name(const char *name) {
  return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

/* Copies the first name of `path` to `name`, of NAME_MAX + 1 bytes. Returns its length, or 0 if it is not allowed. */
static size_t next_name(const char *path, char *name) {
  const size_t length = strcspn(path, "/");
  if (length > NAME_MAX) return 0;
  memcpy(name, path, length);
  name[length] = 0;
  return tdict_below_is_name(name) ? length : 0;
}

/* Opens the folder whose path is the first `length` bytes of `path`. */
static tdict_status open_folder(const walk *w, size_t length, int *out, tdict_error *err) {
  char name[NAME_MAX + 1];
  size_t bytes = 0;
  int at = openat(w->root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (at < 0) return fail_open(w, errno, err);
  for (size_t begin = 0; begin < length; begin += bytes + 1) {
    bytes = next_name(w->path + begin, name);
    const int next = bytes ? openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    const int code = errno;
    close(at);
    if (!bytes) return fail_path(w, "has a name that is empty, '.', '..' or too long", err);
    if (next < 0) return fail_open(w, code, err);
    at = next;
  }
  *out = at;
  return TDICT_OK;
}

tdict_status tdict_below_open_folder(const char *what, int root, const char *path, int *fd, tdict_error *err) {
  const walk w = {what, path, root};
  return open_folder(&w, strlen(path), fd, err);
}

tdict_status tdict_below_open(const char *what, int root, const char *path, int *fd, tdict_error *err) {
  const walk w = {what, path, root};
  const char *slash = strrchr(path, '/');
  char name[NAME_MAX + 1];
  int folder = root;
  if (!next_name(slash ? slash + 1 : path, name))
    return fail_path(&w, "has a name that is empty, '.', '..' or too long", err);
  tdict_status status = slash ? open_folder(&w, (size_t)(slash - path), &folder, err) : TDICT_OK;
  if (status != TDICT_OK) return status;
  status = tdict_file_open_in(what, folder, name, false, fd, err);
  if (status != TDICT_OK) tdict_error_at(err, status, path);
  if (slash) close(folder);
  return status;
}

tdict_status tdict_below_open_shard(const char *what, int folder, const char *name, bool follows_links, int *fd,
                                    tdict_error *err) {
  struct stat info;
  tdict_error why;
  const tdict_status status = tdict_file_open_in(what, folder, name, follows_links, fd, &why);
  if (status == TDICT_OK) return TDICT_OK;
  const bool is_link = status == TDICT_EFORMAT && !follows_links &&
                       fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(info.st_mode);
  tdict_fail_native(err, status, why.native, "%s%s", why.message,
                    is_link ? "; the option `follows_links` opens links" : "");
  return tdict_error_at(err, status, name);
}

tdict_status tdict_below_reopen(const char *what, int root, const tdict_below_file *file, int *fd, tdict_error *err) {
  struct stat info;
  if (!file->is_shard) return tdict_below_open(what, root, file->name, fd, err);
  tdict_status status = tdict_below_open_shard(what, root, file->name, file->follows_links, fd, err);
  if (status != TDICT_OK) return status;
  if (fstat(*fd, &info) == 0 && info.st_dev == file->device && info.st_ino == file->inode) return TDICT_OK;
  close(*fd);
  return tdict_fail(err, TDICT_EIO, "%s: %.150s was replaced by another file", what, file->name);
}
