/* Tests copies by lists and masks on pool threads. Results are compared with plain loops. Most cases replace the
 * parallel loop with a loop on the calling thread that runs the parts in reverse order. If two parts wrote the same
 * element, the wrong value would remain. */
#include "core/ops/index/index_plan.h"
#include "core/ops/rig.h"
#include "core/ops/visit.h"
#include "core/sched/pool.h"
#include "core/tensor/naive.h"

enum { HELPERS = 2, ROUNDS = SANITIZED ? 5 : 15, THREAD_ROUNDS = SANITIZED ? 5 : 10 };

/* If `is_reversed` is set, the parallel loop is replaced. The other fields are the arguments of its last call. */
static struct {
  bool is_reversed;
  long parts;
  int helpers;
} loop;

void __real_tdict_parallel_for(tdict_pool *pool, int num_helpers, long count, void (*fn)(void *user, long i),
                               void *user);
void __wrap_tdict_parallel_for(tdict_pool *pool, int num_helpers, long count, void (*fn)(void *user, long i),
                               void *user);
void __wrap_tdict_parallel_for(tdict_pool *pool, int num_helpers, long count, void (*fn)(void *user, long i),
                               void *user) {
  if (!loop.is_reversed) {
    __real_tdict_parallel_for(pool, num_helpers, count, fn, user);
    return;
  }
  loop.parts = count;
  loop.helpers = num_helpers;
  for (long i = count; i-- > 0;) fn(user, i);
}

static tdict_context *open_context(void) {
  tdict_context_options o = td_with(tdict_context_options, num_threads = HELPERS);
  return td_context(&o);
}
static tdict_run helped(void) {
  tdict_run o = td_with(tdict_run, num_threads = HELPERS);
  loop.parts = 0;
  return o;
}

enum { ROWS, COLUMNS, PAIRS, ROW_MASK, CELL_MASK, KINDS };
/* An index into a tree with batch size `sizes`. Depending on the kind, row (i, j) of the result is row (rows[i], j),
 * (i, columns[j]) or (rows[i], columns[i]) of the tree. */
typedef struct plan {
  int kind;
  int64_t sizes[2], count, *rows, *columns;
  tdict_tensor *mask;
  tdict_indices index;
} plan;

static void plan_reset(plan *p) {
  free(p->rows);
  free(p->columns);
  tdict_tensor_release(p->mask);
}

/* Makes a random mask. Stores the positions that it selects in `rows` and `columns`. */
static void make_mask(naive_random *r, plan *p) {
  const int ndim = p->kind == ROW_MASK ? 1 : 2;
  td_ok(tdict_tensor_zeros(TDICT_BOOL, ndim, p->sizes, NULL, &p->mask, err));
  unsigned char *bits = tdict_tensor_data(p->mask);
  const int64_t numel = tdict_tensor_numel(p->mask);
  p->rows = calloc((size_t)numel, sizeof *p->rows);
  p->columns = calloc((size_t)numel, sizeof *p->columns);
  p->count = 0;
  for (int64_t i = 0; i < numel; i++) {
    if (naive_below(r, 3) == 0) continue;
    bits[i] = 1;
    p->rows[p->count] = ndim == 1 ? i : i / p->sizes[1];
    p->columns[p->count++] = ndim == 1 ? 0 : i % p->sizes[1];
  }
  p->index = *TDICT_INDEX(TDICT_MASK(p->mask));
}

