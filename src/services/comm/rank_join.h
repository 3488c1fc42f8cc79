/* Declares the join of the blocks of all ranks along a batch dimension. The join is prepared while the elements of the
 * blocks are on their way, and made afterwards. The owner of the struct calls tdict_rank_join_reset(). Thread rule: one
 * thread at a time. */
#ifndef TDICT_SERVICES_COMM_RANK_JOIN_H
#define TDICT_SERVICES_COMM_RANK_JOIN_H

#include "core/ops/device/moves.h"
#include "services/comm/rank_blocks.h"

typedef struct tdict_rank_join {
  /* retained; of the result; NULL: the trees of the blocks are joined, on the host, or because no launch can copy their
   * elements */
  tdict_storage *storage;
  int64_t rows;          /* of the result */
  const tdict_tree *own; /* borrowed; tensors of this rank that are not in its block; NULL: all blocks are filled */
  int32_t own_rank;      /* this rank */
  tdict_tree *result;    /* retained; NULL before tdict_rank_join_prepare() */
  tdict_moves moves;     /* from the blocks, or the own tree, to the result */
} tdict_rank_join;

/* Allocates the memory of the result, if a launch will copy the elements. Call before the message is queued: allocating
 * memory of a device can wait for the device, and the message can wait for another rank of this process. Returns
 * TDICT_EOVERFLOW if the rows of all ranks do not fit 63 bits, and errors of tdict_storage_create(). */
tdict_status tdict_rank_join_allocate(const tdict_comm_call *call, const tdict_rank_blocks *blocks,
                                      tdict_rank_join *out, tdict_error *err);
/* Makes the result, lists the moves and builds their launch, or makes the trees of all blocks. Accesses no elements of
 * the blocks, and allocates host memory only. Copies tensors of the own tree that no launch can copy. Returns
 * TDICT_ENOMEM and the errors of tdict_moves_copy() and tdict_moves_build(). */
tdict_status tdict_rank_join_prepare(tdict_rank_blocks *blocks, tdict_rank_join *join, tdict_error *err);
/* Joins the blocks, after all elements have arrived. *out is a new tree. Returns the errors of tdict_cat(). */
tdict_status tdict_rank_join_run(const tdict_comm_call *call, const tdict_rank_blocks *blocks, tdict_rank_join *join,
                                 tdict_tree **out, tdict_error *err);
void tdict_rank_join_reset(tdict_rank_join *join);

#endif
