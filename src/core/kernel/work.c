/* Builds works: merges dimensions, chooses units, writes entries and layouts. See work.h for ownership and threads. */
#include "core/kernel/work.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/checked.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/kernel/number.h"

enum { MAX_WIDTH = 16, MAX_DIMS = TDICT_KERNEL_MAX_NDIM + 2, MANY_BLOCKS = 8192, MAX_BATCHES = 16 };
__extension__ typedef unsigned __int128 u128;
#define MAX_BLOCKS ((uint64_t)INT32_MAX) /* the largest grid of a GPU */

/* The merged dimensions of an entry. Strides are bytes. */
typedef struct dims {
  int ndim, listed; /* listed: -1 if no dimension is listed */
  uint64_t count[MAX_DIMS], dst[MAX_DIMS], src[MAX_DIMS];
} dims;

void tdict_kernel_work_init(tdict_kernel_work *work, tdict_kernel_op op) {
  memset(work, 0, sizeof *work);
  work->op = op;
}

void tdict_kernel_work_reset(tdict_kernel_work *work) {
  free(work->entries);
  free(work->results);
  free(work->body);
  tdict_kernel_work_init(work, work->op);
}

const char *tdict_kernel_name(tdict_kernel_op op) {
  static const char *const names[TDICT_KERNEL_NUM_OPS] = {"tdict_copy",  "tdict_convert", "tdict_fill",
                                                          "tdict_check", "tdict_unpack",  "tdict_window"};
  return names[op];
}

/* Makes space for `words` more words of the body. Returns false if memory is exhausted. */
static bool reserve_words(tdict_kernel_work *work, size_t words) {
  size_t needed;
  if (!tdict_add_size(work->num_words, words, &needed)) return false;
  return TDICT_RESERVE(work->body, work->cap_words, needed);
}

/* Makes space for more entries. Returns false if memory is exhausted. */
static bool reserve_entries(tdict_kernel_work *work, size_t entries) {
  size_t needed, cap = work->cap_entries;
  if (!tdict_add_size(work->num_entries, entries, &needed)) return false;
  if (needed <= cap) return true;
  if (!tdict_array_grow(&work->results, &cap, needed, sizeof *work->results)) return false;
  return tdict_array_grow(&work->entries, &work->cap_entries, needed, TDICT_WORDS_PER_ENTRY * sizeof *work->entries);
}

static tdict_status no_memory(tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "kernel: no host memory for the description of a launch");
}

static uint64_t divide_up(uint64_t a, uint64_t b) { return a / b + (a % b != 0); }

typedef struct addresses {
  uint64_t dst, src;
} addresses;
static addresses addresses_of(const void *dst, const void *src) {
  return (addresses){(uint64_t)(uintptr_t)dst, (uint64_t)(uintptr_t)src};
}

/* Adds an entry. `layout` is the offset of the layout in the body. */
static tdict_status add_entry(tdict_kernel_work *work, size_t layout, addresses at, uint64_t blocks, tdict_error *err) {
  if (blocks > MAX_BLOCKS - work->num_blocks)
    return tdict_fail(err, TDICT_EOVERFLOW, "kernel: more than %llu blocks in one launch",
                      (unsigned long long)MAX_BLOCKS);
  if (work->num_entries == work->cap_entries && !reserve_entries(work, 1)) return no_memory(err);
  uint64_t *entry = work->entries + TDICT_WORDS_PER_ENTRY * work->num_entries;
  entry[TDICT_ENTRY_BLOCK] = work->num_blocks;
  entry[TDICT_ENTRY_LAYOUT] = layout;
  entry[TDICT_ENTRY_DST] = at.dst;
  entry[TDICT_ENTRY_SRC] = at.src;
  work->results[work->num_entries++] = TDICT_KERNEL_NO_RESULT;
  work->num_blocks += blocks;
  return TDICT_OK;
}

