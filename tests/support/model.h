/* Trees of arrays as plain lists of cells, to hold the library against: no strides and no code of the library.
 *
 * A cell is one element; an array lists its cells in C order. Arrays that share storage list the same cells, so writing
 * is writing to cells. Cells know where the library keeps them, once it has been looked at: a view that copies, or a
 * copy that shares, is found. Everything lives until m_reset() or the end of the program. Thread rule: one thread. */
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
  char key[M_KEY]; /* unescaped */
  m_array *array;
  m_tree *tree;
} m_entry;
struct m_tree {
  int nb;
  int64_t bs[M_DIMS];
  int count, cap;
  m_entry *entries;
  bool locked;            /* by a call of its own */
  bool consolidated;      /* since it was made, and not unlocked since */
  int above;              /* places in locked trees that it hangs at: m_hold() */
  bool cpu;               /* its device; else it has none */
  uint32_t mark;          /* of the walk that was here last */
  m_tree *copy;           /* of the copy that is being made */
  const m_tree *original; /* of which m_share() made it */
};

void m_reset(void);
void *m_alloc(size_t bytes); /* zeroed, until m_reset() */

/* Arrays. `values` of fresh ones are random, those of zeros are 0. */
m_array *m_array_make(tdict_dtype dtype, int ndim, const int64_t *shape);
void m_array_fresh(m_array *a, uint64_t seed);
void m_array_zero(m_array *a);
m_array *m_array_copy(const m_array *a); /* other cells with the same values */
uint64_t m_value(uint32_t cell);
void m_write(uint32_t cell, uint64_t value);
bool m_same_shape(const m_array *a, const m_array *b);

/* What the first dimensions become: dimension d of the source at `start + step * i`, i the index in dimension out[d] of
 * the result (-1: always start), or at list[d][i]. */
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
/* The same cells with the first `in` dimensions grouped in another way; whether strides can do it. */
m_array *m_array_regroup(const m_array *a, int in, int ndim, const int64_t *shape);
bool m_array_can_view(const m_array *a, int in, int ndim, const int64_t *shape);

/* Trees. */
m_tree *m_tree_make(int nb, const int64_t *bs);
m_entry *m_find(const m_tree *t, const char *key);
m_entry *m_put(m_tree *t, const char *key, m_array *array, m_tree *tree); /* adds, or replaces in its place */
void m_drop(m_tree *t, const char *key);
m_tree *m_tree_like(const m_tree *t); /* an empty node with its batch size and device */
m_tree *m_share(const m_tree *t);     /* new nodes, the same arrays, not locked; a node for each way to one */
m_tree *m_copy(m_tree *t);            /* the same, a node for each node */
/* New nodes with the first `in` dimensions of the root's batch size replaced, also in nodes below that lack them or
 * have others, which had no further ones then; arrays made by fn. Locked where `t` is. */
typedef m_array *(*m_fn)(const m_array *a, void *user);
m_tree *m_tree_each(const m_tree *t, int in, int out, const int64_t *shape, m_fn fn, void *user);
/* The batch size of a node below `root` after that. */
void m_replace_dims(m_tree *made, const m_tree *t, const m_tree *root, int in, int out, const int64_t *shape);
void m_open(m_tree *t); /* unlocks all of a tree that nothing else holds */
/* Counts anew what locked trees hold, of all that hangs in these. */
void m_hold(m_tree *const *roots, int count);
bool m_is_locked(const m_tree *t);
/* Undoes tdict_lock(), and the locks below that no other tree holds. Counts are as m_hold() left them. */
void m_unlock(m_tree *t, m_tree *const *roots, int count);
bool m_begins_with(const m_array *a, const m_tree *t);
bool m_fits(const m_tree *t);                       /* every array below begins with its batch size */
bool m_holds(const m_tree *t, const m_tree *other); /* is it, or holds it */
bool m_has_arrays(const m_tree *t);
/* Follows a path of keys; NULL when it leads nowhere; *through: it leads through an array. */
m_entry *m_path(m_tree *t, const char *const *keys, int count, bool *through, m_tree **last);
/* Arrays in the order of a walk, at most `room`; with their paths (escaped) when paths is not NULL. */
int m_arrays(const m_tree *t, m_array **out, char (*paths)[2 * M_KEY], int room);

/* Compares a tree with the model. Returns NULL if they agree, else a text with the difference. Addresses of cells are
 * noted or checked. */
extern bool m_ignore_places; /* for trees that were copied to be looked at */
const char *m_check(const m_tree *t, const tdict_tree *td);

#endif
