/* The body of the kernel WINDOW, which converts windows of images to floats. A unit is a pixel. Pure functions;
 * thread-safe. */
#ifndef TDICT_DEVICE_KERNELS_BODY_WINDOW_H
#define TDICT_DEVICE_KERNELS_BODY_WINDOW_H

#include "device/kernels/body_convert.h"

/* A pixel: the addresses of its first channel, and its bytes, with that of the first channel lowest. The entry writes
 * the channels [begin, end) of the pixel. */
typedef struct tdict_window_pixel {
  uint64_t src, dst;
  uint32_t bytes;
  unsigned begin, end;
} tdict_window_pixel;

/* Finds a pixel. Windows are flipped where they are written, so that neighbouring threads read neighbouring bytes. */
TDICT_BODY tdict_window_pixel tdict_window_find(const tdict_kernel_span *span, uint64_t number) {
  const uint64_t *l = span->layout;
  const uint64_t pixels = l[TDICT_WINDOW_PIXELS], width = l[TDICT_WINDOW_WIDTH];
  const uint64_t first = l[TDICT_WINDOW_FIRST], last = l[TDICT_WINDOW_LAST];
  const unsigned channels = tdict_form(l, TDICT_FORM_NDIM);
  const uint64_t sample = tdict_kernel_divide(number, pixels, &l[TDICT_WINDOW_PIXELS + 1]);
  const uint64_t within = number - sample * pixels, element = number * channels;
  const uint64_t row = tdict_kernel_divide(within, width, &l[TDICT_WINDOW_WIDTH + 1]), column = within - row * width;
  const uint64_t place = l[TDICT_WINDOW_PLACES + sample];
  const uint64_t top = place >> TDICT_PLACE_TOP, left = (uint32_t)place >> TDICT_PLACE_LEFT;
  const uint64_t to = place & 1 ? width - 1 - column : column;
  tdict_window_pixel p = {span->src, span->dst, 0, 0, channels};
  p.src += sample * l[TDICT_WINDOW_SRC_SAMPLE] + (top + row) * l[TDICT_WINDOW_SRC_ROW] + (left + column) * channels;
  p.dst += sample * l[TDICT_WINDOW_DST_SAMPLE] + row * l[TDICT_WINDOW_DST_ROW] + to * l[TDICT_WINDOW_DST_PIXEL];
  if (first > element) p.begin = (unsigned)(first - element);
  if (last - element < channels) p.end = (unsigned)(last - element);
  return p;
}

/* Rounds a float32 that is not a NaN to the nearest bfloat16 or float16, ties to even. Numbers that are too large
 * become infinite. The results are those of tdict_pack_float(), in fewer instructions. */
TDICT_BODY uint32_t tdict_window_to_bf16(uint32_t bits) { return (bits + 0x7fff + (bits >> 16 & 1)) >> 16; }
TDICT_BODY uint32_t tdict_window_to_f16(uint32_t bits) {
  const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x47800000) return sign | 0x7c00; /* 65536 or more */
  if (magnitude >= 0x38800000) {                     /* normal numbers of float16 */
    const uint32_t rebased = magnitude - 0x38000000;
    return sign | (rebased + 0xfff + (rebased >> 13 & 1)) >> 13;
  }
  /* the last bit of a float32 from 0.5 to 1 is worth as much as the last bit of a subnormal float16 */
  const float half = 0.5f;
  float value;
  uint32_t sum, half_bits;
  __builtin_memcpy(&value, &magnitude, sizeof value);
  value = value + half;
  __builtin_memcpy(&sum, &value, sizeof sum);
  __builtin_memcpy(&half_bits, &half, sizeof half_bits);
  return sign | (sum - half_bits);
}

/* Computes x * scale + offset in float32, rounded after each operation, and converts the result. */
TDICT_BODY uint32_t tdict_window_convert(unsigned to, uint64_t scale_offset, unsigned byte) {
  const uint32_t scale_bits = (uint32_t)scale_offset, offset_bits = (uint32_t)(scale_offset >> 32);
  float value = (float)byte, scale, offset;
  uint32_t bits;
  __builtin_memcpy(&scale, &scale_bits, sizeof scale);
  __builtin_memcpy(&offset, &offset_bits, sizeof offset);
  value = value * scale;
  value = value + offset;
  __builtin_memcpy(&bits, &value, sizeof bits);
  return to == TDICT_KERNEL_F32   ? bits
         : to == TDICT_KERNEL_F16 ? tdict_window_to_f16(bits)
                                  : tdict_window_to_bf16(bits);
}

TDICT_BODY void tdict_kernel_window(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const uint64_t *l = span->layout;
  const unsigned to = tdict_form(l, TDICT_FORM_TO), to_bytes = tdict_type_bytes(to);
  const unsigned flags = tdict_form(l, TDICT_FORM_FLAGS), channels = tdict_form(l, TDICT_FORM_NDIM);
  const uint64_t before = l[TDICT_WINDOW_FIRST] / channels;
  TDICT_EACH_BATCH(span, at) {
    tdict_window_pixel pixel[TDICT_KERNEL_BATCH];
    TDICT_EACH_IN_BATCH(k) pixel[k] = tdict_window_find(span, before + tdict_kernel_unit(span, at, k));
    TDICT_EACH_IN_BATCH(k)
    TDICT_UNROLL for (unsigned c = 0; c < TDICT_WINDOW_CHANNELS; c++) {
      if (c < pixel[k].begin || c >= pixel[k].end) continue;
      pixel[k].bytes |= (uint32_t)tdict_kernel_load(env, pixel[k].src + c, 1, 0) << 8 * c;
    }
    for (unsigned c = 0; c < channels; c++) {
      const uint64_t scale = l[TDICT_WINDOW_SCALES + c], offset = c * l[TDICT_WINDOW_DST_CHANNEL];
      TDICT_EACH_IN_BATCH(k) {
        if (!tdict_kernel_has_unit(span, at, k) || c < pixel[k].begin || c >= pixel[k].end) continue;
        const uint32_t result = tdict_window_convert(to, scale, pixel[k].bytes >> 8 * c & 0xff);
        tdict_kernel_store(env, pixel[k].dst + offset, to_bytes, flags, result);
      }
    }
  }
}

#endif
