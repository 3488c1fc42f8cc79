/* Sends and receives the messages that carry descriptors over Unix sockets. The caller owns the descriptors. Thread
 * rule: thread-safe. */
#ifndef TDICT_SERVICES_SHARE_MESSAGE_H
#define TDICT_SERVICES_SHARE_MESSAGE_H

#include <stdint.h>

#include "tdict/status.h"

enum { TDICT_MESSAGE_MAX_FDS = 2 };
typedef struct tdict_message {
  uint32_t kind;   /* a tdict_segment_kind */
  uint32_t worker; /* for a ring: the number of the worker */
  int num_fds;
  int fds[TDICT_MESSAGE_MAX_FDS]; /* descriptor of the segment; for a ring, also of the trainer's process */
} tdict_message;

/* Sends a message. The receiver gets copies of the descriptors. The error's message begins with `what`. Returns
 * TDICT_EIO if the socket refuses the message. */
tdict_status tdict_message_send(const char *what, int socket, const tdict_message *message, tdict_error *err);
/* Waits for a message and receives the message. The caller sets out->kind and out->num_fds to the wanted kind and
 * number of descriptors. The caller owns the new descriptors, which are closed on exec. Removes a wrong message from
 * the socket, and closes the descriptors of the message. Returns TDICT_EINVAL for a negative time or socket,
 * TDICT_ETIMEDOUT, TDICT_EFORMAT for a wrong message, and TDICT_ENOTSUP for another version. Returns TDICT_EIO if the
 * peer has closed the socket, or if a system call fails. */
tdict_status tdict_message_receive(const char *what, int socket, int64_t timeout_ns, tdict_message *out,
                                   tdict_error *err);

#endif
