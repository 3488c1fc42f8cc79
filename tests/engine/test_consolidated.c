/* Tests transfers of consolidated trees. Each has one item and one copy, and its result is consolidated, too. */
#include "engine/engine.h"
#include "engine/plan/collect.h"
#include "trees.h"
#include "wrap.h"

enum { LEAVES = 1000, MIB = 1 << 20 };

/* Makes a tree with a batch size and ten children, which together have 1000 leaves of different sizes. */
static tdict_tree *thousand_leaves(void) {
  tdict_tree *td = td_made(tree, tdict_create(SHAPE(3), &made, err));
  for (int i = 0; i < LEAVES; i++) {
    const char *path = td_text("group%d.leaf%d", i / 100, i);
    td_put(td, path, random_tensor(i % 2 ? TDICT_U8 : TDICT_F32, SHAPE(3, 1 + i % 41), NULL));
  }
  return td;
}
/* Consolidates a tree. Releases `td` and returns the new tree. */
static tdict_tree *consolidated(tdict_tree *td, tdict_memory *memory) {
  tdict_tree *out = td_made(tree, tdict_consolidate(td, memory, &made, err));
  tdict_release(td);
  return out;
}
/* Checks that `out` is consolidated and locked, that its leaves have the same offsets as in `src`, and that the nodes
 * have the same key tables and batch sizes. */
static void check_layout(const tdict_tree *src, const tdict_tree *out) {
  assert_true(tdict_is_consolidated(out) && tdict_is_locked(out));
  scoped_tensor from = td_made(tensor, tdict_consolidated_bytes(src, &made, err)), to = NULL;
  td_ok(tdict_consolidated_bytes(out, &to, err));
  assert_int_equal(tdict_tensor_bytes(from), tdict_tensor_bytes(to));
  assert_int_equal(tdict_tensor_bytes(to), to->storage->bytes);
  leaf_list a = list_entries(src), b = list_entries(out);
  assert_int_equal(a.count, b.count);
  for (size_t i = 0; i < a.count; i++) {
    assert_string_equal(a.paths[i], b.paths[i]);
    const tdict_tensor *x = a.tensors[i], *y = b.tensors[i];
    if (x && tdict_tensor_bytes(x))
      assert_int_equal((char *)x->data - (char *)from->data, (char *)y->data - (char *)to->data);
    if (x) assert_ptr_equal(y->storage, to->storage);
    if (x) continue;
    tdict_tree *p = td_made(tree, tdict_get_tree(src, a.paths[i], &made, err)), *q = NULL;
    td_ok(tdict_get_tree(out, a.paths[i], &q, err));
    assert_ptr_equal(p->keys, q->keys);
    assert_int_equal(p->batch_ndim, q->batch_ndim);
    assert_memory_equal(p->batch_size, q->batch_size, (size_t)p->batch_ndim * sizeof *p->batch_size);
    assert_true(tdict_is_locked(q) && !tdict_is_consolidated(q));
  }
  assert_ptr_equal(src->keys, out->keys);
  free_list(&a);
  free_list(&b);
}
static size_t whole_bytes(const tdict_tree *td) {
  scoped_tensor bytes = td_made(tensor, tdict_consolidated_bytes(td, &made, err));
  const size_t count = tdict_tensor_bytes(bytes);
  return count;
}

/* tdict_consolidate() writes zeros to the padding, even in reused memory. */
DEVICE_CASE(consolidate_writes_zeros_to_the_padding) {
  scoped_place w = open_place();
  tdict_memory *const memories[] = {NULL, w.memory, w.pinned};
  scoped_tree td = td_tree("a:u8[70001] b:f64[3]");
  for (int i = 0; i < (w.gpu ? 3 : 1); i++) {
    scoped_tree out = NULL;
    poison(&w, memories[i], i ? 70144 + 256 : 110000); /* the next block of malloc() may begin later */
    td_ok(tdict_consolidate(td, memories[i], &out, err));
    check_tree(&w, td, out);
    scoped_bytes bytes = read_storage(&w, td_leaf(out, "a"));
    const size_t size = whole_bytes(out);
    for (size_t k = 70001; k < size; k++)
      if (k < size - 256 || k >= size - 256 + 24) assert_int_equal(bytes[k], 0);
  }
}

