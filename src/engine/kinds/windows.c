/* Copies windows row by row, converts them with a table, and describes them for a kernel. See windows.h for ownership
 * and threads. */
#include "engine/kinds/windows.h"

#include <string.h>

#include "core/base/float_env.h"
#include "core/tensor/cast.h"
#include "core/tensor/convert_tensor.h"

/* A part of a row of a window: the elements [begin, end) of the row, with the channels of a pixel adjacent. */
typedef struct row_span {
  size_t image, row;
  size_t begin, end;
  bool is_flipped;
  const char *src; /* the first pixel of the row in the window */
} row_span;

/* A walk over the rows of the elements [at, end). */
typedef struct row_walk {
  const tdict_images *images;
  const tdict_tensor *src;
  size_t at, end;
  int64_t row, pixel, channel; /* strides of the source in bytes */
} row_walk;

static row_walk walk_rows(const tdict_item *item, const tdict_images *m, size_t first, size_t count) {
  const int64_t *strides = tdict_tensor_dims_strides(item->src) + item->src->ndim - 3;
  return (row_walk){m, item->src, first, first + count, strides[0], strides[1], strides[2]};
}

static bool next_row(row_walk *w, row_span *out) {
  const tdict_images *m = w->images;
  const size_t in_row = m->width * m->channels, in_window = m->height * in_row;
  if (w->at >= w->end) return false;
  const size_t image = w->at / in_window, row = w->at % in_window / in_row, begin = w->at % in_row;
  const size_t left = w->end - w->at, end = in_row - begin < left ? in_row : begin + left;
  const uint64_t place = m->places[image];
  const int64_t top = (int64_t)(place >> TDICT_PLACE_TOP), column = (int64_t)((uint32_t)place >> TDICT_PLACE_LEFT);
  const size_t pixels = m->image_height * m->image_width;
  const char *src = (const char *)w->src->data + tdict_convert_offset(w->src, image * pixels * m->channels);
  *out = (row_span){image, row, begin, end, place & 1, src + (top + (int64_t)row) * w->row + column * w->pixel};
  w->at += end - begin;
  return true;
}

/* Collects rows in a small buffer, which stays in the cache, so that streaming stores write whole cache lines. */
enum { BUFFER = 4096 };
typedef struct row_writer {
  char *to;
  tdict_stream_kind stores;
  size_t filled;
  char buffer[BUFFER];
} row_writer;

static void flush_rows(row_writer *w) {
  tdict_stream_copy(w->stores, w->to, w->buffer, w->filled);
  w->to += w->filled;
  w->filled = 0;
}

static void write_row(row_writer *w, const char *src, size_t bytes) {
  for (size_t some; bytes > 0; src += some, bytes -= some) {
    some = BUFFER - w->filled < bytes ? BUFFER - w->filled : bytes;
    memcpy(w->buffer + w->filled, src, some);
    w->filled += some;
    if (w->filled == BUFFER) flush_rows(w);
  }
}

/* Collects the bytes of a row whose channels or pixels are not adjacent. */
static void write_strided(row_writer *w, const row_walk *walk, const row_span *p) {
  const size_t channels = walk->images->channels;
  const char *pixel = p->src + (int64_t)(p->begin / channels) * walk->pixel;
  size_t channel = p->begin % channels;
  for (size_t i = p->begin; i < p->end; i++) {
    w->buffer[w->filled++] = pixel[(int64_t)channel * walk->channel];
    if (w->filled == BUFFER) flush_rows(w);
    if (++channel < channels) continue;
    channel = 0;
    pixel += walk->pixel;
  }
}

void tdict_windows_gather(const tdict_item *item, const tdict_images *images, size_t first, size_t count, char *slot,
                          tdict_stream_kind stores) {
  row_walk walk = walk_rows(item, images, first, count);
  const bool is_dense = walk.channel == 1 && walk.pixel == (int64_t)images->channels;
  row_writer w = {.to = slot, .stores = stores};
  for (row_span p; next_row(&walk, &p);) {
    const size_t bytes = p.end - p.begin;
    if (is_dense && stores == TDICT_STREAM_PLAIN) {
      memcpy(w.to, p.src + p.begin, bytes);
      w.to += bytes;
      continue;
    }
    if (is_dense)
      write_row(&w, p.src + p.begin, bytes);
    else
      write_strided(&w, &walk, &p);
  }
  flush_rows(&w);
}

/* The strides of the result in bytes. */
typedef struct result_strides {
  int64_t row, pixel, channel;
} result_strides;

static result_strides strides_of_result(const tdict_item *item, const tdict_item_cast *cast) {
  const tdict_images *m = cast->images;
  const int64_t bytes = (int64_t)tdict_dtype_bytes(cast->cast.to);
  int64_t own[TDICT_MAX_NDIM];
  const int ndim = m->like.ndim;
  tdict_layout_strides(ndim, m->dims, own);
  const int64_t *s = (item->dst ? tdict_tensor_dims_strides(item->dst) : own) + ndim - 3;
  return m->channels_first ? (result_strides){s[1] * bytes, s[2] * bytes, s[0] * bytes}
                           : (result_strides){s[0] * bytes, s[1] * bytes, s[2] * bytes};
}

