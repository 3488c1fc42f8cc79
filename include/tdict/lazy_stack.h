/* Declares lazy stacks. A lazy stack is a list of trees, called items, that is used as one tree with a new first batch
 * dimension. Nothing is copied until a function needs the elements of several items in one tensor.
 *
 * The items must have the same batch size. Their keys and the shapes of their tensors may differ. The items may be on
 * different devices. A lazy stack shares its items: a change to an item is visible in the stack. If a program changes
 * the batch size of an item, the functions of this header return #TDICT_ESHAPE and name the item.
 *
 * Paths in errors begin with the index of the item: err->path "2.obs.x" is the path obs.x in item 2. The functions
 * that create one tree from all items name the item in the message, and err->path is the path in the items.
 *
 * This is LazyStackedTensorDict of TensorDict 0.15 with stack_dim 0. These are the differences:
 *
 * - The items must have equal batch sizes. TensorDict shows -1 for sizes that differ.
 * - A stack has at least one item. In TensorDict, an index that selects nothing gives an empty TensorDict.
 * - The items are stacked along dimension 0 only, and an index applies to dimension 0 only.
 * - If the numbers of dimensions differ, tdict_lazy_stack_get_shape() returns an error. TensorDict returns [-1].
 * - If dtypes differ, tdict_lazy_stack_get() returns an error. TensorDict converts them to a common dtype.
 * - tdict_lazy_stack_set() changes all items or none. TensorDict may have changed the items before a locked item.
 * - tdict_lazy_stack_insert() refuses an index beyond the end. TensorDict then appends.
 * - tdict_lazy_stack_densify() refuses items with different keys. contiguous() of TensorDict leaves out keys
 *   that an item lacks.
 * - tdict_lazy_stack_pad() pads a size of 1. TensorDict repeats the element instead.
 * - tdict_lazy_stack_to_device() moves all items in one transfer. TensorDict moves them one after another.
 *
 * Thread rule: as for trees: many threads may read a lazy stack, or one thread may change it. */
#ifndef TDICT_LAZY_STACK_H
#define TDICT_LAZY_STACK_H

#include "tdict/combine.h"
#include "tdict/index.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_lazy_stack tdict_lazy_stack;

/** @brief Creates a lazy stack of trees.
 *  @param[in]  items  @p count trees, retained. The same tree may be in the list several times.
 *  @param[out] out    New stack with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, no items, or items with #TDICT_MAX_BATCH_NDIM batch dimensions;
 *          #TDICT_ESHAPE the batch sizes of two items differ; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_create(tdict_tree *const *items, size_t count,
                                                               tdict_lazy_stack **out, tdict_error *err);
/** @brief Adds a reference and returns @p stack, which must not be NULL. Thread-safe. */
TDICT_API tdict_lazy_stack *tdict_lazy_stack_retain(const tdict_lazy_stack *stack);
/** @brief Drops a reference. The last release also releases the items. NULL is allowed. Thread-safe. */
TDICT_API void tdict_lazy_stack_release(tdict_lazy_stack *stack);

