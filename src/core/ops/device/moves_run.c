/* Makes the moves of moves.c, a launch for each memory, and checks lists on devices. See moves.h for threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/kernel/work.h"
#include "core/ops/device/moves.h"
#include "core/tensor/convert_tensor.h"
#include "core/tensor/element.h"
#include "core/tree/pointers.h"

/* Limits of launches that check positions and copy. MOST_GUARDED: positions, which each block checks. MOST_CHECKS:
 * positions that all blocks check together, estimated to take 5 us on an H200. BLOCK_BYTES: bytes of a block with units
 * of 4 bytes. MOST_WAITED_BYTES: on a stream, the call waits for the copy of at most these bytes, estimated to take
 * 30 us on an H200. */
enum { MOST_GUARDED = 4096, MOST_CHECKS = 4 << 20, BLOCK_BYTES = 4096, MOST_WAITED_BYTES = 64 << 20 };

/* If no move has a dimension, there is no array of numbers. The function then returns another address, because callers
 * add to the address, and adding to NULL is undefined. */
static const int64_t *shape_of(const tdict_moves *all, const tdict_move *m) {
  static const int64_t none[1] = {0};
  return all->numbers ? all->numbers + m->numbers : none;
}
static const int64_t *strides_of(const tdict_moves *all, const tdict_move *m, bool of_dst) {
  return shape_of(all, m) + (of_dst ? 1 : 2) * m->ndim;
}
static const int64_t *list_strides_of(const tdict_moves *all, const tdict_move *m) {
  return shape_of(all, m) + 3 * m->ndim;
}

/* The storages of the moves of one memory, each once: the written ones first, then those that are only read. */
typedef struct storage_list {
  tdict_storage **storages; /* the array is owned, the storages are borrowed */
  size_t num_written, count;
} storage_list;

/* Lists the storages. The caller frees the array, also after the error TDICT_ENOMEM. */
static tdict_status find_storages(const tdict_moves *all, const tdict_memory *memory, storage_list *list) {
  tdict_pointers visited;
  tdict_storage *last = NULL; /* often also the storage of the next move */
  int added = 1;
  tdict_pointers_init(&visited);
  *list = (storage_list){.storages = malloc(2 * all->count * sizeof *list->storages)};
  if (!list->storages) added = -1;
  for (int reads = 0; reads < 2; reads++) {
    for (size_t i = 0; i < all->count && added >= 0; i++) {
      const tdict_move *m = &all->moves[i];
      tdict_storage *s = reads ? m->src : m->dst;
      if (!s || s == last || m->memory != memory) continue;
      added = tdict_pointers_add(&visited, last = s, NULL);
      if (added > 0) list->storages[list->count++] = s;
    }
    if (!reads) list->num_written = list->count;
  }
  tdict_pointers_reset(&visited);
  return added >= 0 ? TDICT_OK : TDICT_ENOMEM;
}

typedef struct launch {
  tdict_moves *all;
  tdict_memory *memory;
  tdict_kernel_work work;
  bool needs_kernel; /* true: copies and fills of the driver cannot make the moves */
  bool has_lists;    /* true: `lists` is filled */
  tdict_kernel_list lists[TDICT_KERNEL_MAX_LISTS];
} launch;

/* Adds all lists to the work: copies of positions on the host, references to those only on a device. */
static tdict_status add_lists(launch *l, tdict_error *err) {
  const tdict_move_lists *lists = l->all->lists;
  tdict_status status = TDICT_OK;
  int64_t *adjacent = malloc((size_t)lists->num_positions * sizeof *adjacent);
  if (!adjacent) return tdict_fail_memory(err, l->all->what, NULL, "positions");
  for (int k = 0; k < lists->count && status == TDICT_OK; k++) {
    const tdict_move_list *list = &lists->list[k];
    l->lists[k].size = list->size;
    if (!list->positions) {
      l->lists[k].positions = tdict_kernel_positions_at(list->tensor->data);
      continue;
    }
    for (int64_t i = 0; i < lists->num_positions; i++) adjacent[i] = list->positions[i * list->step];
    status = tdict_kernel_add_positions(&l->work, adjacent, lists->num_positions, &l->lists[k].positions, err);
  }
  free(adjacent);
  l->has_lists = status == TDICT_OK;
  return status;
}

