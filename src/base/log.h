/* Where a context's messages go. Counted, since transfers may end after their context. Thread rule: safe from any thread;
 * the program's function is called with no lock held. */
#ifndef TDICT_BASE_LOG_H
#define TDICT_BASE_LOG_H

#include <stdint.h>

#include "tdict/status.h"

typedef struct tdict_log tdict_log;
/* fn may be NULL: silence. TDICT_ENOMEM. */
tdict_status tdict_log_create(void (*fn)(void *user, int32_t level, const char *text), void *user, tdict_log **out,
                              tdict_error *err);
tdict_log *tdict_log_retain(tdict_log *log);
void tdict_log_release(tdict_log *log); /* NULL is allowed */
/* Waits for calls of the program's function that are running; no further one begins. Not from that function. */
void tdict_log_close(tdict_log *log);
void tdict_log_write(tdict_log *log, int32_t level, const char *format, ...) TDICT_PRINTF(3, 4);

#endif
