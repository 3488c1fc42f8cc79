/* Tests batches with a token limit: their samples, ranks, states, and refusals. */
#include "documents.h"

static const tdict_pack_options *packing(void) {
  static tdict_pack_options o;
  o = tdict_pack_options_default();
  return &o;
}

static tdict_loader_options by_tokens(void) {
  return td_with(tdict_loader_options, batch_size = 8, max_tokens = 150, pack = packing(), seed = 11);
}

/* Returns the naive division of an epoch of all documents, in the order of the loader. */
static const division *divide_epoch(const documents *d, int64_t epoch, const tdict_loader_options *o) {
  static division v;
  tdict_sampler_options so = td_with(
      tdict_sampler_options, kind = o->shuffle ? TDICT_SAMPLER_SHUFFLED : TDICT_SAMPLER_SEQUENTIAL, seed = o->seed);
  scoped_sampler s = td_made(sampler, tdict_sampler_create(d->count, &so, &made, err));
  divide(&v, d, s, epoch, o);
  return &v;
}

/* Takes the batches of an epoch, and compares each with the naive division. */
static void check_epoch(const yard *y, tdict_loader *l, const documents *d, const division *v) {
  tdict_batch_info info = tdict_batch_info_default();
  for (int64_t b = 0; b < v->num_batches; b++) {
    scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    assert_non_null(batch);
    assert_int_equal(tdict_loader_length(l), v->num_batches);
    check_packed_batch(y, l, batch, d, v->order + v->begins[b], v->begins[b + 1] - v->begins[b]);
    td_ok(tdict_loader_get_batch_info(l, &info, err));
    assert_int_equal(info.batch, b);
  }
}

/* Checks that the epoch has ended: the next call returns no batch. */
static void check_end(tdict_loader *l) {
  tdict_tree *batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
  assert_null(batch);
}

DEVICE_CASE(loader_packs_up_to_max_tokens) {
  scoped_yard y = open_yard();
  documents d = documents_of(3);
  for (int round = 0; round < 8; round++) {
    tdict_loader_options o = by_tokens();
    o.shuffle = round & 1;
    o.num_workers = round & 2 ? 3 : 0;
    if (round & 4) o.batch_size = 3, o.max_tokens = LONGEST;
    tdict_dataset_table set = documents_dataset(&d);
    scoped_loader l = open_loader(&y, &set, &o);
    for (int64_t epoch = 0; epoch < 3; epoch++) {
      const division *v = divide_epoch(&d, epoch, &o);
      if (epoch == 0) assert_int_equal(tdict_loader_length(l), v->num_batches);
      check_epoch(&y, l, &d, v);
      tdict_batch_info info = td_filled(tdict_batch_info, tdict_loader_get_batch_info(l, &made, err));
      assert_int_equal(info.epoch, epoch);
      check_end(l);
      td_ok(tdict_loader_get_batch_info(l, &info, err)); /* without a batch, all numbers are 0 */
      assert_int_equal(info.num_samples + info.num_tokens + info.max_seqlen + info.epoch + info.batch, 0);
    }
  }
}

/* Writes the ids of the next batch. Returns their number, or -1 at the end of the epoch. */
static int64_t take_ids(const yard *y, tdict_loader *l, int64_t *ids) {
  tdict_tree *batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
  if (!batch) return -1;
  size_t bytes = read_leaf(y, batch, "id", ids, DOCUMENTS * sizeof *ids);
  tdict_release(batch);
  return (int64_t)(bytes / sizeof *ids);
}

static void take_epoch(const yard *y, tdict_loader *l, int64_t batches) {
  int64_t ids[DOCUMENTS];
  for (int64_t b = 0; b < batches; b++) assert_true(take_ids(y, l, ids) > 0);
  check_end(l);
}

