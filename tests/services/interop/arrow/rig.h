/* Helpers for tests of Arrow: arrays written by hand, whose releases are counted, and trees. Only export_tree() uses
 * the library's Arrow code. Thread rule: the counts are atomic; all else belongs to the test's thread. */
#ifndef TDICT_TESTS_SERVICES_INTEROP_ARROW_RIG_H
#define TDICT_TESTS_SERVICES_INTEROP_ARROW_RIG_H

#include <stdatomic.h>

#include "support/test.h"

static _Atomic(int) num_array_releases, num_schema_releases;

static inline void release_hand_schema(struct ArrowSchema *schema) {
  for (int64_t i = 0; i < schema->n_children; i++)
    if (schema->children && schema->children[i] && schema->children[i]->release)
      schema->children[i]->release(schema->children[i]);
  schema->release = NULL;
  num_schema_releases++;
}

/* Releases an array written by hand, and counts the release. Its buffers must be readable until this call. */
static inline void release_hand_array(struct ArrowArray *array) {
  for (int64_t i = 0; i < array->n_children; i++)
    if (array->children && array->children[i] && array->children[i]->release)
      array->children[i]->release(array->children[i]);
  array->release = NULL;
  num_array_releases++;
}

enum { HAND_CHILDREN = 4 };
/* A field written by hand, with its schema and its array. */
typedef struct hand {
  struct ArrowSchema schema;
  struct ArrowArray array;
  struct ArrowSchema *schemas[HAND_CHILDREN];
  struct ArrowArray *arrays[HAND_CHILDREN];
  const void *buffers[3];
} hand;

static inline void hand_make(hand *h, const char *format, const char *name, int64_t length, int num_buffers) {
  memset(h, 0, sizeof *h);
  h->schema = (struct ArrowSchema){.format = format, .name = name, .flags = 2, .children = h->schemas};
  h->array =
      (struct ArrowArray){.length = length, .n_buffers = num_buffers, .buffers = h->buffers, .children = h->arrays};
  h->schema.release = release_hand_schema;
  h->array.release = release_hand_array;
}
static inline void hand_buffers(hand *h, const void *valid, const void *first, const void *second) {
  h->buffers[0] = valid;
  h->buffers[1] = first;
  h->buffers[2] = second;
}
static inline void hand_add(hand *parent, hand *child) {
  const int64_t i = parent->array.n_children++;
  parent->schema.n_children++;
  parent->schemas[i] = &child->schema;
  parent->arrays[i] = &child->array;
}
/* Adds a field of numbers that is as long as its parent. */
static inline void hand_numbers(hand *parent, hand *field, const char *format, const char *name, const void *valid,
                                const void *elements) {
  hand_make(field, format, name, parent->array.length, 2);
  hand_buffers(field, valid, elements, NULL);
  hand_add(parent, field);
}
/* Makes a struct with one field of numbers. */
static inline void hand_one(hand *root, hand *field, const char *format, int64_t length, const void *elements) {
  hand_make(root, "+s", "", length, 1);
  hand_numbers(root, field, format, "x", NULL, elements);
}

static inline bool hand_bit(const void *bits, int64_t i) { return ((const uint8_t *)bits)[i / 8] >> i % 8 & 1; }

static inline tdict_tree *new_tree(int64_t rows) { return td_made(tree, tdict_create(1, &rows, &made, err)); }
static inline tdict_tensor *random_tensor(tdict_dtype dtype, int ndim, const int64_t *shape, uint64_t seed) {
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(dtype, ndim, shape, NULL, &made, err));
  unsigned char *bytes = tdict_tensor_data(t);
  td_fill_random(bytes, tdict_tensor_bytes(t), seed);
  for (size_t i = 0; dtype == TDICT_BOOL && i < tdict_tensor_bytes(t); i++) bytes[i] &= 1;
  return t;
}
static inline void has_shape(const tdict_tensor *t, int ndim, const int64_t *shape) {
  assert_int_equal(tdict_tensor_ndim(t), ndim);
  for (int i = 0; i < ndim; i++) assert_int_equal(tdict_tensor_shape(t)[i], shape[i]);
}
/* Sets a ragged leaf of float32 rows with these lengths. Element k has the value k. */
static inline void put_ragged(tdict_tree *tree, const char *path, tdict_dtype offsets_dtype, int rows,
                              const int64_t *lengths) {
  scoped_tensor values = NULL, offsets = NULL;
  scoped_ragged ragged = NULL;
  int64_t at[32] = {0};
  int32_t narrow[32] = {0};
  for (int i = 0; i < rows; i++) narrow[i + 1] = (int32_t)(at[i + 1] = at[i] + lengths[i]);
  td_ok(tdict_tensor_arange(TDICT_F32, 0, 1, at[rows], &values, err));
  td_ok(tdict_tensor_from_array(offsets_dtype, TDICT_SHAPE(rows + 1),
                                offsets_dtype == TDICT_I64 ? (const void *)at : narrow, &offsets, err));
  td_ok(tdict_ragged_create(values, offsets, &ragged, err));
  td_ok(tdict_set_ragged(tree, path, ragged, err));
}

/* Checks that two trees are equal. NaN equals NaN. */
static inline void equal_trees(const tdict_tree *a, const tdict_tree *b) {
  tdict_difference difference;
  td_ok(tdict_get_difference(a, b, td_options(tdict_difference_options, nan_equal = true), &difference, err));
  if (difference.differs) fail_msg("%s: %s", difference.path, difference.message);
}

typedef struct exported {
  struct ArrowSchema schema;
  struct ArrowArray array;
} exported;
static inline exported export_tree(const tdict_tree *tree) {
  exported e;
  td_ok(tdict_arrow_export(tree, &e.schema, &e.array, err));
  assert_non_null(e.schema.release);
  assert_non_null(e.array.release);
  return e;
}
static inline void release_exported(exported *e) {
  e->schema.release(&e->schema);
  e->array.release(&e->array);
  assert_null(e->schema.release);
  assert_null(e->array.release);
}

/* Makes a tree with every kind of leaf that exports and imports preserve. */
static inline tdict_tree *sample_tree(int64_t rows, uint64_t seed) {
  static const tdict_dtype dtypes[] = {TDICT_I8,  TDICT_I16, TDICT_I32, TDICT_I64, TDICT_U8,  TDICT_U16,
                                       TDICT_U32, TDICT_U64, TDICT_F16, TDICT_F32, TDICT_F64, TDICT_BOOL};
  tdict_tree *tree = new_tree(rows);
  int64_t lengths[32];
  const char *texts[32];
  for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
    const int64_t shape[3] = {rows, (int64_t)((seed + i) % 3), 3};
    const char *path = td_text("%s.k%zu", i % 2 ? "even" : "odd\\.", i);
    td_put(tree, path, random_tensor(dtypes[i], 1 + (int)((seed + i) % 3), shape, seed * 100 + i));
  }
  for (int64_t i = 0; i < rows; i++) {
    lengths[i] = (int64_t)((seed * 7 + (uint64_t)i * 5) % 4);
    texts[i] = (i + (int64_t)seed) % 3 ? "row" : "\xc3\xa9t\xc3\xa9";
  }
  put_ragged(tree, "ragged", seed % 2 ? TDICT_I32 : TDICT_I64, (int)rows, lengths);
  td_ok(tdict_set_texts(tree, "texts", texts, (size_t)rows, err));
  return tree;
}

#endif
