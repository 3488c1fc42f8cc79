/* Runs random operations on trees and on a plain model (tests/support/model.h), and compares statuses, keys, shapes,
 * elements and addresses. For long runs (docs/container.md), the environment variable TDICT_OPS sets the number of
 * operations, and TDICT_SEED the first seed. */
#include "support/ops.h"
#include "support/test.h"

enum { EPISODE = 400 };

static int64_t number(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static void run(int64_t count, bool failing) {
  static ops o;
  ops_refuse = (ops_refusal){td_fail_alloc, td_fail_alloc_stop};
  int64_t seed = number("TDICT_SEED", 20261120);
  count = number("TDICT_OPS", count);
  o.next = ops_random;
  o.failing = failing;
  for (int64_t done = 0; done < count; done++) {
    if (done % EPISODE == 0) {
      o.state = (uint64_t)(seed + done / EPISODE) * 0x9e3779b97f4a7c15u;
      ops_reset(&o);
    }
    if (!ops_step(&o, done % 16 == 0))
      fail_msg("operation %lld (seed %lld, episode %lld): %s", (long long)done, (long long)seed,
               (long long)(done / EPISODE), o.wrong);
  }
  for (int i = 0; ops_kind_name(i); i++) {
    printf("%-14s %9lld good %9lld refused\n", ops_kind_name(i), (long long)o.good[i], (long long)o.bad[i]);
    if (count >= 5000) assert_true(o.good[i] + o.bad[i] > 0);
  }
  printf("mean number of elements and tensors in the tested trees: %.1f\n", (double)o.cells / (double)count);
  printf("allocations refused: %lld\n", (long long)o.refusals);
  if (failing) assert_true(o.refusals > count / 10);
  ops_end(&o);
}

CASE(container_random_operations) { run(200000 / SANITIZED_STEP, false); }
CASE(container_random_operations_without_memory) { run(4000, true); }