/* Returns the bytes that all lists add to the indexed side's address at index `i` of the listed dimension. */
static int64_t find_offset(const tdict_moves *all, const tdict_move *m, int64_t i) {
  const int64_t *strides = list_strides_of(all, m);
  uint64_t offset = 0;
  for (int k = 0; k < all->lists->count; k++)
    offset += (uint64_t)all->lists->list[k].positions[i * all->lists->list[k].step] * (uint64_t)strides[k];
  return (int64_t)(offset * tdict_dtype_bytes(m->dtype));
}

/* Copies the offsets of a move into the work as one list, because a move can have only a few lists. */
static tdict_status add_offsets(launch *l, const tdict_move *m, tdict_error *err) {
  const int64_t count = l->all->lists->num_positions;
  int64_t *offsets = malloc((size_t)count * sizeof *offsets);
  if (!offsets) return tdict_fail_memory(err, l->all->what, NULL, "positions");
  for (int64_t i = 0; i < count; i++) offsets[i] = find_offset(l->all, m, i);
  l->lists[0] = (tdict_kernel_list){.stride = 1, .size = 0};
  tdict_status status = tdict_kernel_add_positions(&l->work, offsets, count, &l->lists[0].positions, err);
  free(offsets);
  return status;
}

/* Returns true if positions of a list are unchecked. */
static bool has_unchecked(const tdict_moves *all) {
  for (int k = 0; all->lists && k < all->lists->count && !all->has_checked_lists; k++)
    if (!all->lists->list[k].positions && all->lists->list[k].is_unchecked) return true;
  return false;
}

/* Finds the lists of a move. */
static tdict_status find_lists(launch *l, const tdict_move *m, tdict_kernel_move *out, tdict_error *err) {
  const int count = l->all->lists->count;
  tdict_status status = TDICT_OK;
  out->listed = m->listed;
  out->scatter = m->scatter;
  out->lists = l->lists;
  out->num_lists = count <= TDICT_KERNEL_MAX_LISTS ? count : 1;
  if (count > TDICT_KERNEL_MAX_LISTS) return add_offsets(l, m, err);
  if (!l->has_lists) status = add_lists(l, err);
  out->is_checked = has_unchecked(l->all);
  out->is_guarded = out->is_checked && l->all->checks_first;
  for (int k = 0; k < count; k++)
    l->lists[k].stride = (int64_t)((uint64_t)list_strides_of(l->all, m)[k] * tdict_dtype_bytes(m->dtype));
  return status;
}

static void multiply_all(const int64_t *strides, int count, size_t item, int64_t *out) {
  for (int d = 0; d < count; d++) out[d] = (int64_t)((uint64_t)strides[d] * item);
}

/* Returns true only if two copies or two fills of one operation differ in nothing but their addresses. */
static bool is_alike(const tdict_moves *all, const tdict_move *a, const tdict_move *b) {
  const size_t num_lists = a->listed >= 0 ? (size_t)all->lists->count : 0, count = 3 * (size_t)a->ndim + num_lists;
  return a->op != TDICT_KERNEL_CONVERT && a->dtype == b->dtype && a->ndim == b->ndim && a->listed == b->listed &&
         a->scatter == b->scatter && memcmp(a->element, b->element, sizeof a->element) == 0 &&
         (a->numbers == b->numbers || memcmp(shape_of(all, a), shape_of(all, b), count * sizeof(int64_t)) == 0);
}

/* Adds a move to the work, with a new layout. */
static tdict_status add_layout(launch *l, const tdict_move *m, tdict_error *err) {
  int64_t dst_strides[TDICT_MAX_NDIM], src_strides[TDICT_MAX_NDIM];
  const size_t item = tdict_dtype_bytes(m->dtype);
  tdict_kernel_move move = {.dst = m->dst_data,
                            .src = m->src_data,
                            .ndim = m->ndim,
                            .shape = shape_of(l->all, m),
                            .dst_strides = dst_strides,
                            .src_strides = src_strides,
                            .item_bytes = item};
  tdict_status status = TDICT_OK;
  multiply_all(strides_of(l->all, m, true), m->ndim, item, dst_strides);
  multiply_all(strides_of(l->all, m, false), m->ndim, tdict_dtype_bytes(m->src_dtype), src_strides);
  if (m->op == TDICT_KERNEL_FILL) return tdict_kernel_add_fill(&l->work, &move, m->element, err);
  if (m->op == TDICT_KERNEL_CONVERT)
    return tdict_kernel_add_convert(&l->work, &move, &(tdict_cast){.to = m->dtype, .from = m->src_dtype}, err);
  if (m->listed >= 0) status = find_lists(l, m, &move, err);
  return status == TDICT_OK ? tdict_kernel_add_copy(&l->work, &move, err) : status;
}

