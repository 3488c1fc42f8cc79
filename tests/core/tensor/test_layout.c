/* Tests computations with shapes and strides, and splitting copies into rectangles. */
#include "naive.h"

#include "core/tensor/layout.h"

CASE(layout_check_counts) {
  tdict_layout_size size;
  const int64_t shape[] = {2, 3, 4}, empty[] = {5, 0, INT64_MAX / 40};
  td_ok(tdict_layout_check("x", TDICT_F32, 3, shape, &size, err));
  assert_int_equal(size.numel, 24);
  assert_int_equal(size.bytes, 96);
  td_ok(tdict_layout_check("x", TDICT_DTYPE(2, 32, 3), 3, shape, &size, err));
  assert_int_equal(size.bytes, 288);
  td_ok(tdict_layout_check("x", TDICT_C128, 0, NULL, &size, err));
  assert_int_equal(size.numel, 1);
  assert_int_equal(size.bytes, 16);
  td_ok(tdict_layout_check("x", TDICT_F64, 3, empty, &size, err));
  assert_int_equal(size.numel, 0);
  assert_int_equal(size.bytes, 0);
  int64_t most[TDICT_MAX_NDIM];
  for (int i = 0; i < TDICT_MAX_NDIM; i++) most[i] = 2;
  td_ok(tdict_layout_check("x", TDICT_U8, TDICT_MAX_NDIM, most, &size, err));
  assert_true(size.numel == (int64_t)1 << 32);
}