/* Appends a layout and an entry. words[TDICT_WORD_UNITS] is the number of units. Chooses the number of batches of a
 * block, unless words[TDICT_WORD_FORM] has it. A block of a large entry has several batches, because finding the entry
 * takes about as long as a batch. */
static tdict_status append_entry(tdict_kernel_work *work, uint64_t *words, size_t num_words, addresses at,
                                 tdict_error *err) {
  const uint64_t batches = divide_up(words[TDICT_WORD_UNITS], TDICT_KERNEL_BLOCK_UNITS), many = batches / MANY_BLOCKS;
  const uint64_t given = words[TDICT_WORD_FORM] >> TDICT_FORM_BATCHES & 0xff;
  const uint64_t per_block = given ? given : many < 1 ? 1 : many < MAX_BATCHES ? many : MAX_BATCHES;
  const uint64_t blocks = divide_up(batches, per_block);
  words[TDICT_WORD_FORM] |= per_block << TDICT_FORM_BATCHES;
  if (!reserve_words(work, num_words)) return no_memory(err);
  tdict_status status = add_entry(work, work->num_words, at, blocks, err);
  if (status != TDICT_OK) return status;
  memcpy(work->body + work->num_words, words, num_words * sizeof *words);
  work->num_words += num_words;
  return TDICT_OK;
}

tdict_status tdict_kernel_add_positions(tdict_kernel_work *work, const int64_t *positions, int64_t count, uint64_t *out,
                                        tdict_error *err) {
  if (count < 0) return tdict_fail(err, TDICT_EINVAL, "kernel: %lld positions", (long long)count);
  if (!reserve_words(work, (size_t)count)) return no_memory(err);
  if (count > 0) memcpy(work->body + work->num_words, positions, (size_t)count * sizeof *positions);
  *out = (uint64_t)work->num_words << 1 | 1;
  work->num_words += (size_t)count;
  return TDICT_OK;
}

tdict_status tdict_kernel_work_reserve(tdict_kernel_work *work, size_t entries, tdict_error *err) {
  return reserve_entries(work, entries) ? TDICT_OK : no_memory(err);
}

/* Checks the numbers of a move, and that the number of elements fits 63 bits. */
static tdict_status check_move(const tdict_kernel_move *m, tdict_error *err) {
  int64_t numel = 1;
  bool is_empty = false;
  if (m->ndim < 0 || m->ndim > TDICT_KERNEL_MAX_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "kernel: %d dimensions, wanted 0 to %d", m->ndim, (int)TDICT_KERNEL_MAX_NDIM);
  if (m->num_lists < 0 || m->num_lists > TDICT_KERNEL_MAX_LISTS)
    return tdict_fail(err, TDICT_EINVAL, "kernel: %d lists, wanted 0 to %d", m->num_lists, (int)TDICT_KERNEL_MAX_LISTS);
  if (m->num_lists > 0 && (m->listed < 0 || m->listed >= m->ndim))
    return tdict_fail(err, TDICT_EINVAL, "kernel: lists for dimension %d of %d", m->listed, m->ndim);
  for (int k = 0; k < m->num_lists; k++)
    if (!(m->lists[k].positions & 1) && m->lists[k].positions % sizeof(int64_t) != 0)
      return tdict_fail(err, TDICT_EINVAL, "kernel: the address of list %d is not a multiple of 8", k);
  for (int d = 0; d < m->ndim; d++) {
    if (m->shape[d] < 0)
      return tdict_fail(err, TDICT_EINVAL, "kernel: dimension %d has size %lld", d, (long long)m->shape[d]);
    is_empty |= m->shape[d] == 0;
  }
  for (int d = 0; d < m->ndim && !is_empty; d++)
    if (!tdict_mul_i64(numel, m->shape[d], &numel))
      return tdict_fail(err, TDICT_EOVERFLOW, "kernel: the number of elements does not fit 63 bits");
  return TDICT_OK;
}