/* In all modes and with various thread counts, one copy moves a pinned tree to the device, and one moves it back. */
GPU_CASE(consolidated_pinned_tree_moves_in_one_copy) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree plain = thousand_leaves(), src = td_made(tree, tdict_consolidate(plain, w.pinned, &made, err));
  for (int i = 0; i < NUM_WAYS; i += WAYS_STEP) {
    way v = way_at(i), back = v;
    int64_t before = num_copies();
    scoped_tree out = move_tree(&w, src, w.device, &v);
    assert_int_equal(num_copies() - before, 1);
    check_layout(src, out);
    check_tree(&w, plain, out);
    check_device(out, w.device);
    tdict_device device;
    assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, w.device));
    back.o.pinned_result = true;
    before = num_copies();
    scoped_tree home = move_tree(&w, out, tdict_cpu(), &back);
    assert_int_equal(num_copies() - before, 1);
    check_layout(src, home);
    check_tree(&w, plain, home);
    assert_true(tdict_is_pinned(home));
  }
}

/* An unlocked tree moves leaf by leaf, because copies must not overwrite the padding between the leaves. */
GPU_CASE(consolidated_tree_moves_by_leaf_after_unlock) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree plain = thousand_leaves(), src = NULL;
  tdict_tree *out = NULL;
  td_ok(tdict_consolidate(plain, w.pinned, &src, err));
  td_ok(tdict_unlock(src, err));
  const int64_t before = num_copies();
  td_ok(tdict_to_device(w.c, src, w.device, td_options(tdict_transfer_options, mode = TDICT_MODE_BLOCKING), &out, err));
  assert_true(num_copies() - before > 1);
  assert_false(tdict_is_consolidated(out) || tdict_is_locked(out));
  check_and_release(&w, plain, out);
}

static tdict_plan collect(const place *w, const tdict_tree *src, const tdict_tree *dst) {
  tdict_plan p;
  tdict_plan_request r = {.devices = tdict_context_engine(w->c)->config.devices,
                          .device = w->device,
                          .dst = dst,
                          .mode = TDICT_MODE_NON_BLOCKING_PIN};
  td_ok(tdict_plan_collect(&(tdict_collected){.plan = &p}, &r, src, err));
  return p;
}
GPU_CASE(consolidated_tree_is_one_plan_item) {
  scoped_place w = open_place();
  scoped_tree src = consolidated(thousand_leaves(), NULL), dst = to_device(&w, src, w.device);
  tdict_plan p = collect(&w, src, NULL);
  assert_int_equal(p.num_items, 1);
  assert_int_equal(p.num_leaves, LEAVES);
  assert_int_equal(p.items[0].bytes, whole_bytes(src));
  assert_int_equal(p.line_bytes, whole_bytes(src));
  tdict_plan_reset(&p);
  p = collect(&w, src, dst);
  assert_int_equal(p.num_items, 1);
  tdict_plan_reset(&p);
  p = collect(&w, dst, NULL); /* already on the device */
  assert_int_equal(p.num_items, 0);
  assert_int_equal(tdict_plan_num_shared(&p), LEAVES);
  tdict_plan_reset(&p);
  td_ok(tdict_unlock(src, err));
  p = collect(&w, src, dst);
  assert_int_equal(p.num_items, LEAVES);
  tdict_plan_reset(&p);
  p = collect(&w, src, NULL);
  assert_int_equal(p.num_items, LEAVES);
  tdict_plan_reset(&p);
}

/* A tree in pageable memory is staged through the ring in chunks. */
GPU_CASE(consolidated_pageable_tree_goes_through_the_ring) {
  scoped_place w = open_place();
  scoped_tree plain = thousand_leaves(), src = NULL;
  tdict_tree *out = NULL;
  td_ok(tdict_consolidate(plain, NULL, &src, err));
  tdict_transfer_stats s = tdict_transfer_stats_default();
  poison(&w, w.memory, whole_bytes(src));
  td_ok(tdict_to_device(w.c, src, w.device, td_options(tdict_transfer_options, stats = &s), &out, err));
  assert_int_equal(s.num_leaves, LEAVES);
  assert_int_equal(s.num_shared_leaves, 0);
  assert_int_equal(s.staged_bytes, whole_bytes(src));
  assert_int_equal(s.total_bytes, whole_bytes(src));
  assert_int_equal(s.direct_bytes + s.pageable_bytes + s.host_bytes, 0);
  assert_true(s.num_chunks > 1);
  assert_true(s.peak_staging_bytes > 0 && s.peak_staging_bytes <= STAGING);
  check_layout(src, out);
  check_and_release(&w, plain, out);
}