CASE(layout_check_refuses) {
  const tdict_layout_size untouched = {-7, 7};
  tdict_layout_size size = untouched;
  const int64_t shape[] = {2, 3}, negative[] = {2, -3}, large[] = {(int64_t)1 << 61, 4};
  const int64_t large_and_empty[] = {(int64_t)1 << 61, 0, 4}, negative_and_empty[] = {0, -1};
  td_fails(TDICT_EDTYPE, "thing", tdict_layout_check("thing", TDICT_DTYPE(2, 31, 1), 2, shape, &size, err));
  td_fails(TDICT_EINVAL, "ndim is -1", tdict_layout_check("x", TDICT_F32, -1, shape, &size, err));
  td_fails(TDICT_EINVAL, "ndim is 33", tdict_layout_check("x", TDICT_F32, 33, shape, &size, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_layout_check("x", TDICT_F32, 2, NULL, &size, err));
  td_fails(TDICT_EINVAL, "shape[1] is -3", tdict_layout_check("x", TDICT_F32, 2, negative, &size, err));
  td_fails(TDICT_EINVAL, "shape[1] is -1", tdict_layout_check("x", TDICT_F32, 2, negative_and_empty, &size, err));
  td_fails(TDICT_EOVERFLOW, "", tdict_layout_check("x", TDICT_U8, 2, large, &size, err));
  td_fails(TDICT_EOVERFLOW, "", tdict_layout_check("x", TDICT_I32, 1, large, &size, err));
  /* The strides of this shape in C order would overflow. */
  td_fails(TDICT_EOVERFLOW, "", tdict_layout_check("x", TDICT_U8, 3, large_and_empty, &size, err));
  assert_memory_equal(&size, &untouched, sizeof size);
}

CASE(layout_strides_are_c_order) {
  const int64_t shape[] = {2, 0, 4, 1, 5}, wanted[] = {20, 20, 5, 5, 1};
  int64_t strides[5];
  tdict_layout_strides(5, shape, strides);
  assert_memory_equal(strides, wanted, sizeof wanted);
}

CASE(layout_contiguity_ignores_size_one) {
  const int64_t shape[] = {1, 3, 1, 4}, odd[] = {77, 4, -5, 1}, gap[] = {12, 5, 4, 1}, back[] = {12, 4, 4, -1};
  const int64_t empty[] = {2, 0};
  assert_true(tdict_layout_is_contiguous(4, shape, odd));
  assert_false(tdict_layout_is_contiguous(4, shape, gap));
  assert_false(tdict_layout_is_contiguous(4, shape, back));
  assert_true(tdict_layout_is_contiguous(2, empty, back));
  assert_true(tdict_layout_is_contiguous(0, NULL, NULL));
}

CASE(layout_extent_reaches) {
  const int64_t shape[] = {3, 4}, strides[] = {10, -2};
  int64_t low = 99, end = 99;
  assert_true(tdict_layout_extent(2, shape, strides, 4, &low, &end));
  assert_int_equal(low, -24);
  assert_int_equal(end, 84);
  assert_true(tdict_layout_extent(0, NULL, NULL, 8, &low, &end));
  assert_int_equal(low, 0);
  assert_int_equal(end, 8);
  const int64_t empty[] = {3, 0}, single[] = {1, 1}, wild[] = {INT64_MAX, INT64_MIN};
  assert_true(tdict_layout_extent(2, empty, wild, 8, &low, &end));
  assert_int_equal(low, 0);
  assert_int_equal(end, 0);
  assert_true(tdict_layout_extent(2, single, wild, 8, &low, &end));
  assert_int_equal(low, 0);
  assert_int_equal(end, 8);
}

CASE(layout_extent_sees_overflow) {
  const int64_t shape[] = {2, 2};
  static const int64_t strides[][2] = {{INT64_MAX, 1},
                                       {INT64_MIN, 1},
                                       {INT64_MAX / 8, 1},
                                       {INT64_MAX / 16 + 1, INT64_MAX / 16 + 1},
                                       {INT64_MIN / 16 - 1, INT64_MIN / 16 - 1},
                                       {INT64_MAX / 16, INT64_MIN / 16}};
  int64_t low, end;
  for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
    assert_false(tdict_layout_extent(2, shape, strides[i], 8, &low, &end));
  const int64_t many[] = {INT64_MAX}, two[] = {2};
  assert_false(tdict_layout_extent(1, many, two, 1, &low, &end));
}

CASE(pair_merges_adjacent_dimensions) {
  tdict_pair pair;
  const int64_t shape[] = {2, 1, 3, 4}, rows[] = {20, 9, 5, 1}, zero[] = {0, 0, 0, 0};
  tdict_pair_init(&pair, 4, shape, NULL, NULL, 4);
  assert_int_equal(pair.ndim, 1);
  assert_int_equal(pair.shape[0], 1);
  assert_int_equal(pair.run_bytes, 96);
  /* each row is followed by a gap; the outer dimensions cannot be merged, because 3 * 5 is not 20 */
  tdict_pair_init(&pair, 4, shape, NULL, rows, 4);
  assert_int_equal(pair.run_bytes, 16);
  assert_int_equal(pair.ndim, 2);
  assert_int_equal(pair.shape[0], 2);
  assert_int_equal(pair.shape[1], 3);
  assert_int_equal(pair.src_strides[0], 80);
  assert_int_equal(pair.src_strides[1], 20);
  assert_int_equal(pair.dst_strides[0], 48);
  assert_int_equal(pair.dst_strides[1], 16);
  const int64_t even[] = {15, 9, 5, 1};
  tdict_pair_init(&pair, 4, shape, even, NULL, 4);
  assert_int_equal(pair.ndim, 1);
  assert_int_equal(pair.shape[0], 6);
  assert_int_equal(pair.run_bytes, 16);
  tdict_pair_init(&pair, 4, shape, NULL, zero, 4);
  assert_int_equal(pair.ndim, 1);
  assert_int_equal(pair.shape[0], 24);
  assert_int_equal(pair.src_strides[0], 0);
  assert_int_equal(pair.run_bytes, 4);
}

static tdict_status count_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)rect;
  (void)err;
  ++*(int *)user;
  return TDICT_OK;
}

CASE(pair_walk_without_elements_calls_nothing) {
  tdict_pair pair;
  const int64_t shape[] = {3, 0, 2}, wild[] = {INT64_MAX, INT64_MIN, 5};
  int count = 0;
  tdict_pair_init(&pair, 3, shape, wild, wild, 8);
  assert_true(pair.ndim >= 1);
  const tdict_pair_span part = {NULL, NULL, 0, 1000};
  td_ok(tdict_pair_walk(&pair, &part, count_rect, &count, err));
  assert_int_equal(count, 0);
  tdict_pair_init(&pair, 0, NULL, NULL, NULL, 8);
  const tdict_pair_span nothing = {NULL, NULL, 3, 3}, all = {NULL, NULL, 0, 1000};
  td_ok(tdict_pair_walk(&pair, &nothing, count_rect, &count, err));
  assert_int_equal(count, 0);
  td_ok(tdict_pair_walk(&pair, &all, count_rect, &count, err));
  assert_int_equal(count, 1);
}

