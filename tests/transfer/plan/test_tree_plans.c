/* The plans of locked trees: which trees keep plans, when a kept plan is used, and when it is dropped. */
#include "transfer/plan/tree_plans.h"

#include <pthread.h>

#include "support/fail_alloc.h"
#include "support/things.h"
#include "transfer/engine.h"
#include "transfer/plan/collect.h"
#include "transfer/trees.h"

/* Counts how many trees are read into plans. */
static _Atomic(int) num_collects;
tdict_status __real_tdict_plan_collect(tdict_plan *plan, const tdict_plan_request *request, const tdict_tree *src,
                                       tdict_error *err);
tdict_status __wrap_tdict_plan_collect(tdict_plan *plan, const tdict_plan_request *request, const tdict_tree *src,
                                       tdict_error *err);
tdict_status __wrap_tdict_plan_collect(tdict_plan *plan, const tdict_plan_request *request, const tdict_tree *src,
                                       tdict_error *err) {
  atomic_fetch_add(&num_collects, 1);
  return __real_tdict_plan_collect(plan, request, src, err);
}

static tdict_tree_plans *record_of(const tdict_tree *td) {
  return (tdict_tree_plans *)tdict_node_attachment(td, TDICT_ATTACHED_PLANS);
}
static uint32_t num_kept(const tdict_tree *td) { return record_of(td) ? record_of(td)->num_plans : 0; }
/* Moves the tree, compares the result, and returns how many trees were read. */
static int collects_of(const world *w, const tdict_tree *td, tdict_device device, const way *v) {
  const int before = atomic_load(&num_collects);
  tdict_tree *out = move_tree(w, td, device, v);
  const int count = atomic_load(&num_collects) - before;
  check_tree(w, td, out);
  assert_int_equal(tdict_is_locked(out), tdict_is_locked(td));
  tdict_release(out);
  return count;
}

GPU_CASE(tree_plans_are_kept_while_locked) {
  world w = open_world();
  const way v = way_at(1);
  for (int k = 0; k < NUM_TREE_KINDS; k++) {
    if (k == TREE_PINNED) continue; /* it has memory of the program */
    tdict_tree *td = make_tree(&w, (tree_kind)k);
    assert_int_equal(collects_of(&w, td, w.device, &v), 1);
    assert_null(record_of(td));
    tdict_lock(td);
    assert_int_equal(collects_of(&w, td, w.device, &v), 1);
    assert_non_null(record_of(td));
    if (!record_of(td)->whole)
      for (int i = 0; i < 3; i++) assert_int_equal(collects_of(&w, td, w.device, &v), 0);
    assert_int_equal(record_of(td)->whole != NULL, k == TREE_BATCH);
    td_ok(tdict_unlock(td, err));
    assert_null(record_of(td));
    assert_int_equal(collects_of(&w, td, w.device, &v), 1);
    tdict_release(td);
  }
  close_world(&w);
}

GPU_CASE(tree_plans_are_not_kept_for_other_trees) {
  world w = open_world();
  const way v = way_at(1);
  way with_keep = v;
  static const char *const patterns[] = {"?nothing"};
  with_keep.o.keep = patterns;
  with_keep.o.num_keep = 1;
  tdict_tree *above = new_tree(), *child = tiny_tree(NULL), *objects = new_tree(), *foreign = new_tree();
  /* locked from above only */
  give_tree(above, "child", child);
  tdict_lock(above);
  td_ok(tdict_get_tree(above, "child", &child, err));
  assert_true(tdict_is_locked(child));
  for (int i = 0; i < 2; i++) assert_int_equal(collects_of(&w, child, w.device, &v), 1);
  assert_null(record_of(child));
  /* with patterns */
  for (int i = 0; i < 2; i++) assert_int_equal(collects_of(&w, above, w.device, &with_keep), 1);
  assert_null(record_of(above));
  /* with an object */
  give(objects, "x", random_tensor(TDICT_U8, SHAPE(100), NULL));
  td_ok(tdict_set_object(objects, "object", &thing_hooked,
                         thing_create(random_tensor(TDICT_U8, SHAPE(9), NULL), random_tensor(TDICT_U8, SHAPE(9), NULL)),
                         err));
  tdict_lock(objects);
  for (int i = 0; i < 2; i++) {
    tdict_tree *out = move_tree(&w, objects, w.device, &v);
    tdict_release(out);
    assert_null(record_of(objects));
  }
  /* with memory of the program, which the program may pin at any time */
  give(foreign, "claimed", claimed_view(w.pinned, 90000));
  tdict_lock(foreign);
  for (int i = 0; i < 2; i++) assert_int_equal(collects_of(&w, foreign, w.device, &v), 1);
  assert_null(record_of(foreign));
  tdict_release(foreign);
  tdict_release(objects);
  tdict_release(above);
  assert_int_equal(thing_count(), 0);
  close_world(&w);
}

