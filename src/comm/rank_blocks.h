/* Declares the blocks of all ranks in one storage, one block after another, and a tree over each block. The trees have
 * one schema, except for the size of one batch dimension. The owner of the struct calls tdict_rank_blocks_reset().
 * Thread rule: one thread at a time. */
#ifndef TDICT_COMM_RANK_BLOCKS_H
#define TDICT_COMM_RANK_BLOCKS_H

#include "comm/call.h"
#include "comm/message.h"

typedef struct tdict_rank_blocks {
  int32_t world;
  tdict_storage *storage; /* retained; NULL: no rank has elements */
  char *data;             /* start of the storage */
  int64_t *rows;          /* of each rank; filled in by the caller of tdict_rank_blocks_allocate() */
  size_t *offsets;        /* of each block; multiples of 256 */
  size_t *bytes;          /* of each block, without padding at the end */
  tdict_tree **trees;     /* retained */
  size_t total;           /* bytes of all blocks */
  size_t step;            /* distance between two blocks if all blocks have one size */
  bool are_equal;         /* true: all ranks have the same number of rows */
} tdict_rank_blocks;

/* Allocates the lists. Returns TDICT_ENOMEM. */
tdict_status tdict_rank_blocks_init(const tdict_comm_call *call, tdict_rank_blocks *out, tdict_error *err);
/* Computes the sizes and offsets of the blocks for out->rows, and allocates the storage and the trees in the memory of
 * the communicator. `dim` is the dimension of the rows; -1: all trees have the schema. Returns TDICT_EOVERFLOW, and the
 * errors of tdict_storage_create() and tdict_schema_create_over(). */
tdict_status tdict_rank_blocks_allocate(const tdict_comm_call *call, const tdict_tree_schema *schema, int dim,
                                        tdict_memory *memory, tdict_rank_blocks *out, tdict_error *err);
/* Makes a tree with a new first batch dimension over all blocks, which have one size. *out is NULL if the size of an
 * element does not divide the distance of two blocks. Returns the errors of tdict_map_run(). */
tdict_status tdict_rank_blocks_stack(const tdict_rank_blocks *blocks, tdict_tree **out, tdict_error *err);
void tdict_rank_blocks_reset(tdict_rank_blocks *blocks);

#endif
