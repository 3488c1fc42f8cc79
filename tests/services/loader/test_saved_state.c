/* Tests saved states: states of other loaders, extreme positions, and refused options. */
#include "numbers.h"
#include "support/guarded.h"

static tdict_loader_state state_of(tdict_loader *l) {
  tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
  return s;
}

/* The settings that may differ between two loaders. */
typedef struct setup {
  int64_t length, batch_size, num_samples;
  int32_t kind; /* negative: the loader has no sampler of its own */
  uint64_t seed;
  bool shuffle, drop_uneven, reversed;
  int32_t rank, world_size;
} setup;

static tdict_loader *loader_of(const yard *y, numbers *n, const setup *c) {
  double weights[64];
  scoped_sampler sampler = NULL;
  tdict_loader_options o = tdict_loader_options_default();
  for (int i = 0; i < 64; i++) weights[i] = c->reversed ? 64 - i : i + 1;
  tdict_sampler_options so = td_with(tdict_sampler_options, kind = c->kind);
  so.seed = o.seed = c->seed;
  so.weights = weights;
  so.num_weights = (size_t)c->length;
  so.num_samples = c->num_samples;
  so.rank = c->rank;
  so.world_size = c->world_size;
  so.drop_uneven = c->drop_uneven;
  o.batch_size = c->batch_size;
  o.num_workers = 0;
  o.shuffle = c->shuffle;
  if (c->kind >= 0) {
    td_ok(tdict_sampler_create(c->length, &so, &sampler, err));
    o.sampler = sampler;
  } else {
    o.rank = c->rank;
    o.world_size = c->world_size;
  }
  *n = numbers_of(c->length);
  tdict_dataset_table d = by_row(n);
  tdict_loader *l = open_loader(y, &d, &o);
  return l;
}

CASE(loader_state_of_another_loader_is_refused) {
  scoped_yard y = open_yard();
  const setup plain = {.length = 30, .batch_size = 3, .kind = -1, .seed = 5, .shuffle = true, .world_size = 2};
  const setup weighted = {.length = 30, .batch_size = 3, .kind = TDICT_SAMPLER_WEIGHTED, .world_size = 1};
  const setup uneven = {.length = 30, .batch_size = 3, .kind = TDICT_SAMPLER_SHUFFLED, .world_size = 4};
  setup others[10];
  const char *texts[10];
  int count = 0;
#define OTHER(from, change, text) \
  others[count] = from;           \
  others[count].change;           \
  texts[count++] = text
  OTHER(plain, length = 40, "saved for 40 samples, this loader has 30");
  OTHER(plain, batch_size = 4, "saved for 4 samples in a batch, this loader has 3");
  OTHER(plain, seed = 6, "saved for seed 6, this loader has 5");
  OTHER(plain, shuffle = false, "saved for a sequential sampler, this loader has a shuffled sampler");
  int of_plain = count;
  OTHER(weighted, kind = TDICT_SAMPLER_WITH_REPLACEMENT, "a sampler with replacement, this loader has a weighted");
  OTHER(weighted, reversed = true, "other weights");
  OTHER(weighted, num_samples = 31, "saved for 31 samples drawn in an epoch, this loader has 30");
  int of_weighted = count;
  OTHER(uneven, drop_uneven = true, "saved for 7 samples of each of 4 ranks, this loader would draw 8");
  for (int i = 0; i < count; i++) {
    numbers a, b;
    scoped_loader other = loader_of(&y, &a, &others[i]), l = loader_of(&y, &b,
                                                                       i < of_plain      ? &plain
                                                                       : i < of_weighted ? &weighted
                                                                                         : &uneven);
    tdict_loader_state s = state_of(other), was = state_of(l);
    td_fails(TDICT_EINVAL, texts[i], tdict_loader_set_state(l, &s, err));
    s = state_of(l);
    assert_memory_equal(&s, &was, sizeof s); /* the position has not changed */
    td_ok(tdict_loader_set_state(l, &was, err));
  }
}

CASE(loader_state_serves_all_ranks) {
  scoped_yard y = open_yard();
  setup c = {.length = 31, .batch_size = 3, .kind = -1, .seed = 5, .shuffle = true, .world_size = 4};
  numbers n[4];
  tdict_loader_state first;
  for (c.rank = 0; c.rank < 4; c.rank++) {
    scoped_loader l = loader_of(&y, &n[c.rank], &c);
    tdict_loader_state s = state_of(l);
    if (c.rank == 0) first = s;
    assert_memory_equal(&s, &first, sizeof s);
    first.epoch = 3;
    td_ok(tdict_loader_set_state(l, &first, err));
    first.epoch = 0;
  }
}

