/* Tests copies, fills, conversions and checks that run as a tdict_kernel_work, against a naive model. */
#include "core/kernel/work.h"

#include "core/kernel/random_move.h"
#include "device/kernels/body.h"

typedef struct copy_model {
  areas *a;
  size_t item;
} copy_model;
static void model_copy(void *user, int64_t dst, int64_t src) {
  const copy_model *c = user;
  memcpy(c->a->model_dst + dst, c->a->model_src + src, c->item);
}

static void run_and_check(areas *a, tdict_kernel_work *work) {
  td_ok(a->b.memory->ops->run(a->b.memory, work, NULL, err));
  areas_check_dst(a);
  tdict_kernel_work_reset(work);
}
static void run_check_and_close(areas *a, tdict_kernel_work *work) {
  run_and_check(a, work);
  areas_close(a);
}

/* Compares random copies, gathers and scatters with the model. Elements have 1 to 32 bytes, aligned or not. */
GPU_CASE(kernel_copies_equal_a_model) {
  static const size_t sizes[] = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32};
  int with_params = 0, with_buffer = 0;
  areas a = areas_open(0);
  for (uint64_t seed = 0; seed < 60; seed++) {
    rng r = {seed};
    tdict_kernel_work work;
    areas_fill(&a, seed);
    tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
    const int64_t wanted = pick(&r, 1, 100);
    for (int64_t i = 0; i < wanted; i++) {
      random_move m;
      const size_t item = sizes[pick(&r, 0, (int64_t)(sizeof sizes / sizeof *sizes) - 1)];
      if (!make_move(&r, &a, &work, (items){item, item}, &m)) break;
      td_ok(tdict_kernel_add_copy(&work, &m.move, err));
      each_element(&m, model_copy, &(copy_model){&a, item});
      free_move(&m);
    }
    (tdict_kernel_table_words(&work) <= TDICT_KERNEL_PARAM_WORDS ? &with_params : &with_buffer)[0]++;
    run_and_check(&a, &work);
  }
  areas_close(&a);
  assert_true(with_params > 5 && with_buffer > 5); /* tables were passed as parameters and in a buffer */
}

typedef struct fill_model {
  areas *a;
  unsigned char element[16];
  size_t item;
} fill_model;
static void model_fill(void *user, int64_t dst, int64_t src) {
  const fill_model *f = user;
  (void)src;
  memcpy(f->a->model_dst + dst, f->element, f->item);
}

/* Compares random fills with the model. Elements have every size from 1 to 16 bytes. */
GPU_CASE(kernel_fills_equal_a_model) {
  scoped_areas a = areas_open(0);
  for (uint64_t seed = 0; seed < 60; seed++) {
    rng r = {seed};
    tdict_kernel_work work;
    areas_fill(&a, seed);
    tdict_kernel_work_init(&work, TDICT_KERNEL_FILL);
    const int64_t wanted = pick(&r, 1, 40);
    for (int64_t i = 0; i < wanted; i++) {
      random_move m;
      fill_model f = {.a = &a, .item = (size_t)pick(&r, 1, 16)};
      td_fill_random(f.element, sizeof f.element, next_random(&r));
      if (!make_move(&r, &a, &work, (items){f.item, f.item}, &m)) break;
      if (!m.move.scatter) { /* a fill has no source to gather from */
        free_move(&m);
        m.move.num_lists = 0;
        m.move.listed = -1;
      }
      m.move.src = NULL;
      m.move.src_strides = NULL;
      td_ok(tdict_kernel_add_fill(&work, &m.move, f.element, err));
      each_element(&m, model_fill, &f);
      free_move(&m);
    }
    run_and_check(&a, &work);
  }
}

