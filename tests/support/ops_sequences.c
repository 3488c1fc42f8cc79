/* Packs sequences of different lengths into one tree, and compares the result with the model. See ops.h. */

#include "support/ops.h"

enum { MOST_SEQUENCES = 3, MOST_DIMS = 6, MOST_ARRAYS = 64 };

/* The trees to pack, and the sizes that the result must have. */
typedef struct packing {
  m_tree *models[MOST_SEQUENCES];
  int count;
  int64_t lengths[MOST_SEQUENCES], sum, num_tokens, num_sequences;
  int pad_value;
} packing;

static m_array *pack_arrays(const m_array *const *parts, const packing *p) {
  const m_array *first = parts[0];
  int64_t shape[M_DIMS] = {first->ndim ? p->num_tokens : p->num_sequences}, at = 0;
  for (int d = 1; d < first->ndim; d++) shape[d] = first->shape[d];
  m_array *made = m_array_make(first->dtype, first->ndim ? first->ndim : 1, shape);
  m_array_zero(made);
  for (int i = 0; i < p->count; i++)
    for (int64_t k = 0; k < parts[i]->n; k++) m_write(made->cells[at++], m_value(parts[i]->cells[k]));
  while (at < made->n) m_write(made->cells[at++], ops_number(made->dtype, p->pad_value));
  return made;
}

/* Returns the node that packing must make from the nodes at one path. Nodes without arrays are left out. */
static m_tree *pack_nodes(const m_tree *const *nodes, const packing *p) {
  m_tree *made = m_tree_make(0, NULL);
  for (int i = 0; i < nodes[0]->count; i++) {
    const m_entry *e = &nodes[0]->entries[i];
    const m_array *parts[MOST_SEQUENCES];
    const m_tree *below[MOST_SEQUENCES];
    for (int k = 0; k < p->count; k++) {
      const m_entry *there = m_find(nodes[k], e->key);
      parts[k] = there->array;
      below[k] = there->tree;
    }
    if (e->array) m_put(made, e->key, pack_arrays(parts, p), NULL);
    if (e->tree && m_has_arrays(e->tree)) m_put(made, e->key, NULL, pack_nodes(below, p));
  }
  return made;
}

/* Adds an int32 array with `count` elements, or a scalar if `count` is -1. */
static void put_numbers(m_tree *t, const char *key, int64_t count, const int64_t *values) {
  m_array *a = m_array_make(TDICT_I32, count >= 0, &count);
  m_array_zero(a);
  for (int64_t i = 0; i < a->n; i++) m_write(a->cells[i], ops_number(TDICT_I32, (int)values[i]));
  m_put(t, key, a, NULL);
}

static m_tree *pack_models(const packing *p, bool has_positions) {
  m_tree *made = pack_nodes((const m_tree *const *)p->models, p);
  int64_t offsets[2 * MOST_SEQUENCES + 2] = {0}, longest = 0, *positions = m_alloc(sizeof(int64_t) * 1024), at = 0;
  for (int64_t i = 0; i < p->num_sequences; i++) {
    const int64_t length = i < p->count ? p->lengths[i] : 0;
    offsets[i + 1] = offsets[i] + length;
    if (length > longest) longest = length;
    for (int64_t k = 0; k < length; k++) positions[at++] = k;
  }
  put_numbers(made, "cu_seqlens", p->num_sequences + 1, offsets);
  put_numbers(made, "max_seqlen", -1, &longest);
  if (has_positions) put_numbers(made, "positions", p->num_tokens, positions);
  return made;
}

/* Removes the batch sizes of all nodes, so that the tree may also have scalars. */
static void drop_batch_sizes(m_tree *t) {
  t->nb = 0;
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree) drop_batch_sizes(t->entries[i].tree);
}

static int most_dims(const m_tree *t) {
  int most = 0;
  for (int i = 0; i < t->count; i++) {
    const int dims = t->entries[i].array ? t->entries[i].array->ndim : most_dims(t->entries[i].tree);
    if (dims > most) most = dims;
  }
  return most;
}

static void choose_sequences(ops *o, packing *p, const m_tree *t) {
  p->count = 1 + (int)ops_pick(o, MOST_SEQUENCES);
  const bool has_scalar = ops_pick(o, 2);
  for (int i = 0; i < p->count; i++) {
    p->lengths[i] = ops_pick(o, (uint32_t)t->bs[0] + 1);
    p->sum += p->lengths[i];
    p->models[i] = m_tree_each(t, 1, 1, &p->lengths[i], ops_first_rows, &p->lengths[i]);
    m_open(p->models[i]);
    if (has_scalar) drop_batch_sizes(p->models[i]);
    if (!has_scalar) continue;
    m_array *a = m_array_make(TDICT_I16, 0, NULL);
    m_array_fresh(a, (uint64_t)i);
    m_put(p->models[i], "scalar", a, NULL);
  }
}

static void op_pack(ops *o) {
  const m_tree *t = o->model[ops_slot(o)];
  packing p = {.pad_value = ops_pick(o, 2) ? 3 : 0};
  if (t->nb == 0 || t->bs[0] > 16 || !m_fits(t) || ops_cells(t) > OPS_MOST_CELLS / MOST_SEQUENCES) return;
  choose_sequences(o, &p, t);
  const bool is_wide = most_dims(t) > MOST_DIMS, has_positions = ops_pick(o, 2);
  tdict_pack_options options = tdict_pack_options_default();
  if (has_positions) options.position_ids = "positions";
  options.pad_value = p.pad_value;
  if (ops_pick(o, 2) && !is_wide) options.num_tokens = p.sum + (int64_t)ops_pick(o, 4) - 1;
  if (ops_pick(o, 2)) options.num_sequences = p.count + (int64_t)ops_pick(o, 3) - 1;
  if (options.num_tokens < 0) options.num_tokens = 0;
  p.num_tokens = options.num_tokens ? options.num_tokens : p.sum;
  p.num_sequences = options.num_sequences ? options.num_sequences : p.count;
  tdict_status wanted = !m_has_arrays(t) || is_wide ? TDICT_EINVAL : p.num_tokens < p.sum ? TDICT_ESHAPE : TDICT_OK;
  if (p.num_sequences < p.count) wanted = TDICT_ESHAPE;
  tdict_tree *trees[MOST_SEQUENCES], *td = NULL;
  for (int i = 0; i < p.count; i++) trees[i] = ops_tree(p.models[i]);
  tdict_status status =
      OPS_CALL(o, tdict_pack_sequence((const tdict_tree *const *)trees, (size_t)p.count, &options, NULL, &td, o->err));
  if (ops_judge(o, status, wanted)) ops_check_tree(o, pack_models(&p, has_positions), td);
  for (int i = 0; i < p.count; i++) tdict_release(trees[i]);
  tdict_release(td);
}

const ops_fn ops_sequences[] = {op_pack, ops_schema_pair};
const char *const ops_sequence_names[] = {"pack_sequence", "schema_pair"};
const int ops_num_sequences = sizeof ops_sequences / sizeof *ops_sequences;
