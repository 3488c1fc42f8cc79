/* Reads blobs of schemas in two passes: the first checks every byte and counts, and the second fills the schema. In
 * between, one block is allocated for a copy of the blob, the entries and the sizes. The caller owns the new schema.
 * Thread rule: see blob.h. */
#include "core/schema/blob.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/schema/hash128.h"
#include "core/tensor/layout.h"

static const char what[] = "schema_read";
enum { VERSION_BYTES = 4, DTYPE_BYTES = 4, MAX_VARINT_BYTES = 9, LEAF_ALIGNMENT = 256 };

typedef struct parser {
  const uint8_t *bytes;
  size_t count, at;
  size_t num_entries, num_tensors, num_objects, num_dims; /* found so far */
  tdict_schema_size size;                                 /* of the tensors so far */
  tdict_schema *out;                                      /* NULL in the first pass */
  int64_t *dims;                                          /* room for num_dims sizes; NULL in the first pass */
  int depth;                                              /* number of trees that are open below the root */
  uint8_t batch_ndim[TDICT_SCHEMA_MAX_DEPTH + 1];         /* numbers of batch dimensions of the open trees */
  int64_t parents[TDICT_SCHEMA_MAX_DEPTH + 1];            /* entries of the open trees, as indices; -1: the root */
  /* The batch size of the innermost open tree. The batch sizes of all open trees above are prefixes of this array.
   * While a tensor is read, the sizes of the tensor after the batch dimensions follow. */
  int64_t shape[TDICT_MAX_NDIM];
} parser;

static tdict_status fail_at(size_t at, const char *text, tdict_error *err) {
  return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: %s", what, at, text);
}

static tdict_status read_byte(parser *p, uint8_t *out, const char *name, tdict_error *err) {
  if (p->at == p->count)
    return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: the blob ends, wanted %s", what, p->at, name);
  *out = p->bytes[p->at++];
  return TDICT_OK;
}

/* Reads a number below 2^63 in LEB128. */
static tdict_status read_number(parser *p, int64_t *out, const char *name, tdict_error *err) {
  const size_t begin = p->at;
  uint64_t value = 0;
  uint8_t byte = 0x80;
  for (int i = 0; byte & 0x80; i++) {
    if (i == MAX_VARINT_BYTES)
      return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: %s is 2^63 or more", what, begin, name);
    tdict_status status = read_byte(p, &byte, name, err);
    if (status != TDICT_OK) return status;
    value |= (uint64_t)(byte & 0x7f) << 7 * i;
  }
  if (byte == 0 && p->at - begin > 1)
    return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: %s is not in its shortest form", what, begin, name);
  *out = (int64_t)value;
  return TDICT_OK;
}

/* Reads a text and the 0 that ends the text. Sets *out to the text in the blob. */
static tdict_status read_text(parser *p, const char **out, const char *name, tdict_error *err) {
  const uint8_t *begin = p->bytes + p->at, *end = memchr(begin, 0, p->count - p->at);
  if (!end) return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: the blob ends inside %s", what, p->at, name);
  if (end == begin) return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: %s is empty", what, p->at, name);
  p->at += (size_t)(end - begin) + 1;
  *out = (const char *)begin;
  return TDICT_OK;
}

/* Reads sizes into p->shape from index *ndim on, and counts them. Returns TDICT_EFORMAT for more than `most`. */
static tdict_status read_sizes(parser *p, int *ndim, int most, tdict_error *err) {
  const size_t begin = p->at;
  int64_t count;
  tdict_status status = read_number(p, &count, "the number of dimensions", err);
  if (status == TDICT_OK && count > most - *ndim)
    return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: %lld more dimensions after %d, wanted at most %d", what,
                      begin, (long long)count, *ndim, most);
  for (; status == TDICT_OK && count > 0; count--) status = read_number(p, &p->shape[(*ndim)++], "a size", err);
  return status;
}

/* In the first pass, counts the sizes and returns NULL. In the second pass, appends them to the schema's sizes, and
 * returns their address there. */