/* Rank r takes the batches r, r + world_size, ... of the division of all samples. */
CASE(loader_deals_batches_to_ranks) {
  scoped_yard y = open_yard();
  documents d = documents_of(4);
  static const int worlds[] = {1, 2, 3, 4, 7, 200};
  for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
    for (int drop = 0; drop < 2; drop++) {
      tdict_loader_options o = by_tokens();
      const division *v = divide_epoch(&d, 0, &o);
      int64_t world = worlds[w], wanted = v->num_batches / world + (!drop && v->num_batches % world ? 1 : 0);
      for (int64_t rank = 0; rank < world; rank += 1 + world / 8) {
        scoped_sampler mine = NULL;
        tdict_sampler_options so =
            td_with(tdict_sampler_options, rank = (int32_t)rank, world_size = (int32_t)world, drop_uneven = drop);
        td_ok(tdict_sampler_create(DOCUMENTS, &so, &mine, err));
        o.sampler = mine;
        o.num_workers = 0;
        tdict_dataset_table set = documents_dataset(&d);
        scoped_loader l = open_loader(&y, &set, &o);
        assert_int_equal(tdict_loader_length(l), wanted);
        for (int64_t k = 0; k < wanted; k++) {
          int64_t ids[DOCUMENTS], b = (k * world + rank) % v->num_batches, count = take_ids(&y, l, ids);
          assert_int_equal(count, v->begins[b + 1] - v->begins[b]);
          for (int64_t i = 0; i < count; i++) assert_int_equal(ids[i], v->order[v->begins[b] + i]);
        }
        check_end(l);
      }
    }
  }
}

DEVICE_CASE(loader_state_restores_token_batches) {
  scoped_yard y = open_yard();
  documents d = documents_of(5);
  tdict_loader_options o = by_tokens();
  o.shuffle = true;
  o.endless = true;
  tdict_dataset_table set = documents_dataset(&d);
  scoped_loader l = open_loader(&y, &set, &o);
  tdict_loader_state states[60];
  int64_t first[60], ids[DOCUMENTS];
  for (int i = 0; i < 60; i++) {
    states[i] = tdict_loader_state_default();
    td_ok(tdict_loader_get_state(l, &states[i], err));
    assert_true(take_ids(&y, l, ids) > 0);
    first[i] = ids[0];
  }
  assert_true(states[59].epoch >= 2);
  for (int i = 59; i >= 0; i -= 7) {
    td_ok(tdict_loader_set_state(l, &states[i], err));
    for (int k = i; k < 60 && k < i + 9; k++) {
      take_ids(&y, l, ids);
      assert_int_equal(ids[0], first[k]);
    }
  }
  /* Refused states change nothing. */
  tdict_loader_state s = states[30], now = tdict_loader_state_default();
  td_ok(tdict_loader_set_state(l, &s, err));
  s.max_tokens++;
  td_fails(TDICT_EINVAL, "saved for 151 tokens in a batch, this loader has 150", tdict_loader_set_state(l, &s, err));
  s = states[30];
  s.counts_padding = 1;
  td_fails(TDICT_EINVAL, "padding", tdict_loader_set_state(l, &s, err));
  s = states[30];
  s.batch = 1000;
  td_fails(TDICT_EINVAL, "batch is 1000", tdict_loader_set_state(l, &s, err));
  d.lengths[0] = 1000;
  s = states[30];
  td_fails(TDICT_EINVAL, "sample 0 has 1000 tokens", tdict_loader_set_state(l, &s, err));
  td_ok(tdict_loader_get_state(l, &now, err));
  assert_memory_equal(&now, &states[30], sizeof now);
}

/* The tokens of a padded batch are counted as the number of samples times the largest length. A mask marks the elements
 * that are not padding. */
DEVICE_CASE(loader_pads_up_to_max_tokens) {
  scoped_yard y = open_yard();
  documents d = documents_of(6);
  d.batched = true;
  tdict_loader_options o = by_tokens();
  o.pack = NULL;
  o.pad = true;
  o.pad_masks = "masks";
  o.pad_value = -1;
  tdict_dataset_table set = documents_dataset(&d);
  scoped_loader l = open_loader(&y, &set, &o);
  static int64_t tokens[1000];
  static unsigned char mask[1000];
  const division *v = divide_epoch(&d, 0, &o);
  for (int64_t b = 0; b < v->num_batches; b++) {
    scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    int64_t count = v->begins[b + 1] - v->begins[b], longest = tdict_batch_size(batch)[1], sum = 0;
    assert_int_equal(tdict_batch_size(batch)[0], count);
    assert_true(count * longest <= o.max_tokens);
    assert_int_equal(read_leaf(&y, batch, "tokens", tokens, sizeof tokens), (size_t)(count * longest) * 8);
    assert_int_equal(read_leaf(&y, batch, "masks.tokens", mask, sizeof mask), (size_t)(count * longest));
    for (int64_t i = 0; i < count; i++) {
      int64_t id = v->order[v->begins[b] + i];
      sum += d.lengths[id];
      for (int64_t k = 0; k < longest; k++) {
        assert_int_equal(mask[i * longest + k], k < d.lengths[id]);
        assert_int_equal(tokens[i * longest + k], k < d.lengths[id] ? id * 1000 + k : -1);
      }
    }
    tdict_batch_info info = td_filled(tdict_batch_info, tdict_loader_get_batch_info(l, &made, err));
    assert_int_equal(info.num_tokens, sum);
    assert_int_equal(info.max_seqlen, longest);
  }
}

