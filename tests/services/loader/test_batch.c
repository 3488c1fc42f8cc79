/* Tests how a batch is made: rows, stacked and padded samples, a collate function, objects, and errors. */
#include <sys/wait.h>

#include "numbers.h"
#include "support/things.h"

/* How often the library joined a batch, joined one in memory that is not pinned, and pinned a tree by copying it. */
static atomic_int joined, joined_unpinned, pinned_again;

tdict_status __real_tdict_stack(const tdict_tree *const *trees, size_t count, const tdict_join_options *options,
                                const tdict_run *run, tdict_tree **out, tdict_error *err);
tdict_status __wrap_tdict_stack(const tdict_tree *const *trees, size_t count, const tdict_join_options *options,
                                const tdict_run *run, tdict_tree **out, tdict_error *err);
tdict_status __real_tdict_pad_sequence(const tdict_tree *const *trees, size_t count, const tdict_pad_options *options,
                                       const tdict_run *run, tdict_tree **out, tdict_error *err);
tdict_status __wrap_tdict_pad_sequence(const tdict_tree *const *trees, size_t count, const tdict_pad_options *options,
                                       const tdict_run *run, tdict_tree **out, tdict_error *err);
tdict_status __real_tdict_pack_sequence(const tdict_tree *const *trees, size_t count, const tdict_pack_options *options,
                                        const tdict_run *run, tdict_tree **out, tdict_error *err);
tdict_status __wrap_tdict_pack_sequence(const tdict_tree *const *trees, size_t count, const tdict_pack_options *options,
                                        const tdict_run *run, tdict_tree **out, tdict_error *err);
tdict_status __real_tdict_pin_memory(tdict_context *c, const tdict_tree *td, const tdict_pin_options *o,
                                     tdict_tree **out, tdict_error *err);
tdict_status __wrap_tdict_pin_memory(tdict_context *c, const tdict_tree *td, const tdict_pin_options *o,
                                     tdict_tree **out, tdict_error *err);

static tdict_status count_joined(tdict_status status, tdict_tree *const *made) {
  atomic_fetch_add(&joined, 1);
  if (status == TDICT_OK && !tdict_is_pinned(*made)) atomic_fetch_add(&joined_unpinned, 1);
  return status;
}
tdict_status __wrap_tdict_stack(const tdict_tree *const *trees, size_t count, const tdict_join_options *options,
                                const tdict_run *run, tdict_tree **out, tdict_error *err) {
  return count_joined(__real_tdict_stack(trees, count, options, run, out, err), out);
}
tdict_status __wrap_tdict_pad_sequence(const tdict_tree *const *trees, size_t count, const tdict_pad_options *options,
                                       const tdict_run *run, tdict_tree **out, tdict_error *err) {
  return count_joined(__real_tdict_pad_sequence(trees, count, options, run, out, err), out);
}
tdict_status __wrap_tdict_pack_sequence(const tdict_tree *const *trees, size_t count, const tdict_pack_options *options,
                                        const tdict_run *run, tdict_tree **out, tdict_error *err) {
  return count_joined(__real_tdict_pack_sequence(trees, count, options, run, out, err), out);
}
tdict_status __wrap_tdict_pin_memory(tdict_context *c, const tdict_tree *td, const tdict_pin_options *o,
                                     tdict_tree **out, tdict_error *err) {
  atomic_fetch_add(&pinned_again, 1);
  return __real_tdict_pin_memory(c, td, o, out, err);
}

DEVICE_CASE(loader_errors_in_place) {
  scoped_yard y = open_yard();
  for (int way = 0; way < 3; way++) {
    for (int workers = 0; workers < 5; workers += 2) {
      for (int go_on = 0; go_on < 2; go_on++) {
        numbers n = numbers_of(20);
        n.fail_at = 11;
        n.delay_us = 100;
        tdict_dataset_table d = way == 0 ? by_row(&n) : by_sample(&n);
        if (way == 2) {
          give_fields(&d);
          d.fetch_batch = numbers_fetch_batch;
        }
        tdict_loader_options o = td_with(tdict_loader_options, batch_size = 2, num_workers = workers,
                                         on_error = go_on ? TDICT_ON_ERROR_CONTINUE : TDICT_ON_ERROR_FAIL);
        scoped_loader l = open_loader(&y, &d, &o);
        int64_t ids[2];
        tdict_tree *batch = NULL;
        for (int i = 0; i < 10; i++) {
          if (i == 5) {
            td_fails(TDICT_EIO, "the disk is worn", tdict_loader_next(l, tdict_no_stream(), &batch, err));
            assert_non_null(strstr(td_last_error.message, way == 2 ? "batch 5 of numbers" : "sample 11 of numbers"));
            assert_int_equal(td_last_error.native, 5);
            if (!go_on) break;
            continue;
          }
          td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
          assert_int_equal(read_batch(&y, batch, ids, 2), 2);
          assert_int_equal(ids[0], 2 * i);
          tdict_release(batch);
        }
        if (go_on) {
          td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
          assert_null(batch);
        } else {
          td_fails(TDICT_EIO, "the disk is worn", tdict_loader_next(l, tdict_no_stream(), &batch, err));
          tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
          assert_int_equal(s.batch, 6);
          td_ok(tdict_loader_set_state(l, &s, err)); /* skips the failed batch */
          td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
          assert_int_equal(read_batch(&y, batch, ids, 2), 2);
          assert_int_equal(ids[0], 12);
          tdict_release(batch);
        }
        tdict_loader_stats stats = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
        assert_int_equal(stats.num_errors, 1);
      }
    }
  }
}

