/* Tests the packing of elements, and the kernel UNPACK, which restores the elements. */
#include "engine/kinds/pack.h"

#include "core/kernel/random_move.h"
#include "engine/kinds/pack_values.h"

enum { MOST_BYTES = 4 * PV_BLOCK, GUARD = 32 };

/* Packs elements, `blocks` blocks at a time. Returns the number of packed bytes. */
static size_t pack(tdict_packer p, tdict_dtype dtype, const void *data, size_t bytes, size_t blocks, void *packed) {
  tdict_pack_begin(&p, dtype, packed, bytes);
  for (size_t at = 0, some; at < bytes; at += some) {
    some = bytes - at < blocks * PV_BLOCK ? bytes - at : blocks * PV_BLOCK;
    tdict_pack_add(&p, (const char *)data + at, some);
  }
  const size_t size = tdict_pack_end(&p);
  tdict_stream_fence();
  return size;
}

/* Checks that each kind of vector instructions produces the same bytes, as many as the model computes. */
static void check_packed(rng *r, tdict_dtype dtype, const void *data, size_t bytes) {
  const tdict_packer plain = {0};
  scoped_bytes packed = aligned_alloc(64, MOST_BYTES + 4096), other = aligned_alloc(64, MOST_BYTES + 4096);
  memset(packed, 0xA5, MOST_BYTES + 4096);
  memset(other, 0xA5, MOST_BYTES + 4096);
  const size_t size = pack(plain, dtype, data, bytes, 9, packed), wanted = pv_packed_bytes(dtype, data, bytes);
  if (size != wanted)
    fail_msg("%s, %zu bytes: packed size %zu, wanted %zu", tdict_dtype_name(dtype), bytes, size, wanted);
  assert_true(size <= tdict_pack_most_bytes(bytes));
  assert_int_equal(tdict_pack_size(packed), size);
  for (int isa = 0; isa < TDICT_STREAM_KINDS; isa++) {
    if (!tdict_stream_has((tdict_stream_kind)isa)) continue;
    const tdict_packer vectors = {.kind = (tdict_stream_kind)isa,
                                  .stores = pick(r, 0, 1) ? (tdict_stream_kind)isa : TDICT_STREAM_PLAIN};
    assert_int_equal(pack(vectors, dtype, data, bytes, 1 + (size_t)isa, other), size);
    assert_memory_equal(packed, other, size); /* unused bytes of the head are unchanged */
    const size_t most = tdict_pack_most_bytes(bytes);
    for (size_t at = most; at < MOST_BYTES + 4096; at++) assert_int_equal(other[at], 0xA5);
  }
}

CASE(pack_needs_few_bytes) {
  rng r = {1};
  scoped_bytes data = malloc(MOST_BYTES);
  for (int d = 0; d < PV_DTYPES; d++)
    for (int kind = 0; kind < PV_KINDS; kind++)
      for (int round = 0; round < 3; round++) {
        const unsigned item = pv_item(pv_dtypes[d]);
        const size_t count = (size_t)pick(&r, 1, (round ? MOST_BYTES : 600) / item);
        pv_fill(&r, pv_dtypes[d], data, count, (pv_kind)kind);
        check_packed(&r, pv_dtypes[d], data, count * item);
      }
}

/* Packs elements, restores them on the device, and checks them and the bytes before and after them. */
static void check_unpacked(const areas *a, tdict_dtype dtype, const void *data, size_t bytes, size_t shift) {
  const tdict_packer best = {.kind = tdict_stream_best()};
  scoped_bytes packed = aligned_alloc(64, pv_round(tdict_pack_most_bytes(bytes), 64)),
               found = malloc(bytes + 2 * GUARD);
  const size_t size = pack(best, dtype, data, bytes, 4, packed);
  char *dst = (char *)a->dst.data + GUARD + shift;
  tdict_kernel_work work;
  raw_fill(a->raw, dst - GUARD, 0xA5, bytes + 2 * GUARD);
  raw_write(a->raw, a->src.data, packed, size);
  tdict_kernel_work_init(&work, TDICT_KERNEL_UNPACK);
  td_ok(tdict_kernel_add_unpack(&work, dst, a->src.data, bytes, pv_item(dtype), err));
  td_ok(a->b.memory->ops->run(a->b.memory, &work, NULL, err));
  tdict_kernel_work_reset(&work);
  raw_read(a->raw, found, dst - GUARD, bytes + 2 * GUARD);
  for (size_t i = 0; i < bytes + 2 * GUARD; i++) {
    const bool inside = i >= GUARD && i < GUARD + bytes;
    const unsigned wanted = inside ? ((const unsigned char *)data)[i - GUARD] : 0xA5;
    if (found[i] != wanted)
      fail_msg("%s of %zu bytes, shift %zu: byte %td is %u, wanted %u", tdict_dtype_name(dtype), bytes, shift,
               (ptrdiff_t)i - GUARD, found[i], wanted);
  }
}

