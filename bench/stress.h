/* tdict-bench stress, between its files: stress_tree.c makes random trees whose bytes are known, stress.c moves them in
 * random ways, stress_check.c holds what arrived against what was sent. Addresses of elements are computed here, from
 * strides that are chosen here. Thread rule: one thread; hooks of objects run anywhere. */
#ifndef TDICT_BENCH_STRESS_H
#define TDICT_BENCH_STRESS_H

#include "rows.h"

enum { STRESS_DIMS = 5, STRESS_PATH = 160 };
typedef enum stress_layout {
  STRESS_PLAIN,
  STRESS_TRANSPOSED,
  STRESS_STEPPED,  /* every n-th element */
  STRESS_NEGATIVE, /* backwards in some dimension */
  STRESS_EXPANDED, /* a stride of 0 */
  STRESS_EMPTY,
  STRESS_LAYOUTS
} stress_layout;
typedef enum stress_home { STRESS_TENSOR, STRESS_FLAT_OBJECT, STRESS_HOOKED_OBJECT, STRESS_HOMES } stress_home;

/* A tensor of a tree: its storage (base), and the elements in C order that it should have (want). */
typedef struct stress_leaf {
  char path[STRESS_PATH];
  stress_home home;
  bool second;         /* of an object's two tensors */
  bool pinned, shared; /* shared: another leaf has the same tensor, and the bytes are its */
  stress_layout layout;
  tdict_dtype dtype;
  size_t item_bytes, base_bytes, want_bytes;
  int ndim;
  int64_t shape[STRESS_DIMS], strides[STRESS_DIMS], offset, base_count; /* in elements */
  tdict_tensor *tensor, *base;                                          /* counted; NULL once the program has let go */
  unsigned char *base_data, *want;
} stress_leaf;
typedef struct stress_tree {
  tdict_tree *tree; /* counted; NULL once the program has let go */
  stress_leaf *leaves;
  int count, room;
  size_t total_bytes;
  bool hooked; /* has objects that cannot be copied into */
} stress_tree;

/* Steele, Lea and Flood's SplitMix64. */
uint64_t stress_random(uint64_t *state);
int64_t stress_below(uint64_t *state, int64_t below); /* 0 when below is 0 */

/* A tree of at most so many bytes, filled. False and a complaint: it could not be made. */
bool stress_tree_make(stress_tree *t, tdict_context *context, uint64_t seed, size_t max_bytes);
/* Other bytes in all storages, through pointers kept from the beginning; `want` follows. */
void stress_tree_fill(stress_tree *t, uint64_t seed);
/* The program lets go of tree and tensors; what should arrive is still known. */
void stress_tree_let_go(stress_tree *t);
void stress_tree_free(stress_tree *t);
/* Elements in C order from or to where a leaf has them in a copy of its storage. */
void stress_gather(const stress_leaf *leaf, const unsigned char *base, unsigned char *out);
void stress_scatter(const stress_leaf *leaf, unsigned char *base, const unsigned char *in);
/* The tensor of a tree that a leaf's path names, borrowed. */
bool stress_find(const stress_leaf *leaf, const tdict_tree *tree, tdict_tensor **out);

/* BENCH_OK when every leaf of `result` is on the device, contiguous, and holds what it should; BENCH_DIFFERS and a sentence
 * with leaf and offset; BENCH_FAILED. */
int stress_check(const check_place *place, const stress_tree *t, const tdict_tree *result, tdict_device device);

#endif