/* Appends a dimension, merged with the previous one if neither has lists and there is no gap between them. */
static void add_dim(dims *out, uint64_t count, uint64_t dst, uint64_t src, bool is_listed) {
  const int last = out->ndim - 1;
  if (count == 1 && !is_listed) return;
  if (last >= 0 && last != out->listed && !is_listed && out->dst[last] == count * dst &&
      out->src[last] == count * src) {
    out->count[last] *= count;
    out->dst[last] = dst;
    out->src[last] = src;
    return;
  }
  if (is_listed) out->listed = out->ndim;
  out->count[out->ndim] = count;
  out->dst[out->ndim] = dst;
  out->src[out->ndim++] = src;
}

/* Merges the dimensions of a move. For FILL, the destination's strides stand for those of the source. */
static void merge_dims(const tdict_kernel_move *m, bool is_fill, dims *out) {
  out->ndim = 0;
  out->listed = -1;
  for (int d = 0; d < m->ndim; d++) {
    const bool is_listed = m->num_lists > 0 && d == m->listed;
    uint64_t dst = (uint64_t)m->dst_strides[d], src = is_fill ? dst : (uint64_t)m->src_strides[d];
    if (is_listed && m->scatter) dst = 0;
    if (is_listed && !m->scatter) src = 0;
    add_dim(out, (uint64_t)m->shape[d], dst, src, is_listed);
  }
}

static uint64_t count_all(const dims *d) {
  uint64_t all = 1;
  for (int i = 0; i < d->ndim; i++) all *= d->count[i];
  return all;
}

/* Returns the largest power of two that divides all numbers whose bits are in `bits`, at most MAX_WIDTH. */
static uint64_t width_of(uint64_t bits) {
  return bits & 1 ? 1 : bits & 2 ? 2 : bits & 4 ? 4 : bits & 8 ? 8 : MAX_WIDTH;
}

/* Returns the bitwise OR of addresses and strides of the sides. A width that divides all of them is aligned. */
static uint64_t alignment_bits(const tdict_kernel_move *m, const dims *d, bool dst, bool src) {
  uint64_t bits = (dst ? (uint64_t)(uintptr_t)m->dst : 0) | (src ? (uint64_t)(uintptr_t)m->src : 0);
  for (int i = 0; i < d->ndim; i++) bits |= (dst ? d->dst[i] : 0) | (src ? d->src[i] : 0);
  for (int k = 0; k < m->num_lists; k++)
    if (m->scatter ? dst : src) bits |= (uint64_t)m->lists[k].stride;
  return bits;
}

/* Takes the bytes that are contiguous on both sides out of the innermost dimension. Returns their number. */
static uint64_t take_run(dims *d, uint64_t item_bytes) {
  const int last = d->ndim - 1;
  if (last < 0 || last == d->listed || d->dst[last] != item_bytes || d->src[last] != item_bytes) return item_bytes;
  d->ndim--;
  return item_bytes * d->count[last];
}

/* Divides a run into units: adds the units of a run as the innermost dimension. */
static void split_run(dims *d, uint64_t run_bytes, uint64_t width) {
  if (run_bytes == width) return;
  /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): width_of() returns at least 1 */
  d->count[d->ndim] = run_bytes / width;
  d->dst[d->ndim] = d->src[d->ndim] = width;
  d->ndim++;
}

typedef struct layout {
  uint64_t words[TDICT_FILL_DIMS + TDICT_WORDS_PER_DIM * MAX_DIMS + TDICT_WORDS_PER_LIST * TDICT_KERNEL_MAX_LISTS];
  size_t count;
} layout;

/* Writes the divider of a count, see words.h: 2^(64 + shift) / count, rounded down, plus 1. Quotients of units below
 * 2^63 are exact, because 2^(shift + 1) is not below the count. Counts of 0 and 1 need none. */
