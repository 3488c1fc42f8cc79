/* Implements the model: see model.h. All memory belongs to the model, which frees it in m_reset(). */
#include "tdict/clone.h"

#include "support/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A block of memory that m_reset() frees. */
typedef struct block {
  struct block *next;
  size_t unused; /* aligns the memory after the block to 16 bytes */
} block;
static block *blocks;
bool m_ignore_places;
static uint64_t *values;
static const void **places;
static uint32_t num_cells, cap_cells;

/* The model allocates with these functions, because tests make calloc() and realloc() fail. */
void *__real_calloc(size_t count, size_t bytes) __attribute__((weak));
void *__real_realloc(void *old, size_t bytes) __attribute__((weak));

void *m_alloc(size_t bytes) {
  block *b = __real_calloc ? __real_calloc(1, sizeof *b + bytes) : calloc(1, sizeof *b + bytes);
  if (!b) abort();
  b->next = blocks;
  blocks = b;
  return b + 1;
}

void m_reset(void) {
  while (blocks) {
    block *next = blocks->next;
    free(blocks);
    blocks = next;
  }
  num_cells = 0;
}

static void *grow(void *old, size_t bytes) {
  void *new = __real_realloc ? __real_realloc(old, bytes) : realloc(old, bytes);
  if (!new) abort();
  return new;
}

static uint32_t new_cell(void) {
  if (num_cells == cap_cells) {
    cap_cells = cap_cells ? cap_cells * 2 : 1 << 16;
    values = grow(values, cap_cells * sizeof *values);
    places = grow(places, cap_cells * sizeof *places);
  }
  values[num_cells] = 0;
  places[num_cells] = NULL;
  return num_cells++;
}

static size_t item_of(tdict_dtype dtype) { return (dtype >> 8 & 0xff) / 8; }

static void escape(const char *key, char *to) {
  for (; *key; key++) {
    if (*key == '.' || *key == '\\') *to++ = '\\';
    *to++ = *key;
  }
  *to = 0;
}

uint64_t m_value(uint32_t cell) { return values[cell]; }
void m_write(uint32_t cell, uint64_t value) { values[cell] = value; }

m_array *m_array_make(tdict_dtype dtype, int ndim, const int64_t *shape) {
  m_array *a = m_alloc(sizeof *a);
  a->dtype = dtype;
  a->ndim = ndim;
  a->n = 1;
  for (int i = 0; i < ndim; i++) {
    a->shape[i] = shape[i];
    a->n *= shape[i];
  }
  a->cells = m_alloc((size_t)a->n * sizeof *a->cells);
  return a;
}

void m_array_fresh(m_array *a, uint64_t seed) {
  for (int64_t i = 0; i < a->n; i++) {
    uint64_t z = (seed + (uint64_t)i) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    a->cells[i] = new_cell();
    size_t bits = 8 * item_of(a->dtype);
    m_write(a->cells[i], bits == 64 ? z : z & (((uint64_t)1 << bits) - 1));
  }
}

void m_array_zero(m_array *a) {
  for (int64_t i = 0; i < a->n; i++) a->cells[i] = new_cell();
}

m_array *m_array_copy(const m_array *a) {
  m_array *copy = m_array_make(a->dtype, a->ndim, a->shape);
  for (int64_t i = 0; i < a->n; i++) {
    copy->cells[i] = new_cell();
    m_write(copy->cells[i], m_value(a->cells[i]));
  }
  return copy;
}

