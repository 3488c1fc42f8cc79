/* tdict-bench bandwidth: copies one tensor of 4 KiB to 1 GiB, pageable or pinned, to the device and back. Constant
 * tables. Thread rule: one thread. */
#include "rows.h"

#define SIZES(F)                                                                                             \
  F("4 KiB", 4096), F("64 KiB", 65536), F("1 MiB", 1048576), F("16 MiB", 16777216), F("256 MiB", 268435456), \
      F("1 GiB", 1073741824)
#define ONE(bytes) .groups = {{1, bytes}}, .threads = -1, .worth = 2
#define IN_PAGEABLE(text, bytes) \
  { .name = "in, pageable, " text, .kind = &kind_h2d, ONE(bytes) }
#define IN_PINNED(text, bytes) \
  { .name = "in, pinned, " text, .kind = &kind_h2d, ONE(bytes), .source = "pinned" }
#define OUT_PAGEABLE(text, bytes) \
  { .name = "out, pageable, " text, .kind = &kind_d2h, ONE(bytes), .result = "warm" }
#define OUT_PINNED(text, bytes) \
  { .name = "out, pinned, " text, .kind = &kind_d2h, ONE(bytes), .result = "into_pinned" }
static const bench_row rows[] = {SIZES(IN_PAGEABLE), SIZES(IN_PINNED), SIZES(OUT_PAGEABLE), SIZES(OUT_PINNED)};

const bench_scenario bench_bandwidth = {"bandwidth", "copies one tensor of 4 KiB to 1 GiB in both directions", NULL,
                                        rows, sizeof rows / sizeof rows[0]};
