/* Tests device memory and streams: the program's own allocators, memory that is freed while a stream still reads it,
 * and conversions, fills and copies within a device.
 *
 * Each thread has its own trees. All share the devices. At the end, context and driver must report equal counts. */
#include <pthread.h>
#include <stdatomic.h>

#include "tdict/convert.h"
#include "tdict/memory.h"
#include "tdict/write.h"

#include "dst/workloads/model.h"
#include "support/run.h"

enum { NUM_PLAYERS = 3, NUM_ACTIONS = 4, ROWS = 3, MOST_BLOCKS = 4, NUM_DEVICES = 2 };

typedef struct stage {
  model_world world;
  int64_t width;
  _Atomic(int64_t) next_generation;
} stage;

static model_rows rows_of(stage *s) {
  return model_rows_of(atomic_fetch_add(&s->next_generation, 1), 0, ROWS, s->width);
}
static tdict_device roll_device(void) { return tdict_sim((int32_t)dst_roll(NUM_DEVICES)); }
static tdict_transfer_options roll_options(void) {
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = (int32_t)dst_roll(3) - 1);
  o.mode = dst_roll(4) == 0 ? (int32_t)(1 + dst_roll(2)) : TDICT_MODE_AUTO; /* 1, 2: pageable leaves are not staged */
  return o;
}
/* Makes a tree on a device. Returns NULL after an injected fault. */
static tdict_tree *send(stage *s, const model_rows *rows, tdict_device device) {
  const tdict_transfer_options o = roll_options();
  tdict_tree *td = model_tree(rows), *there = NULL;
  if (td) (void)model_ok(tdict_to_device(s->world.context, td, device, &o, &there, model_error()));
  tdict_release(td);
  return there;
}
/* Copies a tree to host memory. No faults are injected. */
static tdict_tree *fetch(stage *s, const tdict_tree *td) {
  tdict_tree *back = NULL;
  model_calm(true);
  model_true(tdict_to_device(s->world.context, td, tdict_cpu(), NULL, &back, NULL) == TDICT_OK);
  model_calm(false);
  return back;
}

/* Checks that each element of the leaf n.m.d of a tree on a device is `value`. */
static void check_filled(stage *s, const tdict_tree *tree, int32_t value) {
  scoped_tree back = fetch(s, tree);
  const int32_t *numbers = tdict_const_data(back, "n.m.d");
  for (int64_t i = 0; i < ROWS * s->width; i++) model_true(numbers[i] == value);
}

/* ---- an allocator of the program ---- */

typedef struct allocator {
  stage *stage;
  tdict_device device;
  pthread_mutex_t lock; /* guards: all fields below */
  tdict_tensor *blocks[MOST_BLOCKS];
  void *addresses[MOST_BLOCKS];
  size_t live_bytes;
  int num_calls;
} allocator;
static void *allocate(void *user, size_t bytes) {
  allocator *a = user;
  const int64_t size = (int64_t)bytes;
  tdict_tensor *block = NULL;
  if (!model_ok(tdict_tensor_empty(TDICT_U8, 1, &size, tdict_device_memory(a->stage->world.context, a->device), &block,
                                   model_error())))
    return NULL;
  int i = 0;
  void *address = tdict_tensor_data(block);
  pthread_mutex_lock(&a->lock);
  while (i < MOST_BLOCKS && a->blocks[i]) i++;
  model_true(i < MOST_BLOCKS && address);
  a->blocks[i] = block;
  a->addresses[i] = address;
  a->live_bytes += bytes;
  a->num_calls++;
  pthread_mutex_unlock(&a->lock);
  return address;
}
static void release(void *user, void *data, size_t bytes) {
  allocator *a = user;
  int i = 0;
  pthread_mutex_lock(&a->lock);
  while (i < MOST_BLOCKS && (!a->blocks[i] || a->addresses[i] != data)) i++;
  model_true(i < MOST_BLOCKS && tdict_tensor_bytes(a->blocks[i]) == bytes);
  scoped_tensor block = a->blocks[i];
  a->blocks[i] = NULL;
  a->live_bytes -= bytes;
  pthread_mutex_unlock(&a->lock);
}