/* Sample i is a sequence of 1 + i % 4 numbers. */
static tdict_status ragged(void *user, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                           tdict_error *err) {
  int64_t length = 1 + index % 4;
  tdict_tree *td = NULL;
  tdict_tensor *t = NULL;
  (void)info;
  (void)user;
  tdict_status status = tdict_create(1, &length, &td, err);
  if (status == TDICT_OK) status = tdict_tensor_arange(TDICT_I32, (double)(100 * index), 1, length, &t, err);
  if (status == TDICT_OK) status = tdict_set(td, "words", t, err);
  tdict_tensor_release(t);
  *out = td;
  return status;
}

DEVICE_CASE(loader_pads_ragged_samples) {
  scoped_yard y = open_yard();
  tdict_dataset *d = td_made(dataset, tdict_dataset_from_callback(ragged, NULL, 6, &made, err));
  scoped_loader l = open_loader_on(&y, d, td_options(tdict_loader_options, batch_size = 3, pad = true, pad_value = -7));
  static const int32_t wanted[2][12] = {{0, -7, -7, 100, 101, -7, 200, 201, 202},
                                        {300, 301, 302, 303, 400, -7, -7, -7, 500, 501, -7, -7}};
  for (int i = 0; i < 2; i++) {
    scoped_tree batch = NULL;
    int32_t words[12];
    td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
    size_t bytes = read_leaf(&y, batch, "words", words, sizeof words);
    assert_int_equal(bytes, i ? 48 : 36);
    assert_memory_equal(words, wanted[i], bytes);
  }
}

/* Sample i has no batch dimension, 1 + i % 4 words and 5 letters. */
static tdict_status two_lengths(void *user, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                tdict_error *err) {
  tdict_tree *td = NULL;
  tdict_tensor *words = NULL, *letters = NULL;
  (void)info;
  (void)user;
  tdict_status status = tdict_create(0, NULL, &td, err);
  if (status == TDICT_OK) status = tdict_tensor_zeros(TDICT_I32, TDICT_SHAPE(1 + index % 4), NULL, &words, err);
  if (status == TDICT_OK) status = tdict_tensor_zeros(TDICT_U8, TDICT_SHAPE(index ? 5 : 0), NULL, &letters, err);
  if (status == TDICT_OK) status = tdict_set(td, "text.words", words, err);
  if (status == TDICT_OK) status = tdict_set(td, "letters", letters, err);
  tdict_tensor_release(words);
  tdict_tensor_release(letters);
  *out = td;
  return status;
}
static int64_t six(void *self) { return self ? 0 : 6; }
static int64_t one_token(void *self, int64_t index) { return self ? 0 : index >= 0; }

/* Without batch dimensions, the longest tensor gives the length of a sample, whatever `sample_length` counts. */
CASE(loader_measures_samples_without_batch_dimensions) {
  scoped_yard y = open_yard();
  tdict_dataset_table set =
      td_with(tdict_dataset_table, length = six, fetch_sample = two_lengths, sample_length = one_token);
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = 3, pad = true, max_tokens = 3);
  scoped_loader l = open_loader(&y, &set, &o);
  for (int i = 0; i < 2; i++) {
    tdict_release(td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err)));
    tdict_batch_info info = td_filled(tdict_batch_info, tdict_loader_get_batch_info(l, &made, err));
    assert_int_equal(info.num_tokens, i ? 15 : 11);
    assert_int_equal(info.max_seqlen, 5);
  }
}

