/* The body of the kernel CONVERT. core/kernel/number.h converts a number. Pure functions; thread-safe. */
#ifndef TDICT_DEVICE_KERNELS_BODY_CONVERT_H
#define TDICT_DEVICE_KERNELS_BODY_CONVERT_H

#include "device/kernels/body.h"

/* Reads an element of `bytes` bytes. Elements that are not aligned are read byte by byte. */
TDICT_BODY uint64_t tdict_kernel_load(tdict_kernel_env *env, uint64_t address, unsigned bytes, unsigned flags) {
  uint64_t bits = 0;
  if (flags & TDICT_FLAG_UNALIGNED) {
    for (unsigned i = 0; i < bytes; i++) {
      const TDICT_GLOBAL tdict_unit1 *byte = (const TDICT_GLOBAL tdict_unit1 *)tdict_kernel_at(env, address + i, 1);
      if (byte) bits |= (uint64_t)*byte << 8 * i;
    }
    return bits;
  }
  const TDICT_GLOBAL void *at = tdict_kernel_at(env, address, bytes);
  if (!at) return 0;
  switch (bytes) {
  case 1:
    return *(const TDICT_GLOBAL tdict_unit1 *)at;
  case 2:
    return *(const TDICT_GLOBAL tdict_unit2 *)at;
  case 4:
    return *(const TDICT_GLOBAL tdict_unit4 *)at;
  default:
    return *(const TDICT_GLOBAL tdict_unit8 *)at;
  }
}

TDICT_BODY void tdict_kernel_store(tdict_kernel_env *env, uint64_t address, unsigned bytes, unsigned flags,
                                   uint64_t bits) {
  if (flags & TDICT_FLAG_UNALIGNED) {
    for (unsigned i = 0; i < bytes; i++) {
      TDICT_GLOBAL tdict_unit1 *byte = (TDICT_GLOBAL tdict_unit1 *)tdict_kernel_at(env, address + i, 1);
      if (byte) *byte = (tdict_unit1)(bits >> 8 * i);
    }
    return;
  }
  TDICT_GLOBAL void *at = tdict_kernel_at(env, address, bytes);
  if (!at) return;
  switch (bytes) {
  case 1:
    *(TDICT_GLOBAL tdict_unit1 *)at = (tdict_unit1)bits;
    break;
  case 2:
    *(TDICT_GLOBAL tdict_unit2 *)at = (tdict_unit2)bits;
    break;
  case 4:
    *(TDICT_GLOBAL tdict_unit4 *)at = (tdict_unit4)bits;
    break;
  default:
    *(TDICT_GLOBAL tdict_unit8 *)at = bits;
  }
}

/* A *quad* is four adjacent elements, aligned as a whole on both sides. Rows of elements that are converted through
 * float32 consist of quads: a thread loads all quads of a batch and converts them to float32, and then to the result.
 * The types are thus compared only twice. A quad is read and written with one access of up to 16 bytes. */
typedef struct tdict_quads {
  float value[TDICT_KERNEL_BATCH][TDICT_QUAD];
  int is_whole[TDICT_KERNEL_BATCH]; /* 0: the row ends before the quad, or inside */
} tdict_quads;
#define TDICT_EACH_IN_QUAD(i) TDICT_UNROLL for (int i = 0; i < TDICT_QUAD; i++)

/* Reads quads of a type. `unit` has the size of a quad, and `bits` are those of element i of quad k. */
#define TDICT_LOAD_QUADS(from_type, unit, bits)                                                                   \
  case (from_type): {                                                                                             \
    unit bytes[TDICT_KERNEL_BATCH] = {0};                                                                         \
    TDICT_EACH_IN_BATCH(k) {                                                                                      \
      const uint64_t address = src + (uint64_t)k * TDICT_KERNEL_THREADS * sizeof(unit);                           \
      if (!q->is_whole[k]) continue;                                                                              \
      const TDICT_GLOBAL unit *at = (const TDICT_GLOBAL unit *)tdict_kernel_at(env, address, sizeof(unit));       \
      if (at) bytes[k] = *at;                                                                                     \
    }                                                                                                             \
    TDICT_EACH_IN_BATCH(k) { TDICT_EACH_IN_QUAD(i) q->value[k][i] = tdict_widen((from_type), (uint32_t)(bits)); } \
    break;                                                                                                        \
  }
