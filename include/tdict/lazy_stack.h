/* Declares lazy stacks. A lazy stack is a list of trees, called items, that is used like one tree with a new first
 * batch dimension. The items have the same batch size. Their keys, shapes and devices may differ. No call that creates
 * or changes a stack copies elements: a change to an item is visible in the stack. To select items, or to read the
 * tensor of each item, loop over tdict_lazy_stack_get_item(). docs/container.md compares lazy stacks with TensorDict's.
 *
 * Errors of all functions: #TDICT_EINVAL a pointer is NULL; #TDICT_ENOMEM; #TDICT_ESHAPE the batch sizes of two items
 * differ. If an error is about one item, err->path begins with its index: "2.obs.x" is obs.x in item 2. If items cannot
 * be joined at a path, err->path is the path in the items, and the message names the item.
 *
 * Results are written on success only. Thread rule: many threads may read a lazy stack and its items at the same time.
 * While a thread changes the stack or an item, no other thread may use the stack or its items. */
#ifndef TDICT_LAZY_STACK_H
#define TDICT_LAZY_STACK_H

#include "tdict/combine.h"
#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

typedef struct tdict_lazy_stack tdict_lazy_stack;

/** @brief Creates a lazy stack of @p count trees, which the stack retains. A tree may be in the list several times.
 *  @return #TDICT_EINVAL there are no items, or they have #TDICT_MAX_BATCH_NDIM batch dimensions. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_create(tdict_tree *const *items, size_t count,
                                                               tdict_lazy_stack **out, tdict_error *err);
/** @brief Creates a lazy stack of the children of a tree, which the stack shares.
 *  @return #TDICT_ENOTFOUND the keys are not "0", "1", ...; #TDICT_ETYPE an entry is no tree; #TDICT_EINVAL no keys. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_from_tree(const tdict_tree *tree, tdict_lazy_stack **out,
                                                                  tdict_error *err);
/** @brief Adds a reference and returns @p stack, which must not be NULL. Thread-safe. */
TDICT_API tdict_lazy_stack *tdict_lazy_stack_retain(const tdict_lazy_stack *stack);
/** @brief Drops a reference. The last release also releases the items. NULL is allowed. Thread-safe. */
TDICT_API void tdict_lazy_stack_release(tdict_lazy_stack *stack);

/** @brief Returns the batch size: the number of items, then the batch size of the items. Borrowed from the stack.
 *  @param[out] ndim  Number of sizes: the batch dimensions of an item, plus one. May be NULL. */
TDICT_API const int64_t *tdict_lazy_stack_get_batch_size(const tdict_lazy_stack *stack, int *ndim);
/** @brief Returns item @p i, borrowed from the stack. Negative indices count from the end.
 *  @return #TDICT_EINVAL the stack has no item @p i. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get_item(const tdict_lazy_stack *stack, int64_t i,
                                                                 tdict_tree **out, tdict_error *err);
/** @brief Adds an item before item @p i, or at the end if @p i is the number of items. Negative: from the end.
 *  @return #TDICT_EINVAL @p i is out of range; #TDICT_ELOCKED all items of the stack are locked. */
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
/** @brief Calls @p visit for every entry that all items have, in the order of tdict_walk() of the first item.
 *  The visitor must not change the stack or the keys of its items. Cost: O(entries of the first item * items).
 *  @return The errors of tdict_walk(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_walk(const tdict_lazy_stack *stack, tdict_lazy_visitor visit,
                                                             void *user, tdict_error *err);

/** @brief Copies the tensors at a path into one tensor with a new first dimension. Waits for transfers to the tensors.
 *  @param[in] memory  Memory of the result; NULL: as in tdict_stack().
 *  @return The errors of tdict_get(), tdict_tensor_empty() and tdict_tensor_copy(); #TDICT_ESHAPE, #TDICT_EDTYPE and
 *          #TDICT_EWRONGDEVICE the tensors differ, or the program owns their device memory and @p memory is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get(const tdict_lazy_stack *stack, const char *path,
                                                            tdict_memory *memory, tdict_tensor **out, tdict_error *err);
/** @brief Creates a lazy stack of the trees at a path, which the items share with the new stack.
 *  @return The errors of tdict_get_tree() and tdict_lazy_stack_create(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_get_tree(const tdict_lazy_stack *stack, const char *path,
                                                                 tdict_lazy_stack **out, tdict_error *err);
/** @brief Sets a key of every item. Item i gets a view of element i of the first dimension of @p tensor.
 *  On failure, no item has changed. An item that is in the stack several times gets the view for its last position.
 *  Cost: O(items * keys of the changed node).
 *  @return The errors of tdict_set(); #TDICT_ESHAPE @p tensor does not begin with the batch size of the stack. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_set(tdict_lazy_stack *stack, const char *path,
                                                            tdict_tensor *tensor, tdict_error *err);

/** @brief Starts to move all items to a device in one transfer, and returns a future.
 *  The result is a tree with the items as children "0", "1", ...; make a stack of it with tdict_lazy_stack_from_tree().
 *  Leaves that several items share are copied once.
 *  @return The errors of tdict_to_device_async(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_to_device_async(tdict_context *context,
                                                                        const tdict_lazy_stack *stack,
                                                                        tdict_device device,
                                                                        const tdict_transfer_options *options,
                                                                        tdict_future **out, tdict_error *err);

/** @brief Copies the items into one tree with tdict_stack(), also with its option `ragged`.
 *  @return The errors of tdict_stack(); #TDICT_EINVAL the option `dim` is not 0. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_densify(const tdict_lazy_stack *stack,
                                                                const tdict_join_options *options, const tdict_run *run,
                                                                tdict_tree **out, tdict_error *err);
/** Options of tdict_lazy_stack_pad(). */
typedef struct tdict_lazy_pad_options {
  size_t struct_size;
  double value;         /**< written to padded elements, converted to each dtype; default 0 */
  tdict_memory *memory; /**< memory of the results; NULL (default): as in tdict_stack() */
  tdict_tree **mask;    /**< receives a new tree of masks, owned by the caller; NULL (default): no masks */
} tdict_lazy_pad_options;
static inline tdict_lazy_pad_options tdict_lazy_pad_options_default(void) {
  tdict_lazy_pad_options o;
  tdict_init_struct_(o);
  return o;
}
/** @brief Copies the items into one tree, and pads smaller tensors at the end of each dimension after the batch size.
 *
 *  The items must have the same keys. The tensors at a key must have the same number of dimensions and the same dtype.
 *  The tree of masks has the keys of the result, also of leaves without tensors. A mask is a bool tensor: true for
 *  elements of an item, and false for padding. It has the dimensions of the result up to the last padded dimension.
 *  @return The errors of tdict_stack(), and of tdict_pad_sequence() for `value`. */
TDICT_API TDICT_NODISCARD tdict_status tdict_lazy_stack_pad(const tdict_lazy_stack *stack,
                                                            const tdict_lazy_pad_options *options, tdict_tree **out,
                                                            tdict_error *err);

TDICT_END_DECLS
#endif
