/* Operations that compare schemas of trees with the model. See ops.h. */
#include <stdlib.h>
#include <string.h>

#include "tdict/clone.h"
#include "tdict/schema.h"

#include "support/ops.h"

enum { MOST_ARRAYS = 64 };

/* Replaces the parent's batch size in *nb and `bs` with the node's batch size, if this extends the parent's. */
static void schema_batch(const m_tree *t, int *nb, int64_t *bs) {
  if (t->nb < *nb || (*nb && memcmp(t->bs, bs, (size_t)*nb * sizeof *bs) != 0)) return;
  *nb = t->nb;
  memcpy(bs, t->bs, sizeof t->bs);
}

static bool schema_fits(const m_tree *t, int nb, const int64_t *above) {
  m_tree node = {.nb = nb};
  memcpy(node.bs, above, sizeof node.bs);
  schema_batch(t, &node.nb, node.bs);
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    if (e->array ? !m_begins_with(e->array, &node) : !schema_fits(e->tree, node.nb, node.bs)) return false;
  }
  return true;
}

static bool same_sizes(int n, const int64_t *sizes, int wanted_n, const int64_t *wanted) {
  return n == wanted_n && (n == 0 || memcmp(sizes, wanted, (size_t)n * sizeof *sizes) == 0);
}

/* Compares a schema's entries, starting at *i, with a node's entries. `bs` is the node's batch size in the schema. */
static bool schema_is(const tdict_schema *s, size_t *i, const m_tree *t, int depth, int nb, const int64_t *bs) {
  for (int k = 0; k < t->count; k++) {
    const m_entry *m = &t->entries[k];
    const m_array *a = m->array;
    tdict_schema_entry e;
    int below = nb;
    int64_t sizes[M_DIMS];
    memcpy(sizes, bs, sizeof sizes);
    if (m->tree) schema_batch(m->tree, &below, sizes);
    if (tdict_schema_get_entry(s, (*i)++, &e, NULL) != TDICT_OK) return false;
    if (strcmp(e.key, m->key) != 0 || e.depth != depth || !same_sizes(e.batch_ndim, e.batch_size, below, sizes) ||
        e.kind != (a ? TDICT_SCHEMA_TENSOR : TDICT_SCHEMA_TREE))
      return false;
    if (a && (e.dtype != a->dtype || !same_sizes(e.ndim, e.shape, a->ndim - nb, a->shape + nb))) return false;
    if (!a && !schema_is(s, i, m->tree, depth + 1, below, sizes)) return false;
  }
  return true;
}

/* Writes the schema to bytes, makes a tree from them, and returns whether it has the same schema and only zeros. */
static bool schema_makes(const tdict_schema *s, const m_tree *t) {
  static uint8_t blob[1 << 16];
  m_array *list[MOST_ARRAYS];
  static char paths[MOST_ARRAYS][2 * M_KEY];
  scoped_schema read = NULL, again = NULL;
  scoped_tree made = NULL;
  size_t bytes = tdict_schema_write(s, blob, sizeof blob);
  bool good = bytes <= sizeof blob && tdict_schema_read(blob, bytes, &read, NULL) == TDICT_OK &&
              tdict_create_from_schema(read, NULL, &made, NULL) == TDICT_OK &&
              tdict_schema_from_tree(made, &again, NULL) == TDICT_OK && tdict_schema_equal(s, again, NULL) &&
              tdict_num_leaves(made) == (size_t)m_arrays(t, list, paths, MOST_ARRAYS);
  for (int i = good ? m_arrays(t, list, paths, MOST_ARRAYS) : 0; i > 0; i--) {
    const uint8_t *data = tdict_const_data(made, paths[i - 1]);
    for (size_t b = (size_t)list[i - 1]->n * tdict_dtype_bytes(list[i - 1]->dtype); b > 0; b--)
      if (data[b - 1]) good = false;
  }
  return good;
}

static bool describes(const tdict_schema *s, const m_tree *t) {
  size_t i = 0;
  const tdict_schema_info info = tdict_schema_get_info(s);
  return same_sizes(info.batch_ndim, info.batch_size, t->nb, t->bs) && schema_is(s, &i, t, 0, t->nb, t->bs) &&
         i == info.num_entries;
}

