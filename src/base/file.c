/* Opens files that the program names. The caller owns each descriptor and each stream. Thread-safe. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

static tdict_status fail_to_open(const char *what, const char *path, int code, tdict_error *err) {
  tdict_fail_native(err, TDICT_EIO, code, "%s: %.150s cannot be opened: %s", what, path, strerror(code));
  return tdict_error_at(err, TDICT_EIO, path);
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
  tdict_fail(err, TDICT_EFORMAT, "%s: %.150s is %s, wanted a regular file", what, path, describe_kind(info.st_mode));
  return tdict_error_at(err, TDICT_EFORMAT, path);
}

static tdict_status open_file(const char *what, const char *path, bool writes, int *out, tdict_error *err) {
  int flags = writes ? O_WRONLY | O_CREAT | O_TRUNC : O_RDONLY;
  /* O_NONBLOCK: opening a FIFO must not wait until a process opens the other end. */
  int fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0666);
  if (fd < 0 && errno == ENXIO) { /* ENXIO: a FIFO without a reader, a socket, or an absent device */
    struct stat info;
    if (stat(path, &info) == 0 && !S_ISCHR(info.st_mode)) {
      tdict_fail(err, TDICT_EFORMAT, "%s: %.150s is %s, wanted a regular file", what, path,
                 describe_kind(info.st_mode));
      return tdict_error_at(err, TDICT_EFORMAT, path);
    }
    errno = ENXIO;
  }
  if (fd < 0) return fail_to_open(what, path, errno, err);
  tdict_status status = check_file_kind(what, path, fd, writes, err);
  /* Clear O_NONBLOCK, which was needed for open() only: reads and writes of the file may wait. */
  if (status == TDICT_OK && fcntl(fd, F_SETFL, 0) != 0) status = fail_to_open(what, path, errno, err);
  if (status == TDICT_OK)
    *out = fd;
  else
    close(fd);
  return status;
}

static tdict_status open_stream(const char *what, const char *path, bool writes, FILE **out, tdict_error *err) {
  int fd;
  tdict_status status = open_file(what, path, writes, &fd, err);
  if (status != TDICT_OK) return status;
  *out = fdopen(fd, writes ? "w" : "r");
  if (*out) return TDICT_OK;
  int code = errno;
  close(fd);
  return fail_to_open(what, path, code, err);
}

tdict_status tdict_file_open_to_read(const char *what, const char *path, int *fd, tdict_error *err) {
  return open_file(what, path, false, fd, err);
}
tdict_status tdict_file_stream_to_read(const char *what, const char *path, FILE **out, tdict_error *err) {
  return open_stream(what, path, false, out, err);
}
tdict_status tdict_file_stream_to_write(const char *what, const char *path, FILE **out, tdict_error *err) {
  return open_stream(what, path, true, out, err);
}
