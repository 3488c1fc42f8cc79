/* Passes messages to the log function of the program. A log is reference-counted, since futures and device memory can
 * outlive the context. Thread rule: safe from any thread. A log has no lock. The program's function can still run under
 * a lock, because the caller of tdict_log_write() can hold a lock. */
#ifndef TDICT_CORE_BASE_LOG_H
#define TDICT_CORE_BASE_LOG_H

#include <stdint.h>

#include "tdict/status.h"

typedef struct tdict_log tdict_log;
/* Creates a log with one reference. If `fn` is NULL, it drops all messages. Returns TDICT_ENOMEM. */
tdict_status tdict_log_create(void (*fn)(void *user, int32_t level, const char *text), void *user, tdict_log **out,
                              tdict_error *err);
tdict_log *tdict_log_retain(tdict_log *log);
void tdict_log_release(tdict_log *log); /* NULL is allowed */
/* Closes the log: it drops all later messages. Waits for running calls of the program's function, which must not call
 * this. */
void tdict_log_close(tdict_log *log);
/* Formats a message of at most 1023 bytes, and passes it to the program's function unless the log is closed. */
void tdict_log_write(tdict_log *log, int32_t level, const char *format, ...) TDICT_PRINTF(3, 4);

#endif
