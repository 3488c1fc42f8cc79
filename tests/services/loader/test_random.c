/* Tests the distribution of the library's random orders and draws: SHUFFLED samplers, the other kinds, and epochs of
 * replay buffers. Each test counts draws and compares the counts with a uniform shuffle or with the weights. Draws with
 * different seeds, epochs, ranks or counts must be independent. The option --draws sets the number of draws of each
 * test and prints each result. Only the main thread runs. */
#include "replay_rows.h"
#include "statistics.h"

enum { MOST_CELLS = 40320 * 2 };
static int64_t seen[MOST_CELLS];
static double chances[MOST_CELLS];

static int64_t draws_of(int64_t otherwise) {
  return td_number("--draws", SANITIZED ? otherwise / SANITIZED_STEP : otherwise);
}
static tdict_sampler *sampler_of(int32_t kind, int64_t length, uint64_t seed, int64_t num_samples) {
  tdict_sampler_options o = td_with(tdict_sampler_options, kind = kind, seed = seed, num_samples = num_samples);
  tdict_sampler *s = td_made(sampler, tdict_sampler_create(length, &o, &made, err));
  return s;
}
/* Returns a number from 0 to num_orders(count) - 1 that identifies an order of `count` elements. */
static int64_t number_of_order(const int64_t *order, int64_t count) {
  int64_t number = 0;
  for (int64_t i = 0; i < count; i++) {
    int64_t smaller = 0;
    for (int64_t k = i + 1; k < count; k++) smaller += order[k] < order[i];
    number = number * (count - i) + smaller;
  }
  return number;
}
static int64_t num_orders(int64_t count) { return count < 2 ? 1 : count * num_orders(count - 1); }
static int64_t order_at(const tdict_sampler *s, int64_t epoch, int64_t count) {
  int64_t order[8];
  for (int64_t i = 0; i < count; i++) order[i] = tdict_sampler_get(s, epoch, i);
  return number_of_order(order, count);
}
static int64_t order_of_seed(uint64_t seed, int64_t epoch, int64_t count) {
  scoped_sampler s = sampler_of(TDICT_SAMPLER_SHUFFLED, count, seed, 0);
  int64_t number = order_at(s, epoch, count);
  return number;
}
static void clear_cells(void) { memset(seen, 0, sizeof seen); }

/* Over epochs and over seeds, every order of up to eight samples is equally likely. */
CASE(random_small_shuffles_have_all_orders) {
  for (int64_t count = 2; count <= 8; count++) {
    int64_t orders = num_orders(count), draws = draws_of(orders * 24 + 100000);
    tdict_sampler *s = sampler_of(TDICT_SAMPLER_SHUFFLED, count, 5, 0);
    clear_cells();
    for (int64_t epoch = 0; epoch < draws; epoch++) seen[order_at(s, epoch, count)]++;
    check_cells("orders of epochs", count, seen, NULL, orders);
    tdict_sampler_release(s);
    clear_cells();
    for (int64_t seed = 0; seed < draws; seed++) seen[order_of_seed((uint64_t)seed, 3, count)]++;
    check_cells("orders of seeds", count, seen, NULL, orders);
  }
}

/* The samples of three ranks together have every order equally often, and no rank depends on another. */
CASE(random_ranks_share_all_orders) {
  enum { COUNT = 6, WORLD = 3 };
  tdict_sampler *ranks[WORLD] = {NULL};
  tdict_sampler_options o = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_SHUFFLED, world_size = WORLD);
  for (o.rank = 0; o.rank < WORLD; o.rank++) td_ok(tdict_sampler_create(COUNT, &o, &ranks[o.rank], err));
  clear_cells();
  for (int64_t epoch = 0; epoch < draws_of(100000); epoch++) {
    int64_t order[COUNT];
    for (int64_t i = 0; i < COUNT; i++) order[i] = tdict_sampler_get(ranks[i / 2], epoch, i % 2);
    seen[number_of_order(order, COUNT)]++;
  }
  check_cells("orders of ranks", COUNT, seen, NULL, num_orders(COUNT));
  for (int r = 0; r < WORLD; r++) tdict_sampler_release(ranks[r]);
}

