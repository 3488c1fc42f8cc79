/* Runs loaders with random plans and orders, workers, ranks, prefetching, resumes and seeds. Together, the ranks must
 * see each sample of an epoch that one rank without workers sees, with the same seed and position. The options --runs
 * and --seed set the number of runs and the first seed. */
#include "support/random.h"
#include "tickets.h"

enum { EPOCHS = 3, MOST_SAMPLES = 40, MOST_BATCH = 7, MOST_RANKS = 4, CLASSES = 4, LONGEST = 9, BUDGET = 20 };

/* ORDER divides samples over ranks, the other kinds divide batches. The last two kinds have a sampler, and no
 * plan_epoch. */
typedef enum kind { OWN, BALANCED, BUCKETED, MIXED, TOKENS, ORDER, NUM_KINDS } kind;

typedef struct run {
  rng random;
  const yard *y;
  tickets data;
  kind kind;
  tdict_loader_options options;
  int64_t length, num_samples, lengths[MOST_SAMPLES], labels[MOST_SAMPLES];
  int64_t part_lengths[2];
  double weights[2];
  tdict_balanced_options balanced;
  tdict_bucketed_options bucketed;
  tdict_mixed_options mixed;
  double sample_weights[MOST_SAMPLES];
  tdict_sampler_options order;
  ticket_epoch whole[EPOCHS];     /* what one rank sees */
  int seen[EPOCHS][MOST_TICKETS]; /* how often the ranks saw a position, without repeats that complete a round */
  int32_t world_size;
  int32_t last_world[EPOCHS]; /* the number of ranks at the end of the epoch */
  tdict_loader_state state;   /* of all ranks */
} run;

static int64_t sample_length(void *self, int64_t index) { return (index * 5 + ((run *)self)->length) % LONGEST; }
static int64_t run_length(void *self) { return ((run *)self)->length; }
static tdict_status run_fetch(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch, int64_t row,
                              tdict_error *err) {
  return tickets_fetch(&((run *)self)->data, info, index, batch, row, err);
}

/* Plans a curriculum of batches of random sizes: a later epoch has more samples. */
static tdict_status plan_own(void *user, const tdict_epoch_info *info, tdict_epoch *epoch, tdict_error *err) {
  const run *r = user;
  tdict_random random = tdict_random_from(info->seed);
  (void)err;
  for (int64_t i = 0; i < r->num_samples + info->epoch && info->num_indices > 0; i++) {
    tdict_epoch_add(epoch, tdict_random_below(&random, info->num_indices));
    if (tdict_random_below(&random, 4) == 0) tdict_epoch_end_batch(epoch);
  }
  return TDICT_OK;
}

static void roll_plan(run *r) {
  for (int64_t i = 0; i < r->length; i++) {
    r->lengths[i] = sample_length(r, i);
    r->labels[i] = pick(&r->random, 0, CLASSES - 1);
  }
  r->part_lengths[0] = pick(&r->random, 1, r->length);
  r->part_lengths[1] = r->length - r->part_lengths[0];
  for (int i = 0; i < 2; i++) r->weights[i] = r->part_lengths[i] ? (double)pick(&r->random, i, 5) + 0.5 * !i : 0;
  r->balanced = td_with(tdict_balanced_options, labels = r->labels, num_labels = (size_t)r->length,
                        num_classes = CLASSES, num_samples = r->num_samples);
  r->bucketed =
      td_with(tdict_bucketed_options, lengths = r->lengths, num_lengths = (size_t)r->length, max_tokens = BUDGET,
              bucket_width = pick(&r->random, 1, 4), counts_padding = pick(&r->random, 0, 1));
  r->mixed = td_with(tdict_mixed_options, lengths = r->part_lengths, weights = r->weights, num_parts = 2,
                     num_samples = r->num_samples);
}

static void roll_order(run *r) {
  for (int64_t i = 0; i < r->length; i++) r->sample_weights[i] = (double)pick(&r->random, i > 0 ? 0 : 1, 5);
  r->order = td_with(tdict_sampler_options, kind = (int32_t)pick(&r->random, 0, TDICT_SAMPLER_WEIGHTED),
                     seed = next_random(&r->random), weights = r->sample_weights, num_weights = (size_t)r->length,
                     drop_uneven = pick(&r->random, 0, 2) == 0);
  const bool repeats = r->order.kind >= TDICT_SAMPLER_WITH_REPLACEMENT;
  r->order.num_samples = pick(&r->random, 0, repeats ? 2 * MOST_SAMPLES : r->length);
}