static void write_divider(uint64_t count, uint64_t out[2]) {
  uint64_t shift = 0;
  if (count < 2) {
    out[0] = out[1] = 0;
    return;
  }
  while (shift < 62 && (uint64_t)2 << shift < count) shift++;
  out[0] = (uint64_t)(((u128)1 << (64 + shift)) / count + 1);
  out[1] = shift;
}

/* Writes the words of all layouts. Those of the operation, up to `first_dim`, are written before. */
static void write_layout(const tdict_kernel_move *m, const dims *d, uint64_t form, size_t first_dim, layout *out) {
  const uint64_t units = count_all(d);
  const bool is_rows = units <= INT32_MAX && d->ndim >= 1 && d->ndim <= 2 && m->num_lists <= 1;
  const uint64_t flags = (is_rows ? TDICT_FLAG_ROWS : 0) | (m->scatter ? TDICT_FLAG_SCATTER : 0) |
                         (m->is_checked ? TDICT_FLAG_CHECKED : 0) | (m->is_guarded ? TDICT_FLAG_GUARDED : 0);
  out->words[TDICT_WORD_UNITS] = units;
  out->words[TDICT_WORD_FORM] = form | (uint64_t)d->ndim << TDICT_FORM_NDIM |
                                (uint64_t)(d->listed < 0 ? TDICT_FORM_NO_LIST : d->listed) << TDICT_FORM_LISTED |
                                (uint64_t)m->num_lists << TDICT_FORM_LISTS | flags << TDICT_FORM_FLAGS;
  out->count = first_dim;
  for (int i = 0; i < d->ndim; i++) {
    out->words[out->count++] = d->count[i];
    out->words[out->count++] = d->dst[i];
    out->words[out->count++] = d->src[i];
    write_divider(d->count[i], &out->words[out->count]);
    out->count += 2;
  }
  for (int k = 0; k < m->num_lists; k++) {
    out->words[out->count++] = m->lists[k].positions;
    out->words[out->count++] = (uint64_t)m->lists[k].size;
    out->words[out->count++] = (uint64_t)m->lists[k].stride;
  }
}

tdict_status tdict_kernel_add_copy(tdict_kernel_work *work, const tdict_kernel_move *move, tdict_error *err) {
  dims d;
  layout out;
  TDICT_ASSERT(work->op == TDICT_KERNEL_COPY);
  tdict_status status = check_move(move, err);
  if (status != TDICT_OK) return status;
  if (move->item_bytes == 0) return tdict_fail(err, TDICT_EINVAL, "kernel: elements of 0 bytes");
  merge_dims(move, false, &d);
  const uint64_t run = take_run(&d, move->item_bytes);
  const uint64_t width = width_of(run | alignment_bits(move, &d, true, true));
  split_run(&d, run, width);
  write_layout(move, &d, width << TDICT_FORM_WIDTH, TDICT_COPY_DIMS, &out);
  status = append_entry(work, out.words, out.count, addresses_of(move->dst, move->src), err);
  if (status == TDICT_OK) work->has_results |= move->is_checked;
  return status;
}

/* Returns the kernel's type of a dtype or of the parts of a complex one, or TDICT_KERNEL_NUM_TYPES. */
static tdict_kernel_type type_of(tdict_dtype dtype) {
  static const struct {
    tdict_dtype dtype;
    tdict_kernel_type type;
  } types[] = {
      {TDICT_I8, TDICT_KERNEL_I8},         {TDICT_I16, TDICT_KERNEL_I16},   {TDICT_I32, TDICT_KERNEL_I32},
      {TDICT_I64, TDICT_KERNEL_I64},       {TDICT_U8, TDICT_KERNEL_U8},     {TDICT_U16, TDICT_KERNEL_U16},
      {TDICT_U32, TDICT_KERNEL_U32},       {TDICT_U64, TDICT_KERNEL_U64},   {TDICT_BOOL, TDICT_KERNEL_BOOL},
      {TDICT_F16, TDICT_KERNEL_F16},       {TDICT_BF16, TDICT_KERNEL_BF16}, {TDICT_F8E4M3, TDICT_KERNEL_F8E4M3},
      {TDICT_F8E5M2, TDICT_KERNEL_F8E5M2}, {TDICT_F32, TDICT_KERNEL_F32},   {TDICT_F64, TDICT_KERNEL_F64},
      {TDICT_C64, TDICT_KERNEL_F32},       {TDICT_C128, TDICT_KERNEL_F64}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].dtype == dtype) return types[i].type;
  return TDICT_KERNEL_NUM_TYPES;
}

