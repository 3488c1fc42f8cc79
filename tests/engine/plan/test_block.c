/* Tests transfers of locked trees: which trees are one block, how long a tree keeps its record, and the copied
 * bytes. */
#include "engine/plan/block.h"

#include <sys/wait.h>

#include "engine/conversions.h"
#include "support/threads.h"

static bool has_record(const tdict_tree *td) { return tdict_node_attachment(td, TDICT_ATTACHED_BLOCK) != NULL; }
/* Compares the spans of the record with the addresses of the leaves. */
static void check_spans(const tdict_tree *td, const tdict_consolidated *record) {
  scoped_leaf_list l = list_entries(td);
  size_t n = 0, dims = 0;
  for (size_t i = 0; i < l.count; i++) {
    const tdict_tensor *t = l.tensors[i];
    if (!t) continue;
    assert_ptr_equal(t->storage, record->bytes->storage);
    assert_int_equal(record->layout->leaves[n].bytes, tdict_tensor_bytes(t));
    if (tdict_tensor_bytes(t))
      assert_int_equal(record->layout->leaves[n].begin, (char *)t->data - (char *)t->storage->data);
    dims += (size_t)tdict_tensor_ndim(t);
    n++;
  }
  assert_int_equal(record->layout->num_leaves, n);
  assert_int_equal(record->layout->num_dims, dims);
}
static bool is_block(const tdict_tree *td) {
  tdict_consolidated *record = (tdict_consolidated *)1;
  td_ok(tdict_block_find(td, &record, err));
  if (record) check_spans(td, record);
  assert_int_equal(has_record(td), record && !tdict_is_consolidated(td));
  tdict_consolidated_release(record);
  return record != NULL;
}
static tdict_tree *locked(tdict_tree *td) {
  tdict_lock(td);
  return td;
}
/* Makes a tree of five fields in one arena. One field has no elements. */
static tdict_tree *from_schema(tdict_memory *memory) {
  static const tdict_field fields[] = {{"a.x", TDICT_U8, 1, {7}},
                                       {"a.none", TDICT_F32, 2, {3, 0}},
                                       {"b", TDICT_F64, 1, {32}},
                                       {"c.d.e", TDICT_DTYPE(1, 8, 3), 1, {400}},
                                       {"z", TDICT_BOOL, 0, {0}}};
  tdict_tree *td = NULL;
  td_ok(tdict_create_from(fields, sizeof fields / sizeof *fields, SHAPE(5), memory, &td, err));
  return td;
}
/* Makes a locked tree that is one block, or whose leaves have separate storages if `is_scattered` is true. */
static tdict_tree *locked_tree(int is_scattered, tdict_memory *memory) {
  return locked(is_scattered ? tiny_tree(memory) : batch_tree(memory));
}
static const char *const path_of[] = {"next.obs.state", "group3.leaf100"};

GPU_CASE(block_is_found_in_trees_of_one_arena) {
  scoped_place w = open_place();
  scoped_tree host = locked(from_schema(NULL)), pinned = locked(from_schema(w.pinned)), out = NULL, whole = NULL;
  assert_true(is_block(host) && is_block(pinned));
  out = to_device(&w, host, w.device); /* the storage ends after the last leaf */
  assert_true(tdict_is_locked(out) && is_block(out));
  assert_ptr_equal(whole = to_device(&w, out, w.device), out);
  tdict_release(whole);
  td_ok(tdict_consolidate(host, NULL, &whole, err));
  assert_true(is_block(whole));
  td_ok(tdict_unlock(whole, err));
  assert_false(is_block(locked(whole))); /* its tensors are not in an arena */
}

CASE(block_is_not_found_in_other_trees) {
  scoped_tree td = from_schema(NULL), other = from_schema(NULL), batch = batch_tree(NULL);
  tdict_tree *above = new_tree();
  assert_false(is_block(td)); /* not locked */
  assert_false(is_block(locked(above)));
  td_ok(tdict_unlock(above, err));
  /* a leaf is missing at the end, in the middle or at the start, or one entry is text */
  static const char *const paths[] = {"z", "b", "a.x", NULL};
  for (int i = 0; i < 4; i++) {
    scoped_tree part = from_schema(NULL);
    td_ok(paths[i] ? tdict_delete(part, paths[i], err) : tdict_set_text(part, "text", "reach the door", err));
    assert_false(is_block(locked(part)));
  }
  /* one leaf is in another storage */
  td_ok(tdict_set(td, "b", td_leaf(other, "b"), err));
  assert_false(is_block(locked(td)));
  /* the order of the keys differs from the order of the leaves in the storage */
  tdict_tensor *b = tdict_tensor_retain(td_leaf(other, "b"));
  td_ok(tdict_delete(other, "b", err));
  td_put(other, "b", b);
  assert_false(is_block(locked(other)));
  /* a child that is locked only because its parent is locked is not a block */
  td_ok(tdict_set_tree(above, "child", batch, err));
  assert_true(is_block(locked(above)));
  assert_true(tdict_is_locked(batch) && !is_block(batch));
  tdict_release(above);
  /* a leaf is replaced by a view of its bytes */
  scoped_tensor view = NULL;
  td_ok(tdict_tensor_slice(td_leaf(batch, "action"), &(tdict_tensor_range){0, 0, 16, 1}, &view, err));
  td_ok(tdict_set(batch, "action", view, err));
  assert_false(is_block(locked(batch)));
}