CASE(loader_drops_a_short_last_token_batch) {
  scoped_yard y = open_yard();
  documents d = documents_of(7);
  d.count = 5;
  for (int i = 0; i < 5; i++) d.lengths[i] = 10;
  static const struct {
    int64_t max_tokens, batch_size, wanted;
  } cases[] = {{20, 8, 2}, {50, 8, 1}, {51, 8, 0}, {51, 5, 1}, {10, 8, 5}, {40, 4, 1}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tdict_loader_options o = by_tokens();
    tdict_loader *l = NULL;
    o.drop_last = true;
    o.max_tokens = cases[i].max_tokens;
    o.batch_size = cases[i].batch_size;
    tdict_dataset_table set = documents_dataset(&d);
    l = open_loader(&y, &set, &o);
    assert_int_equal(tdict_loader_length(l), cases[i].wanted);
    take_epoch(&y, l, cases[i].wanted);
    td_release(l);
    o.endless = true;
    if (cases[i].wanted == 0) td_fails(TDICT_EINVAL, "an epoch has no batch", create_loader_of(y.c, &set, &o, &l, err));
  }
}

CASE(loader_max_tokens_refuses) {
  scoped_yard y = open_yard();
  documents d = documents_of(8);
  tdict_dataset_table set = documents_dataset(&d), bare = set;
  scoped_loader l = NULL;
  tdict_loader_options o = by_tokens(), good = o;
  tdict_pack_options pack = tdict_pack_options_default();
  d.lengths[42] = 151;
  td_fails(TDICT_EINVAL, "sample 42 has 151 tokens, but max_tokens is 150", create_loader_of(y.c, &set, &o, &l, err));
  d.lengths[42] = -3;
  td_fails(TDICT_EINVAL, "sample_length returned -3 for sample 42", create_loader_of(y.c, &set, &o, &l, err));
  d.lengths[42] = 150;
  o.max_tokens = -1;
  td_fails(TDICT_EINVAL, "max_tokens is -1", create_loader_of(y.c, &set, &o, &l, err));
  o = good;
  bare.sample_length = NULL;
  td_fails(TDICT_EINVAL, "needs a dataset with length and sample_length", create_loader_of(y.c, &bare, &o, &l, err));
  bare = set;
  bare.length = NULL;
  td_fails(TDICT_EINVAL, "needs a dataset with length and sample_length", create_loader_of(y.c, &bare, &o, &l, err));
  bare = set;
  bare.fetch_sample = NULL;
  give_fields(&bare);
  bare.fetch = numbers_fetch;
  td_fails(TDICT_EINVAL, "pack needs a dataset with fetch_sample", create_loader_of(y.c, &bare, &o, &l, err));
  o.pad = true;
  td_fails(TDICT_EINVAL, "both pad and pack are set", create_loader_of(y.c, &set, &o, &l, err));
  o = good;
  o.pad_masks = "masks";
  td_fails(TDICT_EINVAL, "pad_masks is set, but pad is not", create_loader_of(y.c, &set, &o, &l, err));
  o = good;
  o.pack = &pack;
  pack.num_tokens = 149;
  td_fails(TDICT_EINVAL, "wanted at least max_tokens, which is 150", create_loader_of(y.c, &set, &o, &l, err));
  pack.num_tokens = 150;
  pack.num_sequences = 7;
  td_fails(TDICT_EINVAL, "wanted at least batch_size, which is 8", create_loader_of(y.c, &set, &o, &l, err));
  pack.num_sequences = 8;
  pack.cu_seqlens = NULL;
  td_fails(TDICT_EINVAL, "a path that is NULL", create_loader_of(y.c, &set, &o, &l, err));
  pack.struct_size = 3;
  td_fails(TDICT_EINVAL, "pack options", create_loader_of(y.c, &set, &o, &l, err));
  assert_null(l);
  tdict_batch_info info = tdict_batch_info_default();
  td_fails(TDICT_EINVAL, "the loader is NULL", tdict_loader_get_batch_info(NULL, &info, err));
  l = open_loader(&y, &set, &good);
  td_fails(TDICT_EINVAL, "out is NULL", tdict_loader_get_batch_info(l, NULL, err));
  info.struct_size = 1;
  td_fails(TDICT_EINVAL, "struct_size", tdict_loader_get_batch_info(l, &info, err));
}

