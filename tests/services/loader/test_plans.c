/* Tests the library's own functions that plan epochs: class-balanced, bucketed by length, and mixed by weights. */
#include <fenv.h>
#include <math.h>

#include "tickets.h"

enum { LENGTH = 60, CLASSES = 5, EPOCHS = 4, BATCH = 6 };

typedef struct setting {
  const yard *y;
  tickets data;
  uint64_t seed;
} setting;

/* Creates a loader without workers. */
static tdict_status create_planned(setting *s, tdict_plan_epoch plan, void *user, tdict_loader **out,
                                   tdict_error *err) {
  const tdict_loader_options o = td_with(tdict_loader_options, plan_epoch = plan, plan_user = user, batch_size = BATCH,
                                         seed = s->seed, num_workers = 0);
  const tdict_dataset_table table = tickets_dataset(&s->data);
  return create_loader_of(s->y->c, &table, &o, out, err);
}
static tdict_loader *open_planned(setting *s, tdict_plan_epoch plan, void *user) {
  return td_made(loader, create_planned(s, plan, user, &made, err));
}
static tdict_status try_planned(setting *s, tdict_plan_epoch plan, void *user, tdict_error *err) {
  scoped_loader l = NULL;
  return create_planned(s, plan, user, &l, err);
}

/* Returns the number of samples of an epoch that are the same at the same positions of another epoch. */
static int64_t num_equal(const ticket_epoch *a, const ticket_epoch *b) {
  int64_t equal = 0;
  for (int64_t i = 0; i < a->begins[a->num_batches] && i < b->begins[b->num_batches]; i++)
    equal += a->all[i].index == b->all[i].index;
  return equal;
}

/* Checks that epochs and seeds differ from each other, and that one seed repeats its epochs. */
static void check_randomness(setting *s, tdict_plan_epoch plan, void *user) {
  static ticket_epoch found[3][EPOCHS];
  for (int k = 0; k < 3; k++) {
    s->seed = k == 2 ? 8 : 7;
    scoped_loader l = open_planned(s, plan, user);
    for (int e = 0; e < EPOCHS; e++) take_ticket_epoch(l, &found[k][e]);
  }
  for (int e = 0; e < EPOCHS; e++) {
    const int64_t count = found[0][e].begins[found[0][e].num_batches];
    assert_memory_equal(found[0][e].all, found[1][e].all, (size_t)count * sizeof(ticket));
    assert_true(num_equal(&found[0][e], &found[2][e]) < count / 3);
    if (e > 0) assert_true(num_equal(&found[0][e], &found[0][e - 1]) < count / 3);
  }
}

/* ---- balanced ---- */

/* Class 0 has most samples, and class 3 has none. */
static void fill_labels(int64_t *labels) {
  for (int64_t i = 0; i < LENGTH; i++) labels[i] = i % 20 == 7 ? 4 : i % 10 == 3 ? 2 : i % 5 == 1 ? 1 : 0;
}
static tdict_balanced_options balanced_of(const int64_t *labels, int64_t num_samples) {
  return td_with(tdict_balanced_options, labels = labels, num_labels = LENGTH, num_classes = CLASSES,
                 num_samples = num_samples);
}

CASE(balanced_plan_has_each_class_equally_often) {
  scoped_yard y = open_yard();
  setting s = {&y, {LENGTH}, 7};
  int64_t labels[LENGTH], sizes[CLASSES] = {0};
  fill_labels(labels);
  for (int i = 0; i < LENGTH; i++) sizes[labels[i]]++;
  for (int64_t num_samples = 0; num_samples < 200; num_samples += 9) {
    tdict_balanced_options o = balanced_of(labels, num_samples);
    scoped_loader l = open_planned(&s, tdict_plan_balanced, &o);
    for (int e = 0; e < EPOCHS; e++) {
      ticket_epoch found;
      int64_t of_class[CLASSES] = {0}, of_sample[LENGTH] = {0};
      take_ticket_epoch(l, &found);
      const int64_t count = found.begins[found.num_batches];
      assert_int_equal(count, num_samples ? num_samples : LENGTH);
      for (int64_t i = 0; i < count; i++) {
        const int64_t c = labels[found.all[i].index];
        /* Up to each place, the classes are equally frequent, and a class repeats no sample before it is exhausted. */
        assert_int_equal(of_class[c]++, i / (CLASSES - 1));
        assert_int_equal(of_sample[found.all[i].index]++, (of_class[c] - 1) / sizes[c]);
      }
    }
  }
  tdict_balanced_options o = balanced_of(labels, 0);
  check_randomness(&s, tdict_plan_balanced, &o);
}

