/* Translates an index into a plan for the first dimensions of tensors. The caller owns the plan, and the plan owns its
 * lists of positions. Thread rule: one thread at a time uses a plan. */
#ifndef TDICT_CORE_OPS_INDEX_INDEX_PLAN_H
#define TDICT_CORE_OPS_INDEX_INDEX_PLAN_H

#include "core/ops/device/moves.h"
#include "core/sched/pool.h"
#include "tdict/index.h"

/* A list or mask: selects `count` positions in the dimensions [axis, axis + dims) of the affine result. */
typedef struct tdict_index_gather {
  int axis, dims;
  int64_t count, *positions;  /* `dims` numbers per position; NULL if the positions are only in `tensor` */
  const tdict_tensor *tensor; /* the positions on a device; NULL: none. Borrowed */
  bool is_unchecked;          /* true: the launch that reads `tensor` checks the positions */
  int dim;                    /* the first dimension that the list or mask indexes */
  int64_t size;               /* size of this dimension */
  /* true: no position is repeated. Set for masks, and for lists by tdict_index_plan_find_distinct() */
  bool is_distinct;
} tdict_index_gather;
/* The last move that the plan has added. A copy between tensors of the same layouts and memories differs from this
 * move in its addresses only. */
typedef struct tdict_index_move {
  size_t number; /* index of the move in the list of moves */
  bool is_set, writes_indexed;
  tdict_dtype dtype;
  int ndim, other_ndim;
  const tdict_memory *memory, *other_memory;
  uintptr_t offset; /* from the first element of the indexed tensor to the first element of the move, in bytes */
  int64_t layout[2 * TDICT_MAX_NDIM], other_layout[2 * TDICT_MAX_NDIM]; /* sizes, then strides */
} tdict_index_move;
typedef struct tdict_index_plan {
  const char *what;    /* moves->what */
  tdict_affine affine; /* the view that integers, ranges and new axes select; called the affine result below */
  /* All lists and masks together replace their dimensions by one dimension of `gather_count` elements. In the result,
   * the number of this dimension is gather_at. A list of one position is repeated. */
  int num_gathers, gather_at;
  int64_t gather_count;
  /* true: the index is one list or one-dimensional mask for the first dimension, and selects the other dimensions
   * whole. The elements of a position are then one row of the tensor. */
  bool selects_rows;
  tdict_index_gather gathers[TDICT_MAX_INDEX];
  /* The positions of the lists and masks. A mask has one list for each of its dimensions. Lists and masks of one
   * position are left out, because one position only changes the address of the first element. */
  tdict_move_lists lists;
  tdict_moves *moves; /* collects copies on devices; borrowed */
  tdict_index_move last;
  int ndim; /* ndim, shape: the shape that the indexed dimensions have in the result */
  int64_t shape[TDICT_MAX_NDIM];
} tdict_index_plan;

/* Makes the plan of an index for `ndim` dimensions of sizes `shape`. The copies of the plan become part of `moves`.
 * Reset the plan with tdict_index_plan_reset() if the call succeeds. Waits for the work that writes masks, and without
 * a stream also for the work that writes lists. Lists on devices are usually checked by tdict_moves_run() and
 * afterwards by tdict_index_plan_check_lists(). If a list must be checked before, waits for its check. Returns
 * TDICT_EINVAL for an invalid index, for a position outside its dimension, and for a mask or list whose bytes are lost.
 * Returns TDICT_EDTYPE or TDICT_ESHAPE for a mask or list of a wrong dtype or shape. Also returns TDICT_ESHAPE if lists
 * and masks have different numbers of positions. Returns TDICT_EOVERFLOW if a list has too many positions, and
 * TDICT_ENOMEM if memory is exhausted. Returns the errors of tdict_tensor_copy() and of launches for masks and lists on
 * a device. */
tdict_status tdict_index_plan_init(tdict_index_plan *plan, tdict_moves *moves, int ndim, const int64_t *shape,
                                   const tdict_indices *index, tdict_error *err);
void tdict_index_plan_reset(tdict_index_plan *plan);
/* Returns true if the positions of a list are only on a device. */
static inline bool tdict_index_plan_has_unread_lists(const tdict_index_plan *plan) {
  for (int n = 0; n < plan->num_gathers; n++)
    if (!plan->gathers[n].positions) return true;
  return false;
}
/* Copies the positions of all lists on devices to the host. After success, no `positions` is NULL. Returns
 * TDICT_ENOMEM, TDICT_EOVERFLOW if a list is too long, TDICT_EINVAL for a position outside its dimension, and the
 * errors of tdict_tensor_clone(). */
tdict_status tdict_index_plan_read_lists(tdict_index_plan *plan, tdict_error *err);
/* Checks the lists on devices that are not checked yet. Returns TDICT_EINVAL for a position outside its dimension and
 * for a list whose bytes are lost, and the errors of tdict_moves_check_list(). */
tdict_status tdict_index_plan_check_lists(const tdict_index_plan *plan, tdict_error *err);
/* Describes the result for tensor `t`: a view, or a new tensor if the index has lists or masks. Returns TDICT_EINVAL
 * for more than TDICT_MAX_NDIM dimensions. */
tdict_status tdict_index_plan_describe(const tdict_index_plan *plan, const tdict_tensor *t, tdict_made *made,
                                       tdict_error *err);
/* Waits for transfers that write `t`, unless the moves of `t` are queued on a stream. Returns TDICT_EINVAL if bytes of
 * a selected element are lost, or if `t` is unloaded. Also returns the errors of tdict_index_plan_read_lists(). */
tdict_status tdict_index_plan_check_not_lost(tdict_index_plan *plan, const tdict_tensor *t, tdict_error *err);

/* A copy uses at most one thread for each TDICT_INDEX_BYTES_PER_THREAD bytes: with fewer bytes, waking a thread takes
 * longer than the thread saves. Each position counts like TDICT_INDEX_POSITION_BYTES additional bytes. */
enum { TDICT_INDEX_BYTES_PER_THREAD = 1 << 20, TDICT_INDEX_POSITION_BYTES = 16 };
/* The threads that may help the calling thread to copy. */
typedef struct tdict_index_helpers {
  tdict_pool *pool; /* used if `count` is not 0 */
  int count;
} tdict_index_helpers;
/* Finds out whether lists repeat a position. If a list repeats a position, one thread writes the rows, unless
 * the selected elements of a position have 64 KiB or more: each thread then writes a range of the bytes of every
 * position. Does not examine lists whose positions are far apart, because this would take longer than the copy. Returns
 * TDICT_ENOMEM if memory is exhausted. */
tdict_status tdict_index_plan_find_distinct(tdict_index_plan *plan, tdict_error *err);
/* Copies between the selected elements of `t` and `other`. `other` has the shape of the selected elements. If
 * `writes_indexed` is true, copies from `other` to `t`, otherwise from `t` to `other`. If a launch can make the copy,
 * adds the copy to plan->moves, else copies at once. If lists repeat a position of `t` in host memory, `t` keeps the
 * elements that are last in `other`. The helpers take part only in large copies in host memory by lists or masks.
 * `helpers` may be NULL. Returns the errors of tdict_index_plan_check_not_lost(), tdict_index_plan_describe(),
 * tdict_moves_check_devices(), tdict_moves_copy() and tdict_moves_add_listed(). */
tdict_status tdict_index_plan_copy(tdict_index_plan *plan, const tdict_index_helpers *helpers, const tdict_tensor *t,
                                   const tdict_tensor *other, bool writes_indexed, tdict_error *err);

#endif
