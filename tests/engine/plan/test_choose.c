/* Tests the choice of threads and chunk sizes, and the results of transfers on the chosen threads. */
#include "core/sched/gate.h"
#include "engine/plan/choose.h"
#include "engine/transfer.h"
#include "engine/trees.h"
#include "engine/wrap.h"
#include "support/cpus.h"
#include "support/threads.h"

/* CONVERTED: kernels convert the leaves. HALF: a transfer of half of the rows. INTO_KEPT: a transfer into the memory of
 * an earlier result. */
typedef enum source_kind { MEMORY, FILES, PACKED, CONVERTED, HALF, INTO_KEPT } source_kind;
/* Returns the choice for a plan of `bytes` bytes. The plan is never run. */
static tdict_choice choose_for(const place *w, tdict_way by, size_t bytes, int32_t asked, bool waits,
                               source_kind kind) {
  const tdict_source_rows half = {0, 5, 10};
  tdict_wire wire = {.slot_bytes = bytes, .slots_differ = true, .packs = kind == PACKED};
  tdict_plan plan = {.line_bytes = bytes, .wire = kind == PACKED || kind == CONVERTED ? &wire : NULL};
  plan.way_bytes[by] = bytes;
  const tdict_engine *e = tdict_context_engine(w->c);
  const tdict_choice_request r = {.plan = &plan,
                                  .pool = e->config.pool,
                                  .tuning = &e->tuning,
                                  .slot_bytes = e->rings.slot_bytes,
                                  .num_slots = e->rings.num_slots,
                                  .num_threads = asked,
                                  .mode = TDICT_MODE_NON_BLOCKING_PIN,
                                  .caller_waits = waits,
                                  .reads_files = kind == FILES,
                                  .reuses_memory = kind == INTO_KEPT,
                                  .best_stores = TDICT_STREAM_PLAIN,
                                  .rows = kind == HALF ? &half : NULL};
  return tdict_choose(&r);
}
static tdict_choice choose(const place *w, tdict_way by, size_t bytes, int32_t asked, bool waits) {
  return choose_for(w, by, bytes, asked, waits, MEMORY);
}

GPU_CASE(choose_keeps_to_what_was_asked) {
  scoped_place w = open_place();
  const int threads = tdict_context_num_threads(w.c),
            cpus = tdict_pool_num_cpus(tdict_context_engine(w.c)->config.pool);
  const size_t slot = tdict_context_engine(w.c)->rings.slot_bytes;
  const size_t sizes[] = {1,       256,      4000,     65536,     300000,         1105920,
                          4000000, 10948608, 38535168, 100000000, (size_t)4 << 30};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
    for (int k = 0; k < 8; k++) {
      const int32_t asked = k / 2 == 0 ? -1 : k / 2 == 1 ? 0 : k / 2 == 2 ? 1 : threads;
      const bool waits = k % 2;
      const tdict_choice c = choose(&w, i % 3 ? TDICT_WAY_STAGE_IN : TDICT_WAY_STAGE_OUT, sizes[i], asked, waits);
      assert_in_range(c.how.num_workers, 1, threads + 1);
      if (asked > 0) assert_int_equal(c.how.num_workers, asked);
      if (asked > 0) assert_false(c.how.on_caller); /* only pool threads copy */
      if (asked == 0) assert_true(c.how.on_caller && c.how.num_workers == 1);
      if (asked < 0) assert_in_range(c.how.num_workers, 1, cpus);
      if (asked < 0 && !waits) assert_false(c.how.on_caller);
      assert_in_range(c.row.chunk_bytes, 256, slot);
      assert_in_range(c.row.first_bytes, 256, c.row.chunk_bytes);
      assert_int_equal(c.row.chunk_bytes % 256 + c.row.first_bytes % 256, 0);
    }
}

/* Small leaves that share the pinned storage of a large leaf are not counted in advance, but also go through slots.
 * Their chunks fit into the small slots. */
