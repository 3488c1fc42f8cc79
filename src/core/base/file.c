/* Opens files that the program names. The caller owns each descriptor and each stream. Thread-safe. */
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"

static tdict_status fail_to_open(const char *what, const char *path, int code, tdict_error *err) {
  return tdict_fail_errno(err, code, path, "%s: %.150s cannot be opened", what, path);
}

static const char *describe_kind(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  return S_ISBLK(mode) ? "a block device" : "of an unknown kind";
}

static tdict_status check_file_kind(const char *what, const char *path, int fd, bool writes, tdict_error *err) {
  struct stat info;
  if (fstat(fd, &info) != 0) return fail_to_open(what, path, errno, err);
  if (S_ISREG(info.st_mode) || (writes && S_ISCHR(info.st_mode))) return TDICT_OK;
  return tdict_fail_at(err, TDICT_EFORMAT, path, "%s: %.150s is %s, wanted a regular file", what, path,
                       describe_kind(info.st_mode));
}

/* A file to open. `flags` are flags of open(). */
typedef struct request {
  const char *what, *path;
  int folder, flags;
} request;

static tdict_status fail_kind(const request *file, const char *kind, tdict_error *err) {
  return tdict_fail_at(err, TDICT_EFORMAT, file->path, "%s: %.150s is %s, wanted a regular file", file->what,
                       file->path, kind);
}

static tdict_status open_file(const request *file, int *out, tdict_error *err) {
  const bool writes = (file->flags & O_ACCMODE) != O_RDONLY;
  /* O_NONBLOCK: opening a FIFO must not wait until a process opens the other end. */
  int fd = openat(file->folder, file->path, file->flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  if (fd < 0 && errno == ENXIO) { /* ENXIO: a FIFO without a reader, a socket, or an absent device */
    struct stat info;
    if (fstatat(file->folder, file->path, &info, 0) == 0 && !S_ISCHR(info.st_mode))
      return fail_kind(file, describe_kind(info.st_mode), err);
    errno = ENXIO;
  }
  if (fd < 0 && errno == ELOOP && (file->flags & O_NOFOLLOW)) return fail_kind(file, "a symbolic link", err);
  if (fd < 0) return fail_to_open(file->what, file->path, errno, err);
  tdict_status status = check_file_kind(file->what, file->path, fd, writes, err);
  /* Clear O_NONBLOCK, which was needed for open() only: reads and writes of the file may wait. */
  if (status == TDICT_OK && fcntl(fd, F_SETFL, 0) != 0) status = fail_to_open(file->what, file->path, errno, err);
  return TDICT_HAND_OVER(status, fd, out, close);
}

static tdict_status open_stream(const char *what, const char *path, bool writes, FILE **out, tdict_error *err) {
  int fd;
  const request file = {what, path, AT_FDCWD, writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY};
  tdict_status status = open_file(&file, &fd, err);
  if (status != TDICT_OK) return status;
  *out = fdopen(fd, writes ? "w" : "r");
  if (*out) return TDICT_OK;
  int code = errno;
  close(fd);
  return fail_to_open(what, path, code, err);
}

tdict_status tdict_file_open_to_read(const char *what, const char *path, int *fd, tdict_error *err) {
  return tdict_file_open_in(what, AT_FDCWD, path, true, fd, err);
}
tdict_status tdict_file_open_in(const char *what, int folder, const char *name, bool follows_links, int *fd,
                                tdict_error *err) {
  const request file = {what, name, folder, O_RDONLY | (follows_links ? 0 : O_NOFOLLOW)};
  return open_file(&file, fd, err);
}
tdict_status tdict_file_stream_to_read(const char *what, const char *path, FILE **out, tdict_error *err) {
  return open_stream(what, path, false, out, err);
}
tdict_status tdict_file_stream_to_write(const char *what, const char *path, FILE **out, tdict_error *err) {
  return open_stream(what, path, true, out, err);
}