static bool is_complex(tdict_dtype dtype) { return dtype == TDICT_C64 || dtype == TDICT_C128; }
static bool is_signed(tdict_dtype dtype) { return (dtype & 0xffu) == 0; }

bool tdict_kernel_converts(tdict_dtype to, tdict_dtype from) {
  return type_of(to) != TDICT_KERNEL_NUM_TYPES && type_of(from) != TDICT_KERNEL_NUM_TYPES &&
         (is_complex(to) || !is_complex(from));
}

bool tdict_kernel_cast_can_fail(const tdict_cast *c) {
  if (!tdict_dtype_is_integer(c->to)) return false;
  if (c->is_scaled) return true;
  if (c->from == TDICT_BOOL) return false;
  if (!tdict_dtype_is_integer(c->from)) return true;
  const size_t to = tdict_dtype_bytes(c->to), from = tdict_dtype_bytes(c->from);
  if (is_signed(c->to) == is_signed(c->from)) return to < from;
  return is_signed(c->from) || to <= from;
}

/* Returns true if a unit of a conversion can be a quad: if the elements are one row, both sides are aligned, and the
 * conversion goes through float32. */
static bool has_quads(const tdict_kernel_move *m, const dims *d, const tdict_type_pair *c) {
  const uint64_t to = tdict_type_bytes(c->to), from = tdict_type_bytes(c->from);
  return tdict_goes_through_f32(c) && d->ndim == 1 && d->listed < 0 && d->dst[0] == to && d->src[0] == from &&
         (uintptr_t)m->dst % (TDICT_QUAD * to) == 0 && (uintptr_t)m->src % (TDICT_QUAD * from) == 0;
}

/* Returns the batches of a block. A batch of quads is short, so even blocks of an entry of some MB have several. */
static uint64_t choose_quad_batches(uint64_t elements) {
  enum { MANY_QUAD_BLOCKS = 512 };
  const uint64_t many = elements / (TDICT_QUAD * TDICT_KERNEL_BLOCK_UNITS) / MANY_QUAD_BLOCKS;
  return many < 1 ? 1 : many < MAX_BATCHES ? many : MAX_BATCHES;
}

