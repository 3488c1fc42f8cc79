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

/* Types that are often converted have code for their pair only, which is several times faster. */
#define TDICT_CONVERT_PAIR(to_type, from_type)                                    \
  case (to_type) << 8 | (from_type): {                                            \
    const tdict_type_pair pair = {to_type, from_type, c->flags, c->scale_offset}; \
    return tdict_convert_bits(&pair, bits, out);                                  \
  }

TDICT_BODY int tdict_convert_element(const tdict_type_pair *c, uint64_t bits, uint64_t *out) {
  switch (c->to << 8 | c->from) {
    TDICT_CONVERT_PAIR(TDICT_KERNEL_F32, TDICT_KERNEL_U8)
    TDICT_CONVERT_PAIR(TDICT_KERNEL_F16, TDICT_KERNEL_U8)
    TDICT_CONVERT_PAIR(TDICT_KERNEL_BF16, TDICT_KERNEL_U8)
    TDICT_CONVERT_PAIR(TDICT_KERNEL_F32, TDICT_KERNEL_F16)
    TDICT_CONVERT_PAIR(TDICT_KERNEL_F32, TDICT_KERNEL_BF16)
    TDICT_CONVERT_PAIR(TDICT_KERNEL_F16, TDICT_KERNEL_F32)
    TDICT_CONVERT_PAIR(TDICT_KERNEL_BF16, TDICT_KERNEL_F32)
    TDICT_CONVERT_PAIR(TDICT_KERNEL_I64, TDICT_KERNEL_I32)
  default:
    return tdict_convert_bits(c, bits, out);
  }
}

TDICT_BODY void tdict_kernel_convert(tdict_kernel_env *env, const tdict_kernel_span *span) {
  const tdict_type_pair c = {tdict_form(span->layout, TDICT_FORM_TO), tdict_form(span->layout, TDICT_FORM_FROM),
                             tdict_form(span->layout, TDICT_FORM_FLAGS), span->layout[TDICT_CONVERT_SCALE]};
  const unsigned to_bytes = tdict_type_bytes(c.to), from_bytes = tdict_type_bytes(c.from);
  TDICT_EACH_BATCH(span, at) {
    tdict_kernel_batch batch;
    uint64_t bits[TDICT_KERNEL_BATCH];
    tdict_kernel_locate_batch(env, span, span->layout + TDICT_CONVERT_DIMS, at, &batch);
    TDICT_EACH_IN_BATCH(k) bits[k] = tdict_kernel_load(env, batch.at[k].src, from_bytes, c.flags);
    /* This loop is not unrolled, because the code of a conversion is long. A GPU keeps the batch in registers only if
     * all indices are constants. Each iteration therefore uses place 0, and then moves all other places by one. */
    for (int done = 0; done < TDICT_KERNEL_BATCH && tdict_kernel_has_unit(span, at, done); done++) {
      uint64_t result = 0;
      if (tdict_convert_element(&c, bits[0], &result)) {
        tdict_kernel_store(env, batch.at[0].dst, to_bytes, c.flags, result);
        if (c.flags & TDICT_FLAG_COMPLEX) tdict_kernel_store(env, batch.at[0].dst + to_bytes, to_bytes, c.flags, 0);
      } else {
        tdict_kernel_lower(span->result, tdict_kernel_unit(span, at, done));
      }
      TDICT_UNROLL for (int k = 1; k < TDICT_KERNEL_BATCH; k++) {
        bits[k - 1] = bits[k];
        batch.at[k - 1].dst = batch.at[k].dst;
      }
    }
  }
}

#endif
