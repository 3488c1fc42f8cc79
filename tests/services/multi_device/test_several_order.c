/* Tests the order and the completion of transfers to several devices: earlier and later writers, streams, cancellation,
 * and errors of one device. The cases hold the simulated devices to freeze a state. */
#include "several.h"
#include "tdict/sim.h"

static tdict_future *start(const several *s, const tdict_tree *src, const tdict_spread *spread,
                           const tdict_transfer_options *o) {
  const tdict_spread how = on_all(s, spread);
  return td_made(future, tdict_to_devices_async(s->c, src, &how, o, &made, err));
}
/* Waits for the future and releases it. The caller releases the trees. */
static void finish_all(const several *s, tdict_future *f, tdict_tree **trees) {
  tdict_tree *all = td_made(tree, tdict_future_wait(f, &made, err));
  for (size_t i = 0; i < s->count; i++) {
    tdict_entry entry;
    entry = tdict_get_entry_at(all, i);
    trees[i] = tdict_retain(entry.tree);
  }
  td_release(all, f);
}
static void check_pending(tdict_future *f) {
  td_rest();
  td_fails(TDICT_ETIMEDOUT, "", tdict_future_wait_for(f, 1000000, NULL, err));
}
static tdict_tree *host_copy(const several *s, const tdict_tree *td) {
  (void)s;
  return td_made(tree, tdict_clone_deep(td, NULL, &made, err));
}

/* Checks that an earlier transfer into the source runs before the replication, and a later transfer after it. */
static void check_neighbours(size_t count, int64_t rows) {
  scoped_several s = several_open(count, TDICT_SIM_PEERS_ALL);
  scoped_tree first = rows_tree(rows, NULL), second = rows_tree(rows, NULL), src = rows_tree(rows, s.at[0].pinned);
  scoped_tree one = to_device(&s.at[0], first, s.devices[0]), two = to_device(&s.at[1], second, s.devices[1]);
  tdict_tree *trees[MOST_DEVICES];
  tdict_future *before = NULL, *after = NULL;
  td_ok(tdict_sim_hold(s.c, err));
  td_ok(tdict_transfer_into_async(s.c, src, one, NULL, &before, err));
  tdict_future *f = start(&s, src, NULL, NULL);
  td_ok(tdict_transfer_into_async(s.c, src, two, NULL, &after, err));
  check_pending(f);
  td_ok(tdict_sim_resume(s.c, err));
  finish_all(&s, f, trees);
  check_replicas(&s, first, trees);
  td_ok(tdict_future_wait(after, NULL, err));
  check_tree(&s.at[0], second, src);
  td_release(before, after);
  release_all(&s, trees);
}
SIM_CASE(replicate_keeps_the_order_of_small_trees) { check_neighbours(2, 16); }
SIM_CASE(replicate_keeps_the_order_on_two_devices) { check_neighbours(2, 2500); }
SIM_CASE(replicate_keeps_the_order_on_four_devices) { check_neighbours(4, 2500); }

/* Lets the simulated device run 1 to 5 operations at a time. The source is released right after the start. */
static void check_steps(size_t count, int32_t peers, const tdict_spread *spread) {
  scoped_several s = several_open(count, peers);
  for (int round = 0; round < 6; round++) {
    tdict_tree *src = rows_tree(round % 2 ? 20 : 1200, round % 3 ? s.at[0].pinned : NULL);
    tdict_tree *want = host_copy(&s, src), *trees[MOST_DEVICES], *whole = NULL;
    td_ok(tdict_sim_hold(s.c, err));
    tdict_future *f = start(&s, src, spread, NULL);
    tdict_release(src);
    for (uint64_t i = 0; !tdict_future_is_ready(f); i++) {
      unsigned char portion;
      td_fill_random(&portion, 1, i + 1);
      td_ok(tdict_sim_step(s.c, 1 + portion % 5, err));
    }
    td_ok(tdict_sim_resume(s.c, err));
    finish_all(&s, f, trees);
    if (!spread) {
      check_replicas(&s, want, trees);
    } else {
      td_ok(gather(&s, trees, 0, tdict_cpu(), &whole, err));
      check_tree(&s.at[0], want, whole);
      tdict_release(whole);
    }
    release_all(&s, trees);
    tdict_release(want);
  }
}
SIM_CASE(replicate_in_single_steps_on_two_devices) { check_steps(2, TDICT_SIM_PEERS_ALL, NULL); }
SIM_CASE(replicate_in_single_steps_on_four_devices) { check_steps(4, TDICT_SIM_PEERS_ALL, NULL); }
SIM_CASE(replicate_in_single_steps_without_peers) { check_steps(2, TDICT_SIM_PEERS_NONE, NULL); }
SIM_CASE(split_in_single_steps) {
  const tdict_spread spread = split_along(0, NULL);
  check_steps(4, TDICT_SIM_PEERS_PAIRS, &spread);
}

