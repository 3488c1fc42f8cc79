/* Packs elements block by block. Most blocks need as many bits as the block before, and their elements fit to its base.
 * So one pass packs the elements, and finds the range of the elements. If base and bits were wrong, a second pass packs
 * the block again, from the cache. See pack.h for ownership and threads. */
#include "engine/kinds/pack.h"

#include <string.h>

#include "engine/kinds/pack_vector.h"

enum { ROW = TDICT_PACK_ROW, BLOCK = TDICT_PACK_BLOCK_BYTES };

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

size_t tdict_pack_most_bytes(size_t bytes) { return head_bytes(bytes) + round_to(bytes, ROW); }

void tdict_pack_begin(tdict_packer *p, tdict_dtype dtype, void *packed, size_t bytes) {
  p->packed = packed;
  p->filled = head_bytes(bytes);
  p->num_blocks = 0;
  p->bits = 1;
  p->base = 0;
  p->item_bytes = (unsigned)tdict_dtype_bytes(dtype);
  p->is_signed = dtype == TDICT_I16 || dtype == TDICT_I32 || dtype == TDICT_I64;
}

/* Returns the bits of each difference from the lowest element. Bools get 0, 1 or all 8 bits. */
static unsigned needed_bits(tdict_pack_range range, unsigned item_bytes) {
  const uint64_t most = (uint64_t)range.high - (uint64_t)range.low;
  const unsigned bits = most ? 64 - (unsigned)__builtin_clzll(most) : 0;
  return item_bytes == 1 && bits > 1 ? 8 : bits;
}

/* Returns true if differences from `base` need at most `bits` bits, of 1 to 63. */
static bool fits(tdict_pack_range range, int64_t base, unsigned bits) {
  return range.low >= base && ((uint64_t)range.high - (uint64_t)base) >> bits == 0;
}

/* Returns a base for a range. If possible, elements of later blocks with as many bits often fit to this base, too. */
static int64_t choose_base(tdict_pack_range range, unsigned bits) {
  const int64_t most = (int64_t)(((uint64_t)1 << bits) - 1), aligned = range.low & ~most;
  return fits(range, aligned, bits) ? aligned : range.low;
}

/* Appends the rows of a block. */
static void append(tdict_packer *p, tdict_pack_rows pack, const char *src, size_t bytes) {
  const unsigned width = 8 * p->item_bytes;
  const uint64_t flip = p->is_signed ? 0 : (uint64_t)1 << (width - 1);
  const size_t count = bytes / ROW;
  char *const to = p->packed + p->filled, buffer[BLOCK] __attribute__((aligned(ROW)));
  char *const rows = p->stores == TDICT_STREAM_PLAIN ? to : buffer;
  const tdict_pack_range range = pack(rows, src, count, flip, (uint64_t)p->base ^ flip, p->bits);
  const unsigned bits = needed_bits(range, p->item_bytes);
  const bool is_packed = bits > 0 && bits < width;
  if (bits != p->bits || !fits(range, p->base, bits)) {
    p->base = is_packed ? choose_base(range, bits) : range.low;
    p->bits = is_packed ? bits : 1;
    if (is_packed) pack(rows, src, count, flip, (uint64_t)p->base ^ flip, bits);
  }
  uint64_t *words = (uint64_t *)(void *)p->packed + TDICT_PACK_HEAD + TDICT_WORDS_PER_BLOCK * p->num_blocks++;
  words[TDICT_BLOCK_BASE] = bits < width ? (uint64_t)p->base ^ flip : 0;
  words[TDICT_BLOCK_PLACE] = (uint64_t)p->filled << TDICT_PLACE_OFFSET | bits;
  const size_t size = (count * bits + width - 1) / width * ROW;
  if (!is_packed || rows != to) tdict_stream_copy_padded(p->stores, to, is_packed ? rows : src, size, size, NULL);
  p->filled += size;
}

/* Appends the last block of elements that do not fill the last row, with copies of the first element in this row. */
static void append_partial(tdict_packer *p, tdict_pack_rows pack, const char *src, size_t bytes) {
  char rows[BLOCK] __attribute__((aligned(ROW)));
  memcpy(rows, src, bytes);
  for (size_t at = bytes; at < round_to(bytes, ROW); at += p->item_bytes) memcpy(rows + at, src, p->item_bytes);
  append(p, pack, rows, round_to(bytes, ROW));
}

void tdict_pack_add(tdict_packer *p, const void *src, size_t bytes) {
  const tdict_pack_rows pack = tdict_pack_rows_of(p->kind, p->item_bytes);
  const char *at = src, *end = at + bytes;
  for (size_t some; at < end; at += some) {
    some = (size_t)(end - at) < BLOCK ? (size_t)(end - at) : BLOCK;
    (some % ROW ? append_partial : append)(p, pack, at, some);
  }
}

size_t tdict_pack_end(tdict_packer *p) {
  ((uint64_t *)(void *)p->packed)[TDICT_PACK_SIZE] = p->filled;
  return p->filled;
}