static void send_into(allocator *a, tdict_memory *memory) {
  stage *s = a->stage;
  const bool to_host = a->device.type == TDICT_DEVICE_CPU;
  const model_rows rows = rows_of(s);
  tdict_transfer_options o = roll_options();
  model_look look = model_device_look(a->device);
  tdict_memory_counts counts;
  scoped_tree td = to_host ? send(s, &rows, tdict_sim(0)) : model_tree(&rows), got = NULL;
  o.memory = memory;
  if (td && model_ok(tdict_to_device(s->world.context, td, a->device, &o, &got, model_error()))) {
    if (to_host)
      model_check(got, &rows, &look);
    else
      model_check_device(&s->world, got, &rows, &look);
    tdict_memory_get_counts(memory, &counts);
    model_true(counts.live_bytes == a->live_bytes && counts.peak_bytes >= a->live_bytes && a->live_bytes > 0);
    model_true(counts.num_allocations <= a->num_calls);
    if (!to_host && model_ok(tdict_fill(got, NULL, 0, NULL, model_error()))) check_filled(s, got, 0);
  }
}
static void use_allocator(stage *s) {
  allocator a = {.stage = s, .device = dst_roll(2) ? tdict_cpu() : roll_device()};
  const tdict_allocator options = {
      .struct_size = sizeof options, .device = a.device, .allocate = allocate, .release = release, .user = &a};
  tdict_memory *memory = NULL;
  pthread_mutex_init(&a.lock, NULL);
  if (model_ok(tdict_memory_create(s->world.context, &options, &memory, model_error()))) {
    model_true(tdict_device_equal(tdict_memory_device(memory), a.device));
    send_into(&a, memory);
  }
  tdict_memory_release(memory);
  model_true(a.live_bytes == 0);
  pthread_mutex_destroy(&a.lock);
}

/* ---- work on a device ---- */

/* Returns element `i` of a tensor as a double. */
static double number_at(const tdict_tensor *t, int64_t i) {
  const void *data = tdict_tensor_const_data(t);
  switch (tdict_tensor_dtype(t)) {
  case TDICT_I64:
    return (double)((const int64_t *)data)[i];
  case TDICT_F32:
    return (double)((const float *)data)[i];
  case TDICT_I32:
    return ((const int32_t *)data)[i];
  case TDICT_F64:
    return ((const double *)data)[i];
  default:
    return ((const uint8_t *)data)[i];
  }
}
/* Checks that a tree converted to doubles has the elements of the model. */
static void check_doubles(stage *s, const tdict_tree *wide, const model_rows *rows) {
  static const char *const paths[] = {"a", "n.b", "n.c", "n.m.d", "e", "f"};
  model_calm(true);
  tdict_tree *back = fetch(s, wide), *wanted = model_block(rows, NULL);
  model_true(tdict_num_leaves(back) == MODEL_NUM_LEAVES);
  for (int k = 0; k < MODEL_NUM_LEAVES; k++) {
    tdict_tensor *t = NULL, *source = NULL;
    model_true(tdict_get(back, paths[k], &t, NULL) == TDICT_OK &&
               tdict_get(wanted, paths[k], &source, NULL) == TDICT_OK);
    model_true(tdict_tensor_dtype(t) == TDICT_F64 && tdict_tensor_numel(t) == tdict_tensor_numel(source));
    for (int64_t i = 0; i < tdict_tensor_numel(t); i++)
      if (number_at(t, i) != number_at(source, i)) dst_fail("element %lld of '%s' differs", (long long)i, paths[k]);
  }
  td_release(wanted, back);
  model_calm(false);
}
static void convert(stage *s) {
  const model_rows rows = rows_of(s);
  const tdict_device device = roll_device();
  tdict_run o = tdict_run_default();
  tdict_stream stream;
  tdict_tree *there = send(s, &rows, device), *wide = NULL;
  const bool on_stream = dst_roll(2) && model_ok(tdict_stream_create(s->world.context, device, &stream, model_error()));
  if (on_stream) o.stream = stream;
  if (there && model_ok(tdict_to_dtype(there, TDICT_F64, NULL, &o, &wide, model_error()))) {
    if (on_stream && dst_roll(2)) {
      tdict_release(there); /* the queued work retains the bytes */
      there = NULL;
    }
    if (on_stream) model_synchronize(&s->world, stream);
    check_doubles(s, wide, &rows);
  }
  td_release(wide, there);
  if (on_stream) tdict_stream_destroy(s->world.context, stream);
}

/* Copies a tree into another tree on the device, and tensors between host and device. */
static void copy(stage *s) {
  const model_rows rows = rows_of(s), old = rows_of(s), third = rows_of(s);
  const tdict_device device = roll_device();
  const model_look on_device = model_device_look(device), plain = model_plain_look();
  scoped_tree from = send(s, &rows, device), to = send(s, &old, device), host = model_tree(&third);
  tdict_stream stream;
  bool is_ok = from && to && host;
  if (is_ok && dst_roll(2) && model_ok(tdict_stream_create(s->world.context, device, &stream, model_error()))) {
    is_ok = model_ok(tdict_copy(to, from, TD_ON(stream), model_error()));
    model_synchronize(&s->world, stream);
    tdict_stream_destroy(s->world.context, stream);
  } else if (is_ok) {
    is_ok = model_ok(tdict_copy(to, from, NULL, model_error()));
  }
  if (is_ok) model_check_device(&s->world, to, &rows, &on_device);
  if (is_ok && model_ok(tdict_copy(from, host, NULL, model_error())))
    model_check_device(&s->world, from, &third, &on_device);
  if (is_ok && model_ok(tdict_copy(host, to, NULL, model_error()))) model_check(host, &rows, &plain);
  if (is_ok && model_ok(tdict_fill(to, "n.m.d", 5, NULL, model_error()))) check_filled(s, to, 5);
}

