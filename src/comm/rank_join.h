/* Declares the join of the blocks of all ranks along a batch dimension. The join is prepared while the elements of the
 * blocks are on their way, and made afterwards. The owner of the struct calls tdict_rank_join_reset(). Thread rule: one
 * thread at a time. */
#ifndef TDICT_COMM_RANK_JOIN_H
#define TDICT_COMM_RANK_JOIN_H

#include "comm/rank_blocks.h"
#include "ops/device/moves.h"

typedef struct tdict_rank_join {
  tdict_tree
      *result;       /* retained; NULL: the trees of the blocks are joined, because no launch can copy their elements */
  tdict_moves moves; /* from the blocks to the result */
} tdict_rank_join;

/* Makes the result and lists the moves. If no launch can copy the elements, makes the trees of all blocks instead. Reads
 * and writes no elements. Returns TDICT_EOVERFLOW if the rows of all ranks do not fit 63 bits, TDICT_ENOMEM, and errors
 * of tdict_tree_schema_create(). */
tdict_status tdict_rank_join_prepare(const tdict_comm_call *call, tdict_rank_blocks *blocks, tdict_rank_join *out,
                                     tdict_error *err);
/* Joins the blocks, after all elements have arrived. *out is a new tree. Returns the errors of tdict_cat(). */
tdict_status tdict_rank_join_run(const tdict_comm_call *call, const tdict_rank_blocks *blocks, tdict_rank_join *join,
                                 tdict_tree **out, tdict_error *err);
void tdict_rank_join_reset(tdict_rank_join *join);

#endif
