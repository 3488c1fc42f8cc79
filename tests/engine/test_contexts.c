/* Tests that calls refuse wrong arguments: streams of other devices or contexts, trees on another context's simulated
 * device, and nonexistent devices. */
#include <stdatomic.h>

#include "promises.h"

enum { OTHER_BYTES = 512 };

/* Two contexts, each with its own device sim:0. */
typedef struct neighbours {
  place own, other;
  tdict_tree *host, *here, *there; /* trees with equal bytes on the host and on each device */
  tdict_stream mine, foreign;
} neighbours;
static neighbours open_neighbours(void) {
  neighbours n = {.own = place_sim(2, 0, 1), .other = place_sim(2, 0, 1)};
  n.host = numbered_tree(&n.own, NULL, 3);
  n.here = moved(&n.own, n.host, tdict_sim(0));
  n.there = moved(&n.other, n.host, tdict_sim(0));
  n.mine = new_stream(&n.own);
  n.foreign = new_stream(&n.other);
  return n;
}
static void close_neighbours(neighbours *n) {
  td_release(n->host, n->here, n->there);
  tdict_stream_destroy(n->own.c, n->mine);
  tdict_stream_destroy(n->other.c, n->foreign);
  place_close(&n->own);
  place_close(&n->other);
}

static void refuse_foreign_streams(neighbours *n) {
  tdict_tree *out = NULL;
  tdict_transfer_options o = td_with(tdict_transfer_options, after = n->foreign);
  td_fails(TDICT_EWRONGDEVICE, "sim:0", tdict_to_device(n->own.c, n->host, tdict_sim(0), &o, &out, err));
  td_fails(TDICT_EWRONGDEVICE, "sim:0", tdict_to_device(n->own.c, n->here, tdict_sim(0), &o, &out, err));
  td_fails(TDICT_EWRONGDEVICE, "sim:0", tdict_transfer_into(n->own.c, n->here, n->host, &o, err));
  td_fails(TDICT_EWRONGDEVICE, "sim:0", tdict_record_stream(n->here, n->foreign, err));
  td_fails(TDICT_EWRONGDEVICE, "sim:0", tdict_record_stream(n->there, n->mine, err));
  td_fails(TDICT_EWRONGDEVICE, "sim:0", tdict_stream_synchronize(n->own.c, n->foreign, err));
  tdict_future *f = move_async(&n->own, n->host, tdict_sim(0), NULL);
  td_fails(TDICT_EWRONGDEVICE, "sim:0", tdict_future_wait_on_stream(f, n->foreign, &out, err));
  td_ok(tdict_future_wait(f, NULL, err));
  td_fails(TDICT_EWRONGDEVICE, "sim:0", tdict_future_wait_on_stream(f, n->foreign, &out, err));
  tdict_future_release(f);
  assert_null(out);
}

static void refuse_foreign_trees(neighbours *n) {
  scoped_tree out = NULL, dst = numbered_tree(&n->own, NULL, 4);
  td_fails(TDICT_EWRONGDEVICE, "another context", tdict_to_device(n->own.c, n->there, tdict_sim(0), NULL, &out, err));
  assert_string_equal(td_last_error.path, "a");
  td_fails(TDICT_EWRONGDEVICE, "another context", tdict_to_device(n->own.c, n->there, tdict_cpu(), NULL, &out, err));
  td_fails(TDICT_EWRONGDEVICE, "another context", tdict_transfer_into(n->own.c, dst, n->there, NULL, err));
  td_fails(TDICT_EWRONGDEVICE, "another context", tdict_transfer_into(n->own.c, n->here, n->there, NULL, err));
  td_fails(TDICT_EWRONGDEVICE, "another context", tdict_transfer_into(n->own.c, n->there, n->host, NULL, err));
  td_fails(TDICT_EWRONGDEVICE, "sim:0", tdict_pin_memory(n->own.c, n->there, NULL, &out, err));
  td_fails(TDICT_EWRONGDEVICE, "another context", tdict_set_to(n->own.c, n->here, "z", td_leaf(n->there, "a"), err));
  tdict_transfer_options o = td_with(tdict_transfer_options, memory = n->other.memory);
  td_fails(TDICT_EWRONGDEVICE, "another context", tdict_to_device(n->own.c, n->host, tdict_sim(0), &o, &out, err));
  assert_null(out);
  check_tree_number(&n->own, dst, 4); /* nothing was written */
  check_tree_number(&n->other, n->there, 3);
}

