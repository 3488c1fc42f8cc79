/* Tests the latch: which calls wait, how long they wait, and when the latch may be destroyed. */
#include "support/test.h"

#include <unistd.h>

#include "core/base/clock.h"
#include "core/sched/latch.h"
#include "support/threads.h"

static void *count_down(void *user) {
  usleep(200);
  tdict_latch_down(user);
  return NULL;
}

CASE(latch_waits_for_all) {
  enum { THREADS = 8 };
  tdict_latch latch;
  tdict_latch_init(&latch, THREADS + 1);
  td_in_threads(THREADS, count_down, &latch, 0);
  assert_false(tdict_latch_is_zero(&latch));
  assert_false(tdict_latch_wait(&latch, tdict_now_ns()));
  tdict_latch_down(&latch);
  assert_true(tdict_latch_is_zero(&latch));
  assert_true(tdict_latch_wait(&latch, INT64_MAX));
  assert_true(tdict_latch_wait(&latch, 0)); /* the count is 0, so a past deadline does not matter */
  tdict_latch_destroy(&latch);
}

CASE(latch_times_out_by_the_monotonic_clock) {
  tdict_latch latch;
  tdict_latch_init(&latch, 1);
  int64_t begin = tdict_now_ns(), wanted = 30 * 1000000;
  assert_false(tdict_latch_wait(&latch, begin + wanted));
  int64_t waited = tdict_now_ns() - begin;
  assert_true(waited >= wanted);
  assert_true(waited < 20 * INT64_C(1000000000));
  assert_false(tdict_latch_wait(&latch, 0));
  assert_false(tdict_latch_wait(&latch, -1));
  assert_false(tdict_latch_wait(&latch, INT64_MIN));
  tdict_latch_down(&latch);
  assert_true(tdict_latch_wait(&latch, begin + wanted));
  tdict_latch_destroy(&latch);
}

/* tdict_latch_spin() returns at its deadline or when the count is 0, whichever comes first. */
CASE(latch_spin_ends) {
  tdict_latch latch;
  tdict_latch_init(&latch, 1);
  const int64_t begin = tdict_now_ns();
  tdict_latch_spin(&latch, begin + 3000000);
  assert_in_range(tdict_now_ns() - begin, 3000000, INT64_C(20) * 1000000000);
  assert_false(tdict_latch_is_zero(&latch));
  pthread_t thread = td_start(count_down, &latch);
  tdict_latch_spin(&latch, INT64_MAX); /* returns because the thread counts down */
  assert_true(tdict_latch_is_zero(&latch));
  pthread_join(thread, NULL);
  tdict_latch_spin(&latch, 0);
  tdict_latch_destroy(&latch);
}

CASE(latch_of_zero_is_open) {
  tdict_latch latch;
  tdict_latch_init(&latch, 0);
  assert_true(tdict_latch_is_zero(&latch));
  assert_true(tdict_latch_wait(&latch, INT64_MAX));
  tdict_latch_destroy(&latch);
}

static void *wait_long(void *user) {
  return tdict_latch_wait(user, tdict_now_ns() + 60 * INT64_C(1000000000)) ? user : NULL;
}

CASE(latch_wakes_every_waiter) {
  enum { THREADS = 6 };
  tdict_latch latch;
  pthread_t threads[THREADS];
  tdict_latch_init(&latch, 1);
  for (int i = 0; i < THREADS; i++) threads[i] = td_start(wait_long, &latch);
  td_rest(); /* returns when all threads wait */
  int64_t begin = tdict_now_ns();
  tdict_latch_down(&latch);
  for (int i = 0; i < THREADS; i++) {
    void *result = NULL;
    pthread_join(threads[i], &result);
    assert_ptr_equal(result, &latch);
  }
  assert_true(tdict_now_ns() - begin < 30 * INT64_C(1000000000));
  tdict_latch_destroy(&latch);
}

/* A latch may be freed as soon as its count is 0. A sanitizer reports a later access by the other thread. */
CASE(latch_may_be_destroyed_after_a_wait) {
  for (int i = 0; i < 300; i++) {
    tdict_latch *latch = malloc(sizeof *latch);
    assert_non_null(latch);
    tdict_latch_init(latch, 1);
    pthread_t thread = td_start(count_down, latch);
    if (i % 2)
      assert_true(tdict_latch_wait(latch, INT64_MAX));
    else
      while (!tdict_latch_is_zero(latch)) sched_yield();
    tdict_latch_destroy(latch);
    memset(latch, 0xA5, sizeof *latch);
    free(latch);
    pthread_join(thread, NULL);
  }
}
