/* Finds the runs of blocks. See block_runs.h for ownership and threads. */
#include "services/comm/block_runs.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/schema/schema.h"

enum { LEAF_ALIGNMENT = 256 };

/* A product of sizes. */
typedef struct product {
  size_t value;
  size_t nonzero; /* without the zeros */
  bool fits;      /* `nonzero` is at most INT64_MAX */
} product;

static void multiply(product *p, const int64_t *sizes, int count) {
  for (int i = 0; i < count; i++) {
    p->value *= (size_t)sizes[i]; /* at most `nonzero` */
    if (sizes[i] == 0) continue;
    p->fits = p->fits && tdict_mul_size(p->nonzero, (size_t)sizes[i], &p->nonzero) && p->nonzero <= INT64_MAX;
  }
}

/* Adds an entry to the runs. Returns false if its sizes do not fit. */
static bool add_entry(tdict_block_runs *runs, const product *outer, const tdict_schema_entry *e) {
  const bool is_tensor = e->kind == TDICT_SCHEMA_TENSOR;
  const size_t item = is_tensor ? tdict_dtype_bytes(e->dtype) : 1;
  product row = {.value = item, .nonzero = item, .fits = true};
  size_t all;
  multiply(&row, e->batch_size + runs->dim + 1, e->batch_ndim - runs->dim - 1);
  multiply(&row, e->shape, e->ndim);
  if (!row.fits || !tdict_mul_size(row.nonzero, outer->nonzero, &all) || all > INT64_MAX) return false;
  if (all > runs->most) runs->most = all;
  if (!is_tensor || row.value == 0) return true;
  tdict_block_run *last = runs->count ? &runs->list[runs->count - 1] : NULL;
  if (last && last->row_bytes == row.value)
    last->count++;
  else
    runs->list[runs->count++] = (tdict_block_run){.count = 1, .row_bytes = row.value};
  return true;
}

/* Fills in the runs. Returns false if the schema has no runs. */
static bool find_runs(tdict_block_runs *runs) {
  const tdict_schema *s = runs->schema;
  product outer = {.value = 1, .nonzero = 1, .fits = true};
  multiply(&outer, s->batch_size, runs->dim);
  bool fits = outer.fits && s->num_objects == 0;
  runs->outer = outer.value;
  for (size_t i = 0; i < s->num_entries && fits; i++) fits = add_entry(runs, &outer, &s->entries[i]);
  return fits;
}

static void free_runs(tdict_block_runs *runs) {
  tdict_schema_release(runs->schema);
  free(runs);
}

/* Makes runs. *out is NULL if the schema has none. */
static tdict_status make_runs(const char *what, const tdict_schema *schema, int dim, tdict_block_runs **out,
                              tdict_error *err) {
  tdict_block_runs *runs = calloc(1, sizeof *runs + schema->num_tensors * sizeof *runs->list);
  if (!runs) return tdict_fail_memory(err, what, NULL, "the runs of a block");
  runs->schema = tdict_schema_retain(schema);
  runs->dim = dim;
  const bool is_found = find_runs(runs);
  if (!is_found) free_runs(runs);
  *out = is_found ? runs : NULL;
  return TDICT_OK;
}

tdict_status tdict_runs_cache_get(tdict_runs_cache *cache, const char *what, const tdict_schema *schema, int dim,
                                  const tdict_block_runs **out, tdict_error *err) {
  int at = 0;
  while (at < cache->count && (cache->list[at]->schema != schema || cache->list[at]->dim != dim)) at++;
  tdict_block_runs *used = at < cache->count ? cache->list[at] : NULL;
  tdict_status status = used ? TDICT_OK : make_runs(what, schema, dim, &used, err);
  if (status != TDICT_OK) return status;
  *out = used;
  if (!used) return TDICT_OK;
  if (at == cache->count) {
    if (cache->count == TDICT_RUNS_CACHE_SIZE) free_runs(cache->list[--cache->count]);
    at = cache->count++;
  }
  memmove(&cache->list[1], &cache->list[0], (size_t)at * sizeof *cache->list);
  cache->list[0] = used;
  return TDICT_OK;
}

void tdict_runs_cache_reset(tdict_runs_cache *cache) {
  while (cache->count) free_runs(cache->list[--cache->count]);
}

bool tdict_block_runs_measure(const tdict_block_runs *runs, int64_t rows, size_t *bytes, size_t *last_padding) {
  size_t most, total = 0;
  *last_padding = 0;
  if (!tdict_mul_size(runs->most, (size_t)rows, &most) || most > INT64_MAX) return false;
  for (size_t i = 0; i < runs->count; i++) {
    const tdict_block_run *run = &runs->list[i];
    const size_t one = runs->outer * (size_t)rows * run->row_bytes, aligned = tdict_align(one, LEAF_ALIGNMENT);
    size_t all;
    if (!tdict_mul_size(run->count, aligned, &all) || !tdict_add_size(total, all, &total) || total > INT64_MAX)
      return false;
    *last_padding = aligned - one; /* all runs have elements, or none */
  }
  *bytes = total;
  return true;
}

/* Describes `count` rows of all tensors of a run as one tensor of bytes. *offset is the offset of the run in the block,
 * and is set to the offset of the next run. */
static tdict_tensor *view_run(const tdict_block_runs *runs, const tdict_block_run *run, const tdict_block_rows *block,
                              int64_t count, size_t *offset, tdict_temp *temp) {
  const tdict_tensor over = {.storage = block->storage, .dtype = TDICT_U8};
  const size_t step = (size_t)block->rows * run->row_bytes, aligned = tdict_align(runs->outer * step, LEAF_ALIGNMENT);
  const tdict_made made = {.ndim = 3,
                           .data = block->data + *offset + (size_t)block->from * run->row_bytes,
                           .shape = {(int64_t)run->count, (int64_t)runs->outer, count * (int64_t)run->row_bytes},
                           .strides = {(int64_t)aligned, (int64_t)step, 1}};
  *offset += run->count * aligned;
  return tdict_temp_over(temp, &over, &made);
}

tdict_status tdict_block_runs_copy(const tdict_block_runs *runs, const tdict_block_rows *dst,
                                   const tdict_block_rows *src, int64_t count, tdict_moves *moves, tdict_error *err) {
  size_t dst_offset = 0, src_offset = 0;
  tdict_status status = TDICT_OK;
  if (count == 0 || runs->outer == 0) return TDICT_OK; /* a block without elements may have no storage */
  for (size_t i = 0; i < runs->count && status == TDICT_OK; i++) {
    const tdict_block_run *run = &runs->list[i];
    tdict_temp to, from;
    tdict_tensor *written = view_run(runs, run, dst, count, &dst_offset, &to);
    status = tdict_moves_copy(moves, written, view_run(runs, run, src, count, &src_offset, &from), err);
  }
  return status;
}
