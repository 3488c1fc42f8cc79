/* Declares the parts of tdict-bench stress. stress_tree.c makes random trees with known bytes, stress.c moves them in
 * random ways, and stress_check.c compares the results. They choose strides and compute element addresses without the
 * library.
 * Thread rule: one thread, but hooks of objects may run on any thread. */
#ifndef TDICT_BENCH_STRESS_H
#define TDICT_BENCH_STRESS_H

#include "rows.h"

enum { STRESS_DIMS = 5, STRESS_PATH = 160 };
typedef enum stress_layout {
  STRESS_PLAIN,
  STRESS_TRANSPOSED,
  STRESS_STEPPED,  /* the strides are multiplied by a factor, which leaves gaps */
  STRESS_NEGATIVE, /* one dimension has a negative stride */
  STRESS_EXPANDED, /* one dimension has stride 0 */
  STRESS_EMPTY,
  STRESS_LAYOUTS
} stress_layout;
typedef enum stress_home { STRESS_TENSOR, STRESS_FLAT_OBJECT, STRESS_HOOKED_OBJECT, STRESS_HOMES } stress_home;

/* A tensor of a tree. `base` is a tensor over its whole storage, and `want` has the expected elements in C order. */
typedef struct stress_leaf {
  char path[STRESS_PATH];
  stress_home home;
  bool second;         /* true: the second tensor of an object */
  bool pinned, shared; /* shared: the tensor is also an earlier leaf, which fills it */
  stress_layout layout;
  tdict_dtype dtype;
  size_t item_bytes, base_bytes, want_bytes;
  int ndim;
  int64_t shape[STRESS_DIMS], strides[STRESS_DIMS], offset, base_count; /* in elements */
  tdict_tensor *tensor, *base;                                          /* retained; NULL after stress_tree_let_go() */
  unsigned char *base_data, *want;
} stress_leaf;
typedef struct stress_tree {
  tdict_tree *tree; /* retained; NULL after stress_tree_let_go() */
  stress_leaf *leaves;
  int count, room;
  size_t total_bytes;
  bool hooked; /* true: has objects with hooks, which transfer_into refuses */
} stress_tree;

int64_t stress_below(uint64_t *state, int64_t below); /* returns a random number from 0 to below - 1; 0 if below is 0 */

/* Makes a random tree of at most about max_bytes, and fills it. Prints an error and returns false on failure. */
bool stress_tree_make(stress_tree *t, tdict_context *context, uint64_t seed, size_t max_bytes);
/* Writes new random bytes to all storages through base_data. Updates `want`. */
void stress_tree_fill(stress_tree *t, uint64_t seed);
/* Releases the tree and its tensors, but keeps the expected bytes. */
void stress_tree_let_go(stress_tree *t);
void stress_tree_free(stress_tree *t);
/* stress_gather() copies the elements of a leaf to `out` in C order. `base` is its storage or a copy of it.
 * stress_scatter() does the reverse. */
void stress_gather(const stress_leaf *leaf, const unsigned char *base, unsigned char *out);
void stress_scatter(const stress_leaf *leaf, unsigned char *base, const unsigned char *in);
/* Finds the borrowed tensor of a leaf in a tree, including inside objects. If there is none, prints an error. */
bool stress_find(const stress_leaf *leaf, const tdict_tree *tree, tdict_tensor **out);

/* stress_check() compares all leaves of a result with the expected bytes, and checks their dtype, shape and device, and
 * that they are contiguous. stress_check_bytes() compares the bytes of one leaf. At the first difference, both print
 * the leaf and return BENCH_DIFFERS. If a leaf cannot be read, they return BENCH_FAILED. */
int stress_check_bytes(const check_place *place, const stress_leaf *leaf,
                       const unsigned char *address); /* the leaf's first byte */
int stress_check(const check_place *place, const stress_tree *t, const tdict_tree *result, tdict_device device);

#endif