/* Moves tensors that describe device memory. From the address, the library finds out which context owns the memory. */
static void tell_described_blocks_apart(neighbours *n) {
  const int64_t count = OTHER_BYTES;
  for (int i = 0; i < 2; i++) {
    const place *p = i ? &n->other : &n->own;
    tdict_tensor *block = new_bytes(count, p->memory), *t = NULL;
    const int64_t less = count - 16;
    tdict_tensor_desc v = desc_of((char *)block->data + 16, TDICT_U8, &less);
    v.device = tdict_sim(0);
    td_ok(tdict_tensor_from_data(&v, NULL, NULL, &t, err));
    scoped_tree td = new_tree(), out = NULL;
    td_put(td, "x", t);
    if (i)
      td_fails(TDICT_EWRONGDEVICE, "another context", tdict_to_device(n->own.c, td, tdict_cpu(), NULL, &out, err));
    else
      td_ok(tdict_to_device(n->own.c, td, tdict_cpu(), NULL, &out, err));
    tdict_tensor_release(block);
  }
}

SIM_CASE(sim_devices_belong_to_their_context) {
  neighbours n = open_neighbours();
  refuse_foreign_streams(&n);
  refuse_foreign_trees(&n);
  tell_described_blocks_apart(&n);
  /* both contexts accept host memory, even if it is pinned */
  tdict_tree *back = moved(&n.other, n.there, tdict_cpu());
  tdict_tree *pinned = td_made(tree, tdict_pin_memory(n.other.c, back, NULL, &made, err));
  tdict_tree *again = moved(&n.own, pinned, tdict_sim(0));
  check_tree_number(&n.own, again, 3);
  td_release(again, pinned, back);
  close_neighbours(&n);
}

static atomic_bool may_go;
static void wait_for_word(void *user) {
  (void)user;
  while (!atomic_load(&may_go)) usleep(100);
}

/* A transfer to sim:0 waits for a function on a stream. Later work on the legacy stream of sim:1 waits for the
 * transfer. */
SIM_CASE(wait_on_stream_takes_the_legacy_stream_of_its_device) {
  scoped_place w = place_sim(2, 0, 2);
  scoped_tree src = numbered_tree(&w, NULL, 5);
  const tdict_stream legacy = {tdict_sim(1), NULL};
  TD_STREAM(s, w.c, w.device);
  atomic_store(&may_go, false);
  tdict_transfer_options o = td_with(tdict_transfer_options, after = s);
  td_ok(tdict_sim_launch(s, wait_for_word, NULL, err));
  scoped_future f = move_async(&w, src, w.device, &o);
  td_ok(tdict_future_wait_on_stream(f, legacy, NULL, err));
  o.after = legacy;
  scoped_future g = move_async(&w, src, tdict_sim(1), &o);
  td_rest();
  const bool early = tdict_future_is_ready(g);
  atomic_store(&may_go, true);
  td_ok(tdict_future_wait(g, NULL, err));
  td_ok(tdict_future_wait(f, NULL, err));
  assert_false(early);
}

/* Wrong streams are refused even after the transfer has ended, so the result does not depend on timing. */
SIM_CASE(wait_on_stream_refuses_when_it_has_ended) {
  scoped_place w = place_sim(2, 0, 2);
  scoped_tree src = numbered_tree(&w, NULL, 5), out = NULL;
  TD_STREAM(s, w.c, w.device);
  TD_STREAM(second, w.c, tdict_sim(1));
  const tdict_stream wrong[] = {{tdict_cpu(), NULL},           {tdict_cpu(), s.handle}, {tdict_cuda(0), s.handle},
                                {tdict_sim(2), NULL},          {tdict_sim(-1), NULL},   {tdict_sim(1), s.handle},
                                {{TDICT_DEVICE_AUTO, 0}, NULL}};
  scoped_tree dev = moved(&w, src, w.device);
  hold(&w);
  tdict_future *cancelled = move_async(&w, src, w.device, NULL);
  tdict_future_cancel(cancelled);
  resume(&w);
  td_fails(TDICT_ECANCELLED, "", tdict_future_wait(cancelled, NULL, err));
  tdict_future *futures[] = {move_async(&w, src, w.device, NULL),
                             move_async(&w, dev, w.device, NULL), /* nothing is copied */
                             move_async(&w, dev, tdict_cpu(), NULL), cancelled};
  for (int k = 0; k < 4; k++) {
    while (!tdict_future_is_ready(futures[k])) usleep(100);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
      td_fails(TDICT_EWRONGDEVICE, "wait_on_stream", tdict_future_wait_on_stream(futures[k], wrong[i], &out, err));
    assert_null(out);
    if (k < 3) {
      td_ok(tdict_future_wait_on_stream(futures[k], s, NULL, err));
      td_ok(tdict_future_wait_on_stream(futures[k], second, NULL, err)); /* a stream of the context's other device */
      td_ok(tdict_future_wait_on_stream(futures[k], (tdict_stream){w.device, NULL}, NULL, err));
    } else {
      td_fails(TDICT_ECANCELLED, "", tdict_future_wait_on_stream(futures[k], s, &out, err));
    }
  }
  for (int k = 0; k < 4; k++) tdict_future_release(futures[k]);
}