/* A copy of more than 16 MiB is split, so that copies of the program can run in between. */
GPU_CASE(consolidated_large_tree_moves_in_pieces) {
  scoped_place w = open_wrapped(NULL);
  tdict_tree *td = new_tree();
  td_put(td, "a", random_tensor(TDICT_U8, SHAPE(9 * MIB + 1), NULL));
  td_put(td, "b", random_tensor(TDICT_U8, SHAPE(8 * MIB), NULL));
  scoped_tree src = consolidated(td, w.pinned);
  const int64_t before = num_copies();
  tdict_tree *out = to_device(&w, src, w.device);
  assert_int_equal(num_copies() - before, 2);
  check_layout(src, out);
  check_and_release(&w, src, out);
}

/* Moves trees of every kind with various options. */
DEVICE_CASE(consolidated_trees_of_every_kind) {
  scoped_place w = open_place();
  for (int k = 0; k < NUM_TREE_KINDS; k++) {
    if (!w.gpu && (k == TREE_PINNED || k == TREE_MIXED)) continue;
    scoped_tree plain = make_tree(&w, (tree_kind)k);
    for (int pinned = 0; pinned <= (w.gpu ? 1 : 0); pinned++) {
      scoped_tree src = td_made(tree, tdict_consolidate(plain, pinned ? w.pinned : NULL, &made, err));
      for (int i = k; i < NUM_WAYS; i += FEW_WAYS_STEP) {
        way v = way_at(i);
        scoped_tree out = move_tree(&w, src, w.device, &v);
        if (!w.gpu) assert_ptr_equal(out, src); /* in place */
        check_layout(src, out);
        check_tree(&w, plain, out);
        check_device(out, w.device);
        scoped_tree again = move_tree(&w, out, w.device, &v), home = move_tree(&w, out, tdict_cpu(), &v);
        assert_ptr_equal(again, out);
        check_layout(src, home);
        check_tree(&w, plain, home);
      }
    }
  }
}

/* One copy moves the tensors of a consolidated tree with a text and a column. The text and column arrive, too. */
GPU_CASE(consolidated_trees_with_text_move_in_one_copy) {
  scoped_place w = open_wrapped(NULL);
  static const char *const texts[] = {"p", "q", "r"};
  tdict_tree *td = thousand_leaves();
  td_ok(tdict_set_text(td, "group3.text", "hello", err));
  td_ok(tdict_set_texts(td, "column", texts, 3, err));
  tdict_tree *src = consolidated(td, w.pinned), *into = NULL;
  const way v = way_at(0);
  for (int i = 0; i < 3; i++) {
    const int64_t before = num_copies();
    scoped_tree out = move_tree(&w, src, w.device, &v);
    assert_int_equal(num_copies() - before, 1);
    scoped_tree home = move_tree(&w, out, tdict_cpu(), &v);
    assert_true(tdict_is_consolidated(out) && tdict_is_locked(out) && tdict_is_consolidated(home));
    check_tree(&w, src, home);
    const char *text = NULL;
    td_ok(tdict_get_text(home, "column", 2, &text, NULL, err));
    assert_string_equal(text, "r");
    td_ok(tdict_get_text(home, "group3.text", -1, &text, NULL, err));
    assert_string_equal(text, "hello");
    td_ok(tdict_clone_deep(src, NULL, &into, err));
    td_ok(tdict_fill(into, NULL, 0, NULL, err));
    td_ok(tdict_transfer_into(w.c, into, out, NULL, err));
    check_and_release(&w, src, into);
  }
  tdict_release(src);
}

