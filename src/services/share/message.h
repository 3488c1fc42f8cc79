/* Sends and receives messages with descriptors over Unix sockets. The caller owns the descriptors. Thread-safe. */
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

/* Sends a message with copies of the descriptors. Errors begin with `what`. Returns TDICT_EIO if it is refused. */
tdict_status tdict_message_send(const char *what, int socket, const tdict_message *message, tdict_error *err);
/* Waits for a message of out->kind with out->num_fds descriptors, which the caller owns and exec closes. A wrong
 * message is removed, and its descriptors are closed. Returns TDICT_ETIMEDOUT, TDICT_EFORMAT for a wrong message,
 * TDICT_ENOTSUP for another version, TDICT_EINVAL for a negative time or socket, and TDICT_EIO for a closed socket or a
 * failed call. */
tdict_status tdict_message_receive(const char *what, int socket, int64_t timeout_ns, tdict_message *out,
                                   tdict_error *err);

#endif
