/* Tests SPLIT and tdict_gather_devices_async() with even, uneven and empty parts along a batch dimension. */
#include "several.h"

/* Returns rows [at, at + count) of the tree. */
static tdict_tree *rows_of(const tdict_tree *td, int dim, int64_t at, int64_t count) {
  const int64_t sizes[3] = {at, count, tdict_batch_size(td)[dim] - at - count};
  tdict_tree *parts[3];
  size_t n = 3;
  td_ok(tdict_split(td, dim, sizes, parts, &n, err));
  td_release(parts[0], parts[2]);
  return parts[1];
}
/* Makes a tree of batch size [rows, columns], with a leaf that has an additional dimension and a leaf that has none. */
static tdict_tree *grid_tree(int64_t rows, int64_t columns, tdict_memory *memory) {
  tdict_tree *td = td_made(tree, tdict_create(2, (const int64_t[]){rows, columns}, &made, err));
  td_put(td, "x", random_tensor(TDICT_F32, SHAPE(rows, columns, 37), memory));
  td_put(td, "n.mask", random_tensor(TDICT_BOOL, SHAPE(rows, columns), memory));
  return td;
}

static void check_parts(const several *s, const tdict_tree *src, int dim, const int64_t *counts,
                        tdict_tree *const *trees) {
  int64_t at = 0;
  for (size_t i = 0; i < s->count; i++) {
    tdict_tree *want = rows_of(src, dim, at, counts[i]);
    check_tree(&s->at[i], want, trees[i]);
    check_device(trees[i], s->devices[i]);
    assert_int_equal(tdict_batch_size(trees[i])[dim], counts[i]);
    tdict_release(want);
    at += counts[i];
  }
}
/* Splits in some of the ways of way_at(), and gathers on the host, in pinned memory and on the last device. */
static void check_ways(const several *s, const tdict_tree *src, int dim, const int64_t *given, const int64_t *counts) {
  for (int i = 0, round = 0; i < NUM_WAYS; i += 3 * WAYS_STEP, round++) {
    const way v = way_at(i);
    const tdict_spread spread = split_along(i % 2 ? dim - tdict_batch_ndim(src) : dim, given);
    tdict_tree *trees[MOST_DEVICES], *whole = NULL;
    spread_tree(s, src, &spread, &v, trees);
    check_parts(s, src, dim, counts, trees);
    const tdict_device to = round % 3 ? tdict_cpu() : s->devices[s->count - 1];
    tdict_transfer_options t = v.o;
    t.pinned_result = round % 3 == 1;
    tdict_gather_devices_options o =
        td_with(tdict_gather_devices_options, transfer = &t, dim = spread.dim, device = to);
    if (v.async) {
      scoped_future f = NULL;
      td_ok(tdict_gather_devices_async(s->c, (const tdict_tree *const *)trees, s->count, &o, &f, err));
      td_ok(tdict_future_wait(f, &whole, err));
    } else {
      td_ok(td_gather_devices(s->c, (const tdict_tree *const *)trees, s->count, &o, &whole, err));
    }
    check_tree(&s->at[s->count - 1], src, whole);
    check_device(whole, to);
    if (t.pinned_result) assert_true(tdict_is_pinned(whole));
    tdict_release(whole);
    release_all(s, trees);
  }
}
GPU_CASE(split_and_gather_on_two_devices) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  scoped_tree odd = rows_tree(101, NULL), large = rows_tree(1000, NULL), grid = grid_tree(12, 31, NULL);
  check_ways(&s, odd, 0, NULL, (const int64_t[]){51, 50});
  check_ways(&s, large, 0, NULL, (const int64_t[]){500, 500});
  check_ways(&s, odd, 0, (const int64_t[]){3, 98}, (const int64_t[]){3, 98});
  check_ways(&s, odd, 0, (const int64_t[]){101, 0}, (const int64_t[]){101, 0});
  check_ways(&s, grid, 1, NULL, (const int64_t[]){16, 15});
}
/* The only part is the whole tree, with and without counts. */
GPU_CASE(split_over_one_device) {
  scoped_several s = several_open(1, TDICT_SIM_PEERS_ALL);
  scoped_tree odd = rows_tree(101, NULL), grid = grid_tree(12, 31, NULL);
  check_ways(&s, odd, 0, NULL, (const int64_t[]){101});
  check_ways(&s, odd, 0, (const int64_t[]){101}, (const int64_t[]){101});
  check_ways(&s, grid, 1, NULL, (const int64_t[]){31});
  const tdict_spread wrong = tdict_spread_split(s.devices, 1, 5);
  tdict_future *f = NULL;
  td_fails(TDICT_EINVAL, "dim", tdict_to_devices_async(s.c, odd, &wrong, NULL, &f, err));
}

