/* Defines the record of one move. Records belong to a tdict_moves. Thread rule: see moves.h. */
#ifndef TDICT_CORE_OPS_DEVICE_MOVE_H
#define TDICT_CORE_OPS_DEVICE_MOVE_H

#include "core/kernel/work.h"
#include "core/memory/storage.h"

enum { TDICT_MOVE_FILL_BYTES = 16 }; /* the largest element that a launch can fill */

typedef struct tdict_move {
  tdict_kernel_op op;       /* COPY, FILL or CONVERT */
  tdict_memory *memory;     /* runs the move */
  tdict_storage *dst, *src; /* src is NULL for a fill */
  void *dst_data;
  const void *src_data;
  tdict_dtype dtype, src_dtype;                 /* of the destination and of the source */
  size_t entry;                                 /* CONVERT: number of the entry of the tree, for errors */
  unsigned char element[TDICT_MOVE_FILL_BYTES]; /* FILL */
  int ndim;
  /* Offset in the array of numbers of the sizes, the destination's strides and the source's strides, in elements. The
   * strides of the lists follow if the move is listed. */
  size_t numbers;
  int listed;   /* the listed dimension, whose stride is 0 on the indexed side; -1: none */
  bool scatter; /* true: the lists index the destination; false: the source */
  bool repeats; /* true: only the addresses and the storages differ from the move before */
} tdict_move;

#endif