/* The results of all bytes in a channel. */
typedef union byte_table {
  uint16_t halves[256];
  uint32_t floats[256];
} byte_table;

static void make_tables(const tdict_item_cast *cast, byte_table *tables) {
  unsigned char all[256];
  for (int i = 0; i < 256; i++) all[i] = (unsigned char)i;
  /* Threads of the library have the default environment already, but a hook can change it. */
  const tdict_float_env saved = tdict_float_env_enter();
  for (size_t c = 0; c < cast->images->channels; c++) {
    tdict_cast one = {cast->cast.to, TDICT_U8, true, 1, 0};
    const uint32_t scale = (uint32_t)cast->images->scales[c], offset = (uint32_t)(cast->images->scales[c] >> 32);
    memcpy(&one.scale, &scale, sizeof scale);
    memcpy(&one.offset, &offset, sizeof offset);
    (void)tdict_cast_elements(tdict_stream_best(), &one, &tables[c], all, 256);
  }
  tdict_float_env_leave(&saved);
}

/* Adjacent pixels of one channel. The steps are the distances of two pixels in bytes. */
typedef struct pixel_run {
  char *dst;
  const char *src;
  int64_t dst_step, src_step;
  size_t count;
} pixel_run;

static void convert_pixels(const pixel_run *run, const byte_table *table, bool is_half) {
  char *dst = run->dst;
  const char *src = run->src;
  for (size_t i = 0; i < run->count; i++, dst += run->dst_step, src += run->src_step) {
    const unsigned char byte = (unsigned char)*src;
    if (is_half)
      memcpy(dst, &table->halves[byte], sizeof table->halves[byte]);
    else
      memcpy(dst, &table->floats[byte], sizeof table->floats[byte]);
  }
}

void tdict_windows_convert(const tdict_item *item, const tdict_item_cast *cast, size_t first, size_t count) {
  const tdict_images *m = cast->images;
  const result_strides to = strides_of_result(item, cast);
  const size_t to_bytes = tdict_dtype_bytes(cast->cast.to), outer_step = (size_t)(m->height * m->width * m->channels);
  byte_table tables[TDICT_WINDOW_CHANNELS];
  row_walk walk = walk_rows(item, m, first, count);
  make_tables(cast, tables);
  for (row_span p; next_row(&walk, &p);) {
    /* the result of the image: its place in C order, or in the destination's strides */
    const size_t element = p.image * outer_step;
    char *dst = item->dst_data + (item->dst ? tdict_convert_offset(item->dst, element) : (int64_t)(element * to_bytes));
    const int64_t start = p.is_flipped ? (int64_t)m->width - 1 : 0, step = p.is_flipped ? -to.pixel : to.pixel;
    dst += (int64_t)p.row * to.row + start * to.pixel;
    for (size_t c = 0; c < m->channels; c++) {
      const size_t begin = p.begin > c ? (p.begin - c + m->channels - 1) / m->channels : 0;
      const size_t end = p.end > c ? (p.end - c + m->channels - 1) / m->channels : 0;
      const pixel_run run = {dst + (int64_t)c * to.channel + (int64_t)begin * step,
                             p.src + (int64_t)c * walk.channel + (int64_t)begin * walk.pixel, step, walk.pixel,
                             end > begin ? end - begin : 0};
      convert_pixels(&run, &tables[c], to_bytes == 2);
    }
  }
}

tdict_status tdict_windows_add(tdict_kernel_work *work, const tdict_item *item, const tdict_item_cast *cast,
                               const tdict_windows_range *range, tdict_error *err) {
  const tdict_images *m = cast->images;
  const result_strides to = strides_of_result(item, cast);
  tdict_kernel_windows w = {.dst = item->dst_data,
                            .src = range->cut ? range->cut : item->src_data,
                            .to = cast->cast.to,
                            .is_cut = range->cut != NULL,
                            .is_on_host = !range->cut && item->kind == TDICT_CU_H2D,
                            .first = range->first,
                            .last = range->first + range->count,
                            .channels = m->channels,
                            .height = m->height,
                            .width = m->width,
                            .image_height = m->image_height,
                            .image_width = m->image_width,
                            .sample = m->height * m->width * m->channels * tdict_dtype_bytes(cast->cast.to),
                            .row = (uint64_t)to.row,
                            .pixel = (uint64_t)to.pixel,
                            .channel = (uint64_t)to.channel,
                            .places = m->places};
  memcpy(w.scales, m->scales, sizeof w.scales);
  return tdict_kernel_add_windows(work, &w, err);
}