/* Among small and empty entries are two large ones with many blocks each. Every block must find its entry. */
GPU_CASE(kernel_blocks_find_their_entries) {
  enum { BYTES = 100000, SMALL = 24, COUNT = 21 };
  tdict_kernel_work work;
  areas a = areas_open(5);
  tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
  int64_t at = 3; /* the source is at `at` + 1, so a unit is one byte and a large entry needs 98 blocks */
  for (int i = 0; i < COUNT; i++) {
    const int64_t shape[] = {i % 10 == 5 ? BYTES : i % 3 == 0 ? 0 : SMALL}, stride[] = {1};
    const tdict_kernel_move move = {.dst = (char *)a.dst.data + at,
                                    .src = (char *)a.src.data + at + 1,
                                    .ndim = 1,
                                    .shape = shape,
                                    .dst_strides = stride,
                                    .src_strides = stride,
                                    .item_bytes = 1};
    td_ok(tdict_kernel_add_copy(&work, &move, err));
    memcpy(a.model_dst + at, a.model_src + at + 1, (size_t)shape[0]);
    at += shape[0] + 1;
  }
  assert_int_equal(work.num_entries, COUNT);
  assert_int_equal(work.num_blocks, 2 * ((BYTES + TDICT_KERNEL_BLOCK_UNITS - 1) / TDICT_KERNEL_BLOCK_UNITS) + 13);
  run_check_and_close(&a, &work);
}

/* A check returns the index of the first bad position in each list. Half of the lists are in device memory. */
GPU_CASE(kernel_checks_find_the_first_bad_position) {
  enum { LISTS = 30, MOST = 5000 };
  rng r = {3};
  tdict_kernel_work work;
  uint64_t wanted[LISTS];
  areas a = areas_open(9);
  tdict_kernel_work_init(&work, TDICT_KERNEL_CHECK);
  int64_t *positions = malloc(MOST * sizeof *positions);
  for (int i = 0; i < LISTS; i++) {
    const int64_t count = pick(&r, 0, i < 3 ? MOST : 300), size = i % 7 == 6 ? 0 : pick(&r, 1, 1000);
    wanted[i] = TDICT_KERNEL_NO_RESULT;
    for (int64_t k = 0; k < count; k++) {
      const bool is_bad = size == 0 || pick(&r, 0, 400) == 0;
      static const int64_t far[] = {INT64_MAX, INT64_MIN, INT64_MIN + 1};
      positions[k] = pick(&r, -size, size ? size - 1 : 0);
      if (is_bad) positions[k] = pick(&r, 0, 3) ? pick(&r, 0, 1) ? size : -size - 1 : far[pick(&r, 0, 2)];
      if (is_bad && wanted[i] == TDICT_KERNEL_NO_RESULT) wanted[i] = (uint64_t)k;
    }
    char *at = (char *)a.lists.data + a.lists_used;
    uint64_t list = tdict_kernel_positions_at(at);
    if (i % 2)
      td_ok(tdict_kernel_add_positions(&work, positions, count, &list, err));
    else if (count)
      raw_write(a.raw, at, positions, (size_t)count * sizeof *positions);
    a.lists_used += (size_t)count * sizeof *positions;
    td_ok(tdict_kernel_add_check(&work, list, count, size, err));
  }
  free(positions);
  assert_true(work.has_results);
  for (int again = 0; again < 2; again++) { /* the second run must not see the results of the first */
    td_ok(a.b.memory->ops->run(a.b.memory, &work, NULL, err));
    for (int i = 0; i < LISTS; i++) assert_true(work.results[i] == wanted[i]);
  }
  run_check_and_close(&a, &work);
}

/* Tests gathers that check their lists. A gather uses position 0 instead of a bad one, and reports the index of the
 * first row with a bad position. A guarded gather copies nothing for an entry that has a bad position. */
