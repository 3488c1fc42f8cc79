/* Declares lazy stacks. A lazy stack is a list of trees, called items. A program uses the stack like one tree with a
 * new first batch dimension. No call that creates or changes a stack copies elements.
 *
 * The items must have the same batch size. Their keys, the shapes of their tensors and their devices may differ. A
 * stack shares its items: a change to an item is visible in the stack. To select some items, to test each item for a
 * key, or to read the tensor of each item, loop over tdict_lazy_stack_get_item().
 *
 * Errors of all functions: #TDICT_EINVAL a pointer is NULL; #TDICT_ENOMEM; #TDICT_ESHAPE the program has changed the
 * batch size of an item, so that it differs from the others. The last error is not for tdict_lazy_stack_get_item() and
 * tdict_lazy_stack_insert(). In an error about one item, err->path begins with the index of this item: "2.obs.x" is the
 * path obs.x in item 2. If tdict_lazy_stack_densify() or tdict_lazy_stack_pad() cannot join the entries at a path,
 * err->path is the path in the items, and the message names the item.
 *
 * docs/container.md compares lazy stacks with those of TensorDict.
 * Thread rule: many threads may read a lazy stack and its items at the same time. While a thread changes the stack or
 * an item, no other thread may use the stack or its items. */
#ifndef TDICT_LAZY_STACK_H
#define TDICT_LAZY_STACK_H

#include "tdict/combine.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_lazy_stack tdict_lazy_stack;

/** @brief Creates a lazy stack of trees.
 *  @param[in]  items  @p count trees, retained by the stack. A tree may be in the list several times.
 *  @param[out] out    New stack with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL also for no items, or items with #TDICT_MAX_BATCH_NDIM batch dimensions;
 *          #TDICT_ESHAPE the batch sizes of two items differ. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_create(tdict_tree *const *items, size_t count,
                                                               tdict_lazy_stack **out, tdict_error *err);
/** @brief Creates a lazy stack of the children of a tree, which the stack shares.
 *
 *  The keys of the tree must be "0", "1", ... in this order, as in the result of tdict_lazy_stack_to_device_async().
 *  @return #TDICT_OK; #TDICT_ENOTFOUND the keys are not "0", "1", ... in this order; #TDICT_ETYPE an entry is not a
 *          tree; #TDICT_EINVAL also if the tree has no keys; the errors of tdict_lazy_stack_create(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_from_tree(const tdict_tree *tree, tdict_lazy_stack **out,
                                                                  tdict_error *err);
/** @brief Adds a reference and returns @p stack, which must not be NULL. Thread-safe. */
TDICT_API tdict_lazy_stack *tdict_lazy_stack_retain(const tdict_lazy_stack *stack);
/** @brief Drops a reference. The last release also releases the items. NULL is allowed. Thread-safe. */
TDICT_API void tdict_lazy_stack_release(tdict_lazy_stack *stack);

/** @brief Returns the batch size: the number of items, then the batch size of the items. Borrowed from the stack.
 *  @param[out] ndim  Number of sizes: the batch dimensions of an item, plus one. May be NULL. */
