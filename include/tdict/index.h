/* Indexes the batch dimensions of a tree. In C, Python's `tree[2, :, None, 5:1:-1]` is written as
 *
 *     tdict_index_get(NULL, tree, TDICT_INDEX(TDICT_AT(2), TDICT_ALL, TDICT_NEW_AXIS, TDICT_RANGE(5, 1, -1)), NULL,
 *                     &out, err)
 *
 * Copies and views. If an index has a list or a mask, tdict_index_get() returns copies. Otherwise tdict_index_get()
 * returns views that share storage with the tree. An index applies to the batch dimensions of the tree only. All other
 * dimensions stay whole, including additional batch dimensions of child trees.
 *
 * Threads. With a context, threads of its pool help to copy. The pool is used only if the index has a list or a mask,
 * and only for tensors with large copies, of about 2 MB or more. `num_threads` -1 stands for one thread less than the
 * CPUs that the pool may use. On a thread of the pool, for example in a hook or in the function of tdict_visit(), this
 * thread makes all copies.
 *
 * Devices. Tensors on a device are indexed where they are. One kernel launch makes all copies between tensors of one
 * memory. A call first waits for earlier transfers and uses of the bytes, as tdict/transfer.h describes. The call
 * returns when its copies are complete. If a list names a position twice, a write stores any of the values for this
 * position. If tensors of the destination share bytes, these bytes are unspecified after a write.
 *
 * Streams. With a stream, the copies on its GPU are queued on the stream, and the call returns. The copies begin when
 * the earlier transfers and uses of the bytes are complete. Later calls and transfers that need the bytes wait for the
 * copies. The program may release the trees immediately. If an earlier transfer into a source fails after the call, the
 * copied elements are unspecified. Copies between tensors in host memory are complete when the call returns.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: an argument is NULL, or an option is not used or out of range. The index has too many items, an
 *   invalid item, items for more dimensions than the tree has, two TDICT_REST, a step of 0, or a position outside its
 *   dimension. The result would have more than TDICT_MAX_BATCH_NDIM batch dimensions, or a tensor more than
 *   TDICT_MAX_NDIM dimensions. A transfer into a mask, a list or a copied tensor has failed.
 * - #TDICT_ESHAPE: the sizes of a mask are not those of its dimensions. Lists have different numbers of positions, or
 *   the tensor of a list does not have one dimension. A child tree of the result would have too many batch dimensions.
 *   A tensor of a child tree no longer begins with the batch size of the tree (see tdict/tree.h).
 * - #TDICT_EDTYPE: a mask is neither bool nor uint8, or the tensor of a list is not int64.
 * - #TDICT_EWRONGDEVICE: a mask, a list or a tensor to copy is in device memory of the program, or `stream` is not of
 *   the device of a tensor to copy.
 * - #TDICT_ENOTSUP: the driver cannot compile kernels for lists and masks. With `stream`: a copy between the host and a
 *   device, device memory without a context, or an object other than text, numbers and JSON.
 * - #TDICT_ECAPTURE: `stream` is being captured.
 * - #TDICT_EOVERFLOW: the size of the result does not fit in 63 bits.
 * - #TDICT_ENOMEM; #TDICT_EDEVICE and other errors of the driver; the errors of objects, see tdict/object.h.
 *
 * Thread rule: as in tdict/tree.h. In addition, several threads may write different elements of one tree at once, if no
 * thread changes keys of the tree. */
#ifndef TDICT_INDEX_H
#define TDICT_INDEX_H

#include "tdict/run.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** Stands for a missing bound of a range, such as the start in Python's `[:5]`. */
#define TDICT_NONE INT64_MIN