tdict_status tdict_kernel_add_convert(tdict_kernel_work *work, const tdict_kernel_move *move, const tdict_cast *cast,
                                      tdict_error *err) {
  dims d;
  layout out;
  uint32_t scale, offset;
  TDICT_ASSERT(work->op == TDICT_KERNEL_CONVERT);
  if (!tdict_kernel_converts(cast->to, cast->from) || (cast->is_scaled && is_complex(cast->to)))
    return tdict_fail(err, TDICT_ENOTSUP, "kernel: no conversion%s from %s to %s", cast->is_scaled ? " with scale" : "",
                      tdict_dtype_name(cast->from), tdict_dtype_name(cast->to));
  tdict_status status = check_move(move, err);
  if (status != TDICT_OK) return status;
  const bool parts = is_complex(cast->from); /* both parts are converted */
  const uint64_t to_bytes = tdict_dtype_bytes(cast->to) / (is_complex(cast->to) ? 2 : 1);
  const uint64_t from_bytes = tdict_dtype_bytes(cast->from) / (parts ? 2 : 1);
  merge_dims(move, false, &d);
  if (parts) add_dim(&d, 2, to_bytes, from_bytes, false);
  const bool is_aligned = width_of(alignment_bits(move, &d, true, false)) >= to_bytes &&
                          width_of(alignment_bits(move, &d, false, true)) >= from_bytes;
  tdict_type_pair pair = {.to = type_of(cast->to), .from = type_of(cast->from)};
  pair.flags = (cast->is_scaled ? TDICT_FLAG_SCALED : 0) | (is_complex(cast->to) && !parts ? TDICT_FLAG_COMPLEX : 0) |
               (is_aligned ? 0 : TDICT_FLAG_UNALIGNED);
  const uint64_t batches = has_quads(move, &d, &pair) ? choose_quad_batches(d.count[0]) : 0;
  if (batches > 0) pair.flags |= TDICT_FLAG_QUADS;
  memcpy(&scale, &cast->scale, sizeof scale);
  memcpy(&offset, &cast->offset, sizeof offset);
  out.words[TDICT_CONVERT_SCALE] = scale | (uint64_t)offset << 32;
  write_layout(move, &d,
               (uint64_t)pair.to << TDICT_FORM_TO | (uint64_t)pair.from << TDICT_FORM_FROM |
                   (uint64_t)pair.flags << TDICT_FORM_FLAGS | batches << TDICT_FORM_BATCHES,
               TDICT_CONVERT_DIMS, &out);
  if (batches > 0) out.words[TDICT_WORD_UNITS] = divide_up(d.count[0], TDICT_QUAD);
  status = append_entry(work, out.words, out.count, addresses_of(move->dst, move->src), err);
  if (status == TDICT_OK) work->has_results |= tdict_kernel_cast_can_fail(cast);
  return status;
}

tdict_status tdict_kernel_add_fill(tdict_kernel_work *work, const tdict_kernel_move *move, const void *element,
                                   tdict_error *err) {
  dims d;
  layout out;
  const uint64_t item = move->item_bytes;
  unsigned char pattern[MAX_WIDTH] = {0};
  TDICT_ASSERT(work->op == TDICT_KERNEL_FILL);
  tdict_status status = check_move(move, err);
  if (status != TDICT_OK) return status;
  if (item == 0 || item > MAX_WIDTH)
    return tdict_fail(err, TDICT_EINVAL, "kernel: a fill with an element of %zu bytes, wanted 1 to %d", (size_t)item,
                      (int)MAX_WIDTH);
  merge_dims(move, true, &d);
  const uint64_t run = take_run(&d, item);
  uint64_t width = width_of(run | alignment_bits(move, &d, true, false));
  /* Whole units must repeat after at most 16 bytes. If the size is not a power of two, a unit is a part of the
   * element. */
  if (item & (item - 1)) width = width_of(width | item);
  const uint64_t pattern_bytes = item > width ? item : width;
  for (uint64_t i = 0; i < pattern_bytes; i++) pattern[i] = ((const unsigned char *)element)[i % item];
  split_run(&d, run, width);
  memcpy(&out.words[TDICT_FILL_PATTERN], pattern, sizeof pattern);
  /* NOLINTNEXTLINE(clang-analyzer-core.DivideZero): width_of() returns at least 1 */
  out.words[TDICT_FILL_PERIOD] = pattern_bytes / width;
  write_divider(out.words[TDICT_FILL_PERIOD], &out.words[TDICT_FILL_PERIOD + 1]);
  write_layout(move, &d, width << TDICT_FORM_WIDTH, TDICT_FILL_DIMS, &out);
  return append_entry(work, out.words, out.count, addresses_of(move->dst, NULL), err);
}

tdict_status tdict_kernel_repeat(tdict_kernel_work *work, void *dst, const void *src, bool *done, tdict_error *err) {
  TDICT_ASSERT(work->op == TDICT_KERNEL_COPY || work->op == TDICT_KERNEL_FILL || work->op == TDICT_KERNEL_CONVERT);
  *done = false;
  if (work->num_entries == 0) return TDICT_OK;
  const addresses at = addresses_of(dst, src);
  const uint64_t *last = work->entries + TDICT_WORDS_PER_ENTRY * (work->num_entries - 1);
  if (((at.dst ^ last[TDICT_ENTRY_DST]) | (at.src ^ last[TDICT_ENTRY_SRC])) % MAX_WIDTH != 0) return TDICT_OK;
  tdict_status status = add_entry(work, last[TDICT_ENTRY_LAYOUT], at, work->num_blocks - last[TDICT_ENTRY_BLOCK], err);
  *done = status == TDICT_OK;
  return status;
}