static void check_copies(bool is_guarded) {
  enum { ENTRIES = 40, SIZE = 9, MOST = 3000 };
  rng r = {8};
  tdict_kernel_work work;
  uint64_t wanted[ENTRIES];
  int num_bad = 0;
  areas a = areas_open(11);
  tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
  int64_t *positions = malloc(2 * MOST * sizeof *positions);
  scoped_bytes copied = td_alloc(MOST * 48);
  size_t used = 0;
  for (int e = 0; e < ENTRIES; e++) {
    const int64_t item = (int64_t)1 << pick(&r, 0, 4), row = item * pick(&r, 1, 3);
    const int64_t shape[] = {pick(&r, 1, e < 3 ? MOST : 200), row / item}, to[] = {row, item}, from[] = {0, item};
    tdict_kernel_list lists[2];
    wanted[e] = TDICT_KERNEL_NO_RESULT;
    used = (used + 15) / 16 * 16;
    const tdict_kernel_move move = {.dst = (char *)a.dst.data + used,
                                    .src = a.src.data,
                                    .ndim = 2,
                                    .shape = shape,
                                    .dst_strides = to,
                                    .src_strides = from,
                                    .item_bytes = (size_t)item,
                                    .is_checked = true,
                                    .is_guarded = is_guarded,
                                    .num_lists = e % 2 + 1,
                                    .lists = lists};
    for (int64_t i = 0; i < shape[0] * move.num_lists; i++) positions[i] = pick(&r, -SIZE, SIZE - 1);
    for (int64_t i = 0; i < shape[0] * move.num_lists; i++)
      if (pick(&r, 0, 300) == 0) positions[i] = (int64_t[]){SIZE, -SIZE - 1, INT64_MIN, INT64_MAX}[pick(&r, 0, 3)];
    for (int k = 0; k < move.num_lists; k++) {
      lists[k] = (tdict_kernel_list){.size = SIZE, .stride = (k + 1) * row};
      td_ok(tdict_kernel_add_positions(&work, positions + k * shape[0], shape[0], &lists[k].positions, err));
    }
    td_ok(tdict_kernel_add_copy(&work, &move, err));
    for (int64_t i = 0; i < shape[0]; i++) {
      int64_t offset = 0;
      bool is_bad = false;
      for (int k = 0; k < move.num_lists; k++) {
        const int64_t p = positions[k * shape[0] + i], at = p < 0 ? p + SIZE : p;
        is_bad |= at < 0 || at >= SIZE;
        if (at >= 0 && at < SIZE) offset += at * (k + 1) * row;
      }
      if (is_bad && wanted[e] == TDICT_KERNEL_NO_RESULT) wanted[e] = (uint64_t)i;
      memcpy(copied + i * row, a.model_src + offset, (size_t)row);
    }
    if (!is_guarded || wanted[e] == TDICT_KERNEL_NO_RESULT)
      memcpy(a.model_dst + used, copied, (size_t)(shape[0] * row));
    used += (size_t)(shape[0] * row);
    num_bad += wanted[e] != TDICT_KERNEL_NO_RESULT;
  }
  free(positions);
  assert_true(work.has_results && num_bad > 5 && num_bad < ENTRIES - 5);
  td_ok(a.b.memory->ops->run(a.b.memory, &work, NULL, err));
  for (int e = 0; e < ENTRIES; e++)
    if (work.results[e] != wanted[e]) fail_msg("entry %d: %lld", e, (long long)work.results[e]);
  run_check_and_close(&a, &work);
}
GPU_CASE(kernel_checked_copies_find_the_first_bad_position) {
  for (int i = 0; i < 2; i++) check_copies(i);
}

/* A work stores a divisor for the size of each dimension. The quotients must be exact. */
CASE(kernel_divides_exactly) {
  rng r = {77};
  for (int n = 0; n < 2000; n++) {
    tdict_kernel_work work;
    const int64_t power = (int64_t)1 << pick(&r, 1, 40),
                  count = n < 41 ? n + 2 : power + pick(&r, -1, 1) + (power == 2);
    const int64_t shape[] = {2, count}, to[] = {count + 5, 1}, from[] = {count + 9, 2};
    const tdict_kernel_move move = {
        .ndim = 2, .shape = shape, .dst_strides = to, .src_strides = from, .item_bytes = 1, .listed = -1};
    tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
    td_ok(tdict_kernel_add_copy(&work, &move, err));
    const uint64_t *dim = work.body + TDICT_COPY_DIMS + TDICT_WORDS_PER_DIM;
    assert_true(dim[0] == (uint64_t)count);
    for (int k = 0; k < 40; k++) {
      const uint64_t multiple = next_random(&r) % ((uint64_t)INT64_MAX / dim[0]) * dim[0];
      const uint64_t units[] = {next_random(&r) >> 1 >> pick(&r, 0, 62), multiple, multiple + dim[0] - 1, INT64_MAX};
      for (int u = 0; u < 4; u++) {
        const uint32_t low = (uint32_t)units[u];
        if (tdict_kernel_divide(units[u], dim[0], dim + 3) != units[u] / dim[0])
          fail_msg("%llu / %lld", (unsigned long long)units[u], (long long)count);
        if (count <= INT32_MAX && tdict_kernel_divide_small(low, (uint32_t)count, dim + 3) != low / (uint32_t)count)
          fail_msg("%u / %lld", low, (long long)count);
      }
    }
    tdict_kernel_work_reset(&work);
  }
}

