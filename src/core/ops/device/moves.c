/* Collects moves. See moves.h for ownership and threads. */
#include "core/ops/device/moves.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/ops/check_copy.h"
#include "core/tensor/convert_tensor.h"
#include "core/tensor/element.h"
#include "core/tensor/layout.h"
#include "core/tree/objects.h"

enum { FIRST_MOVES = 16, FIRST_NUMBERS = 256 };

void tdict_moves_reset(tdict_moves *moves) {
  free(moves->moves);
  free(moves->numbers);
  tdict_kernel_work_reset(&moves->built);
  moves->num_built = 0;
  moves->moves = NULL;
  moves->numbers = NULL;
  moves->count = moves->cap = moves->num_numbers = moves->cap_numbers = 0;
}

static bool can_run(const tdict_memory *m) { return m && m->ops->run; }

/* Returns the memory whose launches can copy between two tensors on devices, or NULL. */
static tdict_memory *find_runner_of(const tdict_storage *dst, const tdict_storage *src) {
  tdict_memory *to = dst->memory, *from = src->memory;
  if (dst->device.type == TDICT_DEVICE_CPU || src->device.type == TDICT_DEVICE_CPU ||
      !tdict_storage_devices_equal(dst, src))
    return NULL;
  tdict_memory *runner = can_run(to) ? to : can_run(from) ? from : NULL;
  if (!runner || !to || !from || to == from) return runner;
  return runner->ops->reaches(runner, runner == to ? from : to) ? runner : NULL;
}

static tdict_memory *find_runner(const tdict_tensor *dst, const tdict_tensor *src) {
  return find_runner_of(dst->storage, src->storage);
}

bool tdict_moves_can_launch(const tdict_storage *dst, const tdict_storage *src) {
  return find_runner_of(dst, src) != NULL;
}

/* Checks that a copy can be queued on the stream, or needs no stream, because both tensors are in host memory. */
static tdict_status check_stream(const tdict_moves *moves, const char *what, const tdict_tensor *dst,
                                 const tdict_tensor *src, tdict_error *err) {
  if (tdict_is_on_host(dst) && tdict_is_on_host(src)) return TDICT_OK;
  const tdict_memory *runner = find_runner(dst, src);
  if (!runner)
    return tdict_fail(err, TDICT_ENOTSUP,
                      "%s: from %s to %s; on a stream, both tensors must be in memory of one context's device", what,
                      TDICT_DEVICE_TEXT(src->storage->device), TDICT_DEVICE_TEXT(dst->storage->device));
  if (tdict_device_equal(runner->device, moves->stream->device)) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s, but the stream belongs to %s", what,
                    TDICT_DEVICE_TEXT(runner->device), TDICT_DEVICE_TEXT(moves->stream->device));
}

tdict_status tdict_moves_check_devices(const tdict_moves *moves, const char *what, const tdict_tensor *dst,
                                       const tdict_tensor *src, tdict_error *err) {
  tdict_status status = tdict_tensor_check_copy(what, dst, src, err);
  return status == TDICT_OK && moves && moves->stream ? check_stream(moves, what, dst, src, err) : status;
}

tdict_status tdict_moves_check_copy(const tdict_moves *moves, const char *what, const tdict_tensor *dst,
                                    const tdict_tensor *src, tdict_error *err) {
  if (!moves || !moves->stream) return tdict_check_copy(what, dst, src, err);
  tdict_status status = tdict_moves_check_devices(moves, what, dst, src, err);
  if (status == TDICT_OK && !tdict_moves_are_queued(moves, src)) tdict_tensor_await(src, false);
  if (status == TDICT_OK && tdict_tensor_is_lost(src))
    status = tdict_tensor_refuse_lost(what, "the source's bytes", src, err);
  return status;
}

tdict_status tdict_moves_check_objects(const tdict_moves *moves, const tdict_tree *tree, tdict_error *err) {
  if (!moves || !moves->stream) return TDICT_OK;
  if (moves->stream->device.type == TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the stream belongs to the cpu, wanted a stream of a GPU",
                      moves->what);
  return tdict_objects_refuse(moves->what, tree, true, NULL, "; on a stream, only tensors are supported", err);
}

