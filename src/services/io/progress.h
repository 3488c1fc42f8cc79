/* Counts the bytes that a load has read, or that a save has written, and reports them to the program's function. All
 * threads of one call share one struct. Reference-counted. Thread-safe. */
#ifndef TDICT_SERVICES_IO_PROGRESS_H
#define TDICT_SERVICES_IO_PROGRESS_H

#include <stdatomic.h>

#include "engine/options/pace.h"
#include "tdict/io.h"

typedef struct tdict_io_progress tdict_io_progress;
/* Creates the counter. `report` is called as tdict_load_options.progress describes. Returns TDICT_ENOMEM. */
tdict_status tdict_io_progress_create(const char *what, bool (*report)(void *user, uint64_t done, uint64_t total),
                                      void *user, tdict_io_progress **out, tdict_error *err);
/* In the following functions, NULL is allowed: the program wants no progress. */
void tdict_io_progress_retain(tdict_io_progress *progress);
void tdict_io_progress_release(tdict_io_progress *progress);
/* Sets the number of bytes and calls `report`, before threads start. Returns TDICT_ECANCELLED if it returns false. */
tdict_status tdict_io_progress_begin(tdict_io_progress *progress, uint64_t total, tdict_error *err);
/* Adds bytes, and calls `report` if due. Returns TDICT_ECANCELLED if this or an earlier call returned false. */
tdict_status tdict_io_progress_add(tdict_io_progress *progress, uint64_t bytes, tdict_error *err);
/* Returns TDICT_ECANCELLED if a call of `report` returned false. */
tdict_status tdict_io_progress_check(const tdict_io_progress *progress, tdict_error *err);
/* Calls `report` without new bytes, on the only thread. Returns TDICT_ECANCELLED if it returns false. */
tdict_status tdict_io_progress_ask(tdict_io_progress *progress, tdict_error *err);

/* What can stop or delay a save. */
typedef struct tdict_save_watch {
  const _Atomic(bool) *is_cancelled; /* relaxed; borrowed. true: the save ends with TDICT_ECANCELLED. NULL: never */
  tdict_io_progress *progress;       /* borrowed; NULL: the program wants no progress */
  tdict_pace *pace;                  /* borrowed; of what the calling thread writes. NULL: no limit */
} tdict_save_watch;

#endif