static const int64_t *keep_sizes(parser *p, const int64_t *sizes, int count) {
  p->num_dims += (size_t)count;
  if (!p->out) return NULL;
  int64_t *kept = p->dims;
  if (count) memcpy(kept, sizes, (size_t)count * sizeof *sizes);
  p->dims += count;
  return kept;
}

/* Adds a tensor to the size of all tensors. */
static void add_size(parser *p, tdict_dtype dtype, size_t bytes, int ndim) {
  tdict_schema_size *s = &p->size;
  size_t padded, sum;
  s->dtype = p->num_tensors == 1 || s->dtype == dtype ? dtype : 0;
  if (ndim > s->max_ndim) s->max_ndim = ndim;
  s->num_dims += (size_t)ndim;
  if (bytes == 0) return;
  if (!tdict_round_up(bytes, LEAF_ALIGNMENT, &padded) || !tdict_add_size(s->bytes, padded, &sum) || sum > INT64_MAX) {
    s->is_too_large = true;
    return;
  }
  s->bytes = sum;
  s->padding = padded - bytes;
}

static tdict_status read_tensor(parser *p, tdict_schema_entry *entry, tdict_error *err) {
  const size_t begin = p->at;
  const int batch_ndim = p->batch_ndim[p->depth];
  int ndim = batch_ndim;
  tdict_layout_size size;
  if (p->count - begin < DTYPE_BYTES) return fail_at(p->count, "the blob ends, wanted a dtype", err);
  const uint8_t *b = p->bytes + begin;
  entry->dtype = TDICT_DTYPE(b[0], b[1], b[2] | b[3] << 8);
  p->at += DTYPE_BYTES;
  if (tdict_dtype_bytes(entry->dtype) == 0)
    return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: dtype 0x%08" PRIx32 " is unknown", what, begin,
                      entry->dtype);
  tdict_status status = read_sizes(p, &ndim, TDICT_MAX_NDIM, err);
  if (status != TDICT_OK) return status;
  if (tdict_layout_check(what, entry->dtype, ndim, p->shape, &size, NULL) != TDICT_OK)
    return fail_at(begin + DTYPE_BYTES, "the bytes of the tensor do not fit 63 bits", err);
  entry->ndim = ndim - batch_ndim;
  entry->shape = keep_sizes(p, p->shape + batch_ndim, entry->ndim);
  p->num_tensors++;
  if (!p->out) add_size(p, entry->dtype, size.bytes, ndim);
  return TDICT_OK;
}

/* Reads the sizes of a tree and opens the tree, so that the next entries become its children. */
static tdict_status read_tree(parser *p, tdict_schema_entry *entry, tdict_error *err) {
  int batch_ndim = entry->batch_ndim;
  tdict_status status = read_sizes(p, &batch_ndim, TDICT_MAX_BATCH_NDIM, err);
  if (status != TDICT_OK) return status;
  /* A tree without further dimensions shares the sizes of its parent. */
  if (batch_ndim > entry->batch_ndim) entry->batch_size = keep_sizes(p, p->shape, batch_ndim);
  entry->batch_ndim = batch_ndim;
  p->depth++;
  p->batch_ndim[p->depth] = (uint8_t)batch_ndim;
  if (batch_ndim > p->size.max_batch_ndim) p->size.max_batch_ndim = batch_ndim;
  p->parents[p->depth] = (int64_t)p->num_entries;
  return TDICT_OK;
}