/* With any number of classes, each round has each class once. */
CASE(balanced_plan_has_rounds_of_all_classes) {
  scoped_yard y = open_yard();
  setting s = {&y, {LENGTH}, 7};
  for (int64_t classes = 1; classes <= LENGTH; classes++) {
    int64_t labels[LENGTH];
    ticket_epoch found;
    for (int64_t i = 0; i < LENGTH; i++) labels[i] = i % classes;
    tdict_balanced_options o = balanced_of(labels, 3 * LENGTH);
    o.num_classes = classes;
    scoped_loader l = open_planned(&s, tdict_plan_balanced, &o);
    take_ticket_epoch(l, &found);
    for (int64_t i = 0, seen = 0; i < 3 * LENGTH; i++) {
      if (i % classes == 0) seen = 0;
      const int64_t bit = INT64_C(1) << labels[found.all[i].index];
      assert_int_equal(seen & bit, 0);
      seen |= bit;
    }
  }
}

CASE(balanced_plan_refuses) {
  scoped_yard y = open_yard();
  setting s = {&y, {LENGTH}, 7}, empty = {&y, {0}, 7};
  int64_t labels[LENGTH];
  fill_labels(labels);
  tdict_balanced_options o = balanced_of(labels, 0), good = o;
  labels[30] = CLASSES;
  td_fails(TDICT_EINVAL, "loader: plan_epoch for epoch 0: balanced: the label of sample 30 is 5, wanted 0 to 4",
           try_planned(&s, tdict_plan_balanced, &o, err));
  labels[30] = -1;
  td_fails(TDICT_EINVAL, "the label of sample 30 is -1", try_planned(&s, tdict_plan_balanced, &o, err));
  labels[30] = 0;
  o.num_labels--;
  td_fails(TDICT_EINVAL, "balanced: 59 labels, wanted 60", try_planned(&s, tdict_plan_balanced, &o, err));
  o = good;
  o.labels = NULL;
  td_fails(TDICT_EINVAL, "balanced: 60 labels at NULL", try_planned(&s, tdict_plan_balanced, &o, err));
  td_fails(TDICT_EINVAL, "balanced: 0 labels at NULL", try_planned(&s, tdict_plan_balanced, NULL, err));
  o = good;
  o.num_classes = 0;
  td_fails(TDICT_EINVAL, "balanced: num_classes is 0, wanted 1 or more", try_planned(&s, tdict_plan_balanced, &o, err));
  o = good;
  o.num_samples = -2;
  td_fails(TDICT_EINVAL, "balanced: num_samples is -2, wanted 0 or more",
           try_planned(&s, tdict_plan_balanced, &o, err));
  o = good;
  o.struct_size = 3;
  td_fails(TDICT_EINVAL, "balanced options", try_planned(&s, tdict_plan_balanced, &o, err));
  o = good;
  o.num_labels = 0;
  td_ok(try_planned(&empty, tdict_plan_balanced, &o, err));
  o.num_samples = 1;
  td_fails(TDICT_EINVAL, "balanced: num_samples is 1, but no class has a sample",
           try_planned(&empty, tdict_plan_balanced, &o, err));
}

/* ---- mixed ---- */

enum { PARTS = 4 };
static const int64_t part_lengths[PARTS] = {10, 30, 0, 20};
static tdict_mixed_options mixed_of(const double *weights, int64_t num_samples) {
  return td_with(tdict_mixed_options, lengths = part_lengths, weights = weights, num_parts = PARTS,
                 num_samples = num_samples);
}
static int part_of(int64_t index) { return index < 10 ? 0 : index < 40 ? 1 : 3; }

CASE(mixed_plan_follows_the_weights) {
  scoped_yard y = open_yard();
  setting s = {&y, {LENGTH}, 7};
  static const double weights[][PARTS] = {
      {1, 1, 0, 1}, {5, 1, 0, 2}, {0.1, 0.7, 0, 0.2}, {0, 3, 0, 0}, {1e9, 1, 0, 1e9}};
  for (size_t w = 0; w < sizeof weights / sizeof *weights; w++)
    for (int64_t num_samples = 0; num_samples < 240; num_samples += 60) {
      tdict_mixed_options o = mixed_of(weights[w], num_samples);
      scoped_loader l = open_planned(&s, tdict_plan_mixed, &o);
      double sum = 0;
      for (int p = 0; p < PARTS; p++) sum += weights[w][p];
      for (int e = 0; e < EPOCHS; e++) {
        ticket_epoch found;
        int64_t of_part[PARTS] = {0}, of_sample[LENGTH] = {0};
        take_ticket_epoch(l, &found);
        const int64_t count = found.begins[found.num_batches];
        assert_int_equal(count, num_samples ? num_samples : LENGTH);
        for (int64_t i = 0; i < count; i++) {
          const int part = part_of(found.all[i].index);
          of_part[part]++;
          assert_int_equal(of_sample[found.all[i].index]++, (of_part[part] - 1) / part_lengths[part]);
          for (int p = 0; p < PARTS; p++) {
            const double wrong = (double)of_part[p] - (double)(i + 1) * weights[w][p] / sum;
            assert_true(wrong < PARTS && wrong > -PARTS);
            if (weights[w][p] == 0) assert_int_equal(of_part[p], 0);
          }
        }
      }
    }
  tdict_mixed_options o = mixed_of(weights[1], 0);
  check_randomness(&s, tdict_plan_mixed, &o);
}

