/* Declares the functions with which operations on trees handle objects. Normally an operation calls the hook for the
 * operation if the type has the hook. Otherwise the operation uses a tree of the tensors of the object (flatten, then
 * unflatten). If the type has no `flatten` either, flattening returns an error that names the missing hook. The caller
 * owns the results. Thread rule: as in tdict/tree.h; hooks run on the calling thread, with no lock held. */
#ifndef TDICT_CORE_TREE_OBJECTS_H
#define TDICT_CORE_TREE_OBJECTS_H

#include "core/tensor/affine.h"
#include "core/tree/cursor.h"

/* Determines how an operation handles objects. CLONE, INDEX and STACK name a hook: the operation calls this hook, and
 * flattens objects whose type lacks the hook. INDEX and STACK do not flatten objects of built-in types. */
typedef enum tdict_object_method {
  TDICT_OBJECT_AS_TENSORS, /* all objects are flattened, except objects of built-in types */
  TDICT_OBJECT_ELEMENTS,   /* all objects with elements are flattened, built-in types by their function `elements` */
  TDICT_OBJECT_SHARE,      /* no hook is called: every element keeps its index, so the result shares the object */
  TDICT_OBJECT_CLONE,
  TDICT_OBJECT_INDEX,
  TDICT_OBJECT_STACK
} tdict_object_method;
/* The index of one element in each of the first `depth` dimensions. */
typedef struct tdict_element_index {
  int depth;
  int64_t at[TDICT_MAX_NDIM];
} tdict_element_index;
/* The elements that an operation selects: one index in each of the first `at.depth` dimensions, with `selects` also
 * `count` indices in the next, and all of the other dimensions. */
typedef struct tdict_pick {
  tdict_element_index at;
  bool selects;
  int64_t start, count, step; /* `start` and `step` are used if `positions` is NULL */
  const int64_t *positions;   /* borrowed */
} tdict_pick;
/* Writes the pick for a view of a tree with batch size `shape`. Returns false if a pick cannot describe the view. */
bool tdict_pick_of(const tdict_affine *a, const int64_t *shape, tdict_pick *pick);
/* Returns how an operation with this pick handles objects of the program. NULL: no pick describes the operation. */
static inline tdict_object_method tdict_pick_method(const tdict_pick *pick) {
  if (!pick || pick->selects) return TDICT_OBJECT_AS_TENSORS;
  return pick->at.depth ? TDICT_OBJECT_INDEX : TDICT_OBJECT_SHARE;
}
/* Joins the objects at one path of several trees by the function `join` of a built-in type, or the hook `stack`, which
 * must exist. *out is a new reference. Returns TDICT_ENOMEM and their errors. */
tdict_status tdict_box_join(const tdict_leaf *boxes, size_t count, const tdict_joining *how, tdict_box **out,
                            tdict_error *err);
/* Checks a write in place of `from`, a built-in object whose elements cannot be written. `to` can stay unchanged if
 * both are equal, and for some elements (`is_whole` is false) if also none has batch dimensions. Otherwise returns
 * TDICT_ENOTSUP or the error of the type, and TDICT_ETYPE if `to` is no object of the type of `from`. */
tdict_status tdict_box_keep(const char *what, tdict_leaf to, tdict_box *from, bool is_whole, tdict_error *err);

/* Sets an object as tdict_set_object() does. Takes over a reference to the object, also on failure. */
tdict_status tdict_object_set(const char *what, tdict_tree *tree, const char *path, const tdict_type *type, void *self,
                              tdict_error *err);
/* Returns an object as tdict_get_object() does. Messages begin with `what`. */
tdict_status tdict_object_get(const char *what, const tdict_tree *tree, const char *path, const tdict_type *type,
                              void **out, tdict_error *err);

/* Both call a hook, which the type must have. tdict_box_index() calls it once for each dimension of the pick. *out is a
 * new reference. Errors: of the hook, TDICT_EHOOK or TDICT_ENOMEM. */
tdict_status tdict_box_clone(tdict_box *box, tdict_box **out, tdict_error *err);
tdict_status tdict_box_index(tdict_box *box, const tdict_element_index *pick, tdict_box **out, tdict_error *err);
/* Makes a tree of `count` tensors at the given keys, for functions that flatten objects of built-in types. */
tdict_status tdict_tree_of_tensors(const char *const *keys, tdict_tensor *const *tensors, int count, tdict_tree **out,
                                   tdict_error *err);