static tdict_status read_entry(parser *p, uint8_t kind, tdict_error *err) {
  const int64_t parent = p->parents[p->depth];
  tdict_schema_entry entry = {.kind = (tdict_schema_kind)kind, .depth = p->depth, .parent = parent};
  if (kind != TDICT_SCHEMA_TENSOR && kind != TDICT_SCHEMA_TREE && kind != TDICT_SCHEMA_OBJECT)
    return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: 0x%02x is not a kind of entry", what, p->at - 1, kind);
  if (p->depth == TDICT_SCHEMA_MAX_DEPTH)
    return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: a path has more than %d keys", what, p->at - 1,
                      TDICT_SCHEMA_MAX_DEPTH);
  entry.batch_ndim = p->batch_ndim[p->depth];
  if (p->out) entry.batch_size = parent < 0 ? p->out->batch_size : p->out->entries[parent].batch_size;
  tdict_status status = read_text(p, &entry.key, "a key", err);
  if (status != TDICT_OK) return status;
  if (kind == TDICT_SCHEMA_TENSOR) {
    status = read_tensor(p, &entry, err);
  } else if (kind == TDICT_SCHEMA_TREE) {
    status = read_tree(p, &entry, err);
  } else {
    status = read_text(p, &entry.type_name, "a type name", err);
    p->num_objects++;
  }
  if (p->out && status == TDICT_OK) p->out->entries[p->num_entries] = entry;
  p->num_entries++;
  return status;
}

static tdict_status read_head(parser *p, tdict_error *err) {
  static const char magic[] = TDICT_BLOB_MAGIC;
  const size_t magic_bytes = TDICT_BLOB_HEAD - VERSION_BYTES;
  uint32_t version = 0;
  if (p->count > TDICT_BLOB_MAX_BYTES)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the blob has %zu bytes, wanted at most %zu", what, p->count,
                      TDICT_BLOB_MAX_BYTES);
  size_t same = 0;
  while (same < magic_bytes && same < p->count && p->bytes[same] == (uint8_t)magic[same]) same++;
  if (same < magic_bytes && same < p->count)
    return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: 0x%02x, a blob begins with \"%s\"", what, same,
                      p->bytes[same], magic);
  if (p->count < TDICT_BLOB_HEAD)
    return fail_at(p->count, "the blob ends, wanted \"" TDICT_BLOB_MAGIC "\" and 4 bytes", err);
  for (int i = 0; i < VERSION_BYTES; i++) version |= (uint32_t)p->bytes[magic_bytes + (size_t)i] << 8 * i;
  p->at = TDICT_BLOB_HEAD;
  if (version == TDICT_SCHEMA_VERSION) return TDICT_OK;
  return tdict_fail(err, version > TDICT_SCHEMA_VERSION ? TDICT_ENOTSUP : TDICT_EFORMAT,
                    "%s: at byte %zu: the version is %" PRIu32 ", this library reads version %d", what, magic_bytes,
                    version, TDICT_SCHEMA_VERSION);
}

/* Reads the whole blob once. In the second pass, p->out and p->dims have room for all entries and sizes. */
static tdict_status read_blob(parser *p, tdict_error *err) {
  int batch_ndim = 0;
  p->num_entries = p->num_tensors = p->num_objects = p->num_dims = 0;
  p->depth = 0;
  p->parents[0] = -1;
  tdict_status status = read_head(p, err);
  if (status == TDICT_OK) status = read_sizes(p, &batch_ndim, TDICT_MAX_BATCH_NDIM, err);
  if (status != TDICT_OK) return status;
  p->batch_ndim[0] = (uint8_t)batch_ndim;
  if (!p->out) p->size.max_batch_ndim = batch_ndim;
  const int64_t *batch_size = keep_sizes(p, p->shape, batch_ndim);
  if (p->out) {
    p->out->batch_ndim = batch_ndim;
    p->out->batch_size = batch_size;
  }
  while (p->depth >= 0) {
    uint8_t kind;
    status = read_byte(p, &kind, "an entry or the end of a tree", err);
    if (status == TDICT_OK && kind == TDICT_BLOB_END)
      p->depth--;
    else if (status == TDICT_OK)
      status = read_entry(p, kind, err);
    if (status != TDICT_OK) return status;
  }
  if (p->at == p->count) return TDICT_OK;
  return tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: %zu bytes after the end of the root", what, p->at,
                    p->count - p->at);
}