/* Sets the state of two ranks that have taken `batch` batches each in a loader of `world_size` ranks. */
static tdict_status set_for_ranks(const yard *y, setup c, int64_t batch, int32_t world_size, tdict_loader_state *out,
                                  tdict_error *err) {
  numbers a, b;
  c.world_size = 2;
  scoped_loader first = loader_of(y, &a, &c);
  c.world_size = world_size;
  scoped_loader second = loader_of(y, &b, &c);
  tdict_loader_state s = state_of(first);
  s.batch = batch;
  const tdict_status status = tdict_loader_set_state(second, &s, err);
  *out = state_of(second);
  return status;
}

CASE(loader_state_of_other_ranks) {
  scoped_yard y = open_yard();
  tdict_loader_state s;
  setup c = {.length = 31, .batch_size = 3, .kind = -1, .seed = 5, .shuffle = true};
  td_ok(set_for_ranks(&y, c, 3, 1, &s, err));
  assert_true(s.batch == 6 && s.world_size == 1 && s.rank_samples == 31);
  td_ok(set_for_ranks(&y, c, 3, 3, &s, err));
  assert_true(s.batch == 2 && s.world_size == 3 && s.rank_samples == 11);
  td_fails(TDICT_EINVAL, "2 ranks have taken 6 batches of epoch 0, which is no multiple of the 4 ranks of this loader",
           set_for_ranks(&y, c, 3, 4, &s, err));
  td_fails(TDICT_EINVAL, "batch is 7 of 2 ranks, wanted 0 to 6", set_for_ranks(&y, c, 7, 4, &s, err));
  td_ok(set_for_ranks(&y, c, 6, 4, &s, err)); /* the end of the epoch */
  assert_int_equal(s.batch, 3);
  td_ok(set_for_ranks(&y, c, 0, 7, &s, err));
  assert_int_equal(s.batch, 0);

  /* Such long epochs need the whole range of integers. */
  c.length = INT64_MAX;
  td_ok(set_for_ranks(&y, c, (INT64_MAX / 2 + 1 + 2) / 3, 7, &s, err));
  assert_true(s.batch == (INT64_MAX / 7 + 2) / 3);
  td_ok(set_for_ranks(&y, c, INT64_MAX / 12, 1, &s, err));
  assert_true(s.batch == INT64_MAX / 12 * 2);

  /* A state with other settings is refused, too. */
  numbers n, m = numbers_of(-1);
  c.length = 31;
  c.world_size = 2;
  scoped_loader l = loader_of(&y, &n, &c);
  s = state_of(l);
  s.world_size = 3; /* with 16 samples of each rank */
  td_fails(TDICT_EINVAL, "saved for 16 samples of each of 3 ranks, this loader would draw 11",
           tdict_loader_set_state(l, &s, err));
  s.rank_samples = -1;
  td_fails(TDICT_EINVAL, "saved for -1 samples of each of 3 ranks", tdict_loader_set_state(l, &s, err));
  s.world_size = 0;
  td_fails(TDICT_EINVAL, "saved for 0 ranks, wanted 1 or more", tdict_loader_set_state(l, &s, err));
  tdict_dataset_table d = by_row(&m);
  scoped_loader stream = open_loader(&y, &d, td_options(tdict_loader_options, num_workers = 0));
  s = state_of(stream);
  s.rank_samples = 5;
  td_fails(TDICT_EINVAL, "saved for 5 samples of each of 1 ranks", tdict_loader_set_state(stream, &s, err));
  s.world_size = 2;
  td_fails(TDICT_EINVAL, "saved for 2 ranks, wanted 1", tdict_loader_set_state(stream, &s, err));
}

static void refuse_place(tdict_loader *l, int64_t epoch, int64_t batch, const char *text) {
  tdict_loader_state s = state_of(l), was = s, now;
  s.epoch = epoch;
  s.batch = batch;
  td_fails(TDICT_EINVAL, text, tdict_loader_set_state(l, &s, err));
  now = state_of(l);
  assert_memory_equal(&now, &was, sizeof now);
}

/* Sets positions near the limits of int64, for a loader with a length and for a stream. The loader must refuse each
 * position, or use it without overflow. */
CASE(loader_state_refuses_extremes) {
  scoped_yard y = open_yard();
  for (int stream = 0; stream < 2; stream++) {
    for (int workers = 0; workers < 3; workers += 2) {
      numbers n = numbers_of(stream ? -1 : 40);
      n.end = 0;
      tdict_dataset_table d = by_row(&n);
      scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, batch_size = 7, num_workers = workers));
      for (int64_t less = 0; less < 9; less++) {
        refuse_place(l, INT64_MAX - less, 0, "epoch is 9223372036854775");
        refuse_place(l, INT64_MIN + less, 0, "epoch is -9223372036854775");
        refuse_place(l, 0, INT64_MAX - less, "batch is 9223372036854775");
        refuse_place(l, 0, INT64_MIN + less, "batch is -9223372036854775");
      }
      refuse_place(l, INT64_MAX / 2 + 1, 0, "wanted 0 to 4611686018427387903");
      refuse_place(l, 0, stream ? INT64_MAX / 14 + 1 : 7, "wanted 0 to");
      tdict_loader_state s = state_of(l); /* the loader can continue at the last allowed position */
      s.epoch = INT64_MAX / 2;
      s.batch = stream ? INT64_MAX / 14 : 6;
      td_ok(tdict_loader_set_state(l, &s, err));
      tdict_tree *batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
      assert_null(batch); /* the end of the epoch */
      s = state_of(l);
      assert_int_equal(s.epoch, INT64_MAX / 2 + 1);
      assert_int_equal(s.batch, 0);
    }
  }
}