static __attribute__((noinline)) tdict_status grow(tdict_moves *m, size_t numbers, tdict_error *err) {
  const size_t wanted = m->num_numbers + numbers;
  if ((m->count < m->cap || tdict_array_grow(&m->moves, &m->cap, 4 * m->cap + FIRST_MOVES, sizeof *m->moves)) &&
      (wanted <= m->cap_numbers ||
       tdict_array_grow(&m->numbers, &m->cap_numbers, 4 * wanted + FIRST_NUMBERS, sizeof *m->numbers)))
    return TDICT_OK;
  return tdict_fail(err, TDICT_ENOMEM, "%s: no memory for the list of copies", m->what);
}

/* Makes room for one more move with `numbers` numbers. */
static inline tdict_status reserve(tdict_moves *m, size_t numbers, tdict_error *err) {
  return m->count < m->cap && m->num_numbers + numbers <= m->cap_numbers ? TDICT_OK : grow(m, numbers, err);
}

static void add_numbers(tdict_moves *m, const int64_t *numbers, int count) {
  if (count > 0) memcpy(m->numbers + m->num_numbers, numbers, (size_t)count * sizeof *numbers);
  m->num_numbers += (size_t)count;
}

/* Returns true if a move between two tensors differs from the move `last` in its tensors only. */
static inline bool is_repeated(const tdict_moves *moves, const tdict_move *last, tdict_kernel_op op,
                               const tdict_tensor *dst, const tdict_tensor *src, const tdict_memory *runner) {
  const int ndim = dst->ndim;
  if (last->op != op || last->memory != runner || last->dtype != dst->dtype || last->src_dtype != src->dtype ||
      last->ndim != ndim || last->listed >= 0)
    return false;
  if (ndim == 0) return true;
  const int64_t *numbers = moves->numbers + last->numbers; /* the sizes and the strides of a tensor are adjacent */
  return tdict_sizes_equal(numbers, dst->dims, 2 * ndim) &&
         tdict_sizes_equal(numbers + 2 * ndim, tdict_tensor_dims_strides(src), ndim);
}

/* Adds a move between two tensors of equal shape. A fill has no source, so both tensors are the same. */
static inline tdict_status add_pair(tdict_moves *moves, const tdict_tensor *dst, const tdict_tensor *src,
                                    tdict_kernel_op op, tdict_memory *runner, tdict_error *err) {
  tdict_status status = reserve(moves, 3 * (size_t)dst->ndim, err);
  if (status != TDICT_OK) return status;
  tdict_move *m = &moves->moves[moves->count];
  if (moves->count > 0 && is_repeated(moves, m - 1, op, dst, src, runner)) {
    *m = m[-1];
    m->repeats = true;
  } else {
    *m = (tdict_move){.op = op,
                      .memory = runner,
                      .dtype = dst->dtype,
                      .src_dtype = src->dtype,
                      .ndim = dst->ndim,
                      .numbers = moves->num_numbers,
                      .listed = -1};
    add_numbers(moves, dst->dims, 2 * dst->ndim);
    add_numbers(moves, tdict_tensor_dims_strides(src), src->ndim);
  }
  m->dst = dst->storage;
  m->dst_data = dst->data;
  m->src = op == TDICT_KERNEL_FILL ? NULL : src->storage;
  m->src_data = op == TDICT_KERNEL_FILL ? NULL : src->data;
  moves->count++;
  return TDICT_OK;
}