tdict_status tdict_kernel_add_check(tdict_kernel_work *work, uint64_t positions, int64_t count, int64_t size,
                                    tdict_error *err) {
  uint64_t words[TDICT_CHECK_END] = {0};
  TDICT_ASSERT(work->op == TDICT_KERNEL_CHECK);
  if (count < 0 || size < 0)
    return tdict_fail(err, TDICT_EINVAL, "kernel: a check of %lld positions for size %lld", (long long)count,
                      (long long)size);
  if (!(positions & 1) && positions % sizeof(int64_t) != 0)
    return tdict_fail(err, TDICT_EINVAL, "kernel: the address of the positions is not a multiple of 8");
  words[TDICT_WORD_UNITS] = (uint64_t)count;
  words[TDICT_CHECK_SIZE] = (uint64_t)size;
  tdict_status status = append_entry(work, words, TDICT_CHECK_END, (addresses){0, positions}, err);
  if (status == TDICT_OK) work->has_results = true;
  return status;
}

tdict_status tdict_kernel_add_unpack(tdict_kernel_work *work, void *dst, const void *packed, size_t bytes,
                                     size_t item_bytes, tdict_error *err) {
  uint64_t words[TDICT_UNPACK_END] = {0};
  TDICT_ASSERT(work->op == TDICT_KERNEL_UNPACK);
  if (item_bytes == 0 || item_bytes > 8 || (item_bytes & (item_bytes - 1)) || bytes % item_bytes)
    return tdict_fail(err, TDICT_EINVAL, "kernel: %zu bytes of packed elements of %zu bytes", bytes, item_bytes);
  if ((uintptr_t)packed % MAX_WIDTH != 0)
    return tdict_fail(err, TDICT_EINVAL, "kernel: the address of packed elements is not a multiple of 16");
  words[TDICT_WORD_UNITS] = bytes / MAX_WIDTH + (bytes % MAX_WIDTH != 0);
  words[TDICT_WORD_FORM] = (uint64_t)item_bytes << TDICT_FORM_WIDTH;
  words[TDICT_UNPACK_BYTES] = bytes;
  return append_entry(work, words, TDICT_UNPACK_END, addresses_of(dst, packed), err);
}

/* Returns the batches of a block, or 0 to let append_entry() choose. If the source is in host memory, HOST_BLOCKS
 * blocks read as fast as the link allows, and the other processors of the GPU stay free for the program. */
static uint64_t choose_window_batches(const tdict_kernel_windows *w, uint64_t units) {
  enum { HOST_BLOCKS = 64, MOST = 255 };
  const uint64_t batches = divide_up(divide_up(units, TDICT_KERNEL_BLOCK_UNITS), HOST_BLOCKS);
  return !w->is_on_host ? 0 : batches < MOST ? batches : MOST;
}

/* Returns the number of the unit that has an element. A unit has up to TDICT_WINDOW_GROUP pixels of a row. */
static uint64_t find_window_unit(const tdict_kernel_windows *w, uint64_t element, uint64_t groups) {
  const uint64_t in_row = w->width * w->channels;
  return element / in_row * groups + element % in_row / (TDICT_WINDOW_GROUP * w->channels);
}