/* A record has no objects. If a tree with text had one, the results would lack the text. */
GPU_CASE(tree_plans_are_not_kept_for_text) {
  world w = open_world();
  const way v = way_at(1);
  tdict_tree *plain = mixed_tree(w.pinned), *whole = NULL;
  td_ok(tdict_set_text(plain, "text", "reach the door", err));
  td_ok(tdict_consolidate(plain, NULL, &whole, err));
  tdict_lock(plain);
  assert_true(tdict_is_locked(whole));
  tdict_tree *const trees[] = {plain, whole};
  for (int i = 0; i < 6; i++) {
    const tdict_tree *td = trees[i % 2];
    const char *text = NULL;
    const int before = atomic_load(&num_collects);
    tdict_tree *out = move_tree(&w, td, w.device, &v);
    assert_int_equal(atomic_load(&num_collects) - before, 1);
    assert_null(record_of(td));
    check_tree(&w, td, out);
    td_ok(tdict_get_text(out, "text", &text, NULL, err));
    assert_string_equal(text, "reach the door");
    tdict_release(out);
  }
  tdict_release(whole);
  tdict_release(plain);
  close_world(&w);
}

/* Each stamp has a plan of its own; a fifth plan replaces the oldest. All results are right. */
GPU_CASE(tree_plans_depend_on_device_mode_and_pinning) {
  world w = open_world();
  tdict_tree *td = mixed_tree(w.pinned);
  tdict_lock(td);
  for (int round = 0; round < 2; round++) {
    int collects = 0;
    for (int i = 0; i < NUM_WAYS; i += WAYS_STEP) { /* 4 modes, of which AUTO is NON_BLOCKING_PIN */
      const way v = way_at(i);
      collects += collects_of(&w, td, w.device, &v);
    }
    assert_int_equal(collects, round ? 0 : 3);
    assert_int_equal(num_kept(td), 3);
  }
  way pinned = way_at(0), plain = way_at(0);
  pinned.o.pinned_result = true;
  for (int i = 0; i < 2; i++) assert_int_equal(collects_of(&w, td, tdict_cpu(), &pinned), !i);
  tdict_tree *out = move_tree(&w, td, tdict_cpu(), &pinned);
  assert_true(tdict_is_pinned(out));
  assert_ptr_equal(leaf_of(out, "m1"), leaf_of(td, "m1")); /* pinned already */
  tdict_release(out);
  assert_int_equal(num_kept(td), TDICT_MOST_TREE_PLANS);
  /* in place: the result is the tree itself */
  assert_int_equal(collects_of(&w, td, tdict_cpu(), &plain), 1);
  assert_int_equal(num_kept(td), TDICT_MOST_TREE_PLANS);
  out = move_tree(&w, td, tdict_cpu(), &plain);
  assert_ptr_equal(out, td);
  tdict_release(out);
  assert_int_equal(collects_of(&w, td, w.device, &plain), 1); /* the oldest, way_at(0), was replaced */
  tdict_release(td);
  close_world(&w);
}

