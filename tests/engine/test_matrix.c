/* Tests concurrent transfers. Threads start transfers of overlapping trees in each direction and mode, write into the
 * same destinations, cancel transfers, and release futures and trees early. Hooks start nested transfers, and contexts
 * are destroyed while transfers run. The bytes of a tree contain its generation (support/stamps.h). A watchdog aborts a
 * test that hangs.
 *
 * Each case runs rounds for some seconds, and each round has its own context. The environment variables
 * TDICT_TEST_SECONDS and TDICT_TEST_SEED set the time and the seed (see scripts/soak). Threads record the first error,
 * and the main thread checks for it after each round. */
#include <sched.h>
#include <stdatomic.h>

#include "context.h"
#include "core/base/clock.h"
#include "device/sim/driver.h"
#include "support/stamps.h"
#include "support/test.h"
#include "support/threads.h"
#include "support/watchdog.h"

enum {
  NUM_THREADS = 5,
  NUM_SOURCES = 3,
  NUM_WRITERS = 4,
  MAX_PENDING = 5,
  SECONDS = 3,
  PATIENCE = 40,
  ANY = 0,
  NONE = -2
};

/* A transfer in flight, and the expected generation of its tree. */
typedef struct pending {
  tdict_future *future;
  int64_t generation; /* ANY: any single generation; NONE: unknown, or the result is not on the host */
  bool cancelled;
} pending;

typedef struct round_of round_of;
typedef struct player {
  round_of *round;
  int number;
  uint64_t random;
  pthread_t thread;
  tdict_stream stream;
  tdict_tree *own_host, *own_device; /* written only by this thread */
  int64_t generation;
  pending pending[MAX_PENDING];
  int num_pending;
} player;

struct round_of {
  tdict_context *context, *other; /* other: a second context that moves the same trees, or NULL */
  tdict_device device;
  int pool_threads;
  _Atomic(bool) stop;
  const tdict_tree *sources[NUM_SOURCES], *nested, *writers[NUM_WRITERS];
  tdict_tree *shared_device, *shared_host; /* several threads write whole trees */
  tdict_tree *racy_device;                 /* written by transfers that may be cancelled */
  pthread_mutex_t lock;                    /* guards: wrong */
  char wrong[512];
  _Atomic(int64_t) transfers;
  player players[NUM_THREADS];
};

