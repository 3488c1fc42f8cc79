/* Tests tdict_load() and its variants: loads of random files to each device, loads into trees, selected keys, progress,
 * cancellation, memory. */
#include "raw_file.h"

#include <pthread.h>

#include "random_tree.h"

enum { STAGING = 256 << 10 };
static tdict_context *small_context(void) {
  tdict_context_options o = td_with(tdict_context_options, staging_bytes = STAGING);
  return td_context(&o);
}

/* The ways in which a file is loaded: modes and numbers of threads. */
enum { NUM_WAYS = 4 * 4 };
static tdict_transfer_options way_at(int i) {
  return td_with(tdict_transfer_options, mode = i % 4, num_threads = i / 4 - 1);
}

static tdict_tree *load_blocking(tdict_context *c, const char *path, tdict_device device, tdict_load_options o) {
  return td_made(tree, tdict_load(c, path, device, &o, &made, err));
}
static tdict_tree *load_later(tdict_context *c, const char *path, tdict_device device, tdict_load_options o) {
  tdict_tree *tree = NULL;
  scoped_future future = td_made(future, tdict_load_async(c, path, device, &o, &made, err));
  td_ok(tdict_future_wait(future, &tree, err));
  return tree;
}

DEVICE_CASE(load_reads_random_files) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {7};
  const int descriptors = td_count_descriptors();
  for (int round = 0; round < 3 * NUM_WAYS; round++) {
    scoped_raw_file f = raw_file_create(&d, in(&home, "x"), -1);
    tdict_transfer_options way = way_at(round % NUM_WAYS);
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    tdict_load_options o = td_with(tdict_load_options, transfer = &way);
    for (int side = 0; side < 2; side++) {
      const tdict_device device = side ? tdict_cpu() : td_device();
      scoped_tree tree = load_later(c, f->path, device, o);
      raw_check(c, f, tree, device, 0, -1);
      tdict_release(tree);
      way.stats = &stats;
      tree = load_blocking(c, f->path, device, o);
      way.stats = NULL;
      raw_check(c, f, tree, device, 0, -1);
      assert_int_equal(stats.total_bytes, f->data_bytes);
      assert_int_equal(stats.num_leaves, f->count);
      assert_true(stats.peak_staging_bytes <= STAGING);
      assert_int_equal(device.type == TDICT_DEVICE_CPU ? stats.host_bytes : stats.staged_bytes, f->data_bytes);
    }
  }
  assert_true(td_count_descriptors() <= descriptors + 1); /* CUDA may keep a file open */
}

GPU_CASE(load_takes_the_options_of_transfers) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {9};
  scoped_raw_file f = raw_file_create(&d, in(&home, "x"), -1);
  tdict_transfer_options transfer = tdict_transfer_options_default();
  tdict_tree *tree;
  tdict_load_options o = td_with(tdict_load_options, transfer = &transfer);
  transfer.pinned_result = true;
  tree = load_blocking(c, f->path, tdict_cpu(), o);
  assert_true(tdict_is_pinned(tree));
  raw_check(c, f, tree, tdict_cpu(), 0, -1);
  tdict_release(tree);
  transfer.pinned_result = false;
  transfer.memory = tdict_pinned_memory(c);
  tree = load_later(c, f->path, tdict_cpu(), o);
  assert_true(tdict_is_pinned(tree));
  td_release(tree);
  td_fails(TDICT_EWRONGDEVICE, "load: options.memory", tdict_load(c, f->path, td_device(), &o, &tree, err));
  assert_null(tree);
}