/* A plan of another context is not used: it has the GPUs of that context. */
SIM_CASE(tree_plans_belong_to_their_context) {
  world w = open_world(), other = open_world();
  tdict_tree *td = tiny_tree(NULL);
  const way v = way_at(1);
  tdict_lock(td);
  assert_int_equal(collects_of(&w, td, w.device, &v), 1);
  assert_int_equal(collects_of(&other, td, w.device, &v), 1);
  assert_int_equal(collects_of(&w, td, w.device, &v), 0);
  assert_int_equal(collects_of(&other, td, w.device, &v), 0);
  close_world(&w);
  close_world(&other);
  for (int i = 0; i < 6; i++) {
    w = open_world();
    assert_int_equal(collects_of(&w, td, w.device, &v), 1);
    close_world(&w);
  }
  assert_int_equal(num_kept(td), TDICT_MOST_TREE_PLANS);
  tdict_release(td);
}

/* Leaves on the device, on the host and at two places. */
GPU_CASE(tree_plans_share_leaves_that_are_in_place) {
  world w = open_world();
  tdict_tree *td = new_tree();
  give(td, "there", random_tensor(TDICT_F32, SHAPE(1000), NULL));
  tdict_tree *moved = to_device(&w, td, w.device);
  td_ok(tdict_set(td, "n.here", leaf_of(moved, "there"), err));
  td_ok(tdict_set(td, "n.twice", leaf_of(td, "there"), err));
  tdict_lock(td);
  for (int i = 0; i < NUM_WAYS; i++) {
    const way v = way_at(i);
    tdict_tree *out = move_tree(&w, td, w.device, &v);
    check_tree(&w, td, out);
    assert_ptr_equal(leaf_of(out, "n.here"), leaf_of(td, "n.here"));
    assert_ptr_equal(leaf_of(out, "n.twice")->data, leaf_of(out, "there")->data);
    tdict_release(out);
  }
  assert_int_equal(num_kept(td), 3);
  tdict_release(td);
  tdict_release(moved);
  close_world(&w);
}

/* The references that transfers see do not change, so other transfers of the tree read it as fast as before. */
GPU_CASE(tree_plans_hold_no_references_while_attached) {
  world w = open_world();
  const way v = way_at(0);
  tdict_tree *td = tiny_tree(NULL);
  tdict_lock(td);
  assert_int_equal(collects_of(&w, td, w.device, &v), 1);
  leaf_list l = list_entries(td);
  for (size_t i = 0; i < l.count; i++)
    if (l.tensors[i]) assert_int_equal(atomic_load(&l.tensors[i]->refs), 1);
  free_list(&l);
  tdict_release(td);
  close_world(&w);
}

/* While a transfer runs, the program unlocks, changes and frees the tree. The result is that of the call. */
SIM_CASE(tree_plans_outlive_the_tree_during_a_transfer) {
  world w = open_world();
  for (int k = 0; k < 2 * 3; k++) {
    tdict_tree *td = k % 2 ? batch_tree(NULL) : tiny_tree(NULL), *twin = NULL, *out = NULL;
    const char *path = k % 2 ? "obs.state" : "group3.leaf100";
    td_ok(tdict_clone_deep(td, NULL, &twin, err));
    tdict_lock(td);
    const way v = way_at(1);
    (void)collects_of(&w, td, w.device, &v);
    tdict_future *f[2] = {NULL};
    td_ok(tdict_sim_hold(w.c, err));
    for (int i = 0; i < 2; i++) td_ok(tdict_to_device_async(w.c, td, w.device, NULL, &f[i], err));
    if (k >= 2) {
      td_ok(tdict_unlock(td, err));
      assert_null(record_of(td));
      td_ok(tdict_delete(td, path, err));
    }
    if (k >= 4) give(td, path, random_tensor(TDICT_I64, SHAPE(16, 9), NULL));
    tdict_release(td);
    td_ok(tdict_sim_resume(w.c, err));
    for (int i = 0; i < 2; i++) {
      td_ok(tdict_future_wait(f[i], &out, err));
      check_tree(&w, twin, out);
      assert_true(tdict_is_locked(out));
      tdict_release(out);
      tdict_future_release(f[i]);
    }
    tdict_release(twin);
  }
  close_world(&w);
}