static void choose(naive_random *r, int kind, plan *p) {
  memset(p, 0, sizeof *p);
  p->kind = kind;
  p->sizes[0] = kind == COLUMNS ? 1 + naive_below(r, 4) : 100 + naive_below(r, 300);
  p->sizes[1] = kind == COLUMNS ? 100 + naive_below(r, 300) : 1 + naive_below(r, 4);
  if (kind == ROW_MASK || kind == CELL_MASK) {
    make_mask(r, p);
    return;
  }
  p->count = 50 + naive_below(r, 500);
  p->rows = calloc((size_t)p->count, sizeof *p->rows);
  p->columns = calloc((size_t)p->count, sizeof *p->columns);
  for (int64_t i = 0; i < p->count; i++) {
    p->rows[i] = naive_below(r, p->sizes[0]);
    p->columns[i] = naive_below(r, p->sizes[1]);
  }
  p->index = kind == ROWS      ? *TDICT_INDEX(TDICT_LIST(p->rows, p->count))
             : kind == COLUMNS ? *TDICT_INDEX(TDICT_ALL, TDICT_LIST(p->columns, p->count))
                               : *TDICT_INDEX(TDICT_LIST(p->rows, p->count), TDICT_LIST(p->columns, p->count));
}

/* Stores the batch size of the result in `sizes`. Returns its number of dimensions. */
static int result_sizes(const plan *p, int64_t sizes[2]) {
  const bool pairs = p->kind == PAIRS || p->kind == CELL_MASK;
  sizes[0] = p->kind == COLUMNS ? p->sizes[0] : p->count;
  sizes[1] = p->kind == COLUMNS ? p->count : p->sizes[1];
  return pairs ? 1 : 2;
}

/* Stores in `at` the position in the tree from which row (i, j) of the result comes. */
static void source_of(const plan *p, int64_t i, int64_t j, int64_t at[2]) {
  const bool pairs = p->kind == PAIRS || p->kind == CELL_MASK;
  at[0] = p->kind == COLUMNS ? i : p->rows[i];
  at[1] = p->kind == COLUMNS ? p->columns[j] : pairs ? p->columns[i] : j;
}

/* Copies elements one by one between a tensor of the tree and a tensor of the result, in the order of the result. */
static void model_copy(const plan *p, tdict_tensor *whole, tdict_tensor *part, bool writes_whole) {
  int64_t sizes[2] = {1, 1}, at[2];
  const int ndim = result_sizes(p, sizes);
  const naive_layout a = naive_layout_of(whole), b = naive_layout_of(part);
  if (ndim == 1) sizes[1] = 1;
  const size_t item = tdict_tensor_bytes(part) / (size_t)b.numel;
  for (int64_t i = 0; i < sizes[0]; i++)
    for (int64_t j = 0; j < sizes[1]; j++)
      for (int64_t k = 0; k < b.shape[ndim]; k++) {
        source_of(p, i, j, at);
        const int64_t there = at[0] * a.strides[0] + at[1] * a.strides[1] + k * a.strides[2],
                      here = i * b.strides[0] + (ndim == 2 ? j * b.strides[1] : 0) + k * b.strides[ndim];
        unsigned char *x = (unsigned char *)tdict_tensor_data(whole) + there * (int64_t)item,
                      *y = (unsigned char *)tdict_tensor_data(part) + here * (int64_t)item;
        memcpy(writes_whole ? x : y, writes_whole ? y : x, item);
      }
}

/* Makes a random tensor whose shape is `sizes` followed by `width`. Sometimes permutes its dimensions in memory. */
static tdict_tensor *make_tensor(naive_random *r, tdict_dtype dtype, int ndim, const int64_t *sizes, int64_t width) {
  int64_t shape[3];
  int order[3], turned[3];
  tdict_tensor *made = NULL;
  for (int d = 0; d < ndim; d++) shape[d] = sizes[d];
  shape[ndim] = width;
  const int shift = naive_below(r, 3) ? 0 : (int)naive_below(r, ndim + 1);
  for (int d = 0; d <= ndim; d++) order[d] = (d + shift) % (ndim + 1);
  int64_t moved[3];
  for (int d = 0; d <= ndim; d++) moved[d] = shape[order[d]];
  for (int d = 0; d <= ndim; d++) turned[order[d]] = d;
  tdict_tensor *t = naive_tensor(dtype, ndim + 1, moved, naive_next(r));
  td_ok(tdict_tensor_permute(t, ndim + 1, turned, &made, err));
  tdict_tensor_release(t);
  for (int d = 0; d <= ndim; d++) assert_int_equal(tdict_tensor_shape(made)[d], shape[d]);
  return made;
}

