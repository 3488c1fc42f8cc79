/* Makes trees and tensors that a string describes, and fills them. tree_text.h has the grammar. Examples:
 *
 *   tdict_tree *batch = td_tree("[4] obs:f32[4,3] reward:f32[4]");
 *   tdict_tensor *rows = td_tensor("i64[%d,3]", count);
 *
 * The strings are printf() formats. Each leaf has its own storage. Random content differs between leaves, but not
 * between runs of a case. An invalid string ends the case. Thread rule: the main thread. */
#ifndef TDICT_TESTS_SUPPORT_MAKE_H
#define TDICT_TESTS_SUPPORT_MAKE_H

#include "tdict/tdict.h"

#define TD_FORMAT(text, first) __attribute__((format(printf, text, first)))

TDICT_BEGIN_DECLS

/* Make trees and tensors in host memory with random bytes. Elements of dtype bool are 0 or 1. */
tdict_tree *td_tree(const char *text, ...) TD_FORMAT(1, 2);
tdict_tensor *td_tensor(const char *text, ...) TD_FORMAT(1, 2);
/* Make trees and tensors in `memory` (NULL: host memory). On a device, the leaves of a tree may share a storage. */
tdict_tree *td_tree_in(tdict_memory *memory, const char *text, ...) TD_FORMAT(2, 3);
tdict_tensor *td_tensor_in(tdict_memory *memory, const char *text, ...) TD_FORMAT(2, 3);
/* Make leaves with the elements 0, 1, 2 and so on. Only for integers, f32 and f64. */
tdict_tree *td_tree_counting(const char *text, ...) TD_FORMAT(1, 2);
tdict_tensor *td_tensor_counting(const char *text, ...) TD_FORMAT(1, 2);

/* Fills a tensor in host memory with random bytes, which differ for each tensor. */
void td_fill_tensor(tdict_tensor *tensor);

/* Return the tensor or child at a path, borrowed. */
tdict_tensor *td_leaf(const tdict_tree *tree, const char *path);
tdict_tree *td_child(const tdict_tree *tree, const char *path);

/* Store a new tensor or tree at a path, and release the caller's reference. Return the argument, which is now
 * borrowed. */
tdict_tensor *td_put(tdict_tree *tree, const char *path, tdict_tensor *tensor);
tdict_tree *td_put_tree(tdict_tree *tree, const char *path, tdict_tree *child);

/* Returns a formatted string of at most 1023 bytes, such as td_text("n.k%d", i). The 256th later call by any thread
 * overwrites it. Concurrent threads must use snprintf() instead. */
char *td_text(const char *format, ...) TD_FORMAT(1, 2);
/* Like malloc() and calloc(), but end the case on failure. */
void *td_alloc(size_t bytes);
void *td_zeros(size_t count, size_t bytes);

TDICT_END_DECLS
#endif