enum tdict_index_kind {
  TDICT_INDEX_AT,
  TDICT_INDEX_RANGE,
  TDICT_INDEX_NEW_AXIS,
  TDICT_INDEX_REST,
  TDICT_INDEX_LIST,
  TDICT_INDEX_MASK,
  TDICT_INDEX_LIST_OF
};
/** One item of an index. Create items with the macros below. The array or tensor at `data` is borrowed. */
typedef struct tdict_index {
  int32_t kind; /**< A tdict_index_kind. */
  int64_t start, stop, step;
  const void *data;
} tdict_index;
static inline tdict_index tdict_index_of(int32_t kind, int64_t start, int64_t stop, int64_t step, const void *data) {
  tdict_index i;
  memset(&i, 0, sizeof i);
  i.kind = kind;
  i.start = start;
  i.stop = stop;
  i.step = step;
  i.data = data;
  return i;
}
/** Selects element @p i and removes the dimension. Negative values count from the end. */
#define TDICT_AT(i) tdict_index_of(TDICT_INDEX_AT, (i), 0, 0, NULL)
/** Selects the elements from @p start (inclusive) to @p stop (exclusive) in steps of @p step, by Python's rules. Bounds
 *  outside the dimension are clipped, and negative bounds count from the end. A negative step selects elements in
 *  reverse order. If @p start is TDICT_NONE, the range begins at the first element, or at the last element if @p step
 *  is negative. If @p stop is TDICT_NONE, the range extends to the other end of the dimension. */
#define TDICT_RANGE(start, stop, step) tdict_index_of(TDICT_INDEX_RANGE, (start), (stop), (step), NULL)
/** Selects a whole dimension. */
#define TDICT_ALL TDICT_RANGE(TDICT_NONE, TDICT_NONE, 1)
/** Inserts a new dimension of one element. */
#define TDICT_NEW_AXIS tdict_index_of(TDICT_INDEX_NEW_AXIS, 0, 0, 0, NULL)
/** Selects all dimensions to which no other item of the index applies, like Python's `...`. An index may have at most
 *  one TDICT_REST. */
#define TDICT_REST tdict_index_of(TDICT_INDEX_REST, 0, 0, 0, NULL)
/** Selects @p count elements of a dimension. @p data points to @p count int64_t positions; negative positions count
 *  from the end. */
#define TDICT_LIST(data, count) tdict_index_of(TDICT_INDEX_LIST, (count), 0, 0, (data))
/** Selects elements like TDICT_LIST. @p tensor has one dimension of int64 positions, in host memory or on a device. If
 *  the list is on a device, a launch checks the positions, and the call waits for the check, also if the call has a
 *  stream. The positions then stay on the device. The call also copies the positions to the host if the tree has
 *  objects or tensors elsewhere, if bytes of a tensor are lost, or if there are more than eight lists. A list on a
 *  device that is not contiguous, is not aligned to 8 bytes or has at most one position is always copied to the host.
 *  The program must not write the list before the copies of the call are complete. */
#define TDICT_LIST_OF(tensor) tdict_index_of(TDICT_INDEX_LIST_OF, 0, 0, 0, (tensor))
/** Selects the elements for which a mask is not 0, in C order. The mask is a bool or uint8 tensor with at
 *  least one dimension. A mask of n dimensions applies to n batch dimensions, and must have the sizes of these
 *  dimensions. In the result, one dimension replaces the n dimensions. A call copies a mask on a device to the host and
 *  waits for this copy, also if the call has a stream. */
#define TDICT_MASK(tensor) tdict_index_of(TDICT_INDEX_MASK, 0, 0, 0, (tensor))

/** The maximum number of items of an index. */
#define TDICT_MAX_INDEX 16
/** An index: an array of items, which apply to the batch dimensions in order. Several TDICT_LIST in one index are
 *  combined as in NumPy and PyTorch: the i-th positions of all lists together select element i of the result. A mask
 *  counts as a list of the positions where the mask is not 0. All lists must have the same number of positions, but a
 *  list of one position is repeated. */