SIM_CASE(streams_are_checked_for_capture_first) {
  scoped_place w = place_open(2);
  shim h;
  scoped_tree src = numbered_tree(&w, NULL, 6), dev = moved(&w, src, w.device), out = NULL;
  TD_STREAM(s, w.c, w.device);
  scoped_future f = move_async(&w, src, w.device, NULL);
  td_ok(tdict_future_wait(f, NULL, err));
  tdict_transfer_options o = td_with(tdict_transfer_options, after = s);
  shim_begin(&h, w.d);
  h.ops.stream_capture_status = say_capturing;
  td_fails(TDICT_ECAPTURE, "captured", tdict_future_wait_on_stream(f, s, &out, err));
  td_fails(TDICT_ECAPTURE, "captured",
           tdict_to_device(w.c, dev, w.device, &o, &out, err)); /* the tree is already on this device */
  td_fails(TDICT_ECAPTURE, "captured", tdict_record_stream(dev, s, err));
  td_fails(TDICT_ECAPTURE, "captured", tdict_stream_synchronize(w.c, s, err));
  shim_end(&h, w.d);
  td_ok(tdict_future_wait_on_stream(f, s, NULL, err));
  tdict_release(td_made(tree, tdict_to_device(w.c, dev, w.device, &o, &made, err)));
}

static tdict_cu lose_the_device(tdict_driver *d, tdict_cu_stream s, int *status) {
  return (void)d, (void)s, (void)status, TDICT_CU_ILLEGAL_ADDRESS;
}
/* If the device is lost after a transfer has ended, tdict_future_wait_on_stream() succeeds and writes no error. */
SIM_CASE(wait_on_stream_of_a_lost_device_leaves_the_error) {
  scoped_place w = place_open(2);
  shim h;
  scoped_tree src = numbered_tree(&w, NULL, 6), out = NULL;
  TD_STREAM(s, w.c, w.device);
  scoped_future f = move_async(&w, src, w.device, NULL);
  td_ok(tdict_future_wait(f, NULL, err));
  shim_begin(&h, w.d);
  h.ops.stream_capture_status = lose_the_device;
  td_ok(tdict_future_wait_on_stream(f, s, &out, err));
  shim_end(&h, w.d);
  assert_non_null(out);
}

static void *no_block(void *user, size_t bytes) {
  (void)user, (void)bytes;
  return NULL;
}
static void no_release(void *user, void *data, size_t bytes) { (void)user, (void)data, (void)bytes; }

/* Calls refuse impossible indices: the CPU has only index 0, and no index is negative. */
DEVICE_CASE(devices_with_bad_indices_are_refused) {
  scoped_context c = td_context(NULL);
  scoped_tree src = new_tree(), out = NULL;
  tdict_future *f = NULL;
  tdict_tensor *t = NULL;
  tdict_memory *memory = NULL;
  tdict_stream s;
  const int64_t count = 4;
  td_put(src, "x", new_bytes(16, NULL));
  const tdict_device wrong[] = {{TDICT_DEVICE_CPU, 5}, {TDICT_DEVICE_CPU, -1}, {TDICT_DEVICE_SIM, -1}};
  for (int i = 0; i < 3; i++) {
    tdict_allocator a = {.struct_size = sizeof a, .device = wrong[i], .allocate = no_block, .release = no_release};
    unsigned char bytes[4];
    tdict_tensor_desc v =
        td_with(tdict_tensor_desc, data = bytes, device = wrong[i], dtype = TDICT_U8, ndim = 1, shape = &count);
    td_fails(TDICT_EINVAL, "cannot hold memory", tdict_to_device(c, src, wrong[i], NULL, &out, err));
    td_fails(TDICT_EINVAL, "cannot hold memory", tdict_to_device_async(c, src, wrong[i], NULL, &f, err));
    td_fails(TDICT_EINVAL, "cannot hold memory", tdict_set_device(src, &wrong[i], err));
    td_fails(TDICT_EINVAL, "cannot hold memory", tdict_memory_create(c, &a, &memory, err));
    td_fails(TDICT_EINVAL, "", tdict_tensor_from_data(&v, NULL, NULL, &t, err));
    td_fails(TDICT_ENODEVICE, "absent",
             tdict_tensor_empty(TDICT_U8, 1, &count, tdict_device_memory(c, wrong[i]), &t, err));
    assert_true(tdict_stream_create(c, wrong[i], &s, NULL) != TDICT_OK);
    tdict_context_trim(c, wrong[i], 0); /* does nothing */
  }
  assert_true(!out && !f && !memory && !t);
  tdict_device has;
  assert_false(tdict_get_device(src, &has));
}
