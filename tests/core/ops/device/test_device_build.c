/* Tests launches prepared by tdict_moves_build(): their elements, moves added later, and failing allocations. */
#include "core/ops/device/moves.h"

#include "core/ops/device/rows.h"
#include "support/random.h"

enum { NUM_JOINS = 20, MOST_ROWS = 5, MOST_COLUMNS = 9 };

/* A join along dimension 1: copies two sources side by side into a destination. */
typedef struct side_by_side {
  int64_t rows, columns[2];
  int32_t elements[2][MOST_ROWS * MOST_COLUMNS]; /* elements of the sources, in C order */
  tdict_tensor *src[2], *dst, *part[2];
} side_by_side;

static void open_one(const place *w, rng *r, side_by_side *j) {
  j->rows = pick(r, 1, MOST_ROWS);
  for (int i = 0; i < 2; i++) {
    j->columns[i] = pick(r, 1, MOST_COLUMNS);
    j->src[i] = new_tensor(TDICT_I32, 2, (const int64_t[]){j->rows, j->columns[i]}, w->memory);
    td_fill_random(j->elements[i], sizeof j->elements[i], (uint64_t)pick(r, 0, 1 << 30));
    put_bytes(w, j->src[i], j->elements[i]);
  }
  j->dst = new_tensor(TDICT_I32, 2, (const int64_t[]){j->rows, j->columns[0] + j->columns[1]}, w->memory);
  put_number(w, j->dst, (uint64_t)pick(r, 0, 1 << 30));
  for (int i = 0; i < 2; i++) {
    const int64_t begin = i ? j->columns[0] : 0;
    const tdict_tensor_range range = {.dim = 1, .start = begin, .count = j->columns[i], .step = 1};
    td_ok(tdict_tensor_slice(j->dst, &range, &j->part[i], err));
  }
}
static void close_one(side_by_side *j) {
  for (int i = 0; i < 2; i++) td_release(j->src[i], j->part[i]);
  tdict_tensor_release(j->dst);
}

/* Returns true if the destination has the elements of both sources. */
static bool is_joined(const place *w, const side_by_side *j) {
  bool same = true;
  unsigned char *found = get_bytes(w, j->dst), *at = found;
  for (int64_t row = 0; row < j->rows; row++)
    for (int i = 0; i < 2; i++) {
      const size_t bytes = (size_t)j->columns[i] * sizeof(int32_t);
      same = same && memcmp(at, j->elements[i] + row * j->columns[i], bytes) == 0;
      at += bytes;
    }
  free(found);
  return same;
}

typedef struct joins {
  place w;
  side_by_side all[NUM_JOINS];
  tdict_moves moves;
} joins;
static joins *joins_open(uint64_t seed) {
  const place w = place_open(1); /* first, because it skips the case if there is no device */
  joins *j = calloc(1, sizeof *j);
  rng r = {seed};
  assert_non_null(j);
  j->w = w;
  j->moves.what = "test";
  for (int i = 0; i < NUM_JOINS; i++) open_one(&j->w, &r, &j->all[i]);
  return j;
}
static void joins_add(joins *j, int begin, int end) {
  for (int i = begin; i < end; i++)
    for (int k = 0; k < 2; k++) td_ok(tdict_moves_copy(&j->moves, j->all[i].part[k], j->all[i].src[k], err));
}
/* Checks that exactly the joins before `end` are done. */
static void joins_check(const joins *j, int end) {
  for (int i = 0; i < NUM_JOINS; i++)
    if (is_joined(&j->w, &j->all[i]) != (i < end)) fail_msg("join %d of %d", i, end);
}
static void joins_close(joins *j) {
  tdict_moves_reset(&j->moves);
  for (int i = 0; i < NUM_JOINS; i++) close_one(&j->all[i]);
  place_close(&j->w);
  free(j);
}