bool m_same_shape(const m_array *a, const m_array *b) {
  return a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static bool next_index(int ndim, const int64_t *shape, int64_t *index) {
  for (int d = ndim - 1; d >= 0; d--) {
    if (++index[d] < shape[d]) return true;
    index[d] = 0;
  }
  return false;
}

static int64_t place_of(const m_array *a, const int64_t *index) {
  int64_t at = 0;
  for (int d = 0; d < a->ndim; d++) at = at * a->shape[d] + index[d];
  return at;
}

m_map m_map_whole(int ndim, const int64_t *shape) {
  m_map map = {.in = ndim, .out_ndim = ndim};
  for (int d = 0; d < ndim; d++) {
    map.shape[d] = shape[d];
    map.out[d] = d;
    map.step[d] = 1;
  }
  return map;
}

m_array *m_array_map(const m_array *a, const m_map *map) {
  int64_t shape[M_DIMS], to[M_DIMS] = {0}, from[M_DIMS];
  int rest = a->ndim - map->in, ndim = map->out_ndim + rest;
  for (int d = 0; d < map->out_ndim; d++) shape[d] = map->shape[d];
  for (int d = 0; d < rest; d++) shape[map->out_ndim + d] = a->shape[map->in + d];
  m_array *made = m_array_make(a->dtype, ndim, shape);
  if (made->n == 0) return made;
  for (int64_t i = 0; i < made->n; i++) {
    for (int d = 0; d < map->in; d++) {
      int64_t at = map->out[d] < 0 ? 0 : to[map->out[d]];
      from[d] = map->list[d] ? map->list[d][at] : map->start[d] + map->step[d] * at;
    }
    for (int d = 0; d < rest; d++) from[map->in + d] = to[map->out_ndim + d];
    made->cells[i] = a->cells[place_of(a, from)];
    next_index(ndim, shape, to);
  }
  return map->copies ? m_array_copy(made) : made;
}

m_array *m_array_regroup(const m_array *a, int in, int ndim, const int64_t *shape) {
  int64_t all[M_DIMS];
  for (int d = 0; d < ndim; d++) all[d] = shape[d];
  for (int d = in; d < a->ndim; d++) all[ndim + d - in] = a->shape[d];
  m_array *made = m_array_make(a->dtype, ndim + a->ndim - in, all);
  if (made->n) memcpy(made->cells, a->cells, (size_t)made->n * sizeof *made->cells);
  return made;
}

/* The result is a view if the cell numbers have a constant step in each dimension. */
bool m_array_can_view(const m_array *a, int in, int ndim, const int64_t *shape) {
  m_array *made = m_array_regroup(a, in, ndim, shape);
  int64_t index[M_DIMS] = {0}, step[M_DIMS] = {0};
  if (made->n == 0) return true;
  for (int d = 0; d < ndim; d++) {
    if (shape[d] < 2) continue;
    index[d] = 1;
    step[d] = (int64_t)made->cells[place_of(made, index)] - (int64_t)made->cells[0];
    index[d] = 0;
  }
  do {
    int64_t wanted = made->cells[0];
    for (int d = 0; d < ndim; d++) wanted += index[d] * step[d];
    if ((int64_t)made->cells[place_of(made, index)] != wanted) return false;
  } while (next_index(ndim, shape, index));
  return true;
}

m_tree *m_tree_make(int nb, const int64_t *bs) {
  m_tree *t = m_alloc(sizeof *t);
  t->nb = nb;
  for (int i = 0; i < nb; i++) t->bs[i] = bs[i];
  return t;
}

m_entry *m_find(const m_tree *t, const char *key) {
  for (int i = 0; i < t->count; i++)
    if (strcmp(t->entries[i].key, key) == 0) return &t->entries[i];
  return NULL;
}

m_entry *m_put(m_tree *t, const char *key, m_array *array, m_tree *tree) {
  m_entry *e = m_find(t, key);
  if (!e) {
    if (t->count == t->cap) {
      int cap = t->cap ? t->cap * 2 : 8;
      m_entry *entries = m_alloc((size_t)cap * sizeof *entries);
      if (t->count) memcpy(entries, t->entries, (size_t)t->count * sizeof *entries);
      t->entries = entries;
      t->cap = cap;
    }
    e = &t->entries[t->count++];
    snprintf(e->key, sizeof e->key, "%s", key);
  }
  e->array = array;
  e->tree = tree;
  return e;
}

void m_drop(m_tree *t, const char *key) {
  m_entry *e = m_find(t, key);
  int at = (int)(e - t->entries);
  memmove(e, e + 1, (size_t)(t->count - at - 1) * sizeof *e);
  t->count--;
}

m_tree *m_tree_like(const m_tree *t) {
  m_tree *made = m_tree_make(t->nb, t->bs);
  made->cpu = t->cpu;
  return made;
}

m_tree *m_share(const m_tree *t) {
  m_tree *made = m_tree_like(t);
  made->original = t;
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    m_put(made, e->key, e->array, e->tree ? m_share(e->tree) : NULL);
  }
  return made;
}

static uint32_t last_mark;

static m_tree *copy_once(m_tree *t) {
  if (t->mark == last_mark) return t->copy;
  t->mark = last_mark;
  m_tree *made = t->copy = m_tree_like(t);
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    m_put(made, e->key, e->array, e->tree ? copy_once(e->tree) : NULL);
  }
  return made;
}

