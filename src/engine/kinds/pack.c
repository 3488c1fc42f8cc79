/* Packs elements block by block. A first pass finds the lowest and the highest element. A second pass reads the block
 * from the cache, and writes the differences from the lowest. See pack.h for ownership and threads. */
#include "engine/kinds/pack.h"

#include <string.h>

#include "engine/kinds/pack_vector.h"

enum { ROW = TDICT_PACK_ROW, ROWS = TDICT_PACK_ROWS, BLOCK = TDICT_PACK_BLOCK_BYTES };

static size_t round_to(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

/* Returns the size of the head and of all blocks' words, for `bytes` bytes of unpacked elements. */
static size_t head_bytes(size_t bytes) {
  const size_t blocks = (bytes + BLOCK - 1) / BLOCK;
  return round_to((TDICT_PACK_HEAD + blocks * TDICT_WORDS_PER_BLOCK) * sizeof(uint64_t), ROW);
}

bool tdict_pack_supports(tdict_dtype dtype) {
  static const tdict_dtype dtypes[] = {TDICT_I16, TDICT_I32, TDICT_I64, TDICT_U16, TDICT_U32, TDICT_U64, TDICT_BOOL};
  for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
    if (dtypes[i] == dtype) return true;
  return false;
}

size_t tdict_pack_most_bytes(size_t bytes) { return head_bytes(bytes) + round_to(bytes, ROWS); }

void tdict_pack_begin(tdict_packer *p, tdict_dtype dtype, void *packed, size_t bytes) {
  p->packed = packed;
  p->filled = head_bytes(bytes);
  p->num_blocks = 0;
  p->item_bytes = (unsigned)tdict_dtype_bytes(dtype);
  p->is_signed = dtype == TDICT_I16 || dtype == TDICT_I32 || dtype == TDICT_I64;
}

/* Returns the bits of each difference, if the largest is `most`. Bools get 1 bit, or all 8 bits. */
static unsigned needed_bits(uint64_t most, unsigned item_bytes) {
  const unsigned bits = most ? 64 - (unsigned)__builtin_clzll(most) : 0;
  return item_bytes == 1 && bits > 1 ? 8 : bits;
}

/* Appends the rows of a block. */
static void append(tdict_packer *p, const tdict_pack_ops *ops, const char *src, size_t bytes, const char *ahead) {
  const unsigned width = 8 * p->item_bytes;
  const uint64_t flip = p->is_signed ? 0 : (uint64_t)1 << (width - 1);
  char *const to = p->packed + p->filled, rows[BLOCK] __attribute__((aligned(ROW)));
  int64_t low, high;
  ops->scan(src, bytes / ROW, flip, ahead, &low, &high);
  const unsigned bits = needed_bits((uint64_t)high - (uint64_t)low, p->item_bytes);
  const bool is_packed = bits > 0 && bits < width, is_direct = is_packed && p->stores == TDICT_STREAM_PLAIN;
  const uint64_t base = bits < width ? (uint64_t)low ^ flip : 0;
  if (is_packed) ops->pack(is_direct ? to : rows, src, bytes / ROW, base, bits, ahead);
  uint64_t *words = (uint64_t *)(void *)p->packed + TDICT_PACK_HEAD + TDICT_WORDS_PER_BLOCK * p->num_blocks++;
  words[TDICT_BLOCK_BASE] = base;
  words[TDICT_BLOCK_PLACE] = (uint64_t)p->filled << TDICT_PLACE_OFFSET | bits;
  const size_t size = (bytes / ROW * bits + width - 1) / width * ROW;
  if (!is_direct) tdict_stream_copy_padded(p->stores, to, is_packed ? rows : src, size, size, NULL);
  p->filled += size;
}

/* Appends the last block of elements that do not fill the last rows, with copies of the first element in these rows. */
static void append_partial(tdict_packer *p, const tdict_pack_ops *ops, const char *src, size_t bytes,
                           const char *ahead) {
  char rows[BLOCK] __attribute__((aligned(ROW)));
  memcpy(rows, src, bytes);
  for (size_t at = bytes; at < round_to(bytes, ROWS); at += p->item_bytes) memcpy(rows + at, src, p->item_bytes);
  append(p, ops, rows, round_to(bytes, ROWS), ahead);
}

void tdict_pack_add(tdict_packer *p, const void *src, size_t bytes, const void *ahead) {
  const tdict_pack_ops *ops = tdict_pack_ops_of(p->kind, p->item_bytes);
  const char *at = src, *end = at + bytes;
  for (size_t some; at < end; at += some) {
    some = (size_t)(end - at) < BLOCK ? (size_t)(end - at) : BLOCK;
    const char *next = end - at > BLOCK ? at + BLOCK : ahead ? ahead : at;
    (some % ROWS ? append_partial : append)(p, ops, at, some, next);
  }
}

size_t tdict_pack_end(tdict_packer *p) {
  ((uint64_t *)(void *)p->packed)[TDICT_PACK_SIZE] = p->filled;
  return p->filled;
}
