/* Trees whose words identify them: every word of a leaf has a generation and the number of the leaf. A word of another
 * generation or leaf is therefore recognized anywhere. And objects that hold such trees and move them by hooks that
 * start transfers of their own. Thread rule: everything here is safe from any thread; nothing asserts. */
#ifndef TDICT_TESTS_SUPPORT_STAMPS_H
#define TDICT_TESTS_SUPPORT_STAMPS_H

#include "tdict/tdict.h"

/* The leaf's number is the digit in its key, "l0" to "l9". */
static inline int64_t stamp_word(int64_t generation, int leaf) { return generation * 16 + leaf; }

/* A tree of leaves of several sizes, one of them strided, one empty, all of one generation; NULL when something
 * failed. */
tdict_tree *stamp_tree(int64_t generation);
/* Adds a leaf of `count` words, so that trees may share it. */
tdict_status stamp_leaf(tdict_tree *td, const char *path, int64_t count, int64_t generation, tdict_error *err);
/* Overwrites the leaves of a tree of stamp_tree(), through accessors. False: one gave NULL. */
bool stamp_refill(tdict_tree *td, int64_t generation);
/* The generation that all leaves of a host tree are of, objects' included; those below a key "common" are of generation
 * 1. -1: their generations differ, and `why` says how. */
int64_t stamp_check(const tdict_tree *td, char *why, size_t bytes);

/* Objects: a tree with a stamp and, up to `depth` deep, another such object in it. */
extern const tdict_type stamp_nest;
/* Gives the tree an object at "nest"; TDICT_ENOMEM. */
tdict_status stamp_put_nest(tdict_tree *td, int depth, int64_t generation, tdict_error *err);
/* The threads that the pool of contexts under test has: hooks never ask for more. */
void stamp_set_pool(int num_threads);
/* A tree that other transfers write at the same time. Some hooks move it too, and so wait for transfers that may be
 * queued after them. The tree is retained until the next call. NULL forgets it. */
void stamp_set_contested(const tdict_tree *td);
/* Objects that live. */
int64_t stamp_nests_alive(void);

#endif