/* In a large entry, each block handles several batches. Because running a large entry takes long, the case writes the
 * number of batches into a smaller entry. */
GPU_CASE(kernel_blocks_with_several_batches) {
  enum { UNITS = 100001, BATCHES = 3 };
  tdict_kernel_work work;
  areas a = areas_open(6);
  tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
  const int64_t large[] = {(int64_t)BATCHES * 8192 * TDICT_KERNEL_BLOCK_UNITS}, shape[] = {UNITS}, to[] = {1},
                from[] = {2};
  tdict_kernel_move move = {.dst = a.dst.data,
                            .src = a.src.data,
                            .ndim = 1,
                            .shape = large,
                            .dst_strides = to,
                            .src_strides = from,
                            .item_bytes = 1};
  td_ok(tdict_kernel_add_copy(&work, &move, err));
  assert_int_equal(work.body[TDICT_WORD_FORM] >> TDICT_FORM_BATCHES & 0xff, BATCHES);
  assert_int_equal(work.num_blocks, 8192);
  tdict_kernel_work_reset(&work);
  move.shape = shape;
  td_ok(tdict_kernel_add_copy(&work, &move, err));
  assert_int_equal(work.body[TDICT_WORD_FORM] >> TDICT_FORM_BATCHES & 0xff, 1);
  work.body[TDICT_WORD_FORM] += (uint64_t)(BATCHES - 1) << TDICT_FORM_BATCHES;
  work.num_blocks = (work.num_blocks + BATCHES - 1) / BATCHES;
  for (int i = 0; i < UNITS; i++) a.model_dst[i] = a.model_src[2 * i];
  run_check_and_close(&a, &work);
}

/* tdict_kernel_repeat() adds the last copy again at other addresses, unless their alignment requires another unit. */
GPU_CASE(kernel_repeats_copies) {
  rng r = {15};
  tdict_kernel_work work;
  bool is_done;
  int num_repeated = 0;
  areas a = areas_open(12);
  const int64_t shape[] = {20, 48}, to[] = {48, 1}, from[] = {64, 1};
  tdict_kernel_move move = {.ndim = 2, .shape = shape, .dst_strides = to, .src_strides = from, .item_bytes = 1};
  tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
  td_ok(tdict_kernel_repeat(&work, a.dst.data, a.src.data, &is_done, err));
  assert_false(is_done); /* no copy has been added yet */
  /* The first entry has another layout, so the case fails if the first layout is repeated instead of the last. */
  const int64_t small[] = {1, 16};
  tdict_kernel_move first = move;
  first.dst = (char *)a.dst.data + 1024 * 100;
  first.src = a.src.data;
  first.shape = small;
  td_ok(tdict_kernel_add_copy(&work, &first, err));
  memcpy(a.model_dst + 1024 * 100, a.model_src, 16);
  for (int i = 0; i < 100; i++) {
    const int64_t dst = 1024 * i + pick(&r, 0, 1) * 16 + (pick(&r, 0, 3) ? 0 : 4), src = 2048 * i + 8 * pick(&r, 0, 3);
    move.dst = (char *)a.dst.data + dst;
    move.src = (char *)a.src.data + src;
    const size_t num_words = work.num_words;
    is_done = false;
    if (i > 0) td_ok(tdict_kernel_repeat(&work, move.dst, move.src, &is_done, err));
    assert_int_equal(work.num_words, num_words); /* a repeated copy adds no layout */
    if (!is_done) td_ok(tdict_kernel_add_copy(&work, &move, err));
    num_repeated += is_done;
    for (int row = 0; row < 20; row++) memcpy(a.model_dst + dst + 48 * row, a.model_src + src + 64 * row, 48);
  }
  assert_int_equal(work.num_entries, 101);
  assert_true(num_repeated > 20 && num_repeated < 90);
  run_check_and_close(&a, &work);
}

