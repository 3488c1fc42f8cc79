/* Ranges by NVTX, which is a header: it finds a profiler by itself, and does nothing without one. The only file that
 * includes it; built where it was found. Owns nothing. Thread rule as in ranges.h. */
#include <nvtx3/nvToolsExt.h>
#include <stddef.h>

#include "transfer/trace/ranges.h"

/* Names begin with the library's, since profilers show ranges of all libraries together. */
void tdict_range_push(tdict_range range) {
  static const char *const names[TDICT_NUM_RANGES] = {"tdict plan",  "tdict copy",         "tdict submit",
                                                      "tdict wait",  "tdict hook",         "tdict transfer",
                                                      "tdict fetch", "tdict ready batches"};
  nvtxRangePushA(names[range]);
}

void tdict_range_pop(void) { nvtxRangePop(); }
