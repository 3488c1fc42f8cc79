/* Describes a block by its runs. A run is a number of tensors, one after another, whose rows have the same number of
 * bytes. The number of rows is not part of a run, so the blocks of all ranks have the same runs. The runs of a schema
 * are kept, so that a call need not read the entries of the schema again. One copy with strides moves rows of all
 * tensors of a run. Thread rule: one thread at a time. */
#ifndef TDICT_SERVICES_COMM_BLOCK_RUNS_H
#define TDICT_SERVICES_COMM_BLOCK_RUNS_H

#include "core/ops/device/moves.h"
#include "tdict/schema.h"

typedef struct tdict_block_run {
  size_t count;     /* of tensors */
  size_t row_bytes; /* of one row of a tensor, at one index of the dimensions before the rows */
} tdict_block_run;

typedef struct tdict_block_runs {
  tdict_schema *schema; /* retained */
  int dim;              /* the batch dimension of the rows */
  size_t outer;         /* product of the sizes of the dimensions before the rows */
  size_t most;          /* the largest product of sizes, without the rows and zeros, in bytes; a sum of rows must fit */
  size_t count;
  tdict_block_run list[]; /* without tensors that have no elements for any number of rows */
} tdict_block_runs;

/* The runs of the schemas that were used last. The owner of the struct initializes it with zeros. */
enum { TDICT_RUNS_CACHE_SIZE = 8 };
typedef struct tdict_runs_cache {
  int count;
  tdict_block_runs *list[TDICT_RUNS_CACHE_SIZE]; /* owned; the one that was used last comes first */
} tdict_runs_cache;

/* Finds or makes the runs of a schema. *out is borrowed from the cache until the next call. *out is NULL if the schema
 * has an object, or if its sizes without the rows do not fit 63 bits. Returns TDICT_ENOMEM. The message of an error
 * begins with `what`. */
tdict_status tdict_runs_cache_get(tdict_runs_cache *cache, const char *what, const tdict_schema *schema, int dim,
                                  const tdict_block_runs **out, tdict_error *err);
void tdict_runs_cache_reset(tdict_runs_cache *cache);

/* Computes the same numbers as tdict_schema_measure_batch() for a block with `rows` rows. Returns false if the bytes
 * may not fit 63 bits. */
bool tdict_block_runs_measure(const tdict_block_runs *runs, int64_t rows, size_t *bytes, size_t *last_padding);

/* Rows of a block. */
typedef struct tdict_block_rows {
  tdict_storage *storage; /* borrowed */
  char *data;             /* start of the block */
  int64_t rows;           /* of the whole block */
  int64_t from;           /* the first row */
} tdict_block_rows;
/* Adds the copies of `count` rows from one block to another. tdict_block_runs_measure() has measured both blocks.
 * Returns the errors of tdict_moves_copy(). */
tdict_status tdict_block_runs_copy(const tdict_block_runs *runs, const tdict_block_rows *dst,
                                   const tdict_block_rows *src, int64_t count, tdict_moves *moves, tdict_error *err);

#endif