/* If a later epoch cannot be divided, calls fail, and then try again. */
CASE(loader_reports_a_failed_division) {
  scoped_yard y = open_yard();
  documents d;
  int64_t ids[DOCUMENTS];
  for (int workers = 0; workers < 3; workers += 2) {
    d = documents_of(9);
    tdict_loader_options o = by_tokens();
    o.num_workers = workers;
    o.prefetch = 1;
    o.on_error = TDICT_ON_ERROR_CONTINUE;
    tdict_dataset_table set = documents_dataset(&d);
    scoped_loader l = open_loader(&y, &set, &o);
    tdict_tree *batch = NULL;
    int64_t batches = tdict_loader_length(l);
    for (int64_t b = 0; b < batches; b++) assert_true(take_ids(&y, l, ids) > 0);
    tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
    td_ok(tdict_loader_set_state(l, &s, err)); /* drops the plan of epoch 1 */
    assert_int_equal(d.lengths[77] <= LONGEST, 1);
    d.lengths[77] = 1000;
    atomic_store(&d.asked, 0);
    assert_int_equal(take_ids(&y, l, ids), -1);
    td_fails(TDICT_EINVAL, "sample 77 has 1000 tokens", tdict_loader_next(l, tdict_no_stream(), &batch, err));
    assert_null(batch);
    tdict_loader_stats stats = td_filled(tdict_loader_stats, tdict_loader_get_stats(l, &made, err));
    while (workers && !stats.num_ready) { /* a worker has divided the epoch again, and waits */
      td_ok(tdict_loader_get_stats(l, &stats, err));
      usleep(100);
    }
    d.lengths[77] = 10;
    tdict_error error = {0};
    while (tdict_loader_next(l, tdict_no_stream(), &batch, &error) != TDICT_OK)
      assert_int_equal(error.status, TDICT_EINVAL);
    tdict_release(batch);
    const tdict_batch_info info = td_filled(tdict_batch_info, tdict_loader_get_batch_info(l, &made, err));
    assert_true(info.epoch == 1 && info.batch == 0);
  }
}

/* Uses samples that have more tokens than sample_length returned. */
CASE(loader_reports_wrong_sample_lengths) {
  scoped_yard y = open_yard();
  documents d = documents_of(10);
  d.longer_by = 40;
  for (int pads = 0; pads < 2; pads++) {
    tdict_loader_options o = by_tokens();
    tdict_tree *batch = NULL;
    d.batched = pads;
    if (pads) o.pack = NULL, o.pad = true;
    tdict_dataset_table set = documents_dataset(&d);
    scoped_loader l = open_loader(&y, &set, &o);
    td_fails(TDICT_EINVAL, "but max_tokens is 150: sample_length returned less",
             tdict_loader_next(l, tdict_no_stream(), &batch, err));
    assert_null(batch);
  }
}