/* A fill is repeated at other addresses, unless their alignment requires another unit. */
GPU_CASE(kernel_repeats_fills) {
  enum { FILLS = 100, ITEM = 12, ROWS = 20, COLUMNS = 4 };
  rng r = {16};
  tdict_kernel_work work;
  unsigned char element[ITEM];
  bool is_done;
  int num_repeated = 0;
  areas a = areas_open(12);
  td_fill_random(element, sizeof element, next_random(&r));
  const int64_t shape[] = {ROWS, COLUMNS}, to[] = {COLUMNS * ITEM, ITEM};
  tdict_kernel_move move = {.ndim = 2, .shape = shape, .dst_strides = to, .item_bytes = ITEM};
  tdict_kernel_work_init(&work, TDICT_KERNEL_FILL);
  for (int i = 0; i < FILLS; i++) {
    const int64_t dst = 1024 * i + pick(&r, 0, 1) * 16 + (pick(&r, 0, 3) ? 0 : 1);
    move.dst = (char *)a.dst.data + dst;
    td_ok(tdict_kernel_repeat(&work, move.dst, NULL, &is_done, err));
    if (!is_done) td_ok(tdict_kernel_add_fill(&work, &move, element, err));
    num_repeated += is_done;
    for (int k = 0; k < ROWS * COLUMNS; k++) memcpy(a.model_dst + dst + ITEM * k, element, ITEM);
  }
  assert_int_equal(work.num_entries, FILLS);
  assert_true(num_repeated > 20 && num_repeated < 90);
  run_check_and_close(&a, &work);
}

/* A conversion is repeated at other addresses, unless their alignment differs. */
GPU_CASE(kernel_repeats_conversions) {
  enum { CONVERSIONS = 100, NUMBERS = 80 };
  rng r = {17};
  tdict_kernel_work work;
  bool is_done;
  int num_repeated = 0;
  areas a = areas_open(12);
  const int64_t shape[] = {NUMBERS}, to[] = {sizeof(int64_t)}, from[] = {sizeof(int32_t)};
  const tdict_cast cast = {.to = TDICT_I64, .from = TDICT_I32};
  tdict_kernel_move move = {.ndim = 1, .shape = shape, .dst_strides = to, .src_strides = from};
  tdict_kernel_work_init(&work, TDICT_KERNEL_CONVERT);
  for (int i = 0; i < CONVERSIONS; i++) {
    const int64_t dst = 1024 * i + pick(&r, 0, 1) * 16 + (pick(&r, 0, 3) ? 0 : 4), src = 2048 * i + 8 * pick(&r, 0, 3);
    move.dst = (char *)a.dst.data + dst;
    move.src = (char *)a.src.data + src;
    const size_t num_words = work.num_words;
    td_ok(tdict_kernel_repeat(&work, move.dst, move.src, &is_done, err));
    assert_int_equal(work.num_words, num_words); /* a repeated conversion adds no layout */
    if (!is_done) td_ok(tdict_kernel_add_convert(&work, &move, &cast, err));
    num_repeated += is_done;
    for (int k = 0; k < NUMBERS; k++) {
      int32_t number;
      memcpy(&number, a.model_src + src + sizeof number * (size_t)k, sizeof number);
      memcpy(a.model_dst + dst + sizeof(int64_t) * (size_t)k, &(int64_t){number}, sizeof(int64_t));
    }
  }
  assert_int_equal(work.num_entries, CONVERSIONS);
  assert_true(num_repeated > 20 && num_repeated < 90);
  run_check_and_close(&a, &work);
}

/* The addresses of a repeated conversion have the alignment of the last one on each side, not only together. */
CASE(kernel_repeats_no_conversion_of_other_sides) {
  static const struct {
    uint64_t dst, src;
    bool is_repeated;
  } rows[] = {{0x1000, 0x2008, false}, {0x1008, 0x2008, false}, {0x1000, 0x2000, false}, {0x1018, 0x2010, true}};
  const int64_t shape[] = {64}, to[] = {2}, from[] = {4};
  const tdict_cast cast = {.to = TDICT_F16, .from = TDICT_F32};
  tdict_kernel_work work;
  tdict_kernel_move move = {.ndim = 1, .shape = shape, .dst_strides = to, .src_strides = from};
  move.dst = (void *)0x1008;
  move.src = (const void *)0x2000;
  tdict_kernel_work_init(&work, TDICT_KERNEL_CONVERT);
  td_ok(tdict_kernel_add_convert(&work, &move, &cast, err));
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    bool is_done;
    td_ok(tdict_kernel_repeat(&work, (void *)(uintptr_t)rows[i].dst, (const void *)(uintptr_t)rows[i].src, &is_done,
                              err));
    assert_int_equal(is_done, rows[i].is_repeated);
  }
  tdict_kernel_work_reset(&work);
}

