/* Tests pthread_cancel() of threads that are inside the library: no lock stays held, so later calls return. The test
 * client_cancelled calls every public function on a cancelled thread. */
#include <unistd.h>

#include "support/test.h"
#include "support/threads.h"
#include "tdict/loader.h"

enum { COUNT = 1000 };

typedef struct yard {
  tdict_context *c;
  tdict_tree *tree;
  tdict_future *future;
  tdict_loader *loader;
  _Atomic(bool) has_returned;
} yard;

static void open_yard(yard *y) {
  const int64_t count = COUNT;
  memset(y, 0, sizeof *y);
  y->c = td_context(NULL);
  td_ok(tdict_create(1, &count, &y->tree, err));
  scoped_tensor x = td_made(tensor, tdict_tensor_zeros(TDICT_F32, 1, &count, NULL, &made, err));
  td_ok(tdict_set(y->tree, "x", x, err));
}
static void close_yard(yard *y) { td_release(y->future, y->loader, y->tree, y->c); }
#define scoped_yard TD_SCOPED(close_yard, yard)
static void *wait_for_future(void *user) {
  yard *y = user;
  (void)!tdict_future_wait(y->future, NULL, NULL);
  y->has_returned = true;
  return NULL;
}
static void *wait_with_limit(void *user) {
  yard *y = user;
  (void)!tdict_future_wait_for(y->future, INT64_MAX, NULL, NULL);
  y->has_returned = true;
  return NULL;
}
static void *wait_for_source(void *user) {
  yard *y = user;
  (void)!tdict_future_wait_source(y->future, NULL);
  y->has_returned = true;
  return NULL;
}
static void *move_tree(void *user) {
  yard *y = user;
  tdict_tree *out = NULL;
  tdict_transfer_options options = tdict_transfer_options_default();
  options.num_threads = 1; /* a pool thread copies, while this thread waits for the future */
  options.mode = TDICT_MODE_NON_BLOCKING_PIN;
  tdict_status status = tdict_to_device(y->c, y->tree, tdict_sim(0), &options, &out, NULL);
  if (status == TDICT_OK) tdict_release(out);
  y->has_returned = status == TDICT_OK;
  pthread_testcancel();
  return NULL;
}

/* Runs `wait` on a thread, and cancels the thread when it sleeps. Checks that the thread ends while the device is
 * stopped if `ends_at_once` is true, otherwise only after the call. */
static void cancel_while_held(yard *y, void *(*wait)(void *), bool ends_at_once) {
  void *result = NULL;
  td_ok(tdict_sim_hold(y->c, err));
  if (wait != move_tree) td_ok(tdict_to_device_async(y->c, y->tree, tdict_sim(0), NULL, &y->future, err));
  pthread_t thread = td_start(wait, y);
  td_rest();
  assert_int_equal(pthread_cancel(thread), 0);
  if (!ends_at_once) {
    td_rest();
    td_ok(tdict_sim_resume(y->c, err));
  }
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, PTHREAD_CANCELED);
  assert_int_equal(y->has_returned, !ends_at_once);
  if (ends_at_once) td_ok(tdict_sim_resume(y->c, err));
}

/* Calls that wait for a future are cancellation points. Another thread can wait for the same future. */
SIM_CASE(cancelled_waits_hold_no_lock) {
  void *(*const waits[])(void *) = {wait_for_future, wait_with_limit, wait_for_source};
  alarm(60); /* kills the program if a call waits forever */
  for (size_t i = 0; i < sizeof waits / sizeof *waits; i++) {
    scoped_yard y;
    open_yard(&y);
    cancel_while_held(&y, waits[i], true);
    scoped_tree out = td_made(tree, tdict_future_wait(y.future, &made, err));
  }
  alarm(0);
}

/* A blocking transfer is not a cancellation point, so the thread ends only after the call. */
SIM_CASE(cancelled_transfers_end_first) {
  yard y;
  alarm(60);
  open_yard(&y);
  cancel_while_held(&y, move_tree, false);
  tdict_release(td_made(tree, tdict_to_device(y.c, y.tree, tdict_sim(0), NULL, &made, err)));
  close_yard(&y);
  alarm(0);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static tdict_status make_sample(void *user, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                tdict_error *err) {
  (void)info;
  (void)user, (void)index;
  pthread_mutex_lock(&gate);
  pthread_mutex_unlock(&gate);
  return tdict_create(0, NULL, out, err);
}
static void *wait_for_batch(void *user) {
  yard *y = user;
  scoped_tree batch = NULL;
  (void)!tdict_loader_next(y->loader, tdict_no_stream(), &batch, NULL);
  y->has_returned = true;
  return NULL;
}

/* If a thread is cancelled while it waits for a batch, the batch is not lost: another thread gets it. */
SIM_CASE(cancelled_loaders_lose_no_batch) {
  yard y;
  void *result = NULL;
  tdict_tree *batch = NULL;
  tdict_batch_info info = tdict_batch_info_default();
  tdict_dataset *dataset = NULL;
  tdict_loader_options options = td_with(tdict_loader_options, num_workers = 2, device = tdict_cpu());
  alarm(60);
  open_yard(&y);
  pthread_mutex_lock(&gate);
  td_ok(tdict_dataset_from_callback(make_sample, NULL, 5, &dataset, err));
  td_ok(tdict_loader_create(y.c, dataset, &options, &y.loader, err));
  tdict_dataset_release(dataset);
  pthread_t thread = td_start(wait_for_batch, &y);
  td_rest();
  assert_int_equal(pthread_cancel(thread), 0);
  assert_int_equal(pthread_join(thread, &result), 0);
  assert_ptr_equal(result, PTHREAD_CANCELED);
  assert_false(y.has_returned);
  pthread_mutex_unlock(&gate);
  td_ok(tdict_loader_next(y.loader, tdict_no_stream(), &batch, err));
  assert_non_null(batch);
  td_ok(tdict_loader_get_batch_info(y.loader, &info, err));
  assert_int_equal(info.batch, 0);
  tdict_release(batch);
  close_yard(&y);
  alarm(0);
}
