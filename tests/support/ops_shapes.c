/* Operations that change the batch dimensions of trees. See ops.h. */
#include <stdlib.h>
#include <string.h>

#include "tdict/index.h"
#include "tdict/shape.h"

#include "support/ops.h"

static m_array *map_array(const m_array *a, void *user) { return m_array_map(a, user); }

/* Returns the expected result of an operation that maps all batch dimensions of `t`. */
static m_tree *mapped(const m_tree *t, m_map *map) {
  return m_tree_each(t, map->in, map->out_ndim, map->shape, map_array, map);
}

static void finish(ops *o, tdict_status status, tdict_tree *td, const m_tree *from, m_map *map) {
  const tdict_status wanted = !map ? TDICT_EINVAL : m_fits(from) ? TDICT_OK : TDICT_ESHAPE;
  if (ops_judge(o, status, wanted)) ops_keep(o, td, mapped(from, map));
}

/* A random index into the batch dimensions, and the map of the elements that it selects. */
typedef struct index_choice {
  tdict_indices index;
  m_map map;
  int lists, at; /* lists: number of lists and masks so far; at: position of their common dimension in the result */
  bool apart;    /* other dimensions are between the lists and masks */
  int64_t count; /* number of positions that each list or mask selects */
  int64_t list[M_DIMS][8], coords[M_DIMS][64];
  bool listed[M_DIMS];
  tdict_tensor *masks[M_DIMS];
} index_choice;

static void end_choice(index_choice *c) {
  for (int i = 0; i < M_DIMS; i++) tdict_tensor_release(c->masks[i]);
}

/* Records a list or mask that selects `count` positions in dimensions [d, d + dims). They are in c->coords. */
static tdict_status note_list(index_choice *c, int d, int dims, int64_t count) {
  if (c->lists && c->map.out_ndim != c->at) c->apart = true;
  if (c->lists++ == 0) {
    c->at = c->map.out_ndim;
    c->count = count;
  }
  for (int i = 0; i < dims; i++) {
    c->listed[d + i] = true;
    for (int64_t k = 1; k < 64 && count == 1; k++) c->coords[d + i][k] = c->coords[d + i][0];
  }
  if (c->count != count && count != 1 && c->count != 1) return TDICT_ESHAPE;
  if (count != 1) c->count = count;
  return TDICT_OK;
}

/* Inserts the dimension that replaces all lists and masks: at the first of them if they are adjacent, else in front. */
static void place_lists(index_choice *c) {
  if (c->lists == 0) return;
  m_map *map = &c->map;
  const int at = c->apart ? 0 : c->at;
  memmove(map->shape + at + 1, map->shape + at, (size_t)(map->out_ndim - at) * sizeof *map->shape);
  map->shape[at] = c->count;
  map->out_ndim++;
  map->copies = true;
  for (int d = 0; d < map->in; d++) {
    if (c->listed[d]) {
      map->out[d] = at;
      map->list[d] = c->coords[d];
    } else if (map->out[d] >= at) {
      map->out[d]++;
    }
  }
}

static bool choose_mask(ops *o, index_choice *c, const m_tree *t, int d, int dims, tdict_status *status) {
  int64_t n = 1, found = 0, at[M_DIMS] = {0};
  for (int i = 0; i < dims; i++) n *= t->bs[d + i];
  if (n > 64) return false;
  tdict_tensor **mask = &c->masks[d];
  if (tdict_tensor_empty(TDICT_BOOL, dims, t->bs + d, NULL, mask, NULL) != TDICT_OK) abort();
  unsigned char *bits = tdict_tensor_data(*mask);
  for (int64_t k = 0; k < n; k++) {
    bits[k] = (unsigned char)ops_pick(o, 2);
    for (int i = 0; i < dims && bits[k]; i++) c->coords[d + i][found] = at[i];
    found += bits[k];
    for (int i = dims - 1; i >= 0 && ++at[i] == t->bs[d + i]; i--) at[i] = 0;
  }
  tdict_indices_add(&c->index, TDICT_MASK(*mask));
  *status = note_list(c, d, dims, found);
  return true;
}

