/* Computes with shapes and strides. Pure functions of their arguments: no memory is owned or allocated. Thread-safe. */
#include "core/tensor/layout.h"

#include <stdio.h>
#include <string.h>

#include "core/base/assert.h"
#include "core/base/checked.h"
#include "core/base/error.h"

/* Multiplies the counts, 0 as 1, so that strides of an empty tensor cannot overflow. Returns false on overflow. */
static bool compute_span(int ndim, const int64_t *shape, int64_t *span) {
  *span = 1;
  for (int i = 0; i < ndim; i++)
    if (shape[i] != 0 && !tdict_mul_i64(*span, shape[i], span)) return false;
  return true;
}

static bool has_elements(int ndim, const int64_t *shape) {
  for (int i = 0; i < ndim; i++)
    if (shape[i] == 0) return false;
  return true;
}

bool tdict_layout_count(int ndim, const int64_t *shape, int64_t *out) {
  const bool fits = compute_span(ndim, shape, out), has_any = has_elements(ndim, shape);
  if (!has_any) *out = 0;
  return fits || !has_any;
}

tdict_status tdict_layout_check(const char *what, tdict_dtype dtype, int ndim, const int64_t *shape,
                                tdict_layout_size *out, tdict_error *err) {
  size_t item = tdict_dtype_bytes(dtype);
  if (item == 0) return tdict_fail(err, TDICT_EDTYPE, "%s: dtype 0x%x is unknown", what, (unsigned)dtype);
  if (ndim < 0 || ndim > TDICT_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: ndim is %d, wanted 0 to %d", what, ndim, TDICT_MAX_NDIM);
  if (ndim > 0 && !shape) return tdict_fail(err, TDICT_EINVAL, "%s: shape is NULL and ndim is %d", what, ndim);
  for (int i = 0; i < ndim; i++)
    if (shape[i] < 0)
      return tdict_fail(err, TDICT_EINVAL, "%s: shape[%d] is %lld, wanted 0 or more", what, i, (long long)shape[i]);
  int64_t span, span_bytes;
  if (!compute_span(ndim, shape, &span) || !tdict_mul_i64(span, (int64_t)item, &span_bytes))
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: the bytes of %d dimensions of %s do not fit 63 bits", what, ndim,
                      tdict_dtype_name(dtype));
  bool has_any = has_elements(ndim, shape);
  out->numel = has_any ? span : 0;
  out->bytes = has_any ? (size_t)span_bytes : 0;
  return TDICT_OK;
}

void tdict_layout_strides(int ndim, const int64_t *shape, int64_t *strides) {
  int64_t step_along = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    strides[i] = step_along;
    if (shape[i] != 0) step_along *= shape[i];
  }
}

bool tdict_layout_is_contiguous(int ndim, const int64_t *shape, const int64_t *strides) {
  if (!has_elements(ndim, shape)) return true;
  int64_t step_along = 1;
  for (int i = ndim - 1; i >= 0; i--) {
    if (shape[i] == 1) continue;
    if (strides[i] != step_along) return false;
    step_along *= shape[i];
  }
  return true;
}

bool tdict_layout_extent(int ndim, const int64_t *shape, const int64_t *strides, size_t item_bytes, int64_t *low,
                         int64_t *end) {
  *low = *end = 0;
  if (!has_elements(ndim, shape)) return true;
  int64_t item = (int64_t)item_bytes, below = 0, above = item;
  for (int i = 0; i < ndim; i++) {
    int64_t reach;
    if (shape[i] == 1) continue;
    if (!tdict_mul_i64(shape[i] - 1, strides[i], &reach) || !tdict_mul_i64(reach, item, &reach)) return false;
    if (!tdict_add_i64(reach < 0 ? below : above, reach, reach < 0 ? &below : &above)) return false;
  }
  int64_t whole;
  if (__builtin_sub_overflow(above, below, &whole)) return false;
  *low = below;
  *end = above;
  return true;
}

/* Returns true if an outer step equals `count` inner ones, so that the dimensions can be merged. */
static bool is_whole_step(int64_t outer, int64_t count, int64_t inner) {
  int64_t whole;
  return tdict_mul_i64(count, inner, &whole) && whole == outer;
}

/* Adds the next outer dimension, or merges it without a gap. tdict_pair_init() reverses the order at the end. */
static void add_dim(tdict_pair *pair, int64_t count, int64_t dst, int64_t src) {
  int last = pair->ndim - 1;
  int64_t run = (int64_t)pair->run_bytes;
  if (last < 0 && dst == run && src == run) {
    pair->run_bytes *= (size_t)count;
  } else if (last >= 0 && is_whole_step(dst, pair->shape[last], pair->dst_strides[last]) &&
             is_whole_step(src, pair->shape[last], pair->src_strides[last])) {
    pair->shape[last] *= count;
  } else {
    TDICT_ASSERT(pair->ndim < TDICT_MAX_NDIM);
    pair->shape[pair->ndim] = count;
    pair->dst_strides[pair->ndim] = dst;
    pair->src_strides[pair->ndim++] = src;
  }
}

static void swap_counts(int64_t *a, int64_t *b) {
  int64_t kept = *a;
  *a = *b;
  *b = kept;
}

