/* Declares the blocks of all ranks in one storage, one block after another, and a tree over each block. The trees have
 * one schema, except for the size of one batch dimension. The owner of the struct calls tdict_rank_blocks_reset().
 * Thread rule: one thread at a time. */
#ifndef TDICT_SERVICES_COMM_RANK_BLOCKS_H
#define TDICT_SERVICES_COMM_RANK_BLOCKS_H

#include "services/comm/call.h"
#include "services/comm/message.h"

typedef struct tdict_rank_blocks {
  int32_t world;
  tdict_schema *schema;         /* retained; NULL before tdict_rank_blocks_allocate() */
  int dim;                      /* the dimension of the rows; -1: all trees have the schema */
  const tdict_block_runs *runs; /* of all blocks; borrowed from the communicator; NULL: see tdict_runs_cache_get() */
  tdict_storage *storage;       /* retained */
  char *data;                   /* start of the storage */
  int64_t *rows;                /* of each rank; filled in by the caller of tdict_rank_blocks_allocate() */
  size_t *offsets;              /* of each block; multiples of 256 */
  size_t *bytes;                /* of each block, without padding at the end */
  tdict_tree **trees;           /* retained; NULL for a tree that was not made */
  size_t total;                 /* bytes of all blocks */
  size_t step;                  /* distance between two blocks if all blocks have one size */
  bool are_equal;               /* true: all ranks have the same number of rows */
} tdict_rank_blocks;

tdict_status tdict_rank_blocks_init(const tdict_comm_call *call, tdict_rank_blocks *out, tdict_error *err);
/* Computes the runs, and the sizes and offsets of the blocks for out->rows, and allocates the storage in the memory of
 * the communicator. `dim` is as in the struct. Makes no trees. Returns TDICT_EOVERFLOW, and the errors of
 * tdict_runs_cache_get() and tdict_storage_create(). */
tdict_status tdict_rank_blocks_allocate(const tdict_comm_call *call, const tdict_schema *schema, int dim,
                                        tdict_memory *memory, tdict_rank_blocks *out, tdict_error *err);
/* Computes the bytes of a block with `rows` rows, and the padding after its last tensor with elements. Returns the
 * errors of tdict_schema_measure_batch(). */
tdict_status tdict_rank_blocks_measure(const tdict_rank_blocks *blocks, int64_t rows, size_t *bytes,
                                       size_t *last_padding, tdict_error *err);
/* Returns the rows of the block of rank `r`, for tdict_block_runs_copy(). */
static inline tdict_block_rows tdict_rank_blocks_rows(const tdict_rank_blocks *b, int32_t r) {
  return (tdict_block_rows){.storage = b->storage, .data = b->data + b->offsets[r], .rows = b->rows[r]};
}
/* Writes the batch size of a root with `rows` rows to `sizes`. Returns `sizes`, or NULL if `dim` is -1. */
const int64_t *tdict_rank_blocks_batch_size(const tdict_rank_blocks *blocks, int64_t rows,
                                            int64_t sizes[TDICT_MAX_BATCH_NDIM]);
/* Makes the tree over the block of rank `r` unless it exists, also while the elements arrive. Returns TDICT_ENOMEM. */
tdict_status tdict_rank_blocks_make_tree(tdict_rank_blocks *blocks, int32_t r, tdict_error *err);
tdict_status tdict_rank_blocks_make_trees(tdict_rank_blocks *blocks, tdict_error *err);
/* Sets *out to whether tdict_rank_blocks_stack() can make a tree over all blocks: false if the distance of two blocks
 * is no multiple of an element. Returns TDICT_EINVAL, with the path, for too many dimensions. */
tdict_status tdict_rank_blocks_check_stack(const tdict_rank_blocks *blocks, bool *out, tdict_error *err);
/* Makes a tree with a new first dimension over all blocks of one size. Returns the errors of tdict_map_run(). */
tdict_status tdict_rank_blocks_stack(tdict_rank_blocks *blocks, tdict_tree **out, tdict_error *err);
/* Queues the blocks as one group. A scatter sends them to the other ranks, a gather receives them, and an all_gather
 * broadcasts each from its rank. Returns the errors of the table. */
tdict_status tdict_rank_blocks_queue(const tdict_comm_call *call, const tdict_rank_blocks *blocks, tdict_error *err);
void tdict_rank_blocks_reset(tdict_rank_blocks *blocks);

#endif