static void choose_range(ops *o, index_choice *c, int64_t n, int d) {
  static const int64_t steps[] = {1, 1, 1, 2, -1, -2, 3};
  int64_t step = steps[ops_pick(o, 7)], start = (int64_t)ops_pick(o, 9) - 4, stop = (int64_t)ops_pick(o, 9) - 4;
  if (ops_pick(o, 3) == 0) start = TDICT_NONE;
  if (ops_pick(o, 3) == 0) stop = TDICT_NONE;
  tdict_indices_add(&c->index, TDICT_RANGE(start, stop, step));
  /* Python's rule for slices. The loop counts the elements. */
  int64_t from = start == TDICT_NONE ? (step > 0 ? 0 : n - 1) : start < 0 ? start + n : start;
  int64_t to = stop == TDICT_NONE ? (step > 0 ? n : -1) : stop < 0 ? stop + n : stop;
  int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  if (start != TDICT_NONE) from = from < low ? low : from > high ? high : from;
  if (stop != TDICT_NONE) to = to < low ? low : to > high ? high : to;
  int64_t count = 0;
  for (int64_t i = from; step > 0 ? i < to : i > to; i += step) count++;
  c->map.out[d] = c->map.out_ndim;
  c->map.start[d] = from;
  c->map.step[d] = step;
  c->map.shape[c->map.out_ndim++] = count;
}

static tdict_status choose_list(ops *o, index_choice *c, int64_t n, int d) {
  int64_t count = c->lists && c->count < 5 && ops_pick(o, 4) ? c->count : ops_pick(o, 5);
  for (int64_t i = 0; i < count; i++) {
    c->list[d][i] = (int64_t)ops_pick(o, (uint32_t)(2 * n)) - n;
    c->coords[d][i] = c->list[d][i] < 0 ? c->list[d][i] + n : c->list[d][i];
  }
  tdict_indices_add(&c->index, TDICT_LIST(c->list[d], count));
  tdict_status status = note_list(c, d, 1, count);
  return status == TDICT_OK && n == 0 && count ? TDICT_EINVAL : status;
}

static void whole(index_choice *c, const m_tree *t, int d) {
  c->map.out[d] = c->map.out_ndim;
  c->map.step[d] = 1;
  c->map.shape[c->map.out_ndim++] = t->bs[d];
}

static tdict_status choose_index(ops *o, const m_tree *t, index_choice *c) {
  memset(c, 0, sizeof *c);
  tdict_status status = TDICT_OK;
  bool rest = false;
  c->map.in = t->nb;
  int d = 0;
  for (int items = 0; items < 5 && status == TDICT_OK; items++) {
    uint32_t kind = ops_pick(o, 8);
    if (kind == 0) {
      tdict_indices_add(&c->index, TDICT_NEW_AXIS);
      c->map.shape[c->map.out_ndim++] = 1;
    } else if (d == t->nb) {
      break;
    } else if (kind < 3) {
      int64_t at = (int64_t)ops_pick(o, (uint32_t)(2 * t->bs[d] + 1)) - t->bs[d];
      tdict_indices_add(&c->index, TDICT_AT(at));
      c->map.out[d] = -1;
      c->map.start[d] = at < 0 ? at + t->bs[d] : at;
      if (at >= t->bs[d]) status = TDICT_EINVAL;
      d++;
    } else if (kind < 5) {
      choose_range(o, c, t->bs[d], d);
      d++;
    } else if (kind == 5 && !rest && ops_pick(o, 2)) {
      tdict_indices_add(&c->index, TDICT_REST); /* all remaining dimensions */
      rest = true;
      while (d < t->nb) whole(c, t, d++);
    } else {
      int dims = t->nb - d > 1 && ops_pick(o, 2) ? 2 : 1;
      if (ops_pick(o, 2) && choose_mask(o, c, t, d, dims, &status)) {
        d += dims;
      } else {
        status = choose_list(o, c, t->bs[d], d);
        d++;
      }
    }
  }
  if (status != TDICT_OK) return status;
  while (d < t->nb) whole(c, t, d++);
  place_lists(c);
  return status;
}