/* Collates the ids of samples, and their negations, into an object. */
static tdict_status collate_thing(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples,
                                  size_t count, tdict_tree **out, tdict_error *err) {
  const int64_t length = (int64_t)count;
  tdict_tensor *parts[2] = {NULL, NULL};
  tdict_tree *td = NULL;
  (void)info; /* plain memory: the hook has something to pin */
  tdict_status status = tdict_create(0, NULL, &td, err);
  for (int p = 0; p < 2 && status == TDICT_OK; p++)
    status = tdict_tensor_empty(TDICT_I64, 1, &length, NULL, &parts[p], err);
  for (int64_t i = 0; i < length && status == TDICT_OK; i++) {
    int64_t id = *(const int64_t *)tdict_const_data(samples[i], "id");
    ((int64_t *)tdict_tensor_data(parts[0]))[i] = id;
    ((int64_t *)tdict_tensor_data(parts[1]))[i] = -id;
  }
  thing *made = status == TDICT_OK ? thing_create(parts[0], parts[1]) : NULL;
  if (status == TDICT_OK) status = made ? tdict_set_object(td, "batch", user, made, err) : TDICT_ENOMEM;
  if (status != TDICT_OK)
    tdict_release(td);
  else
    *out = td;
  return status;
}

static void check_thing(const yard *y, const tdict_tree *batch, const tdict_type *type, int64_t first, bool pinned) {
  void *self = NULL;
  td_ok(tdict_get_object(batch, "batch", type, &self, err));
  const thing *t = self;
  int64_t ids[2][3];
  const tdict_tensor *parts[2] = {t->a, t->b};
  for (int p = 0; p < 2; p++) {
    tdict_tensor_desc v = tdict_tensor_desc_default();
    assert_true(tdict_device_equal(tdict_tensor_device(parts[p]), y->device));
    assert_int_equal(tdict_tensor_is_pinned(parts[p]), pinned);
    tdict_tensor_get_desc(parts[p], &v);
    assert_int_equal(tdict_tensor_bytes(parts[p]), sizeof ids[p]);
    raw_read(y->raw, ids[p], v.data, sizeof ids[p]);
    for (int i = 0; i < 3; i++) assert_int_equal(ids[p][i], (p ? -1 : 1) * (first + i));
  }
}

/* Pins objects with and without hooks, on the host and on the device. See also test_pytorch_reports.c. */
GPU_CASE(loader_pins_objects) {
  yard y = open_yard(), host = y;
  host.device = tdict_cpu();
  host.raw = raw_open(y.c, host.device);
  const tdict_type *types[] = {&thing_hooked, &thing_flat};
  for (int k = 0; k < 2; k++) {
    for (int workers = 0; workers < 3; workers += 2) {
      for (int to_host = 0; to_host < 2; to_host++) {
        numbers n = numbers_of(9);
        tdict_dataset_table d = by_sample(&n);
        tdict_loader_options o = td_with(tdict_loader_options, batch_size = 3, num_workers = workers,
                                         collate = collate_thing, user = (void *)types[k], pin_memory = true);
        if (to_host) o.device = tdict_cpu();
        scoped_loader l = open_loader(&y, &d, &o);
        for (int64_t i = 0; i < 3; i++) {
          scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
          check_thing(to_host ? &host : &y, batch, types[k], 3 * i, to_host);
        }
      }
    }
  }
  raw_close(host.raw);
  close_yard(&y); /* transfers that still ran when a loader was destroyed retain their objects until now */
  assert_int_equal(thing_count(), 0);
}

GPU_CASE(loader_pins_on_the_cpu) {
  scoped_yard y = open_yard();
  for (int pin = 0; pin < 2; pin++) {
    for (int way = 0; way < 2; way++) {
      numbers n = numbers_of(9);
      tdict_dataset_table d = way ? by_row(&n) : by_sample(&n);
      tdict_loader_options o = td_with(tdict_loader_options, batch_size = 3, device = tdict_cpu(), pin_memory = pin);
      scoped_loader l = open_loader(&y, &d, &o);
      scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
      assert_int_equal(tdict_is_pinned(batch), pin);
    }
  }
}

/* Samples are stacked, padded, packed or written directly in the memory from which the batch is sent. Nothing is copied
 * twice. */