/* Adds a move to the work. `last` is the previously added move, or NULL. */
static tdict_status add_move(launch *l, const tdict_move *m, const tdict_move *last, tdict_error *err) {
  bool is_added = false;
  tdict_status status = TDICT_OK;
  if (last && (m->repeats || is_alike(l->all, last, m)))
    status = tdict_kernel_repeat(&l->work, m->dst_data, m->src_data, &is_added, err);
  return status != TDICT_OK || is_added ? status : add_layout(l, m, err);
}

static tdict_tensor *view_side(const tdict_moves *all, const tdict_move *m, bool of_dst, tdict_temp *temp) {
  tdict_made made = {.ndim = m->ndim, .data = of_dst ? m->dst_data : (void *)(uintptr_t)m->src_data};
  const tdict_tensor over = {.storage = of_dst ? m->dst : m->src, .dtype = of_dst ? m->dtype : m->src_dtype};
  memcpy(made.shape, shape_of(all, m), (size_t)m->ndim * sizeof *made.shape);
  memcpy(made.strides, strides_of(all, m, of_dst), (size_t)m->ndim * sizeof *made.strides);
  return tdict_temp_over(temp, &over, &made);
}

/* Makes the moves of a memory by copies and fills of its driver, because the driver cannot compile kernels. */
static tdict_status copy_each(const launch *l, tdict_error *err) {
  tdict_temp dst, src;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < l->all->count && status == TDICT_OK; i++) {
    const tdict_move *m = &l->all->moves[i];
    if (m->memory != l->memory) continue;
    tdict_tensor *to = view_side(l->all, m, true, &dst);
    if (m->op == TDICT_KERNEL_FILL)
      status = tdict_element_check(l->all->what, to, m->element, err);
    else
      status = tdict_tensor_copy(to, view_side(l->all, m, false, &src), err);
    if (status == TDICT_OK && m->op == TDICT_KERNEL_FILL) status = tdict_element_fill(to, m->element, err);
  }
  return status;
}

/* The error does not name the position, because only the caller of tdict_moves_run() knows the dimensions. */
static tdict_status fail_position(const tdict_moves *all, tdict_error *err) {
  return tdict_fail(err, TDICT_EINVAL, "%s: a position is outside its dimension", all->what);
}

/* Fails if the launch has found a bad position of a list. */
static tdict_status check_positions(const launch *l, tdict_error *err) {
  for (size_t i = 0; i < l->work.num_entries; i++)
    if (l->work.results[i] != TDICT_KERNEL_NO_RESULT) l->all->found_bad_position = true;
  l->all->has_checked_lists = !l->all->found_bad_position;
  return l->all->found_bad_position ? fail_position(l->all, err) : TDICT_OK;
}

/* Fails if an integer dtype cannot hold an element, or if a position is bad. */
static tdict_status check_results(const launch *l, tdict_error *err) {
  size_t n = 0;
  if (l->work.has_results && l->work.op == TDICT_KERNEL_COPY) return check_positions(l, err);
  for (size_t i = 0; i < l->all->count && l->work.has_results; i++) {
    const tdict_move *m = &l->all->moves[i];
    if (m->memory != l->memory) continue;
    const uint64_t at = l->work.results[n++];
    if (at == TDICT_KERNEL_NO_RESULT) continue;
    tdict_temp temp;
    unsigned char element[TDICT_MOVE_FILL_BYTES];
    const tdict_tensor *src = view_side(l->all, m, false, &temp);
    const int64_t offset = tdict_convert_offset(src, (size_t)at);
    const tdict_rect one = {.dst = element,
                            .src = (const void *)((uintptr_t)src->data + (uintptr_t)offset),
                            .width = tdict_dtype_bytes(src->dtype),
                            .height = 1};
    l->all->failed_entry = m->entry;
    l->all->has_failed_entry = true;
    tdict_status status = l->memory->ops->copy(l->memory, &one, TDICT_COPY_OUT, err);
    return status == TDICT_OK ? tdict_convert_overflow(l->all->what, m->dtype, src, (size_t)at, element, err) : status;
  }
  return TDICT_OK;
}