#define TDICT_BITS_8 (bytes[k] >> 8 * i & 0xff)
#define TDICT_BITS_16 (bytes[k] >> 16 * i & 0xffff)
#define TDICT_BITS_32 (bytes[k][i / 2] >> 32 * (i % 2))
TDICT_BODY void tdict_quads_load(tdict_kernel_env *env, uint64_t src, unsigned from, tdict_quads *q) {
  switch (from) {
    TDICT_LOAD_QUADS(TDICT_KERNEL_I8, tdict_unit4, TDICT_BITS_8)
    TDICT_LOAD_QUADS(TDICT_KERNEL_U8, tdict_unit4, TDICT_BITS_8)
    TDICT_LOAD_QUADS(TDICT_KERNEL_BOOL, tdict_unit4, TDICT_BITS_8)
    TDICT_LOAD_QUADS(TDICT_KERNEL_I16, tdict_unit8, TDICT_BITS_16)
    TDICT_LOAD_QUADS(TDICT_KERNEL_U16, tdict_unit8, TDICT_BITS_16)
    TDICT_LOAD_QUADS(TDICT_KERNEL_F16, tdict_unit8, TDICT_BITS_16)
    TDICT_LOAD_QUADS(TDICT_KERNEL_BF16, tdict_unit8, TDICT_BITS_16)
    TDICT_LOAD_QUADS(TDICT_KERNEL_F32, tdict_unit16, TDICT_BITS_32)
  default:
    break;
  }
}

/* Converts float32 to a type, and writes quads. `unit` has the size of a quad. */
#define TDICT_STORE_QUADS(to_type, unit, ...)                                                   \
  case (to_type):                                                                               \
    TDICT_EACH_IN_BATCH(k) {                                                                    \
      const uint64_t address = dst + (uint64_t)k * TDICT_KERNEL_THREADS * sizeof(unit);         \
      uint64_t bits[TDICT_QUAD];                                                                \
      if (!q->is_whole[k]) continue;                                                            \
      TDICT_EACH_IN_QUAD(i) bits[i] = tdict_narrow((to_type), q->value[k][i]);                  \
      TDICT_GLOBAL unit *at = (TDICT_GLOBAL unit *)tdict_kernel_at(env, address, sizeof(unit)); \
      if (at) *at = __VA_ARGS__;                                                                \
    }                                                                                           \
    break;
#define TDICT_QUAD_16 (bits[3] << 48 | bits[2] << 32 | bits[1] << 16 | bits[0])
#define TDICT_QUAD_32 ((tdict_unit16){bits[1] << 32 | bits[0], bits[3] << 32 | bits[2]})
TDICT_BODY void tdict_quads_store(tdict_kernel_env *env, uint64_t dst, unsigned to, const tdict_quads *q) {
  switch (to) {
    TDICT_STORE_QUADS(TDICT_KERNEL_F16, tdict_unit8, TDICT_QUAD_16)
    TDICT_STORE_QUADS(TDICT_KERNEL_BF16, tdict_unit8, TDICT_QUAD_16)
    TDICT_STORE_QUADS(TDICT_KERNEL_F32, tdict_unit16, TDICT_QUAD_32)
  default:
    break;
  }
}

TDICT_BODY tdict_type_pair tdict_convert_pair(const tdict_kernel_span *span) {
  const tdict_type_pair pair = {tdict_form(span->layout, TDICT_FORM_TO), tdict_form(span->layout, TDICT_FORM_FROM),
                                tdict_form(span->layout, TDICT_FORM_FLAGS), span->layout[TDICT_CONVERT_SCALE]};
  return pair;
}