/* Restores elements of every dtype and kind, aligned and unaligned, in sizes near multiples of units and blocks. */
GPU_CASE(unpack_restores_every_element) {
  rng r = {2};
  scoped_areas a = areas_open(1);
  scoped_bytes data = malloc(MOST_BYTES);
  for (int d = 0; d < PV_DTYPES; d++)
    for (int kind = 0; kind < PV_KINDS; kind++) {
      const unsigned item = pv_item(pv_dtypes[d]);
      const size_t whole = (size_t)pick(&r, 1, 3) * PV_BLOCK / item;
      const size_t counts[] = {(size_t)pick(&r, 1, 40), (size_t)pick(&r, 41, 2000), whole - (size_t)pick(&r, 1, 9),
                               whole, whole + (size_t)pick(&r, 1, 40)};
      for (int c = 0; c < 5; c++) {
        pv_fill(&r, pv_dtypes[d], data, counts[c], (pv_kind)kind);
        check_unpacked(&a, pv_dtypes[d], data, counts[c] * item, 0);
        check_unpacked(&a, pv_dtypes[d], data, counts[c] * item, (size_t)pick(&r, 1, 17));
      }
    }
}

/* Restores differences of every number of bits, in two blocks and a part of a block with different lowest elements. */
GPU_CASE(unpack_restores_every_width) {
  rng r = {4};
  scoped_areas a = areas_open(1);
  scoped_bytes data = malloc(MOST_BYTES);
  for (int d = 0; pv_dtypes[d] != TDICT_BOOL; d++)
    for (unsigned bits = 0; bits <= 8 * pv_item(pv_dtypes[d]); bits++) {
      const size_t item = pv_item(pv_dtypes[d]), block = PV_BLOCK / item,
                   rest = (size_t)pick(&r, 1, (int64_t)block - 1);
      for (size_t i = 0; i < 3; i++) {
        pv_fill_width(&r, pv_dtypes[d], data + i * PV_BLOCK, i < 2 ? block : rest, bits);
        if (i < 2) assert_int_equal(pv_bits(pv_dtypes[d], data + i * PV_BLOCK, block), bits);
      }
      check_packed(&r, pv_dtypes[d], data, 2 * PV_BLOCK + rest * item);
      check_unpacked(&a, pv_dtypes[d], data, 2 * PV_BLOCK + rest * item, 0);
    }
}

/* Adds more entries than the parameters of one launch can hold. */
GPU_CASE(unpack_restores_many_entries) {
  enum { ENTRIES = 150, EACH = 512 };
  const tdict_packer best = {.kind = tdict_stream_best()};
  rng r = {3};
  scoped_areas a = areas_open(1);
  tdict_kernel_work work;
  unsigned char *packed = aligned_alloc(64, 4096), *data = a.model_dst;
  size_t at = 0, src = 0;
  tdict_kernel_work_init(&work, TDICT_KERNEL_UNPACK);
  for (int i = 0; i < ENTRIES; i++) {
    const tdict_dtype dtype = pv_dtypes[pick(&r, 0, PV_DTYPES - 1)];
    const size_t count = (size_t)pick(&r, 0, EACH / pv_item(dtype)), bytes = count * pv_item(dtype);
    at = pv_round(at, 16);
    pv_fill(&r, dtype, data + at, count, (pv_kind)pick(&r, 0, PV_MIXED));
    const size_t size = pack(best, dtype, data + at, bytes, 1, packed);
    raw_write(a.raw, (char *)a.src.data + src, packed, size);
    td_ok(
        tdict_kernel_add_unpack(&work, (char *)a.dst.data + at, (char *)a.src.data + src, bytes, pv_item(dtype), err));
    at += bytes;
    src += pv_round(size, 256);
    assert_true(src < AREA_BYTES);
  }
  assert_true(tdict_kernel_table_words(&work) > TDICT_KERNEL_PARAM_WORDS);
  td_ok(a.b.memory->ops->run(a.b.memory, &work, NULL, err));
  areas_check_dst(&a);
  tdict_kernel_work_reset(&work);
  free(packed);
}

CASE(unpack_checks_its_numbers) {
  tdict_kernel_work work;
  static const char bytes[64] __attribute__((aligned(16)));
  tdict_kernel_work_init(&work, TDICT_KERNEL_UNPACK);
  td_fails(TDICT_EINVAL, "30 bytes of packed elements of 4 bytes",
           tdict_kernel_add_unpack(&work, NULL, bytes, 30, 4, err));
  td_fails(TDICT_EINVAL, "of packed elements of 3 bytes", tdict_kernel_add_unpack(&work, NULL, bytes, 30, 3, err));
  td_fails(TDICT_EINVAL, "not a multiple of 16", tdict_kernel_add_unpack(&work, NULL, bytes + 8, 32, 4, err));
  assert_int_equal(work.num_entries, 0);
  for (int d = 0; d < PV_DTYPES; d++) assert_true(tdict_pack_supports(pv_dtypes[d]));
  static const tdict_dtype others[] = {
      TDICT_I8, TDICT_U8, TDICT_F16, TDICT_F32, TDICT_C64, TDICT_BF16, TDICT_DTYPE(0, 64, 7)};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) assert_false(tdict_pack_supports(others[i]));
  tdict_kernel_work_reset(&work);
}
