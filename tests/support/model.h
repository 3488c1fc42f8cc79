/* A simple model of trees, with which random operations compare the library's trees. Arrays are plain lists of cells,
 * without strides.
 *
 * A cell is one element, and an array lists its cells in C order. Arrays that share storage list the same cells.
 * m_check() records the address of each cell in the library's tensors, so it detects a copy that should be a view, and
 * a view that should be a copy. All memory is valid until m_reset(). Thread rule: one thread. */
#ifndef TDICT_TESTS_SUPPORT_MODEL_H
#define TDICT_TESTS_SUPPORT_MODEL_H

#include "tdict/tdict.h"

enum { M_DIMS = 16, M_KEY = 96 };

typedef struct m_array {
  tdict_dtype dtype;
  int ndim;
  int64_t shape[M_DIMS], n;
  uint32_t *cells;
} m_array;
typedef struct m_tree m_tree;
typedef struct m_entry {
  char key[M_KEY]; /* not escaped */
  m_array *array;
  m_tree *tree;
} m_entry;
struct m_tree {
  int nb;
  int64_t bs[M_DIMS];
  int count, cap;
  m_entry *entries;
  bool locked;            /* locked by tdict_lock() on this node */
  bool consolidated;      /* made by tdict_consolidate() and not unlocked since */
  int above;              /* how many entries of locked trees refer to this node, see m_hold() */
  bool cpu;               /* the node has the device cpu; false: no device */
  uint32_t mark;          /* the number of the last walk that visited this node */
  m_tree *copy;           /* the copy of this node that the last m_copy() made */
  const m_tree *original; /* the node from which m_share() made this one */
};

void m_reset(void);
void *m_alloc(size_t bytes); /* zeroed; valid until m_reset() */

/* Arrays. m_array_fresh() writes random values to the cells, and m_array_zero() writes 0. */
m_array *m_array_make(tdict_dtype dtype, int ndim, const int64_t *shape);
void m_array_fresh(m_array *a, uint64_t seed);
void m_array_zero(m_array *a);
m_array *m_array_copy(const m_array *a); /* a copy with new cells of the same values */
uint64_t m_value(uint32_t cell);
void m_write(uint32_t cell, uint64_t value);
bool m_same_shape(const m_array *a, const m_array *b);

/* How the indices of a result map to the first `in` dimensions of a source. If i is the index in dimension out[d] of
 * the result, the index in dimension d of the source is list[d][i], or start[d] + step[d] * i if list[d] is NULL. If
 * out[d] is -1, the index is start[d]. */
typedef struct m_map {
  int in, out_ndim;
  int64_t shape[M_DIMS];
  int out[M_DIMS];
  int64_t start[M_DIMS], step[M_DIMS];
  const int64_t *list[M_DIMS];
  bool copies;
} m_map;
m_map m_map_whole(int ndim, const int64_t *shape);
m_array *m_array_map(const m_array *a, const m_map *map);
/* m_array_regroup() returns an array of the same cells whose first `in` dimensions are reshaped. m_array_can_view()
 * returns whether strides can express this. */
m_array *m_array_regroup(const m_array *a, int in, int ndim, const int64_t *shape);
bool m_array_can_view(const m_array *a, int in, int ndim, const int64_t *shape);

m_tree *m_tree_make(int nb, const int64_t *bs);
m_entry *m_find(const m_tree *t, const char *key);
m_entry *m_put(m_tree *t, const char *key, m_array *array, m_tree *tree); /* adds or replaces an entry */
void m_drop(m_tree *t, const char *key);
m_tree *m_tree_like(const m_tree *t); /* an empty node with the batch size and device of `t` */
m_tree *m_share(const m_tree *t);     /* an unlocked copy with the same arrays; a shared node is copied at each place */
m_tree *m_copy(m_tree *t);            /* likewise, but a shared node is copied once */
/* Returns new nodes with arrays made by fn. In each batch size, the first `in` dimensions become `shape`. A node that
 * does not begin with the root's first `in` dimensions gets just `shape`. Nodes are locked as in `t`. */
typedef m_array *(*m_fn)(const m_array *a, void *user);
m_tree *m_tree_each(const m_tree *t, int in, int out, const int64_t *shape, m_fn fn, void *user);
/* Sets the batch size that m_tree_each() gives to `made`, the copy of node `t` of the tree `root`. */
void m_replace_dims(m_tree *made, const m_tree *t, const m_tree *root, int in, int out, const int64_t *shape);
void m_open(m_tree *t); /* unlocks all nodes of a tree; no other tree may hold them */
/* Recomputes `above` for all nodes of these trees. */
void m_hold(m_tree *const *roots, int count);
bool m_is_locked(const m_tree *t);
/* Unlocks a node and all nodes below it that no other locked tree holds. Call m_hold() first. */
void m_unlock(m_tree *t, m_tree *const *roots, int count);
bool m_begins_with(const m_array *a, const m_tree *t);
bool m_fits(const m_tree *t);                       /* whether each array below begins with the batch size of `t` */
bool m_holds(const m_tree *t, const m_tree *other); /* whether `other` is `t`, or a node below it */
bool m_has_arrays(const m_tree *t);
/* Returns the entry at a path of keys, or NULL. Sets *through to whether the path leads through an array. */
m_entry *m_path(m_tree *t, const char *const *keys, int count, bool *through, m_tree **last);
/* Writes up to `room` arrays in walk order and, unless `paths` is NULL, their escaped paths. Returns their number. */
int m_arrays(const m_tree *t, m_array **out, char (*paths)[2 * M_KEY], int room);

extern bool m_ignore_places; /* if true, m_check() ignores addresses, as for copies */
/* Compares a tree with the model. Returns NULL if they agree, otherwise a string that says how they differ. Also checks
 * the address of each cell, or records it the first time. */
const char *m_check(const m_tree *t, const tdict_tree *td);

#endif
