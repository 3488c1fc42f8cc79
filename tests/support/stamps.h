/* Trees whose elements identify them: each word of a leaf encodes a generation and the number of the leaf, so a check
 * detects every word from another generation or leaf. Also objects that contain such trees and start transfers in their
 * hooks. Thread rule: all functions are safe from any thread, and none asserts. */
#ifndef TDICT_TESTS_SUPPORT_STAMPS_H
#define TDICT_TESTS_SUPPORT_STAMPS_H

#include "tdict/tdict.h"

/* The leaf's number is the digit in its key, "l0" to "l9". */
static inline int64_t stamp_word(int64_t generation, int leaf) { return generation * 16 + leaf; }

/* Returns a tree of one generation with leaves of several sizes, one of them strided and one empty. Returns NULL on
 * failure. */
tdict_tree *stamp_tree(int64_t generation);
/* Adds a leaf of `count` words. */
tdict_status stamp_leaf(tdict_tree *td, const char *path, int64_t count, int64_t generation, tdict_error *err);
/* Overwrites the leaves of a tree made by stamp_tree() through accessors. Returns false if an accessor returns NULL. */
bool stamp_refill(tdict_tree *td, int64_t generation);
/* Returns the generation of all leaves of a host tree, including those in objects. Leaves below a key "common" must
 * have generation 1. Returns -1 and writes the reason to `why` if the generations differ or a leaf cannot be read. */
int64_t stamp_check(const tdict_tree *td, char *why, size_t bytes);

/* The type of objects that contain a stamped tree. The tree may contain further such objects. */
extern const tdict_type stamp_nest;
/* Puts an object into a tree at "nest", with objects nested `depth` levels deep. The only error is TDICT_ENOMEM. */
tdict_status stamp_put_nest(tdict_tree *td, int depth, int64_t generation, tdict_error *err);
/* Tells the hooks how many pool threads a tested context has. Hooks never ask for more threads. */
void stamp_set_pool(int num_threads);
/* Sets a tree that other transfers write at the same time. Some hooks move this tree, so they wait for transfers that
 * may have begun after them. The tree is retained until the next call. NULL: none. */
void stamp_set_contested(const tdict_tree *td);
/* Returns the number of objects that exist. */
int64_t stamp_nests_alive(void);

#endif