CASE(block_record_is_kept_while_locked) {
  tdict_tree *td = locked(from_schema(NULL));
  scoped_storage storage = td_leaf(td, "b")->storage;
  tdict_consolidated *record[2] = {NULL};
  for (int i = 0; i < 2; i++) td_ok(tdict_block_find(td, &record[i], err));
  assert_ptr_equal(record[0], record[1]);
  for (int i = 0; i < 2; i++) tdict_consolidated_release(record[i]);
  tdict_storage_retain(storage);
  td_ok(tdict_unlock(td, err));
  assert_false(has_record(td) || is_block(td));
  assert_true(is_block(locked(td)));
  tdict_release(td);
  assert_int_equal(atomic_load(&storage->refs), 1); /* the record was freed with the tree */
}

/* With some options, a block is copied leaf by leaf. Only the statistics of a copied block include the padding. */
GPU_CASE(block_is_copied_by_leaf_with_some_options) {
  scoped_place w = open_place();
  static const char *const pattern = "action";
  const tdict_conversion conversion = to_dtype("next.reward", TDICT_F32);
  scoped_tree td = locked_tree(0, NULL), dst = to_device(&w, td, w.device), out = NULL;
  const size_t bytes = (size_t)tdict_bytes(td);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options plain = td_with(tdict_transfer_options, stats = &stats);
  tdict_transfer_options options[] = {plain, plain, plain, plain, plain};
  options[1].keep = &pattern;
  options[1].num_keep = 1;
  options[2].conversions = &conversion;
  options[2].num_conversions = 1;
  options[3].narrow = 1;
  const size_t block = td_leaf(td, "action")->storage->bytes;
  const size_t wanted[] = {block, bytes - 16 * 6 * 4, bytes - 16 * 4, block, bytes}; /* narrow packs no small leaf */
  assert_true(block > bytes);
  for (int i = 0; i < 5; i++) {
    if (i == 4) td_ok(tdict_unlock(td, err));
    td_ok(tdict_to_device(w.c, td, w.device, &options[i], &out, err));
    assert_int_equal(stats.total_bytes, wanted[i]);
    if (i == 1) assert_ptr_equal(td_leaf(out, "action"), td_leaf(td, "action"));
    if (i == 2) assert_int_equal(tdict_tensor_dtype(td_leaf(out, "next.reward")), TDICT_F32);
    if (i != 2) check_tree(&w, td, out);
    tdict_release(out);
  }
  tdict_lock(td);
  spoil_tree(&w, dst);
  td_ok(tdict_transfer_into(w.c, dst, td, &plain, err));
  assert_int_equal(stats.total_bytes, bytes);
  check_tree(&w, td, dst);
  td_ok(tdict_pin_memory(w.c, td, td_options(tdict_pin_options, stats = &stats), &out, err));
  assert_int_equal(stats.total_bytes, bytes);
  check_tree(&w, td, out);
}

/* While a transfer runs, the program unlocks, changes and frees the tree. The result has the old bytes. Rounds 0 and 1
 * get the result early, from tdict_future_wait_on_stream(). */