static void roll_run(run *r, uint64_t seed) {
  memset(r, 0, sizeof *r);
  r->random.state = seed;
  r->kind = (kind)pick(&r->random, 0, NUM_KINDS - 1);
  r->length = pick(&r->random, 1, MOST_SAMPLES);
  atomic_store(&r->data.length, r->length);
  r->num_samples = pick(&r->random, 0, 2 * MOST_SAMPLES);
  roll_plan(r);
  roll_order(r);
  r->options = td_with(tdict_loader_options, batch_size = pick(&r->random, 1, MOST_BATCH),
                       seed = next_random(&r->random), drop_last = pick(&r->random, 0, 3) == 0);
  if (r->kind == TOKENS) r->options.max_tokens = BUDGET;
  static const tdict_plan_epoch plans[] = {plan_own, tdict_plan_balanced, tdict_plan_bucketed, tdict_plan_mixed};
  void *const users[] = {r, &r->balanced, &r->bucketed, &r->mixed};
  if (r->kind < TOKENS) {
    r->options.plan_epoch = plans[r->kind];
    r->options.plan_user = users[r->kind];
  }
}

static tdict_loader *open_rank(run *r, int32_t rank, int32_t world_size, bool has_workers) {
  tdict_loader_options o = r->options;
  tdict_sampler_options order = r->order;
  scoped_sampler sampler = NULL;
  tdict_dataset_table table = tickets_dataset(&r->data);
  table.self = r;
  table.length = run_length;
  table.fetch = run_fetch;
  table.sample_length = sample_length;
  order.rank = rank;
  order.world_size = world_size;
  if (r->kind >= TOKENS) {
    td_ok(tdict_sampler_create(r->length, &order, &sampler, err));
    o.sampler = sampler;
  } else {
    o.rank = rank;
    o.world_size = world_size;
  }
  if (world_size == 1 && !has_workers && r->kind == ORDER) o.drop_last = false; /* to see the samples left out */
  o.num_workers = has_workers ? (int32_t)pick(&r->random, 0, 3) : 0;
  o.prefetch = (int32_t)pick(&r->random, 0, 5);
  o.prefetch_bytes = pick(&r->random, 0, 3) ? 0 : (size_t)pick(&r->random, 1, 300);
  return open_loader(r->y, &table, &o);
}

/* ---- what a rank must see ---- */

static int64_t divide(int64_t count, int64_t parts, bool drops) { return (drops ? count : count + parts - 1) / parts; }
static int64_t num_samples_of(const ticket_epoch *e) { return e->begins[e->num_batches]; }

/* Returns the number of batches that each of `world_size` ranks takes in an epoch. */
static int64_t num_batches_of(const run *r, int64_t epoch, int32_t world_size) {
  const ticket_epoch *e = &r->whole[epoch];
  const bool drops = r->kind >= TOKENS && r->order.drop_uneven;
  if (r->kind != ORDER) return divide(e->num_batches, world_size, drops);
  return divide(divide(num_samples_of(e), world_size, drops), r->options.batch_size, r->options.drop_last);
}
/* Returns the number of positions that the ranks must see in an epoch. */
static int64_t num_positions_of(const run *r, int64_t epoch) {
  const ticket_epoch *e = &r->whole[epoch];
  const int32_t world_size = r->last_world[epoch];
  const int64_t places = num_batches_of(r, epoch, world_size) * world_size, all = num_samples_of(e);
  if (r->kind != ORDER) return e->begins[places < e->num_batches ? places : e->num_batches];
  const int64_t drawn = divide(all, world_size, r->order.drop_uneven) * world_size;
  const int64_t most = r->options.drop_last ? places * r->options.batch_size : drawn;
  return most < all ? most : all;
}

/* A loader of a rank, and the batch that it must deliver next. */
typedef struct reader {
  tdict_loader *loader;
  int32_t rank;
  int64_t epoch, batch;
} reader;

/* Writes the tickets of the next batch. Returns their number. If `marks` is true, marks as seen those that do not
 * repeat samples from the start of the epoch. */
static int64_t expect_batch(run *r, const reader *at, ticket *out, bool marks) {
  const ticket_epoch *e = &r->whole[at->epoch];
  const int64_t size = r->options.batch_size, all = num_samples_of(e), world = r->world_size;
  int64_t count = 0;
  if (r->kind == ORDER) {
    const int64_t most = divide(all, world, r->order.drop_uneven);
    for (int64_t i = at->batch * size; i < (at->batch + 1) * size && i < most; i++) {
      const int64_t position = i * world + at->rank;
      out[count] = e->all[position % all];
      out[count++].position = position;
      if (marks && position < all) r->seen[at->epoch][position]++;
    }
    return count;
  }
  const int64_t place = at->batch * world + at->rank, first = e->begins[place % e->num_batches];
  for (; first + count < e->begins[place % e->num_batches + 1]; count++) {
    out[count] = e->all[first + count];
    if (marks && place < e->num_batches) r->seen[at->epoch][first + count]++;
  }
  return count;
}

