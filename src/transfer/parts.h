/* Counts the parts of promises, see promise.h. Thread rule: safe from any thread, if no comment says otherwise. */
#ifndef TDICT_TRANSFER_PARTS_H
#define TDICT_TRANSFER_PARTS_H

#include "transfer/job.h"

extern const tdict_future_kind tdict_promise_kind;

/* Counts `part` as a part that has not ended. The part retains the promise. */
void tdict_parts_attach(tdict_future *promise, tdict_future *part, size_t position);
/* Takes back tdict_parts_attach() for a part that failed to start. Does nothing if the part has ended. */
void tdict_parts_detach(tdict_future *part);
/* Counts one part, or the work of the owner, as ended. If this part was the last, ends the promise. */
void tdict_parts_count_down(tdict_future *promise);
void tdict_parts_cancel(tdict_future *promise);

#endif