GPU_CASE(choose_chunks_of_uncounted_leaves_fit_into_slots) {
  enum { SMALL = 60000, LARGE = 100000, LEAVES = 9 };
  scoped_place w = place_sized(64 << 10, -1);
  const size_t slot = tdict_context_engine(w.c)->rings.slot_bytes;
  assert_in_range(choose(&w, TDICT_WAY_DIRECT, 1 << 20, -1, true).row.chunk_bytes, 256, slot);
  scoped_tensor all = random_tensor(TDICT_U8, SHAPE(SMALL * LEAVES + LARGE), w.pinned);
  scoped_tree src = new_tree();
  for (int64_t i = LEAVES; i >= 0; i--) { /* backwards, so that no copy covers two leaves */
    const tdict_tensor_range range = {0, i * SMALL, i == LEAVES ? LARGE : SMALL, 1};
    td_put(src, td_text("leaf%d", (int)i), sliced(tdict_tensor_retain(all), range));
  }
  poison(&w, w.memory, line_bytes(src));
  check_and_spoil(&w, src, move_with(&w, src, w.device, NULL));
}

/* If kernels convert the elements, one thread fills a slot, so the first chunks are small. */
GPU_CASE(choose_small_first_chunks_for_kernels) {
  scoped_place w = place_sized(64 << 20, -1);
  const size_t bytes = (size_t)40 << 20;
  const tdict_choice plain = choose_for(&w, TDICT_WAY_STAGE_IN, bytes, -1, true, MEMORY);
  const tdict_choice packed = choose_for(&w, TDICT_WAY_STAGE_IN, bytes, -1, true, PACKED);
  const tdict_choice converted = choose_for(&w, TDICT_WAY_STAGE_IN, bytes, -1, true, CONVERTED);
  const tdict_choice out = choose_for(&w, TDICT_WAY_STAGE_OUT, bytes, -1, true, CONVERTED);
  const tdict_choice large = choose_for(&w, TDICT_WAY_STAGE_IN, bytes << 4, -1, true, CONVERTED);
  assert_true(plain.row.first_bytes > (1 << 20) && packed.row.first_bytes > (1 << 20));
  assert_int_equal(converted.row.first_bytes, 256 << 10);
  assert_int_equal(converted.row.chunk_bytes, 1 << 20);
  assert_int_equal(converted.how.max_slots, 4);
  assert_int_equal(out.how.max_slots, choose_for(&w, TDICT_WAY_STAGE_OUT, bytes, -1, true, MEMORY).how.max_slots);
  assert_true(large.row.chunk_bytes > (1 << 20));
}

/* A new result in kept memory, whose pages are already mapped, uses the tuning rows for existing results. */
SIM_CASE(choose_row_of_existing_memory_for_kept_memory) {
  scoped_place w = open_place();
  tdict_tuning *tuning = &tdict_context_engine(w.c)->tuning;
  tuning->rows[TDICT_TUNING_OUT][tuning->num_rows[TDICT_TUNING_OUT] - 1].slots = 3;
  tuning->rows[TDICT_TUNING_OUT_NEW][tuning->num_rows[TDICT_TUNING_OUT_NEW] - 1].slots = 5;
  const size_t bytes = (size_t)1 << 30;
  assert_int_equal(choose_for(&w, TDICT_WAY_STAGE_OUT, bytes, -1, true, MEMORY).how.max_slots, 5);
  assert_int_equal(choose_for(&w, TDICT_WAY_STAGE_OUT, bytes, -1, true, INTO_KEPT).how.max_slots, 3);
}