static tdict_status fail_third(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)rect;
  if (++*(int *)user < 3) return TDICT_OK;
  if (err) err->status = TDICT_EIO;
  return TDICT_EIO;
}

CASE(pair_walk_stops_at_failure) {
  tdict_pair pair;
  const int64_t shape[] = {5, 4}, column[] = {1, 5};
  int count = 0;
  tdict_error err = {0};
  tdict_pair_init(&pair, 2, shape, NULL, column, 1);
  const tdict_pair_span part = {NULL, NULL, 0, 20};
  assert_int_equal(tdict_pair_walk(&pair, &part, fail_third, &count, &err), TDICT_EIO);
  assert_int_equal(count, 3);
  assert_int_equal(err.status, TDICT_EIO);
}

typedef struct walked {
  size_t bytes;
  int num_rects;
} walked;
static tdict_status copy_bytes(void *user, const tdict_rect *rect, tdict_error *err) {
  walked *w = user;
  (void)err;
  for (size_t row = 0; row < rect->height; row++)
    for (size_t i = 0; i < rect->width; i++)
      ((unsigned char *)rect->dst)[(int64_t)row * rect->dst_pitch + (int64_t)i] =
          ((const unsigned char *)rect->src)[(int64_t)row * rect->src_pitch + (int64_t)i];
  w->bytes += rect->width * rect->height;
  w->num_rects++;
  return TDICT_OK;
}

/* Source and destination buffers with extra bytes before and after their layouts. */
enum { ROOM = 64 };
typedef struct sides {
  naive_layout dst, src;
  size_t item, dst_bytes, src_bytes;
  unsigned char *dst_data, *src_data, *wanted;
} sides;

static void make_sides(naive_random *r, sides *s) {
  static const size_t items[] = {1, 2, 3, 4, 6, 8, 12, 16, 20};
  s->item = items[naive_below(r, sizeof items / sizeof *items)];
  naive_shape(r, 5, &s->dst);
  s->src = s->dst;
  naive_strides(r, false, &s->dst);
  naive_strides(r, true, &s->src);
  s->dst_bytes = (size_t)(s->dst.end - s->dst.low) * s->item + 2 * ROOM;
  s->src_bytes = (size_t)(s->src.end - s->src.low) * s->item + 2 * ROOM;
  s->dst_data = malloc(s->dst_bytes);
  s->src_data = malloc(s->src_bytes);
  s->wanted = malloc(s->dst_bytes);
  memset(s->dst_data, 0xA5, s->dst_bytes);
  memset(s->wanted, 0xA5, s->dst_bytes);
  td_fill_random(s->src_data, s->src_bytes, naive_next(r));
}

static size_t first_byte(const naive_layout *layout, size_t item) { return ROOM + (size_t)-layout->low * item; }

static void free_sides(sides *s) {
  free(s->dst_data);
  free(s->src_data);
  free(s->wanted);
}
#define scoped_sides TD_SCOPED(free_sides, sides)

CASE(pair_walk_parts_equal_whole) {
  naive_random r = {0x70a17};
  for (int round = 0; round < 10000; round++) {
    scoped_sides s;
    make_sides(&r, &s);
    unsigned char *dst = s.dst_data + first_byte(&s.dst, s.item), *src = s.src_data + first_byte(&s.src, s.item);
    naive_copy(&s.dst, s.wanted + first_byte(&s.dst, s.item), &s.src, src, s.item);
    tdict_pair pair;
    tdict_pair_init(&pair, s.dst.ndim, s.dst.shape, s.dst.strides, s.src.strides, s.item);
    size_t total = (size_t)s.dst.numel * s.item;
    for (size_t at = 0; at < total;) {
      size_t most = naive_below(&r, 3) ? total - at : total - at < 9 ? total - at : 9;
      tdict_pair_span part = {dst, src, at, at + 1 + (size_t)naive_below(&r, (int64_t)most)};
      walked seen = {0, 0};
      td_ok(tdict_pair_walk(&pair, &part, copy_bytes, &seen, err));
      assert_int_equal(seen.bytes, part.end - part.begin);
      at = part.end;
    }
    assert_memory_equal(s.dst_data, s.wanted, s.dst_bytes);
    memset(s.dst_data, 0xA5, s.dst_bytes);
    walked seen = {0, 0};
    tdict_pair_span whole = {dst, src, 0, SIZE_MAX};
    td_ok(tdict_pair_walk(&pair, &whole, copy_bytes, &seen, err));
    assert_int_equal(seen.bytes, total);
    assert_memory_equal(s.dst_data, s.wanted, s.dst_bytes);
  }
}