/* A copy uses the widest unit that all addresses and strides allow, up to 16 bytes. */
CASE(kernel_units_are_as_wide_as_possible) {
  static const struct {
    uintptr_t dst, src;
    int64_t shape[2], dst_strides[2], src_strides[2];
    size_t item;
    uint64_t width, units, ndim;
  } rows[] = {
      {4096, 8192, {8, 32}, {32, 1}, {32, 1}, 1, 16, 16, 1},  /* 256 contiguous bytes */
      {4096, 8200, {8, 32}, {32, 1}, {32, 1}, 1, 8, 32, 1},   /* the source is aligned to 8 bytes only */
      {4096, 8192, {8, 32}, {32, 1}, {36, 1}, 1, 4, 64, 2},   /* source rows start at multiples of 4 bytes */
      {4096, 8192, {8, 32}, {64, 2}, {64, 2}, 2, 16, 32, 1},  /* elements of 2 bytes */
      {4096, 8192, {8, 32}, {64, 2}, {2, 16}, 2, 2, 256, 2},  /* a transposed source */
      {4096, 8192, {8, 1}, {48, 7}, {-48, 9}, 48, 16, 24, 2}, /* the stride of a dimension of size 1 is ignored */
      {4096, 8192, {8, 0}, {48, 16}, {48, 16}, 16, 16, 0, 2}, /* no elements */
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    tdict_kernel_work work;
    tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
    const tdict_kernel_move move = {.dst = (void *)rows[i].dst,
                                    .src = (const void *)rows[i].src,
                                    .ndim = 2,
                                    .shape = rows[i].shape,
                                    .dst_strides = rows[i].dst_strides,
                                    .src_strides = rows[i].src_strides,
                                    .item_bytes = rows[i].item};
    td_ok(tdict_kernel_add_copy(&work, &move, err));
    const uint64_t form = work.body[TDICT_WORD_FORM];
    if ((form >> TDICT_FORM_WIDTH & 0xff) != rows[i].width || work.body[TDICT_WORD_UNITS] != rows[i].units ||
        (form >> TDICT_FORM_NDIM & 0xff) != rows[i].ndim)
      fail_msg("row %zu: width %d, units %d, ndim %d", i, (int)(form >> TDICT_FORM_WIDTH & 0xff),
               (int)work.body[TDICT_WORD_UNITS], (int)(form >> TDICT_FORM_NDIM & 0xff));
    tdict_kernel_work_reset(&work);
  }
}

/* Adds lists of positions, and copies that use them. */
static tdict_status add_both(tdict_kernel_work *work, tdict_error *err) {
  const int64_t shape[] = {40}, strides[] = {1}, positions[40] = {0};
  tdict_kernel_list list = {.size = 1, .stride = 1};
  const tdict_kernel_move move = {.dst = (void *)4096,
                                  .src = (void *)8192,
                                  .ndim = 1,
                                  .shape = shape,
                                  .dst_strides = strides,
                                  .src_strides = strides,
                                  .item_bytes = 1,
                                  .num_lists = 1,
                                  .lists = &list};
  tdict_status status = TDICT_OK;
  for (int i = 0; i < 12 && status == TDICT_OK; i++) {
    status = tdict_kernel_add_positions(work, positions, 40, &list.positions, err);
    if (status == TDICT_OK) status = tdict_kernel_add_copy(work, &move, err);
  }
  return status;
}

CASE(kernel_work_without_memory) {
  tdict_kernel_work work;
  tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
  TD_WITHOUT_MEMORY_THEN(add_both(&work, err), tdict_kernel_work_reset(&work));
  assert_int_equal(work.num_entries, 12);
  tdict_kernel_work_reset(&work);
}

