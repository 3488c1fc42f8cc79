/* Tests how many driver calls and NCCL calls operations and communicators make. To count driver calls, the tests
 * replace functions of the simulated driver. */
#include "core/base/error.h"
#include "services/comm/nccl/ranks.h"
#include "support/fail_alloc.h"
#include "support/take_comm.h"

enum { HEADER_BYTES = 120, BYTES = 1 << 16 };

typedef struct driver_calls {
  int pushes, copies_in, copies_out, records, queries, launches, waits;
} driver_calls;
static _Thread_local driver_calls calls;
static const tdict_driver_ops *real;

static tdict_cu counting_push(tdict_driver *d, tdict_cu_context context) {
  calls.pushes++;
  return real->ctx_push(d, context);
}
static tdict_cu counting_copy_in(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  calls.copies_in++;
  return real->copy_h2d_async(d, dst, src, bytes, s);
}
static tdict_cu counting_copy_out(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  calls.copies_out++;
  return real->copy_d2h_async(d, dst, src, bytes, s);
}
static tdict_cu counting_record(tdict_driver *d, tdict_cu_event e, tdict_cu_stream s) {
  calls.records++;
  return real->event_record(d, e, s);
}
static tdict_cu counting_query(tdict_driver *d, tdict_cu_event e) {
  calls.queries++;
  return real->event_query(d, e);
}

static _Thread_local bool refuses_launches;
static tdict_cu counting_launch(tdict_driver *d, const tdict_cu_launch *launch, tdict_cu_stream s) {
  calls.launches++;
  if (refuses_launches) return TDICT_CU_OUT_OF_MEMORY;
  return real->launch(d, launch, s);
}
static tdict_cu counting_wait(tdict_driver *d, tdict_cu_stream s) {
  calls.waits++;
  return real->stream_synchronize(d, s);
}

/* Starts counting the driver calls of all ranks. The ranks share one context, and therefore one driver. */
static void begin_counting(const world *w) {
  static tdict_driver_ops counting;
  tdict_driver *driver = w->ranks[0].gpu->driver;
  real = driver->ops;
  counting = *real;
  counting.ctx_push = counting_push;
  counting.copy_h2d_async = counting_copy_in;
  counting.copy_d2h_async = counting_copy_out;
  counting.event_record = counting_record;
  counting.event_query = counting_query;
  counting.launch = counting_launch;
  counting.stream_synchronize = counting_wait;
  driver->ops = &counting;
}
static void end_counting(const world *w) { w->ranks[0].gpu->driver->ops = real; }

static driver_calls found[MOST_RANKS];

static tdict_status exchange_header(rank *r, tdict_error *err) {
  char mine[HEADER_BYTES], all[MOST_RANKS * HEADER_BYTES];
  memset(mine, 'a' + r->number, sizeof mine);
  calls = (driver_calls){0};
  tdict_status status = r->t.exchange(r->t.self, mine, all, sizeof mine, SECONDS(60), err);
  found[r->number] = calls;
  for (int i = 0; i < r->w->size && status == TDICT_OK; i++)
    if (all[i * HEADER_BYTES] != 'a' + i || all[(i + 1) * HEADER_BYTES - 1] != 'a' + i)
      status = tdict_fail(err, TDICT_EFORMAT, "the header of rank %d is wrong", i);
  return status;
}

static tdict_status broadcast_block(rank *r, tdict_error *err) {
  calls = (driver_calls){0};
  tdict_status status = r->t.broadcast(r->t.self, r->memory, BYTES, 0, r->stream, SECONDS(60), err);
  if (status == TDICT_OK) status = r->t.finish(r->t.self, r->stream, SECONDS(60), err);
  found[r->number] = calls;
  return status;
}