/* A batch of rows whose tensors have storages of their own. The transfers cut the rows of such a tree themselves. */
static tdict_tree *separate_tree(int64_t rows, int64_t num_leaves, tdict_memory *memory) {
  tdict_tree *td = td_made(tree, tdict_create(1, &rows, &made, err));
  td_put(td, "large", random_tensor(TDICT_U8, SHAPE(rows, 3001), memory));
  td_put(td, "n.none", random_tensor(TDICT_F32, SHAPE(rows, 0, 2), memory));
  td_put(td, "n.deep.y", random_tensor(TDICT_I64, SHAPE(rows), memory));
  for (int64_t i = 0; i < num_leaves; i++)
    td_put(td, td_text("k%d", (int)i), random_tensor(TDICT_F32, SHAPE(rows, 1 + i % 3), memory));
  return td;
}
GPU_CASE(split_cuts_rows) {
  enum { MANY = 600 }; /* so many that several of four threads read leaves */
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  scoped_tree some = separate_tree(101, 20, NULL), pinned = separate_tree(100, 3, s.at[0].pinned);
  scoped_tree many = separate_tree(7, MANY, NULL), more = NULL;
  const way four = {.o = td_with(tdict_transfer_options, num_threads = 4), .async = true};
  const tdict_spread half = split_along(0, NULL);
  tdict_tree *trees[MOST_DEVICES];
  td_ok(tdict_clone_deep(some, NULL, &more, err)); /* all tensors in one storage */
  for (int locked = 0; locked < 2; locked++) {
    if (locked) tdict_lock(some);
    check_ways(&s, some, 0, NULL, (const int64_t[]){51, 50});
    check_ways(&s, more, 0, NULL, (const int64_t[]){51, 50});
  }
  check_ways(&s, pinned, 0, NULL, (const int64_t[]){50, 50});
  spread_tree(&s, many, &half, &four, trees);
  check_parts(&s, many, 0, (const int64_t[]){4, 3}, trees);
  assert_int_equal(tdict_tensor_numel(td_leaf(trees[0], "k1")), 8);
  assert_int_equal(tdict_tensor_numel(td_leaf(trees[1], "k1")), 6);
  release_all(&s, trees);
}
/* Splits trees with leaves that a transfer cannot cut into rows, and a tree with a part that stays on the host. */
GPU_CASE(split_makes_views_where_needed) {
  static const int turn[] = {1, 0};
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  scoped_tree strided = separate_tree(10, 2, NULL), changed = separate_tree(10, 2, NULL), empty = NULL;
  const int64_t rows = 10, halves[] = {5, 5};
  const tdict_spread half = split_along(0, NULL);
  tdict_tree *trees[MOST_DEVICES];
  scoped_tensor wide = random_tensor(TDICT_F32, SHAPE(4, 10), NULL);
  td_put(strided, "turned", td_made(tensor, tdict_tensor_permute(wide, 2, turn, &made, err)));
  check_ways(&s, strided, 0, NULL, halves);
  td_ok(tdict_set_batch_size(td_child(changed, "n"), 0, NULL, err));
  check_ways(&s, changed, 0, NULL, halves);
  spread_tree(&s, changed, &half, &(way){.o = tdict_transfer_options_default()}, trees);
  assert_int_equal(tdict_batch_ndim(td_child(trees[0], "n")), 1);
  release_all(&s, trees);
  const tdict_device with_host[] = {s.devices[0], tdict_cpu()};
  const tdict_spread spread = tdict_spread_split(with_host, 2, 0);
  scoped_tree plain = separate_tree(10, 2, NULL);
  td_ok(td_to_devices(s.c, plain, &spread, NULL, trees, err));
  scoped_tree rows_on_host = rows_of(plain, 0, 5, 5); /* views, so the storages are shared from here on */
  check_tree(&s.at[0], rows_on_host, trees[1]);
  assert_true(tdict_tensor_shares_storage(td_leaf(plain, "large"), td_leaf(trees[1], "large")));
  release_all(&s, trees);
  td_ok(tdict_create(1, &rows, &empty, err));
  td_ok(tdict_set_device(empty, &s.devices[0], err));
  spread_tree(&s, empty, &half, &(way){.o = tdict_transfer_options_default()}, trees);
  for (int i = 0; i < 2; i++) assert_int_equal(tdict_batch_size(trees[i])[0], 5);
  release_all(&s, trees);
}
/* A tensor at two paths of the source is copied once for each part, and is shared within the part. */
GPU_CASE(split_copies_shared_leaves_once) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  scoped_tree src = td_tree("[6] a:f32[6,2] n.b:i64[6] c:u8[6,3]");
  const tdict_spread part = split_along(0, NULL), spread = on_all(&s, &part);
  for (int64_t shared = 0; shared < 2; shared++) {
    tdict_transfer_stats stats = tdict_transfer_stats_default();
    scoped_tree all = NULL;
    if (shared) td_ok(tdict_set(src, "n.twin", td_leaf(src, "a"), err));
    scoped_future f = td_made(future, tdict_to_devices_async(s.c, src, &spread, NULL, &made, err));
    td_ok(tdict_future_wait(f, &all, err));
    td_ok(tdict_future_get_stats(f, &stats, err));
    assert_int_equal(stats.num_leaves, 2 * (3 + shared));
    assert_int_equal(stats.num_shared_leaves, 2 * shared);
    tdict_tree *trees[] = {td_child(all, "0"), td_child(all, "1")};
    check_parts(&s, src, 0, (const int64_t[]){3, 3}, trees);
  }
}
SIM_CASE(split_and_gather_on_four_devices) {
  scoped_several s = several_open(4, TDICT_SIM_PEERS_PAIRS);
  scoped_tree few = rows_tree(3, NULL), none = rows_tree(0, NULL), grid = grid_tree(9, 50, s.at[0].pinned);
  check_ways(&s, few, 0, NULL, (const int64_t[]){1, 1, 1, 0});
  check_ways(&s, none, 0, NULL, (const int64_t[]){0, 0, 0, 0});
  check_ways(&s, grid, 0, (const int64_t[]){0, 5, 0, 4}, (const int64_t[]){0, 5, 0, 4});
  check_ways(&s, grid, 1, NULL, (const int64_t[]){13, 13, 12, 12});
}
GPU_CASE(split_refuses_wrong_counts) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  tdict_tree *src = rows_tree(10, NULL), *trees[2] = {NULL, NULL};
  tdict_spread part = split_along(0, (const int64_t[]){5, 4}), spread = on_all(&s, &part);
  td_fails(TDICT_ESHAPE, "sizes sum to 9", td_to_devices(s.c, src, &spread, NULL, trees, err));
  spread.counts = (const int64_t[]){11, -1};
  td_fails(TDICT_EINVAL, "size 1 is -1", td_to_devices(s.c, src, &spread, NULL, trees, err));
  spread.counts = NULL;
  spread.dim = 1;
  td_fails(TDICT_EINVAL, "dimension", td_to_devices(s.c, src, &spread, NULL, trees, err));
  assert_null(trees[0]);
  tdict_release(src);
}