void ops_schema(ops *o) {
  const int slot = ops_slot(o);
  const m_tree *t = o->model[slot];
  scoped_schema s = NULL;
  tdict_status status = OPS_CALL(o, tdict_schema_from_tree(o->td[slot], &s, o->err));
  if (ops_judge(o, status, schema_fits(t, t->nb, t->bs) ? TDICT_OK : TDICT_ESHAPE)) {
    if (!describes(s, t)) ops_complain(o, "the entries");
    if (!schema_makes(s, t)) ops_complain(o, "the tree made from the bytes is wrong");
  }
}

/* Returns a copy in which one array has a different dtype or last size. */
static m_tree *change_array(ops *o, const m_tree *t) {
  m_tree *made = m_share(t), *node = made;
  while (node->count) {
    m_entry *e = &node->entries[ops_pick(o, (uint32_t)node->count)];
    if (e->tree) {
      node = e->tree;
      continue;
    }
    int64_t shape[M_DIMS];
    memcpy(shape, e->array->shape, sizeof shape);
    const bool grows = e->array->ndim > node->nb && ops_pick(o, 2);
    if (grows) shape[e->array->ndim - 1]++;
    e->array = m_array_make(grows ? e->array->dtype : TDICT_F64, e->array->ndim, shape);
    m_array_zero(e->array);
    break;
  }
  return made;
}

/* Compares the schemas of two trees of the pool, or of a tree and a copy in which one array may differ. Their equality,
 * hashes and bytes must agree with the model. */
void ops_schema_pair(ops *o) {
  static uint8_t blobs[2][1 << 16];
  const int slots[2] = {ops_slot(o), ops_slot(o)};
  tdict_tree *trees[2] = {tdict_retain(o->td[slots[0]]), tdict_retain(o->td[slots[1]])};
  const m_tree *models[2] = {o->model[slots[0]], o->model[slots[1]]};
  tdict_schema *s[2] = {NULL, NULL};
  tdict_schema_difference found;
  const uint32_t way = ops_pick(o, 3);
  if (way) tdict_release(trees[1]);
  if (way == 2) {
    m_tree *changed = change_array(o, models[0]);
    models[1] = changed;
    trees[1] = ops_tree(changed);
  }
  if (way == 1) { /* a copy has the same schema */
    models[1] = models[0];
    if (tdict_clone_deep(trees[0], NULL, &trees[1], NULL) != TDICT_OK) abort();
  }
  const bool fits =
      schema_fits(models[0], models[0]->nb, models[0]->bs) && schema_fits(models[1], models[1]->nb, models[1]->bs);
  const tdict_status status = fits ? OPS_CALL(o, tdict_schema_from_tree(trees[0], &s[0], o->err)) : TDICT_OK;
  if (fits && ops_judge(o, status, TDICT_OK)) {
    if (tdict_schema_from_tree(trees[1], &s[1], NULL) != TDICT_OK) abort();
    const bool is_equal = describes(s[0], models[1]);
    const tdict_hash128 a = tdict_schema_get_info(s[0]).hash, b = tdict_schema_get_info(s[1]).hash;
    const size_t bytes = tdict_schema_write(s[0], blobs[0], sizeof blobs[0]);
    const bool has_bytes = tdict_schema_write(s[1], blobs[1], sizeof blobs[1]) == bytes && bytes <= sizeof blobs[0] &&
                           memcmp(blobs[0], blobs[1], bytes) == 0;
    if (tdict_schema_equal(s[0], s[1], &found) != is_equal || !found.message[0] != is_equal) ops_complain(o, "equal");
    if ((a.lo == b.lo && a.hi == b.hi) != is_equal) ops_complain(o, "the hash");
    if (has_bytes != is_equal) ops_complain(o, "the bytes");
  }
  for (int i = 0; i < 2; i++) {
    tdict_schema_release(s[i]);
    tdict_release(trees[i]);
  }
}