static void op_index_get(ops *o) {
  int s = ops_slot(o);
  index_choice c;
  tdict_status wanted = choose_index(o, o->model[s], &c);
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_index_get(NULL, o->td[s], &c.index, NULL, &td, o->err));
  if (wanted == TDICT_OK && !m_fits(o->model[s])) wanted = TDICT_ESHAPE;
  if (ops_judge(o, status, wanted)) {
    m_tree *made = mapped(o->model[s], &c.map);
    m_open(made);
    ops_keep(o, td, made);
  }
  end_choice(&c);
}

/* Returns a tree like `t` with new values, without its first `lead` batch dimensions and without some keys. */
static m_tree *values_like(ops *o, const m_tree *t, int lead) {
  m_tree *made = m_tree_make(0, NULL);
  for (int i = lead; i < t->nb; i++) made->bs[made->nb++] = t->bs[i];
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    if (ops_pick(o, 6) == 0) continue;
    m_array *a = NULL;
    if (e->array) {
      a = m_array_make(e->array->dtype, e->array->ndim - lead, e->array->shape + lead);
      m_array_fresh(a, ops_pick(o, 1000));
    }
    m_put(made, e->key, a, e->tree ? values_like(o, e->tree, lead) : NULL);
  }
  return made;
}

static void write_values(const m_tree *to, const m_tree *from) {
  for (int i = 0; i < from->count; i++) {
    const m_entry *e = &from->entries[i], *there = m_find(to, e->key);
    for (int64_t k = 0; e->array && k < there->array->n; k++)
      m_write(there->array->cells[k], m_value(e->array->cells[k % (e->array->n ? e->array->n : 1)]));
    if (e->tree) write_values(there->tree, e->tree);
  }
}

/* Returns a tree of new values for one row of each array, even if arrays do not begin with the batch size. */
static m_tree *row_of(const m_tree *t, const m_tree *root) {
  m_tree *made = m_tree_make(t == root ? t->nb - 1 : 0, t->bs + 1);
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    const int lead = e->array && e->array->ndim > 0;
    m_array *a = e->array ? m_array_make(e->array->dtype, e->array->ndim - lead, e->array->shape + lead) : NULL;
    if (a) m_array_fresh(a, 3);
    m_put(made, e->key, a, e->tree ? row_of(e->tree, root) : NULL);
  }
  return made;
}

static void write_misfit(ops *o, int s) {
  const m_tree *t = o->model[s];
  if (t->nb == 0 || t->bs[0] == 0) return;
  const uint32_t way = ops_pick(o, 2);
  scoped_tree td = ops_tree(way ? row_of(t, t) : t);
  tdict_status status = OPS_CALL(o, way ? tdict_write_rows(o->td[s], t->bs[0] - 1, td, o->err)
                                        : tdict_index_set(NULL, o->td[s], TDICT_INDEX(TDICT_REST), td, NULL, o->err));
  ops_judge(o, status, TDICT_ESHAPE);
}

static void op_index_set(ops *o) {
  int s = ops_slot(o);
  index_choice c;
  if (!m_fits(o->model[s])) {
    write_misfit(o, s);
    return;
  }
  bool good = choose_index(o, o->model[s], &c) == TDICT_OK && o->model[s]->count > 0;
  if (good) {
    c.map.copies = false;
    m_tree *part = mapped(o->model[s], &c.map);
    if (ops_all_distinct(part)) {
      m_tree *value = values_like(o, part, part->nb && ops_pick(o, 3) == 0 ? 1 : 0);
      scoped_tree td = ops_tree(value);
      tdict_status status = OPS_CALL(o, tdict_index_set(NULL, o->td[s], &c.index, td, NULL, o->err));
      if (ops_judge(o, status, TDICT_OK)) write_values(part, value);
    }
  }
  end_choice(&c);
}

