/* The body of the kernel WINDOW, which converts windows of images to floats. A unit is a group of up to
 * TDICT_WINDOW_GROUP pixels of a row. Pure functions; thread-safe. */
#ifndef TDICT_DEVICE_KERNELS_BODY_WINDOW_H
#define TDICT_DEVICE_KERNELS_BODY_WINDOW_H

#include "device/kernels/body_convert.h"

/* A unit. Its elements are numbered from 0, and the entry writes the elements [begin, end). `low` and `high` have the
 * bytes of the elements, the first one lowest. */
typedef struct tdict_window_group {
  uint64_t src; /* address of element 0 */
  uint64_t dst; /* address at which the first channel of the first pixel is written */
  uint64_t low, high;
  unsigned begin, end;
  unsigned is_flipped; /* 1: the pixels are written from `dst` backwards */
} tdict_window_group;

/* Finds a unit. Windows are flipped where they are written, so that neighbouring threads read neighbouring bytes. */
TDICT_BODY tdict_window_group tdict_window_find(const tdict_kernel_span *span, uint64_t number) {
  const uint64_t *l = span->layout;
  const uint64_t groups = l[TDICT_WINDOW_GROUPS], height = l[TDICT_WINDOW_HEIGHT], width = l[TDICT_WINDOW_WIDTH];
  const uint64_t first = l[TDICT_WINDOW_FIRST], last = l[TDICT_WINDOW_LAST];
  const unsigned channels = tdict_form(l, TDICT_FORM_NDIM);
  const uint64_t rows = tdict_kernel_divide(number, groups, &l[TDICT_WINDOW_GROUPS + 1]);
  const uint64_t sample = tdict_kernel_divide(rows, height, &l[TDICT_WINDOW_HEIGHT + 1]), row = rows - sample * height;
  const uint64_t column = (number - rows * groups) * TDICT_WINDOW_GROUP, element = (rows * width + column) * channels;
  const uint64_t place = l[TDICT_WINDOW_PLACES + sample];
  const uint64_t top = place >> TDICT_PLACE_TOP, left = (uint32_t)place >> TDICT_PLACE_LEFT;
  const uint64_t to = place & 1 ? width - 1 - column : column, left_over = width - column;
  tdict_window_group g = {span->src, span->dst, 0, 0, 0, TDICT_WINDOW_GROUP * channels, (unsigned)place & 1};
  g.src += sample * l[TDICT_WINDOW_SRC_SAMPLE] + (top + row) * l[TDICT_WINDOW_SRC_ROW] + (left + column) * channels;
  g.dst += sample * l[TDICT_WINDOW_DST_SAMPLE] + row * l[TDICT_WINDOW_DST_ROW] + to * l[TDICT_WINDOW_DST_PIXEL];
  if (left_over < TDICT_WINDOW_GROUP) g.end = (unsigned)left_over * channels;
  if (first > element) g.begin = (unsigned)(first - element);
  if (last - element < g.end) g.end = (unsigned)(last - element);
  return g;
}

/* Reads the bytes of a group as words that begin at a multiple of 4, and shifts them to the first element. At the ends
 * of the source, reads only the elements of the entry. */
TDICT_BODY void tdict_window_read(tdict_kernel_env *env, const tdict_kernel_span *span, tdict_window_group *g) {
  const unsigned channels = tdict_form(span->layout, TDICT_FORM_NDIM), shift = (unsigned)(g->src & 3) * 8;
  const uint64_t at = g->src & ~(uint64_t)3;
  uint64_t word[TDICT_WINDOW_CHANNELS + 1];
  if (at < span->layout[TDICT_WINDOW_SRC_BEGIN] || at + 4 * (channels + 1) > span->layout[TDICT_WINDOW_SRC_END]) {
    for (unsigned i = g->begin; i < g->end; i++) {
      const uint64_t byte = tdict_kernel_load(env, g->src + i, 1, 0);
      g->low |= i < 8 ? byte << 8 * i : 0;
      g->high |= i < 8 ? 0 : byte << 8 * (i - 8);
    }
    return;
  }
  TDICT_UNROLL for (unsigned i = 0; i <= TDICT_WINDOW_CHANNELS; i++) word[i] =
      i <= channels ? tdict_kernel_load(env, at + 4 * i, 4, 0) : 0;
  const uint64_t low = word[1] << 32 | word[0], high = word[3] << 32 | word[2];
  g->low = shift ? low >> shift | high << (64 - shift) : low;
  g->high = shift ? high >> shift | word[4] << (64 - shift) : high;
}

