/* What a tdict_memory is inside: a table of operations that the device layer implements, and counts.
 * Plain host memory is the NULL pointer and has no table. Thread rule: every operation is safe from any thread. */
#ifndef TDICT_MEMORY_MEMORY_H
#define TDICT_MEMORY_MEMORY_H

#include "memory/fence.h"
#include "tdict/memory.h"

typedef struct tdict_block {
  void *data;
  size_t bytes; /* as the memory rounded them */
  void *cookie; /* the memory's own */
} tdict_block;

/* A rectangle of bytes: `height` rows of `width` bytes, `pitch` bytes from row to row (any sign). */
typedef struct tdict_rect {
  void *dst;
  const void *src;
  int64_t dst_pitch, src_pitch;
  size_t width, height;
} tdict_rect;
typedef enum tdict_direction {
  TDICT_COPY_IN,
  TDICT_COPY_OUT,
  TDICT_COPY_WITHIN
} tdict_direction; /* host to memory, memory to host, both in it */

typedef struct tdict_memory_ops {
  tdict_status (*allocate)(tdict_memory *m, size_t bytes, tdict_block *out, tdict_error *err);
  /* Takes the block back. `fences` (counted references, handed over) must be done before its bytes are used again. */
  void (*free)(tdict_memory *m, tdict_block *block, tdict_fence **fences, int num_fences);
  /* Both wait until the bytes are there. NULL where the host can touch the memory: plain code is used then. */
  tdict_status (*copy)(tdict_memory *m, const tdict_rect *rect, tdict_direction direction, tdict_error *err);
  tdict_status (*fill)(tdict_memory *m, void *dst, int byte, size_t bytes, tdict_error *err);
  void (*counts)(const tdict_memory *m, tdict_memory_counts *out);
  void (*retain)(tdict_memory *m);
  void (*release)(tdict_memory *m);
  /* As `allocate`, of pages on a memory node; -1: on the memory's own. NULL where a memory knows no nodes. */
  tdict_status (*allocate_near)(tdict_memory *m, size_t bytes, int node, tdict_block *out, tdict_error *err);
} tdict_memory_ops;

struct tdict_memory {
  const tdict_memory_ops *ops;
  tdict_device device;
  bool pinned;
};

#endif