static void reverse_dims(tdict_pair *pair) {
  for (int i = 0, j = pair->ndim - 1; i < j; i++, j--) {
    swap_counts(&pair->shape[i], &pair->shape[j]);
    swap_counts(&pair->dst_strides[i], &pair->dst_strides[j]);
    swap_counts(&pair->src_strides[i], &pair->src_strides[j]);
  }
}

void tdict_pair_init(tdict_pair *pair, int ndim, const int64_t *shape, const int64_t *dst_strides,
                     const int64_t *src_strides, size_t item_bytes) {
  int64_t c_order[TDICT_MAX_NDIM], item = (int64_t)item_bytes;
  memset(pair, 0, sizeof *pair);
  pair->run_bytes = item_bytes;
  bool has_any = has_elements(ndim, shape);
  if (has_any) {
    tdict_layout_strides(ndim, shape, c_order);
    if (!dst_strides) dst_strides = c_order;
    if (!src_strides) src_strides = c_order;
    for (int i = ndim - 1; i >= 0; i--)
      if (shape[i] != 1) add_dim(pair, shape[i], dst_strides[i] * item, src_strides[i] * item);
    reverse_dims(pair);
  }
  if (pair->ndim == 0) {
    pair->ndim = 1;
    pair->shape[0] = has_any ? 1 : 0;
    pair->dst_strides[0] = pair->src_strides[0] = (int64_t)pair->run_bytes;
  }
}

/* The position of a walk: the indices of the current run, and the addresses of the run in both tensors. */
typedef struct pair_cursor {
  const tdict_pair *pair;
  int64_t index[TDICT_MAX_NDIM];
  uintptr_t dst, src;
} pair_cursor;

/* Moves by `count` indices along dimension i. Addresses wrap as unsigned numbers, so stepping back is well defined. */
static void step_along(pair_cursor *w, int i, int64_t count) {
  w->index[i] += count;
  w->dst += (uintptr_t)w->pair->dst_strides[i] * (uintptr_t)count;
  w->src += (uintptr_t)w->pair->src_strides[i] * (uintptr_t)count;
}

/* Moves from the first run to run number `run` in C order. */
static void seek_run(pair_cursor *w, size_t run) {
  for (int i = w->pair->ndim - 1; i >= 0; i--) {
    size_t count = (size_t)w->pair->shape[i];
    step_along(w, i, (int64_t)(run % count));
    run /= count;
  }
}

/* Moves on by runs that the innermost dimension has left. At its end, moves in the next outer dimension. */
static void advance_runs(pair_cursor *w, int64_t runs) {
  int i = w->pair->ndim - 1;
  step_along(w, i, runs);
  while (i > 0 && w->index[i] == w->pair->shape[i]) {
    step_along(w, i, -w->index[i]);
    step_along(w, --i, 1);
  }
}

static size_t pair_bytes(const tdict_pair *pair) {
  size_t bytes = pair->run_bytes;
  for (int i = 0; i < pair->ndim; i++) bytes *= (size_t)pair->shape[i];
  return bytes;
}

tdict_status tdict_pair_walk(const tdict_pair *pair, const tdict_pair_span *part, tdict_rect_fn fn, void *user,
                             tdict_error *err) {
  size_t run = pair->run_bytes, end = pair_bytes(pair);
  int inner = pair->ndim - 1;
  if (end > part->end) end = part->end;
  if (part->begin >= end) return TDICT_OK;
  pair_cursor w = {.pair = pair, .dst = (uintptr_t)part->dst, .src = (uintptr_t)part->src};
  seek_run(&w, part->begin / run);
  for (size_t at = part->begin; at < end;) {
    /* Choose a part of a run, or the whole runs left in the innermost dimension and before `end`. */
    size_t skip = at % run, width = run - skip, height = 1;
    if (width > end - at) width = end - at;
    if (width == run) {
      height = (size_t)(pair->shape[inner] - w.index[inner]);
      if (height > (end - at) / run) height = (end - at) / run;
    }
    tdict_rect rect = {(void *)(w.dst + skip),
                       (const void *)(w.src + skip),
                       pair->dst_strides[inner],
                       pair->src_strides[inner],
                       width,
                       height};
    tdict_status status = fn(user, &rect, err);
    if (status != TDICT_OK) return status;
    at += width * height;
    /* Only the last rectangle ends inside a run, so the position is always the start of a run. */
    advance_runs(&w, (int64_t)height);
  }
  return TDICT_OK;
}

static tdict_status copy_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)user, (void)err;
  tdict_rect_copy(rect);
  return TDICT_OK;
}

void tdict_pair_copy(const tdict_pair *pair, const tdict_pair_span *part) {
  (void)tdict_pair_walk(pair, part, copy_rect, NULL, NULL);
}

char *tdict_text_shape(int ndim, const int64_t *shape, char *buffer, size_t bytes) {
  static const char cut[] = "...]";
  size_t length = 0, room = bytes - sizeof cut; /* the remaining bytes are for "...]" */
  buffer[length++] = '[';
  for (int i = 0; i < ndim; i++) {
    char count[32];
    int n = snprintf(count, sizeof count, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (length + (size_t)n > room) {
      memcpy(buffer + length, cut, sizeof cut);
      return buffer;
    }
    memcpy(buffer + length, count, (size_t)n);
    length += (size_t)n;
  }
  buffer[length++] = ']';
  buffer[length] = 0;
  return buffer;
}
