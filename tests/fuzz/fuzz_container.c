/* Fuzzes operations on trees: the input chooses operations of tests/support/ops.h, which run on the library and on its
 * model. A difference aborts the program. Thread rule: one thread. */
#include <stdio.h>
#include <stdlib.h>

#include "support/fail_alloc.h"
#include "support/ops.h"
#include "tdict/debug.h"

enum { MOST_STEPS = 80 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
void fuzz_print_counts(void);

static ops o;

/* Prints how often each operation succeeded, and how often it failed as the model required. */
void fuzz_print_counts(void) {
  for (int i = 0; ops_kind_name(i); i++)
    fprintf(stderr, "%-14s %10lld good %10lld refused\n", ops_kind_name(i), (long long)o.good[i], (long long)o.bad[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  static bool begun;
  if (!begun) {
    begun = true;
    atexit(fuzz_print_counts);
  }
  ops_refuse = (ops_refusal){td_fail_alloc, td_fail_alloc_stop};
  o.next = ops_from_bytes;
  o.failing = count && bytes[count - 1] % 4 == 3; /* if set, each allocation of each operation fails once */
  o.bytes = bytes;
  o.num_bytes = count;
  o.state = 0;
  ops_reset(&o);
  for (int step = 0; o.state < count && step < MOST_STEPS; step++) {
    if (ops_step(&o, step % 8 == 7)) continue;
    fprintf(stderr, "operation %d: %s\n", step, o.wrong);
    abort();
  }
  char text[600];
  for (int i = 0; i < OPS_POOL; i++) (void)tdict_format(o.td[i], text, sizeof text);
  ops_end(&o);
  return 0;
}