SIM_CASE(nccl_operations_make_few_driver_calls) {
  scoped_world w;
  world_open(&w, 3, true, BYTES);
  begin_counting(&w);
  const int operations = world_operations(&w);
  world_do(&w, exchange_header);
  for (int i = 0; i < w.size; i++) {
    assert_int_equal(found[i].pushes, 1);
    assert_int_equal(found[i].copies_in + found[i].copies_out, 0);
    assert_int_equal(found[i].records, 1);
    assert_true(found[i].queries > 0);
  }
  assert_int_equal(world_operations(&w) - operations, w.size);
  world_do(&w, broadcast_block);
  for (int i = 0; i < w.size; i++) {
    assert_int_equal(found[i].pushes, 2);
    assert_int_equal(found[i].copies_in + found[i].copies_out, 0);
    assert_int_equal(found[i].records, 1);
  }
  assert_int_equal(world_operations(&w) - operations, 2 * w.size);
  end_counting(&w);
}

/* Trees that are stored as one block. The second half of the tensors has a different size than the first half. */
enum { LEAVES = 400, ROWS = 6 };
static tdict_comm *comms[MOST_RANKS];
static tdict_tree *whole, *parts[MOST_RANKS], *results[MOST_RANKS];

static tdict_tree *make_block(const rank *r, int64_t rows) {
  static char keys[LEAVES][8];
  tdict_field fields[LEAVES];
  for (int i = 0; i < LEAVES; i++) {
    snprintf(keys[i], sizeof keys[i], "k%d", i);
    fields[i] = (tdict_field){.path = keys[i], .dtype = TDICT_F32, .ndim = 1, .shape = {i < LEAVES / 2 ? 3 : 5}};
  }
  tdict_memory *memory = tdict_device_memory(r->context, r->stream.device);
  tdict_tree *tree = td_made(tree, tdict_create_from(fields, LEAVES, 1, &rows, memory, &made, err));
  tdict_lock(tree);
  return tree;
}
static tdict_status (*real_exchange)(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                     tdict_error *err);
static _Thread_local bool dies;
/* Exchanges headers. If `dies` is set, makes the next allocation of this rank fail. */
static tdict_status last_exchange(void *self, const void *src, void *dst, size_t num_bytes, int64_t timeout_ns,
                                  tdict_error *err) {
  const tdict_status status = real_exchange(self, src, dst, num_bytes, timeout_ns, err);
  if (dies) td_fail_alloc(0, false);
  return status;
}
static void (*real_abort)(void *self);
static _Thread_local const tdict_gpu *gpu_of_thread;
static _Thread_local size_t live_at_abort;
/* Records how much device memory the rank uses, then aborts. */
static void noting_abort(void *self) {
  if (gpu_of_thread) live_at_abort = gpu_of_thread->counts.live_bytes;
  real_abort(self);
}
static tdict_status open_comm(rank *r, tdict_error *err) {
  r->t.on_calling_thread = true; /* the calls are counted on the rank's own thread */
  r->t.exchange = last_exchange;
  r->t.abort = noting_abort;
  return tdict_comm_create(r->context, &r->t, NULL, &comms[r->number], err);
}
static tdict_status close_comm(rank *r, tdict_error *err) {
  (void)err;
  tdict_comm_destroy(comms[r->number]);
  return TDICT_OK;
}
static tdict_status keep_counts(const rank *r, tdict_status status) {
  found[r->number] = calls;
  tdict_release(results[r->number]);
  results[r->number] = NULL;
  return status;
}
static tdict_status scatter_block(rank *r, tdict_error *err) {
  calls = (driver_calls){0};
  return keep_counts(r, td_comm_scatter(comms[r->number], r->number ? NULL : whole, 0, NULL, &results[r->number], err));
}
static tdict_status gather_blocks(rank *r, tdict_error *err) {
  calls = (driver_calls){0};
  return keep_counts(r, td_comm_gather(comms[r->number], parts[r->number], 0, NULL, &results[r->number], err));
}
static tdict_status all_gather_blocks(rank *r, tdict_error *err) {
  calls = (driver_calls){0};
  return keep_counts(r, td_comm_all_gather(comms[r->number], parts[r->number], NULL, &results[r->number], err));
}