/* Uses samplers over up to INT64_MAX indices at the end of an epoch, with several world sizes. */
CASE(sampler_positions_do_not_overflow) {
  static const int64_t lengths[] = {INT64_MAX, INT64_MAX - 1, INT64_MAX / 2, ((int64_t)1 << 62) + 1};
  static const int32_t worlds[] = {1, 2, 3, 7, INT32_MAX};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
      tdict_sampler_options o = td_with(tdict_sampler_options, world_size = worlds[w], rank = worlds[w] - 1);
      for (o.kind = TDICT_SAMPLER_SEQUENTIAL; o.kind <= TDICT_SAMPLER_WITH_REPLACEMENT; o.kind++) {
        scoped_sampler s = td_made(sampler, tdict_sampler_create(lengths[i], &o, &made, err));
        int64_t end = tdict_sampler_length(s);
        __extension__ typedef __int128 wide;
        wide counted = (wide)(end - 1) * worlds[w] + o.rank;
        if (o.kind == TDICT_SAMPLER_SEQUENTIAL)
          assert_true(tdict_sampler_get(s, 0, end - 1) == (int64_t)(counted % lengths[i]));
        for (int64_t epoch = INT64_MAX - 1; epoch > 0; epoch /= 3) {
          assert_true(tdict_sampler_get(s, epoch, end - 1) >= 0);
          assert_true(tdict_sampler_get(s, epoch, end - 1) < lengths[i]);
          assert_int_equal(tdict_sampler_get(s, epoch, end), -1);
          assert_int_equal(tdict_sampler_get(s, epoch, INT64_MAX), -1);
          assert_int_equal(tdict_sampler_get(s, -epoch, 0), -1);
        }
      }
    }
  }
}

CASE(loader_structs_respect_struct_size) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(9);
  tdict_dataset_table d = by_row(&n);
  scoped_loader l = open_loader(&y, &d, td_options(tdict_loader_options, num_workers = 0, world_size = 3));
  tdict_loader_state state = state_of(l);
  tdict_loader_stats stats = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
  for (size_t size = sizeof size; size <= sizeof state; size++) {
    guarded *g = guarded_of(size);
    td_ok(tdict_loader_get_state(l, (tdict_loader_state *)g, err));
    check_guarded(g, size, &state);
    if (size < sizeof state)
      td_fails(TDICT_EINVAL, "another version", tdict_loader_set_state(l, (tdict_loader_state *)g, err));
  }
  for (size_t size = sizeof size; size <= sizeof stats; size++) {
    guarded *g = guarded_of(size);
    td_ok(tdict_loader_get_stats(l, (tdict_loader_stats *)g, err));
    check_guarded(g, size, &stats);
  }
  guarded *g = guarded_of(0);
  td_fails(TDICT_EINVAL, "struct_size is 0", tdict_loader_get_state(l, (tdict_loader_state *)g, err));
  td_fails(TDICT_EINVAL, "struct_size is 0", tdict_loader_get_stats(l, (tdict_loader_stats *)g, err));
  check_untouched(g);
}

/* The size in a saved state is damaged: each flipped bit is refused, and no byte after the struct is read. */
CASE(loader_state_with_damaged_size_is_refused) {
  scoped_yard y = open_yard();
  numbers n = numbers_of(9);
  tdict_dataset_table d = by_row(&n);
  scoped_loader l = open_loader(&y, &d, NULL);
  tdict_loader_state was = state_of(l);
  tdict_loader_state *s = before_a_wall(&was, sizeof was);
  for (size_t bit = 0; bit < 8 * sizeof s->struct_size; bit++) {
    s->struct_size = was.struct_size ^ ((size_t)1 << bit);
    td_fails(TDICT_EINVAL, "another version of the library saved it, or it is damaged",
             tdict_loader_set_state(l, s, err));
  }
  s->struct_size = was.struct_size;
  td_ok(tdict_loader_set_state(l, s, err));
  s->order_version++;
  td_fails(TDICT_EINVAL, "saved for version 3 of the orders, this library has 2", tdict_loader_set_state(l, s, err));
}