typedef struct regrouping {
  int in, ndim;
  int64_t shape[M_DIMS];
  bool copies;
  bool refused; /* an array cannot be viewed with the new shape */
} regrouping;

static m_array *regroup_array(const m_array *a, void *user) {
  regrouping *r = user;
  m_array *made = m_array_regroup(a, r->in, r->ndim, r->shape);
  if (m_array_can_view(a, r->in, r->ndim, r->shape)) return made;
  if (!r->copies) r->refused = true;
  return m_array_copy(made);
}

static void regroup(ops *o, tdict_status status, tdict_tree *td, const m_tree *from, regrouping *r) {
  if (!m_fits(from)) {
    ops_judge(o, status, TDICT_ESHAPE);
    return;
  }
  m_tree *made = m_tree_each(from, r->in, r->ndim, r->shape, regroup_array, r);
  if (ops_judge(o, status, r->refused ? TDICT_ESHAPE : TDICT_OK)) ops_keep(o, td, made);
}

static int64_t total(const m_tree *t) {
  int64_t n = 1;
  for (int i = 0; i < t->nb; i++) n *= t->bs[i];
  return n;
}

static void view(ops *o, bool copies) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  regrouping r = {.in = t->nb, .copies = copies};
  int64_t left = total(t);
  r.ndim = 1 + (int)ops_pick(o, 3);
  for (int i = 0; i < r.ndim; i++) { /* random factors; the last one is the remaining size */
    int64_t f = 1 + ops_pick(o, 4);
    while (left == 0 || left % f) {
      if (left == 0) break;
      f--;
    }
    r.shape[i] = i == r.ndim - 1 ? left : f;
    if (left) left /= f;
  }
  tdict_tree *td = NULL;
  int64_t asked[M_DIMS];
  memcpy(asked, r.shape, sizeof asked);
  int open = (int)ops_pick(o, (uint32_t)r.ndim);
  if (total(t) && ops_pick(o, 3) == 0) asked[open] = -1;
  tdict_status status = OPS_CALL(o, copies ? tdict_reshape(o->td[s], r.ndim, asked, &td, o->err)
                                           : tdict_reshape_view(o->td[s], r.ndim, asked, &td, o->err));
  regroup(o, status, td, t, &r);
}

static void op_view(ops *o) { view(o, false); }
static void op_reshape(ops *o) { view(o, true); }

static void op_flatten(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  int first = (int)ops_pick(o, 3), last = (int)ops_pick(o, 3);
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_merge_dims(o->td[s], first, last, &td, o->err));
  if (first > last || last >= t->nb) {
    finish(o, status, td, t, NULL);
    return;
  }
  regrouping r = {.in = t->nb, .copies = true};
  for (int i = 0; i < t->nb; i++) {
    if (i > first && i <= last)
      r.shape[r.ndim - 1] *= t->bs[i];
    else
      r.shape[r.ndim++] = t->bs[i];
  }
  regroup(o, status, td, t, &r);
}

static void op_unflatten(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  if (t->nb == 0) return;
  int dim = (int)ops_pick(o, (uint32_t)t->nb);
  int64_t n = t->bs[dim], f = 1 + ops_pick(o, 3), parts[2];
  while (n % f) f--;
  parts[0] = f;
  parts[1] = ops_pick(o, 2) && n ? -1 : n / f;
  tdict_tree *td = NULL;
  tdict_status status =
      OPS_CALL(o, tdict_split_dim(o->td[s], dim - (ops_pick(o, 2) ? t->nb : 0), 2, parts, &td, o->err));
  regrouping r = {.in = t->nb};
  for (int i = 0; i < t->nb; i++) {
    r.shape[r.ndim++] = i == dim ? f : t->bs[i];
    if (i == dim) r.shape[r.ndim++] = n / f;
  }
  regroup(o, status, td, t, &r);
}