/* Counts pairs of orders with neighbouring arguments. The two orders of a pair must be independent. */
CASE(random_orders_are_independent) {
  enum { COUNT = 4, ORDERS = 24, PAIRS = 5 };
  static const char *const names[PAIRS] = {"epochs", "seeds", "seed and epoch", "seed and epoch swapped", "counts"};
  const int64_t draws = draws_of(100000);
  for (int kind = 0; kind < PAIRS; kind++) {
    clear_cells();
    for (int64_t k = 0; k < draws; k++) {
      uint64_t seed = (uint64_t)k / 500 * 2 + 1, other_seed = seed + (kind == 1 || kind == 2);
      int64_t epoch = k % 500 * 2, other_epoch = epoch + (kind == 0 || kind == 2);
      if (kind == 3) other_seed = (uint64_t)epoch, other_epoch = (int64_t)seed;
      int64_t a = order_of_seed(seed, epoch, COUNT);
      int64_t b = order_of_seed(other_seed, other_epoch, kind == 4 ? COUNT + 1 : COUNT);
      seen[b * ORDERS + a]++;
    }
    check_cells(names[kind], COUNT, seen, NULL, kind == 4 ? ORDERS * ORDERS * (COUNT + 1) : ORDERS * ORDERS);
  }
}

/* Returns the fraction of the permutations of `count` elements that have no fixed point. */
static double share_of_derangements(int64_t count) {
  double share = 0, term = 1;
  for (int64_t i = 0; i <= count; i++, term /= -(double)i) share += term;
  return share;
}
/* Returns the probability that a permutation of `count` elements has `points` fixed points. If `successions` is true,
 * the points are places whose element is the successor of the previous element. */
static double chance_of_points(int64_t count, int64_t points, bool successions) {
  int64_t others = count - points;
  double chance = 1;
  for (int64_t i = 1; i <= points; i++) chance /= (double)i;
  if (others < (successions ? 1 : 0)) return 0;
  if (!successions) return chance * share_of_derangements(others);
  return chance * ((double)others * share_of_derangements(others) + share_of_derangements(others - 1)) / (double)count;
}

/* Counters of the shuffles of `count` elements. Values and places are grouped into `side` blocks. */
typedef struct tally {
  int64_t count, side, gaps;
  int64_t *table, *gap, *pairs[2], points[12], successions[12];
  double *expected;
} tally;

static int64_t block_of(const tally *t, int64_t value) {
  __extension__ typedef __int128 wide;
  return (int64_t)((wide)value * t->side / t->count);
}
static tally tally_of(int64_t count) {
  tally t = {.count = count, .side = count < 40 ? count : 40, .gaps = count < 600 ? count : 600};
  t.table = calloc((size_t)(t.side * t.side), sizeof *t.table);
  t.expected = calloc((size_t)(t.side * t.side), sizeof *t.expected);
  t.gap = calloc((size_t)t.gaps, sizeof *t.gap);
  for (int k = 0; k < 2; k++) t.pairs[k] = calloc((size_t)(t.side * t.side), sizeof *t.pairs[k]);
  return t;
}
static void count_order(tally *t, const int64_t *order) {
  int64_t fixed = 0, successions = 0, middle = t->count / 2;
  for (int64_t i = 0; i < t->count; i++) {
    t->table[block_of(t, i) * t->side + block_of(t, order[i])]++;
    fixed += order[i] == i;
    if (i == 0) continue;
    int64_t gap = (order[i] - order[i - 1] + t->count) % t->count;
    successions += order[i] == order[i - 1] + 1;
    if (t->count >= 64 || i == middle) t->gap[(gap - 1) * t->gaps / t->count]++;
  }
  t->points[fixed < 11 ? fixed : 11]++;
  t->successions[successions < 11 ? successions : 11]++;
  if (t->count > t->side) return;
  t->pairs[0][order[0] * t->side + order[1]]++;
  t->pairs[1][order[middle] * t->side + order[t->count - 1]]++;
}
static void check_points(const char *what, const tally *t, const int64_t *points, bool successions) {
  double left = 1;
  for (int64_t k = 0; k < 11; k++) left -= chances[k] = chance_of_points(t->count, k, successions);
  chances[11] = left > 0 ? left : 0;
  check_cells(what, t->count, points, chances, 12);
}
static void check_tally(tally *t, int64_t epochs) {
  double elements[40] = {0}; /* number of elements in each block */
  for (int64_t i = 0; i < t->count; i++) elements[block_of(t, i)]++;
  for (int64_t i = 0; i < t->side * t->side; i++)
    t->expected[i] = (double)epochs * elements[i / t->side] * elements[i % t->side] / (double)t->count;
  check_table("positions", t->count, t->table, t->expected, t->side);
  memset(chances, 0, sizeof chances);
  for (int64_t gap = 1; gap < t->count; gap++) chances[(gap - 1) * t->gaps / t->count] += 1 / (double)(t->count - 1);
  check_cells("gaps of neighbours", t->count, t->gap, chances, t->gaps);
  check_points("fixed points", t, t->points, false);
  check_points("successions", t, t->successions, true);
  if (t->count > t->side) return;
  for (int64_t i = 0; i < t->side * t->side; i++)
    chances[i] = i / t->side == i % t->side ? 0 : 1 / (double)(t->count * (t->count - 1));
  check_cells("first pairs", t->count, t->pairs[0], chances, t->side * t->side);
  check_cells("distant pairs", t->count, t->pairs[1], chances, t->side * t->side);
}