TDICT_API const int64_t *tdict_lazy_stack_get_batch_size(const tdict_lazy_stack *stack, int *ndim);
/** @brief Returns item @p i. Negative indices count from the end.
 *  @param[out] out  Borrowed from the stack. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL also if the stack has no item @p i. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get_item(const tdict_lazy_stack *stack, int64_t i,
                                                                 tdict_tree **out, tdict_error *err);
/** @brief Adds an item before item @p i. Negative indices count from the end. If @p i is the number of items, the item
 *  is added at the end.
 *
 *  A stack whose items are all locked is locked: no item can be added until one of its items is unlocked.
 *  @param[in] item  Retained by the stack.
 *  @return #TDICT_OK; #TDICT_EINVAL also if @p i is out of range; #TDICT_ELOCKED all items of the stack are locked;
 *          #TDICT_ESHAPE the batch size of @p item differs.
 *  @note Cost: O(items after @p i), plus O(items) if the first items are locked. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_insert(tdict_lazy_stack *stack, int64_t i, tdict_tree *item,
                                                               tdict_error *err);

/** The kind of the entries that the items have at a path. */
typedef enum tdict_lazy_kind {
  TDICT_LAZY_TENSORS, /**< all entries are tensors */
  TDICT_LAZY_TREES,   /**< all entries are trees */
  TDICT_LAZY_OBJECTS, /**< all entries are objects */
  TDICT_LAZY_MIXED    /**< the entries have different kinds */
} tdict_lazy_kind;
/** Describes a path at which every item has an entry. A visitor borrows the struct for the call. */
typedef struct tdict_lazy_entry {
  const char *path; /**< escaped */
  int32_t depth;    /**< 0 for the keys of the items */
  tdict_lazy_kind kind;
  size_t count;                 /**< number of items */
  tdict_tensor *const *tensors; /**< the tensor of each item; NULL unless `kind` is #TDICT_LAZY_TENSORS */
} tdict_lazy_entry;
/** Visits one entry of a walk. Returns a tdict_status; any other number becomes #TDICT_EHOOK. */
typedef tdict_status (*tdict_lazy_visitor)(void *user, const tdict_lazy_entry *entry, tdict_error *err);
/** @brief Calls @p visit for every entry that all items have, in the order of the first item. A tree comes before its
 *  children.
 *
 *  The visitor must not change the stack or the keys of its items.
 *  @return The errors of tdict_walk(), with the path in the items as err->path.
 *  @note Cost: O(entries of the first item * items). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_walk(const tdict_lazy_stack *stack, tdict_lazy_visitor visit,
                                                             void *user, tdict_error *err);

/** @brief Stacks the tensors at a path: copies the tensors into one tensor with a new first dimension.
 *  @param[in]  memory  Memory of the result. If NULL, tensors on a device are stacked in the memory of the first
 *                      tensor, and other tensors in plain host memory.
 *  @param[out] out     Owned by the caller. Written on success only.
 *  @return The errors of tdict_get(), tdict_tensor_empty() and tdict_tensor_copy(); #TDICT_ESHAPE and #TDICT_EDTYPE the
 *          shapes or dtypes differ; #TDICT_EWRONGDEVICE the devices differ, or @p memory is NULL and the program owns
 *          the device memory of the tensors.
 *  @note Cost: one copy of the elements. The call first waits for transfers that write the tensors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get(const tdict_lazy_stack *stack, const char *path,
                                                            tdict_memory *memory, tdict_tensor **out, tdict_error *err);
/** @brief Returns a lazy stack of the trees at a path. The new stack shares these trees with the items.
 *  @param[out] out  New stack with one reference, written on success only.
 *  @return The errors of tdict_get_tree() and tdict_lazy_stack_create(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get_tree(const tdict_lazy_stack *stack, const char *path,
                                                                 tdict_lazy_stack **out, tdict_error *err);
/** @brief Sets a key of every item. Item i gets a view of element i of the first dimension of @p tensor.
 *
 *  On failure, no item has changed. If an item is in the stack several times, the item gets the view for its last
 *  position.
 *  @param[in] tensor  The items share its storage.
 *  @return The errors of tdict_set(); #TDICT_ESHAPE @p tensor does not begin with the batch size of the stack.
 *  @note Cost: O(items * keys of the changed node). Pointers to the changed nodes stay valid. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_set(tdict_lazy_stack *stack, const char *path,
                                                            tdict_tensor *tensor, tdict_error *err);

/** @brief Starts to move all items to a device in one transfer, and returns a future.
 *
 *  The items travel as the children "0", "1", ... of one tree, which is the result of the future. Make a stack of the
 *  result with tdict_lazy_stack_from_tree(). Leaves that several items share are copied once.
 *  @param[in] options  As in tdict_to_device_async(). NULL for the defaults.
 *  @return The errors of tdict_to_device_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_to_device_async(tdict_context *context,
                                                                        const tdict_lazy_stack *stack,
                                                                        tdict_device device,
                                                                        const tdict_transfer_options *options,
                                                                        tdict_future **out, tdict_error *err);

/** @brief Copies the items into one tree with tdict_stack(). The items must have the same keys, shapes and dtypes.
 *
 *  If the option `ragged` is set, the items must have no batch dimension. The tensors at one key may then differ in the
 *  size of their first dimension. If these sizes differ, the tensors become a ragged leaf (tdict/ragged.h).
 *  @param[in]  options  `dim` must be 0. NULL for the defaults.
 *  @param[in]  run      As in tdict_stack().
 *  @param[out] out      New tree, owned by the caller; written on success only.
 *  @return The errors of tdict_stack(); #TDICT_EINVAL also if `dim` is not 0. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_densify(const tdict_lazy_stack *stack,
                                                                const tdict_join_options *options, const tdict_run *run,
                                                                tdict_tree **out, tdict_error *err);
/** Options of tdict_lazy_stack_pad(). */
typedef struct tdict_lazy_pad_options {
  size_t struct_size;
  double value;         /**< written to padded elements, converted to each dtype; default 0 */
  tdict_memory *memory; /**< memory of the results; NULL (default): as in tdict_stack() */
  tdict_tree **mask;    /**< on success, receives a new tree of masks, which the caller owns; NULL (default): no
                             masks */
} tdict_lazy_pad_options;
static inline tdict_lazy_pad_options tdict_lazy_pad_options_default(void) {
  tdict_lazy_pad_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}
/** @brief Copies the items into one tree. In each dimension after the batch dimensions, smaller tensors are padded at
 *  the end, up to the largest size.
 *
 *  The items must have the same keys. The tensors at a key must have the same number of dimensions and the same dtype.
 *  The tree of masks has the keys of the result. A mask is a bool tensor: true for elements that come from an item, and
 *  false for padding. It has the batch dimensions of the result, and the following dimensions up to the last padded
 *  dimension. At the path of an object, the tree of masks has a tree with the masks of the object's tensors. Leaves of
 *  tdict/nontensor.h and tdict/unbatched.h are in the tree of masks, too.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New tree, owned by the caller; written on success only.
 *  @return The errors of tdict_stack(); #TDICT_EOVERFLOW and #TDICT_ENOTSUP also for `value`, as in
 *          tdict_pad_sequence(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_pad(const tdict_lazy_stack *stack,
                                                            const tdict_lazy_pad_options *options, tdict_tree **out,
                                                            tdict_error *err);

TDICT_END_DECLS
#endif