/* Releases a tree while a stream reads it. No other tree may reuse the memory before the stream has read it. */
static void read_released(stage *s) {
  const model_rows rows = rows_of(s), next = rows_of(s);
  const tdict_device device = roll_device();
  const model_look look = model_device_look(device);
  scoped_tree there = send(s, &rows, device), other = NULL;
  tdict_stream stream;
  model_reader reader;
  if (there && model_ok(tdict_stream_create(s->world.context, device, &stream, model_error()))) {
    const bool is_recorded =
        model_read_on(&reader, there, stream, &rows) && model_ok(tdict_record_stream(there, stream, model_error()));
    if (is_recorded) {
      tdict_release(there);
      there = NULL;
      other = send(s, &next, device);
    }
    if (other) model_check_device(&s->world, other, &next, &look);
    model_synchronize(&s->world, stream);
    tdict_stream_destroy(s->world.context, stream);
  }
}

/* Calls functions with a device that the context does not have. */
static void ask_for_absent(stage *s) {
  const int64_t size = 16;
  const tdict_device absent = tdict_sim(NUM_DEVICES + (int32_t)dst_roll(3));
  tdict_tensor *t = NULL;
  tdict_device_counts counts;
  tdict_stream stream;
  const uint32_t allowed = 1u << TDICT_ENODEVICE;
  model_true(!model_may(allowed, tdict_tensor_empty(TDICT_U8, 1, &size, tdict_device_memory(s->world.context, absent),
                                                    &t, model_error())));
  model_true(!model_may(allowed, tdict_stream_create(s->world.context, absent, &stream, model_error())));
  model_true(!model_may(allowed, tdict_context_get_counts(s->world.context, absent, &counts, model_error())));
  model_true(tdict_device_equal(tdict_context_device(s->world.context, NULL), tdict_sim(0)));
  model_true(tdict_device_memory(s->world.context, tdict_cpu()) != NULL);
}

static void play(int number, void *data) {
  stage *s = data;
  (void)number;
  for (int i = 0; i < NUM_ACTIONS; i++) {
    const uint64_t kind = dst_roll(9);
    if (kind < 3)
      use_allocator(s);
    else if (kind < 5)
      convert(s);
    else if (kind < 6)
      copy(s);
    else if (kind < 8)
      read_released(s);
    else
      ask_for_absent(s);
    if (dst_roll(6) == 0) tdict_context_trim(s->world.context, dst_roll(2) ? tdict_cpu() : roll_device(), 0);
  }
}

/* Checks that the context and the driver have the same counts after all work. */
static void check_counts(stage *s) {
  int64_t num_streams = 0, num_events = 0;
  tdict_device_counts counts = {0};
  tdict_driver_sim_count driver = {0};
  model_calm(true);
  for (int i = 0; i < NUM_DEVICES; i++) { /* opens each device that no thread has used */
    model_true(tdict_context_get_counts(s->world.context, tdict_sim(i), &counts, NULL) == TDICT_OK);
    model_true(counts.device_bytes == 0);
  }
  for (int i = 0; i < NUM_DEVICES; i++) {
    tdict_driver_sim_counts(s->world.driver->inner, i, &driver);
    num_streams += driver.num_streams;
    num_events += driver.num_events;
  }
  model_calm(false);
  /* if a destroy call fails because of an injected fault, the context still counts what the driver has destroyed */
  const bool may_differ = model_was_unlucky();
  model_true(may_differ ? counts.pinned_bytes >= driver.pinned_bytes : counts.pinned_bytes == driver.pinned_bytes);
  model_true(counts.peak_pinned_bytes >= counts.pinned_bytes);
  model_true(may_differ ? counts.num_streams >= num_streams : counts.num_streams == num_streams);
  model_true(may_differ ? counts.num_events >= num_events : counts.num_events == num_events);
}

void dst_workload(void) {
  stage s = {.width = dst_roll(2) ? 10 : 700};
  model_settings settings = model_settings_default();
  atomic_init(&s.next_generation, 1);
  settings.num_devices = NUM_DEVICES;
  settings.num_threads = (int)(1 + dst_roll(2));
  settings.latency_ns = dst_roll(2) ? 0 : 20000;
  settings.peers = (int32_t)dst_roll(3);
  (void)model_fields(s.width);
  model_begin();
  if (model_open(&s.world, &settings)) {
    model_run(NUM_PLAYERS, play, &s);
    model_next_transfer_works(&s.world);
    check_counts(&s);
    model_close(&s.world);
  }
  model_end();
}