static void op_unsqueeze(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  int dim = (int)ops_pick(o, (uint32_t)t->nb + 2);
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_unsqueeze(o->td[s], dim, &td, o->err));
  m_map map = m_map_whole(t->nb, t->bs);
  if (dim <= t->nb) {
    memmove(map.shape + dim + 1, map.shape + dim, (size_t)(t->nb - dim) * sizeof *map.shape);
    map.shape[dim] = 1;
    map.out_ndim++;
    for (int i = dim; i < t->nb; i++) map.out[i]++;
  }
  finish(o, status, td, t, dim <= t->nb ? &map : NULL);
}

static void op_squeeze(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  int dim = (int)ops_pick(o, (uint32_t)t->nb + 2) - 1;
  tdict_tree *td = NULL;
  m_map map = {.in = t->nb};
  tdict_status status = OPS_CALL(o, tdict_squeeze(o->td[s], dim < 0 ? TDICT_EVERY_DIM : dim, &td, o->err));
  for (int i = 0; i < t->nb; i++) {
    bool goes = t->bs[i] == 1 && (dim < 0 || dim == i);
    map.out[i] = goes ? -1 : map.out_ndim;
    map.step[i] = 1;
    if (!goes) map.shape[map.out_ndim++] = t->bs[i];
  }
  finish(o, status, td, t, dim < t->nb ? &map : NULL);
}

static void op_expand(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  if (t->nb > 4 || ops_cells(t) > OPS_MOST_CELLS / 9) return;
  int lead = (int)ops_pick(o, 2);
  int64_t asked[M_DIMS];
  m_map map = {.in = t->nb, .out_ndim = t->nb + lead};
  for (int i = 0; i < lead; i++) map.shape[i] = asked[i] = 1 + ops_pick(o, 3);
  for (int i = 0; i < t->nb; i++) {
    bool repeats = t->bs[i] == 1 && ops_pick(o, 2);
    map.out[i] = i + lead;
    map.step[i] = t->bs[i] != 1;
    map.shape[i + lead] = asked[i + lead] = repeats ? ops_pick(o, 4) : t->bs[i];
    if (!repeats && ops_pick(o, 2)) asked[i + lead] = -1;
  }
  tdict_tree *td = NULL;
  tdict_status status = OPS_CALL(o, tdict_expand(o->td[s], map.out_ndim, asked, &td, o->err));
  finish(o, status, td, t, &map);
}

static void reorder(const m_tree *t, const int *order, m_map *map) {
  *map = m_map_whole(t->nb, t->bs);
  for (int i = 0; i < t->nb; i++) {
    map->shape[i] = t->bs[order[i]];
    map->out[order[i]] = i;
  }
}

