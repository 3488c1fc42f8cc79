/* Tests communicators with the NCCL table. Results on devices are compared with the host arrays of `whole`. */
#include "services/comm/nccl/ranks.h"
#include "support/take_comm.h"

enum { ROWS = 24, WIDTH = 5, PIXELS = 64 };
static struct {
  float obs[ROWS][WIDTH];
  int64_t action[ROWS];
  uint8_t image[ROWS][PIXELS];
} whole;
static tdict_comm *comms[MOST_RANKS];
static tdict_tree *sources[MOST_RANKS], *results[MOST_RANKS];
static int root_now;
static int64_t counts_now[MOST_RANKS];

static void fill_whole(uint64_t seed) {
  rng random = {seed};
  for (int i = 0; i < ROWS; i++) {
    for (int j = 0; j < WIDTH; j++) whole.obs[i][j] = (float)pick(&random, -1000, 1000);
    whole.action[i] = (int64_t)next_random(&random);
    td_fill_random(whole.image[i], PIXELS, next_random(&random));
  }
}

/* Returns `count` rows of `whole`, starting at row `from`, as a tree on a rank's device. */
static tdict_tree *rows_of(const rank *r, int64_t from, int64_t count) {
  tdict_tree *host = NULL, *moved = NULL;
  const tdict_field fields[] = {
      TDICT_FIELD("obs", TDICT_F32, WIDTH), {"action", TDICT_I64, 0, {0}}, TDICT_FIELD("more.image", TDICT_U8, PIXELS)};
  td_ok(tdict_create_from(fields, 3, 1, &count, NULL, &host, err));
  const size_t rows = (size_t)count;
  if (count > 0) {
    tdict_tensor *t = td_made(tensor, tdict_get(host, "obs", &made, err));
    memcpy(tdict_tensor_data(t), whole.obs[from], rows * sizeof whole.obs[0]);
    td_ok(tdict_get(host, "action", &t, err));
    memcpy(tdict_tensor_data(t), &whole.action[from], rows * sizeof whole.action[0]);
    td_ok(tdict_get(host, "more.image", &t, err));
    memcpy(tdict_tensor_data(t), whole.image[from], rows * sizeof whole.image[0]);
  }
  td_ok(tdict_to_device(r->context, host, r->stream.device, NULL, &moved, err));
  tdict_release(host);
  return moved;
}

static void holds(const tdict_tree *host, const char *key, const void *wanted, size_t bytes) {
  tdict_tensor *t = td_made(tensor, tdict_get(host, key, &made, err)), *flat = NULL;
  td_ok(tdict_tensor_clone(t, NULL, &flat, err));
  assert_int_equal(tdict_tensor_bytes(flat), bytes);
  assert_memory_equal(tdict_tensor_const_data(flat), wanted, bytes);
  tdict_tensor_release(flat);
}
/* Checks that a tree has these rows of `whole` and is on the rank's device. */
static void has_rows(const rank *r, const tdict_tree *tree, int64_t from, int64_t count) {
  scoped_tree host = NULL;
  tdict_tensor *t = td_made(tensor, tdict_get(tree, "action", &made, err));
  assert_true(tdict_device_equal(tdict_tensor_device(t), r->stream.device));
  td_ok(tdict_to_device(r->context, tree, tdict_cpu(), NULL, &host, err));
  holds(host, "obs", whole.obs[from % ROWS], (size_t)count * sizeof whole.obs[0]);
  holds(host, "action", &whole.action[from % ROWS], (size_t)count * sizeof whole.action[0]);
  holds(host, "more.image", whole.image[from % ROWS], (size_t)count * sizeof whole.image[0]);
}

static tdict_status join(rank *r, tdict_error *err) {
  tdict_status status = ranks_join(r, err);
  r->t.on_calling_thread = true; /* the fake checks which device is current on the calling thread */
  return status == TDICT_OK ? tdict_comm_create(r->context, &r->t, NULL, &comms[r->number], err) : status;
}
static tdict_status leave(rank *r, tdict_error *err) {
  (void)err;
  tdict_comm_destroy(comms[r->number]);
  return TDICT_OK;
}
static tdict_status broadcast(rank *r, tdict_error *err) {
  return td_comm_broadcast(comms[r->number], r->number == root_now ? sources[r->number] : NULL, root_now, NULL,
                           &results[r->number], err);
}
static tdict_status scatter(rank *r, tdict_error *err) {
  const bool is_root = r->number == root_now;
  tdict_comm_options o = tdict_comm_options_default();
  if (is_root) o.counts = counts_now;
  return td_comm_scatter(comms[r->number], is_root ? sources[r->number] : NULL, root_now, &o, &results[r->number], err);
}
static tdict_status gather(rank *r, tdict_error *err) {
  return td_comm_gather(comms[r->number], sources[r->number], root_now, NULL, &results[r->number], err);
}
static tdict_status all_gather(rank *r, tdict_error *err) {
  return td_comm_all_gather(comms[r->number], sources[r->number], NULL, &results[r->number], err);
}
static tdict_status stack(rank *r, tdict_error *err) {
  return td_comm_all_gather_stack(comms[r->number], sources[r->number], NULL, &results[r->number], err);
}
static tdict_status broadcast_into(rank *r, tdict_error *err) {
  return td_comm_broadcast_into(comms[r->number], sources[r->number], root_now, NULL, err);
}
static tdict_status pass_on(rank *r, tdict_error *err) {
  tdict_status status = TDICT_OK;
  if (r->number > 0) status = td_comm_receive(comms[r->number], r->number - 1, NULL, &results[r->number], err);
  if (status == TDICT_OK && r->number < r->w->size - 1)
    status = td_comm_send(comms[r->number], r->number ? results[r->number] : sources[0], r->number + 1, NULL, err);
  return status;
}
static tdict_status all_reduce(rank *r, tdict_error *err) {
  return td_comm_all_reduce(comms[r->number], sources[r->number], TDICT_REDUCE_SUM, NULL, err);
}