/* Compares reads and writes by an index with a plain loop. */
static void check_random(naive_random *r, tdict_context *context, int kind, tdict_dtype dtype) {
  plan p;
  int64_t sizes[2];
  tdict_tree *wanted = NULL, *got = NULL;
  choose(r, kind, &p);
  const int ndim = result_sizes(&p, sizes);
  const int64_t rows = sizes[0] * (ndim == 2 ? sizes[1] : 1), item = (int64_t)tdict_dtype_bytes(dtype);
  const int64_t width = rows ? (5 << 19) / (rows * item) + 1 : 1; /* at least 2.5 MiB */
  tdict_tree *td = help_tree(2, p.sizes), *part = help_tree(ndim, sizes);
  td_put(td, "x", make_tensor(r, dtype, 2, p.sizes, width));
  td_put(td, "small", make_tensor(r, TDICT_U8, 2, p.sizes, 1));
  td_put(part, "x", make_tensor(r, dtype, ndim, sizes, width));
  td_put(part, "small", make_tensor(r, TDICT_U8, ndim, sizes, 1));
  const tdict_run o = helped();
  td_ok(tdict_index_set(context, td, &p.index, part, &o, err));
  td_ok(tdict_clone_deep(part, NULL, &wanted, err));
  tdict_tree *model = td_made(tree, tdict_clone_deep(td, NULL, &made, err));
  model_copy(&p, td_leaf(model, "x"), td_leaf(part, "x"), true);
  model_copy(&p, td_leaf(model, "small"), td_leaf(part, "small"), true);
  assert_true(tdict_equal(td, model));
  model_copy(&p, td_leaf(model, "x"), td_leaf(wanted, "x"), false);
  model_copy(&p, td_leaf(model, "small"), td_leaf(wanted, "small"), false);
  td_ok(tdict_index_get(context, td, &p.index, &o, &got, err));
  assert_true(tdict_equal(got, wanted));
  td_ok(tdict_fill(part, NULL, 0, NULL, err));
  td_ok(tdict_index_into(context, part, td, &p.index, &o, err));
  assert_true(tdict_equal(part, wanted));
  if (loop.is_reversed) assert_true(loop.parts > 1);
  td_release(td, part, wanted, got, model);
  plan_reset(&p);
}

static void check_all_kinds(bool is_reversed, int rounds) {
  static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_I32, TDICT_I64, TDICT_DTYPE(1, 8, 3)};
  scoped_context context = open_context();
  naive_random r = {91};
  loop.is_reversed = is_reversed;
  for (int i = 0; i < rounds; i++) check_random(&r, context, i % KINDS, dtypes[naive_below(&r, 4)]);
}

CASE(index_parts_match_a_model) { check_all_kinds(true, ROUNDS); }
CASE(index_threads_match_a_model) { check_all_kinds(false, THREAD_ROUNDS); }

/* Makes a tree of `rows` rows of `width` random bytes. */
static tdict_tree *make_rows(int64_t rows, int64_t width, uint64_t seed) {
  tdict_tree *td = TREE(rows);
  td_put(td, "x", naive_tensor(TDICT_U8, COUNTS(rows, width), seed));
  return td;
}

/* Writes the rows of a list, and checks the result. Returns the number of parts, or 0 if no parallel loop ran. */
static long write_rows(tdict_context *context, int64_t rows, int64_t width, const int64_t *at, int64_t count) {
  scoped_tree td = make_rows(rows, width, 5), value = make_rows(count, width, 6);
  scoped_tensor model = naive_tensor(TDICT_U8, COUNTS(rows, width), 5);
  unsigned char *to = tdict_tensor_data(model);
  const unsigned char *from = tdict_const_data(value, "x");
  for (int64_t i = 0; i < count; i++)
    memcpy(to + (at[i] < 0 ? at[i] + rows : at[i]) * width, from + i * width, (size_t)width);
  const tdict_run o = helped();
  td_ok(tdict_index_set(context, td, TDICT_INDEX(TDICT_LIST(at, count)), value, &o, err));
  assert_memory_equal(tdict_const_data(td, "x"), to, (size_t)(rows * width));
  return loop.parts;
}

