/* Packs elements block by block. A first pass finds the lowest and the highest element. A second pass reads the block
 * from the cache, and writes the differences from the lowest. See pack.h for ownership and threads. */
#include "engine/kinds/pack.h"

#include <string.h>

#include "engine/kinds/pack_vector.h"

enum { LINE_BYTES = 64, UNIT_BYTES = 16, BLOCK = TDICT_PACK_BLOCK_BYTES };

static size_t round_to(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

/* Returns the size of the head and of all blocks' words, for `bytes` bytes of unpacked elements. */
static size_t head_bytes(size_t bytes) {
  const size_t blocks = (bytes + BLOCK - 1) / BLOCK;
  return round_to((TDICT_PACK_HEAD + blocks * TDICT_WORDS_PER_BLOCK) * sizeof(uint64_t), LINE_BYTES);
}

bool tdict_pack_supports(tdict_dtype dtype) {
  static const tdict_dtype dtypes[] = {TDICT_I16, TDICT_I32, TDICT_I64, TDICT_U16, TDICT_U32, TDICT_U64, TDICT_BOOL};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (dtypes[i] == dtype) return true;
  return false;
}

size_t tdict_pack_most_bytes(size_t bytes) { return head_bytes(bytes) + round_to(bytes, UNIT_BYTES); }

void tdict_pack_begin(tdict_packer *p, tdict_dtype dtype, void *packed, size_t bytes) {
  p->packed = packed;
  p->filled = head_bytes(bytes);
  p->num_blocks = 0;
  p->item_bytes = (unsigned)tdict_dtype_bytes(dtype);
  p->is_bool = dtype == TDICT_BOOL;
  p->is_signed = dtype == TDICT_I16 || dtype == TDICT_I32 || dtype == TDICT_I64;
}

/* Reads element `i` as a signed number. `flip` turns the highest bit of unsigned ones, which keeps their order. */
static int64_t load_signed(const char *src, size_t i, unsigned item_bytes, uint64_t flip) {
  int16_t half;
  int32_t single;
  int64_t wide;
  switch (item_bytes) {
  case 2:
    memcpy(&half, src + 2 * i, sizeof half);
    return (int16_t)(half ^ (int16_t)flip);
  case 4:
    memcpy(&single, src + 4 * i, sizeof single);
    return (int32_t)(single ^ (int32_t)flip);
  default:
    memcpy(&wide, src + 8 * i, sizeof wide);
    return wide ^ (int64_t)flip;
  }
}

static void store_low(char *dst, size_t i, unsigned bytes, uint64_t number) {
  const uint8_t byte = (uint8_t)number;
  const uint16_t half = (uint16_t)number;
  const uint32_t single = (uint32_t)number;
  memcpy(dst + i * bytes, bytes == 1 ? (const void *)&byte : bytes == 2 ? (const void *)&half : &single, bytes);
}

/* A packed block, and the vector functions for its elements. */
typedef struct block {
  const char *src, *ahead;
  size_t bytes, steps; /* steps: full steps of the vector functions, 0 without these functions */
  const tdict_pack_ops *ops;
} block;

/* Finds the lowest and the highest element, as signed numbers after XOR with `flip`. */
static void scan(const tdict_packer *p, const block *b, uint64_t flip, int64_t *low, int64_t *high) {
  *low = *high = load_signed(b->src, 0, p->item_bytes, flip);
  if (b->steps) b->ops->scan(b->src, b->steps, flip, b->ahead, low, high);
  for (size_t i = b->steps * TDICT_PACK_STEP / p->item_bytes; i < b->bytes / p->item_bytes; i++) {
    const int64_t number = load_signed(b->src, i, p->item_bytes, flip);
    if (number < *low) *low = number;
    if (number > *high) *high = number;
  }
}

/* Writes the elements minus `base` as integers of `to_bytes` bytes. */
static void narrow(const tdict_packer *p, const block *b, char *dst, unsigned to_bytes, uint64_t base) {
  if (b->steps) b->ops->narrow[to_bytes / 2](dst, b->src, b->steps, base, b->ahead);
  for (size_t i = b->steps * TDICT_PACK_STEP / p->item_bytes; i < b->bytes / p->item_bytes; i++)
    store_low(dst, i, to_bytes, (uint64_t)load_signed(b->src, i, p->item_bytes, 0) - base);
}

/* Writes one bit for each bool. Returns false if a byte is neither 0 nor 1. */
static bool write_bits(const block *b, char *dst) {
  const size_t full = b->steps * TDICT_PACK_STEP;
  unsigned all = b->steps ? b->ops->bits(dst, b->src, b->steps, b->ahead) : 0;
  memset(dst + full / 8, 0, (b->bytes - full + 7) / 8);
  for (size_t i = full; i < b->bytes; i++) {
    const unsigned byte = (unsigned char)b->src[i];
    all |= byte;
    dst[i / 8] = (char)((unsigned char)dst[i / 8] | (byte & 1) << i % 8);
  }
  return all <= 1;
}

/* Returns the bits for differences up to `most`: 0, 8, 16 or 32, or item_bits if that saves nothing. */
static unsigned needed_bits(uint64_t most, unsigned item_bits) {
  const unsigned bits = most == 0 ? 0 : most <= UINT8_MAX ? 8 : most <= UINT16_MAX ? 16 : most <= UINT32_MAX ? 32 : 64;
  return bits < item_bits ? bits : item_bits;
}

/* Appends the bytes of a block. Sets unused bytes of the last unit to zero. */
static void append(tdict_packer *p, const char *bytes, size_t count) {
  const size_t padded = round_to(count, UNIT_BYTES);
  tdict_stream_copy_padded(p->stores, p->packed + p->filled, bytes, count, padded, NULL);
  p->filled += padded;
}

static void add_block(tdict_packer *p, const char *src, size_t bytes, const char *ahead) {
  char made[BLOCK / 2];
  block b = {src, ahead, bytes, 0, tdict_pack_vectors(p->kind, p->item_bytes)};
  if (b.ops) b.steps = bytes / TDICT_PACK_STEP;
  unsigned bits = 8 * p->item_bytes;
  uint64_t base = 0;
  if (p->is_bool) {
    if (write_bits(&b, made)) bits = 1;
  } else {
    const uint64_t flip = p->is_signed ? 0 : (uint64_t)1 << (bits - 1);
    int64_t low, high;
    scan(p, &b, flip, &low, &high);
    bits = needed_bits((uint64_t)high - (uint64_t)low, bits);
    if (bits < 8 * p->item_bytes) base = (uint64_t)low ^ flip;
    if (bits >= 8 && bits < 8 * p->item_bytes) narrow(p, &b, made, bits / 8, base);
  }
  uint64_t *words = (uint64_t *)(void *)p->packed + TDICT_PACK_HEAD + TDICT_WORDS_PER_BLOCK * p->num_blocks++;
  words[TDICT_BLOCK_BASE] = base;
  words[TDICT_BLOCK_PLACE] = (uint64_t)p->filled << TDICT_PLACE_OFFSET | bits;
  append(p, bits == 8 * p->item_bytes ? src : made, (bytes / p->item_bytes * bits + 7) / 8);
}

void tdict_pack_add(tdict_packer *p, const void *src, size_t bytes, const void *ahead) {
  const char *at = src, *end = at + bytes;
  for (size_t some; at < end; at += some) {
    some = (size_t)(end - at) < BLOCK ? (size_t)(end - at) : BLOCK;
    add_block(p, at, some, end - at > BLOCK ? at + BLOCK : ahead);
  }
}

size_t tdict_pack_end(tdict_packer *p) {
  ((uint64_t *)(void *)p->packed)[TDICT_PACK_SIZE] = p->filled;
  return p->filled;
}