/* For trees with every kind of leaf, a load returns the same tree as tdict_open(), even from shards. */
DEVICE_CASE(load_returns_what_open_maps) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  const int descriptors = td_count_descriptors();
  for (int round = 0; round < 40; round++) {
    dice d = {(uint64_t)round + 1};
    const int64_t batch[] = {2 + (int64_t)roll(&d, 3), 2};
    tdict_tree *tree = random_tree(&d, (int)roll(&d, 3), batch, 0), *mapped = NULL, *there, *back = NULL;
    const char *path = in(&home, round % 2 ? "x.safetensors.index.json" : "x");
    td_ok(tdict_save(NULL, path, tree, td_options(tdict_save_options, max_shard_bytes = round % 2 ? 40 : 0), err));
    td_ok(tdict_open(path, NULL, &mapped, err));
    there = load_blocking(c, path, td_device(), tdict_load_options_default());
    td_ok(tdict_to_device(c, there, tdict_cpu(), NULL, &back, err));
    same_trees(back, mapped);
    same_trees(back, tree);
    td_release(back, there, mapped, tree);
    folder_empty(&home);
  }
  assert_true(td_count_descriptors() <= descriptors + 1);
}

DEVICE_CASE(load_selects_keys) {
  static const char *const keys[] = {"a.b"};
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {3};
  scoped_raw_file f = NULL;
  do f = raw_file_create(&d, in(&home, "x"), -1);
  while (f->count < 9);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_load_options o = tdict_load_options_default();
  size_t bytes = 0;
  tdict_open_options open = td_with(tdict_open_options, keys = keys, num_keys = 1, strip_prefix = "a");
  o.open = &open;
  o.transfer = td_options(tdict_transfer_options, stats = &stats);
  tdict_tree *tree = load_blocking(c, f->path, td_device(), o);
  for (int i = 2; i < f->count; i += 3) {
    tdict_tensor *t = td_made(tensor, tdict_get(tree, f->tensors[i].name + 2, &made, err));
    raw_check_tensor(c, f, &f->tensors[i], t, all_rows);
    bytes += f->tensors[i].bytes;
  }
  assert_int_equal(tdict_num_leaves(tree), f->count / 3);
  assert_int_equal(stats.total_bytes, bytes);
  td_release(tree);
  open.strip_prefix = "no";
  td_fails(TDICT_ENOTFOUND, "load: strip_prefix 'no' matches no key; keys: a, ",
           tdict_load(c, f->path, td_device(), &o, &tree, err));
  open.strip_prefix = "a.";
  td_fails(TDICT_EINVAL, "load: strip_prefix 'a.' ends with a dot: write 'a'",
           tdict_load(c, f->path, td_device(), &o, &tree, err));
  open.keys = NULL;
  td_fails(TDICT_EINVAL, "load: num_keys is 1", tdict_load(c, f->path, td_device(), &o, &tree, err));
}

DEVICE_CASE(load_goes_into_trees) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {11};
  scoped_raw_file first = raw_file_create(&d, in(&home, "x"), -1), second = calloc(1, sizeof *second);
  *second = *first;
  second->bytes = malloc(first->size);
  memcpy(second->bytes, first->bytes, first->size);
  td_fill_random(second->bytes + first->size - first->data_bytes, first->data_bytes, 99);
  snprintf(second->path, sizeof second->path, "%s", in(&home, "y"));
  write_bytes(second->path, second->bytes, second->size);
  for (int i = 0; i < NUM_WAYS; i++) {
    tdict_transfer_options way = way_at(i);
    tdict_load_options o = td_with(tdict_load_options, transfer = &way);
    for (int side = 0; side < 2; side++) {
      const tdict_device device = side ? tdict_cpu() : td_device();
      scoped_tree tree = load_blocking(c, first->path, device, tdict_load_options_default()), same = NULL;
      tdict_tensor *t = NULL;
      tdict_future *future = NULL;
      td_ok(tdict_get(tree, first->tensors[0].name, &t, err));
      td_ok(td_load_into(c, tree, second->path, &o, err));
      raw_check(c, second, tree, device, 0, -1);
      td_ok(tdict_load_into_async(c, tree, first->path, &o, &future, err));
      td_ok(tdict_future_wait(future, &same, err));
      assert_ptr_equal(same, tree);
      td_release(same, future);
      raw_check(c, first, tree, device, 0, -1);
    }
  }
}