/* On machines with more than three processors, copies on the host leave one processor to the program. */
GPU_CASE(choose_copies_on_the_host_leave_a_processor) {
  scoped_place w = place_sized(64 << 20, 16);
  const tdict_cpus set = td_cpus(0, 7);
  (void)tdict_pool_set_cpus(tdict_context_engine(w.c)->config.pool, &set);
  for (int waits = 0; waits < 2; waits++) {
    assert_int_equal(choose(&w, TDICT_WAY_HOST, (size_t)4 << 30, -1, waits).how.num_workers, 7);
    assert_int_equal(choose(&w, TDICT_WAY_HOST, (size_t)4 << 30, 8, waits).how.num_workers, 8); /* as asked */
    assert_int_equal(choose(&w, TDICT_WAY_STAGE_IN, (size_t)4 << 30, -1, waits).how.num_workers, 8);
  }
  /* A quota limits the default number of threads, but not a number that the program asks for. */
  tdict_pool_set_quota(tdict_context_engine(w.c)->config.pool, 2);
  for (int waits = 0; waits < 2; waits++) {
    assert_int_equal(choose(&w, TDICT_WAY_HOST, (size_t)4 << 30, -1, waits).how.num_workers, 2);
    assert_int_equal(choose(&w, TDICT_WAY_STAGE_IN, (size_t)4 << 30, -1, waits).how.num_workers, 2);
    assert_int_equal(choose(&w, TDICT_WAY_STAGE_IN, (size_t)4 << 30, 8, waits).how.num_workers, 8);
  }
  assert_int_equal(tdict_context_num_threads(w.c), 16);
}

/* Large transfers that read files or pack leaves use more threads than others, if there are enough processors. */
GPU_CASE(choose_more_threads_for_files) {
  scoped_place w = place_sized(64 << 20, 20);
  const size_t large = (size_t)4 << 30, small = (size_t)40 << 20;
  for (int cpus = 6; cpus <= 20; cpus += 7) { /* processors that the pool may use */
    const tdict_cpus set = td_cpus(0, cpus - 1);
    (void)tdict_pool_set_cpus(tdict_context_engine(w.c)->config.pool, &set);
    const int wanted = cpus < 16 ? cpus : 16;
    assert_int_equal(choose_for(&w, TDICT_WAY_STAGE_IN, large, -1, false, FILES).how.num_workers, wanted);
    assert_int_equal(choose_for(&w, TDICT_WAY_STAGE_IN, large, -1, true, FILES).how.num_workers, wanted);
    assert_int_equal(choose_for(&w, TDICT_WAY_STAGE_IN, large, 3, false, FILES).how.num_workers, 3);
    assert_int_equal(choose_for(&w, TDICT_WAY_STAGE_IN, small, -1, false, FILES).how.num_workers,
                     choose(&w, TDICT_WAY_STAGE_IN, small, -1, false).how.num_workers);
    assert_int_equal(choose_for(&w, TDICT_WAY_STAGE_IN, large, -1, false, PACKED).how.num_workers, wanted);
    assert_int_equal(choose_for(&w, TDICT_WAY_STAGE_IN, small, -1, false, PACKED).how.num_workers,
                     choose(&w, TDICT_WAY_STAGE_IN, small, -1, false).how.num_workers);
  }
}

/* The parts of a tree are copied at the same time, so each uses the tuning row for the size of the whole tree. */
GPU_CASE(choose_the_row_of_the_whole_tree) {
  scoped_place w = place_sized(64 << 20, 16);
  const tdict_tuning_row *row = tdict_choose_row(&tdict_context_engine(w.c)->tuning, TDICT_TUNING_IN, (size_t)4 << 20);
  const tdict_choice c = choose_for(&w, TDICT_WAY_STAGE_IN, (size_t)2 << 20, -1, false, HALF);
  assert_int_equal(c.row.up_to_bytes, row->up_to_bytes);
  assert_int_not_equal(choose(&w, TDICT_WAY_STAGE_IN, (size_t)2 << 20, -1, false).row.up_to_bytes, row->up_to_bytes);
}

/* The caller itself copies a tree of a few bytes. If a tree needs two chunks, the chunks have about the same size. */
GPU_CASE(choose_caller_moves_small_trees) {
  scoped_place w = open_place();
  const tdict_choice c = choose(&w, TDICT_WAY_STAGE_IN, 4000, -1, true);
  assert_true(c.how.on_caller);
  assert_int_equal(c.how.num_workers, 1);
  const size_t slot = tdict_context_engine(w.c)->rings.slot_bytes;
  const tdict_choice two = choose(&w, TDICT_WAY_STAGE_IN, slot + 256, 1, true);
  assert_in_range(two.row.chunk_bytes, slot / 2, slot / 2 + 256);
}