/* Counts places, gaps and pairs in whole epochs of 9 or more elements. Above 256 elements, the shuffle uses a different
 * method. */
CASE(random_large_shuffles_are_uniform) {
  static const int64_t counts[] = {9, 10, 16, 17, 32, 33, 64, 100, 256, 257, 289, 300, 1000, 4099};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    int64_t count = counts[c], epochs = draws_of(1000000) / count + 1;
    if (epochs < 40 * 20 * 40 / count + 1) epochs = 40 * 20 * 40 / count + 1;
    TD_FREED int64_t *order = calloc((size_t)count, sizeof *order);
    tdict_sampler *s = sampler_of(TDICT_SAMPLER_SHUFFLED, count, 11, 0);
    tally t = tally_of(count);
    for (int64_t epoch = 0; epoch < epochs; epoch++) {
      for (int64_t i = 0; i < count; i++) order[i] = tdict_sampler_get(s, epoch, i);
      count_order(&t, order);
    }
    check_tally(&t, epochs);
    tdict_sampler_release(s);
    free(t.table);
    free(t.expected);
    free(t.gap);
    free(t.pairs[0]);
    free(t.pairs[1]);
  }
}

enum { SIDE = 32 };
static int64_t block_below(int64_t value, int64_t length) {
  __extension__ typedef __int128 wide;
  return length < SIDE ? value : (int64_t)((wide)value * SIDE / length);
}
/* Counts pairs of draws in blocks: at neighbouring places, in neighbouring epochs, or with neighbouring seeds. */
static void check_pairs_of(const char *what, const tdict_sampler *a, const tdict_sampler *b, int64_t length,
                           int64_t more_epochs, int64_t more_places) {
  int64_t side = length < SIDE ? length : SIDE, each = tdict_sampler_length(a) - 1;
  clear_cells();
  for (int64_t k = 0, draws = draws_of(200000); k < draws; k++) {
    int64_t epoch = k / each * 2, place = k % each;
    int64_t x = tdict_sampler_get(a, epoch, place), y = tdict_sampler_get(b, epoch + more_epochs, place + more_places);
    assert_true(x >= 0 && x < length && y >= 0 && y < length);
    seen[block_below(x, length) * side + block_below(y, length)]++;
  }
  for (int64_t i = 0; i < side * side; i++) chances[i] = 1 / (double)(side * side);
  check_cells(what, length, seen, chances, side * side);
}

/* Checks pairs of draws within an epoch, of two epochs, and of two seeds. */
static void check_independent(const char *kind_name, int32_t kind, int64_t length, int64_t num_samples) {
  char what[64];
  scoped_sampler s = sampler_of(kind, length, 3, num_samples), t = sampler_of(kind, length, 4, num_samples);
  snprintf(what, sizeof what, "%s, places", kind_name);
  check_pairs_of(what, s, s, length, 0, 1);
  snprintf(what, sizeof what, "%s, epochs", kind_name);
  check_pairs_of(what, s, s, length, 1, 0);
  snprintf(what, sizeof what, "%s, seeds", kind_name);
  check_pairs_of(what, s, t, length, 0, 0);
}

/* Some lengths are too large to count each element, so draws are counted in blocks. Lengths are multiples of SIDE or
 * far above it. */
