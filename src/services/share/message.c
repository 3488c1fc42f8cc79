/* Sends and receives messages with descriptors. See message.h for ownership and threads. */
#include "services/share/message.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "core/base/error.h"

enum { MAGIC = 0x67736d74 /* "tmsg" */, VERSION = 1 };
/* The bytes of a message. */
typedef struct message_body {
  uint32_t magic, version, kind, worker;
} message_body;

/* Descriptors with room, so that an error can report a wrong message. The system closes those that do not fit. */
enum { MOST_FDS = 8 };
typedef union control_room {
  struct cmsghdr header; /* aligns the bytes */
  char bytes[CMSG_SPACE(MOST_FDS * sizeof(int))];
} control_room;

tdict_status tdict_message_send(const char *what, int socket, const tdict_message *m, tdict_error *err) {
  message_body body = {MAGIC, VERSION, m->kind, m->worker};
  control_room room;
  const size_t fd_bytes = (size_t)m->num_fds * sizeof m->fds[0];
  struct iovec bytes = {&body, sizeof body};
  struct msghdr header = {
      .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = CMSG_SPACE(fd_bytes)};
  memset(&room, 0, sizeof room);
  struct cmsghdr *control = CMSG_FIRSTHDR(&header);
  control->cmsg_level = SOL_SOCKET;
  control->cmsg_type = SCM_RIGHTS;
  control->cmsg_len = CMSG_LEN(fd_bytes);
  memcpy(CMSG_DATA(control), m->fds, fd_bytes);
  ssize_t sent;
  do sent = sendmsg(socket, &header, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  if (sent == (ssize_t)sizeof body) return TDICT_OK;
  const int code = sent < 0 ? errno : 0;
  return tdict_fail_native(err, TDICT_EIO, code, "%s: the socket refused the message: %s", what,
                           code ? strerror(code) : "it took only a part");
}

/* Waits until the socket has a message or is closed, or until the deadline. A signal does not end the wait. */
static tdict_status wait_for_message(const char *what, int socket, int64_t deadline_ns, tdict_error *err) {
  for (;;) {
    struct pollfd entry = {.fd = socket, .events = POLLIN};
    int64_t left = deadline_ns - tdict_now_ns();
    if (left < 0) left = 0;
    const struct timespec timeout = {(time_t)(left / 1000000000), (long)(left % 1000000000)};
    const int ready = ppoll(&entry, 1, deadline_ns == INT64_MAX ? NULL : &timeout, NULL);
    if (ready > 0) return TDICT_OK;
    if (ready == 0) return tdict_fail(err, TDICT_ETIMEDOUT, "%s: no message has arrived", what);
    if (errno != EINTR) return tdict_fail_native(err, TDICT_EIO, errno, "%s: ppoll failed: %s", what, strerror(errno));
  }
}

/* Copies the descriptors of a message to `fds`, which has MOST_FDS elements, and returns their number. */
static int get_fds(struct msghdr *header, int *fds) {
  int count = 0;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const size_t bytes = c->cmsg_len - CMSG_LEN(0);
    for (size_t at = 0; at + sizeof *fds <= bytes && count < MOST_FDS; at += sizeof *fds)
      memcpy(&fds[count++], CMSG_DATA(c) + at, sizeof *fds);
  }
  return count;
}

typedef struct received {
  message_body body;
  ssize_t bytes;
  int num_fds, flags;
  int fds[MOST_FDS];
} received;

static tdict_status check_message(const char *what, const received *r, const tdict_message *wanted, tdict_error *err) {
  if (r->bytes == 0 && r->num_fds == 0) return tdict_fail(err, TDICT_EIO, "%s: the peer has closed the socket", what);
  if (r->bytes != (ssize_t)sizeof r->body || r->flags & MSG_TRUNC)
    return tdict_fail(err, TDICT_EFORMAT, "%s: a message of %zd bytes%s, wanted %zu", what, r->bytes,
                      r->flags & MSG_TRUNC ? " or more" : "", sizeof r->body);
  if (r->body.magic != MAGIC)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the message begins with 0x%08x, wanted 0x%08x", what, r->body.magic,
                      MAGIC);
  if (r->body.version != VERSION)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: the message has version %u, wanted %d", what, r->body.version, VERSION);
  if (r->body.kind != wanted->kind)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the message has kind %u, wanted %u", what, r->body.kind, wanted->kind);
  if (r->num_fds != wanted->num_fds || r->flags & MSG_CTRUNC)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the message has %d%s descriptors, wanted %d", what, r->num_fds,
                      r->flags & MSG_CTRUNC ? " or more" : "", wanted->num_fds);
  return TDICT_OK;
}

tdict_status tdict_message_receive(const char *what, int socket, int64_t timeout_ns, tdict_message *out,
                                   tdict_error *err) {
  if (timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: timeout_ns is %lld, wanted 0 or more", what, (long long)timeout_ns);
  if (socket < 0) return tdict_fail(err, TDICT_EINVAL, "%s: socket is %d", what, socket);
  const int64_t deadline = tdict_deadline_ns(timeout_ns);
  received r = {.bytes = -1};
  control_room room;
  struct iovec bytes = {&r.body, sizeof r.body};
  struct msghdr header = {.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &room};
  while (r.bytes < 0) {
    tdict_status status = wait_for_message(what, socket, deadline, err);
    if (status != TDICT_OK) return status;
    header.msg_controllen = sizeof room;
    /* Another thread may have received the message in the meantime, so do not wait here. */
    r.bytes = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (r.bytes < 0 && errno != EINTR && errno != EAGAIN)
      return tdict_fail_native(err, TDICT_EIO, errno, "%s: recvmsg failed: %s", what, strerror(errno));
  }
  r.flags = header.msg_flags;
  r.num_fds = get_fds(&header, r.fds);
  tdict_status status = check_message(what, &r, out, err);
  if (status != TDICT_OK) {
    for (int i = 0; i < r.num_fds; i++) close(r.fds[i]);
    return status;
  }
  out->worker = r.body.worker;
  memcpy(out->fds, r.fds, (size_t)r.num_fds * sizeof r.fds[0]);
  return TDICT_OK;
}
