/* Defines tdict_memory, a table of operations for one kind of memory. The device layer and the pinned pool implement
 * the table. The device layer also implements the table for allocators of the program. Plain host memory is the memory
 * of tdict_host_memory(), or a NULL pointer to tdict_memory. Thread rule: every operation is safe from any thread. */
#ifndef TDICT_CORE_MEMORY_MEMORY_H
#define TDICT_CORE_MEMORY_MEMORY_H

#include "core/kernel/work.h"
#include "core/memory/fence.h"
#include "tdict/memory.h"

typedef struct tdict_block {
  void *data;
  size_t bytes; /* size of the block; at least the requested size */
  void *cookie; /* private to the memory */
} tdict_block;

/* A copy of `height` rows of `width` bytes, which start `pitch` bytes apart; a pitch may be negative. */
typedef struct tdict_rect {
  void *dst;
  const void *src;
  int64_t dst_pitch, src_pitch;
  size_t width, height;
} tdict_rect;
typedef enum tdict_direction {
  TDICT_COPY_IN,    /* from the host to the memory */
  TDICT_COPY_OUT,   /* from the memory to the host */
  TDICT_COPY_WITHIN /* within the memory */
} tdict_direction;

/* The order of a work that runs on a stream of the program. The caller owns the struct. */
typedef struct tdict_run_order {
  const char *what; /* begins error messages, for example "index_get" */
  tdict_stream stream;
  const tdict_fences *after; /* borrowed; the work starts after these fences. NULL: none */
  /* Set on success: a new reference to the fence of all work that is queued on the stream so far. NULL if the work has
   * results, because `run` then has waited for the work. */
  tdict_fence *use;
} tdict_run_order;

typedef struct tdict_memory_ops {
  /* Allocates a block. Returns TDICT_ENOMEM, TDICT_EOVERFLOW, TDICT_EFORKED or an error of the driver. The memory of an
   * absent device returns the error that explains why it is absent. */
  tdict_status (*allocate)(tdict_memory *m, size_t bytes, tdict_block *out, tdict_error *err);
  /* Frees the block. The memory takes over one reference to each fence, and must not reuse the bytes before all fences
   * are done. */
  void (*free)(tdict_memory *m, tdict_block *block, tdict_fence **fences, int num_fences);
  /* `copy` and `fill` return when the work is done. Both are NULL for host memory, where callers use memcpy() and
   * memset(). */
  tdict_status (*copy)(tdict_memory *m, const tdict_rect *rect, tdict_direction direction, tdict_error *err);
  tdict_status (*fill)(tdict_memory *m, void *dst, int byte, size_t bytes, tdict_error *err);
  void (*counts)(const tdict_memory *m, tdict_memory_counts *out);
  void (*retain)(tdict_memory *m);
  void (*release)(tdict_memory *m);
  /* Allocates like `allocate`, but prefers pages on NUMA node `node`; -1: the node of the memory. NULL: the memory
   * cannot choose a node */
  tdict_status (*allocate_near)(tdict_memory *m, size_t bytes, int node, tdict_block *out, tdict_error *err);
  /* Runs a work on the device of the memory. The addresses of the work can be of this device, of pinned memory, or of
   * other devices whose memory this device can access. If `order` is NULL, the work runs after the work that is queued
   * on the legacy stream, and `run` returns when the work is done. The caller first waits for transfers and uses of the
   * bytes. If `order` is not NULL, the work is queued on order->stream. `run` then returns without waiting, except if
   * the work has results, for which `run` always waits. In both cases, `run` copies what it needs of the work.
   *
   * Returns TDICT_ENOTSUP if the driver cannot compile the kernels, TDICT_EWRONGDEVICE if the stream belongs to another
   * device, TDICT_ECAPTURE if the stream is being captured, TDICT_ENOMEM, or an error of the driver. After an error, no
   * part of the work is queued, but bytes of the destination can be overwritten. `run` is NULL for memory of the
   * host. */
  tdict_status (*run)(tdict_memory *m, tdict_kernel_work *work, tdict_run_order *order, tdict_error *err);
  /* Returns true if a work of this memory can access blocks of `other`, a memory with an equal device. Simulated
   * devices of two contexts can be equal. NULL if `run` is NULL */
  bool (*reaches)(tdict_memory *m, tdict_memory *other);
} tdict_memory_ops;

struct tdict_memory {
  const tdict_memory_ops *ops;
  tdict_device device;
  bool pinned;
};

#endif