CASE(random_huge_shuffles_are_uniform) {
  static const int64_t lengths[] = {100000, 1281184, (int64_t)1 << 33, ((int64_t)1 << 50) - 27, INT64_MAX};
  for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++)
    check_independent("shuffle", TDICT_SAMPLER_SHUFFLED, lengths[k], 50000);
}

CASE(random_draws_with_replacement_are_independent) {
  static const int64_t lengths[] = {2, 3, 7, 10, 32, 4096, ((int64_t)1 << 33) + 32, INT64_MAX};
  for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
    check_independent("replacement", TDICT_SAMPLER_WITH_REPLACEMENT, lengths[k], 1001);
    if (lengths[k] > 100) continue;
    scoped_sampler shuffled = sampler_of(TDICT_SAMPLER_SHUFFLED, lengths[k], 3, lengths[k]);
    scoped_sampler s = sampler_of(TDICT_SAMPLER_WITH_REPLACEMENT, lengths[k], 3, lengths[k]);
    check_pairs_of("shuffle and replacement of one seed", shuffled, s, lengths[k], 0, 0);
  }
}

/* Checks that draws have the probabilities of the weights: pairs from two epochs, or single draws if the list is
 * long. */
static void check_weights(const char *what, const double *weights, int64_t length) {
  bool joint = length <= 64;
  double sum = 0;
  tdict_sampler_options o = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_WEIGHTED, weights = weights,
                                    num_weights = (size_t)length, num_samples = 1000);
  scoped_sampler s = td_made(sampler, tdict_sampler_create(length, &o, &made, err));
  clear_cells();
  for (int64_t k = 0, draws = draws_of(400000); k < draws; k++) {
    int64_t at = tdict_sampler_get(s, k / 1000, k % 1000), next = tdict_sampler_get(s, k / 1000 + 1, k % 1000);
    seen[joint ? at * length + next : at]++;
  }
  for (int64_t i = 0; i < length; i++) sum += weights[i];
  for (int64_t i = 0; i < (joint ? length * length : length); i++)
    chances[i] = joint ? weights[i / length] / sum * (weights[i % length] / sum) : weights[i] / sum;
  check_cells(what, length, seen, chances, joint ? length * length : length);
}
CASE(random_draws_have_their_weights) {
  static double weights[5000];
  check_weights("two equal weights", (const double[]){1, 1}, 2);
  check_weights("two weights", (const double[]){1, 1000}, 2);
  check_weights("weights with zeros", (const double[]){0, 1, 0.25, 3, 0, 1e-300, 5.75}, 7);
  check_weights("large weights", (const double[]){1e300, 3e300, 0, 2e300}, 4);
  for (int64_t length = 5; length <= 5000; length *= 10) {
    for (int64_t i = 0; i < length; i++) weights[i] = (double)(i % 17) * (double)(i % 5) + 0.1;
    check_weights("many weights", weights, length);
    for (int64_t i = 0; i < length; i++) weights[i] = exp((double)i / (double)length * 9);
    check_weights("exponential weights", weights, length);
  }
}

/* Counts the orders of rows in `epochs` epochs of a replay buffer. Each epoch is one batch. */
static void count_replay_orders(tdict_loader *l, int64_t count, int64_t epochs) {
  for (int64_t epoch = 0; epoch < epochs; epoch++) {
    tdict_tree *batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err)), *end = NULL;
    assert_int_equal(tdict_batch_size(batch)[0], count);
    seen[number_of_order(tdict_const_data(batch, "id"), count)]++;
    tdict_release(batch);
    td_ok(tdict_loader_next(l, tdict_no_stream(), &end, err));
    assert_null(end);
  }
}

/* The buffer grows from 2 to 5 rows. In each epoch, every order of the filled rows is equally likely. */
CASE(random_replay_epochs_have_all_orders) {
  scoped_yard y = open_yard();
  scoped_tree tree = rows_of(5);
  scoped_replay r = replay_over(tree, 0);
  tdict_loader_options o = td_with(tdict_loader_options, num_workers = 0, batch_size = 8, shuffle = true);
  scoped_loader l = loader_over(&y, r, &o);
  append_ids(r, 0, 1);
  for (int64_t count = 2; count <= 5; count++) {
    append_ids(r, count - 1, 1);
    clear_cells();
    count_replay_orders(l, count, draws_of(20000));
    check_cells("orders of a replay buffer", count, seen, NULL, num_orders(count));
  }
}