SIM_CASE(block_outlives_its_tree_during_a_transfer) {
  scoped_place w = open_place();
  TD_STREAM(s, w.c, w.device);
  for (int k = 0; k < 2 * 3; k++) {
    tdict_tree *td = locked_tree(k % 2, k < 2 ? w.pinned : NULL), *twin = NULL, *early = NULL, *out = NULL;
    td_ok(tdict_clone_deep(td, NULL, &twin, err));
    td_ok(tdict_sim_hold(w.c, err));
    scoped_future f = td_made(future, tdict_to_device_async(w.c, td, w.device, NULL, &made, err));
    if (k >= 2) td_ok(tdict_unlock(td, err));
    if (k >= 2) td_ok(tdict_delete(td, path_of[k % 2], err));
    if (k >= 4) td_put(td, path_of[k % 2], random_tensor(TDICT_I64, SHAPE(16, 9), NULL));
    tdict_release(td);
    if (k < 2) td_ok(tdict_future_wait_on_stream(f, s, &early, err));
    assert_false(tdict_future_is_ready(f));
    td_ok(tdict_sim_resume(w.c, err));
    td_ok(tdict_future_wait(f, &out, err));
    if (k < 2) assert_ptr_equal(out, early);
    assert_true(tdict_is_locked(out) && !tdict_is_consolidated(out));
    check_tree(&w, twin, out);
    tdict_tree *const trees[] = {early, out, twin};
    for (int i = 0; i < 3; i++) tdict_release(trees[i]);
  }
}

__attribute__((no_sanitize("thread"))) static void spoil_bit(void *data, size_t at) {
  ((unsigned char *)data)[at] ^= 1;
}
/* If bytes are lost or change during a transfer, the error names the leaf, even after an earlier transfer of the
 * tree. */
SIM_CASE(block_errors_name_leaves) {
  scoped_place w = open_place();
  tdict_transfer_options o = td_with(tdict_transfer_options, check_sources = true);
  for (int k = 0; k < 2; k++) {
    scoped_tree td = locked_tree(k, NULL), saved = to_device(&w, td, w.device), out = NULL;
    tdict_tensor *t = td_leaf(td, path_of[k]);
    tdict_future *f = NULL;
    td_ok(tdict_sim_hold(w.c, err));
    td_ok(tdict_to_device_async(w.c, td, w.device, &o, &f, err));
    td_rest();
    spoil_bit(t->data, tdict_tensor_bytes(t) - 1);
    td_ok(tdict_sim_resume(w.c, err));
    td_fails_at(TDICT_ECHANGED, "changed", path_of[k], tdict_future_wait(f, &out, err));
    tdict_future_release(f);
    tdict_tensor_lose(t);
    for (int i = 0; i < 2; i++)
      td_fails_at(TDICT_EINVAL, "lost", path_of[k], tdict_to_device(w.c, td, w.device, NULL, &out, err));
    td_ok(tdict_transfer_into(w.c, td, saved, NULL, err));
    out = to_device(&w, td, w.device);
    check_tree(&w, saved, out);
  }
}

enum { THREADS = 4, MOVES = 4, TREES = THREAD_SANITIZED ? 6 : 20 };
typedef struct mover {
  const place *w;
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
    tdict_status status = tdict_to_device_async(m->w->c, m->td, device, &v.o, &f, NULL);
    if (status == TDICT_OK) status = tdict_future_wait(f, &m->results[i], NULL);
    tdict_future_release(f);
    m->failures += status != TDICT_OK;
  }
  return NULL;
}
/* Several threads move one locked tree, which has no record at first, to the device and to the host. */
SIM_CASE(block_is_moved_by_several_threads) {
  scoped_place w = open_place();
  for (int k = 0; k < TREES; k++) {
    scoped_tree td = locked_tree(0, NULL);
    mover movers[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
      movers[i] = (mover){.w = &w, .td = td, .number = i};
      threads[i] = td_start(move_often, &movers[i]);
    }
    for (int i = 0; i < THREADS; i++) {
      pthread_join(threads[i], NULL);
      assert_int_equal(movers[i].failures, 0);
      for (int n = 0; n < MOVES; n++) check_tree(&w, td, movers[i].results[n]);
      for (int n = 0; n < MOVES; n++) tdict_release(movers[i].results[n]);
    }
  }
}