/* A caller that waits runs tasks that no pool thread has begun. */
GPU_CASE(choose_caller_needs_no_free_thread) {
  pool_gate wait_events[3];
  scoped_place w = place_sized(STAGING, 3); /* the gates below block all three pool threads */
  tdict_pool *pool = tdict_context_engine(w.c)->config.pool;
  scoped_tree src = bytes_tree("x", 9 << 20, NULL);
  for (int i = 0; i < 3; i++) pool_gate_close(pool, &wait_events[i]);
  for (int i = 0; i < 3; i++) check_and_spoil(&w, src, move_with(&w, src, w.device, NULL));
  for (int i = 0; i < 3; i++) pool_gate_open(&wait_events[i]);
}

/* Pool threads and the caller spin before they sleep, as on machines with more than two processors. */
GPU_CASE(choose_spinning_threads_move_every_byte) {
  scoped_place w = open_place();
  tdict_engine *engine = tdict_context_engine(w.c);
  tdict_pool_set_max_spinning(engine->config.pool, 3);
  const size_t sizes[] = {1, 5000, 300001, 1105920, 3000000, 9000001};
  for (int round = 0; round < 8; round++)
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
      tdict_tuning t = tdict_tuning_default();
      for (int k = 0; k < t.num_rows[TDICT_TUNING_IN]; k++) {
        tdict_tuning_row *row = &t.rows[TDICT_TUNING_IN][k];
        row->workers = 1 + round;
        row->streaming = round % 2;
        row->caller = round % 3 != 0;
        row->slots = 1 + round % 4;
        row->first_bytes = 256 * (size_t)(1 + round * 7);
        if (row->first_bytes > row->chunk_bytes) row->first_bytes = row->chunk_bytes;
      }
      engine->tuning = t;
      scoped_tree src = new_tree();
      td_put(src, "x", random_tensor(TDICT_U8, SHAPE((int64_t)sizes[i]), NULL));
      td_put(src, "y", random_tensor(TDICT_U8, SHAPE(77), NULL));
      poison(&w, w.memory, line_bytes(src));
      check_and_spoil(&w, src, move_with(&w, src, w.device, NULL));
    }
}

/* While all pool threads are blocked, a caller that moves a few pinned leaves queues the copies itself. */
GPU_CASE(choose_few_pinned_leaves_need_no_thread) {
  pool_gate wait_events[2];
  scoped_place w = place_sized(STAGING, 2); /* the gates below block both pool threads */
  tdict_pool *pool = tdict_context_engine(w.c)->config.pool;
  scoped_tree src = td_tree_in(w.pinned, "x:u8[%d] y:u8[70000]", 3 << 20);
  for (int i = 0; i < 2; i++) pool_gate_close(pool, &wait_events[i]);
  for (int i = 0; i < 3; i++) {
    poison(&w, w.memory, line_bytes(src));
    scoped_future future = move_async(&w, src, w.device, NULL);
    assert_true(tdict_latch_is_zero(&((tdict_transfer *)future)->queued));
    check_and_spoil(&w, src, td_made(tree, tdict_future_wait(future, &made, err)));
  }
  for (int i = 0; i < 2; i++) pool_gate_open(&wait_events[i]);
}

/* If another transfer still writes the pinned leaves, the call returns without waiting for that transfer. */
SIM_CASE(choose_calls_do_not_wait_for_transfers) {
  scoped_place w = open_place();
  scoped_tree src = bytes_tree("x", 3 << 20, NULL), pinned = bytes_tree("x", 3 << 20, w.pinned);
  scoped_tree device = move_with(&w, src, w.device, NULL), there = NULL;
  held_stream held;
  hold_stream(&w, &held);
  const tdict_transfer_options after = behind(&held);
  tdict_future *first = td_made(future, tdict_transfer_into_async(w.c, pinned, device, &after, &made, err));
  tdict_future *second = td_made(future, tdict_to_device_async(w.c, pinned, w.device, NULL, &made, err));
  assert_false(tdict_future_is_ready(first));
  assert_false(tdict_future_is_ready(second));
  atomic_store(&held.open, true);
  td_ok(tdict_future_wait(second, &there, err));
  check_tree(&w, src, there);
  td_ok(tdict_future_wait(first, NULL, err));
  td_release(first, second);
  tdict_stream_destroy(w.c, held.s);
}

