/* Tests the option check_sources: if a source changes while it is read, the transfer fails and names the leaf. */
#include "engine/promises.h"

enum { SLOW = 20 << 20 };

/* Makes a tree with a plain, a pinned and a strided leaf. */
static tdict_tree *sources(const place *w) {
  tdict_tree *td = new_tree();
  const int64_t shape[] = {100, 64};
  const int turn[] = {1, 0};
  tdict_tensor *t = new_tensor(TDICT_I32, 2, shape, NULL), *turned = NULL;
  td_fill_random(t->data, tdict_tensor_bytes(t), 3);
  td_ok(tdict_tensor_permute(t, 2, turn, &turned, err));
  tdict_tensor_release(t);
  td_put(td, "n.plain", new_bytes(100003, NULL));
  td_put(td, "n.pinned", new_bytes(100003, w->pinned));
  td_put(td, "turned", turned);
  put_number(w, td_leaf(td, "n.plain"), 1);
  put_number(w, td_leaf(td, "n.pinned"), 2);
  return td;
}
static tdict_transfer_options checking(int32_t mode, int32_t num_threads) {
  tdict_transfer_options o =
      td_with(tdict_transfer_options, num_threads = num_threads, mode = mode, check_sources = true);
  return o;
}

/* Flips a bit of a source while a transfer reads the source. The data race is intended. */
__attribute__((no_sanitize("thread"))) static void spoil_bit(void *data, size_t at) {
  ((unsigned char *)data)[at] ^= 1;
}

SIM_CASE(check_sources_finds_change) {
  static const char *const paths[] = {"n.plain", "n.pinned", "turned"};
  for (int k = 0; k < 3 * 3 * 3; k++) {
    scoped_place w = place_sim(2, SLOW, 1);
    tdict_tree *src = sources(&w), *out = NULL;
    const char *path = paths[k % 3];
    tdict_tensor *t = td_leaf(src, path);
    tdict_transfer_options o = checking(TDICT_MODE_NON_BLOCKING + k / 3 % 2, k / 9 - 1);
    size_t at = k / 9 == 0 ? 0 : k / 9 == 1 ? tdict_tensor_bytes(t) - 1 : tdict_tensor_bytes(t) / 2;
    hold(&w);
    tdict_future *f = move_async(&w, src, w.device, &o);
    spoil_bit(t->data, at); /* without an accessor, which would wait */
    resume(&w);
    td_fails_at(TDICT_ECHANGED, "changed", path, tdict_future_wait(f, &out, err));
    assert_null(out);
    td_release(f, src);
  }
}

GPU_CASE(check_sources_accepts_unchanged_sources) {
  scoped_place w = place_open(2);
  scoped_tree src = sources(&w), dst = NULL;
  for (int k = 0; k < 4 * 3; k++) {
    tdict_transfer_options o = checking(k / 3, k % 3 - 1);
    scoped_tree out = td_made(tree, tdict_to_device(w.c, src, w.device, &o, &made, err));
    assert_true(has_number(&w, td_leaf(out, "n.plain"), 1));
    assert_true(has_number(&w, td_leaf(out, "n.pinned"), 2));
    td_ok(tdict_transfer_into(w.c, out, src, &o, err));
    td_ok(tdict_to_device(w.c, out, tdict_cpu(), &o, &dst, err)); /* a source on the device is not checked */
    assert_true(has_number(&w, td_leaf(dst, "n.plain"), 1));
    td_release(dst);
  }
}

/* Only the elements of a strided leaf are checked, not the gaps between them. */
SIM_CASE(check_sources_hashes_elements_only) {
  scoped_place w = place_sim(2, SLOW, 1);
  const int64_t shape[] = {100, 64};
  tdict_tensor *whole = new_tensor(TDICT_U8, 2, shape, NULL), *half = NULL;
  tdict_tensor_range range = {1, 0, 32, 1};
  td_fill_random(whole->data, tdict_tensor_bytes(whole), 5);
  td_ok(tdict_tensor_slice(whole, &range, &half, err));
  tdict_tree *src = new_tree(), *out = NULL;
  td_put(src, "half", half);
  tdict_transfer_options o = checking(TDICT_MODE_AUTO, 2);
  for (int i = 0; i < 2; i++) {
    hold(&w);
    scoped_future f = move_async(&w, src, w.device, &o);
    spoil_bit(whole->data, (size_t)(64 * 50 + 32 - i)); /* the first byte after a row, then the last byte of the row */
    resume(&w);
    if (i == 0) {
      tdict_release(td_made(tree, tdict_future_wait(f, &made, err)));
    } else {
      td_fails(TDICT_ECHANGED, "", tdict_future_wait(f, &out, err));
    }
  }
  td_release(whole, src);
}

/* A consolidated tree whose tensors are all empty has no address. */
SIM_CASE(check_sources_of_an_empty_block) {
  scoped_place w = place_sim(2, SLOW, 1);
  scoped_tree empty = td_tree("[0] a:f32[0,3] b:i64[0]");
  scoped_tree block = td_made(tree, tdict_consolidate(empty, NULL, &made, err));
  tdict_transfer_options o = checking(TDICT_MODE_AUTO, 2);
  scoped_tree out = td_made(tree, tdict_to_device(w.c, block, w.device, &o, &made, err));
  assert_int_equal(tdict_num_leaves(out), 2);
}

/* If an earlier transfer writes the source, the check starts only after that transfer ends. */
SIM_CASE(check_sources_waits_for_an_earlier_writer) {
  scoped_place w = place_sim(2, SLOW, 1);
  scoped_tree dev = numbered_tree(&w, w.memory, 6), host = numbered_tree(&w, NULL, 0);
  tdict_future *f = copy_async(&w, dev, host, NULL);
  tdict_transfer_options o = checking(TDICT_MODE_AUTO, -1);
  scoped_tree out = finish(move_async(&w, host, w.device, &o));
  check_tree_number(&w, out, 6);
  finish_copy(f);
}