m_tree *m_copy(m_tree *t) {
  last_mark++;
  return copy_once(t);
}

void m_replace_dims(m_tree *made, const m_tree *t, const m_tree *root, int in, int out, const int64_t *shape) {
  made->nb = 0;
  for (int i = 0; i < out; i++) made->bs[made->nb++] = shape[i];
  if (t->nb < in || (in && memcmp(t->bs, root->bs, (size_t)in * sizeof *t->bs) != 0)) return;
  for (int i = in; i < t->nb; i++) made->bs[made->nb++] = t->bs[i];
}

typedef struct each {
  const m_tree *root;
  int in, out;
  const int64_t *shape;
  m_fn fn;
  void *user;
} each;

static m_tree *map_each(const m_tree *t, const each *how) {
  m_tree *made = m_tree_like(t);
  made->locked = m_is_locked(t);
  m_replace_dims(made, t, how->root, how->in, how->out, how->shape);
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    m_put(made, e->key, e->array ? how->fn(e->array, how->user) : NULL, e->tree ? map_each(e->tree, how) : NULL);
  }
  return made;
}

m_tree *m_tree_each(const m_tree *t, int in, int out, const int64_t *shape, m_fn fn, void *user) {
  const each how = {t, in, out, shape, fn, user};
  return map_each(t, &how);
}

void m_open(m_tree *t) {
  t->locked = t->consolidated = false;
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree) m_open(t->entries[i].tree);
}

bool m_is_locked(const m_tree *t) { return t->locked || t->above; }

static void clear_counts(m_tree *t) {
  t->above = 0;
  t->mark = 0;
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree) clear_counts(t->entries[i].tree);
}

/* Increments `above` of a child for each entry that refers to the child. Visits each node of a locked tree once. */
static void count_below(m_tree *t) {
  if (t->mark == last_mark) return;
  t->mark = last_mark;
  for (int i = 0; i < t->count; i++) {
    if (!t->entries[i].tree) continue;
    t->entries[i].tree->above++;
    count_below(t->entries[i].tree);
  }
}

static void count_locked(m_tree *t) {
  if (t->locked) count_below(t);
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree) count_locked(t->entries[i].tree);
}

void m_hold(m_tree *const *roots, int count) {
  for (int i = 0; i < count; i++)
    if (roots[i]) clear_counts(roots[i]);
  last_mark++;
  for (int i = 0; i < count; i++)
    if (roots[i]) count_locked(roots[i]);
}

static void unlock_below(m_tree *t, m_tree *const *roots, int count) {
  for (int i = 0; i < t->count; i++) {
    m_tree *child = t->entries[i].tree;
    if (!child) continue;
    m_hold(roots, count);
    if (child->above || m_is_locked(t)) continue;
    child->locked = child->consolidated = false;
    unlock_below(child, roots, count);
  }
}

void m_unlock(m_tree *t, m_tree *const *roots, int count) {
  if (!t->locked) return;
  t->locked = t->consolidated = false;
  unlock_below(t, roots, count);
  m_hold(roots, count);
}

bool m_begins_with(const m_array *a, const m_tree *t) {
  return a->ndim >= t->nb && (!t->nb || memcmp(a->shape, t->bs, (size_t)t->nb * sizeof *a->shape) == 0);
}

static bool fits(const m_tree *t, const m_tree *root) {
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].array ? !m_begins_with(t->entries[i].array, root) : !fits(t->entries[i].tree, root)) return false;
  return true;
}

bool m_fits(const m_tree *t) { return fits(t, t); }

bool m_holds(const m_tree *t, const m_tree *other) {
  if (t == other) return true;
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree && m_holds(t->entries[i].tree, other)) return true;
  return false;
}

bool m_has_arrays(const m_tree *t) {
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].array || m_has_arrays(t->entries[i].tree)) return true;
  return false;
}

m_entry *m_path(m_tree *t, const char *const *keys, int count, bool *through, m_tree **last) {
  *through = false;
  for (int i = 0; i < count; i++) {
    m_entry *e = m_find(t, keys[i]);
    *last = t;
    if (!e || i == count - 1) return e;
    if (e->array) {
      *through = true;
      return NULL;
    }
    t = e->tree;
  }
  return NULL;
}

