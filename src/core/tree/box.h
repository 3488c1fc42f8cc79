/* A box holds an object and a reference count. This header also declares checks of types and of the results of hooks,
 * and defines the functions that a built-in type adds to its tdict_type. The box owns the object if `kept` is false.
 * Thread rule: the reference count is thread-safe. */
#ifndef TDICT_CORE_TREE_BOX_H
#define TDICT_CORE_TREE_BOX_H

#include <stdatomic.h>
#include <stddef.h>

#include "tdict/object.h"

typedef struct tdict_box {
  _Atomic(int64_t) refs;
  const tdict_type *type;
  void *self;
  /* true: the program owns `self`, so the box does not release `self`. Set only while one thread holds the box */
  bool kept;
} tdict_box;

/* The pointer to a tensor, tree or box, with the kind of the leaf in the two low bits; see core/tree/node.h. */
typedef uintptr_t tdict_leaf;

/* The positions of `count` elements in the first batch dimension. The array is borrowed. */
typedef struct tdict_positions {
  const int64_t *at;
  int64_t count;
} tdict_positions;

/* Elements of an object in an order: element k of the result is element at[k] of the object. k counts in C order in the
 * first `ndim` dimensions of the result, and at[k] in the first `dims_in` of the object, whose later dimensions stay.
 * All pointers are borrowed. */
typedef struct tdict_arrangement {
  int dims_in, ndim;
  const int64_t *shape; /* `ndim` sizes */
  const int64_t *at;
  bool is_list; /* true: a list or a mask selected the elements, so the result shares none of them */
} tdict_arrangement;

/* A stack or cat of the objects at one path of several trees. */
typedef struct tdict_joining {
  int dim;
  bool is_stack;
  const tdict_tree *node;         /* the new node that will hold the result */
  const tdict_tree *const *items; /* the joined trees */
  tdict_memory *memory;           /* of new elements; NULL: plain host memory */
} tdict_joining;

/* The functions that a built-in type adds to its tdict_type. Operations on batch dimensions call these functions,
 * because the shapes of the tensors of such an object need not begin with the batch size. `elements`, `pair` and
 * `equal` may be NULL, and also `arrange` if no object of the type has batch dimensions. After an object of a built-in
 * type is created, only the values in its tensors can change. */
typedef struct tdict_builtin {
  tdict_type type;  /* must be the first member; type.struct_size is sizeof(tdict_builtin) */
  const void *mark; /* &tdict_builtin_mark, to recognize a built-in type */
  /* Returns the number of batch dimensions, and sets *sizes to their sizes, which belong to the object. With 0, it
   * belongs to all elements of its tree, and most operations on batch dimensions share it. */
  int (*batch)(const void *self, const int64_t **sizes);
  /* Makes the leaf of the elements that `to` lists, from an object with batch dimensions: a tensor or a box, with a new
   * reference. Positions are in range. The operations call this function of a type with `elements` only if a pick
   * describes the elements, see core/tree/objects.h. */
  tdict_status (*arrange)(const void *self, const tdict_arrangement *to, tdict_leaf *out, tdict_error *err);
  /* Joins `count` objects. May return one of the objects. */
  tdict_status (*join)(const void *const *items, size_t count, const tdict_joining *how, void **out, tdict_error *err);
  /* Makes a tree of the tensors that hold the elements of the object. Functions that visit or fill elements use this
   * tree. If `elements` is NULL, the object has no tensors, and these functions skip the object. `type.flatten` can
   * return more tensors. `type.unflatten` accepts the keys of either tree. */
  tdict_status (*elements)(const void *self, tdict_tree **out, tdict_error *err);
  /* Makes two trees with the same keys. trees[0] has views of the elements of `self` at `positions`. The tensors of
   * trees[1] hold the elements to write to these views. The caller checks the shapes and dtypes of the tensors. `value`
   * is an object of the same type with as many elements as `positions`, or the leaf of one element. If `positions` is
   * NULL, trees[0] has all elements of the first dimension. */
  tdict_status (*pair)(const void *self, const tdict_positions *positions, tdict_leaf value, tdict_tree *trees[2],
                       tdict_error *err);
  /* Returns true if both are equal, else writes the reason. NULL: the caller compares their tensors. */
  bool (*equal)(const void *a, const void *b, char *message, size_t bytes);
  const char *setter; /* names of functions that replace the object, for messages about writes in place */
} tdict_builtin;
extern const char tdict_builtin_mark;
/* Returns the table of a built-in type, or NULL for a type of the program. */
static inline const tdict_builtin *tdict_builtin_of(const tdict_type *type) {
  if (type->struct_size != sizeof(tdict_builtin)) return NULL;
  const tdict_builtin *builtin = (const tdict_builtin *)(const void *)type;
  return builtin->mark == &tdict_builtin_mark ? builtin : NULL;
}
/* Returns false if the object is of a built-in type without the function `elements`, else true. */
static inline bool tdict_box_has_elements(const tdict_box *box) {
  const tdict_builtin *builtin = tdict_builtin_of(box->type);
  return !builtin || builtin->elements;
}
/* True for a built-in type without `flatten`, whose elements cannot be written or moved. */
static inline bool tdict_box_has_fixed_elements(const tdict_box *box) {
  return tdict_builtin_of(box->type) && !box->type->flatten;
}
/* True if the object fits this batch size, as the program's and those without batch dimensions always do. */
bool tdict_box_begins_with(const tdict_box *box, int batch_ndim, const int64_t *batch_size);

/* Returns TDICT_EINVAL if the struct_size of the type is too small, or the type has no name or no `release`. Also
 * returns TDICT_EINVAL if the type has only one of `flatten` and `unflatten`. The message begins with `what`. */
tdict_status tdict_type_check(const char *what, const tdict_type *type, tdict_error *err);
/* Makes a box with one reference. Takes ownership of self on success. Returns TDICT_OK or TDICT_ENOMEM. */
tdict_status tdict_box_create(const tdict_type *type, void *self, tdict_box **out, tdict_error *err);
/* Makes a box like tdict_box_create(). On failure, releases the object. */
tdict_status tdict_box_give(const tdict_type *type, void *self, tdict_box **out, tdict_error *err);
/* Frees a box with one reference, but not the object: the caller owns self again. */
void tdict_box_discard(tdict_box *box);
tdict_box *tdict_box_retain(tdict_box *box);
void tdict_box_release(tdict_box *box);
/* Makes a box for `given`, the object that a hook of `box` returned. Takes over `given`, also on failure. If it is the
 * object of `box`, *out is a new reference to `box`. Returns TDICT_ENOMEM. */
tdict_status tdict_box_of(tdict_box *box, void *given, tdict_box **out, tdict_error *err);
/* The hook of a type, or NULL. A program of an older header has a shorter tdict_type, which struct_size shows. */
#define TDICT_HOOK_OF(type, member) \
  ((type)->struct_size >= offsetof(tdict_type, member) + sizeof((type)->member) ? (type)->member : NULL)
/* Checks what a hook returned: a status, and `result`, or NULL for none. If the hook failed, completes its error `own`
 * as tdict_callback_status() does, copies it to `err`, which may be NULL, and returns its status. TDICT_OK without a
 * result becomes TDICT_EHOOK. */
tdict_status tdict_hook_finish(const tdict_type *type, const char *hook, tdict_status returned, const void *result,
                               tdict_error *own, tdict_error *err);

#endif