CASE(loader_packs_constant_shapes) {
  scoped_yard y = open_yard();
  documents d = documents_of(12);
  tdict_loader_options o = by_tokens();
  tdict_pack_options pack =
      td_with(tdict_pack_options, num_tokens = o.max_tokens, num_sequences = o.batch_size, position_ids = "positions");
  o.pack = &pack;
  tdict_dataset_table set = documents_dataset(&d);
  scoped_loader l = open_loader(&y, &set, &o);
  memset(&pack, 0xff, sizeof pack); /* the loader has a copy */
  for (int64_t b = tdict_loader_length(l); b > 0; b--) {
    int64_t tokens[150], ids[8];
    int32_t offsets[9], positions[150];
    scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    assert_int_equal(read_leaf(&y, batch, "tokens", tokens, sizeof tokens), sizeof tokens);
    assert_int_equal(read_leaf(&y, batch, "id", ids, sizeof ids), sizeof ids);
    assert_int_equal(read_leaf(&y, batch, "cu_seqlens", offsets, sizeof offsets), sizeof offsets);
    assert_int_equal(read_leaf(&y, batch, "positions", positions, sizeof positions), sizeof positions);
    tdict_batch_info info = td_filled(tdict_batch_info, tdict_loader_get_batch_info(l, &made, err));
    assert_int_equal(offsets[8], info.num_tokens);
    for (int64_t k = info.num_tokens; k < 150; k++) assert_true(tokens[k] == 0 && positions[k] == 0);
  }
}

/* While a worker divides the next epoch, other calls of the loader do not wait for it. */
CASE(loader_divides_without_its_lock) {
  scoped_yard y = open_yard();
  documents d = documents_of(13);
  tdict_loader_options o = by_tokens();
  o.num_workers = 2;
  tdict_dataset_table set = documents_dataset(&d);
  scoped_loader l = open_loader(&y, &set, &o);
  pthread_mutex_lock(&d.gate);
  atomic_store(&d.waits, true);
  int64_t ids[DOCUMENTS];
  take_epoch(&y, l, tdict_loader_length(l));
  for (int i = 0; i < 50000 && !atomic_load(&d.at_gate); i++) usleep(100);
  assert_true(atomic_load(&d.at_gate));
  tdict_loader_stats stats = tdict_loader_stats_default();
  td_ok(tdict_loader_get_stats(l, &stats, err)); /* would never return if the lock were held */
  tdict_loader_state state = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
  assert_int_equal(state.epoch, 1);
  atomic_store(&d.waits, false);
  pthread_mutex_unlock(&d.gate);
  assert_true(take_ids(&y, l, ids) > 0);
}

/* The length of the dataset changes between epochs, and while an epoch is running. */
CASE(loader_token_batches_follow_the_length) {
  static const int64_t lengths[] = {30, 97, 97, 5, 60};
  scoped_yard y = open_yard();
  documents d;
  for (int workers = 0; workers < 3; workers += 2) {
    d = documents_of(16);
    d.count = 50;
    tdict_loader_options o = by_tokens();
    o.num_workers = workers;
    o.shuffle = true;
    tdict_dataset_table set = documents_dataset(&d);
    set.length_varies = true;
    scoped_loader l = open_loader(&y, &set, &o);
    for (int64_t epoch = 0; epoch < 5; epoch++) {
      d.count = lengths[epoch];
      check_epoch(&y, l, &d, divide_epoch(&d, epoch, &o));
      check_end(l);
    }
    /* Restarts in the middle of an epoch, and sets a state of an epoch with a different length. */
    int64_t ids[DOCUMENTS], first[DOCUMENTS];
    assert_true(take_ids(&y, l, ids) > 0);
    tdict_loader_state s = td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
    int64_t count = take_ids(&y, l, first);
    d.count = 80;
    td_ok(tdict_loader_restart(l, err));
    check_epoch(&y, l, &d, divide_epoch(&d, 6, &o));
    td_ok(tdict_loader_set_state(l, &s, err));
    assert_int_equal(take_ids(&y, l, ids), count);
    assert_memory_equal(ids, first, (size_t)count * sizeof *ids);
    /* Sets a state at the beginning of an epoch after the dataset has become shorter. */
    s.batch = 0;
    d.count = 20;
    td_ok(tdict_loader_set_state(l, &s, err));
    check_epoch(&y, l, &d, divide_epoch(&d, s.epoch, &o));
    assert_int_equal(atomic_load(&d.num_wrong), 0);
  }
}

CASE(loader_token_batches_need_memory) {
  scoped_yard y = open_yard();
  documents d = documents_of(14);
  d.count = 20;
  tdict_loader_options o = by_tokens();
  o.num_workers = 0;
  o.shuffle = true;
  tdict_dataset_table set = documents_dataset(&d);
  expect_no_memory_in_two_epochs(&y, &set, &o);
}
