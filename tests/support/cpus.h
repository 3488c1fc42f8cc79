/* Sets of processors for tests. Thread rule: any thread. */
#ifndef TDICT_TESTS_SUPPORT_CPUS_H
#define TDICT_TESTS_SUPPORT_CPUS_H

#include <string.h>

#include "core/sched/cpus.h"

/* Returns the set of processors `first` to `last`. */
static inline tdict_cpus td_cpus(int first, int last) {
  tdict_cpus set = {0};
  for (int i = first; i <= last; i++) CPU_SET_S((size_t)i, sizeof set.sets, set.sets);
  return set;
}
static inline bool td_cpus_equal(const tdict_cpus *a, const tdict_cpus *b) { return memcmp(a, b, sizeof *a) == 0; }

#endif