static void op_permute(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  int order[M_DIMS];
  for (int i = 0; i < t->nb; i++) order[i] = i;
  for (int i = t->nb - 1; i > 0; i--) {
    int j = (int)ops_pick(o, (uint32_t)i + 1), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
  tdict_tree *td = NULL;
  m_map map;
  tdict_status status = OPS_CALL(o, tdict_permute(o->td[s], t->nb, order, &td, o->err));
  reorder(t, order, &map);
  finish(o, status, td, t, &map);
}

static void op_transpose(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  int a = (int)ops_pick(o, 3), b = (int)ops_pick(o, 3), order[M_DIMS];
  bool good = a < t->nb && b < t->nb;
  tdict_tree *td = NULL;
  m_map map;
  tdict_status status = OPS_CALL(o, tdict_transpose(o->td[s], a, b, &td, o->err));
  for (int i = 0; i < t->nb; i++) order[i] = i == a ? b : i == b ? a : i;
  if (good) reorder(t, order, &map);
  finish(o, status, td, t, good ? &map : NULL);
}

/* The pieces of dimension `dim`. Piece i has sizes[i] elements. If `drops` is true, the pieces lack the dimension. */
typedef struct pieces {
  int dim;
  const int64_t *sizes;
  size_t count;
  bool drops;
} pieces;

static void keep_pieces(ops *o, const m_tree *t, tdict_tree **made, pieces p) {
  const int dim = p.dim;
  int64_t at = 0;
  for (size_t i = 0; i < p.count; i++) {
    m_map map = m_map_whole(t->nb, t->bs);
    map.start[dim] = at;
    map.shape[dim] = p.sizes[i];
    if (p.drops) {
      map.out[dim] = -1;
      for (int d = dim + 1; d < t->nb; d++) map.out[d]--;
      memmove(map.shape + dim, map.shape + dim + 1, (size_t)(t->nb - dim - 1) * sizeof *map.shape);
      map.out_ndim--;
    }
    at += p.sizes[i];
    m_tree *piece = mapped(t, &map);
    if (p.drops) m_open(piece);
    ops_keep(o, made[i], piece);
  }
}

static void op_split(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  int dim = (int)ops_pick(o, 2);
  if (dim >= t->nb) return;
  int64_t n = t->bs[dim], first = ops_pick(o, (uint32_t)n + 1);
  const int64_t sizes[3] = {first, n - first, 0};
  bool good = ops_pick(o, 6) != 0;
  const int64_t asked[3] = {first + !good, n - first, 0};
  tdict_tree *made[3];
  tdict_status status = OPS_CALL(o, tdict_split(o->td[s], dim, asked, made, &(size_t){3}, o->err));
  if (ops_judge(o, status, good && m_fits(t) ? TDICT_OK : TDICT_ESHAPE))
    keep_pieces(o, t, made, (pieces){dim, sizes, 3, false});
}

static void op_chunks(ops *o) {
  int s = ops_slot(o);
  const m_tree *t = o->model[s];
  int dim = (int)ops_pick(o, 2);
  uint32_t way = ops_pick(o, 3);
  if (dim >= t->nb) return;
  int64_t n = t->bs[dim], size = 1 + ops_pick(o, 3), sizes[16];
  size_t count = 16, told = 0;
  if (n > 16) return;
  tdict_tree *made[16];
  if (way == 1) size = n ? (n + size - 1) / size : 0; /* at most `size` pieces */
  tdict_status status = OPS_CALL(o, way == 2 ? tdict_unbind(o->td[s], dim, made, &count, o->err)
                                             : tdict_split_every(o->td[s], dim, size, made, &count, o->err));
  const bool none = n == 0 && way == 2;
  if (!ops_judge(o, status, none || m_fits(t) ? TDICT_OK : TDICT_ESHAPE)) return;
  status = way == 2 ? tdict_unbind(o->td[s], dim, NULL, &told, NULL)
                    : tdict_split_every(o->td[s], dim, size, NULL, &told, NULL);
  if (status != TDICT_OK || told != count) ops_complain(o, "two calls return different numbers of pieces");
  if (way == 2) size = 1;
  size_t wanted = 0;
  for (int64_t at = 0; at < n; at += size) sizes[wanted++] = n - at < size ? n - at : size;
  if (n == 0 && way != 2) sizes[wanted++] = 0;
  if (count != wanted) {
    ops_complain(o, "number of pieces");
    return;
  }
  keep_pieces(o, t, made, (pieces){dim, sizes, count, way == 2});
}

const ops_fn ops_shapes[] = {op_index_get, op_index_set, op_view,    op_reshape, op_flatten,
                             op_unflatten, op_unsqueeze, op_squeeze, op_expand,  op_permute,
                             op_transpose, op_split,     op_chunks};
const char *const ops_shape_names[] = {"index_get", "index_set", "view",    "reshape", "flatten",
                                       "unflatten", "unsqueeze", "squeeze", "expand",  "permute",
                                       "transpose", "split",     "pieces"};
const int ops_num_shapes = sizeof ops_shapes / sizeof *ops_shapes;