GPU_CASE(loader_stacks_in_pinned_memory) {
  yard y = open_yard();
  for (int to_host = 0; to_host < 2; to_host++) {
    for (int way = 0; way < 4; way++) {
      numbers n = numbers_of(9);
      tdict_pack_options pack = tdict_pack_options_default();
      tdict_dataset_table d = way ? by_sample(&n) : by_row(&n);
      tdict_dataset *made = NULL;
      if (way >= 2) td_ok(tdict_dataset_from_callback(ragged, NULL, 9, &made, err));
      tdict_loader_options o = td_with(tdict_loader_options, batch_size = 3, pin_memory = true, pad = way == 2);
      if (way == 2) o.pad_masks = "masks";
      if (way == 3) o.pack = &pack;
      if (to_host) o.device = tdict_cpu();
      atomic_store(&joined, 0);
      tdict_loader *l = made ? open_loader_on(&y, made, &o) : open_loader(&y, &d, &o);
      for (int i = 0; i < 3; i++) {
        scoped_tree batch = NULL;
        td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
        if (to_host) assert_true(tdict_is_pinned(batch));
      }
      tdict_loader_destroy(l);
      assert_true(way ? atomic_load(&joined) >= 3 : atomic_load(&joined) == 0);
    }
  }
  close_yard(&y);
  assert_int_equal(atomic_load(&joined_unpinned), 0);
  assert_int_equal(atomic_load(&pinned_again), 0);
}

DEVICE_CASE(loader_fork_is_refused) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(9);
  tdict_dataset_table d = by_row(&n);
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, num_workers = 2));
  tdict_tree *batch = NULL;
  pid_t child = fork();
  if (child == 0) {
    tdict_loader *other = NULL;
    tdict_loader_state s = tdict_loader_state_default();
    tdict_loader_stats stats = tdict_loader_stats_default();
    bool ok = tdict_loader_next(l, tdict_no_stream(), &batch, NULL) == TDICT_EFORKED;
    ok = ok && create_loader_of(y.c, &d, NULL, &other, NULL) == TDICT_EFORKED;
    ok = ok && tdict_loader_set_state(l, &s, NULL) == TDICT_EFORKED;
    ok = ok && tdict_loader_get_state(l, &s, NULL) == TDICT_EFORKED;
    ok = ok && tdict_loader_restart(l, NULL) == TDICT_EFORKED;
    ok = ok && tdict_loader_get_stats(l, &stats, NULL) == TDICT_EFORKED;
    tdict_loader_destroy(l);
    _exit(ok ? 0 : 1);
  }
  int ended = -1;
  assert_int_equal(waitpid(child, &ended, 0), child);
  assert_int_equal(ended, 0);
  int64_t ids[9];
  assert_int_equal(read_epoch(&y, l, ids, 9), 9);
}

/* Each allocation of the calling thread fails in turn. The call returns the error, and a later call returns the
 * batch. */
DEVICE_CASE(loader_survives_enomem) {
  scoped_yard y = open_yard();
  for (int way = 0; way < 2; way++) {
    numbers n = numbers_of(8);
    tdict_dataset_table table = way ? by_sample(&n) : by_row(&n);
    tdict_dataset *d = NULL;
    tdict_loader *l = NULL;
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = 4, num_workers = 0);
    TD_WITHOUT_MEMORY(tdict_dataset_create(&table, &d, err));
    TD_SWEEP(s) { assert_true(td_refused(s, tdict_loader_create(y.c, d, &o, &l, err)) ? n.released == 0 : s.n >= 4); }
    tdict_dataset_release(d);
    tdict_loader_state begin = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
    TD_SWEEP(s) {
      tdict_tree *batch = NULL;
      int64_t ids[4];
      td_ok(tdict_loader_set_state(l, &begin, err));
      if (td_sweep_call(s, tdict_loader_next(l, tdict_no_stream(), &batch, err)) != TDICT_OK) continue;
      /* No allocation failed, or the loader did without the memory. */
      assert_int_equal(read_batch(&y, batch, ids, 4), 4);
      for (int64_t i = 0; i < 4; i++) assert_int_equal(ids[i], i);
      tdict_release(batch);
    }
    tdict_loader_destroy(l);
    assert_int_equal(n.released, 1);
  }
}

