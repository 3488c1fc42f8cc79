/* Makes trees and blobs for the tests of schemas. */
#ifndef TDICT_TESTS_CORE_SCHEMA_RIG_H
#define TDICT_TESTS_CORE_SCHEMA_RIG_H

#include "core/tree/help.h"

static inline tdict_schema *rig_export(const tdict_tree *tree) {
  return td_made(schema, tdict_schema_from_tree(tree, &made, err));
}
static inline tdict_schema *rig_read(const void *blob, size_t bytes) {
  return td_made(schema, tdict_schema_read(blob, bytes, &made, err));
}
/* Returns the schema's blob in a buffer of its exact size, so that a sanitizer reports reads past the end. */
static inline uint8_t *rig_blob(const tdict_schema *s, size_t *bytes) {
  *bytes = tdict_schema_write(s, NULL, 0);
  uint8_t *blob = td_alloc(*bytes);
  assert_int_equal(tdict_schema_write(s, blob, *bytes), *bytes);
  return blob;
}
static inline tdict_schema_entry rig_entry(const tdict_schema *s, size_t i) {
  tdict_schema_entry e;
  td_ok(tdict_schema_get_entry(s, i, &e, err));
  return e;
}

static const tdict_type rig_type = {.struct_size = sizeof(tdict_type), .name = "thing", .release = help_end_thing};

/* Makes a tree of batch size [2, 3] with "obs.pixels" U8 [2, 3, 4, 5] in a child of batch size [2, 3, 4], the empty
 * tree "obs.none", "r" F32 [2, 3], and the key "h.0" I64 [2, 3, 0]. If `thing` is not NULL, adds an object at "x". */
static inline tdict_tree *rig_tree(int *thing) {
  tdict_tree *td = TREE(2, 3);
  tdict_tree *obs = td_put_tree(td, "obs", TREE(2, 3, 4));
  tdict_tensor *t = td_made(tensor, tdict_tensor_zeros(TDICT_U8, COUNTS(2, 3, 4, 5), NULL, &made, err));
  td_put(obs, "pixels", t);
  td_put_tree(obs, "none", TREE(2, 3, 4));
  td_put(td, "r", TENSOR(2, 3));
  td_ok(tdict_tensor_zeros(TDICT_I64, COUNTS(2, 3, 0), NULL, &t, err));
  td_put(td, "h\\.0", t);
  if (thing) td_ok(tdict_set_object(td, "x", &rig_type, help_make_thing(thing, 0, "t"), err));
  return td;
}

/* The expected blob of a tree from rig_tree() with the object. */
static const uint8_t rig_bytes[] = {
    't', 'd', 's', 'c', 1,   0,   0,   0,   2, 2, 3,          /* head, batch size */
    2,   'o', 'b', 's', 0,   1,   4,                          /* obs */
    1,   'p', 'i', 'x', 'e', 'l', 's', 0,   1, 8, 1, 0, 1, 5, /* obs.pixels: code 1, 8 bits, 1 lane, [5] */
    2,   'n', 'o', 'n', 'e', 0,   0,   0,   0,                /* obs.none, and the end of obs */
    1,   'r', 0,   2,   32,  1,   0,   0,                     /* r */
    1,   'h', '.', '0', 0,   0,   64,  1,   0, 1, 0,          /* h\.0 */
    3,   'x', 0,   't', 'h', 'i', 'n', 'g', 0, 0,             /* x, and the end */
};

#endif
