/* Tests the CPU time in the statistics, and transfers of a process that may use only one processor. */
#include "promises.h"

#include <sched.h>
#include <time.h>

#include "core/ops/visit.h"

static double cpu_now(clockid_t clock) {
  struct timespec t;
  assert_int_equal(clock_gettime(clock, &t), 0);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static tdict_tree *big_tree(int leaves) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < leaves; i++) {
    const char *key = td_text("l%d", i);
    tdict_tensor *t = new_bytes(1 << 20, NULL);
    memset(tdict_tensor_data(t), i + 1, 1 << 20);
    td_put(td, key, t);
  }
  return td;
}

/* The caller does all the work, so the CPU time in the statistics must be 40 % to 102 % of the time by the thread's CPU
 * clock. Both directions are tested, because transfers to the host empty slots only at the end. */
GPU_CASE(stats_count_processor_time) {
  scoped_place p = place_open(2);
  scoped_tree src = big_tree(2), there = NULL, back = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = 0, stats = &stats);
  for (int direction = 0; direction < 2; direction++) {
    double counted = 0, copied = 0, begin = 0;
    for (int i = -2; i < 40;
         i++) { /* the first transfers create the ring and the device memory, so they are not counted */
      if (i == 0) {
        counted = copied = 0;
        begin = cpu_now(CLOCK_THREAD_CPUTIME_ID);
      }
      tdict_tree **out = direction ? &back : &there;
      tdict_release(*out);
      td_ok(tdict_to_device(p.c, direction ? there : src, direction ? tdict_cpu() : p.device, &o, out, err));
      counted += stats.cpu_seconds;
      copied += stats.copy_seconds;
    }
    double own = cpu_now(CLOCK_THREAD_CPUTIME_ID) - begin;
    if (counted > 1.02 * own + 0.001 || counted < 0.4 * own)
      fail_msg("direction %d: CPU time is %.6f s in the statistics, %.6f s by the thread's clock, %.6f s of it copying",
               direction, counted, own, copied);
  }
}

static int quota = -1; /* the quota that the library reads; -1: the real one */
int __real_tdict_quota_cpus(const char *root);
int __wrap_tdict_quota_cpus(const char *root);
int __wrap_tdict_quota_cpus(const char *root) {
  assert_string_equal(root, "");
  return quota < 0 ? __real_tdict_quota_cpus(root) : quota;
}

/* With a quota of one processor, as in a container, one thread copies unless the program asks for more. */
GPU_CASE(transfer_keeps_to_the_quota) {
  quota = 1;
  scoped_place p = place_open(-1);
  scoped_tree src = big_tree(6);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  assert_int_equal(tdict_pool_num_cpus(tdict_context_pool(p.c)), 1);
  assert_true(tdict_context_num_threads(p.c) >= 8);
  for (int asked = -1; asked <= 4; asked += 5) {
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = asked, stats = &stats);
    scoped_tree there = td_made(tree, tdict_to_device(p.c, src, p.device, &o, &made, err));
    assert_in_range(stats.num_threads, 1, asked < 0 ? 1 : asked);
  }
}

/* With only one processor, as under `taskset -c 0`, transfers with any number of threads succeed, and use one by
 * default. Afterwards no thread spins. */
GPU_CASE(transfer_on_one_processor) {
  cpu_set_t all, one;
  assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  size_t cpu = 0;
  while (!CPU_ISSET(cpu, &all)) cpu++;
  CPU_SET(cpu, &one);
  assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
  place p = place_open(-1);
  assert_int_equal(tdict_context_num_threads(p.c), 8); /* one thread per processor, but at least 8 */
  tdict_tree *src = big_tree(6), *there, *back;
  static const int32_t asked[] = {-1, 0, 1, 8};
  for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = asked[i], stats = &stats);
    td_ok(tdict_to_device(p.c, src, p.device, &o, &there, err));
    assert_true(stats.num_threads >= 1);
    if (asked[i] == -1) assert_int_equal(stats.num_threads, 1); /* more threads could not run at the same time */
    td_ok(tdict_to_device(p.c, there, tdict_cpu(), &o, &back, err));
    for (int leaf = 0; leaf < 6; leaf++) {
      const unsigned char *bytes = tdict_const_data(back, td_text("l%d", leaf));
      for (size_t at = 0; at < 1 << 20; at += 4099) assert_int_equal(bytes[at], leaf + 1);
    }
    td_release(there, back);
  }
  double begin = cpu_now(CLOCK_PROCESS_CPUTIME_ID); /* no transfer runs now, so threads that spin would be noticed */
  const struct timespec pause = {0, 200000000};
  nanosleep(&pause, NULL);
  assert_true(cpu_now(CLOCK_PROCESS_CPUTIME_ID) - begin < 0.1);
  tdict_release(src);
  place_close(&p);
  assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}