static void open_blocks(world *w) {
  world_open(w, 3, true, BYTES);
  whole = make_block(&w->ranks[0], ROWS);
  for (int i = 0; i < w->size; i++) parts[i] = make_block(&w->ranks[i], ROWS / w->size);
  real_exchange = w->ranks[0].t.exchange;
  real_abort = w->ranks[0].t.abort;
  world_do(w, open_comm);
  begin_counting(w);
}
static void close_blocks(world *w) {
  end_counting(w);
  world_do(w, close_comm);
  for (int i = 0; i < w->size; i++) tdict_release(parts[i]);
  tdict_release(whole);
  world_end(w);
}

/* Runs `body` twice. Checks that in the second run, only ranks below `launching` launch a kernel, each once. The first
 * run loads the kernels and fills the caches. The kernel receives its table as a parameter, so nothing is copied to the
 * device. */
static void check_launches(world *w, tdict_status (*body)(rank *r, tdict_error *err), int launching) {
  world_do(w, body);
  world_do(w, body);
  for (int i = 0; i < w->size; i++) {
    assert_int_equal(found[i].launches, i < launching);
    assert_int_equal(found[i].copies_in + found[i].copies_out, 0);
    assert_int_equal(found[i].waits, 0); /* an event marks the end of the message, so no rank waits for a stream */
  }
}

SIM_CASE(nccl_comm_cuts_and_joins_blocks_by_one_launch) {
  world w;
  open_blocks(&w);
  check_launches(&w, scatter_block, 1);
  check_launches(&w, gather_blocks, 1);
  check_launches(&w, all_gather_blocks, w.size);
  close_blocks(&w);
}

/* The device memory that each rank's call still uses at the abort, and after the call. */
static size_t held[MOST_RANKS], left[MOST_RANKS];
/* Gathers the blocks, but rank 1 fails between the exchange of headers and its message. */
static tdict_status lose_rank(rank *r, tdict_error *err) {
  const tdict_comm_options o = td_with(tdict_comm_options, timeout_ns = SECONDS(1));
  const size_t live = r->gpu->counts.live_bytes;
  dies = r->number == 1;
  gpu_of_thread = r->gpu;
  const tdict_status status = td_comm_all_gather(comms[r->number], parts[r->number], &o, &results[r->number], err);
  (void)td_fail_alloc_stop();
  held[r->number] = live_at_abort - live;
  left[r->number] = r->gpu->counts.live_bytes - live;
  return status;
}

/* The other ranks have queued the message and the join, which use memory until the communicator is aborted. */
SIM_CASE(nccl_comm_keeps_the_memory_of_a_queued_join) {
  world w;
  open_blocks(&w);
  world_do(&w, all_gather_blocks); /* loads the kernels; later launches are only queued */
  world_run(&w, lose_rank);
  for (int i = 0; i < w.size; i++) {
    assert_int_not_equal(w.ranks[i].status, TDICT_OK);
    assert_int_equal(w.ranks[i].status == TDICT_ENOMEM, i == 1);
    assert_null(results[i]);
    assert_true(i == 1 || held[i] >= 4 * (size_t)LEAVES * 256); /* three received blocks, and the result */
    assert_int_equal(left[i], 0);
  }
  close_blocks(&w);
}

/* Gathers the blocks, but makes the kernel launches of rank 1 fail. */
static tdict_status refuse_launches(rank *r, tdict_error *err) {
  refuses_launches = r->number == 1;
  return all_gather_blocks(r, err);
}

/* A failed launch is retried after the message, when a failure no longer affects other ranks. */
SIM_CASE(nccl_comm_stays_usable_after_a_join_that_fails) {
  world w;
  open_blocks(&w);
  world_do(&w, all_gather_blocks); /* loads the kernels; later launches are only queued */
  world_run(&w, refuse_launches);
  for (int i = 0; i < w.size; i++) {
    const rank *r = &w.ranks[i];
    assert_int_equal(found[i].launches, i == 1 ? 2 : 1);
    assert_int_equal(r->status, i == 1 ? TDICT_ENOMEM : TDICT_OK);
    if (i == 1 && !strstr(r->err.message, "cuLaunchKernel")) fail_msg("%s", r->err.message);
  }
  world_do(&w, all_gather_blocks);
  close_blocks(&w);
}