static tdict_status build_work(launch *l, tdict_error *err) {
  const tdict_move *last = NULL;
  tdict_kernel_work_init(&l->work, l->all->moves[0].op);
  tdict_status status = tdict_kernel_work_reserve(&l->work, l->all->count, err);
  for (size_t i = 0; i < l->all->count && status == TDICT_OK; i++) {
    const tdict_move *m = &l->all->moves[i];
    if (m->memory != l->memory) continue;
    l->needs_kernel = l->needs_kernel || m->listed >= 0 || m->op == TDICT_KERNEL_CONVERT;
    status = add_move(l, m, last, err);
    last = m;
  }
  return status;
}

/* Returns true if one launch makes all moves, and the moves are copies without lists that the call waits for. */
static bool can_build(const tdict_moves *all) {
  for (size_t i = 0; i < all->count; i++) {
    const tdict_move *m = &all->moves[i];
    if (m->memory != all->moves[0].memory || m->op != TDICT_KERNEL_COPY || m->listed >= 0) return false;
  }
  return all->count > 0 && !all->stream;
}

static void discard_built(tdict_moves *moves) {
  tdict_kernel_work_reset(&moves->built);
  moves->num_built = 0;
}

tdict_status tdict_moves_build(tdict_moves *moves, tdict_error *err) {
  discard_built(moves);
  if (!can_build(moves)) return TDICT_OK;
  launch l = {.all = moves, .memory = moves->moves[0].memory};
  tdict_status status = build_work(&l, err);
  if (status == TDICT_OK) {
    moves->built = l.work;
    moves->num_built = moves->count;
  } else {
    tdict_kernel_work_reset(&l.work);
  }
  return status;
}

/* Takes the built work if it has all moves, or builds the work. */
static tdict_status take_work(launch *l, tdict_error *err) {
  tdict_moves *all = l->all;
  if (all->num_built != all->count) {
    discard_built(all);
    return build_work(l, err);
  }
  l->work = all->built;
  all->built = (tdict_kernel_work){0};
  all->num_built = 0;
  return TDICT_OK;
}

/* Launches the moves of one memory. `order` is NULL if the call waits. */
static tdict_status launch_memory(launch *l, tdict_run_order *order, tdict_error *err) {
  tdict_status status = take_work(l, err);
  if (status == TDICT_OK) {
    tdict_error cause;
    status = l->memory->ops->run(l->memory, &l->work, order, &cause);
    if (status == TDICT_ENOTSUP && !order && !l->needs_kernel)
      status = copy_each(l, err);
    else if (status != TDICT_OK && err)
      *err = cause;
    if (status == TDICT_OK) status = check_results(l, err);
  }
  tdict_kernel_work_reset(&l->work);
  return status;
}

/* Adds the use of a launch to its storages, once to each storage. The launch runs after the fences of `after`. If
 * memory is exhausted, waits for the use instead. */
static void attach_use(const tdict_moves *all, const tdict_memory *memory, tdict_fence *use,
                       const tdict_fences *after) {
  storage_list list;
  tdict_status status = find_storages(all, memory, &list);
  if (status == TDICT_OK)
    status = tdict_storage_add_all(list.storages, list.num_written, use, TDICT_USE_WRITES, after, NULL);
  if (status == TDICT_OK)
    status = tdict_storage_add_all(list.storages + list.num_written, list.count - list.num_written, use,
                                   TDICT_USE_READS, after, NULL);
  free(list.storages);
  for (int k = 0; all->lists && k < all->lists->count && status == TDICT_OK; k++)
    if (!all->lists->list[k].positions)
      status = tdict_storage_add(all->lists->list[k].tensor->storage, use, TDICT_USE_READS, NULL);
  if (status != TDICT_OK) use->ops->wait(use, INT64_MAX);
}