GPU_CASE(consolidated_trees_are_pinned) {
  scoped_place w = open_place();
  scoped_tree plain = thousand_leaves(), src = NULL, out = NULL, again = NULL;
  tdict_transfer_stats s = tdict_transfer_stats_default();
  tdict_pin_options o = td_with(tdict_pin_options, stats = &s);
  td_ok(tdict_consolidate(plain, NULL, &src, err));
  td_ok(tdict_pin_memory(w.c, src, &o, &out, err));
  assert_int_equal(s.num_leaves, LEAVES);
  assert_int_equal(s.host_bytes, whole_bytes(src));
  assert_true(tdict_is_pinned(out) && !tdict_is_pinned(src));
  check_layout(src, out);
  check_tree(&w, plain, out);
  td_ok(tdict_pin_memory(w.c, out, &o, &again, err)); /* pinned already */
  assert_ptr_equal(again, out);
  assert_int_equal(s.num_shared_leaves, LEAVES);
  td_release(again, out);
  out = to_device(&w, src, w.device);
  td_fails(TDICT_EWRONGDEVICE, "wanted one on the cpu", tdict_pin_memory(w.c, out, NULL, &again, err));
  assert_string_equal(td_last_error.path, "group0.leaf0");
}

/* Moves a tree without leaves, and a tree whose only leaf is empty. */
GPU_CASE(consolidated_empty_trees_move) {
  scoped_place w = open_place();
  for (int k = 0; k < 2; k++) {
    tdict_tree *td = new_tree();
    td_put_tree(td, "n", new_tree());
    if (k) td_put(td, "n.none", random_tensor(TDICT_F32, SHAPE(0, 3), NULL));
    scoped_tree src = consolidated(td, NULL), out = to_device(&w, src, w.device);
    tdict_device device;
    check_layout(src, out);
    assert_true(tdict_get_device(out, &device) && tdict_device_equal(device, w.device));
    tdict_tree *home = td_made(tree, tdict_to_device(w.c, src, tdict_cpu(), NULL, &made, err));
    check_layout(src, home);
    tdict_release(home);
    td_ok(tdict_to_device(w.c, out, w.device, NULL, &home, err));
    assert_ptr_equal(home, out);
    tdict_release(home);
    td_ok(tdict_transfer_into(w.c, out, src, NULL, err));
  }
}

/* A transfer into a consolidated tree of the same structure is one copy. Into other trees, each leaf needs a copy. */
GPU_CASE(consolidated_tree_is_copied_into_trees) {
  scoped_place w = open_wrapped(NULL);
  tdict_tree *first = consolidated(thousand_leaves(), w.pinned), *dst = to_device(&w, first, w.device);
  tdict_tree *second = consolidated(thousand_leaves(), w.pinned); /* equal keys in separate key tables */
  for (int i = 0; i < NUM_WAYS; i += 3) {
    way v = way_at(i);
    void *data = td_leaf(dst, "group3.leaf300")->data;
    const tdict_tree *src = i % 2 ? first : second;
    int64_t before = num_copies();
    copy_tree(&w, src, dst, &v);
    assert_int_equal(num_copies() - before, 1);
    assert_true(tdict_is_consolidated(dst));
    assert_ptr_equal(td_leaf(dst, "group3.leaf300")->data, data);
    check_tree(&w, src, dst);
  }
  td_release(dst, first, second);
  /* trees that differ in the order of keys, or in one shape, dtype or key */
  static const struct {
    const char *a, *b, *error;
    tdict_dtype dtype;
    int64_t size;
    tdict_status status;
  } cases[] = {{"y", "n.x", NULL, TDICT_U8, 256, TDICT_OK},
               {"n.x", "y", NULL, TDICT_U8, 300, TDICT_OK},
               {"n.x", "y", "shape", TDICT_U8, 299, TDICT_ESHAPE},
               {"n.x", "y", "the source is uint8", TDICT_I8, 300, TDICT_EDTYPE},
               {"n.x", "z", "no such key", TDICT_U8, 300, TDICT_ENOTFOUND},
               {"n.z", "y", "no such key", TDICT_U8, 300, TDICT_ENOTFOUND}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tdict_tree *td = new_tree(), *other = new_tree();
    td_put(td, "n.x", random_tensor(TDICT_U8, SHAPE(i ? 300 : 256), NULL));
    td_put(td, "y", random_tensor(TDICT_U8, SHAPE(i ? 300 : 256), NULL));
    td_put(other, cases[i].a, random_tensor(TDICT_U8, SHAPE(i ? 300 : 256), NULL));
    td_put(other, cases[i].b, random_tensor(cases[i].dtype, SHAPE(cases[i].size), NULL));
    scoped_tree src = consolidated(td, w.pinned), into = consolidated(other, w.pinned);
    if (cases[i].status != TDICT_OK) {
      scoped_bytes before = read_storage(&w, td_leaf(into, cases[i].a));
      td_fails(cases[i].status, cases[i].error, tdict_transfer_into(w.c, into, src, NULL, err));
      assert_true(td_last_error.path[0]);
      assert_memory_equal(before, td_leaf(into, cases[i].a)->storage->data, td_leaf(into, cases[i].a)->storage->bytes);
    } else {
      td_ok(tdict_transfer_into(w.c, into, src, NULL, err));
      check_tensor(&w, td_leaf(src, "n.x"), td_leaf(into, "n.x"), "n.x");
      check_tensor(&w, td_leaf(src, "y"), td_leaf(into, "y"), "y");
      assert_true(tdict_is_consolidated(into));
    }
  }
}

