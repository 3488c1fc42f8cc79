/* Implements promises. See promise.h for ownership and threads. */
#include "transfer/promise.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "transfer/order.h"
#include "transfer/parts.h"

tdict_status tdict_promise_create(tdict_context *context, const char *what, size_t max_parts, tdict_future **out,
                                  tdict_error *err) {
  tdict_engine *e = tdict_context_engine(context);
  tdict_future *f;
  tdict_status status = tdict_forkmark_check(e->config.mark, what, err);
  if (status == TDICT_OK) status = tdict_transfer_create(e, &tdict_promise_kind, 0, &f, err);
  if (status != TDICT_OK) return status;
  f->parts = calloc(1, sizeof *f->parts + max_parts * sizeof f->parts->list[0]);
  if (!f->parts) {
    tdict_transfer_release(f);
    return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for a future", what);
  }
  f->parts->num_open = 1;
  pthread_mutex_init(&f->parts->lock, NULL);
  f->skips_stats = true; /* parts.c adds the statistics of the parts */
  f->begin_ns = tdict_now_ns();
  pthread_mutex_lock(&e->lock);
  tdict_transfer_count_live(f);
  pthread_mutex_unlock(&e->lock);
  *out = f;
  return TDICT_OK;
}

tdict_status tdict_promise_start(tdict_future *promise, tdict_context *context, tdict_start *start, size_t position,
                                 tdict_error *err) {
  tdict_parts *p = promise->parts;
  tdict_future *part;
  start->promise = promise;
  start->position = position;
  tdict_status status = tdict_start_transfer(context, start, &part, err);
  if (status != TDICT_OK) return status;
  pthread_mutex_lock(&p->lock);
  p->list[p->num_parts++] = part;
  pthread_mutex_unlock(&p->lock);
  /* a part that failed before this part was listed could not cancel this part */
  if (tdict_transfer_has_failed(promise)) tdict_future_cancel(part);
  return status;
}

tdict_future *tdict_promise_last_part(const tdict_future *promise) {
  return promise->parts->list[promise->parts->num_parts - 1];
}

void tdict_promise_close(tdict_future *promise, tdict_tree *result, const tdict_error *error) {
  if (error) tdict_transfer_fail_at(promise, "", error);
  if (error) tdict_parts_cancel(promise);
  pthread_mutex_lock(&promise->parts->lock);
  if (result) promise->result = result;
  pthread_mutex_unlock(&promise->parts->lock);
  tdict_parts_count_down(promise);
}
