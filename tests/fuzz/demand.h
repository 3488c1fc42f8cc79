/* Checks for fuzz targets. scripts/fuzz builds the targets with libFuzzer. CTest runs targets linked with replay.c on
 * the corpus. Thread rule: one thread. */
#ifndef TDICT_TESTS_FUZZ_DEMAND_H
#define TDICT_TESTS_FUZZ_DEMAND_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/expressions.h"
#include "support/scoped.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
void fuzz_print_counts(void);

/* How many inputs the library accepted and refused. */
static long long accepted, refused;

/* If the condition is false, prints `text` and aborts the program. */
static inline void demand(int holds, const char *text) {
  if (holds) return;
  fprintf(stderr, "%s\n", text);
  abort();
}

#endif