/* A program compiled with an older header passes a shorter table. No byte after it is read. */
CASE(dataset_create_respects_struct_size) {
  numbers n = numbers_of(4);
  tdict_dataset_table t = by_row(&n);
  size_t size = offsetof(tdict_dataset_table, release) + sizeof t.release;
  guarded *g = guarded_of(size);
  memcpy(g->bytes + sizeof size, (unsigned char *)&t + sizeof size, size - sizeof size);
  tdict_dataset *d = td_made(dataset, tdict_dataset_create((tdict_dataset_table *)g, &made, err));
  const tdict_dataset_table *read = tdict_dataset_get_table(d);
  assert_true(read->fetch == t.fetch && !read->in_order && !read->length_varies && !read->sample_length);
  tdict_dataset_release(d);
  assert_int_equal(n.released, 1);
}

/* Extreme integers in option structs must not overflow. */
CASE(loader_options_may_be_extreme) {
  static const int64_t extremes[] = {INT64_MIN,     INT64_MIN + 1, -1,       0, 1, INT32_MAX,
                                     INT64_MAX / 2, INT64_MAX - 1, INT64_MAX};
  scoped_yard y = open_yard();
  for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
    int64_t value = extremes[i];
    for (int field = 0; field < 9; field++) {
      /* the list of 2^31 samples would be allocated, and a sanitizer would fill it */
      if (SANITIZED && value >= INT32_MAX && (field == 0 || field == 2)) continue;
      for (int64_t length = 3; length > 0; length = length == 3 ? INT64_MAX : 0) {
        numbers n = numbers_of(length);
        tdict_dataset_table d = by_row(&n);
        tdict_loader_options o = td_with(tdict_loader_options, num_workers = 0);
        if (field == 0) o.batch_size = value;
        if (field == 1) o.num_workers = value > 0 && value < 1000 ? (int32_t)value : value < 0 ? INT32_MIN : INT32_MAX;
        if (field == 2) o.prefetch = value < 0 ? INT32_MIN : value > INT32_MAX ? INT32_MAX : (int32_t)value;
        if (field == 3) o.prefetch_bytes = (size_t)value;
        if (field == 4) o.timeout_ns = value;
        if (field == 5) o.rank = value < 0 ? INT32_MIN : INT32_MAX;
        if (field == 6) o.world_size = value < 0 ? INT32_MIN : value > 0 ? INT32_MAX : 0;
        if (field == 7) o.seed = (uint64_t)value, o.shuffle = true;
        if (field == 8) o.device.type = value < 0 ? INT32_MIN : INT32_MAX;
        scoped_loader l = NULL;
        tdict_error why = {0};
        tdict_status status = create_loader_of(y.c, &d, &o, &l, &why);
        assert_true(status == TDICT_OK || strlen(why.message) > 10);
        if (status == TDICT_OK && o.num_workers == 0 && o.batch_size < 100) {
          tdict_tree *batch = NULL;
          tdict_loader_state s = state_of(l);
          s.batch = tdict_loader_length(l) - 1;
          td_ok(tdict_loader_set_state(l, &s, err));
          td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
          assert_non_null(batch);
          tdict_release(batch);
          td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
          assert_null(batch);
        }
      }
    }
  }
}

/* Extreme integers passed to samplers and token datasets must not overflow either. */
CASE(dataset_options_may_be_extreme) {
  static const int64_t extremes[] = {INT64_MIN, -1, 0, 1, INT64_MAX / 2, INT64_MAX};
  char path[] = "/tmp/tdict-extreme-XXXXXX";
  uint16_t tokens[8] = {1, 2, 3};
  const char *paths[] = {path};
  int fd = mkstemp(path);
  assert_int_equal(write(fd, tokens, sizeof tokens), sizeof tokens);
  close(fd);
  for (size_t i = 0; i < 6; i++) {
    for (size_t k = 0; k < 6; k++) {
      scoped_sampler s = NULL;
      tdict_dataset *d = NULL;
      tdict_token_options o =
          td_with(tdict_token_options, paths = paths, num_paths = 1, window = extremes[i], step = extremes[k]);
      tdict_status status = tdict_dataset_from_tokens(&o, &d, NULL);
      assert_int_equal(status == TDICT_OK, extremes[i] == 1 && extremes[k] >= 0);
      tdict_dataset_release(d);
      tdict_sampler_options so =
          td_with(tdict_sampler_options, num_samples = extremes[i], kind = TDICT_SAMPLER_WITH_REPLACEMENT);
      status = tdict_sampler_create(extremes[k], &so, &s, NULL);
      if (status == TDICT_OK && tdict_sampler_length(s) > 0)
        assert_true(tdict_sampler_get(s, INT64_MAX, tdict_sampler_length(s) - 1) < extremes[k]);
    }
  }
  unlink(path);
}
