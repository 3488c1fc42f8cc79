/* Declares promises. A promise is a future without copies of its own. The promise ends when its owner has closed it
 * and its parts have ended. A part is a transfer that the owner starts for the promise. The first error of a part is
 * the error of the promise, and stops the other parts. Cancelling the promise cancels its parts.
 *
 * The owner is the code that creates the promise. The owner holds one handle, which the owner passes to the program.
 * Thread rule: only the owner calls these functions. */
#ifndef TDICT_ENGINE_PROMISE_H
#define TDICT_ENGINE_PROMISE_H

#include "engine/future.h"
#include "engine/start.h"

typedef struct tdict_promise {
  tdict_future future; /* first member, so that a pointer to the promise is also a pointer to the future */
  /* guards: parts, num_parts, num_open and, until the promise ends, its result and its statistics */
  pthread_mutex_t lock;
  size_t num_open; /* parts that have not ended, and 1 until the owner closes the promise */
  size_t num_parts;
  tdict_future *parts[]; /* a handle of each part, which is a transfer */
} tdict_promise;

/* Creates a promise with space for `max_parts` parts. *out has one reference, which is a handle of the program. The
 * context waits for the end of the promise before the context is destroyed. Returns TDICT_EFORKED and TDICT_ENOMEM. */
tdict_status tdict_promise_create(tdict_context *context, const char *what, size_t max_parts, tdict_promise **out,
                                  tdict_error *err);
/* Starts a transfer as a part of the promise. Sets the fields `promise` and `position` of `start`. `position` is the
 * number of a tree of the result. If the part fails, the path of the promise's error begins with this number. Returns
 * the errors of tdict_start_transfer(). In this case, the owner still calls tdict_promise_close(). */
tdict_status tdict_promise_start(tdict_promise *promise, tdict_context *context, tdict_start *start, size_t position,
                                 tdict_error *err);
/* Says that no more parts follow. The promise ends when all parts have ended, or in this call. The result is
 * a tree with a child for each position. The key of the child is the number of the position. The child is the result
 * that some part has for this position. If `error` is not NULL, the promise fails with this error. Do not use the
 * context after this call. */
void tdict_promise_close(tdict_promise *promise, const tdict_error *error);

#endif
