/* Trees and tensors that a text describes, with content. The grammar of the texts is in tree_text.h:
 *
 *   tdict_tree *batch = td_tree("[4] obs:f32[4,3] reward:f32[4]");
 *   tdict_tensor *rows = td_tensor("i64[%d,3]", count);
 *
 * The texts are formats of printf(). Each leaf has a storage of its own. Random content differs from leaf to leaf and
 * is the same in each run of a case. A text that is wrong ends the case. Thread rule: the main thread. */
#ifndef TDICT_TESTS_SUPPORT_MAKE_H
#define TDICT_TESTS_SUPPORT_MAKE_H

#include "tdict/tdict.h"

#define TD_FORMAT(text, first) __attribute__((format(printf, text, first)))

TDICT_BEGIN_DECLS

/* Random bytes in host memory. Elements of dtype bool are 0 or 1. */
tdict_tree *td_tree(const char *text, ...) TD_FORMAT(1, 2);
tdict_tensor *td_tensor(const char *text, ...) TD_FORMAT(1, 2);
/* The same in `memory`, which may be NULL for host memory. The leaves of a tree on a device may share a storage. */
tdict_tree *td_tree_in(tdict_memory *memory, const char *text, ...) TD_FORMAT(2, 3);
tdict_tensor *td_tensor_in(tdict_memory *memory, const char *text, ...) TD_FORMAT(2, 3);
/* Each leaf has the elements 0, 1, 2 and so on. Only for dtypes of integers, f32 and f64. */
tdict_tree *td_tree_counting(const char *text, ...) TD_FORMAT(1, 2);
tdict_tensor *td_tensor_counting(const char *text, ...) TD_FORMAT(1, 2);

/* Fills a tensor in host memory with random bytes, unlike those of any other tensor. */
void td_fill_tensor(tdict_tensor *tensor);

/* What a tree has at a path, borrowed. */
tdict_tensor *td_leaf(const tdict_tree *tree, const char *path);
tdict_tree *td_child(const tdict_tree *tree, const char *path);

/* Stores what was just made and releases the caller's reference. Returns it, borrowed. */
tdict_tensor *td_put(tdict_tree *tree, const char *path, tdict_tensor *tensor);
tdict_tree *td_put_tree(tdict_tree *tree, const char *path, tdict_tree *child);

/* Returns a text such as td_text("n.k%d", i), which stays until any threads have made 255 more. Threads that make texts
 * at the same time therefore use snprintf(). At most 1023 bytes. */
char *td_text(const char *format, ...) TD_FORMAT(1, 2);
/* malloc() and calloc() that must succeed. */
void *td_alloc(size_t bytes);
void *td_zeros(size_t count, size_t bytes);

TDICT_END_DECLS
#endif