tdict_status tdict_moves_copy(tdict_moves *moves, tdict_tensor *dst, const tdict_tensor *src, tdict_error *err) {
  tdict_memory *runner = moves ? find_runner(dst, src) : NULL;
  tdict_status status = moves && moves->stream ? check_stream(moves, moves->what, dst, src, err) : TDICT_OK;
  if (!runner || status != TDICT_OK) return status == TDICT_OK ? tdict_tensor_copy(dst, src, err) : status;
  if (dst->numel == 0) return TDICT_OK;
  if (!moves->stream) {
    tdict_tensor_await(src, false);
    tdict_tensor_await(dst, true);
  }
  /* Check after the wait, since a transfer into `src` can fail during the wait. */
  if (tdict_tensor_is_lost(src)) return tdict_tensor_refuse_lost(moves->what, "the source's bytes", src, err);
  return add_pair(moves, dst, src, TDICT_KERNEL_COPY, runner, err);
}

/* Returns the memory whose launches can convert elements of `from` to new elements in `memory`, or NULL. */
static tdict_memory *find_converter(const tdict_tensor *from, tdict_memory *memory) {
  tdict_memory *own = from->storage->memory, *to = memory ? memory : own;
  if (!can_run(to) || !tdict_device_equal(to->device, from->storage->device)) return NULL;
  return !own || own == to || to->ops->reaches(to, own) ? to : NULL;
}

tdict_status tdict_moves_check_convert(const tdict_moves *moves, tdict_dtype to, tdict_memory *memory,
                                       const tdict_tensor *from, tdict_error *err) {
  const tdict_device device = from->storage->device;
  if (tdict_is_on_host(from)) {
    tdict_status status = tdict_convert_check_memory(moves->what, memory, err);
    return status == TDICT_OK ? tdict_convert_check(moves->what, to, from, err) : status;
  }
  if (!tdict_kernel_converts(to, from->dtype)) return tdict_convert_refuse(moves->what, to, from->dtype, err);
  const tdict_memory *converter = find_converter(from, memory);
  if (!converter)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: from %s to %s, wanted one device, with memory of one context",
                      moves->what, TDICT_DEVICE_TEXT(device), TDICT_DEVICE_TEXT(memory ? memory->device : device));
  if (!moves->stream || tdict_device_equal(device, moves->stream->device)) return TDICT_OK;
  return tdict_fail(err, TDICT_EWRONGDEVICE, "%s: the tensor is on %s, but the stream belongs to %s", moves->what,
                    TDICT_DEVICE_TEXT(device), TDICT_DEVICE_TEXT(moves->stream->device));
}

tdict_status tdict_moves_convert(tdict_moves *moves, tdict_tensor *dst, const tdict_tensor *src, size_t entry,
                                 tdict_error *err) {
  if (tdict_is_on_host(src)) return tdict_convert_tensor(moves->what, dst, src, err);
  if (!moves->stream) tdict_tensor_await(src, false);
  /* Check after the wait, since a transfer into `src` can fail during the wait. */
  if (tdict_tensor_is_lost(src)) return tdict_tensor_refuse_lost(moves->what, "the source's bytes", src, err);
  tdict_memory *converter = find_converter(src, dst->storage->memory);
  tdict_status status = add_pair(moves, dst, src, TDICT_KERNEL_CONVERT, converter, err);
  if (status == TDICT_OK) moves->moves[moves->count - 1].entry = entry;
  return status;
}

/* Returns the memory whose launches can fill a tensor, or NULL. */
static tdict_memory *find_filler(const tdict_moves *moves, const tdict_tensor *t) {
  const bool fits = tdict_tensor_item_bytes(t) <= TDICT_MOVE_FILL_BYTES;
  return moves && fits && can_run(t->storage->memory) ? t->storage->memory : NULL;
}

tdict_status tdict_moves_check_fill(const tdict_moves *moves, const tdict_tensor *t, const void *element,
                                    tdict_error *err) {
  if (tdict_is_on_host(t) || !find_filler(moves, t)) {
    tdict_status status = tdict_element_check("fill", t, element, err);
    return status == TDICT_OK && moves && moves->stream && !tdict_is_on_host(t)
               ? tdict_fail(err, TDICT_ENOTSUP, "fill: elements of %zu bytes cannot be filled on a stream",
                            tdict_dtype_bytes(t->dtype))
               : status;
  }
  if (t->storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "fill: the tensor may not be written");
  return moves->stream ? check_stream(moves, "fill", t, t, err) : TDICT_OK;
}

