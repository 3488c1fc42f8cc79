/* Tests transfers to and from several devices, and promises.
 *
 * Each thread replicates or splits trees over up to four devices and joins the parts again, or moves a tree from one
 * device to another. A promise is the future of all parts. A thread waits for the promise, cancels it, lets a stream
 * wait for it, or releases it at once. The tree of each device is compared with its expected rows. */

#include "tdict/devices.h"
#include "dst/workloads/model.h"
#include "support/take.h"

enum { NUM_PLAYERS = 3, NUM_ACTIONS = 4, ROWS = 8, MOST_DEVICES = 4, NARROW = 30, WIDE = 3000, ROUNDS = 13000 };
static const uint32_t cancelled = 1u << TDICT_ECANCELLED;

typedef struct stage {
  model_world world;
  int num_devices;
  int64_t width;
} stage;

static model_rows rows_of(const stage *s, int64_t generation) { return model_rows_of(generation, 0, ROWS, s->width); }
static tdict_transfer_options roll_options(void) {
  tdict_transfer_options o =
      td_with(tdict_transfer_options, mode = (int32_t)dst_roll(4), num_threads = (int32_t)dst_roll(3) - 1);
  if (dst_roll(5) == 0) o.max_queued_bytes = 131072;
  return o;
}

/* The devices of a call, and the rows that each device must get. */
typedef struct parts {
  int count;
  tdict_device devices[MOST_DEVICES];
  int64_t sizes[MOST_DEVICES]; /* rows of each device */
  bool is_split, is_equal;     /* is_equal: the library chooses the sizes */
  bool is_pinned;              /* the last device is the host, and its tree must be pinned */
  tdict_spread spread;
} parts;

/* Fills in *p, which must not be copied, because the spread points into it. */
static void roll_parts(const stage *s, parts *p) {
  p->count = (int)(1 + dst_roll((uint64_t)s->num_devices));
  p->is_split = dst_roll(2);
  p->is_equal = dst_roll(2);
  const int first = (int)dst_roll((uint64_t)s->num_devices);
  int64_t left = ROWS;
  for (int i = 0; i < p->count; i++) {
    p->devices[i] = tdict_sim((first + i) % s->num_devices);
    p->sizes[i] = !p->is_split  ? ROWS
                  : p->is_equal ? ROWS / p->count + (i < ROWS % p->count)
                                : (int64_t)dst_roll((uint64_t)left + 1);
    if (p->is_split && i == p->count - 1) p->sizes[i] = left;
    left -= p->sizes[i];
  }
  const bool has_host = p->count > 1 && dst_roll(4) == 0;
  if (has_host) p->devices[p->count - 1] = tdict_cpu();
  p->is_pinned = has_host && dst_roll(2);
  p->spread = p->is_split ? tdict_spread_split(p->devices, (size_t)p->count, 0)
                          : tdict_spread_replicate(p->devices, (size_t)p->count);
  if (p->is_split && !p->is_equal) p->spread.counts = p->sizes;
}

static model_rows part_of(const parts *p, const model_rows *rows, int number) {
  int64_t first = 0;
  for (int i = 0; p->is_split && i < number; i++) first += p->sizes[i];
  return model_rows_slice(rows, first, p->sizes[number]);
}
static void check_part(stage *s, const parts *p, const model_rows *rows, int number, const tdict_tree *td) {
  const model_rows part = part_of(p, rows, number);
  model_look look = model_device_look(p->devices[number]);
  look.is_contiguous = false;
  look.is_pinned = p->devices[number].type == TDICT_DEVICE_CPU && p->is_pinned ? 1 : -1;
  if (p->devices[number].type == TDICT_DEVICE_CPU) look.has_device = tdict_get_device(td, NULL); /* may be the source */
  if (p->devices[number].type == TDICT_DEVICE_CPU)
    model_check(td, &part, &look);
  else
    model_check_device(&s->world, td, &part, &look);
}