typedef struct tdict_indices {
  int32_t count; /**< Number of items. If above TDICT_MAX_INDEX, calls with the index return #TDICT_EINVAL. */
  tdict_index item[TDICT_MAX_INDEX];
} tdict_indices;
static inline tdict_indices tdict_indices_none(void) {
  tdict_indices all;
  memset(&all, 0, sizeof all);
  return all;
}
/** Appends an item to an index that a program builds at run time, beginning with tdict_indices_none(). */
static inline void tdict_indices_add(tdict_indices *all, tdict_index next) {
  if (all->count < TDICT_MAX_INDEX) all->item[all->count] = next;
  all->count++;
}
/** Creates an index of one item or more, and expands to a `const tdict_indices *`. In C, the index is valid to the end
 *  of the block, and in C++ to the end of the expression: use the macro as an argument. */
#ifdef __cplusplus
#define TDICT_INDEX(...) (&static_cast<const tdict_indices &>(tdict_indices_of_({__VA_ARGS__})))
static inline tdict_indices tdict_indices_of_(std::initializer_list<tdict_index> items) {
  tdict_indices all = tdict_indices_none();
  for (const tdict_index &item : items) tdict_indices_add(&all, item);
  return all;
}
#else
#define TDICT_INDEX(...) \
  (&(const tdict_indices){(int32_t)(sizeof((const tdict_index[]){__VA_ARGS__}) / sizeof(tdict_index)), {__VA_ARGS__}})
#endif

/** @brief Returns the elements that an index selects, as a new unlocked tree with the keys of @p tree.
 *
 *  The batch dimensions of the result follow the rules of PyTorch. Dimensions after the last item stay whole. All lists
 *  and masks together produce one dimension of the result, the list dimension. If a range, TDICT_REST or a new axis
 *  between two lists or masks also produces a dimension, the list dimension is the first dimension of the result.
 *  Otherwise the list dimension replaces the first dimension to which a list or mask applies. Unlike in NumPy, TDICT_AT
 *  does not count as a list. A tree without batch dimensions can only be indexed with TDICT_NEW_AXIS and TDICT_REST.
 *  Objects are indexed as tdict/object.h describes.
 *
 *  If `memory` of @p run is set, all tensors of the result are new tensors in C order in this memory, also without
 *  lists and masks. The memory must be host memory, for example tdict_pinned_memory(). All these tensors share one
 *  storage. Elements on a device are copied to `memory` too, and so are the tensors of objects whose type has
 *  `flatten`. Objects of built-in types are indexed as without `memory`, and their elements are not in `memory`. If
 *  `memory` is NULL, views share their storages, and copies are in plain host memory or in the memory of the device
 *  tensor.
 *
 *  Cost without lists and masks: O(tensors + nodes). One block is allocated for all tensors, and one block per node. No
 *  element is read. With lists or masks, the call also copies the bytes of the result. In each tensor, every position
 *  of a list or mask is copied separately, in one or more pieces.
 *  @param[in]  context  Context whose threads help. NULL: the calling thread makes all copies.
 *  @param[in]  run      NULL for the defaults.
 *  @param[out] out      New tree, owned by the caller; written on success only.
 *  @return The errors at the top; #TDICT_EINVAL also if `memory` and `stream` are both set; #TDICT_EWRONGDEVICE also
 *          if `memory` is on a device; with `memory`, the errors of tdict_tensor_copy(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_index_get(tdict_context *context, const tdict_tree *tree,
                                                       const tdict_indices *index, const tdict_run *run,
                                                       tdict_tree **out, tdict_error *err);
/** @brief Reads elements like tdict_index_get(), but writes the elements into the storages of @p dst. Use this function
 *  to read many minibatches into the same tree.
 *
 *  Addresses of elements of @p dst stay valid, and @p dst may be pinned or locked.
 *  Cost: two passes of O(tensors + nodes), plus one copy of the result. The first pass checks all tensors. Memory is
 *  allocated only for lists, masks, objects and copies on devices.
 *  @param[in]     context  As in tdict_index_get().
 *  @param[in,out] dst      Must have the keys of @p src, and the batch size, shapes and dtypes of the result. If @p dst
 *                          and @p src share elements, the values of these elements are unspecified after the call.
 *  @param[in]     run      NULL for the defaults. `memory` is not used.
 *  @return The errors at the top and of tdict_tensor_copy(); #TDICT_ENOTFOUND if one of the trees lacks a key of the
 *          other tree; #TDICT_ETYPE if the entries at a key differ in kind; #TDICT_ESHAPE also if @p dst does not have
 *          the batch size of the result; #TDICT_ENOTSUP also if a leaf that cannot be written in place, such as a text,
 *          would change. If a copy on a device fails, the elements of @p dst are unspecified. After any other error, no
 *          element has been written. */
