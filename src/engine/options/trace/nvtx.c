/* Implements ranges with NVTX, a header that finds a profiler at run time or does nothing. Only this file includes
 * NVTX, if CMake found the header. Owns nothing. See ranges.h for the thread rule. */
#include <nvtx3/nvToolsExt.h>

#include "engine/options/trace/ranges.h"

/* Begins a range, named after the library: profilers show the ranges of all libraries together. */
void tdict_range_push(tdict_range range) {
  static const char *const names[TDICT_NUM_RANGES] = {"tdict plan",  "tdict copy",         "tdict submit",
                                                      "tdict wait",  "tdict hook",         "tdict transfer",
                                                      "tdict fetch", "tdict ready batches"};
  nvtxRangePushA(names[range]);
}

void tdict_range_pop(void) { nvtxRangePop(); }