/* A kept plan does not hide that bytes were lost since. */
SIM_CASE(tree_plans_do_not_hide_lost_bytes) {
  world w = open_world();
  for (int k = 0; k < 2; k++) {
    tdict_tree *td = k ? batch_tree(NULL) : tiny_tree(NULL), *src, *out = NULL;
    const char *path = k ? "action" : "group3.leaf100";
    tdict_lock(td);
    const way v = way_at(1);
    (void)collects_of(&w, td, w.device, &v);
    src = to_device(&w, td, w.device);
    tdict_tensor_lose(leaf_of(td, path));
    for (int i = 0; i < 2; i++) {
      td_fails(TDICT_EINVAL, "lost", tdict_to_device(w.c, td, w.device, &v.o, &out, err));
      assert_string_equal(td_last_error.path, path);
    }
    td_ok(tdict_transfer_into(w.c, td, src, NULL, err));
    (void)collects_of(&w, td, w.device, &v);
    tdict_release(src);
    tdict_release(td);
  }
  close_world(&w);
}

/* The options that are checked for each transfer are not part of a plan. */
SIM_CASE(tree_plans_check_sources) {
  world w = open_world();
  tdict_tree *td = tiny_tree(w.pinned), *out = NULL;
  tdict_lock(td);
  tdict_transfer_options o = tdict_transfer_options_default();
  o.mode = TDICT_MODE_NON_BLOCKING;
  const way plain = {.o = o, .async = true};
  assert_int_equal(collects_of(&w, td, w.device, &plain), 1);
  o.check_sources = true;
  const way checked = {.o = o, .async = true};
  assert_int_equal(collects_of(&w, td, w.device, &checked), 0);
  tdict_future *f = NULL;
  unsigned char *bytes = leaf_of(td, "group3.leaf100")->data;
  td_ok(tdict_sim_hold(w.c, err));
  td_ok(tdict_to_device_async(w.c, td, w.device, &o, &f, err));
  td_rest();
  bytes[0] ^= 1;
  td_ok(tdict_sim_resume(w.c, err));
  td_fails(TDICT_ECHANGED, "changed", tdict_future_wait(f, &out, err));
  assert_string_equal(td_last_error.path, "group3.leaf100");
  tdict_future_release(f);
  tdict_release(td);
  close_world(&w);
}