static tdict_driver_sim_count driver_counts(const several *s) {
  tdict_gpu *gpu;
  tdict_driver_sim_count count;
  td_ok(tdict_devices_gpu(tdict_context_devices(s->c), s->devices[0], &gpu, err));
  tdict_driver_sim_counts(gpu->driver, 0, &count);
  return count;
}
/* Copies of the second round are queued while the first round is still held: a part does not wait for all earlier
 * parts. */
SIM_CASE(replicate_large_parts_arrive_side_by_side) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *src = rows_tree(4000, s.at[0].pinned), *trees[MOST_DEVICES]; /* four rounds */
  td_ok(tdict_sim_hold(s.c, err));
  tdict_future *f = start(&s, src, NULL, NULL);
  td_rest();
  const int64_t queued = driver_counts(&s).num_pending;
  td_ok(tdict_sim_resume(s.c, err));
  finish_all(&s, f, trees);
  check_replicas(&s, src, trees);
  assert_true(queued >= 4); /* each device has copies of two rounds in its queue */
  release_all(&s, trees);
  tdict_release(src);
}

/* A kernel's read of a tensor, on the stream of a device. */
typedef struct reader {
  tdict_stream stream;
  const void *address;
  size_t bytes;
  unsigned char *seen;
  atomic_bool done;
} reader;
static void read_now(void *user) {
  reader *r = user;
  memcpy(r->seen, tdict_sim_host_pointer(r->stream, r->address), r->bytes);
  atomic_store(&r->done, true);
}
/* A stream of the last device waits for the transfer. A kernel on this stream then reads the last device's tree. */
SIM_CASE(replicate_is_awaited_by_a_stream) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  for (int64_t rows = 16; rows <= 1600; rows *= 100) {
    scoped_tree src = rows_tree(rows, NULL), all = NULL;
    reader r = {0};
    td_ok(tdict_stream_create(s.c, s.devices[1], &r.stream, err));
    scoped_future f = start(&s, src, NULL, NULL);
    td_ok(tdict_future_wait_on_stream(f, r.stream, &all, err));
    const tdict_tensor *got = td_leaf(all, "1.obs.pixels"), *want = td_leaf(src, "obs.pixels");
    r.address = got->data;
    r.bytes = tdict_tensor_bytes(got);
    r.seen = td_alloc(r.bytes);
    td_ok(tdict_sim_launch(r.stream, read_now, &r, err));
    td_ok(tdict_record_stream(all, r.stream, err));
    td_ok(tdict_future_wait(f, NULL, err));
    td_release(all);
    while (!atomic_load(&r.done)) usleep(100);
    tdict_stream_destroy(s.c, r.stream);
    assert_memory_equal(r.seen, tdict_tensor_const_data(want), r.bytes);
    free(r.seen);
  }
}
SIM_CASE(replicate_waits_for_the_stream_after) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *src = rows_tree(100, NULL), *trees[MOST_DEVICES];
  held_stream h;
  hold_stream(&s.at[1], &h);
  const tdict_transfer_options o = behind(&h);
  tdict_future *f = start(&s, src, NULL, &o);
  check_pending(f);
  atomic_store(&h.open, true);
  finish_all(&s, f, trees);
  check_replicas(&s, src, trees);
  release_all(&s, trees);
  tdict_stream_destroy(s.c, h.s);
  tdict_release(src);
}