static void wrong(round_of *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void wrong(round_of *r, const char *format, ...) {
  va_list args;
  va_start(args, format);
  pthread_mutex_lock(&r->lock);
  if (!r->wrong[0]) vsnprintf(r->wrong, sizeof r->wrong, format, args);
  pthread_mutex_unlock(&r->lock);
  va_end(args);
  atomic_store(&r->stop, true);
}

static uint32_t draw(player *p, uint32_t below) {
  p->random = p->random * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(p->random >> 33) % below;
}

static bool went_well(player *p, const char *what, tdict_status status, const tdict_error *err) {
  atomic_fetch_add_explicit(&p->round->transfers, 1, memory_order_relaxed);
  if (status == TDICT_OK) return true;
  wrong(p->round, "%s: %s at '%s': %s", what, tdict_status_name(status), err->path, err->message);
  return false;
}

static void check_tree(player *p, const char *what, const tdict_tree *td, int64_t generation) {
  char why[384];
  int64_t found = stamp_check(td, why, sizeof why);
  if (found < 0)
    wrong(p->round, "%s: %s", what, why);
  else if (generation != ANY && found != generation)
    wrong(p->round, "%s: generation %lld, wanted %lld", what, (long long)found, (long long)generation);
}

static tdict_transfer_options draw_options(player *p) {
  static const int32_t threads[] = {0, 1, 2, -1};
  tdict_transfer_options o =
      td_with(tdict_transfer_options, mode = (int32_t)draw(p, 4), num_threads = threads[draw(p, 4)]);
  if (o.num_threads > p->round->pool_threads) o.num_threads = 1;
  o.check_sources = draw(p, 16) == 0;
  return o;
}
static tdict_context *draw_context(player *p) {
  return p->round->other && draw(p, 2) ? p->round->other : p->round->context;
}

/* Waits for the oldest transfer in flight in one of several ways, and checks its result. */
static void settle(player *p, const char *what) {
  pending oldest = p->pending[0];
  tdict_error err = {0};
  scoped_tree td = NULL;
  memmove(p->pending, p->pending + 1, (size_t)--p->num_pending * sizeof *p->pending);
  watch_note(p->number, what);
  switch (draw(p, 4)) {
  case 0:
    while (!tdict_future_is_ready(oldest.future)) sched_yield();
    break;
  case 1:
    while (tdict_future_wait_for(oldest.future, 100000, NULL, NULL) == TDICT_ETIMEDOUT) continue;
    break;
  case 2:
    (void)!tdict_future_wait_source(oldest.future, NULL);
    break;
  default:
    break;
  }
  tdict_status status = tdict_future_wait(oldest.future, &td, &err);
  tdict_future_release(oldest.future);
  if (oldest.cancelled && status == TDICT_ECANCELLED) return;
  if (!went_well(p, what, status, &err)) return;
  if (oldest.generation != NONE) check_tree(p, what, td, oldest.generation);
}

/* Keeps a future for later, or releases it at once. The transfer runs in both cases. */
static void keep(player *p, tdict_future *f, int64_t generation) {
  if (draw(p, 8) == 0) {
    tdict_future_release(f);
    return;
  }
  bool cancelled = false;
  p->pending[p->num_pending++] = (pending){f, generation, cancelled};
  if (p->num_pending == MAX_PENDING || draw(p, 3) == 0) settle(p, "settles");
}

static bool start(player *p, const tdict_tree *src, tdict_device to, tdict_future **out) {
  tdict_transfer_options o = draw_options(p);
  tdict_error err = {0};
  return went_well(p, "to_device_async", tdict_to_device_async(draw_context(p), src, to, &o, out, &err), &err);
}
static bool start_into(player *p, const tdict_tree *src, tdict_tree *dst, tdict_future **out) {
  tdict_transfer_options o = draw_options(p);
  tdict_error err = {0};
  return went_well(p, "transfer_into_async", tdict_transfer_into_async(draw_context(p), dst, src, &o, out, &err), &err);
}
static bool move(player *p, const tdict_tree *src, tdict_device to, tdict_tree **out) {
  tdict_transfer_options o = draw_options(p);
  tdict_error err = {0};
  o.pinned_result = to.type == TDICT_DEVICE_CPU && draw(p, 3) == 0;
  return went_well(p, "to_device", tdict_to_device(draw_context(p), src, to, &o, out, &err), &err);
}

/* Copies a tree to the device and back. The device tree is released while the second transfer reads it. */
static void play_round_trip(player *p, const tdict_tree *src, int64_t generation) {
  tdict_future *f;
  scoped_tree there = NULL;
  if (!move(p, src, p->round->device, &there)) return;
  if (start(p, there, tdict_cpu(), &f)) keep(p, f, generation);
}

/* Starts a transfer of a new tree, and releases the tree at once. */
static void play_let_go(player *p) {
  tdict_future *f;
  tdict_tree *td = stamp_tree(70 + p->number);
  if (!td || !start(p, td, p->round->device, &f)) {
    tdict_release(td);
    return;
  }
  td_release(td);
  if (draw(p, 2)) {
    keep(p, f, NONE);
    return;
  }
  tdict_error err = {0};
  tdict_tree *back = NULL;
  tdict_status status = tdict_future_wait(f, &td, &err);
  tdict_future_release(f);
  if (went_well(p, "of a released tree", status, &err) && move(p, td, tdict_cpu(), &back))
    check_tree(p, "of a released tree", back, 70 + p->number);
  td_release(back, td);
}

static void play_cancel(player *p) {
  const uint32_t which = draw(p, NUM_SOURCES);
  tdict_future *f;
  tdict_error err = {0};
  scoped_tree td = NULL, back = NULL;
  if (!start(p, draw(p, 4) ? p->round->sources[which] : p->round->nested, p->round->device, &f)) return;
  for (uint32_t i = draw(p, 30); i > 0; i--) sched_yield();
  tdict_future_cancel(f);
  tdict_status status = tdict_future_wait(f, &td, &err);
  tdict_future_release(f);
  if (status == TDICT_ECANCELLED || !went_well(p, "cancelled", status, &err)) return;
  if (move(p, td, tdict_cpu(), &back)) check_tree(p, "done despite the cancel", back, ANY); /* cancelled too late */
}

/* Writes a whole tree into a destination that several threads write. A reader must see the bytes of one write only. */
static void play_shared_write(player *p) {
  round_of *r = p->round;
  tdict_future *f;
  if (start_into(p, r->writers[draw(p, NUM_WRITERS)], draw(p, 2) ? r->shared_device : r->shared_host, &f))
    keep(p, f, NONE);
}
static void play_shared_read(player *p) {
  tdict_future *f;
  if (start(p, p->round->shared_device, tdict_cpu(), &f)) keep(p, f, ANY);
}
static void play_shared_read_host(player *p) {
  scoped_tree there = NULL, back = NULL;
  if (!move(p, p->round->shared_host, p->round->device, &there)) return;
  if (move(p, there, tdict_cpu(), &back)) check_tree(p, "of the shared host tree", back, ANY);
}
static void play_shared_across(player *p) {
  round_of *r = p->round;
  tdict_future *f;
  bool out = draw(p, 2);
  if (start_into(p, out ? r->shared_device : r->shared_host, out ? r->shared_host : r->shared_device, &f))
    keep(p, f, NONE);
}

static void play_racy(player *p) {
  round_of *r = p->round;
  tdict_future *f;
  if (!start_into(p, r->writers[draw(p, NUM_WRITERS)], r->racy_device, &f)) return;
  if (draw(p, 2)) {
    tdict_future_cancel(f);
    p->pending[p->num_pending++] = (pending){f, NONE, true};
    settle(p, "cancels a transfer_into");
  } else {
    keep(p, f, NONE);
  }
}

/* Writes this thread's own tree, and then reads it. The read must see this write. */
static void play_own(player *p) {
  tdict_future *f;
  const int64_t generation = ++p->generation;
  if (!stamp_refill(p->own_host, generation)) {
    wrong(p->round, "an accessor of the thread's own source returns NULL");
    return;
  }
  if (!start_into(p, p->own_host, p->own_device, &f)) return;
  keep(p, f, NONE);
  if (start(p, p->own_device, tdict_cpu(), &f)) keep(p, f, generation);
}

static void play_pin(player *p) {
  tdict_error err = {0};
  scoped_tree pinned = NULL;
  const tdict_tree *src = draw(p, 3) ? p->round->sources[draw(p, NUM_SOURCES)] : p->round->nested;
  tdict_pin_options o = td_with(tdict_pin_options, num_threads = draw(p, 2) ? 0 : -1);
  if (!went_well(p, "pin_memory", tdict_pin_memory(p->round->context, src, &o, &pinned, &err), &err)) return;
  if (!tdict_is_pinned(pinned)) wrong(p->round, "pin_memory: the result is not pinned");
  check_tree(p, "pinned", pinned, ANY);
  tdict_future *f;
  if (draw(p, 2) && start(p, pinned, p->round->device, &f)) keep(p, f, NONE); /* direct copies */
}

/* A host function that acts as a kernel of the program: reads the result on a stream that waits for the transfer. */
typedef struct look {
  round_of *round;
  tdict_stream stream;
  const void *address;
  int64_t count, word;
} look;
static void look_at(void *user) {
  look *l = user;
  const int64_t *data = tdict_sim_host_pointer(l->stream, l->address);
  for (int64_t i = 0; i < l->count; i++) {
    if (data[i] == l->word) continue;
    wrong(l->round, "read on a stream: word %lld is %lld, wanted %lld", (long long)i, (long long)data[i],
          (long long)l->word);
    break;
  }
  free(l);
}
static void launch_look(player *p, const tdict_tree *there, int64_t generation) {
  tdict_error err = {0};
  look *l = malloc(sizeof *l);
  if (!l) return;
  *l = (look){p->round, p->stream, tdict_const_data(there, "n.l2"), 9000, stamp_word(generation, 2)};
  if (!went_well(p, "sim_launch", tdict_sim_launch(p->stream, look_at, l, &err), &err)) free(l);
}
static void play_stream(player *p) {
  const uint32_t which = draw(p, NUM_SOURCES);
  tdict_error err = {0};
  tdict_future *f;
  scoped_tree there = NULL;
  if (!start(p, p->round->sources[which], p->round->device, &f)) return;
  tdict_status status = tdict_future_wait_on_stream(f, p->stream, &there, &err);
  tdict_future_release(f);
  if (!went_well(p, "wait_on_stream", status, &err)) return;
  if (p->round->device.type == TDICT_DEVICE_SIM) launch_look(p, there, 10 + which);
  went_well(p, "record_stream", tdict_record_stream(there, p->stream, &err), &err);
}

static void play_trim(player *p) {
  tdict_context_trim(p->round->context, draw(p, 2) ? tdict_cpu() : p->round->device, draw(p, 2) ? 0 : 1 << 20);
}

static void play_once(player *p) {
  round_of *r = p->round;
  const uint32_t which = draw(p, NUM_SOURCES);
  static const char *const names[] = {"round trip",
                                      "round trip, nested",
                                      "lets go",
                                      "cancels",
                                      "writes the shared trees",
                                      "reads the shared device tree",
                                      "reads the shared host tree",
                                      "copies across",
                                      "racy writes",
                                      "own generations",
                                      "pins",
                                      "waits on a stream",
                                      "trims"};
  const uint32_t action = draw(p, sizeof names / sizeof *names);
  watch_note(p->number, names[action]);
  switch (action) {
  case 0:
    play_round_trip(p, r->sources[which], 10 + which);
    break;
  case 1:
    play_round_trip(p, r->nested, 50);
    break;
  case 2:
    play_let_go(p);
    break;
  case 3:
    play_cancel(p);
    break;
  case 4:
    play_shared_write(p);
    break;
  case 5:
    play_shared_read(p);
    break;
  case 6:
    play_shared_read_host(p);
    break;
  case 7:
    play_shared_across(p);
    break;
  case 8:
    play_racy(p);
    break;
  case 9:
    play_own(p);
    break;
  case 10:
    play_pin(p);
    break;
  case 11:
    play_stream(p);
    break;
  default:
    play_trim(p);
    break;
  }
}

static void *play(void *argument) {
  player *p = argument;
  while (!atomic_load(&p->round->stop)) play_once(p);
  watch_note(p->number, "has stopped, with transfers in flight");
  return NULL;
}

/* Makes sources that share nodes and tensors. Source `i` also has its own leaves, whose generation is 10 + i. */
static void make_sources(round_of *r) {
  tdict_tree *common = td_made(tree, tdict_create(0, NULL, &made, err));
  td_ok(stamp_leaf(common, "l5", 2500, 1, err));
  td_ok(stamp_leaf(common, "x.l6", 11, 1, err));
  for (int i = 0; i < NUM_SOURCES; i++) {
    tdict_tree *td = stamp_tree(10 + i);
    assert_non_null(td);
    td_ok(tdict_set_tree(td, "common", common, err));
    td_ok(tdict_set_tree(td, "n.common", common, err));
    r->sources[i] = td;
  }
  tdict_tree *nested = stamp_tree(50);
  assert_non_null(nested);
  td_ok(stamp_put_nest(nested, 3, 50, err));
  td_ok(tdict_set_tree(nested, "common", common, err));
  r->nested = nested;
  tdict_release(common);
  for (int i = 0; i < NUM_WRITERS; i++) assert_non_null(r->writers[i] = stamp_tree(20 + i));
}

static tdict_tree *on_device(round_of *r, const tdict_tree *td) {
  return td_made(tree, tdict_to_device(r->context, td, r->device, NULL, &made, err));
}

static tdict_driver *open_driver(const round_of *r, uint64_t seed) {
  tdict_driver *driver = NULL;
  tdict_error why = {0};
  tdict_status status = TDICT_ENODEVICE;
  tdict_sim_options sim =
      td_with(tdict_sim_options, memory_bytes = (size_t)1 << 30, latency_ns = seed / 2 % 3 ? 0 : 20000);
  if (r->device.type == TDICT_DEVICE_SIM) status = tdict_driver_sim_open(&sim, &driver, &why);
#if TDICT_CUDA
  if (r->device.type == TDICT_DEVICE_CUDA) status = tdict_driver_cuda_open(&driver, &why);
#endif
  if (status != TDICT_OK) td_skip(why.message[0] ? why.message : "built without CUDA");
  return driver;
}

static tdict_context *make_context(const round_of *r, tdict_driver *driver, uint64_t seed) {
  tdict_context *context = NULL;
  tdict_context_options o = td_with(tdict_context_options, device = r->device, num_threads = r->pool_threads);
  o.staging_bytes = (size_t)64 << (10 + 4 * (seed % 2)); /* 64 KiB, the minimum, or 1 MiB */
  td_ok(tdict_context_create_over(&o, driver, &context, err));
  return context;
}

static void begin_round(round_of *r, uint64_t seed) {
  make_sources(r);
  r->shared_host = stamp_tree(19);
  assert_non_null(r->shared_host);
  r->shared_device = on_device(r, r->shared_host);
  r->racy_device = on_device(r, r->shared_host);
  stamp_set_contested(seed % 2 ? r->shared_host : r->shared_device);
  for (int i = 0; i < NUM_THREADS; i++) {
    player *p = &r->players[i];
    p->round = r;
    p->number = i;
    p->random = seed * 1000003u + (uint64_t)i;
    p->generation = 1000;
    p->own_host = stamp_tree(p->generation);
    assert_non_null(p->own_host);
    p->own_device = on_device(r, p->own_host);
    td_ok(tdict_stream_create(r->context, r->device, &p->stream, err));
  }
  for (int i = 0; i < NUM_THREADS; i++) r->players[i].thread = td_start(play, &r->players[i]);
}

static void release_trees(round_of *r) {
  for (int i = 0; i < NUM_SOURCES; i++) tdict_release((tdict_tree *)(uintptr_t)r->sources[i]);
  for (int i = 0; i < NUM_WRITERS; i++) tdict_release((tdict_tree *)(uintptr_t)r->writers[i]);
  tdict_release((tdict_tree *)(uintptr_t)r->nested);
  td_release(r->shared_device, r->shared_host, r->racy_device);
  for (int i = 0; i < NUM_THREADS; i++) td_release(r->players[i].own_host, r->players[i].own_device);
}

/* Destroys the context while transfers are in flight, and releases the trees before or after. Futures stay valid. */
static void end_round(round_of *r, uint64_t seed) {
  atomic_store(&r->stop, true);
  for (int i = 0; i < NUM_THREADS; i++) pthread_join(r->players[i].thread, NULL);
  for (int i = 0; i < NUM_THREADS; i++) tdict_stream_destroy(r->context, r->players[i].stream);
  stamp_set_contested(NULL);
  if (seed % 3 == 0) release_trees(r);
  watch_note(NUM_THREADS, "destroys the context");
  td_release(r->context, r->other);
  for (int i = 0; i < NUM_THREADS; i++) {
    player *p = &r->players[i];
    for (int k = 0; k < p->num_pending; k++) assert_true(tdict_future_is_ready(p->pending[k].future));
    while (p->num_pending > 0) settle(p, "settles after the context");
  }
  if (seed % 3 != 0) release_trees(r);
}

static int64_t play_round(int pool_threads, bool two, uint64_t seed, int64_t until) {
  round_of r = {.pool_threads = pool_threads, .device = td_device()};
  pthread_mutex_init(&r.lock, NULL);
  stamp_set_pool(pool_threads);
  tdict_driver *driver = open_driver(&r, seed);
  r.context = make_context(&r, driver, seed);
  if (two) r.other = make_context(&r, driver, seed + 1);
  tdict_driver_release(driver);
  begin_round(&r, seed);
  int64_t end = tdict_now_ns() + (int64_t)(30 + seed % 7 * 40) * 1000000;
  while (tdict_now_ns() < end && tdict_now_ns() < until && !atomic_load(&r.stop)) {
    const struct timespec pause = {0, 2000000};
    nanosleep(&pause, NULL);
  }
  end_round(&r, seed);
  if (r.wrong[0]) fail_msg("seed %llu: %s", (unsigned long long)seed, r.wrong);
  assert_int_equal(stamp_nests_alive(), 0);
  pthread_mutex_destroy(&r.lock);
  return atomic_load(&r.transfers);
}

static int64_t number_from(const char *name, int64_t otherwise) {
  const char *text = getenv(name);
  return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static void play_rounds(int pool_threads, bool two) {
  const int64_t until = tdict_now_ns() + number_from("TDICT_TEST_SECONDS", SECONDS) * 1000000000;
  uint64_t seed = (uint64_t)number_from("TDICT_TEST_SEED", 1) * 1000;
  int64_t rounds = 0, transfers = 0;
  watch_begin(PATIENCE);
  for (; tdict_now_ns() < until; rounds++) {
    watch_note(NUM_THREADS, "plays a round");
    transfers += play_round(pool_threads, two, ++seed, until);
  }
  watch_end();
  assert_true(rounds > 0 && transfers > 0);
  printf("matrix: pool of %d, %lld rounds, %lld calls, last seed %llu\n", pool_threads, (long long)rounds,
         (long long)transfers, (unsigned long long)seed);
}

GPU_CASE(matrix_pool_of_one) { play_rounds(1, false); }
GPU_CASE(matrix_pool_of_two) { play_rounds(2, false); }
GPU_CASE(matrix_pool_of_eight) { play_rounds(8, false); }
GPU_CASE(matrix_two_contexts) { play_rounds(2, true); }