/* Joins the parts and compares the whole tree. */
static void gather(stage *s, const parts *p, const model_rows *rows, const tdict_tree *const *trees) {
  tdict_gather_devices_options o = tdict_gather_devices_options_default();
  tdict_transfer_options transfer = roll_options();
  tdict_tree *joined = NULL;
  tdict_future *f = NULL;
  model_rows wanted = {.width = s->width};
  for (int i = 0; i < p->count; i++) {
    const model_rows part = part_of(p, rows, i);
    memcpy(wanted.stamps + wanted.count, part.stamps, (size_t)part.count * sizeof part.stamps[0]);
    wanted.count += part.count;
  }
  o.device = dst_roll(2) ? tdict_cpu() : tdict_sim((int32_t)dst_roll((uint64_t)s->num_devices));
  transfer.pinned_result = o.device.type == TDICT_DEVICE_CPU && dst_roll(2);
  o.transfer = &transfer;
  bool is_done;
  if (dst_roll(2)) {
    is_done = model_ok(td_gather_devices(s->world.context, trees, (size_t)p->count, &o, &joined, model_error()));
  } else {
    is_done = model_ok(tdict_gather_devices_async(s->world.context, trees, (size_t)p->count, &o, &f, model_error())) &&
              model_ok(tdict_future_wait(f, &joined, model_error()));
    tdict_future_release(f);
  }
  if (!is_done) return;
  model_look look = model_device_look(o.device);
  look.is_pinned = transfer.pinned_result ? 1 : o.device.type == TDICT_DEVICE_CPU ? 0 : -1;
  look.has_device = tdict_get_device(joined, NULL);
  if (o.device.type == TDICT_DEVICE_CPU)
    model_check(joined, &wanted, &look);
  else
    model_check_device(&s->world, joined, &wanted, &look);
  tdict_release(joined);
}

/* Spreads a tree with a blocking call, and joins the parts again. */
static void spread_and_gather(stage *s, int64_t generation) {
  const model_rows rows = rows_of(s, generation);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options o = roll_options();
  tdict_tree *td = model_tree(&rows), *trees[MOST_DEVICES] = {NULL};
  parts p;
  roll_parts(s, &p);
  o.stats = &stats;
  o.pinned_result = p.is_pinned;
  if (td && model_ok(td_to_devices(s->world.context, td, &p.spread, &o, trees, model_error()))) {
    for (int i = 0; i < p.count; i++) check_part(s, &p, &rows, i, trees[i]);
    gather(s, &p, &rows, (const tdict_tree *const *)trees);
  }
  for (int i = 0; i < p.count; i++) tdict_release(trees[i]);
  tdict_release(td);
}

static void check_promise(stage *s, const parts *p, const model_rows *rows, const tdict_tree *all) {
  model_true(tdict_num_keys(all) == (size_t)p->count && tdict_batch_ndim(all) == 0);
  for (int i = p->count - 1; i >= 0; i--) { /* the last device gets its bytes last, so it is checked first */
    const char key[2] = {(char)('0' + i), 0};
    tdict_tree *part = NULL;
    model_true(tdict_get_tree(all, key, &part, NULL) == TDICT_OK);
    check_part(s, p, rows, i, part);
  }
}

static void wait_on_stream(stage *s, tdict_future *f, const parts *p, const model_rows *rows) {
  tdict_stream stream;
  tdict_tree *all = NULL;
  const tdict_device device = p->devices[0].type == TDICT_DEVICE_CPU ? tdict_sim(0) : p->devices[0];
  if (!model_ok(tdict_stream_create(s->world.context, device, &stream, model_error()))) return;
  if (model_ok(tdict_future_wait_on_stream(f, stream, &all, model_error()))) {
    /* Transfers that read the trees now wait for the promise. */
    if (!model_was_unlucky()) check_promise(s, p, rows, all);
    model_calm(true);
    const tdict_status status = tdict_stream_synchronize(s->world.context, stream, NULL);
    model_calm(false);
    model_true(status == TDICT_OK || model_was_unlucky());
    if (model_ok(tdict_future_wait(f, NULL, model_error()))) check_promise(s, p, rows, all);
    tdict_release(all);
  }
  tdict_stream_destroy(s->world.context, stream);
}