/* Removes the bytes that a move writes from the lost bytes. */
static void regain(const tdict_moves *all, const tdict_move *m) {
  tdict_temp temp, row;
  tdict_made at;
  const tdict_tensor *dst = view_side(all, m, true, &temp);
  if (m->listed < 0 || !m->scatter) {
    tdict_tensor_regain(dst);
    return;
  }
  /* Bytes that were lost after the move was added stay lost if the positions are only on the device. */
  for (int k = 0; k < all->lists->count; k++)
    if (!all->lists->list[k].positions) return;
  for (int64_t i = 0; i < all->lists->num_positions; i++) {
    tdict_made_of(dst, &at);
    tdict_made_select(&at, m->listed, 0, tdict_dtype_bytes(m->dtype));
    at.data = (void *)((uintptr_t)at.data + (uintptr_t)find_offset(all, m, i));
    tdict_tensor_regain(tdict_temp_over(&row, dst, &at));
  }
}

/* Returns true if an earlier move has the memory of move `i`. */
static bool is_launched(const tdict_moves *all, size_t i) {
  for (size_t k = 0; k < i; k++)
    if (all->moves[k].memory == all->moves[i].memory) return true;
  return false;
}

/* Queues the moves of one memory on the stream. */
static tdict_status queue_memory(launch *l, tdict_error *err) {
  tdict_moves *all = l->all;
  tdict_fences before = {0};
  const tdict_storage *last_dst = NULL, *last_src = NULL; /* often also the storages of the next move */
  for (size_t i = 0; i < all->count; i++) {
    const tdict_move *m = &all->moves[i];
    if (m->memory != l->memory) continue;
    if (m->dst != last_dst) tdict_storage_collect(m->dst, true, &before);
    if (m->src && m->src != last_src) tdict_storage_collect(m->src, false, &before);
    last_dst = m->dst;
    last_src = m->src;
  }
  for (int k = 0; all->lists && k < all->lists->count; k++)
    if (!all->lists->list[k].positions) tdict_storage_collect(all->lists->list[k].tensor->storage, false, &before);
  tdict_run_order order = {.what = all->what, .stream = *all->stream, .after = &before};
  tdict_status status = launch_memory(l, &order, err);
  if (status == TDICT_OK && order.use) { /* without a use, the launch is done */
    if (all->waits_for_copies)
      order.use->ops->wait(order.use, INT64_MAX);
    else
      attach_use(all, l->memory, order.use, &before);
    order.use->ops->release(order.use);
  }
  tdict_fences_reset(&before);
  return status;
}

/* Returns the number of bytes that a move writes. */
static uint64_t bytes_of(const tdict_moves *all, const tdict_move *m) {
  uint64_t bytes = tdict_dtype_bytes(m->dtype);
  for (int d = 0; d < m->ndim; d++) bytes *= (uint64_t)shape_of(all, m)[d];
  return bytes;
}

/* Returns the number of bytes that all moves write. */
static uint64_t bytes_of_all(const tdict_moves *all) {
  uint64_t bytes = 0, more = 0;
  for (size_t i = 0; i < all->count; i++) {
    if (!all->moves[i].repeats) more = bytes_of(all, &all->moves[i]);
    bytes += more;
  }
  return bytes;
}

/* Returns true if a move writes the storage of a list on a device. */
static bool writes_a_list(const tdict_moves *all) {
  for (size_t i = 0; i < all->count; i++)
    for (int k = 0; k < all->lists->count; k++)
      if (!all->lists->list[k].positions && all->lists->list[k].tensor->storage == all->moves[i].dst) return true;
  return false;
}

/* Returns true if the launches that copy `bytes` bytes can also check the positions: if no launch changes the lists,
 * and if this is faster than launches that only check. Every block of a copy that must write nothing checks all
 * positions. On a stream, the call waits for launches that check. */
static bool can_check_while_copying(const tdict_moves *all, uint64_t bytes) {
  if (!all->checks_first && !all->stream) return true;
  if (writes_a_list(all)) return false;
  const uint64_t positions = (uint64_t)all->lists->num_positions, blocks = bytes / BLOCK_BYTES + all->count;
  if (all->checks_first && (positions > MOST_GUARDED || positions * blocks > MOST_CHECKS)) return false;
  return !all->stream || bytes <= MOST_WAITED_BYTES;
}

