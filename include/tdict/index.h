/* Indexing the batch dimensions of a tree: `td[2, :, None, 5:1:-1]` is
 *
 *   tdict_index_get(td, TDICT_INDEX(TDICT_AT(2), TDICT_ALL, TDICT_NEW_AXIS, TDICT_RANGE(5, 1, -1)), &out, err)
 *
 * Integers, ranges, new axes and the rest give views that share storage; lists of positions and masks give copies. Only
 * batch dimensions are indexed; what stands behind them stays, and so do the further batch dimensions of the trees
 * below.
 * Thread rule: reading is reading; writes to different elements of one tree may run on several threads at once, as long
 * as nobody changes its keys. */
#ifndef TDICT_INDEX_H
#define TDICT_INDEX_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** A bound of a range that is not given. */
#define TDICT_NONE INT64_MIN

enum tdict_index_kind {
  TDICT_INDEX_AT,
  TDICT_INDEX_RANGE,
  TDICT_INDEX_NEW_AXIS,
  TDICT_INDEX_REST,
  TDICT_INDEX_LIST,
  TDICT_INDEX_MASK
};
/** What is done with one dimension, made by the macros below. Pointers in it are borrowed. */
typedef struct tdict_index {
  int32_t kind; /**< a tdict_index_kind */
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
/** Element @p i of a dimension, which goes; negative counts from the end. */
#define TDICT_AT(i) tdict_index_of(TDICT_INDEX_AT, (i), 0, 0, NULL)
/** Elements from @p start up to, not including, @p stop in steps of @p step, by Python's rules: bounds are cut to the
 *  dimension, negative ones count from the end, TDICT_NONE is the end that the step comes from or goes to; a negative
 *  step goes back. */
#define TDICT_RANGE(start, stop, step) tdict_index_of(TDICT_INDEX_RANGE, (start), (stop), (step), NULL)
/** A whole dimension. */
#define TDICT_ALL TDICT_RANGE(TDICT_NONE, TDICT_NONE, 1)
/** A new dimension of one element. */
#define TDICT_NEW_AXIS tdict_index_of(TDICT_INDEX_NEW_AXIS, 0, 0, 0, NULL)
/** As many whole dimensions as are left: Python's `...`, at most once. */
#define TDICT_REST tdict_index_of(TDICT_INDEX_REST, 0, 0, 0, NULL)
/** The @p count elements of a dimension at the int64_t positions @p data, negative ones from the end. */
#define TDICT_LIST(data, count) tdict_index_of(TDICT_INDEX_LIST, (count), 0, 0, (data))
/** The elements where a bool tensor in host memory is not 0: its dimensions are those of as many batch dimensions,
 *  which become one. A mask whose bytes never came is #TDICT_EINVAL. */
#define TDICT_MASK(tensor) tdict_index_of(TDICT_INDEX_MASK, 0, 0, 0, (tensor))

#define TDICT_MAX_INDEX 16
/** An index: what is done with each dimension in turn. Lists and masks go along together, as NumPy's and PyTorch's:
 *  element i of the result is at position i of each, a mask counting as the positions that it names; all have as many
 *  positions, or one, which is used for all. */
typedef struct tdict_indices {
  int32_t count; /**< of what is in `item`; more than TDICT_MAX_INDEX is refused when it is used */
  tdict_index item[TDICT_MAX_INDEX];
} tdict_indices;
static inline tdict_indices tdict_indices_none(void) {
  tdict_indices all;
  memset(&all, 0, sizeof all);
  return all;
}
static inline tdict_indices tdict_indices_add(tdict_indices all, tdict_index next) {
  if (all.count < TDICT_MAX_INDEX) all.item[all.count] = next;
  all.count++;
  return all;
}
/** An index of one to eight items; tdict_indices_add() makes longer ones. */
#define TDICT_INDEX(...)                                                                                         \
  tdict_index_pick_(__VA_ARGS__, tdict_index_8_, tdict_index_7_, tdict_index_6_, tdict_index_5_, tdict_index_4_, \
                    tdict_index_3_, tdict_index_2_, tdict_index_1_, 0)(__VA_ARGS__)
#define tdict_index_pick_(a, b, c, d, e, f, g, h, name, ...) name
#define tdict_index_1_(a) tdict_indices_add(tdict_indices_none(), a)
#define tdict_index_2_(a, b) tdict_indices_add(tdict_index_1_(a), b)
#define tdict_index_3_(a, b, c) tdict_indices_add(tdict_index_2_(a, b), c)
#define tdict_index_4_(a, b, c, d) tdict_indices_add(tdict_index_3_(a, b, c), d)
#define tdict_index_5_(a, b, c, d, e) tdict_indices_add(tdict_index_4_(a, b, c, d), e)
#define tdict_index_6_(a, b, c, d, e, f) tdict_indices_add(tdict_index_5_(a, b, c, d, e), f)
#define tdict_index_7_(a, b, c, d, e, f, g) tdict_indices_add(tdict_index_6_(a, b, c, d, e, f), g)
#define tdict_index_8_(a, b, c, d, e, f, g, h) tdict_indices_add(tdict_index_7_(a, b, c, d, e, f, g), h)

/** @brief The elements that an index names, as a new unlocked tree with the keys of @p td; objects as tdict/object.h
 *  says.
 *
 *  Result: the batch dimensions as Python's index rules give them; dimensions that the index does not reach stay whole.
 *  The one dimension of all lists and masks comes where the first dimension that they take was when they stand side by
 *  side (integers do not count), and first when a range, rest or new axis stands between them. Views: one allocation
 *  for all tensors, whatever their number, and one for each node.
 *  Cost: O(tensors + nodes), no element is touched; with lists and masks the bytes of the result are copied, in
 *  O(positions) pieces a tensor at least, into one storage.
 *  @return #TDICT_OK; #TDICT_EINVAL the tree has no batch dimension, more items than it has dimensions, two rests, step
 *          0, or a position outside its dimension; #TDICT_ESHAPE, #TDICT_EDTYPE a mask of other counts or not of bool,
 *          #TDICT_ESHAPE lists and masks of different numbers of positions, or a child no longer agrees (see
 *          tdict/tree.h); #TDICT_EWRONGDEVICE a mask that is not on the host; #TDICT_ENOTSUP a list or mask of a tree
 *          with tensors on a device; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_index_get(const tdict_tree *td, tdict_indices index, tdict_tree **out,
                                                       tdict_error *err);
/** @brief As tdict_index_get(), into the storage of @p out: addresses stay, and @p out may be pinned or locked. Use it
 *  to draw many minibatches into one tree.
 *  @param[in,out] out  has the keys of @p td, and the batch size, shapes and element types of the result. Its elements
 *                      are unspecified where they overlap those of @p td.
 *  Cost: O(tensors + nodes), twice, since all is checked first, and the bytes of the result. Nothing is allocated but
 *  for lists, masks and objects.
 *  @return as tdict_index_get(); #TDICT_ENOTFOUND a key that one of the two lacks; #TDICT_ETYPE a tensor meets a tree;
 *          #TDICT_ESHAPE, #TDICT_EDTYPE, #TDICT_EREADONLY, #TDICT_EWRONGDEVICE as tdict_tensor_copy(); all before the
 *          first element is written. */
TDICT_API TDICT_NODISCARD tdict_status tdict_index_get_into(const tdict_tree *td, tdict_indices index, tdict_tree *out,
                                                            tdict_error *err);
/** @brief Writes the elements of @p value to the elements that an index names: `td[index] = value`. Addresses and keys
 *  stay. The batch size of @p value is that of td[index], or its last dimensions, and is repeated for the others. Lists
 *  and masks name their elements one by one; of a position named twice the last counts. Keys that @p value lacks stay
 *  as they are. Objects are written as their tensors. When @p td holds no key at all, zeroed tensors and objects for
 *  all of @p td are made first. Allowed when locked, unless they have to be made.
 *  Cost: O(tensors of @p value), twice, since all is looked at first, and the bytes that are written; nothing is
 *  allocated but for lists, masks, objects and preallocation.
 *  @return as tdict_index_get(); #TDICT_ENOTFOUND @p td lacks a key of @p value; #TDICT_ETYPE a tensor meets a tree;
 *          #TDICT_ESHAPE, #TDICT_EDTYPE they differ; #TDICT_EREADONLY, #TDICT_EWRONGDEVICE as tdict_tensor_copy(), all
 *          before the first element is written. */
TDICT_API TDICT_NODISCARD tdict_status tdict_index_set(tdict_tree *td, tdict_indices index, const tdict_tree *value,
                                                       tdict_error *err);

/** @brief Writes @p row, which has the batch size of td[i], to row @p i: the way to build a batch. Several threads may
 *  write different rows at once, once the tensors are there. As tdict_index_set(). Cost: the bytes of the row, and
 *  O(tensors). */
TDICT_API TDICT_NODISCARD tdict_status tdict_write_row(tdict_tree *td, int64_t i, const tdict_tree *row,
                                                       tdict_error *err);
/** @brief Writes all rows of @p rows from row @p first on; as tdict_index_set(); #TDICT_EINVAL they do not fit. Cost:
 *  the bytes of the rows, and O(tensors). */
TDICT_API TDICT_NODISCARD tdict_status tdict_write_rows(tdict_tree *td, int64_t first, const tdict_tree *rows,
                                                        tdict_error *err);

TDICT_END_DECLS
#endif