CASE(kernel_work_refuses) {
  tdict_kernel_work copy, convert, fill, check;
  const int64_t shape[] = {4, 5}, huge[] = {INT64_MAX / 2, 3}, negative[] = {2, -1}, strides[] = {8, 1};
  const int64_t wide[] = {(int64_t)1 << 40, 1 << 10}, far[] = {1 << 20, 1024};
  const tdict_kernel_list list = {.positions = 8, .size = 3}, bad = {.positions = 12, .size = 3};
  tdict_kernel_work_init(&copy, TDICT_KERNEL_COPY);
  tdict_kernel_work_init(&convert, TDICT_KERNEL_CONVERT);
  tdict_kernel_work_init(&fill, TDICT_KERNEL_FILL);
  tdict_kernel_work_init(&check, TDICT_KERNEL_CHECK);
  const tdict_kernel_move good = {.ndim = 2,
                                  .shape = shape,
                                  .dst_strides = strides,
                                  .src_strides = strides,
                                  .item_bytes = 1,
                                  .listed = -1,
                                  .lists = &list};
  tdict_kernel_move m = good;
  const unsigned char element[16] = {0};
#define REFUSED(wanted, text, change)                            \
  m = good;                                                      \
  change;                                                        \
  td_fails(wanted, text, tdict_kernel_add_copy(&copy, &m, err)); \
  assert_int_equal(copy.num_entries + copy.num_words + copy.num_blocks, 0)
  REFUSED(TDICT_EINVAL, "-1 dimensions", m.ndim = -1);
  REFUSED(TDICT_EINVAL, "34 dimensions", m.ndim = 34);
  REFUSED(TDICT_EINVAL, "dimension 1 has size -1", m.shape = negative);
  REFUSED(TDICT_EINVAL, "0 bytes", m.item_bytes = 0);
  REFUSED(TDICT_EINVAL, "9 lists", m.num_lists = 9);
  REFUSED(TDICT_EINVAL, "lists for dimension 2 of 2", (m.num_lists = 1, m.listed = 2));
  REFUSED(TDICT_EINVAL, "lists for dimension -1 of 2", m.num_lists = 1);
  REFUSED(TDICT_EINVAL, "not a multiple of 8", (m.num_lists = 1, m.listed = 0, m.lists = &bad));
  REFUSED(TDICT_EOVERFLOW, "63 bits", m.shape = huge);
  REFUSED(TDICT_EOVERFLOW, "blocks", (m.shape = wide, m.src_strides = far));
#undef REFUSED
  m = good;
  tdict_cast cast = {.to = TDICT_F32, .from = TDICT_C64};
  td_fails(TDICT_ENOTSUP, "from complex64 to float32", tdict_kernel_add_convert(&convert, &m, &cast, err));
  cast = (tdict_cast){.to = TDICT_C64, .from = TDICT_F32, .is_scaled = true};
  td_fails(TDICT_ENOTSUP, "with scale", tdict_kernel_add_convert(&convert, &m, &cast, err));
  cast = (tdict_cast){.to = TDICT_DTYPE(2, 32, 4), .from = TDICT_F32};
  td_fails(TDICT_ENOTSUP, "to float32", tdict_kernel_add_convert(&convert, &m, &cast, err));
  m.item_bytes = 17;
  td_fails(TDICT_EINVAL, "17 bytes", tdict_kernel_add_fill(&fill, &m, element, err));
  m.item_bytes = 0;
  td_fails(TDICT_EINVAL, "0 bytes", tdict_kernel_add_fill(&fill, &m, element, err));
  td_fails(TDICT_EINVAL, "-1 positions", tdict_kernel_add_check(&check, 8, -1, 3, err));
  td_fails(TDICT_EINVAL, "size -3", tdict_kernel_add_check(&check, 8, 1, -3, err));
  td_fails(TDICT_EINVAL, "multiple of 8", tdict_kernel_add_check(&check, 12, 1, 3, err));
  uint64_t out;
  td_fails(TDICT_EINVAL, "-2 positions", tdict_kernel_add_positions(&copy, strides, -2, &out, err));
  assert_int_equal(convert.num_entries + fill.num_entries + check.num_entries, 0);
  tdict_kernel_work_reset(&copy); /* a refused entry may have allocated arrays */
}