static int list_arrays(const m_tree *t, m_array **out, char (*paths)[2 * M_KEY], int room, const char *above) {
  int found = 0;
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    char escaped[2 * M_KEY], path[4 * M_KEY];
    escape(e->key, escaped);
    snprintf(path, sizeof path, "%s%s%s", above, *above ? "." : "", escaped);
    path[2 * M_KEY - 1] = 0;
    if (e->tree) {
      found += list_arrays(e->tree, out + found, paths ? paths + found : NULL, room - found, path);
    } else if (found < room) {
      if (paths) memcpy(paths[found], path, 2 * M_KEY);
      out[found++] = e->array;
    }
  }
  return found;
}

int m_arrays(const m_tree *t, m_array **out, char (*paths)[2 * M_KEY], int room) {
  return list_arrays(t, out, paths, room, "");
}

static char said[512];
#define SAY(...) (snprintf(said, sizeof said, __VA_ARGS__), said)

static const char *check_array(const m_array *a, const tdict_tensor *t, const char *key) {
  if (tdict_tensor_dtype(t) != a->dtype) return SAY("%s: dtype", key);
  if (tdict_tensor_ndim(t) != a->ndim) return SAY("%s: %d dimensions, wanted %d", key, tdict_tensor_ndim(t), a->ndim);
  if (a->ndim && memcmp(tdict_tensor_shape(t), a->shape, (size_t)a->ndim * sizeof *a->shape) != 0)
    return SAY("%s: shape", key);
  const char *data = tdict_tensor_const_data(t);
  const int64_t *strides = tdict_tensor_strides(t);
  const size_t item = item_of(a->dtype);
  int64_t index[M_DIMS] = {0};
  for (int64_t i = 0; i < a->n; i++) {
    int64_t at = 0;
    uint64_t value = 0;
    for (int d = 0; d < a->ndim; d++) at += index[d] * strides[d];
    const char *place = data + at * (int64_t)item;
    memcpy(&value, place, item);
    if (value != m_value(a->cells[i]))
      return SAY("%s: element %lld is %llx, wanted %llx", key, (long long)i, (unsigned long long)value,
                 (unsigned long long)m_value(a->cells[i]));
    if (m_ignore_places) {
      next_index(a->ndim, a->shape, index);
      continue;
    }
    if (!places[a->cells[i]]) places[a->cells[i]] = place;
    if (places[a->cells[i]] != place)
      return SAY("%s: element %lld is not at the same address as before", key, (long long)i);
    next_index(a->ndim, a->shape, index);
  }
  return NULL;
}

static const char *check(const m_tree *t, const tdict_tree *td, bool above) {
  const bool locked = above || m_is_locked(t);
  tdict_device device;
  if (tdict_batch_ndim(td) != t->nb) return SAY("%d batch dimensions, wanted %d", tdict_batch_ndim(td), t->nb);
  if (t->nb && memcmp(tdict_batch_size(td), t->bs, (size_t)t->nb * sizeof *t->bs) != 0) return SAY("batch size");
  if (tdict_num_keys(td) != (size_t)t->count) return SAY("%zu keys, wanted %d", tdict_num_keys(td), t->count);
  if (tdict_is_locked(td) != locked)
    return SAY("%s, wanted %s", locked ? "not locked" : "locked", locked ? "locked" : "not");
  if (tdict_is_consolidated(td) != t->consolidated)
    return SAY("%s", t->consolidated ? "not consolidated" : "consolidated, wanted not");
  if (tdict_get_device(td, &device) != t->cpu) return SAY("device");
  for (int i = 0; i < t->count; i++) {
    const m_entry *e = &t->entries[i];
    const char *key = tdict_get_entry_at(td, (size_t)i).key, *wrong = NULL;
    char path[2 * M_KEY];
    if (strcmp(key, e->key) != 0) return SAY("key %d is %s, wanted %s", i, key, e->key);
    escape(key, path);
    tdict_tensor *tensor = NULL;
    tdict_tree *tree = NULL;
    if (e->array && tdict_get(td, path, &tensor, NULL) != TDICT_OK) return SAY("%s: no tensor", key);
    if (e->tree && tdict_get_tree(td, path, &tree, NULL) != TDICT_OK) return SAY("%s: no tree", key);
    wrong = tensor ? check_array(e->array, tensor, key) : check(e->tree, tree, locked);
    if (wrong) return wrong;
  }
  return NULL;
}

const char *m_check(const m_tree *t, const tdict_tree *td) { return check(t, td, false); }