/* If a key, shape or dtype of the file differs from the tree, a load into the tree fails and writes nothing. */
DEVICE_CASE(load_into_checks_the_tree) {
  static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}";
  static const char *const others[] = {"\"b\":{\"dtype\":\"U8\",\"shape\":[3]", "\"b\":{\"dtype\":\"I8\",\"shape\":[2]",
                                       "\"c\":{\"dtype\":\"U8\",\"shape\":[2]"};
  static const tdict_status wanted[] = {TDICT_ESHAPE, TDICT_EDTYPE, TDICT_ENOTFOUND};
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  write_safetensors(in(&home, "x"), header, sizeof header - 1, 5);
  scoped_tree tree = load_blocking(c, in(&home, "x"), td_device(), tdict_load_options_default()), back = NULL;
  for (int i = 0; i < 3; i++) {
    char other[256];
    const int last = i == 0 ? 6 : 5;
    const int length = snprintf(other, sizeof other,
                                "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},%s,"
                                "\"data_offsets\":[3,%d]}}",
                                others[i], last);
    write_safetensors(in(&home, "y"), other, (size_t)length, (size_t)last);
    td_fails_at(wanted[i], "", i < 2 ? "b" : "c", td_load_into(c, tree, in(&home, "y"), NULL, err));
  }
  td_ok(tdict_to_device(c, tree, tdict_cpu(), NULL, &back, err));
  assert_memory_equal(tdict_const_data(back, "a"), "\0\1\2", 3);
  assert_memory_equal(tdict_const_data(back, "b"), "\3\4", 2);
}

/* What the progress function has recorded. */
typedef struct watch {
  pthread_mutex_t lock; /* guards all fields; the function only tries to lock, which detects concurrent calls */
  int calls, overlaps, steps_back;
  uint64_t done, total;
  int stop_at; /* number of the call that returns false, counted from 1; 0: none */
  int calls_after_stop;
} watch;
static bool see_progress(void *user, uint64_t done, uint64_t total) {
  watch *w = user;
  if (pthread_mutex_trylock(&w->lock) != 0) {
    w->overlaps++;
    return true;
  }
  w->calls++;
  if (w->calls > 1 && done <= w->done) w->steps_back++;
  if (w->stop_at && w->calls > w->stop_at) w->calls_after_stop++;
  w->done = done;
  w->total = total;
  const bool goes_on = w->calls != w->stop_at;
  pthread_mutex_unlock(&w->lock);
  return goes_on;
}

DEVICE_CASE(load_reports_progress) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {5};
  for (int round = 0; round < 2 * NUM_WAYS; round++) {
    raw_file *f = raw_file_create(&d, in(&home, "x"), -1);
    tdict_transfer_options way = way_at(round % NUM_WAYS);
    watch w = {.lock = PTHREAD_MUTEX_INITIALIZER};
    tdict_load_options o = td_with(tdict_load_options, transfer = &way, progress = see_progress, user = &w);
    tdict_tree *tree =
        (round % 2 ? load_later : load_blocking)(c, f->path, round % 4 < 2 ? td_device() : tdict_cpu(), o);
    assert_int_equal(w.done, f->data_bytes);
    assert_int_equal(w.total, f->data_bytes);
    assert_int_equal(w.overlaps + w.steps_back, 0);
    assert_true(w.calls >= 1 && w.calls <= 1100);
    if (f->data_bytes > 4 * STAGING) assert_true(w.calls > 4);
    tdict_release(tree);
    raw_file_free(f);
  }
}

/* Waits in the first calls, so other threads continue to read. They must not call the function in the meantime. */
static bool see_slowly(void *user, uint64_t done, uint64_t total) {
  watch *w = user;
  if (pthread_mutex_trylock(&w->lock) != 0) {
    w->overlaps++;
    return true;
  }
  if (done && w->calls++ < 5) td_rest();
  w->done = done;
  w->total = total;
  pthread_mutex_unlock(&w->lock);
  return true;
}
DEVICE_CASE(load_makes_one_progress_call_at_a_time) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {6};
  scoped_raw_file f = raw_file_create_large(&d, in(&home, "x"), STAGING);
  for (int side = 0; side < 2; side++) {
    tdict_load_options o = tdict_load_options_default();
    watch w = {.lock = PTHREAD_MUTEX_INITIALIZER};
    o.transfer = td_options(tdict_transfer_options, num_threads = 4);
    o.progress = see_slowly;
    o.user = &w;
    scoped_tree tree = load_later(c, f->path, side ? tdict_cpu() : td_device(), o);
    assert_int_equal(w.overlaps, 0);
    assert_true(w.calls >= 1 && w.done == f->data_bytes && w.total == f->data_bytes);
  }
}