/* ---- the ranks ---- */

/* Takes and checks up to `steps` batches or ends of epochs. */
static void take_steps(run *r, reader *at, int64_t steps, bool marks) {
  for (; steps > 0 && at->epoch < EPOCHS; steps--) {
    ticket found[MOST_BATCH], want[MOST_BATCH];
    const int64_t count = take_tickets(at->loader, found, MOST_BATCH);
    if (at->batch == num_batches_of(r, at->epoch, r->world_size)) {
      assert_int_equal(count, -1);
      if (at->batch == 0 && marks) r->last_world[at->epoch] = r->world_size;
      at->epoch++;
      at->batch = 0;
      continue;
    }
    assert_int_equal(count, expect_batch(r, at, want, marks));
    assert_memory_equal(found, want, (size_t)count * sizeof *found);
    at->batch++;
    if (marks) r->last_world[at->epoch] = r->world_size;
  }
}

/* Tries to continue with another number of ranks. */
static void change_ranks(run *r) {
  const int32_t to = (int32_t)pick(&r->random, 1, MOST_RANKS), from = r->world_size;
  const int64_t taken = r->state.batch * from;
  const bool is_end = r->state.batch > 0 && r->state.batch == num_batches_of(r, r->state.epoch, from);
  if (to == from) return;
  scoped_loader l = open_rank(r, 0, to, true);
  if (!is_end && taken % to) {
    td_fails(TDICT_EINVAL, "which is no multiple of", tdict_loader_set_state(l, &r->state, err));
  } else {
    const int64_t batch = is_end ? num_batches_of(r, r->state.epoch, to) : taken / to;
    const int64_t epoch = r->state.epoch + (is_end && batch == 0); /* to ranks that take no batch, the epoch is over */
    td_ok(tdict_loader_set_state(l, &r->state, err));
    r->state = state_of(l);
    r->world_size = to;
    assert_true(r->state.epoch == epoch && r->state.batch == batch);
    if (!is_end) r->last_world[epoch] = to;
  }
}

/* Lets each rank continue from the state and take the same number of batches. The state is then that of all ranks. */
static void run_ranks(run *r, bool is_first) {
  const int64_t steps = pick(&r->random, 0, 3) ? pick(&r->random, 0, 20) : 1000;
  const tdict_loader_state from = r->state;
  for (int32_t rank = 0; rank < r->world_size; rank++) {
    scoped_loader l = open_rank(r, rank, r->world_size, true);
    reader at = {l, rank, from.epoch, from.batch};
    if (!is_first) td_ok(tdict_loader_set_state(l, &from, err));
    if (pick(&r->random, 0, 3) == 0) { /* goes some steps ahead, and then back */
      const tdict_loader_state back = state_of(l);
      take_steps(r, &at, pick(&r->random, 0, 9), false);
      td_ok(tdict_loader_set_state(l, &back, err));
      at = (reader){l, rank, from.epoch, from.batch};
    }
    take_steps(r, &at, steps, true);
    const tdict_loader_state now = state_of(l);
    assert_true(now.epoch == at.epoch && now.batch == at.batch);
    if (rank > 0) assert_memory_equal(&now, &r->state, sizeof now);
    r->state = now;
  }
}

static void check_run(const yard *y, uint64_t seed) {
  static run r;
  roll_run(&r, seed);
  r.y = y;
  {
    scoped_loader one = open_rank(&r, 0, 1, false);
    for (int e = 0; e < EPOCHS; e++) take_ticket_epoch(one, &r.whole[e]);
  }
  r.world_size = (int32_t)pick(&r.random, 1, MOST_RANKS);
  run_ranks(&r, true);
  while (r.state.epoch < EPOCHS) {
    change_ranks(&r);
    run_ranks(&r, false);
  }
  for (int e = 0; e < EPOCHS; e++)
    for (int64_t i = 0; i < num_samples_of(&r.whole[e]); i++)
      assert_int_equal(r.seen[e][i], i < num_positions_of(&r, e));
}

static int64_t running = -1; /* the seed of the run that has not ended */
static void name_failed_run(void) {
  if (running >= 0) printf("to repeat the run: epoch_plan_random_runs host --runs 1 --seed %lld\n", (long long)running);
}

CASE(epoch_plan_random_runs) {
  scoped_yard y = open_yard();
  const int64_t runs = td_number("--runs", 2200 / SANITIZED_STEP), seed = td_number("--seed", 1);
  atexit(name_failed_run);
  for (int64_t i = 0; i < runs; i++) {
    running = seed + i;
    check_run(&y, (uint64_t)running);
  }
  running = -1;
}
