/* Declares how a call on elements runs: its threads, its stream and its memory. All functions that take a `tdict_run`
 * include this header. All functions of this header are thread-safe. */
#ifndef TDICT_RUN_H
#define TDICT_RUN_H

#include "tdict/values.h"

TDICT_BEGIN_DECLS

/** Says how a call on elements runs. The struct is borrowed for the call, and NULL stands for the defaults. If a call
 *  does not use an option, any value but the default is #TDICT_EINVAL, and the message names the option. */
typedef struct tdict_run {
  size_t struct_size;
  /** Number of threads of the context's pool that work. 0: the calling thread does all work. n > 0: at most n threads
   *  of the pool work, and the calling thread may work too. The call needs a context with at least n threads.
   *  -1 (default): the library chooses; without a context, the calling thread does all work. */
  int32_t num_threads;
  /** A stream of a GPU. Work on tensors on this GPU is queued on the stream, and the call does not wait for it.
   *  docs/device_operations.md has the order. tdict_no_stream() (default): the call waits for all work. */
  tdict_stream stream;
  tdict_memory *memory; /**< memory of the new elements; NULL (default): the function says which memory */
} tdict_run;
static inline tdict_run tdict_run_default(void) {
  tdict_run r;
  tdict_init_struct_(r);
  r.num_threads = -1;
  return r;
}

TDICT_END_DECLS
#endif