/* A program may change how the processor rounds. */
CASE(mixed_plan_ignores_the_rounding_mode) {
  scoped_yard y = open_yard();
  setting s = {&y, {LENGTH}, 7};
  static const double weights[PARTS] = {0.1, 0.7, 0, 0.3};
  static const int modes[] = {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO};
  tdict_mixed_options o = mixed_of(weights, 230);
  uint64_t hash = 0;
  for (int m = 0; m < 3; m++) {
    scoped_loader l = open_planned(&s, tdict_plan_mixed, &o);
    tdict_loader_state state = state_of(l);
    state.batch = 1;
    fesetround(modes[m]);
    td_ok(tdict_loader_set_state(l, &state, err));
    fesetround(FE_TONEAREST);
    state = state_of(l);
    assert_true(state.plan_hash != 0 && (m == 0 || state.plan_hash == hash));
    hash = state.plan_hash;
  }
}

CASE(mixed_plan_refuses) {
  scoped_yard y = open_yard();
  setting s = {&y, {LENGTH}, 7};
  double weights[PARTS] = {1, 1, 0, 1};
  tdict_mixed_options o = mixed_of(weights, 0);
  td_ok(try_planned(&s, tdict_plan_mixed, &o, err));
  weights[2] = 1;
  td_fails(TDICT_EINVAL, "mixed: part 2 has a weight, but no sample", try_planned(&s, tdict_plan_mixed, &o, err));
  weights[2] = -1;
  td_fails(TDICT_EINVAL, "mixed: weight 2 is -1", try_planned(&s, tdict_plan_mixed, &o, err));
  weights[2] = (double)INFINITY;
  td_fails(TDICT_EINVAL, "mixed: weight 2 is inf", try_planned(&s, tdict_plan_mixed, &o, err));
  memset(weights, 0, sizeof weights);
  td_fails(TDICT_EINVAL, "mixed: all weights are 0", try_planned(&s, tdict_plan_mixed, &o, err));
  atomic_store(&s.data.length, LENGTH + 1);
  td_fails(TDICT_EINVAL, "mixed: the parts have 60 samples, but the dataset has 61",
           try_planned(&s, tdict_plan_mixed, &o, err));
  atomic_store(&s.data.length, LENGTH - 1);
  td_fails(TDICT_EINVAL, "mixed: part 3 has 20 samples, wanted 0 to 19", try_planned(&s, tdict_plan_mixed, &o, err));
  o.num_samples = -1;
  td_fails(TDICT_EINVAL, "mixed: num_samples is negative", try_planned(&s, tdict_plan_mixed, &o, err));
  o.num_samples = 0;
  o.weights = NULL;
  td_fails(TDICT_EINVAL, "mixed: lengths or weights are missing", try_planned(&s, tdict_plan_mixed, &o, err));
  td_fails(TDICT_EINVAL, "mixed: lengths or weights are missing", try_planned(&s, tdict_plan_mixed, NULL, err));
  o.struct_size = 3;
  td_fails(TDICT_EINVAL, "mixed options", try_planned(&s, tdict_plan_mixed, &o, err));
}

/* ---- bucketed ---- */

static tdict_bucketed_options bucketed_of(const int64_t *lengths, int64_t max_tokens) {
  return td_with(tdict_bucketed_options, lengths = lengths, num_lengths = LENGTH, max_tokens = max_tokens,
                 bucket_width = 4);
}
static void fill_lengths(int64_t *lengths) {
  for (int64_t i = 0; i < LENGTH; i++) lengths[i] = i * i * 7 % 31;
}

