/* Counts the parts of promises, see promise.h. Thread rule: safe from any thread, if no comment says otherwise. */
#ifndef TDICT_TRANSFER_PARTS_H
#define TDICT_TRANSFER_PARTS_H

#include "transfer/job.h"

/* Counts `part` as a part that has not ended. The part retains the promise. */
void tdict_parts_attach(tdict_future *promise, tdict_future *part, size_t position);
/* Takes back tdict_parts_attach() for a part that failed to start. Does nothing if the part has ended. */
void tdict_parts_detach(tdict_future *part);
/* Gives the promise the error and the statistics of a part that has ended. The first error cancels the other parts.
 * Returns true if this part was the last: the caller then ends the promise with tdict_transfer_finish(). */
bool tdict_parts_report(tdict_future *promise, tdict_future *part);
/* Counts one part, or the work of the owner, as ended. Returns true like tdict_parts_report(). */
bool tdict_parts_count_down(tdict_future *promise);
/* Waits until all parts have ended. The calling thread does the work of parts that no thread has begun. */
void tdict_parts_wait(tdict_future *promise);
/* Makes a stream wait for all parts, and creates the result. If the promise has no parts, waits until the promise has
 * ended. Returns the errors of tdict_future_wait_on_stream(). */
tdict_status tdict_parts_wait_on_stream(tdict_future *promise, tdict_stream stream, tdict_error *err);
void tdict_parts_cancel(tdict_future *promise);

#endif