/* Starts a promise. Then waits for it, cancels it, lets a stream wait for it, or releases it at once. */
static void promise(stage *s, int64_t generation) {
  const model_rows rows = rows_of(s, generation);
  tdict_transfer_options o = roll_options();
  tdict_tree *td = model_tree(&rows), *all = NULL;
  tdict_future *f = NULL;
  parts p;
  if (!td) return;
  roll_parts(s, &p);
  o.pinned_result = p.is_pinned;
  const bool has_started = model_ok(tdict_to_devices_async(s->world.context, td, &p.spread, &o, &f, model_error()));
  tdict_release(td); /* the transfers retain the bytes */
  if (!has_started) return;
  const uint64_t way = dst_roll(6); /* 0: cancel, 1: release at once, 2 to 4: wait on a stream, 5: wait */
  if (way >= 2 && way <= 4) wait_on_stream(s, f, &p, &rows);
  if (way == 0) tdict_future_cancel(f);
  if (way != 1 && model_may(way == 0 ? cancelled : 0, tdict_future_wait(f, &all, model_error()))) {
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    model_true(tdict_future_is_ready(f) && tdict_future_state(f) == TDICT_FUTURE_DONE);
    model_true(tdict_future_get_stats(f, &stats, NULL) == TDICT_OK);
    check_promise(s, &p, &rows, all);
    tdict_release(all);
  }
  tdict_future_release(f);
}

/* Moves a tree to the first device, and from there into a tree on the last device. */
static void go_around(stage *s, int64_t generation) {
  const model_rows rows = rows_of(s, generation), old = rows_of(s, generation + 1);
  const tdict_device first = tdict_sim(0), last = tdict_sim(s->num_devices - 1);
  const tdict_transfer_options o = roll_options();
  scoped_tree td = model_tree(&rows), other = model_tree(&old), here = NULL, there = NULL;
  model_look look = model_device_look(last);
  look.is_pinned = -1;
  if (td && other && model_ok(tdict_to_device(s->world.context, td, first, &o, &here, model_error())) &&
      model_ok(tdict_to_device(s->world.context, other, last, &o, &there, model_error())) &&
      model_ok(tdict_transfer_into(s->world.context, there, here, &o, model_error())))
    model_check_device(&s->world, there, &rows, &look);
  tdict_release(there);
  there = NULL;
  if (here && model_ok(tdict_to_device(s->world.context, here, last, &o, &there, model_error())))
    model_check_device(&s->world, there, &rows, &look);
}

static void play(int number, void *data) {
  for (int i = 0; i < NUM_ACTIONS; i++) {
    const int64_t generation = number * 20 + i * 2 + 1;
    const uint64_t action = dst_roll(5);
    if (action < 2)
      spread_and_gather(data, generation);
    else if (action < 4)
      promise(data, generation);
    else
      go_around(data, generation);
  }
}

void dst_workload(void) {
  stage s = {.num_devices = (int)(2 + dst_roll(MOST_DEVICES - 1)),
             .width = (int64_t[]){NARROW, WIDE, ROUNDS}[dst_roll(3)]};
  model_settings settings = td_with(model_settings, num_devices = s.num_devices, num_threads = (int)(1 + dst_roll(3)),
                                    peers = (int32_t)dst_roll(3), latency_ns = dst_roll(2) ? 0 : 30000);
  model_begin();
  if (model_open(&s.world, &settings)) {
    model_run(NUM_PLAYERS, play, &s);
    model_next_transfer_works(&s.world);
    model_close(&s.world);
  }
  model_end();
}
