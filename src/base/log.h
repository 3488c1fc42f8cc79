/* The log of a context. It is reference-counted, since a transfer may end after its context.
 * Thread rule: safe from any thread. The program's function is called with no lock held. */
#ifndef TDICT_BASE_LOG_H
#define TDICT_BASE_LOG_H

#include <stdint.h>

#include "tdict/status.h"

typedef struct tdict_log tdict_log;
/* Creates a log with one reference. If `fn` is NULL, the log drops all messages. Returns TDICT_ENOMEM if host memory is
 * exhausted. */
tdict_status tdict_log_create(void (*fn)(void *user, int32_t level, const char *text), void *user, tdict_log **out,
                              tdict_error *err);
tdict_log *tdict_log_retain(tdict_log *log);
void tdict_log_release(tdict_log *log); /* NULL is allowed */
/* Closes the log: afterwards no call of the program's function starts. Waits for running calls of the program's
 * function. That function must not call tdict_log_close(). */
void tdict_log_close(tdict_log *log);
/* Formats a message and passes it to the program's function. Does nothing if the log is closed. Cuts the message at
 * 1023 bytes. */
void tdict_log_write(tdict_log *log, int32_t level, const char *format, ...) TDICT_PRINTF(3, 4);

#endif