static int compare_keys(const void *a, const void *b) {
  const tdict_schema_entry *x = *(const tdict_schema_entry *const *)a, *y = *(const tdict_schema_entry *const *)b;
  if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
  return strcmp(x->key, y->key);
}

/* Returns TDICT_EFORMAT if a tree has the same key twice, and TDICT_ENOMEM if host memory is exhausted. Sorts the
 * entries instead of hashing the keys, since an attacker could choose keys with equal hashes. */
static tdict_status check_unique_keys(const tdict_schema *s, tdict_error *err) {
  if (s->num_entries < 2) return TDICT_OK;
  const tdict_schema_entry **sorted = malloc(s->num_entries * sizeof *sorted);
  if (!sorted) return tdict_fail_memory(err, what, NULL, "%zu entries", s->num_entries);
  for (size_t i = 0; i < s->num_entries; i++) sorted[i] = &s->entries[i];
  qsort(sorted, s->num_entries, sizeof *sorted, compare_keys);
  tdict_status status = TDICT_OK;
  for (size_t i = 1; i < s->num_entries && status == TDICT_OK; i++) {
    if (compare_keys(&sorted[i - 1], &sorted[i]) != 0) continue;
    const char *first = sorted[i - 1]->key, *second = sorted[i]->key;
    status = tdict_fail(err, TDICT_EFORMAT, "%s: at byte %zu: the key '%.40s' is twice in its tree", what,
                        (size_t)((const uint8_t *)(first > second ? first : second) - s->bytes), first);
  }
  free((void *)sorted);
  return status;
}

/* Allocates the schema that the first pass has measured: the entries, the sizes and the blob in one block. */
static tdict_schema *allocate_schema(const parser *p) {
  size_t entries, dims, bytes;
  if (!tdict_mul_size(p->num_entries, sizeof(tdict_schema_entry), &entries) ||
      !tdict_mul_size(p->num_dims, sizeof(int64_t), &dims) || !tdict_add_size(entries, dims, &bytes) ||
      !tdict_add_size(bytes, sizeof(tdict_schema) + p->count, &bytes))
    return NULL;
  tdict_schema *s = malloc(bytes);
  if (!s) return NULL;
  atomic_init(&s->refs, 1);
  atomic_init(&s->tables, NULL);
  s->num_entries = p->num_entries;
  s->num_tensors = p->num_tensors;
  s->num_objects = p->num_objects;
  s->num_bytes = p->count;
  s->size = p->size;
  uint8_t *blob = (uint8_t *)s->entries + entries + dims;
  memcpy(blob, p->bytes, p->count);
  s->bytes = blob;
  s->hash = tdict_hash128_of(blob + TDICT_BLOB_HEAD, p->count - TDICT_BLOB_HEAD, 0);
  return s;
}

tdict_status tdict_blob_parse(const uint8_t *bytes, size_t count, bool is_trusted, tdict_schema **out,
                              tdict_error *err) {
  parser p;
  p.bytes = bytes;
  p.count = count;
  p.out = NULL;
  p.dims = NULL;
  p.size = (tdict_schema_size){0};
  tdict_status status = read_blob(&p, err);
  if (status != TDICT_OK) return status;
  tdict_schema *s = allocate_schema(&p);
  if (!s) return tdict_fail_memory(err, what, NULL, "%zu entries", p.num_entries);
  /* Reads the copy, so that keys point into it. Later changes of `bytes` do not affect the schema. */
  p.bytes = s->bytes;
  p.out = s;
  p.dims = (int64_t *)(void *)(s->entries + s->num_entries);
  status = read_blob(&p, err);
  if (status == TDICT_OK && !is_trusted) status = check_unique_keys(s, err);
  return TDICT_HAND_OVER(status, s, out, free);
}

tdict_status tdict_schema_read(const void *blob, size_t bytes, tdict_schema **out, tdict_error *err) {
  if (!blob || !out) return tdict_fail_null(err, what, blob ? "out" : "blob");
  return tdict_blob_parse(blob, bytes, false, out, err);
}