/* A call returns even if it has too many pinned leaves to queue at once, and its copies wait for a stopped stream. */
SIM_CASE(choose_calls_do_not_wait_for_copies) {
  scoped_place w = open_place();
  enum { LEAVES = 7 };
  scoped_tree src = new_tree(), there = NULL;
  for (int i = 0; i < LEAVES; i++) {
    const char key[2] = {(char)('a' + i), 0};
    td_put(src, key, random_tensor(TDICT_U8, SHAPE(9 << 20), w.pinned)); /* two leaves do not fit into one copy */
  }
  held_stream held;
  hold_stream(&w, &held);
  const tdict_transfer_options after = behind(&held);
  tdict_future *future = move_async(&w, src, w.device, &after);
  assert_false(tdict_future_is_ready(future));
  atomic_store(&held.open, true);
  td_ok(tdict_future_wait(future, &there, err));
  check_tree(&w, src, there);
  tdict_future_release(future);
  tdict_stream_destroy(w.c, held.s);
}

static void *wait_beside(void *future) {
  td_ok(tdict_future_wait(future, NULL, err));
  return NULL;
}

/* Waits for a transfer in one of several ways, cancels it, or only releases it. It must finish exactly once. */
static void end_of(const place *w, const tdict_tree *src, int how, tdict_stream s) {
  tdict_tree *there = NULL;
  pthread_t beside;
  tdict_error why = {0};
  poison(w, w->memory, line_bytes(src));
  scoped_future f = move_async(w, src, w->device, NULL);
  if (how == 0)
    while (!tdict_future_is_ready(f)) usleep(50);
  if (how == 1) td_ok(tdict_future_wait_for(f, INT64_MAX, NULL, err));
  if (how == 2) td_ok(tdict_future_wait_source(f, err));
  if (how == 3) td_ok(tdict_future_wait_on_stream(f, s, NULL, err));
  if (how == 4) beside = td_start(wait_beside, f);
  if (how == 5) tdict_future_cancel(f);
  tdict_status status = how == 6 ? TDICT_OK : tdict_future_wait(f, &there, &why);
  if (how == 4) assert_int_equal(pthread_join(beside, NULL), 0);
  if (status != TDICT_OK) assert_true(how == 5 && status == TDICT_ECANCELLED);
  if (there) check_and_release(w, src, there);
}

GPU_CASE(choose_deferred_tail_runs_once) {
  scoped_place w = open_place();
  scoped_tree src = td_tree_in(w.pinned, "x:u8[%d] y:u8[70000]", 3 << 20);
  TD_STREAM(s, w.c, w.device);
  for (int i = 0; i < 70; i++) end_of(&w, src, i % 7, s);
}

CASE(choose_row_finds_the_first_row_that_serves) {
  tdict_tuning t = tdict_tuning_default();
  for (int d = 0; d < TDICT_TUNING_DIRECTIONS; d++)
    for (int i = 0; i < t.num_rows[d]; i++) {
      const tdict_tuning_row *row = &t.rows[d][i];
      assert_ptr_equal(tdict_choose_row(&t, (tdict_tuning_direction)d, row->up_to_bytes), row);
      if (i + 1 < t.num_rows[d])
        assert_ptr_equal(tdict_choose_row(&t, (tdict_tuning_direction)d, row->up_to_bytes + 1), row + 1);
    }
  assert_ptr_equal(tdict_choose_row(&t, TDICT_TUNING_IN, 0), &t.rows[TDICT_TUNING_IN][0]);
}
