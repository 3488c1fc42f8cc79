/* Tests the order of transfers of trees whose objects have hooks. Such a transfer gets its place in the order only
 * after its hooks have run. */
#include "pair.h"

enum { SLOW = 20 << 20, BYTES = 1 << 20 }; /* a leaf takes 50 ms */

static tdict_status at_gate(const pair *self, const tdict_hook *hook, tdict_error *err) {
  (void)hook, (void)err;
  gate_pass(self->user);
  return TDICT_OK;
}
static tdict_tree *leaf_alone(const place *w, tdict_tensor *t, uint64_t number) {
  tdict_tree *td = new_tree();
  put_number(w, t, number);
  td_put(td, "x", t);
  return td;
}

/* If another transfer writes the source while the hooks run, the transfer copies the new bytes. */
GPU_CASE(transfer_with_hooks_takes_its_place_later) {
  scoped_probe p = {0};
  scoped_place w = place_open(4);
  gate g = {0};
  scoped_tree src = leaf_alone(&w, new_bytes(BYTES, NULL), 1), dev = leaf_alone(&w, new_bytes(BYTES, w.memory), 2),
              dst = new_tree();
  td_ok(tdict_set(dst, "x", td_leaf(src, "x"), err));
  pair *object = put_pair(src, "pair", &pair_hooked, &p, 1);
  object->also = at_gate;
  object->user = &g;
  tdict_future *f = move_async(&w, src, w.device, NULL);
  gate_await(&g, 1);
  td_ok(tdict_transfer_into(w.c, dst, dev, NULL, err)); /* waits for no transfer */
  gate_open(&g);
  scoped_tree out = finish(f);
  assert_true(has_number(&w, td_leaf(out, "x"), 2));
}

/* Read after write: the hooks return long before an earlier transfer has written the source. The copies wait. */
SIM_CASE(transfer_with_hooks_reads_after_a_write) {
  for (int32_t n = -1; n < 3; n++) {
    place w = place_sim(4, SLOW, 1);
    probe p = {0};
    tdict_tree *src = leaf_alone(&w, new_bytes(BYTES, NULL), 3), *dev = leaf_alone(&w, new_bytes(BYTES, w.memory), 4),
               *dst = new_tree();
    tdict_transfer_options o = threads(n);
    td_ok(tdict_set(dst, "x", td_leaf(src, "x"), err));
    put_pair(src, "pair", &pair_hooked, &p, 1);
    tdict_future *writes = copy_async(&w, dev, dst, NULL), *reads = move_async(&w, src, w.device, &o);
    tdict_tree *out = finish(reads);
    assert_true(has_number(&w, td_leaf(out, "x"), 4));
    finish_copy(writes);
    td_release(out, src, dev, dst);
    close_pairs(&w, &p);
  }
}