/* Replaces random leaves of the unlocked tree, and changes an element of the locked tree. Moves the tree each time. */
GPU_CASE(block_follows_random_changes) {
  scoped_place w = open_place();
  scoped_tree td = new_tree();
  int num_blocks = 0;
  for (int step = 0; step < 150; step++) {
    uint64_t r[8];
    char path[16] = "g0.k0";
    td_fill_random(r, sizeof r, next_seed());
    for (int i = 0; i < (int)(r[0] % 3) + 2 * !step; i++) {
      snprintf(path, sizeof path, "g%d.k%d", (int)(r[i] % 3), (int)(r[i] / 4 % 4));
      if (tdict_has(td, path)) td_ok(tdict_delete(td, path, err));
      td_put(td, path, random_tensor(TDICT_U8, SHAPE(1 + (int64_t)(r[i] / 16 % 600)), NULL));
    }
    tdict_lock(td);
    for (int i = 0; i < 2; i++) {
      if (tdict_has(td, path)) *(unsigned char *)tdict_tensor_data(td_leaf(td, path)) ^= 0x5a;
      const way v = way_at((int)((r[6] + (uint64_t)i) % NUM_WAYS));
      scoped_tree out = move_tree(&w, td, w.device, &v);
      check_tree(&w, td, out);
      if (i && r[7] % 2) { /* a tree that is moved back to the host is one block */
        tdict_release(td);
        td = to_device(&w, out, tdict_cpu());
      }
    }
    num_blocks += has_record(td);
    td_ok(tdict_unlock(td, err));
  }
  assert_true(num_blocks > 10);
}

/* Moves a tree while allocation number `n` fails. The move may then fail. Returns true if the allocation failed. */
static bool move_without_memory(const place *w, const tdict_tree *td, bool async, int64_t n) {
  scoped_tree out = NULL;
  scoped_future f = NULL;
  tdict_error why = {0};
  tdict_transfer_options o = td_with(tdict_transfer_options, num_threads = async ? -1 : 0);
  td_fail_alloc(n, false);
  tdict_status status = async ? tdict_to_device_async(w->c, td, w->device, &o, &f, &why)
                              : tdict_to_device(w->c, td, w->device, &o, &out, &why);
  if (async && status == TDICT_OK) status = tdict_future_wait(f, &out, &why);
  const bool has_failed = td_fail_alloc_stop();
  assert_true(status == TDICT_OK || (has_failed && status == TDICT_ENOMEM && !out));
  if (out) check_tree(w, td, out);
  return has_failed;
}
SIM_CASE(block_survives_enomem) {
  scoped_place w = open_place();
  char path[128] = "";
  for (int i = 0; i < 40; i++) strcat(path, i ? ".d" : "d");
  const tdict_field fields[] = {{path, TDICT_U8, 1, {9}}, {"last", TDICT_U8, 1, {9}}};
  for (int k = 0; k < 2 * 4; k++) {
    scoped_tree td = k % 4 < 2 ? locked_tree(k % 4, NULL) : odd_tree();
    if (k % 4 == 3) tdict_release(td);
    if (k % 4 == 3) td_ok(tdict_create_from(fields, 2, 0, NULL, NULL, &td, err));
    tdict_release(to_device(&w, td, w.device)); /* creates the ring */
    bool has_failed = true;
    for (int64_t n = 0; has_failed; n++) {
      td_ok(tdict_unlock(td, err));
      has_failed = move_without_memory(&w, locked(td), k >= 4, n);
      assert_true(has_failed || n > 0);
    }
    assert_int_equal(has_record(td), k % 4 == 0 || k % 4 == 3);
  }
}

/* The record of a result shares the layout of the source's record, even after the source is released. */
GPU_CASE(block_records_share_their_layout) {
  scoped_place w = open_place();
  scoped_tree plain = from_schema(NULL), src = NULL, out = NULL;
  td_ok(tdict_consolidate(plain, NULL, &src, err));
  out = to_device(&w, src, w.device);
  assert_ptr_equal(out->consolidated->layout, src->consolidated->layout);
  assert_int_equal(src->consolidated->layout->refs, 2);
  tdict_release(src);
  src = NULL;
  assert_int_equal(out->consolidated->layout->refs, 1);
  assert_true(is_block(out));
  check_tree(&w, plain, out);
}

/* A forked child process unlocks and frees a tree while the parent's transfer of the tree runs. */
SIM_CASE(block_fork) {
  scoped_place w = open_place();
  for (int k = 0; k < 2; k++) {
    scoped_tree td = locked_tree(k, NULL), out = NULL;
    td_ok(tdict_sim_hold(w.c, err));
    scoped_future f = td_made(future, tdict_to_device_async(w.c, td, w.device, NULL, &made, err));
    td_rest();
    const pid_t child = fork();
    if (child == 0) {
      alarm(20);
      if (tdict_unlock(td, NULL) != TDICT_OK || tdict_delete(td, path_of[k], NULL) != TDICT_OK) _exit(1);
      td_release(td, f);
      _exit(0);
    }
    int code = -1;
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(WIFEXITED(code) && WEXITSTATUS(code) == 0);
    td_ok(tdict_sim_resume(w.c, err));
    td_ok(tdict_future_wait(f, &out, err));
    check_tree(&w, td, out);
  }
}
