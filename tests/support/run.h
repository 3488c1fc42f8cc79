/* Structs that say how a call on elements runs, as arguments: each macro is a pointer that is valid in its block. */
#ifndef TDICT_TESTS_SUPPORT_RUN_H
#define TDICT_TESTS_SUPPORT_RUN_H

#include "tdict/combine.h"

static inline tdict_run td_run(tdict_stream stream, tdict_memory *memory) {
  tdict_run r = tdict_run_default();
  r.stream = stream;
  r.memory = memory;
  return r;
}
static inline tdict_run td_run_threads(int num_threads) {
  tdict_run r = tdict_run_default();
  r.num_threads = num_threads;
  return r;
}
static inline tdict_pad_options td_pad(double value, const char *masks) {
  tdict_pad_options o = tdict_pad_options_default();
  o.value = value;
  o.masks = masks;
  return o;
}
#define TD_RUN(stream, memory) ((const tdict_run[]){td_run(stream, memory)})
#define TD_ON(stream) TD_RUN(stream, NULL)
#define TD_IN(memory) TD_RUN(tdict_no_stream(), memory)
/* The argument may be NULL: then the call waits. */
#define TD_ON_IF(stream) ((stream) ? TD_ON(*(stream)) : NULL)
#define TD_THREADS(num_threads) ((const tdict_run[]){td_run_threads(num_threads)})
#define TD_PAD(value, masks) ((const tdict_pad_options[]){td_pad(value, masks)})

#endif