/* How objects are flattened. Tensors of an object of the program must begin with `batch_size`. */
typedef struct tdict_flatten_rule {
  const char *what;
  /* if tensors_first is false, objects whose type has the hook of this method are not flattened */
  tdict_object_method way;
  /* true: flattens also objects that have the hook, since hooks cannot allocate from a given memory */
  bool tensors_first;
  int batch_ndim;
  const int64_t *batch_size;
  const char *above; /* path of the tree, for messages; NULL: none */
  bool keeps_bare;   /* true: objects without `flatten` stay objects; false: flattening them fails */
} tdict_flatten_rule;
/* Flattens an object to a tree that shares the tensors of the object. Returns TDICT_ENOTSUP if the type has no flatten,
 * and TDICT_EHOOK if the flattened tree holds an object. Returns TDICT_ESHAPE if a tensor does not begin with the batch
 * size. Also returns TDICT_ENOMEM and the error of the hook. After TDICT_ENOMEM, err->path can be empty. After any
 * other error, err->path begins with `path`. */
tdict_status tdict_box_flatten(const tdict_flatten_rule *opening, const tdict_box *box, const char *path,
                               tdict_tree **out, tdict_error *err);
/* Copies the nodes of a tree and flattens the objects that the rule selects. The copy shares all other leaves and is
 * not locked. Returns the errors of tdict_box_flatten() and TDICT_ENOMEM. */
tdict_status tdict_objects_flatten(const tdict_flatten_rule *opening, const tdict_tree *td, tdict_tree **out,
                                   tdict_error *err);
/* Undoes tdict_objects_flatten(): where `like` has an object, makes one of the tree of `made`, whose nodes must be
 * unshared and have the slots of `like`. The slot of a tree that has lost all its leaves becomes 0; some lost leaves
 * are TDICT_EINVAL. Returns TDICT_EHOOK, TDICT_ENOMEM and the hook's errors, and then may have replaced some trees. */
tdict_status tdict_objects_unflatten(const char *what, const tdict_tree *like, tdict_tree *made, tdict_error *err);

/* Pairs of flattened objects, for writes from `from` to `to`. A first walk checks the trees and adds pairs, and a
 * second takes them in the same order. The walking operation owns the pairs. */
typedef struct tdict_flat_pair {
  tdict_tree *to, *from;
} tdict_flat_pair;
typedef struct tdict_flat_pairs {
  tdict_flat_pair *items; /* initialize all members to 0 */
  size_t count, cap, next;
} tdict_flat_pairs;
/* How the objects at one path of two trees are written. `pick` selects the elements of leaves[picked], and the other
 * leaf has as many elements, or is the leaf of one element; see tdict_flat_pairs_add(). */
typedef struct tdict_pairing {
  const char *what, *path;
  const tdict_pick *pick; /* NULL: no pick describes the write */
  int picked;             /* 0: the destination, 1: the source */
  bool is_whole;          /* true: every element of each object is written */
  /* the destination and the source, whose batch sizes the objects must have; NULL: no object is checked */
  const tdict_tree *trees[2];
} tdict_pairing;
/* Adds the pair for a write of leaves[1] to leaves[0]. The program's objects are flattened. A built-in type pairs
 * elements if the write is whole or the objects have batch dimensions; others must pass tdict_box_keep(), and the pair
 * is empty. Returns the errors of tdict_box_keep(), tdict_box_flatten() and the types, and TDICT_ENOMEM. Also returns
 * TDICT_ENOTSUP if the pick selects in several dimensions, TDICT_ETYPE if the types differ, and TDICT_ESHAPE if an
 * object does not fit its tree. Paths of errors are below how->path. */
tdict_status tdict_flat_pairs_add(tdict_flat_pairs *pairs, const tdict_pairing *how, const tdict_leaf leaves[2],
                                  tdict_error *err);
/* If `last` is true, returns the pair that was added last. Otherwise returns the next pair of the second walk. */
tdict_flat_pair tdict_flat_pairs_take(tdict_flat_pairs *pairs, bool last);
void tdict_flat_pairs_reset(tdict_flat_pairs *pairs);

/* Returns TDICT_ENOTSUP, with the path below `above`, if the tree has an object other than text, numbers and JSON with
 * `allows_values`. The message ends with `wanted`. Also returns TDICT_ENOMEM. */
tdict_status tdict_objects_refuse(const char *what, const tdict_tree *td, bool allows_values, const char *above,
                                  const char *wanted, tdict_error *err);
/* Returns TDICT_ETYPE if the boxes hold objects of different types. */
tdict_status tdict_objects_check_types(const char *what, const tdict_leaf *boxes, size_t count, tdict_error *err);

#endif