tdict_status tdict_kernel_add_windows(tdict_kernel_work *work, const tdict_kernel_windows *w, tdict_error *err) {
  uint64_t words[TDICT_WINDOW_PLACES] = {0};
  TDICT_ASSERT(work->op == TDICT_KERNEL_WINDOW && w->first < w->last);
  TDICT_ASSERT(w->channels >= 1 && w->channels <= TDICT_WINDOW_CHANNELS);
  /* count from the first sample with an element, so that the work has only the places of the samples that it reads */
  const uint64_t elements = w->height * w->width * w->channels, sample = w->first / elements;
  const uint64_t num_samples = (w->last - 1) / elements - sample + 1;
  const uint64_t first = w->first - sample * elements, last = w->last - sample * elements;
  const uint64_t row = (w->is_cut ? w->width : w->image_width) * w->channels;
  const uint64_t image = (w->is_cut ? w->height : w->image_height) * row;
  const uint64_t dst = (uint64_t)(uintptr_t)w->dst + sample * w->sample;
  const uint64_t src = (uint64_t)(uintptr_t)w->src + (w->is_cut ? 0 - first : sample * image);
  const uint64_t strides = dst | w->sample | w->row | w->pixel | w->channel, to_bytes = tdict_dtype_bytes(w->to);
  const uint64_t flags = width_of(strides) >= to_bytes ? 0 : TDICT_FLAG_UNALIGNED;
  const uint64_t groups = divide_up(w->width, TDICT_WINDOW_GROUP);
  words[TDICT_WINDOW_FIRST] = first;
  words[TDICT_WINDOW_LAST] = last;
  words[TDICT_WINDOW_BASE] = find_window_unit(w, first, groups);
  words[TDICT_WORD_UNITS] = find_window_unit(w, last - 1, groups) - words[TDICT_WINDOW_BASE] + 1;
  words[TDICT_WORD_FORM] = w->channels << TDICT_FORM_NDIM | (uint64_t)type_of(w->to) << TDICT_FORM_TO |
                           flags << TDICT_FORM_FLAGS |
                           choose_window_batches(w, words[TDICT_WORD_UNITS]) << TDICT_FORM_BATCHES;
  words[TDICT_WINDOW_GROUPS] = groups;
  write_divider(groups, &words[TDICT_WINDOW_GROUPS + 1]);
  words[TDICT_WINDOW_HEIGHT] = w->height;
  write_divider(w->height, &words[TDICT_WINDOW_HEIGHT + 1]);
  words[TDICT_WINDOW_WIDTH] = w->width;
  words[TDICT_WINDOW_SRC_BEGIN] = w->is_cut ? src + first : src;
  words[TDICT_WINDOW_SRC_END] = w->is_cut ? src + last : src + num_samples * image;
  words[TDICT_WINDOW_SRC_SAMPLE] = image;
  words[TDICT_WINDOW_SRC_ROW] = row;
  words[TDICT_WINDOW_DST_SAMPLE] = w->sample;
  words[TDICT_WINDOW_DST_ROW] = w->row;
  words[TDICT_WINDOW_DST_PIXEL] = w->pixel;
  words[TDICT_WINDOW_DST_CHANNEL] = w->channel;
  memcpy(&words[TDICT_WINDOW_SCALES], w->scales, sizeof w->scales);
  if (num_samples > SIZE_MAX - TDICT_WINDOW_PLACES || !reserve_words(work, TDICT_WINDOW_PLACES + num_samples))
    return no_memory(err);
  tdict_status status = append_entry(work, words, TDICT_WINDOW_PLACES, (addresses){dst, src}, err);
  for (uint64_t i = 0; i < num_samples && status == TDICT_OK; i++)
    work->body[work->num_words++] = w->places[sample + i] & (w->is_cut ? 1 : ~(uint64_t)0);
  return status;
}

void tdict_kernel_write_table(const tdict_kernel_work *work, uint64_t *out) {
  const size_t num_words = TDICT_WORDS_PER_ENTRY * work->num_entries;
  if (num_words > 0) memcpy(out, work->entries, num_words * sizeof *out);
  if (work->num_words > 0) memcpy(out + num_words, work->body, work->num_words * sizeof *out);
}