/* The program changes the source tree after the call has returned. */
SIM_CASE(consolidated_source_may_change_after_the_call) {
  scoped_place w = open_place();
  scoped_tree plain = thousand_leaves(), src = NULL, out = NULL;
  td_ok(tdict_consolidate(plain, w.pinned, &src, err));
  tdict_storage *storage = td_leaf(src, "group0.leaf0")->storage;
  td_ok(tdict_sim_hold(w.c, err));
  scoped_future f = move_async(&w, src, w.device, NULL);
  assert_false(tdict_storage_is_idle(storage)); /* accessors would wait for the transfer */
  td_ok(tdict_unlock(src, err));
  td_ok(tdict_delete(src, "group0", err));
  td_ok(tdict_rename(src, "group1", "other", false, err));
  td_release(src);
  td_ok(tdict_sim_resume(w.c, err));
  td_ok(tdict_future_wait(f, &out, err));
  assert_true(tdict_is_consolidated(out));
  check_tree(&w, plain, out);
}

/* If the copy fails, all leaves are lost. The error names no leaf, because one copy moves all leaves. */
SIM_CASE(consolidated_copies_that_fail) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree src = consolidated(thousand_leaves(), w.pinned), dst = to_device(&w, src, w.device);
  tdict_tree *out = NULL;
  fail_call(CALL_COPY, 1);
  td_fails_at(TDICT_EDEVICE, "cuMemcpyHtoD", "", tdict_transfer_into(w.c, dst, src, NULL, err));
  leaf_list l = list_entries(dst);
  for (size_t i = 0; i < l.count; i++)
    if (l.tensors[i]) assert_null(tdict_tensor_const_data(l.tensors[i]));
  free_list(&l);
  td_fails_at(TDICT_EINVAL, "lost", "group0.leaf0", tdict_to_device(w.c, dst, tdict_cpu(), NULL, &out, err));
  /* Transfers write one group after another. Each group is lost until a transfer writes it. The padding stays lost. */
  tdict_tree *parts = td_made(tree, tdict_clone(src, &made, err));
  static const char *const groups[] = {"group0", "group1", "group2", "group3", "group4",
                                       "group5", "group6", "group7", "group8", "group9"};
  for (int g = 0; g < 10; g++) {
    if (g == 9)
      td_fails_at(TDICT_EINVAL, "lost", "group9.leaf900", tdict_to_device(w.c, dst, tdict_cpu(), NULL, &out, err));
    tdict_tree *from = td_made(tree, tdict_get_tree(parts, groups[g], &made, err)), *to = NULL;
    td_ok(tdict_get_tree(dst, groups[g], &to, err));
    td_ok(tdict_transfer_into(w.c, to, from, NULL, err));
  }
  tdict_tensor *bytes = td_made(tensor, tdict_consolidated_bytes(dst, &made, err));
  assert_null(tdict_tensor_const_data(bytes));
  check_and_release(&w, src, move_with(&w, dst, tdict_cpu(), NULL));
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  assert_non_null(tdict_tensor_const_data(bytes)); /* the whole storage was written */
  td_release(bytes, parts);
  /* A failed transfer to a new result returns nothing. */
  fail_call(CALL_COPY, 1);
  td_fails_at(TDICT_EDEVICE, "cuMemcpyHtoD", "", tdict_to_device(w.c, src, w.device, NULL, &out, err));
}