/* Writes one channel of a full group whose pixels are adjacent, with one store. Returns 0 if this is not possible. */
TDICT_BODY int tdict_window_store_all(tdict_kernel_env *env, uint64_t address, unsigned bytes, const uint32_t *result) {
  if (address & (4 * bytes - 1)) return 0;
  TDICT_GLOBAL void *to = (TDICT_GLOBAL void *)tdict_kernel_at(env, address, 4 * bytes);
  const uint64_t low = bytes == 4 ? (uint64_t)result[1] << 32 | result[0] : 0;
  const uint64_t high = bytes == 4 ? (uint64_t)result[3] << 32 | result[2] : 0;
  const tdict_unit16 floats = {low, high};
  if (!to) return 1;
  if (bytes == 4)
    *(TDICT_GLOBAL tdict_unit16 *)to = floats;
  else
    *(TDICT_GLOBAL tdict_unit8 *)to = (uint64_t)(result[3] << 16 | result[2]) << 32 | (result[1] << 16 | result[0]);
  return 1;
}

/* Converts and writes the elements of a group. */
TDICT_BODY void tdict_window_write(tdict_kernel_env *env, const tdict_kernel_span *span, const tdict_window_group *g) {
  const uint64_t *l = span->layout;
  const unsigned to = tdict_form(l, TDICT_FORM_TO), bytes = tdict_type_bytes(to);
  const unsigned flags = tdict_form(l, TDICT_FORM_FLAGS), channels = tdict_form(l, TDICT_FORM_NDIM);
  const uint64_t step = g->is_flipped ? 0 - l[TDICT_WINDOW_DST_PIXEL] : l[TDICT_WINDOW_DST_PIXEL];
  const int is_whole = g->begin == 0 && g->end == TDICT_WINDOW_GROUP * channels && l[TDICT_WINDOW_DST_PIXEL] == bytes;
  uint64_t low = g->low, high = g->high;
  uint32_t pixel[TDICT_WINDOW_GROUP];
  TDICT_UNROLL for (unsigned p = 0; p < TDICT_WINDOW_GROUP; p++) {
    pixel[p] = (uint32_t)low;
    low = low >> 8 * channels | high << (64 - 8 * channels);
    high >>= 8 * channels;
  }
  for (unsigned c = 0; c < channels; c++) {
    const uint64_t scale = l[TDICT_WINDOW_SCALES + c], dst = g->dst + c * l[TDICT_WINDOW_DST_CHANNEL];
    uint32_t result[TDICT_WINDOW_GROUP], reversed[TDICT_WINDOW_GROUP];
    TDICT_UNROLL for (unsigned p = 0; p < TDICT_WINDOW_GROUP; p++) result[p] =
        tdict_narrow(to, tdict_scale_f32((float)(pixel[p] >> 8 * c & 0xff), scale));
    TDICT_UNROLL for (unsigned p = 0; p < TDICT_WINDOW_GROUP; p++) reversed[p] =
        g->is_flipped ? result[TDICT_WINDOW_GROUP - 1 - p] : result[p];
    const uint64_t lowest = g->is_flipped ? dst + (TDICT_WINDOW_GROUP - 1) * step : dst;
    if (is_whole && tdict_window_store_all(env, lowest, bytes, reversed)) continue;
    TDICT_UNROLL for (unsigned p = 0; p < TDICT_WINDOW_GROUP; p++) {
      const unsigned element = p * channels + c;
      if (element >= g->begin && element < g->end) tdict_kernel_store(env, dst + p * step, bytes, flags, result[p]);
    }
  }
}

/* Two units of a batch are handled at once, because four need too many registers. */
TDICT_BODY void tdict_kernel_window(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const uint64_t base = span->layout[TDICT_WINDOW_BASE];
  TDICT_EACH_BATCH(span, at) {
    for (int k = 0; k < TDICT_KERNEL_BATCH && tdict_kernel_has_unit(span, at, k); k += 2) {
      const int has_second = tdict_kernel_has_unit(span, at, k + 1);
      tdict_window_group first = tdict_window_find(span, base + tdict_kernel_unit(span, at, k));
      tdict_window_group second = tdict_window_find(span, base + tdict_kernel_unit(span, at, k + 1));
      tdict_window_read(env, span, &first);
      tdict_window_read(env, span, &second);
      for (int done = 0; done <= has_second; done++) { /* not unrolled, see tdict_kernel_convert() */
        tdict_window_write(env, span, &first);
        first = second;
      }
    }
  }
}

#endif