/* If a list repeats a row, the last value must remain. Threads then divide only the bytes of long rows. */
CASE(index_set_with_keeps_the_last_of_a_row) {
  enum { COUNT = 6000, ROWS_LEFT = 8000, WIDTH = 512, LONG = 96 << 10 };
  static int64_t at[COUNT];
  scoped_context context = open_context();
  naive_random r = {92};
  loop.is_reversed = true;
  for (int i = 0; i < COUNT; i++) at[i] = naive_below(&r, ROWS_LEFT);
  assert_int_equal(write_rows(context, ROWS_LEFT, WIDTH, at, COUNT), 0);
  for (int i = 0; i < 50; i++) at[i] = naive_below(&r, 10);
  assert_int_equal(write_rows(context, 10, LONG, at, 1), 0); /* too few bytes */
  assert_true(write_rows(context, 10, LONG, at, 50) > 1);
  for (int i = 0; i < COUNT; i++) at[i] = (int64_t)i * 7 % ROWS_LEFT; /* distinct, because 7 and 8000 are coprime */
  assert_true(write_rows(context, ROWS_LEFT, WIDTH, at, COUNT) > 1);
  at[COUNT / 2] -= ROWS_LEFT; /* the same row, counted from the end */
  assert_true(write_rows(context, ROWS_LEFT, WIDTH, at, COUNT) > 1);
  at[COUNT - 1] = at[0];
  assert_int_equal(write_rows(context, ROWS_LEFT, WIDTH, at, COUNT), 0);
  for (int i = 0; i < COUNT; i++) at[i] = i;
  assert_true(write_rows(context, ROWS_LEFT, WIDTH, at, COUNT) > 1);
  at[COUNT - 1] = at[COUNT - 2];
  assert_int_equal(write_rows(context, ROWS_LEFT, WIDTH, at, COUNT), 0);
}

/* Compares the library's search for repeated positions with a comparison of all pairs. */
CASE(index_plan_finds_distinct_lists) {
  enum { MOST = 40 };
  const int64_t size = 1 << 22;
  naive_random r = {93};
  int num_distinct = 0;
  for (int round = 0; round < 2000; round++) {
    int64_t at[MOST], count = 1 + naive_below(&r, MOST), low = size, high = 0;
    const int64_t first = naive_below(&r, size / 2), range = 1 + naive_below(&r, naive_below(&r, 2) ? 1000 : 100000);
    const bool is_sorted = naive_below(&r, 2);
    bool is_distinct = true, is_ascending = true;
    for (int64_t i = 0; i < count; i++) {
      at[i] = is_sorted ? first + i * 7 - naive_below(&r, 9) / 8 * 7 : first + naive_below(&r, range);
      if (at[i] < 0) at[i] = 0;
      if (at[i] < low) low = at[i];
      if (at[i] > high) high = at[i];
      for (int64_t j = 0; j < i; j++) is_distinct = is_distinct && at[i] != at[j];
      is_ascending = is_ascending && (i == 0 || at[i] > at[i - 1]);
    }
    tdict_index_plan made;
    const tdict_indices *index = TDICT_INDEX(TDICT_LIST(at, count));
    tdict_moves moves = {.what = "test"};
    td_ok(tdict_index_plan_init(&made, &moves, 1, &size, index, err));
    td_ok(tdict_index_plan_find_distinct(&made, err));
    const bool is_far = !is_ascending && high - low > 1024 * (count + 2);
    if (is_far || (high - low < 1000 * count && count > 1))
      assert_int_equal(made.gathers[0].is_distinct, !is_far && is_distinct);
    num_distinct += made.gathers[0].is_distinct;
    tdict_index_plan_reset(&made);
  }
  assert_true(num_distinct > 200 && num_distinct < 1900);
}