DEVICE_CASE(load_stops_if_progress_returns_false) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {6};
  scoped_raw_file f = raw_file_create_large(&d, in(&home, "x"), STAGING);
  const int descriptors = td_count_descriptors();
  for (int i = 0; i < NUM_WAYS; i += 3) {
    tdict_transfer_options way = way_at(i);
    watch w = {.lock = PTHREAD_MUTEX_INITIALIZER};
    bool stopped = true;
    tdict_load_options o = td_with(tdict_load_options, transfer = &way, progress = see_progress, user = &w);
    for (int at = 1; stopped; at++) {
      tdict_tree *tree = NULL;
      tdict_error error;
      w = (watch){.lock = PTHREAD_MUTEX_INITIALIZER, .stop_at = at};
      const tdict_status status = tdict_load(c, f->path, td_device(), &o, &tree, &error);
      stopped = w.calls >= at;
      assert_int_equal(status, stopped ? TDICT_ECANCELLED : TDICT_OK);
      assert_true(!tree == stopped);
      if (stopped) assert_non_null(strstr(error.message, "load: the function `progress` returned false"));
      assert_int_equal(w.calls_after_stop, 0);
      tdict_release(tree);
      assert_true(at < 2000);
      if (at == 3) at = w.calls > 20 ? w.calls - 2 : at; /* also test the last calls */
    }
  }
  watch w = {.lock = PTHREAD_MUTEX_INITIALIZER, .stop_at = 2};
  tdict_load_options o = td_with(tdict_load_options, progress = see_progress, user = &w);
  tdict_future *future = td_made(future, tdict_load_async(c, f->path, td_device(), &o, &made, err));
  td_fails(TDICT_ECANCELLED, "load_async: the function `progress`", tdict_future_wait(future, NULL, err));
  assert_int_equal(tdict_future_state(future), TDICT_FUTURE_CANCELLED);
  tdict_future_release(future);
  assert_true(td_count_descriptors() <= descriptors + 1);
}

/* The load is cancelled while the ring is full of copies that the held device does not finish. */
SIM_CASE(load_is_cancelled_while_copies_run) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {6};
  scoped_raw_file f = raw_file_create_large(&d, in(&home, "x"), 2 * STAGING);
  const int descriptors = td_count_descriptors();
  for (int steps = 0; steps < 6; steps++) {
    scoped_future future = NULL;
    watch w = {.lock = PTHREAD_MUTEX_INITIALIZER};
    tdict_load_options o = td_with(tdict_load_options, progress = see_progress, user = &w);
    td_ok(tdict_sim_hold(c, err));
    td_ok(tdict_load_async(c, f->path, td_device(), &o, &future, err));
    td_rest();
    td_ok(tdict_sim_step(c, steps, err));
    td_rest();
    assert_int_equal(tdict_future_state(future), TDICT_FUTURE_PENDING);
    assert_int_equal(td_count_descriptors(), descriptors + 1);
    tdict_future_cancel(future);
    td_ok(tdict_sim_resume(c, err));
    td_fails(TDICT_ECANCELLED, "cancelled", tdict_future_wait(future, NULL, err));
    assert_true(w.done < w.total);
  }
  td_rest();
  assert_int_equal(td_count_descriptors(), descriptors);
  scoped_tree tree = load_blocking(c, f->path, td_device(), tdict_load_options_default());
  raw_check(c, f, tree, td_device(), 0, -1);
}