tdict_status tdict_moves_fill(tdict_moves *moves, const tdict_tensor *t, const void *element, tdict_error *err) {
  tdict_memory *filler = find_filler(moves, t);
  if (!filler || tdict_is_on_host(t)) return tdict_element_fill(t, element, err);
  if (t->numel == 0) return TDICT_OK;
  if (!moves->stream) tdict_tensor_await(t, true);
  tdict_status status = add_pair(moves, t, t, TDICT_KERNEL_FILL, filler, err); /* the strides of `t` count twice */
  if (status == TDICT_OK) memcpy(moves->moves[moves->count - 1].element, element, tdict_tensor_item_bytes(t));
  return status;
}

bool tdict_moves_reach_list(const tdict_tensor *a, const tdict_tensor *b, const tdict_tensor *list) {
  tdict_memory *runner = find_runner(a, b), *memory = list->storage->memory;
  return runner && (memory == runner || runner->ops->reaches(runner, memory));
}

bool tdict_moves_take_listed(const tdict_moves *moves, const tdict_tensor *indexed, const tdict_tensor *other) {
  return moves && find_runner(indexed, other);
}

/* Adds the strides of the indexed side: the strides of one position, with a 0 for the listed dimension. */
static void add_indexed_strides(tdict_moves *m, const tdict_listed_copy *copy) {
  add_numbers(m, copy->position->strides, copy->listed);
  m->numbers[m->num_numbers++] = 0;
  add_numbers(m, copy->position->strides + copy->listed, copy->position->ndim - copy->listed);
}

tdict_status tdict_moves_add_listed(tdict_moves *moves, const tdict_listed_copy *copy, tdict_error *err) {
  const tdict_tensor *other = copy->other;
  if (other->numel == 0) return TDICT_OK;
  const size_t num_lists = (size_t)moves->lists->count;
  tdict_status status = moves->stream ? check_stream(moves, moves->what, copy->indexed, other, err) : TDICT_OK;
  if (status == TDICT_OK) status = reserve(moves, 3 * (size_t)other->ndim + num_lists, err);
  if (status != TDICT_OK) return status;
  tdict_move *m = &moves->moves[moves->count++];
  *m = (tdict_move){.memory = find_runner(copy->indexed, other),
                    .dtype = other->dtype,
                    .src_dtype = other->dtype,
                    .op = TDICT_KERNEL_COPY,
                    .ndim = other->ndim,
                    .numbers = moves->num_numbers,
                    .listed = copy->listed,
                    .scatter = copy->writes_indexed};
  const tdict_tensor *dst = m->scatter ? copy->indexed : other, *src = m->scatter ? other : copy->indexed;
  m->dst = dst->storage;
  m->src = src->storage;
  m->dst_data = m->scatter ? copy->position->data : other->data;
  m->src_data = m->scatter ? other->data : copy->position->data;
  add_numbers(moves, other->dims, other->ndim);
  if (m->scatter) add_indexed_strides(moves, copy);
  add_numbers(moves, tdict_tensor_dims_strides(other), other->ndim);
  if (!m->scatter) add_indexed_strides(moves, copy);
  add_numbers(moves, copy->strides, (int)num_lists);
  return TDICT_OK;
}

tdict_status tdict_moves_repeat_listed(tdict_moves *moves, const tdict_tensor *indexed, const tdict_tensor *other,
                                       uintptr_t offset, tdict_error *err) {
  tdict_status status = reserve(moves, 0, err);
  if (status != TDICT_OK) return status;
  tdict_move *m = &moves->moves[moves->count++];
  void *position = (void *)((uintptr_t)indexed->data + offset);
  *m = m[-1];
  m->dst = m->scatter ? indexed->storage : other->storage;
  m->src = m->scatter ? other->storage : indexed->storage;
  m->dst_data = m->scatter ? position : other->data;
  m->src_data = m->scatter ? other->data : position;
  m->repeats = true;
  return TDICT_OK;
}
