/* Lists the entries of a tree, and makes texts for people. A list borrows the tree. Thread
 * rule: one thread per list. */
#ifndef TDICT_TOOLS_LEAVES_H
#define TDICT_TOOLS_LEAVES_H

#include "tdict/nontensor.h"
#include "tdict/ragged.h"

#include "tool.h"

typedef enum leaf_kind { LEAF_TREE, LEAF_TENSOR, LEAF_UNBATCHED, LEAF_RAGGED, LEAF_VALUE, LEAF_VALUES } leaf_kind;

typedef struct leaf {
  leaf_kind kind;
  int32_t depth;
  const char *path;              /* escaped */
  const char *key;               /* last key, unescaped; borrowed from the tree */
  const tdict_tree *tree;        /* of LEAF_TREE */
  tdict_tensor *tensor;          /* of tensors; of LEAF_RAGGED, the elements of all rows */
  const tdict_ragged *ragged;    /* of LEAF_RAGGED */
  const tdict_nontensor *values; /* of LEAF_VALUE and LEAF_VALUES */
  uint64_t bytes;
} leaf;

typedef struct leaf_list {
  leaf *items;
  size_t count, capacity;
} leaf_list;

/* Describes an entry of `tree`. The result borrows entry->path. Returns TDICT_ENOTSUP for objects of other types, which
 * files do not hold. */
tdict_status leaf_describe(const tdict_tree *tree, const tdict_entry *entry, leaf *out, tdict_error *err);
/* Lists all entries of a tree, in the order of tdict_walk(). The caller frees the list, also on failure. */
tdict_status leaves_collect(const tdict_tree *tree, leaf_list *list, tdict_error *err);
void leaves_free(leaf_list *list);

/* Returns "tensor", "ragged" and so on. */
const char *leaf_kind_name(leaf_kind kind);
/* Writes a dtype such as "float32", or the kind of a value such as "text". */
void leaf_dtype_text(const leaf *l, char *text, size_t bytes);
/* Writes the shape. In the shape of a ragged leaf, the dimension of different lengths is "*". */
void leaf_shape_text(const leaf *l, char *text, size_t bytes);
void shape_text(int ndim, const int64_t *shape, char *text, size_t bytes);
enum { SHAPE_TEXT_BYTES = 32 * 22 + 8 };

/* Returns a copy of `text` that is safe to print: control characters and bytes that are not UTF-8 become \xNN. Returns
 * NULL if out of memory. The caller frees the text. */
char *printable_text(const char *text, size_t length);
bool is_utf8(const char *text, size_t length);

#endif