/* Trees whose keys have different orders are joined by key. */
GPU_CASE(gather_joins_by_key) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  scoped_tree one = NULL, two = NULL;
  td_ok(tdict_create(1, (const int64_t[]){4}, &one, err));
  td_ok(tdict_create(1, (const int64_t[]){7}, &two, err));
  td_put(one, "a", random_tensor(TDICT_F32, SHAPE(4, 3), NULL));
  td_put(one, "b", random_tensor(TDICT_I64, SHAPE(4), NULL));
  td_put(two, "b", random_tensor(TDICT_I64, SHAPE(7), NULL));
  td_put(two, "a", random_tensor(TDICT_F32, SHAPE(7, 3), NULL));
  tdict_tree *moved[2] = {to_device(&s.at[0], one, s.devices[0]), to_device(&s.at[1], two, s.devices[1])};
  tdict_tree *whole = td_made(tree, gather(&s, moved, 0, tdict_cpu(), &made, err));
  tdict_tree *first = rows_of(whole, 0, 0, 4), *second = rows_of(whole, 0, 4, 7);
  check_tree(&s.at[0], one, first);
  check_tensor(&s.at[0], td_leaf(two, "a"), td_leaf(second, "a"), "a");
  check_tensor(&s.at[0], td_leaf(two, "b"), td_leaf(second, "b"), "b");
  td_release(first, second, whole, moved[0], moved[1]);
}
/* Calls tdict_gather_devices_async() with two trees of 4 rows. `change` says how the second tree differs. */
static tdict_status gather_changed(const several *s, int change, tdict_error *why) {
  scoped_tree one = rows_tree(4, NULL), two = rows_tree(4, NULL);
  tdict_tree *out = NULL;
  if (change == 0) td_ok(tdict_delete(two, "obs.state", err));
  if (change == 1) td_put(two, "more", random_tensor(TDICT_F32, SHAPE(4), NULL));
  if (change == 2) td_put(two, "obs.state", random_tensor(TDICT_F64, SHAPE(4, 17), NULL));
  if (change == 3) td_put(two, "obs.state", random_tensor(TDICT_F32, SHAPE(4, 16), NULL));
  tdict_tree *trees[2] = {one, two};
  tdict_status status = gather(s, trees, 0, s->devices[1], &out, why);
  assert_null(out);
  return status;
}
GPU_CASE(gather_names_the_tree_and_the_leaf) {
  scoped_several s = several_open(2, TDICT_SIM_PEERS_ALL);
  td_fails_at(TDICT_ENOTFOUND, "", "1.obs.state", gather_changed(&s, 0, err));
  td_fails_at(TDICT_ENOTFOUND, "", "1.more", gather_changed(&s, 1, err));
  td_fails_at(TDICT_EDTYPE, "", "1.obs.state", gather_changed(&s, 2, err));
  td_fails_at(TDICT_ESHAPE, "", "1.obs.state", gather_changed(&s, 3, err));
  scoped_tree src = rows_tree(4, NULL), flat = new_tree();
  tdict_tree *out = NULL;
  const tdict_tree *trees[2] = {src, NULL};
  tdict_gather_devices_options o = td_with(tdict_gather_devices_options, dim = 1);
  td_fails(TDICT_EINVAL, "tree 1 is NULL", td_gather_devices(s.c, trees, 2, NULL, &out, err));
  td_fails(TDICT_EINVAL, "count is 0", td_gather_devices(s.c, trees, 0, NULL, &out, err));
  td_fails(TDICT_EINVAL, "trees is NULL", td_gather_devices(s.c, NULL, 1, NULL, &out, err));
  td_fails(TDICT_EINVAL, "context is NULL", td_gather_devices(NULL, trees, 1, NULL, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_gather_devices_async(s.c, trees, 1, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "dimension", td_gather_devices(s.c, trees, 1, &o, &out, err));
  trees[1] = flat;
  td_fails(TDICT_ESHAPE, "tree 1 has 0 batch dimensions", td_gather_devices(s.c, trees, 2, NULL, &out, err));
  td_ok(tdict_set_text(src, "name", "text", err));
  td_fails_at(TDICT_ENOTSUP, "an object", "0.name", td_gather_devices(s.c, trees, 1, NULL, &out, err));
}