GPU_CASE(device_build_equals_unbuilt) {
  for (uint64_t seed = 0; seed < 20; seed++) {
    joins *j = joins_open(seed);
    joins_add(j, 0, NUM_JOINS);
    if (seed % 2) {
      td_ok(tdict_moves_build(&j->moves, err));
      assert_int_equal(j->moves.num_built, 2 * NUM_JOINS);
      joins_check(j, 0);
    }
    td_ok(tdict_moves_run(&j->moves, err));
    joins_check(j, NUM_JOINS);
    joins_close(j);
  }
}

/* If tdict_moves_build() has prepared the launch, tdict_moves_run() makes fewer allocations. */
SIM_CASE(device_build_saves_work_of_run) {
  shim s;
  int64_t allocs[2];
  for (int builds = 0; builds < 2; builds++) {
    joins *j = joins_open(7);
    joins_add(j, 0, NUM_JOINS);
    begin_counting(&s, &j->w);
    if (builds) td_ok(tdict_moves_build(&j->moves, err));
    assert_int_equal(num_launches, 0);
    td_fail_alloc(INT64_MAX, false);
    const tdict_status status = tdict_moves_run(&j->moves, NULL);
    allocs[builds] = td_allocs_seen();
    (void)td_fail_alloc_stop();
    assert_int_equal(status, TDICT_OK);
    assert_int_equal(num_launches, 1);
    shim_end(&s, j->w.d);
    joins_check(j, NUM_JOINS);
    joins_close(j);
  }
  assert_true(allocs[1] + 3 <= allocs[0]); /* the build has already allocated entries, results and body */
}

SIM_CASE(device_build_has_later_moves) {
  joins *j = joins_open(3);
  joins_add(j, 0, 5);
  td_ok(tdict_moves_build(&j->moves, err));
  joins_add(j, 5, 11);
  td_ok(tdict_moves_run(&j->moves, err));
  joins_check(j, 11);
  /* The run emptied `moves`, which can be used again. */
  td_ok(tdict_moves_build(&j->moves, err));
  td_ok(tdict_moves_run(&j->moves, err));
  joins_add(j, 11, 16);
  td_ok(tdict_moves_run(&j->moves, err));
  joins_check(j, 16);
  joins_close(j);
}

SIM_CASE(device_build_without_memory) {
  joins *j = joins_open(5);
  joins_add(j, 0, NUM_JOINS);
  TD_WITHOUT_MEMORY_THEN(tdict_moves_build(&j->moves, err), assert_int_equal(j->moves.num_built, 0));
  td_ok(tdict_moves_build(&j->moves, err)); /* a second build replaces the first */
  joins_check(j, 0);
  tdict_moves_reset(&j->moves); /* a sanitizer reports memory that this call does not free */
  assert_int_equal(j->moves.num_built, 0);
  joins_add(j, 0, 4);
  td_fail_alloc(0, true);
  const tdict_status status = tdict_moves_build(&j->moves, NULL);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
  td_ok(tdict_moves_run(&j->moves, err));
  joins_check(j, 4);
  joins_close(j);
}

/* No launch is built for a stream of the program, or for moves other than copies. */
SIM_CASE(device_build_of_copies_only) {
  joins *j = joins_open(9);
  const tdict_stream stream = new_stream(&j->w);
  const int32_t element = 42;
  j->moves.stream = &stream;
  joins_add(j, 0, 2);
  td_ok(tdict_moves_build(&j->moves, err));
  assert_int_equal(j->moves.num_built, 0);
  td_ok(tdict_moves_run(&j->moves, err));
  sync_stream(&j->w, stream);
  joins_check(j, 2);
  j->moves.stream = NULL;
  td_ok(tdict_moves_fill(&j->moves, j->all[2].dst, &element, err));
  td_ok(tdict_moves_build(&j->moves, err));
  assert_int_equal(j->moves.num_built, 0);
  td_ok(tdict_moves_run(&j->moves, err));
  tdict_stream_destroy(j->w.c, stream);
  joins_close(j);
}