/* Two lists select an element twice only if the same pair of positions occurs twice. */
CASE(index_set_with_pairs_repeats) {
  enum { SIDE = 80, COUNT = SIDE * SIDE / 2, WIDTH = 1024 };
  static int64_t rows[COUNT], columns[COUNT];
  scoped_context context = open_context();
  loop.is_reversed = true;
  for (int again = 0; again < 2; again++) {
    scoped_tree td = TREE(SIDE, SIDE), value = make_rows(COUNT, WIDTH, 8);
    tdict_tensor *x = td_put(td, "x", naive_tensor(TDICT_U8, COUNTS(SIDE, SIDE, WIDTH), 7));
    scoped_tensor model = naive_tensor(TDICT_U8, COUNTS(SIDE, SIDE, WIDTH), 7);
    for (int i = 0; i < COUNT; i++) rows[i] = i / SIDE, columns[i] = again ? i % 3 : i % SIDE;
    for (int64_t i = 0; i < COUNT; i++)
      memcpy((char *)tdict_tensor_data(model) + (rows[i] * SIDE + columns[i]) * WIDTH,
             (const char *)tdict_const_data(value, "x") + i * WIDTH, WIDTH);
    const tdict_run o = helped();
    td_ok(
        tdict_index_set(context, td, TDICT_INDEX(TDICT_LIST(rows, COUNT), TDICT_LIST(columns, COUNT)), value, &o, err));
    assert_memory_equal(tdict_tensor_const_data(x), tdict_tensor_const_data(model), SIDE * SIDE * WIDTH);
  }
}

/* If rows of the destination share elements, or source and destination do, only the calling thread copies, in order. */
CASE(index_with_divides_only_separate_elements) {
  enum { COUNT = 4000, WIDTH = 1024 };
  static int64_t at[COUNT];
  scoped_context context = open_context();
  loop.is_reversed = true;
  for (int i = 0; i < COUNT; i++) at[i] = COUNT - 1 - i;
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(at, COUNT));
  tdict_run o = helped();
  /* All rows of the destination are the same row. */
  scoped_tree one = make_rows(1, WIDTH, 2), td = NULL, value = make_rows(COUNT, WIDTH, 3), part = NULL;
  td_ok(tdict_expand(one, 1, (const int64_t[]){COUNT}, &td, err));
  const tdict_tensor *row = td_leaf(one, "x");
  td_ok(tdict_index_set(context, td, index, value, &o, err));
  const unsigned char *from = tdict_const_data(value, "x");
  assert_memory_equal(tdict_tensor_const_data(row), from + (COUNT - 1) * WIDTH, WIDTH);
  assert_int_equal(loop.parts, 0);
  td_ok(tdict_index_into(context, td, value, index, &o, err));
  assert_memory_equal(tdict_tensor_const_data(row), from, WIDTH);
  assert_int_equal(loop.parts, 0);
  /* The rows of a source may share their elements. */
  td_ok(tdict_index_get(context, td, index, &o, &part, err));
  assert_true(loop.parts > 1);
  assert_memory_equal((const char *)tdict_const_data(part, "x") + 7 * WIDTH, tdict_tensor_const_data(row), WIDTH);
  /* The source and the destination are the same tree. */
  loop.parts = 0;
  td_ok(tdict_index_set(context, value, index, value, &o, err));
  td_ok(tdict_index_into(context, value, value, index, &o, err));
  assert_int_equal(loop.parts, 0);
}

