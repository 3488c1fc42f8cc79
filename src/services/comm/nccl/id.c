/* Implements ids of communicators, and their exchange by a file. The caller owns the id. Thread-safe. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/file.h"
#include "core/base/thread.h"
#include "services/comm/nccl/library.h"
#include "tdict/comm_nccl.h"

tdict_status tdict_nccl_create_id(const char *library, tdict_nccl_id *out, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_nccl_api api;
  tdict_nccl_unique_id id;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "nccl: out is NULL");
  tdict_status status = tdict_nccl_open(library, &api, err);
  if (status != TDICT_OK) return status;
  status = tdict_nccl_check(&api, NULL, api.get_id(&id), "nccl", "ncclGetUniqueId", err);
  if (status == TDICT_OK) memcpy(out->bytes, id.internal, sizeof out->bytes);
  return status;
}

/* Writes the id to a new file. Returns NULL, or the name of the system call that failed; errno has its code. */
static const char *write_new_file(const char *path, const tdict_nccl_id *id) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return "open";
  ssize_t written = write(fd, id->bytes, sizeof id->bytes);
  if (written >= 0 && written != (ssize_t)sizeof id->bytes) errno = ENOSPC;
  const char *failed = written == (ssize_t)sizeof id->bytes ? NULL : "write";
  int code = errno;
  if (close(fd) != 0 && !failed) return "close";
  errno = code;
  return failed;
}

tdict_status tdict_nccl_write_id_file(const char *path, const tdict_nccl_id *id, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!path || !id) return tdict_fail_null(err, "nccl id", path ? "id" : "path");
  if (!*path) return tdict_fail(err, TDICT_EINVAL, "nccl id: the path is empty");
  const size_t length = strlen(path);
  char *part = malloc(length + sizeof ".part");
  if (!part) return tdict_fail_memory(err, "nccl id", NULL, "a path");
  memcpy(part, path, length);
  memcpy(part + length, ".part", sizeof ".part");
  const char *failed = write_new_file(part, id);
  if (!failed && rename(part, path) != 0) failed = "rename";
  tdict_status status = TDICT_OK;
  if (failed) {
    status = tdict_fail_errno(err, errno, path, "nccl id: %s of %.150s failed", failed, path);
    unlink(part);
  }
  free(part);
  return status;
}

/* Reads the id from an open file, which must have exactly the bytes of the id. */
static tdict_status read_open_file(int fd, const char *path, tdict_nccl_id *out, tdict_error *err) {
  char bytes[sizeof out->bytes + 1];
  size_t count = 0;
  ssize_t found = 1;
  while (found > 0 && count < sizeof bytes) {
    found = read(fd, bytes + count, sizeof bytes - count);
    if (found > 0) count += (size_t)found;
    if (found < 0 && errno == EINTR) found = 1;
  }
  if (found < 0) return tdict_fail_errno(err, errno, path, "nccl id: read of %.150s failed", path);
  if (count != sizeof out->bytes)
    return tdict_fail_at(err, TDICT_EFORMAT, path, "nccl id: %.150s has %s %zu bytes, wanted %zu", path,
                         count > sizeof out->bytes ? "at least" : "only", count, sizeof out->bytes);
  memcpy(out->bytes, bytes, sizeof out->bytes);
  return TDICT_OK;
}

tdict_status tdict_nccl_read_id_file(const char *path, int64_t timeout_ns, tdict_nccl_id *out, tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!path || !out) return tdict_fail_null(err, "nccl id", path ? "out" : "path");
  if (timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "nccl id: timeout_ns is %lld, wanted 0 or more", (long long)timeout_ns);
  const int64_t deadline = tdict_deadline_ns(timeout_ns);
  const struct timespec pause = {0, 10000000};
  while (access(path, F_OK) != 0) {
    if (errno != ENOENT) return tdict_fail_errno(err, errno, path, "nccl id: access of %.150s failed", path);
    if (tdict_now_ns() >= deadline)
      return tdict_fail_at(err, TDICT_ETIMEDOUT, path, "nccl id: %.150s does not exist", path);
    tdict_sleep(&pause);
  }
  int fd;
  tdict_status status = tdict_file_open_to_read("nccl id", path, &fd, err);
  if (status != TDICT_OK) return status;
  status = read_open_file(fd, path, out, err);
  close(fd);
  return status;
}
