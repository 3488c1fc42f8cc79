/* Tests reading, counting and formatting sets of processors, on simulated machines with up to 8192 processors. */
#include "support/test.h"

#include <errno.h>
#include <unistd.h>

#include "core/sched/pool.h"
#include "support/cpus.h"

/* The number of processors that sched_getaffinity() reports. 0: the real set; -1: the call fails. */
static int num_cpus;
int __real_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *out);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *out);
int __wrap_sched_getaffinity(pid_t pid, size_t bytes, cpu_set_t *out) {
  if (num_cpus == 0) return __real_sched_getaffinity(pid, bytes, out);
  /* as on Linux, `out` must have room for all processors of the machine */
  if (num_cpus < 0 || bytes * 8 < (size_t)num_cpus) return errno = EINVAL, -1;
  memset(out, 0, bytes);
  for (int i = 0; i < num_cpus; i++) CPU_SET_S((size_t)i, bytes, out);
  return 0;
}

CASE(cpus_of_large_machines_are_counted) {
  static const int counts[] = {1, 8, 1024, 1025, 1200, 4096, 8192};
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    tdict_cpus cpus;
    char text[64], wanted[32];
    const int count = counts[i], threads = count < 8 ? 8 : count > 1024 ? 1024 : count;
    num_cpus = count;
    assert_true(tdict_cpus_read(&cpus));
    assert_int_equal(CPU_COUNT_S(sizeof cpus.sets, cpus.sets), count);
    assert_int_equal(tdict_cpus_count(), count);
    assert_int_equal(tdict_pool_default_size(), threads);
    snprintf(wanted, sizeof wanted, count > 1 ? "0-%d" : "0", count - 1);
    assert_string_equal(tdict_cpus_format(&cpus, text, sizeof text), wanted);
    scoped_pool pool = td_made(pool, tdict_pool_create(2, &made, err));
    assert_int_equal(tdict_pool_num_cpus(pool), count);
  }
}

/* If the affinity set cannot be read, all online processors are counted. */
CASE(cpus_are_counted_without_a_set) {
  tdict_cpus cpus;
  num_cpus = -1;
  assert_false(tdict_cpus_read(&cpus));
  assert_int_equal(CPU_COUNT_S(sizeof cpus.sets, cpus.sets), 0);
  assert_int_equal(tdict_cpus_count(), sysconf(_SC_NPROCESSORS_ONLN));
}

CASE(cpus_are_written_as_the_kernel_does) {
  tdict_cpus cpus = td_cpus(0, 3);
  char text[64];
  CPU_SET_S(8, sizeof cpus.sets, cpus.sets);
  CPU_SET_S(TDICT_MOST_CPUS - 1, sizeof cpus.sets, cpus.sets);
  assert_string_equal(tdict_cpus_format(&cpus, text, sizeof text), "0-3,8,16383");
  cpus = td_cpus(1, 0);
  assert_string_equal(tdict_cpus_format(&cpus, text, sizeof text), "");
}