/* Several threads move one locked tree to two devices and to the host, in all ways. */
enum { THREADS = 4, MOVES = THREAD_SANITIZED ? 5 : SANITIZED ? 12 : 30 };
typedef struct mover {
  const world *w;
  const tdict_tree *td;
  int number, failures;
  tdict_tree *results[MOVES];
} mover;
static void *move_often(void *user) {
  mover *m = user;
  for (int i = 0; i < MOVES; i++) {
    way v = way_at((m->number * 7 + i * 3) % NUM_WAYS);
    const tdict_device device = (m->number + i) % 3 ? m->w->device : tdict_cpu();
    v.o.pinned_result = device.type == TDICT_DEVICE_CPU;
    tdict_future *f = NULL;
    tdict_error err;
    tdict_status status = tdict_to_device_async(m->w->c, m->td, device, &v.o, &f, &err);
    if (status == TDICT_OK) status = tdict_future_wait(f, &m->results[i], &err);
    tdict_future_release(f);
    m->failures += status != TDICT_OK;
  }
  return NULL;
}
SIM_CASE(tree_plans_serve_several_threads) {
  world w = open_world();
  for (int k = 0; k < 2; k++) {
    tdict_tree *td = k ? batch_tree(NULL) : mixed_tree(w.pinned);
    tdict_lock(td);
    mover movers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
      movers[i] = (mover){.w = &w, .td = td, .number = i};
      assert_int_equal(pthread_create(&threads[i], NULL, move_often, &movers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
      pthread_join(threads[i], NULL);
      assert_int_equal(movers[i].failures, 0);
      for (int n = 0; n < MOVES; n++) {
        check_tree(&w, td, movers[i].results[n]);
        tdict_release(movers[i].results[n]);
      }
    }
    assert_true(num_kept(td) <= TDICT_MOST_TREE_PLANS);
    tdict_release(td);
  }
  close_world(&w);
}

/* The elements that a tree must have, apart from the library. */
enum { MODEL_LEAVES = 40 };
typedef struct model {
  struct {
    bool exists;
    size_t count;
    unsigned char bytes[600];
  } leaves[MODEL_LEAVES];
} model;
static void put_leaf(tdict_tree *td, model *m, uint64_t r) {
  const int n = (int)(r % MODEL_LEAVES);
  const size_t count = 1 + r / 64 % 600;
  char path[32];
  snprintf(path, sizeof path, "g%d.k%d", n % 3, n);
  td_fill_random(m->leaves[n].bytes, count, r);
  m->leaves[n].exists = true;
  m->leaves[n].count = count;
  tdict_tensor *t = random_tensor(TDICT_U8, SHAPE((int64_t)count), NULL);
  memcpy(tdict_tensor_data(t), m->leaves[n].bytes, count);
  if (tdict_has(td, path)) td_ok(tdict_delete(td, path, err));
  give(td, path, t);
}
static void check_model(const world *w, const model *m, const tdict_tree *out) {
  int64_t count = 0;
  for (int n = 0; n < MODEL_LEAVES; n++) {
    if (!m->leaves[n].exists) continue;
    char path[32];
    snprintf(path, sizeof path, "g%d.k%d", n % 3, n);
    const tdict_tensor *t = leaf_of(out, path);
    assert_int_equal(tdict_tensor_bytes(t), m->leaves[n].count);
    unsigned char *bytes = read_elements(w, t);
    assert_memory_equal(bytes, m->leaves[n].bytes, m->leaves[n].count);
    free(bytes);
    count++;
  }
  assert_int_equal(tdict_num_leaves(out), count);
}
GPU_CASE(tree_plans_follow_random_changes) {
  world w = open_world();
  tdict_tree *td = new_tree();
  static model m;
  uint64_t seed = 7;
  memset(&m, 0, sizeof m);
  for (int step = 0; step < 150; step++) {
    uint64_t r[8];
    td_fill_random(r, sizeof r, seed++);
    for (int i = 0; i < (int)(r[0] % 4) + !step; i++) put_leaf(td, &m, r[1 + i]);
    tdict_lock(td);
    for (int i = 0; i < 1 + (int)(r[5] % 3); i++) {
      const way v = way_at((int)(r[6] % NUM_WAYS));
      tdict_tree *out = move_tree(&w, td, w.device, &v);
      check_model(&w, &m, out);
      tdict_release(out);
    }
    /* the elements may change while the tree is locked */
    const int n = (int)(r[7] % MODEL_LEAVES);
    char path[32];
    snprintf(path, sizeof path, "g%d.k%d", n % 3, n);
    if (m.leaves[n].exists) {
      m.leaves[n].bytes[0] ^= 0x5a;
      *(unsigned char *)tdict_tensor_data(leaf_of(td, path)) ^= 0x5a;
    }
    const way again = way_at((int)(r[6] % NUM_WAYS));
    tdict_tree *out = move_tree(&w, td, w.device, &again);
    check_model(&w, &m, out);
    tdict_release(out);
    td_ok(tdict_unlock(td, err));
  }
  tdict_release(td);
  close_world(&w);
}

/* Moves the tree again and again, with a later allocation failing each time, until no allocation fails. With
 * `anew`, the tree has no kept plan at the start of each call. */
static tdict_tree *move_without_memory(const world *w, tdict_tree *td, const tdict_transfer_options *o, bool anew) {
  for (int64_t n = 0;; n++) {
    tdict_tree *out = NULL;
    tdict_error why = {0};
    td_fail_alloc(n, false);
    const tdict_status status = tdict_to_device(w->c, td, w->device, o, &out, &why);
    const bool hit = td_fail_alloc_stop();
    assert_int_equal(status == TDICT_OK, out != NULL);
    if (status == TDICT_OK) check_tree(w, td, out);
    if (status != TDICT_OK) assert_int_equal(status, TDICT_ENOMEM);
    if (!hit) {
      assert_true(n > 0);
      return out;
    }
    tdict_release(out);
    if (!anew) continue;
    td_ok(tdict_unlock(td, err));
    tdict_lock(td);
  }
}
/* After each failure the tree can be moved, and the call that succeeds has kept its plan. */
SIM_CASE(tree_plans_survive_enomem) {
  world w = open_world();
  for (int k = 0; k < 3; k++) {
    tdict_tree *td = k == 0 ? batch_tree(NULL) : k == 1 ? tiny_tree(NULL) : odd_tree(), *out = NULL;
    tdict_transfer_options o = tdict_transfer_options_default();
    o.num_threads = 0;
    tdict_release(to_device(&w, td, w.device)); /* the ring exists from now on */
    tdict_lock(td);
    out = move_without_memory(&w, td, &o, true);
    check_tree(&w, td, out);
    assert_non_null(record_of(td));
    assert_int_equal(num_kept(td), k ? 1 : 0);
    tdict_release(out);
    /* a call that reuses the plan */
    out = move_without_memory(&w, td, &o, false);
    check_tree(&w, td, out);
    tdict_release(out);
    tdict_release(td);
  }
  close_world(&w);
}

/* A large plan is not kept. */
CASE(tree_plans_are_bounded) {
  tdict_plan p = {.num_leaves = 1};
  assert_true(tdict_tree_plans_may_keep(&p));
  p.num_leaves = TDICT_MOST_TREE_PLAN_BYTES / sizeof *p.item_of_leaf;
  assert_true(tdict_tree_plans_may_keep(&p));
  p.num_leaves++;
  assert_false(tdict_tree_plans_may_keep(&p));
  p.num_leaves = 0;
  assert_false(tdict_tree_plans_may_keep(&p));
}

/* Checks that no transfer uses the leaves any more. */
static void check_idle(const tdict_tree *td) {
  leaf_list l = list_entries(td);
  for (size_t i = 0; i < l.count; i++)
    if (l.tensors[i]) assert_true(tdict_storage_is_idle(l.tensors[i]->storage));
  free_list(&l);
}
/* More transfers than plans are in flight at once. The results live on, so each has another address. */
SIM_CASE(tree_plans_are_used_by_one_transfer) {
  enum { TRANSFERS = TDICT_MOST_TREE_PLANS + 2, ROUNDS = 3 };
  world w = open_world();
  tdict_tree *td = tiny_tree(NULL), *out[ROUNDS][TRANSFERS];
  const way v = way_at(1);
  tdict_lock(td);
  (void)collects_of(&w, td, w.device, &v);
  for (int round = 0; round < ROUNDS; round++) {
    const int before = atomic_load(&num_collects);
    tdict_future *f[TRANSFERS] = {NULL};
    td_ok(tdict_sim_hold(w.c, err));
    for (int i = 0; i < TRANSFERS; i++) td_ok(tdict_to_device_async(w.c, td, w.device, &v.o, &f[i], err));
    assert_int_equal(atomic_load(&num_collects) - before, round ? 2 : TRANSFERS - 1);
    td_ok(tdict_sim_resume(w.c, err));
    for (int i = TRANSFERS; i-- > 0;) {
      td_ok(tdict_future_wait(f[i], &out[round][i], err));
      tdict_future_release(f[i]);
    }
    check_idle(td);
    assert_int_equal(num_kept(td), TDICT_MOST_TREE_PLANS);
    for (int k = 0; k <= round; k++)
      for (int i = 0; i < TRANSFERS; i++) check_tree(&w, td, out[k][i]);
    assert_int_equal(collects_of(&w, td, w.device, &v), 0);
  }
  for (int k = 0; k < ROUNDS; k++)
    for (int i = 0; i < TRANSFERS; i++) tdict_release(out[k][i]);
  tdict_release(td);
  close_world(&w);
}

/* Moves a locked tree and an equal tree without a lock. Both transfers must do the same. */
static void check_like_unlocked(const world *w, const tdict_tree *locked, const tdict_tree *unlocked,
                                size_t max_queued_bytes) {
  tdict_transfer_stats stats[2];
  const tdict_tree *trees[2] = {locked, unlocked};
  for (int i = 0; i < 2; i++) {
    tdict_transfer_options o = tdict_transfer_options_default();
    tdict_tree *out = NULL;
    stats[i] = tdict_transfer_stats_default();
    o.stats = &stats[i];
    o.max_queued_bytes = max_queued_bytes;
    td_ok(tdict_to_device(w->c, trees[i], w->device, &o, &out, err));
    check_tree(w, trees[i], out);
    tdict_release(out);
  }
  assert_int_equal(stats[0].num_chunks, stats[1].num_chunks);
  assert_int_equal(stats[0].staged_bytes, stats[1].staged_bytes);
  assert_int_equal(stats[0].direct_bytes, stats[1].direct_bytes);
}
static tdict_tree *tree_of_sizes(int count, const int64_t *sizes, tdict_memory *memory) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < count; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    give(td, key, random_tensor(TDICT_U8, SHAPE(sizes[i]), memory));
  }
  return td;
}
SIM_CASE(tree_plans_are_cut_for_each_limit) {
  static const int64_t sizes[] = {3000000, 900, 2000000, 5000001, 70000};
  static const size_t limits[] = {0, (size_t)8 << 20, (size_t)128 << 10, (size_t)1 << 20};
  world w = open_world();
  for (int k = 0; k < 2; k++) {
    tdict_tree *unlocked = tree_of_sizes(5, sizes, k ? w.pinned : NULL);
    tdict_tree *locked = tree_of_sizes(5, sizes, k ? w.pinned : NULL);
    tdict_lock(locked);
    for (int i = 0; i < (SANITIZED ? 8 : 24); i++)
      check_like_unlocked(&w, locked, unlocked, limits[next_seed() * 7 / 3 % 4]);
    for (int i = 0; i < 4; i++) check_like_unlocked(&w, locked, unlocked, limits[i]);
    tdict_release(locked);
    tdict_release(unlocked);
  }
  close_world(&w);
}
/* Small pinned leaves between large leaves are packed into slots. */
SIM_CASE(tree_plans_are_packed_anew) {
  enum { LEAVES = 160 }; /* after 64 large leaves, collecting tries no fast path that packs */
  int64_t sizes[LEAVES];
  for (int i = 0; i < LEAVES; i++) sizes[i] = i >= LEAVES / 2 && i % 2 ? 100 + i : 70000 + i;
  world w = open_world();
  tdict_tree *unlocked = tree_of_sizes(LEAVES, sizes, w.pinned), *locked = tree_of_sizes(LEAVES, sizes, w.pinned);
  tdict_lock(locked);
  for (int i = 0; i < 4; i++) check_like_unlocked(&w, locked, unlocked, 0);
  assert_int_equal(num_kept(locked), 1);
  tdict_release(locked);
  tdict_release(unlocked);
  close_world(&w);
}

/* A tree with memory of the program has no record, so the transfer itself must keep the sources alive. */
SIM_CASE(tree_plans_retain_sources_without_a_record) {
  world w = open_world();
  tdict_tree *td = tiny_tree(NULL), *twin = NULL, *out = NULL;
  give(td, "claimed", claimed_view(w.pinned, 90000));
  td_ok(tdict_clone_deep(td, NULL, &twin, err));
  tdict_lock(td);
  tdict_future *f = NULL;
  td_ok(tdict_sim_hold(w.c, err));
  td_ok(tdict_to_device_async(w.c, td, w.device, NULL, &f, err));
  assert_null(record_of(td));
  tdict_release(td);
  td_ok(tdict_sim_resume(w.c, err));
  td_ok(tdict_future_wait(f, &out, err));
  check_tree(&w, twin, out);
  tdict_future_release(f);
  tdict_release(out);
  tdict_release(twin);
  close_world(&w);
}