/* Not a tdict_status. The next callbacks return this number or -1. */
enum { NO_STATUS = 4711 };
static tdict_status fetch_number(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch,
                                 int64_t row, tdict_error *err) {
  (void)info;
  (void)self, (void)index, (void)batch, (void)row, (void)err;
  return (tdict_status)NO_STATUS;
}
static tdict_status fetch_batch_number(void *self, const tdict_fetch_info *info, const int64_t *indices, int64_t count,
                                       tdict_tree *batch, tdict_error *err) {
  (void)info;
  (void)self, (void)indices, (void)count, (void)batch, (void)err;
  return (tdict_status)NO_STATUS;
}
static tdict_status fetch_sample_number(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                        tdict_error *err) {
  (void)info;
  (void)self, (void)index, (void)out, (void)err;
  return (tdict_status)-1;
}
static tdict_status collate_number(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples,
                                   size_t count, tdict_tree **out, tdict_error *err) {
  (void)user, (void)samples, (void)count, (void)info->memory, (void)out, (void)err;
  return (tdict_status)NO_STATUS;
}
static tdict_status fetch_no_sample(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                    tdict_error *err) {
  (void)info;
  (void)self, (void)index, (void)out, (void)err;
  return TDICT_OK;
}
static tdict_status collate_nothing(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples,
                                    size_t count, tdict_tree **out, tdict_error *err) {
  (void)user, (void)samples, (void)count, (void)info->memory, (void)out, (void)err;
  return TDICT_OK;
}
CASE(loader_rejects_invalid_results) {
  static const char *const names[] = {"fetch returned",
                                      "fetch_batch returned",
                                      "fetch_sample returned",
                                      "collate returned",
                                      "fetch_sample returned TDICT_OK and no tree",
                                      "collate returned TDICT_OK and no tree"};
  scoped_yard y = open_yard();
  for (int i = 0; i < 6; i++) {
    numbers n = numbers_of(4);
    tdict_dataset_table d = i < 2 ? by_row(&n) : by_sample(&n);
    tdict_tree *batch = NULL;
    tdict_loader_options o = td_with(tdict_loader_options, num_workers = 0);
    if (i == 0) d.fetch = fetch_number;
    if (i == 1) d.fetch_batch = fetch_batch_number;
    if (i == 2) d.fetch_sample = fetch_sample_number;
    if (i == 3) o.collate = collate_number;
    if (i == 4) d.fetch_sample = fetch_no_sample;
    if (i == 5) o.collate = collate_nothing;
    scoped_loader l = open_loader(&y, &d, &o);
    td_fails(TDICT_EHOOK, names[i], tdict_loader_next(l, tdict_no_stream(), &batch, err));
    assert_null(batch);
  }
}

/* Fails without setting the error's status. If `speaks` is true, writes a path, an error number and a message. */
static tdict_status fail_with_message(tdict_error *err, bool speaks) {
  if (!speaks) return TDICT_EIO;
  err->native = 2;
  memcpy(err->path, "file.u8", sizeof "file.u8");
  memcpy(err->message, "cannot read", sizeof "cannot read");
  return TDICT_EIO;
}
static bool speaks;
static tdict_status fetch_words(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch, int64_t row,
                                tdict_error *err) {
  (void)info;
  (void)self, (void)batch, (void)row;
  if (index > 0) return fail_with_message(err, speaks);
  memcpy(err->message, "of a sample that succeeded", sizeof "of a sample that succeeded");
  return TDICT_OK;
}
static tdict_status fetch_batch_words(void *self, const tdict_fetch_info *info, const int64_t *indices, int64_t count,
                                      tdict_tree *batch, tdict_error *err) {
  (void)info;
  (void)self, (void)indices, (void)count, (void)batch;
  return fail_with_message(err, speaks);
}
static tdict_status fetch_sample_words(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                       tdict_error *err) {
  (void)info;
  (void)self, (void)index, (void)out;
  return fail_with_message(err, speaks);
}
static tdict_status collate_words(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples,
                                  size_t count, tdict_tree **out, tdict_error *err) {
  (void)user, (void)samples, (void)count, (void)info->memory, (void)out;
  return fail_with_message(err, speaks);
}
CASE(loader_keeps_messages_of_functions) {
  static const char *const names[] = {"fetch", "fetch_batch", "fetch_sample", "collate"};
  scoped_yard y = open_yard();
  for (int i = 0; i < 2 * 4; i++) {
    numbers n = numbers_of(4);
    tdict_dataset_table d = i / 2 < 2 ? by_row(&n) : by_sample(&n);
    tdict_tree *batch = NULL;
    tdict_loader_options o = td_with(tdict_loader_options, num_workers = 0, batch_size = 2);
    if (i / 2 == 0) d.fetch = fetch_words, d.fetch_batch = NULL;
    if (i / 2 == 1) d.fetch_batch = fetch_batch_words;
    if (i / 2 == 2) d.fetch_sample = fetch_sample_words;
    if (i / 2 == 3) o.collate = collate_words;
    speaks = i % 2;
    const char *silent = td_text(": %s returned TDICT_EIO without a message", names[i / 2]);
    scoped_loader l = open_loader(&y, &d, &o);
    td_fails(TDICT_EIO, speaks ? ": cannot read" : silent, tdict_loader_next(l, tdict_no_stream(), &batch, err));
    assert_string_equal(td_last_error.path, speaks ? "file.u8" : "");
    assert_int_equal(td_last_error.native, speaks ? 2 : 0);
  }
}