/* Converts the whole quads of a thread. */
TDICT_BODY void tdict_convert_quads(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const tdict_type_pair c = tdict_convert_pair(span);
  const unsigned to_bytes = tdict_type_bytes(c.to), from_bytes = tdict_type_bytes(c.from);
  const uint64_t whole = span->layout[TDICT_CONVERT_DIMS] / TDICT_QUAD;
  TDICT_EACH_BATCH(span, at) {
    tdict_quads quads;
    TDICT_EACH_IN_BATCH(k) quads.is_whole[k] = at + (uint64_t)k * TDICT_KERNEL_THREADS < whole;
    tdict_quads_load(env, span->src + at * TDICT_QUAD * from_bytes, c.from, &quads);
    if (c.flags & TDICT_FLAG_SCALED) {
      TDICT_EACH_IN_BATCH(k) {
        TDICT_EACH_IN_QUAD(i) quads.value[k][i] = tdict_scale_f32(quads.value[k][i], c.scale_offset);
      }
    }
    tdict_quads_store(env, span->dst + at * TDICT_QUAD * to_bytes, c.to, &quads);
  }
}

/* Elements that a thread converts one by one: first, first + step and so on. */
typedef struct tdict_kernel_range {
  uint64_t first, end, step;
} tdict_kernel_range;

/* Returns the elements of a thread that are not in a whole quad. If the entry has quads, one thread has the elements
 * after the last whole quad. */
TDICT_BODY tdict_kernel_range tdict_convert_range(const tdict_kernel_span *span, const tdict_type_pair *c) {
  const uint64_t units = span->layout[TDICT_WORD_UNITS], count = span->layout[TDICT_CONVERT_DIMS];
  const uint64_t size = (uint64_t)TDICT_KERNEL_BLOCK_UNITS * tdict_form(span->layout, TDICT_FORM_BATCHES);
  const uint64_t limit = span->first + size, whole = count / TDICT_QUAD, to_whole = whole - span->first;
  const tdict_kernel_range all = {span->first, limit < units ? limit : units, TDICT_KERNEL_THREADS};
  const tdict_kernel_range rest = {whole * TDICT_QUAD, count, 1}, none = {0, 0, 1};
  if (!(c->flags & TDICT_FLAG_QUADS)) return all;
  return to_whole < size && to_whole % TDICT_KERNEL_THREADS == 0 ? rest : none;
}

TDICT_BODY void tdict_kernel_convert(tdict_kernel_env *env, const tdict_kernel_span *span) {
  if (tdict_form(span->layout, TDICT_FORM_FLAGS) & TDICT_FLAG_QUADS) tdict_convert_quads(env, span);
  const tdict_type_pair c = tdict_convert_pair(span);
  const unsigned to_bytes = tdict_type_bytes(c.to), from_bytes = tdict_type_bytes(c.from);
  const tdict_kernel_range range = tdict_convert_range(span, &c);
  for (uint64_t at = range.first; at < range.end; at += range.step) {
    const tdict_kernel_place place = tdict_kernel_locate(env, span, span->layout + TDICT_CONVERT_DIMS, at);
    const uint64_t bits = tdict_kernel_load(env, place.src, from_bytes, c.flags);
    tdict_type_pair pair = c;
    uint64_t result = 0;
    __asm__ volatile("" : "+r"(pair.to), "+r"(pair.from)); /* saves registers: nothing is computed before the loop */
    int fits = 1;
    if (tdict_goes_through_f32(&pair))
      result = tdict_convert_through_f32(&pair, bits);
    else
      fits = tdict_convert_bits(&pair, bits, &result);
    if (fits) {
      tdict_kernel_store(env, place.dst, to_bytes, c.flags, result);
      if (c.flags & TDICT_FLAG_COMPLEX) tdict_kernel_store(env, place.dst + to_bytes, to_bytes, c.flags, 0);
    } else {
      tdict_kernel_lower(span->result, at);
    }
  }
}

#endif