TDICT_API TDICT_NODISCARD tdict_status tdict_index_into(tdict_context *context, tdict_tree *dst, const tdict_tree *src,
                                                        const tdict_indices *index, const tdict_run *run,
                                                        tdict_error *err);
/** @brief Writes the elements of @p value to the elements that an index selects: `tree[index] = value`.
 *
 *  If @p tree has keys, its keys and the addresses of its elements do not change. The batch size of @p value must equal
 *  the batch size of tree[index], or the last dimensions of that batch size. In the second case, @p value is repeated
 *  along the other dimensions. If @p value lacks a key, the tensor at this key does not change. Objects are written
 *  through their tensors. If @p tree has no keys, the call first creates zeroed tensors and objects for all elements of
 *  @p tree. A locked tree can be written if it has keys.
 *
 *  In host memory, if a list names a position twice, the element keeps the value that is last in @p value, with any
 *  number of threads. Threads of the pool write by lists only if no position is repeated, or if the selected elements
 *  of a position have at least 64 KiB. To find repeated positions, the call allocates one bit for each number from the
 *  lowest to the highest position.
 *  Cost: two passes of O(tensors of @p value), plus one copy of the elements. The first pass checks all tensors. Memory
 *  is allocated only for lists, masks, objects, copies on devices, and the tensors of a tree without keys.
 *  @param[in] context  As in tdict_index_get().
 *  @param[in] run      NULL for the defaults. `memory` is not used.
 *  @return The errors at the top and of tdict_tensor_copy(); #TDICT_ENOTFOUND if @p tree has keys, but lacks a key of
 *          @p value; #TDICT_ETYPE if the entries at a key differ in kind; #TDICT_ESHAPE also if the batch size of @p
 *          value does not fit; #TDICT_ENOTSUP also if a leaf that cannot be written in place, such as a text, would
 *          change; #TDICT_ELOCKED if @p tree has no keys and is locked. If a copy on a device fails, the selected
 *          elements are unspecified. After any other error, no element has been written. */
TDICT_API TDICT_NODISCARD tdict_status tdict_index_set(tdict_context *context, tdict_tree *tree,
                                                       const tdict_indices *index, const tdict_tree *value,
                                                       const tdict_run *run, tdict_error *err);
/** @brief Writes @p rows to consecutive rows of @p tree, from row @p first on. Use this function to build a batch.
 *
 *  A row is an element of the first batch dimension. A negative @p first counts from the end. If @p rows has as many
 *  batch dimensions as @p tree, all rows of @p rows are written. If @p rows has fewer, it is one row. tdict_index_set()
 *  describes the rules. If @p tree has keys, several threads may write different rows at once.
 *  Cost: O(tensors), plus one copy of the rows.
 *  @return The errors of tdict_index_set(); #TDICT_EINVAL also if @p tree has no batch dimension, or the rows do not
 *          fit into @p tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_write_rows(tdict_tree *tree, int64_t first, const tdict_tree *rows,
                                                        tdict_error *err);

TDICT_END_DECLS
#endif