/* A transfer waits for an earlier transfer into its source, which is cancelled, so bytes of the source are lost. */
SIM_CASE(consolidated_source_is_lost_meanwhile) {
  scoped_place w = open_wrapped(NULL);
  scoped_tree src = consolidated(thousand_leaves(), w.pinned), dst = to_device(&w, src, w.device);
  tdict_tree *child = td_made(tree, tdict_get_tree(dst, "group4", &made, err)), *from = NULL;
  td_ok(tdict_get_tree(src, "group4", &from, err));
  scoped_future a = NULL, b = NULL;
  td_ok(tdict_sim_hold(w.c, err));
  td_ok(tdict_transfer_into_async(w.c, child, from, NULL, &a, err));
  td_ok(tdict_to_device_async(w.c, dst, tdict_cpu(), NULL, &b, err)); /* waits for transfer a */
  tdict_future_cancel(a);
  td_ok(tdict_sim_resume(w.c, err));
  td_fails(TDICT_ECANCELLED, "", tdict_future_wait(a, NULL, err));
  td_fails_at(TDICT_EINVAL, "lost", "group4.leaf400", tdict_future_wait(b, NULL, err));
}

__attribute__((no_sanitize("thread"))) static void spoil_bit(void *data, size_t at) {
  ((unsigned char *)data)[at] ^= 1;
}
SIM_CASE(consolidated_sources_are_checked_by_leaf) {
  scoped_place w = open_place();
  tdict_tree *src = consolidated(thousand_leaves(), w.pinned), *out = NULL;
  tdict_transfer_options o = td_with(tdict_transfer_options, check_sources = true);
  tdict_tensor *t = td_leaf(src, "group7.leaf723");
  void *data = tdict_tensor_data(t);
  for (int k = 0; k < 3; k++) { /* 0: changes nothing; 1: the last byte of a leaf; 2: the padding after the leaf */
    td_ok(tdict_sim_hold(w.c, err));
    scoped_future f = move_async(&w, src, w.device, &o);
    if (k) spoil_bit(data, tdict_tensor_bytes(t) - (k == 1));
    td_ok(tdict_sim_resume(w.c, err));
    if (k == 1) {
      td_fails_at(TDICT_ECHANGED, "changed", "group7.leaf723", tdict_future_wait(f, &out, err));
    } else {
      tdict_release(td_made(tree, tdict_future_wait(f, &made, err)));
    }
  }
  tdict_release(src);
}

SIM_CASE(consolidated_transfers_survive_enomem) {
  scoped_place w = open_place();
  tdict_tree *td = batch_tree(NULL);
  scoped_tree src = consolidated(td, w.pinned), dst = to_device(&w, src, w.device);
  tdict_transfer_options o = threads(0);
  for (int into = 0; into < 2; into++) {
    TD_SWEEP(s) {
      scoped_tree out = NULL;
      const tdict_status status = td_sweep_call(s, into ? tdict_transfer_into(w.c, dst, src, &o, err)
                                                        : tdict_to_device(w.c, src, w.device, &o, &out, err));
      if (status == TDICT_OK) {
        assert_true(into || tdict_is_consolidated(out));
        check_tree(&w, src, into ? dst : out);
      } else {
        assert_null(out);
      }
      assert_true(s.failed || s.n > 0);
    }
  }
}

/* A tree on a device of another context is refused. The error names the first leaf. */
SIM_CASE(consolidated_trees_of_another_context_are_refused) {
  scoped_place w = open_place(), other = open_place();
  scoped_tree src = consolidated(thousand_leaves(), NULL), there = to_device(&other, src, other.device);
  tdict_tree *out = NULL;
  td_fails(TDICT_EWRONGDEVICE, "another context", tdict_to_device(w.c, there, tdict_cpu(), NULL, &out, err));
  assert_string_equal(td_last_error.path, "group0.leaf0");
}

/* A consolidated child of another tree is copied leaf by leaf, and the child of the result is not consolidated. */
GPU_CASE(consolidated_child_moves_by_leaf) {
  scoped_place w = open_place();
  tdict_tree *td = new_tree(), *child = NULL;
  td_put_tree(td, "child", consolidated(batch_tree(NULL), NULL));
  scoped_tree out = to_device(&w, td, w.device);
  check_tree(&w, td, out);
  td_ok(tdict_get_tree(out, "child", &child, err));
  assert_true(tdict_is_locked(child) && !tdict_is_consolidated(child));
  tdict_release(td);
}