SIM_CASE(replicate_can_be_cancelled) {
  scoped_several s = several_open(4, TDICT_SIM_PEERS_ALL);
  for (int64_t rows = 16; rows <= 1600; rows *= 100) {
    scoped_tree src = rows_tree(rows, NULL), out = NULL;
    td_ok(tdict_sim_hold(s.c, err));
    scoped_future f = start(&s, src, NULL, NULL);
    check_pending(f);
    tdict_future_cancel(f);
    td_ok(tdict_sim_resume(s.c, err));
    td_fails(TDICT_ECANCELLED, "", tdict_future_wait(f, &out, err));
    assert_int_equal(tdict_future_state(f), TDICT_FUTURE_CANCELLED);
    assert_null(out);
    assert_non_null(tdict_tensor_data(td_leaf(src, "obs.pixels"))); /* no transfer reads it any more */
  }
}
/* Cancels a large replication at its start. At most half of its copies may run. */
SIM_CASE(replicate_cancels_all_parts) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *src = rows_tree(4000, s.at[0].pinned), *trees[MOST_DEVICES]; /* four rounds */
  const int64_t before = driver_counts(&s).num_finished;
  finish_all(&s, start(&s, src, NULL, NULL), trees);
  release_all(&s, trees);
  const int64_t whole = driver_counts(&s).num_finished - before;
  td_ok(tdict_sim_hold(s.c, err));
  tdict_future *f = start(&s, src, NULL, NULL);
  check_pending(f);
  tdict_future_cancel(f);
  td_ok(tdict_sim_resume(s.c, err));
  td_fails(TDICT_ECANCELLED, "", tdict_future_wait(f, NULL, err));
  tdict_future_release(f);
  assert_true(driver_counts(&s).num_finished - before - whole <= whole / 2);
  tdict_release(src);
}
/* Releases the future and the source before the copies run. */
SIM_CASE(replicate_without_a_future_ends_all_the_same) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *src = rows_tree(1600, NULL);
  td_ok(tdict_sim_hold(s.c, err));
  tdict_future_release(start(&s, src, NULL, NULL));
  tdict_release(src);
  td_ok(tdict_sim_resume(s.c, err));
}

/* A replication whose copies are held. Its results exist already. */
typedef struct held {
  several s;
  tdict_tree *src, *all, *second; /* `second` is borrowed from `all` */
  tdict_stream stream;
  tdict_future *f;
} held;
static held hold_small(void) {
  held h = {.s = several_open(2, TDICT_SIM_PEERS_ALL), .src = rows_tree(16, NULL)};
  td_ok(tdict_stream_create(h.s.c, h.s.devices[1], &h.stream, err));
  td_ok(tdict_sim_hold(h.s.c, err));
  h.f = start(&h.s, h.src, NULL, NULL);
  td_ok(tdict_future_wait_on_stream(h.f, h.stream, &h.all, err));
  td_ok(tdict_get_tree(h.all, "1", &h.second, err));
  return h;
}
static void held_close(held *h) {
  td_release(h->f, h->all, h->src);
  tdict_stream_destroy(h->s.c, h->stream);
  several_close(&h->s);
}
#define scoped_held TD_SCOPED(held_close, held)
SIM_CASE(replicate_small_trees_before_later_transfers) {
  scoped_held h = hold_small();
  scoped_tree back = NULL;
  td_rest();
  const int64_t queued = driver_counts(&h.s).num_pending;
  scoped_future later = td_made(future, tdict_to_device_async(h.s.c, h.second, tdict_cpu(), NULL, &made, err));
  td_rest();
  assert_int_equal(driver_counts(&h.s).num_pending, queued); /* the later transfer waits, and has queued nothing */
  td_ok(tdict_sim_resume(h.s.c, err));
  td_ok(tdict_future_wait(later, &back, err));
  check_tree(&h.s.at[1], h.src, back);
}
SIM_CASE(replicate_small_trees_lose_all_results) {
  scoped_held h = hold_small();
  tdict_future_cancel(h.f);
  td_ok(tdict_sim_resume(h.s.c, err));
  td_fails(TDICT_ECANCELLED, "", tdict_future_wait(h.f, NULL, err));
  assert_null(tdict_tensor_data(td_leaf(h.all, "0.obs.pixels")));
  assert_null(tdict_tensor_data(td_leaf(h.all, "1.obs.pixels")));
}