CASE(pair_walk_writes_its_part_only) {
  naive_random r = {0x9a27};
  for (int round = 0; round < 3000; round++) {
    scoped_sides s;
    make_sides(&r, &s);
    unsigned char *dst = s.dst_data + first_byte(&s.dst, s.item), *src = s.src_data + first_byte(&s.src, s.item);
    size_t total = (size_t)s.dst.numel * s.item, at = 0;
    tdict_pair_span part = {dst, src, (size_t)naive_below(&r, (int64_t)total + 1), 0};
    part.end = part.begin + (size_t)naive_below(&r, (int64_t)(total - part.begin) + 1);
    int64_t index[8] = {0};
    if (total) do { /* byte by byte, in C order */
        unsigned char *to = s.wanted + first_byte(&s.dst, s.item);
        to += naive_offset(s.dst.ndim, s.dst.strides, index) * (int64_t)s.item;
        const unsigned char *from = src + naive_offset(s.src.ndim, s.src.strides, index) * (int64_t)s.item;
        for (size_t i = 0; i < s.item; i++, at++)
          if (at >= part.begin && at < part.end) to[i] = from[i];
      } while (naive_step(s.dst.ndim, s.dst.shape, index));
    tdict_pair pair;
    walked seen = {0, 0};
    tdict_pair_init(&pair, s.dst.ndim, s.dst.shape, s.dst.strides, s.src.strides, s.item);
    td_ok(tdict_pair_walk(&pair, &part, copy_bytes, &seen, err));
    assert_memory_equal(s.dst_data, s.wanted, s.dst_bytes);
  }
}

CASE(pair_walk_shows_few_rectangles) {
  tdict_pair pair;
  walked seen = {0, 0};
  static unsigned char dst[100 * 10], src[120 * 10];
  const int64_t shape[] = {100, 10}, rows[] = {12, 1};
  tdict_pair_init(&pair, 2, shape, NULL, rows, 1);
  const tdict_pair_span whole = {dst, src, 0, 1000}, middle = {dst, src, 15, 985};
  td_ok(tdict_pair_walk(&pair, &whole, copy_bytes, &seen, err));
  assert_int_equal(seen.num_rects, 1);
  seen.num_rects = 0;
  td_ok(tdict_pair_walk(&pair, &middle, copy_bytes, &seen, err));
  assert_int_equal(seen.num_rects, 3);
}

CASE(pair_walk_only_computes_addresses) {
  tdict_pair pair;
  int count = 0;
  const int64_t shape[] = {3, 5}, back[] = {-5, -1};
  tdict_pair_init(&pair, 2, shape, NULL, back, 8);
  const uintptr_t far = (uintptr_t)1 << 62;
  const tdict_pair_span part = {(void *)far, (const void *)(far + 112), 0, 120};
  td_ok(tdict_pair_walk(&pair, &part, count_rect, &count, err));
  assert_int_equal(count, 1);
}

CASE(rect_copy_any_width_and_pitch) {
  naive_random r = {0x2ec7};
  for (int round = 0; round < 20000; round++) {
    static const size_t widths[] = {1, 2, 4, 8, 16, 3, 5, 7, 12, 31, 64};
    size_t width = widths[naive_below(&r, sizeof widths / sizeof *widths)], height = (size_t)naive_below(&r, 9);
    int64_t dst_pitch = (int64_t)width + naive_below(&r, 3), src_pitch = naive_below(&r, 80) - 40;
    if (naive_below(&r, 2)) dst_pitch = -dst_pitch;
    if (naive_below(&r, 4) == 0) src_pitch = (int64_t)width;
    unsigned char dst[1600], wanted[1600], src[1600];
    memset(dst, 0xA5, sizeof dst);
    memset(wanted, 0xA5, sizeof wanted);
    td_fill_random(src, sizeof src, naive_next(&r));
    for (size_t row = 0; row < height; row++)
      memcpy(wanted + 800 + (int64_t)row * dst_pitch, src + 800 + (int64_t)row * src_pitch, width);
    const tdict_rect rect = {dst + 800, src + 800, dst_pitch, src_pitch, width, height};
    tdict_rect_copy(&rect);
    assert_memory_equal(dst, wanted, sizeof dst);
  }
}