/* Small copies, calls without a context, and calls with num_threads 0 use only the calling thread. */
CASE(index_with_uses_threads_for_large_copies) {
  enum { COUNT = 4096, WIDTH = 1024 };
  static int64_t at[COUNT];
  scoped_context context = open_context();
  scoped_tree td = make_rows(COUNT, WIDTH, 4), out = NULL;
  tdict_run o = helped();
  loop.is_reversed = true;
  for (int i = 0; i < COUNT; i++) at[i] = i * 5 % COUNT;
  td_ok(tdict_index_get(context, td, TDICT_INDEX(TDICT_LIST(at, COUNT)), &o, &out, err));
  assert_true(loop.parts > 1);
  assert_int_equal(loop.helpers, HELPERS);
  tdict_release(out);
  o = helped();
  td_ok(tdict_index_get(context, td, TDICT_INDEX(TDICT_LIST(at, 512)), &o, &out, err));
  assert_int_equal(loop.parts, 0);
  tdict_release(out);
  o.num_threads = 0;
  td_ok(tdict_index_get(context, td, TDICT_INDEX(TDICT_LIST(at, COUNT)), &o, &out, err));
  assert_int_equal(loop.parts, 0);
  tdict_release(out);
  o.num_threads = 1;
  td_ok(tdict_index_get(context, td, TDICT_INDEX(TDICT_LIST(at, COUNT)), &o, &out, err));
  assert_int_equal(loop.helpers, 1);
  tdict_release(out);
  /* by default, one CPU is left for the calling thread */
  const int cpus = tdict_pool_num_cpus(tdict_context_pool(context)), most = cpus - 1 < HELPERS ? cpus - 1 : HELPERS;
  loop.helpers = 0;
  o.num_threads = -1;
  td_ok(tdict_index_get(context, td, TDICT_INDEX(TDICT_LIST(at, COUNT)), &o, &out, err));
  assert_int_equal(loop.helpers, most);
  tdict_release(out);
  loop.parts = 0;
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(at, COUNT)), &o, &out, err));
  assert_int_equal(loop.parts, 0);
}

/* If an allocation fails, no element is written. */
CASE(index_set_with_survives_enomem) {
  enum { COUNT = 4096, WIDTH = 1024 };
  static int64_t at[COUNT];
  scoped_context context = open_context();
  scoped_tree td = make_rows(COUNT, WIDTH, 4), value = make_rows(COUNT, WIDTH, 9), before = NULL;
  const tdict_run o = helped();
  loop.is_reversed = true;
  for (int i = 0; i < COUNT; i++) at[i] = i * 5 % COUNT;
  td_ok(tdict_clone_deep(td, NULL, &before, err));
  TD_WITHOUT_MEMORY_THEN(tdict_index_set(context, td, TDICT_INDEX(TDICT_LIST(at, COUNT)), value, &o, err),
                         assert_true(tdict_equal(td, before)));
  assert_false(tdict_equal(td, before));
}

typedef struct job {
  const tdict_tree *td;
  tdict_context *context;
  const tdict_indices *index;
} job;

static tdict_status read_rows(void *user, const tdict_leaves *at, tdict_error *err) {
  const job *j = user;
  scoped_tree out = NULL;
  (void)at;
  tdict_status status = tdict_index_get(j->context, j->td, j->index, NULL, &out, err);
  return status;
}

/* All pool threads make calls that could use the pool. None of them may wait for another. */
CASE(index_with_works_on_pool_threads) {
  enum { COUNT = 4096, WIDTH = 1024, LEAVES = 24 };
  static int64_t at[COUNT];
  scoped_context context = open_context();
  scoped_tree td = make_rows(COUNT, WIDTH, 4), many = TREE(1);
  loop.is_reversed = false;
  for (int i = 0; i < COUNT; i++) at[i] = i * 5 % COUNT;
  for (int i = 0; i < LEAVES; i++) td_put(many, td_text("k%d", i), TENSOR(1));
  loop.parts = 0;
  job j = {td, context, TDICT_INDEX(TDICT_LIST(at, COUNT))};
  td_ok(tdict_visit(context, (const tdict_tree *const[]){many}, 1, read_rows, &j, NULL, err));
}
