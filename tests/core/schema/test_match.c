/* Tests tdict_schema_matches(), which must return true exactly for trees whose own schema equals the schema. */
#include "core/schema/schema.h"
#include "rig.h"
#include "support/random.h"

/* How a random tree differs from the unchanged tree with the same seed. Entry number `changed_at` is changed. */
typedef enum change {
  CHANGE_KEY,
  CHANGE_KEY_LENGTH,
  CHANGE_DTYPE,
  CHANGE_SIZE,
  CHANGE_NDIM,
  CHANGE_KIND,
  CHANGE_OMIT,
  CHANGE_ADD,   /* another entry is added */
  CHANGE_ORDER, /* the first entry of the tree moves to the end */
  CHANGE_BATCH_SIZE,
  CHANGE_BATCH_NDIM,
  CHANGE_TYPE_NAME,
  NUM_CHANGES,
  NO_CHANGE
} change;
typedef struct grower {
  rng random;
  int count, changed_at;
  change change;
  bool did_change;
} grower;

static const tdict_dtype dtypes[] = {TDICT_F32, TDICT_I32, TDICT_U8, TDICT_DTYPE(2, 32, 2)};
static const tdict_type other_type = {.struct_size = sizeof(tdict_type), .name = "thing2", .release = help_end_thing};

static bool changes(grower *g, bool is_here, change c) {
  const bool now = is_here && g->change == c;
  g->did_change = g->did_change || now;
  return now;
}

static void put_tensor(grower *g, bool is_here, tdict_tree *tree, const char *key) {
  int64_t sizes[10];
  int ndim = tdict_batch_ndim(tree), dtype = (int)pick(&g->random, 0, 3);
  for (int i = 0; i < ndim; i++) sizes[i] = tdict_batch_size(tree)[i];
  const int more = (int)pick(&g->random, 0, 3);
  for (int i = 0; i < more; i++) sizes[ndim++] = pick(&g->random, 0, 3);
  const int64_t at = pick(&g->random, 0, 2);
  if (more && changes(g, is_here, CHANGE_SIZE)) sizes[ndim - 1 - at % more] += 1;
  if (changes(g, is_here, CHANGE_NDIM)) sizes[ndim++] = 1;
  if (changes(g, is_here, CHANGE_DTYPE)) dtype = (dtype + 1) % 4;
  td_put(tree, key, td_made(tensor, tdict_tensor_zeros(dtypes[dtype], ndim, sizes, NULL, &made, err)));
}

static void grow(grower *g, tdict_tree *tree, int depth);

static void put_child(grower *g, bool is_here, tdict_tree *tree, const char *key, int depth) {
  int64_t sizes[10];
  int ndim = tdict_batch_ndim(tree);
  memcpy(sizes, tdict_batch_size(tree), (size_t)ndim * sizeof *sizes);
  const bool more = pick(&g->random, 0, 1) && ndim < 4;
  const int64_t size = pick(&g->random, 0, 3);
  if (more) sizes[ndim++] = size;
  if (more && changes(g, is_here, CHANGE_BATCH_SIZE)) sizes[ndim - 1] += 1;
  if (changes(g, is_here, CHANGE_BATCH_NDIM)) sizes[ndim++] = 1;
  tdict_tree *child = help_tree(ndim, sizes);
  grow(g, child, depth + 1);
  td_put_tree(tree, key, child);
}

static void put_entry(grower *g, tdict_tree *tree, int i, int depth) {
  const bool is_here = g->count++ == g->changed_at;
  const int kind = depth < 4 ? (int)pick(&g->random, 0, 4) : 0;
  static int ends; /* incremented when objects are released, but never read */
  char key[24];
  snprintf(key, sizeof key, "%s%d", changes(g, is_here, CHANGE_KEY) ? "c" : "k", i);
  if (changes(g, is_here, CHANGE_KEY_LENGTH)) strcat(key, "x");
  if (changes(g, is_here, CHANGE_KIND)) {
    if (kind > 2)
      put_tensor(g, false, tree, key);
    else
      td_put_tree(tree, key, help_tree(tdict_batch_ndim(tree), tdict_batch_size(tree)));
  } else if (kind < 3) {
    put_tensor(g, is_here, tree, key);
  } else if (kind == 3) {
    put_child(g, is_here, tree, key, depth);
  } else {
    const bool other = changes(g, is_here, CHANGE_TYPE_NAME);
    td_ok(tdict_set_object(tree, key, other ? &other_type : &rig_type, help_make_thing(&ends, 0, ""), err));
  }
  if (changes(g, is_here, CHANGE_OMIT)) td_ok(tdict_delete(tree, key, err));
  if (changes(g, is_here, CHANGE_ADD))
    td_put_tree(tree, "more", help_tree(tdict_batch_ndim(tree), tdict_batch_size(tree)));
}

/* Moves the entry "k0" to the end, if it is a tensor. */
static void move_first(tdict_tree *tree) {
  tdict_tensor *t = NULL;
  if (tdict_get(tree, "k0", &t, NULL) != TDICT_OK) return;
  t = tdict_tensor_retain(t);
  td_ok(tdict_delete(tree, "k0", err));
  td_put(tree, "k0", t);
}

