/* Indexes the batch dimensions of a tree. In C, Python's `tree[2, :, None, 5:1:-1]` is
 *
 *     tdict_index_get(NULL, tree, TDICT_INDEX(TDICT_AT(2), TDICT_ALL, TDICT_NEW_AXIS,
 *                                             TDICT_RANGE(5, 1, -1)), NULL, &out, err)
 *
 * An index applies to the batch dimensions of the tree. Other dimensions stay whole. docs/elements.md has the order of
 * the dimensions of a result, and the costs. docs/device_operations.md describes device trees.
 * @p context: threads of its pool help with large copies by lists and masks. NULL: the calling thread copies alone.
 * @p run: `num_threads`, `stream` and, in tdict_index_get(), `memory`. NULL for the defaults.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: NULL; an option that is not used or out of range; an index that does not fit the tree;
 * - #TDICT_EINVAL also: a position outside its dimension; a failed transfer into a mask, a list or a copied tensor;
 * - #TDICT_ESHAPE: a mask, lists or a child tree do not fit; #TDICT_EOVERFLOW: the result is too large; #TDICT_ENOMEM;
 * - #TDICT_EDTYPE: a mask is neither bool nor uint8, or a list is not int64;
 * - #TDICT_EWRONGDEVICE: device memory of the program, or a stream of another device;
 * - #TDICT_ENOTSUP: a driver without kernels, or what a stream does not allow;
 * - #TDICT_ECAPTURE: the stream is being captured; the errors of the driver and of objects.
 *
 * Thread rule: as in tdict/tree.h. Several threads may write different elements if no thread changes keys. */
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
/** Selects from @p start (inclusive) to @p stop (exclusive) in steps of @p step, by Python's rules for bounds. With
 *  TDICT_NONE, the range extends to that end of the dimension. */
#define TDICT_RANGE(start, stop, step) tdict_index_of(TDICT_INDEX_RANGE, (start), (stop), (step), NULL)
/** Selects a whole dimension. */
#define TDICT_ALL TDICT_RANGE(TDICT_NONE, TDICT_NONE, 1)
/** Inserts a new dimension of one element. */
#define TDICT_NEW_AXIS tdict_index_of(TDICT_INDEX_NEW_AXIS, 0, 0, 0, NULL)
/** Selects all dimensions of no other item, like Python's `...`. At most one in an index. */
#define TDICT_REST tdict_index_of(TDICT_INDEX_REST, 0, 0, 0, NULL)
/** Selects @p count positions of a dimension. @p data is an array of int64_t; negative positions count from the end. */
#define TDICT_LIST(data, count) tdict_index_of(TDICT_INDEX_LIST, (count), 0, 0, (data))
/** Selects elements like TDICT_LIST. @p tensor has one dimension of int64, in host memory or on a device. Do not write
 *  the list before the copies of the call are complete. */
#define TDICT_LIST_OF(tensor) tdict_index_of(TDICT_INDEX_LIST_OF, 0, 0, 0, (tensor))
/** Selects the elements for which a bool or uint8 tensor is not 0, in C order. A mask of n dimensions applies to n
 *  batch dimensions of its sizes, and one dimension replaces them. */
#define TDICT_MASK(tensor) tdict_index_of(TDICT_INDEX_MASK, 0, 0, 0, (tensor))

/** The maximum number of items of an index. */
#define TDICT_MAX_INDEX 16
/** An index: items that apply to the batch dimensions in order. Lists and masks are combined as in NumPy: the i-th
 *  positions of all together select element i. They have equal numbers of positions, or one, which is repeated. */
typedef struct tdict_indices {
  int32_t count; /**< Number of items. */
  tdict_index item[TDICT_MAX_INDEX];
} tdict_indices;
static inline tdict_indices tdict_indices_none(void) {
  tdict_indices all;
  memset(&all, 0, sizeof all);
  return all;
}
/** @brief Appends an item to an index. A program that builds one at run time begins with tdict_indices_none(). */
static inline void tdict_indices_add(tdict_indices *all, tdict_index next) {
  if (all->count < TDICT_MAX_INDEX) all->item[all->count] = next;
  all->count++;
}
/** Makes an index of one item or more: a `const tdict_indices *`. Use the macro as an argument. In C it is valid to the
 *  end of the block, and in C++ to the end of the expression. */
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
 *  Without lists and masks, the result consists of views that share storage with @p tree. With a list or a mask, it
 *  consists of copies. With `memory`, which must be host memory, all tensors are copies in one storage of this memory.
 *  @param[out] out  New tree, owned by the caller; written on success only.
 *  @return Also #TDICT_EINVAL: `memory` and `stream` are both set; #TDICT_EWRONGDEVICE: `memory` is on a device. */
TDICT_API TDICT_NODISCARD tdict_status tdict_index_get(tdict_context *context, const tdict_tree *tree,
                                                       const tdict_indices *index, const tdict_run *run,
                                                       tdict_tree **out, tdict_error *err);
/** @brief Reads elements like tdict_index_get() into the storages of @p dst, such as minibatches into one tree.
 *  Addresses of elements stay, and @p dst may be pinned or locked. All tensors are checked before the first is written.
 *  @param[in,out] dst  Has the keys of @p src, and the batch size, shapes and dtypes of the result.
 *  @return Also #TDICT_ENOTFOUND: a tree lacks a key of the other; #TDICT_ETYPE: entries differ in kind;
 *          #TDICT_ENOTSUP: a leaf that cannot be written in place, such as text; errors of tdict_tensor_copy(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_index_into(tdict_context *context, tdict_tree *dst, const tdict_tree *src,
                                                        const tdict_indices *index, const tdict_run *run,
                                                        tdict_error *err);
/** @brief Writes the elements of @p value to the elements that an index selects: `tree[index] = value`.
 *
 *  Keys and addresses stay. The batch size of @p value is that of tree[index], or its last dimensions; @p value is then
 *  repeated. Keys that @p value lacks are not written. A tree without keys first gets zeroed leaves like those of @p
 *  value. If a list names a position twice, the value that is last in @p value remains in host memory.
 *  @return The errors of tdict_index_into(); #TDICT_ELOCKED: @p tree has no keys and is locked. */
TDICT_API TDICT_NODISCARD tdict_status tdict_index_set(tdict_context *context, tdict_tree *tree,
                                                       const tdict_indices *index, const tdict_tree *value,
                                                       const tdict_run *run, tdict_error *err);
/** @brief Writes @p rows to consecutive rows of @p tree, from row @p first on, as tdict_index_set() does.
 *  A row is an element of the first batch dimension. A negative @p first counts from the end. If @p rows has fewer
 *  batch dimensions than @p tree, it is one row.
 *  @return Also #TDICT_EINVAL: @p tree has no batch dimension, or the rows do not fit. */
TDICT_API TDICT_NODISCARD tdict_status tdict_write_rows(tdict_tree *tree, int64_t first, const tdict_tree *rows,
                                                        tdict_error *err);

TDICT_END_DECLS
#endif