/** @brief Returns the number of items. */
TDICT_API size_t tdict_lazy_stack_count(const tdict_lazy_stack *stack);
/** @brief Returns the number of batch dimensions: those of an item, and one more. */
TDICT_API int tdict_lazy_stack_batch_ndim(const tdict_lazy_stack *stack);
/** @brief Returns the batch size: the number of items, then the batch size of the items. Borrowed from the stack. */
TDICT_API const int64_t *tdict_lazy_stack_batch_size(const tdict_lazy_stack *stack);
/** @brief Returns item @p i. Negative indices count from the end.
 *  @param[out] out  Borrowed until the stack is released. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL there is no item @p i, or a NULL pointer. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get_item(const tdict_lazy_stack *stack, int64_t i,
                                                                 tdict_tree **out, tdict_error *err);
/** @brief Returns a new stack of the items that an index selects. The items are shared.
 *  @param[in]  index  #TDICT_RANGE, #TDICT_ALL, #TDICT_LIST, or #TDICT_MASK with one dimension.
 *  @param[out] out    New stack with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a position outside the stack, a step of 0, an index that selects no item, another
 *          kind of index, or a NULL pointer; #TDICT_ESHAPE, #TDICT_EDTYPE and #TDICT_EWRONGDEVICE for a mask as
 *          tdict_index_get(); #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_index(const tdict_lazy_stack *stack, tdict_index index,
                                                              tdict_lazy_stack **out, tdict_error *err);
/** @brief Adds an item at the end.
 *  @param[in] item  Retained.
 *  @return #TDICT_OK; #TDICT_ESHAPE the batch size of @p item differs; #TDICT_EINVAL a NULL pointer; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_append(tdict_lazy_stack *stack, tdict_tree *item,
                                                               tdict_error *err);
/** @brief Adds an item before item @p i. Negative indices count from the end; the number of items is the end.
 *  @return The same errors as tdict_lazy_stack_append(); #TDICT_EINVAL also if there is no such place. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_insert(tdict_lazy_stack *stack, int64_t i, tdict_tree *item,
                                                               tdict_error *err);

/** @brief Returns true if every item has an entry at the path. */
TDICT_API bool tdict_lazy_stack_has(const tdict_lazy_stack *stack, const char *path);
/** What the items have at a path. */
typedef enum tdict_lazy_kind {
  TDICT_LAZY_TENSORS, /**< every item has a tensor */
  TDICT_LAZY_TREES,   /**< every item has a tree */
  TDICT_LAZY_OBJECTS, /**< every item has an object */
  TDICT_LAZY_MIXED    /**< the kinds differ */
} tdict_lazy_kind;
/** An entry that every item has. A visitor borrows the entry for the call. */
typedef struct tdict_lazy_entry {
  const char *path; /**< escaped */
  int32_t depth;    /**< 0 for the keys of the items */
  tdict_lazy_kind kind;
  size_t count;                 /**< number of items */
  tdict_tensor *const *tensors; /**< the tensor of each item; NULL unless `kind` is #TDICT_LAZY_TENSORS */
} tdict_lazy_entry;
/** A function that is called for each entry of a walk. Returns a tdict_status, as tdict_visitor. */
typedef tdict_status (*tdict_lazy_visitor)(void *user, const tdict_lazy_entry *entry, tdict_error *err);
/** @brief Calls @p visit for every entry that all items have, in the order of the first item. A tree comes before its
 *  children.
 *
 *  The visitor must not change the stack or the keys of its items.
 *  @return The errors of tdict_walk(), with err->path relative to the items; #TDICT_ESHAPE.
 *  @note Cost: O(entries of the first item * items). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_walk(const tdict_lazy_stack *stack, tdict_lazy_visitor visit,
                                                             void *user, tdict_error *err);

/** @brief Writes the tensor of each item at a path to an array of the caller.
 *  @param[out]    tensors  Borrowed from the items.
 *  @param[in,out] count    Before the call, the capacity of @p tensors; afterwards, the number of items. The array and
 *                          *@p count are written on success only.
 *  @return The errors of tdict_get() with the index and path; #TDICT_EINVAL also if the capacity is too small;
 *          #TDICT_ESHAPE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get_list(const tdict_lazy_stack *stack, const char *path,
                                                                 tdict_tensor **tensors, size_t *count,
                                                                 tdict_error *err);
/** @brief Writes the common shape of the tensors at a path. The first size is the number of items. A size that differs
 *  is -1.
 *  @param[out] ndim   The number of sizes. Written on success only.
 *  @param[out] shape  Room for #TDICT_MAX_NDIM + 1 sizes. Written on success only.
 *  @return The errors of tdict_lazy_stack_get_list(); #TDICT_ESHAPE also if the numbers of dimensions differ. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get_shape(const tdict_lazy_stack *stack, const char *path,
                                                                  int *ndim, int64_t *shape, tdict_error *err);
/** @brief Copies the tensors at a path into one new tensor with a new first dimension.
 *  @param[in]  memory  Memory of the result. NULL: for tensors on a device the memory of the first tensor, else plain
 *                      host memory.
 *  @param[out] out     Owned by the caller. Written on success only.
 *  @return The errors of tdict_lazy_stack_get_list(), tdict_tensor_empty() and tdict_tensor_copy(); #TDICT_ESHAPE and
 *          #TDICT_EDTYPE if the shapes or dtypes differ; #TDICT_EWRONGDEVICE if the devices differ.
 *  @note Cost: one copy of the elements. Waits for transfers that write the tensors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get(const tdict_lazy_stack *stack, const char *path,
                                                            tdict_memory *memory, tdict_tensor **out, tdict_error *err);
/** @brief Returns a lazy stack of the trees at a path. The trees are shared.
 *  @param[out] out  New stack with one reference, written on success only.
 *  @return The errors of tdict_get_tree() with the index and path; the errors of tdict_lazy_stack_create(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get_tree(const tdict_lazy_stack *stack, const char *path,
                                                                 tdict_lazy_stack **out, tdict_error *err);
/** @brief Sets a key of every item. Item i gets a view of element i of the first dimension of @p tensor.
 *
 *  All items are changed, or none. If an item is in the stack several times, the view for its last position is set.
 *  @param[in] tensor  Begins with the batch size of the stack. The items share its storage.
 *  @return The errors of tdict_set() with the index and path; #TDICT_ESHAPE also if @p tensor does not begin with the
 *          batch size of the stack.
 *  @note Cost: O(items * keys of the changed node). Handles of the changed nodes stay valid. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_set(tdict_lazy_stack *stack, const char *path,
                                                            tdict_tensor *tensor, tdict_error *err);

/** @brief Moves all items to a device in one transfer, and waits until the data is there.
 *
 *  All new elements are in one storage, as if the items were the children "0", "1", ... of one tree. Leaves that
 *  several items share are copied once.
 *  @param[in]  options  See tdict_to_device(). NULL for the defaults.
 *  @param[out] out      New stack with one reference, written on success only.
 *  @return The errors of tdict_to_device(), with err->path beginning with the index of the item; #TDICT_ESHAPE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_to_device(tdict_context *context, const tdict_lazy_stack *stack,
                                                                  tdict_device device,
                                                                  const tdict_transfer_options *options,
                                                                  tdict_lazy_stack **out, tdict_error *err);
/** @brief Starts the transfer of tdict_lazy_stack_to_device() and returns a future. The result of the future is a tree
 *  with the items as children. Convert that tree with tdict_lazy_stack_from_tree(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_to_device_async(tdict_context *context,
                                                                        const tdict_lazy_stack *stack,
                                                                        tdict_device device,
                                                                        const tdict_transfer_options *options,
                                                                        tdict_future **out, tdict_error *err);
/** @brief Creates a lazy stack of the children of a tree, whose keys must be "0", "1", ... in this order. The children
 *  are shared.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND another key; #TDICT_ETYPE an entry is not a tree; the errors of
 *          tdict_lazy_stack_create(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_from_tree(const tdict_tree *tree, tdict_lazy_stack **out,
                                                                  tdict_error *err);

/** @brief Copies the items into one tree by tdict_stack(). The items must have the same keys, shapes and dtypes.
 *
 *  If the option `ragged` is set and the items have no batch dimension, tensors may differ in their first size. They
 *  become ragged leaves (tdict/ragged.h).
 *  @param[in]  options  `dim` must be 0. NULL for the defaults.
 *  @param[out] out      New tree, owned by the caller; written on success only.
 *  @return The errors of tdict_stack(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_densify(const tdict_lazy_stack *stack,
                                                                const tdict_join_options *options, tdict_tree **out,
                                                                tdict_error *err);
/** Options of tdict_lazy_stack_pad(). */
typedef struct tdict_lazy_pad_options {
  size_t struct_size;
  double value;         /**< the elements after the end of a tensor, converted to each dtype; default 0 */
  tdict_memory *memory; /**< memory of the results; NULL (default): as in tdict_join_options */
  tdict_tree **mask; /**< NULL (default), or receives a tree of masks, owned by the caller; written on success only */
} tdict_lazy_pad_options;
static inline tdict_lazy_pad_options tdict_lazy_pad_options_default(void) {
  tdict_lazy_pad_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}
/** @brief Copies the items into one tree. In each dimension after the batch dimensions, smaller tensors are padded at
 *  the end to the largest size.
 *
 *  The items must have the same keys, numbers of dimensions and dtypes. The tree of masks has the same keys. A mask is
 *  a bool tensor that is true for elements that come from an item. A mask has the batch dimensions, and the others up
 *  to the last dimension in which the items differ. In the tree of masks, the tensors of an object are a tree. Leaves
 *  of tdict/nontensor.h and tdict/unbatched.h are the same in both trees.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New tree, owned by the caller; written on success only.
 *  @return The errors of tdict_pad_sequence(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_pad(const tdict_lazy_stack *stack,
                                                            const tdict_lazy_pad_options *options, tdict_tree **out,
                                                            tdict_error *err);

TDICT_END_DECLS
#endif
