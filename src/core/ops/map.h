/* Makes a tree with the keys of another tree. The tensors of the new tree are views, new tensors, or tensors of the
 * source. Both trees share key tables. All views and new tensors are in one slab, and all new elements of one memory
 * are in one storage. Source trees are only read. Thread rule: as in tdict/tree.h. */
#ifndef TDICT_CORE_OPS_MAP_H
#define TDICT_CORE_OPS_MAP_H

#include "core/ops/device/moves.h"
#include "core/tree/objects.h"

typedef struct tdict_map tdict_map;
struct tdict_map {
  const char *what; /* prefix of error messages */
  /* In each node, the batch_out sizes in `batch_size` replace the first batch_in batch dimensions. */
  int batch_in, batch_out;
  const int64_t *batch_size;
  int more_dims;    /* maximum number of dimensions that a tensor gains */
  bool drops_locks; /* true: the result is not locked, even if the source is locked */
  /* memory of new elements; NULL: for a tensor on a device the memory of that tensor, else plain host memory */
  tdict_memory *memory;
  bool one_memory;   /* true: if `memory` is NULL, all new elements are in plain host memory */
  tdict_dtype dtype; /* dtype of new elements; 0: the dtype of the source */
  /* Returns true if the result gets a view or a new tensor for `from`, and false if the result shares `from`. NULL: the
   * result shares no tensor. `tensor` is the number of the tensor in cursor order. The map calls `changes` more than
   * once for a tensor. All calls must return the same result. */
  bool (*changes)(const tdict_map *map, size_t tensor, const tdict_tensor *from);
  /* Describes the result for tensor `from`. `entry` is the index of the entry in cursor order, child trees included. If
   * `fill` is not NULL, the map calls `describe` more than once for a tensor: to measure, and later to create. */
  tdict_status (*describe)(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                           tdict_error *err);
  /* Writes the elements of a new tensor. NULL if `describe` never describes a new tensor. */
  tdict_status (*fill)(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                       tdict_error *err);
  /* True: new tensors for one shape and dtype have equal descriptions, so `describe` is called less often. */
  bool describes_shapes;
  /* True: the layout of a view depends only on the layout of the tensor, and so does the distance between their
   * addresses. The map then calls `describe` less often. `changes`, `fill` and `becomes_object` must be NULL. */
  bool repeats_views;
  void *user;
  tdict_moves *moves; /* run after all calls of `fill`, and then reset; NULL: `fill` makes all copies at once */
  /* `way` says how objects are handled. If `way` names a hook, this hook makes the result of an object of the program:
   * TDICT_OBJECT_INDEX needs `pick`, and TDICT_OBJECT_STACK needs `join`. An object without the hook is flattened: a
   * tree of its tensors replaces the object, and `describe` is called for these tensors. If `memory` is not NULL, an
   * object with `flatten` is flattened even if its type has the hook. If `objects_opened` is true, the caller has
   * flattened the objects, and makes objects from the trees in the result. */
  tdict_object_method way;
  bool objects_opened;
  bool keeps_bare; /* true: the result shares objects of the program whose type has no `flatten` */
  /* For objects of built-in types. With TDICT_OBJECT_CLONE, they are handled like others. With TDICT_OBJECT_ELEMENTS,
   * they are flattened, or shared without elements. With TDICT_OBJECT_SHARE, they are shared. In all other cases
   * `join`, if not NULL, makes the result for the new node `node`. Without it, objects without batch dimensions are
   * shared, and the type arranges the elements of others that `describe` and `fill` select. If `pick` is NULL, objects
   * with tensors and batch dimensions are refused with TDICT_ENOTSUP. */
  const tdict_pick *pick;
  tdict_status (*join)(const tdict_map *map, size_t entry, tdict_box *from, const tdict_tree *node, tdict_box **out,
                       tdict_error *err);
  /* Returns true if the result of a tensor is an object, which `join` makes with NULL for `from`. NULL: never. */
  bool (*becomes_object)(const tdict_map *map, size_t entry);
};
/* Makes a new tree from `td` as `map` describes. If drops_locks is false, locks the new tree like the source. Returns
 * TDICT_ENOMEM if memory is exhausted, and TDICT_EOVERFLOW if the result is too large. Returns TDICT_ESHAPE if a node
 * would have too many batch dimensions, or if an object of a built-in type does not fit its new node. Also returns
 * TDICT_ESHAPE if a tensor, or an object of a built-in type, does not begin with the first batch_in batch dimensions
 * of the source. Returns the errors of the callbacks, and sets err->path to the leaf if a callback left err->path
 * empty. Returns TDICT_ENOTSUP for an object whose type has neither the hook nor `flatten`. Returns the
 * same error if the new elements belong to more than 16 memories, or if moves on a stream refuse an object. Returns
 * TDICT_EWRONGDEVICE if no memory is known for the new elements of a tensor in device memory of the program. Returns
 * TDICT_EHOOK, and the errors of hooks and of built-in types. */
tdict_status tdict_map_run(const tdict_map *map, const tdict_tree *td, tdict_tree **out, tdict_error *err);
/* A `describe`: describes a new tensor with the shape of `from`. */
tdict_status tdict_map_describe_new(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_made *made,
                                    tdict_error *err);
/* A `fill`: leaves the elements uninitialized, for a result that a transfer writes. */
tdict_status tdict_map_leave_unset(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                                   tdict_error *err);
/* Copies the nodes of a tree, unlocked. Key tables and leaves are shared. Returns TDICT_ENOMEM. */
tdict_status tdict_map_share(const tdict_tree *td, const char *what, tdict_tree **out, tdict_error *err);
/* Prepares a leaf of one tree for a node of another. The caller owns *out. A child is copied, since no node is in two
 * trees. Returns TDICT_ENOMEM and the errors of tdict_agree_leaf() and tdict_agree_adopt(). */
tdict_status tdict_map_adopt(const tdict_tree *under, tdict_leaf leaf, const char *what, tdict_leaf *out,
                             tdict_error *err);

#endif