/* Checks the unchecked lists by launches of their own, if the launches of the moves cannot check them. */
static tdict_status check_lists_first(tdict_moves *moves, tdict_error *err) {
  tdict_status status = TDICT_OK;
  int64_t bad = -1;
  if (moves->count == 0 || !has_unchecked(moves)) return TDICT_OK;
  const uint64_t bytes = bytes_of_all(moves);
  if (can_check_while_copying(moves, bytes)) return TDICT_OK;
  for (int k = 0; k < moves->lists->count && status == TDICT_OK && bad < 0; k++) {
    const tdict_move_list *list = &moves->lists->list[k];
    if (!list->positions && list->is_unchecked)
      status = tdict_moves_check_list(moves, list->tensor, list->size, &bad, err);
  }
  moves->found_bad_position = bad >= 0;
  moves->has_checked_lists = status == TDICT_OK && bad < 0;
  moves->waits_for_copies = bytes <= MOST_WAITED_BYTES;
  return bad >= 0 ? fail_position(moves, err) : status;
}

tdict_status tdict_moves_run(tdict_moves *moves, tdict_error *err) {
  tdict_status status = check_lists_first(moves, err);
  tdict_memory *last = NULL;
  for (size_t i = 0; i < moves->count && status == TDICT_OK; i++) {
    tdict_memory *memory = moves->moves[i].memory;
    if (memory == last || is_launched(moves, i)) continue;
    launch l = {.all = moves, .memory = last = memory};
    status = moves->stream ? queue_memory(&l, err) : launch_memory(&l, NULL, err);
  }
  for (size_t i = 0; i < moves->count && status == TDICT_OK; i++)
    if (tdict_storage_has_lost(moves->moves[i].dst)) regain(moves, &moves->moves[i]);
  discard_built(moves);
  moves->count = moves->num_numbers = 0;
  return status;
}

/* Runs a work of the memory of `t` after the work that writes `t`. On a stream, waits for all work on the stream. */
static tdict_status run_after(const tdict_moves *moves, const tdict_tensor *t, tdict_kernel_work *work,
                              tdict_error *err) {
  tdict_memory *memory = t->storage->memory;
  if (!moves->stream) {
    tdict_tensor_await(t, false);
    return memory->ops->run(memory, work, NULL, err);
  }
  tdict_fences before = {0};
  tdict_storage_each_before(t->storage, false, tdict_fences_add, &before);
  tdict_run_order order = {.what = moves->what, .stream = *moves->stream, .after = &before};
  tdict_status status = memory->ops->run(memory, work, &order, err);
  if (status == TDICT_OK) {
    if (order.use) {
      order.use->ops->wait(order.use, INT64_MAX);
      order.use->ops->release(order.use);
    }
  }
  tdict_fences_reset(&before);
  return status;
}

tdict_status tdict_moves_await_source(const tdict_moves *moves, const tdict_tensor *t, tdict_error *err) {
  const tdict_memory *memory = t->storage->memory;
  tdict_kernel_work nothing;
  if (!moves->stream || !memory || !memory->ops->run || !tdict_device_equal(memory->device, moves->stream->device)) {
    tdict_tensor_await(t, false);
    return TDICT_OK;
  }
  tdict_kernel_work_init(&nothing, TDICT_KERNEL_COPY);
  tdict_status status = run_after(moves, t, &nothing, err);
  tdict_kernel_work_reset(&nothing);
  return status;
}

bool tdict_moves_take_list(const tdict_tensor *list) {
  const tdict_memory *memory = list->storage->memory;
  return memory && memory->ops->run && tdict_tensor_is_contiguous(list) && (uintptr_t)list->data % sizeof(int64_t) == 0;
}

tdict_status tdict_moves_check_list(const tdict_moves *moves, const tdict_tensor *list, int64_t size, int64_t *bad,
                                    tdict_error *err) {
  tdict_kernel_work work;
  tdict_kernel_work_init(&work, TDICT_KERNEL_CHECK);
  tdict_status status = tdict_kernel_add_check(&work, tdict_kernel_positions_at(list->data), list->numel, size, err);
  if (status == TDICT_OK) status = run_after(moves, list, &work, err);
  if (status == TDICT_OK) *bad = work.results[0] == TDICT_KERNEL_NO_RESULT ? -1 : (int64_t)work.results[0];
  tdict_kernel_work_reset(&work);
  return status;
}