static void grow(grower *g, tdict_tree *tree, int depth) {
  const int count = (int)pick(&g->random, depth ? 0 : 1, 4), begin = g->count;
  for (int i = 0; i < count; i++) put_entry(g, tree, i, depth);
  if (changes(g, begin == g->changed_at && count > 1, CHANGE_ORDER)) move_first(tree);
}

static tdict_tree *grown(uint64_t seed, change c, int changed_at, bool *did_change, int *count) {
  grower g = {.random = {seed}, .changed_at = changed_at, .change = c};
  const int ndim = (int)pick(&g.random, 0, 2);
  const int64_t sizes[] = {pick(&g.random, 0, 3), 2, 1};
  const int more = c == CHANGE_BATCH_NDIM && changed_at < 0;
  tdict_tree *tree = help_tree(ndim + more, sizes);
  grow(&g, tree, 0);
  *did_change = g.did_change || more;
  *count = g.count;
  return tree;
}

/* Matches changed trees, each with one change, against the schema of the unchanged tree. */
CASE(schema_matches_exactly_the_trees_with_equal_schemas) {
  int differences[NUM_CHANGES] = {0}, equal = 0;
  for (uint64_t seed = 1; seed <= 60; seed++) {
    bool did_change;
    int count, ignored;
    scoped_tree tree = grown(seed, NO_CHANGE, 0, &did_change, &count);
    scoped_schema schema = rig_export(tree);
    assert_true(tdict_schema_matches(schema, tree));
    for (int c = 0; c < NUM_CHANGES; c++)
      for (int at = -1; at < count; at++) {
        scoped_tree other = grown(seed, (change)c, at, &did_change, &ignored);
        scoped_schema found = rig_export(other);
        const bool is_equal = tdict_schema_equal(schema, found, NULL);
        assert_int_equal(tdict_schema_matches(schema, other), is_equal);
        assert_int_equal(tdict_schema_matches(found, tree), is_equal);
        differences[c] += did_change && !is_equal;
        equal += is_equal;
      }
  }
  for (int c = 0; c < NUM_CHANGES; c++) assert_true(differences[c] > 4);
  assert_true(equal > 0);
}

/* A child's batch size is changed through its own handle, as in schema_export_changed_children. */
CASE(schema_matches_changed_children) {
  scoped_tree td = TREE(2, 3);
  tdict_tree *child = td_put_tree(td, "n", TREE(2, 3, 4)), *below = td_put_tree(child, "m", TREE(2, 3, 4));
  td_put(below, "t", TENSOR(2, 3, 4));
  scoped_schema s = rig_export(td);
  td_ok(tdict_set_batch_size(below, COUNTS(2), err));
  assert_true(tdict_schema_matches(s, td));
  td_ok(tdict_set_batch_size(child, COUNTS(2), err));
  assert_false(tdict_schema_matches(s, td));
  tdict_schema_release(s);
  s = rig_export(td);
  assert_true(tdict_schema_matches(s, td));
  td_ok(tdict_delete(below, "t", err));
  tdict_schema_release(s);
  s = rig_export(td);
  td_ok(tdict_set_batch_size(below, COUNTS(7, 3, 4), err)); /* an empty tree may have any batch size */
  assert_true(tdict_schema_matches(s, td));
  td_put(below, "t", TENSOR(7, 3, 4));
  assert_false(tdict_schema_matches(s, td));
}

/* The same entries at different depths: "x" comes after the empty tree "n", or is in it. */
CASE(schema_matches_the_depth_of_each_entry) {
  scoped_tree after = TREE(2), inside = TREE(2);
  td_put_tree(after, "n", TREE(2));
  td_put(after, "x", TENSOR(2));
  td_put(td_put_tree(inside, "n", TREE(2)), "x", TENSOR(2));
  scoped_schema s = rig_export(after), t = rig_export(inside);
  assert_true(tdict_schema_matches(s, after) && tdict_schema_matches(t, inside));
  assert_false(tdict_schema_matches(s, inside) || tdict_schema_matches(t, after));
}

CASE(schema_matches_the_batch_size_of_the_root) {
  scoped_tree two = TREE(2), three = TREE(3), more = TREE(2, 3);
  scoped_schema s = rig_export(two);
  assert_true(tdict_schema_matches(s, two));
  assert_false(tdict_schema_matches(s, three) || tdict_schema_matches(s, more));
}

/* tdict_schema_matches() allocates memory only for deep trees. If an allocation fails, it returns false. */
CASE(schema_matches_without_memory) {
  tdict_tree *td = TREE(2), *at = td;
  for (int i = 0; i < 20; i++) at = td_put_tree(at, "d", TREE(2));
  for (int deep = 0; deep < 2; deep++) {
    tdict_schema *s = rig_export(td);
    td_fail_alloc(0, true);
    const bool matches = tdict_schema_matches(s, td);
    const bool refused = td_fail_alloc_stop();
    assert_int_equal(matches, !deep);
    assert_int_equal(refused, deep);
    assert_true(tdict_schema_matches(s, td));
    tdict_schema_release(s);
    for (int i = 0; i < 20; i++) at = td_put_tree(at, "d", TREE(2));
  }
  tdict_release(td);
}