static void release_all(tdict_tree **trees, int count) {
  for (int i = 0; i < count; i++) {
    tdict_release(trees[i]);
    trees[i] = NULL;
  }
}
/* Returns the row of `whole` at which a rank's part begins. */
static int64_t start_of(int number) {
  int64_t from = 0;
  for (int i = 0; i < number; i++) from += counts_now[i];
  return from;
}
static void make_sources(world *w, bool parts) {
  for (int i = 0; i < w->size; i++)
    sources[i] = parts ? rows_of(&w->ranks[i], start_of(i), counts_now[i]) : rows_of(&w->ranks[i], 0, ROWS);
}

/* Chooses the number of rows of each rank: equal, or different with 0 rows on rank 1 if there are 3 or more ranks. */
static void choose_counts(const world *w, bool even) {
  int64_t left = ROWS;
  for (int i = 0; i < w->size; i++) {
    counts_now[i] = i == w->size - 1 ? left : even ? ROWS / w->size : i == 1 ? 0 : left / 3;
    left -= counts_now[i];
  }
}

static void check_whole_trees(world *w) {
  for (root_now = 0; root_now < w->size; root_now++) {
    fill_whole((uint64_t)root_now + 1);
    sources[root_now] = rows_of(&w->ranks[root_now], 0, ROWS);
    world_do(w, broadcast);
    for (int i = 0; i < w->size; i++) has_rows(&w->ranks[i], results[i], 0, ROWS);
    release_all(results, w->size);
    fill_whole(77);
    for (int i = 0; i < w->size; i++) /* the broadcast must replace these elements */
      if (i != root_now) sources[i] = rows_of(&w->ranks[i], 0, ROWS);
    fill_whole((uint64_t)root_now + 1);
    world_do(w, broadcast_into);
    for (int i = 0; i < w->size; i++) has_rows(&w->ranks[i], sources[i], 0, ROWS);
    release_all(sources, w->size);
  }
  sources[0] = rows_of(&w->ranks[0], 0, ROWS);
  world_do(w, pass_on);
  for (int i = 1; i < w->size; i++) has_rows(&w->ranks[i], results[i], 0, ROWS);
  release_all(results, w->size);
  release_all(sources, 1);
}

static void check_parts(world *w, bool even) {
  choose_counts(w, even);
  for (root_now = 0; root_now < w->size; root_now++) {
    sources[root_now] = rows_of(&w->ranks[root_now], 0, ROWS);
    world_do(w, scatter);
    for (int i = 0; i < w->size; i++) has_rows(&w->ranks[i], results[i], start_of(i), counts_now[i]);
    release_all(results, w->size);
    release_all(sources, w->size);
    make_sources(w, true);
    world_do(w, gather);
    has_rows(&w->ranks[root_now], results[root_now], 0, ROWS);
    release_all(results, w->size);
    world_do(w, all_gather);
    for (int i = 0; i < w->size; i++) has_rows(&w->ranks[i], results[i], 0, ROWS);
    release_all(results, w->size);
    if (even) world_do(w, stack); /* the rows of all ranks, one after another */
    for (int i = 0; i < w->size && even; i++) has_rows(&w->ranks[i], results[i], 0, ROWS);
    release_all(results, w->size);
    release_all(sources, w->size);
  }
}

/* Reduces equal trees: the sum must be one tree times the number of ranks. */
static void check_reduction(world *w) {
  make_sources(w, false);
  world_do(w, all_reduce);
  for (int i = 0; i < ROWS; i++) {
    for (int j = 0; j < WIDTH; j++) whole.obs[i][j] *= (float)w->size;
    whole.action[i] = (int64_t)((uint64_t)whole.action[i] * (uint64_t)w->size);
    for (int j = 0; j < PIXELS; j++) whole.image[i][j] = (uint8_t)(whole.image[i][j] * w->size);
  }
  for (int i = 0; i < w->size; i++) has_rows(&w->ranks[i], sources[i], 0, ROWS);
  release_all(sources, w->size);
}

static void in_all_worlds(void (*check)(world *w)) {
  const int most = ranks_most();
  for (int size = 1; size <= most; size++)
    for (int shared = 0; shared < 2; shared++) {
      world w;
      world_prepare(&w, size, shared, 4096);
      fill_whole(5);
      world_do(&w, join);
      check(&w);
      world_do(&w, leave);
      world_end(&w);
    }
}
static void check_even_and_uneven(world *w) {
  check_parts(w, false);
  check_parts(w, true);
}

GPU_CASE(nccl_comm_sends_whole_trees) { in_all_worlds(check_whole_trees); }
GPU_CASE(nccl_comm_scatters_and_gathers_trees) { in_all_worlds(check_even_and_uneven); }
GPU_CASE(nccl_comm_reduces_trees) { in_all_worlds(check_reduction); }