CASE(bucketed_plan_keeps_the_budget) {
  scoped_yard y = open_yard();
  setting s = {&y, {LENGTH}, 7};
  int64_t lengths[LENGTH];
  fill_lengths(lengths);
  for (int round = 0; round < 12; round++) {
    tdict_bucketed_options o = bucketed_of(lengths, 30 + 25 * (round / 2));
    o.counts_padding = round % 2 == 0;
    scoped_loader l = open_planned(&s, tdict_plan_bucketed, &o);
    for (int e = 0; e < EPOCHS; e++) {
      ticket_epoch found;
      int64_t of_sample[LENGTH] = {0}, full = 0, jumps = 0, last = 0;
      take_ticket_epoch(l, &found);
      assert_int_equal(found.begins[found.num_batches], LENGTH);
      for (int64_t b = 0; b < found.num_batches; b++) {
        const int64_t count = found.begins[b + 1] - found.begins[b];
        int64_t sum = 0, most = 0, least = 1000;
        for (int64_t i = found.begins[b]; i < found.begins[b + 1]; i++) {
          const int64_t length = lengths[found.all[i].index];
          assert_int_equal(of_sample[found.all[i].index]++, 0);
          sum += length;
          most = length > most ? length : most;
          least = length < least ? length : least;
          if (i > found.begins[b]) assert_true(lengths[found.all[i - 1].index] / 4 <= length / 4);
        }
        assert_true(count <= BATCH && (o.counts_padding ? count * most : sum) <= o.max_tokens);
        full += count == BATCH || (o.counts_padding ? count * most : sum) > o.max_tokens - 31;
        jumps += most < last;
        last = most;
      }
      assert_true(full >= found.num_batches / 2);  /* batches are as large as the budget allows */
      assert_true(jumps >= found.num_batches / 6); /* the batches are shuffled */
    }
  }
  tdict_bucketed_options o = bucketed_of(lengths, 100);
  check_randomness(&s, tdict_plan_bucketed, &o);
}

CASE(bucketed_plan_refuses) {
  scoped_yard y = open_yard();
  setting s = {&y, {LENGTH}, 7}, empty = {&y, {0}, 7};
  int64_t lengths[LENGTH];
  fill_lengths(lengths);
  tdict_bucketed_options o = bucketed_of(lengths, 30), good = o;
  lengths[9] = 31;
  td_fails(TDICT_EINVAL, "bucketed: sample 9 has 31 tokens, wanted 0 to max_tokens, which is 30",
           try_planned(&s, tdict_plan_bucketed, &o, err));
  lengths[9] = -1;
  td_fails(TDICT_EINVAL, "bucketed: sample 9 has -1 tokens", try_planned(&s, tdict_plan_bucketed, &o, err));
  o.num_lengths = 7;
  td_fails(TDICT_EINVAL, "bucketed: 7 lengths, wanted 60", try_planned(&s, tdict_plan_bucketed, &o, err));
  o = good;
  o.lengths = NULL;
  td_fails(TDICT_EINVAL, "bucketed: 60 lengths at NULL", try_planned(&s, tdict_plan_bucketed, &o, err));
  o = good;
  o.max_tokens = 0;
  td_fails(TDICT_EINVAL, "bucketed: max_tokens is 0, wanted 1 or more", try_planned(&s, tdict_plan_bucketed, &o, err));
  o = good;
  o.bucket_width = 0;
  td_fails(TDICT_EINVAL, "bucketed: bucket_width is 0", try_planned(&s, tdict_plan_bucketed, &o, err));
  o = good;
  o.struct_size = 3;
  td_fails(TDICT_EINVAL, "bucketed options", try_planned(&s, tdict_plan_bucketed, &o, err));
  o = good;
  o.num_lengths = 0;
  td_ok(try_planned(&empty, tdict_plan_bucketed, &o, err));
}

CASE(plans_of_the_library_need_memory) {
  scoped_yard y = open_yard();
  setting s = {&y, {LENGTH}, 7};
  int64_t labels[LENGTH], lengths[LENGTH];
  static const double weights[PARTS] = {1, 1, 0, 1};
  fill_labels(labels);
  fill_lengths(lengths);
  tdict_balanced_options balanced = balanced_of(labels, 0);
  tdict_mixed_options mixed = mixed_of(weights, 0);
  tdict_bucketed_options bucketed = bucketed_of(lengths, 40);
  const struct {
    tdict_plan_epoch plan;
    void *user;
  } kinds[] = {{tdict_plan_balanced, &balanced}, {tdict_plan_mixed, &mixed}, {tdict_plan_bucketed, &bucketed}};
  for (size_t k = 0; k < 3; k++) {
    TD_SWEEP(sweep) {
      if (!td_refused(sweep, try_planned(&s, kinds[k].plan, kinds[k].user, err))) assert_true(sweep.n >= 10);
    }
  }
}
