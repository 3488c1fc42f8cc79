/* Tests rings: options, attaching, destruction, forks, and failing allocations. */
#include "services/share/ring.h"

#include "rig.h"
#include "services/share/message.h"

CASE(share_ring_create_refuses) {
  const rig_resources before = rig_resources_now();
  tdict_share_ring_options o = tdict_share_ring_options_default();
  tdict_tree *like = rig_batch();
  tdict_share_ring *out = NULL;
  assert_int_equal(o.num_slots, 8);
  assert_int_equal(o.max_workers, 64);
  td_fails(TDICT_EINVAL, "like is NULL", tdict_share_ring_create(NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_share_ring_create(like, NULL, NULL, err));
  const int wrong[] = {-1, 0, 1025};
  for (int i = 0; i < 3; i++) {
    o.num_slots = wrong[i];
    td_fails(TDICT_EINVAL, "num_slots is", tdict_share_ring_create(like, &o, &out, err));
    o = tdict_share_ring_options_default();
    o.max_workers = wrong[i];
    td_fails(TDICT_EINVAL, "max_workers is", tdict_share_ring_create(like, &o, &out, err));
    o = tdict_share_ring_options_default();
  }
  o.struct_size = 1;
  td_fails(TDICT_EINVAL, "share_ring_options", tdict_share_ring_create(like, &o, &out, err));
  td_ok(tdict_set_text(like, "words", "hello", err));
  td_fails_at(TDICT_ENOTSUP, "share_ring_create: a text or value, wanted tensors and trees only", "words",
              tdict_share_ring_create(like, NULL, &out, err));
  assert_null(out);
  tdict_release(like);
  tdict_share_ring_destroy(NULL);
  rig_nothing_leaked(before);
}

/* A ring can have as many slots and workers as the limits allow, and the elements of new slots are zero. */
CASE(share_ring_slots_begin_as_zeros) {
  const rig_resources before = rig_resources_now();
  tdict_share_ring *ring = rig_ring(TDICT_SHARE_MAX_SLOTS, TDICT_SHARE_MAX_WORKERS), *worker = rig_own_worker(ring);
  tdict_tree *batch = NULL;
  for (int i = 0; i < TDICT_SHARE_MAX_SLOTS; i++) {
    td_ok(tdict_share_ring_begin(worker, 0, &batch, err));
    assert_true(tdict_is_consolidated(batch));
    scoped_tensor bytes = td_made(tensor, tdict_consolidated_bytes(batch, &made, err));
    const unsigned char *at = tdict_tensor_const_data(bytes);
    for (size_t b = 0; b < tdict_tensor_bytes(bytes); b++)
      if (at[b]) fail_msg("slot %d: byte %zu is not 0", i, b);
    memset(tdict_tensor_data(bytes), 0xA5, tdict_tensor_bytes(bytes));
  }
  td_fails(TDICT_ETIMEDOUT, "no slot is empty", tdict_share_ring_begin(worker, 0, &batch, err));
  td_release(worker, ring);
  rig_nothing_leaked(before);
}

CASE(share_ring_attach_refuses) {
  scoped_share_ring ring = rig_ring(2, 3), out = NULL;
  scoped_tree shared = rig_shared();
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  const rig_resources before = rig_resources_now();
  td_fails(TDICT_EINVAL, "out is NULL", tdict_share_ring_attach(pair.theirs, 0, NULL, err));
  td_fails(TDICT_EINVAL, "timeout_ns is -5", tdict_share_ring_attach(pair.theirs, -5, &out, err));
  td_fails(TDICT_ETIMEDOUT, "no message", tdict_share_ring_attach(pair.theirs, 0, &out, err));
  /* A worker refuses a tree instead of a ring, and a worker number that the ring does not have. */
  td_ok(tdict_share_send(pair.ours, shared, err));
  td_fails(TDICT_EFORMAT, "kind 1, wanted 2", tdict_share_ring_attach(pair.theirs, 0, &out, err));
  tdict_message message = {
      .kind = TDICT_SEGMENT_RING, .worker = 0, .num_fds = 2, .fds = {tdict_segment_of(shared)->fd, 0}};
  td_ok(tdict_message_send("test", pair.ours, &message, err));
  td_fails(TDICT_EFORMAT, "kind 1, wanted 2, a ring", tdict_share_ring_attach(pair.theirs, 0, &out, err));
  message.fds[0] = ring->segment->fd;
  const uint32_t wrong[] = {3, 1024, UINT32_MAX};
  for (int i = 0; i < 3; i++) {
    message.worker = wrong[i];
    td_ok(tdict_message_send("test", pair.ours, &message, err));
    td_fails(TDICT_EFORMAT, "but the ring has 3 workers", tdict_share_ring_attach(pair.theirs, 0, &out, err));
  }
  /* A ring whose message says that it is a tree is refused. */
  tdict_tree *tree = NULL;
  message = (tdict_message){.kind = TDICT_SEGMENT_TREE, .num_fds = 1, .fds = {ring->segment->fd}};
  td_ok(tdict_message_send("test", pair.ours, &message, err));
  td_fails(TDICT_EFORMAT, "kind 2, wanted 1, a tree", tdict_share_receive(pair.theirs, 0, &tree, err));
  rig_nothing_leaked(before);
  close(pair.ours);
  td_fails(TDICT_EIO, "closed the socket", tdict_share_ring_attach(pair.theirs, RIG_SECOND, &out, err));
  close(pair.theirs);
}

/* A worker that destroys its ring frees its slots, and is not reported as lost. The batches that it published are
 * delivered. */
CASE(share_ring_worker_may_leave) {
  scoped_share_ring ring = rig_ring(2, 1), worker = rig_own_worker(ring);
  rig_publish(worker, 5);
  tdict_tree *batch = td_made(tree, tdict_share_ring_begin(worker, 0, &made, err));
  tdict_share_ring_destroy(worker);
  assert_int_equal(rig_take(ring), 5);
  td_fails(TDICT_ENOTFOUND, "no worker is left", tdict_share_ring_take(ring, INT64_MAX, &batch, err));
  /* The worker's number is free again, and both slots are empty. */
  worker = rig_own_worker(ring);
  td_ok(tdict_share_ring_begin(worker, 0, &batch, err));
  td_ok(tdict_share_ring_begin(worker, 0, &batch, err));
}

CASE(share_ring_without_workers_ends) {
  scoped_share_ring ring = rig_ring(2, 1);
  tdict_tree *batch = NULL;
  td_fails(TDICT_ENOTFOUND, "no worker is left", tdict_share_ring_take(ring, INT64_MAX, &batch, err));
}

/* In a forked child, the trainer's ring cannot be used, and destroying it changes nothing in the parent. */
CASE(share_ring_in_a_fork) {
  scoped_share_ring ring = rig_ring(2, 2), worker = rig_own_worker(ring);
  tdict_tree *batch = NULL, *other = NULL;
  rig_publish(worker, 3);
  td_ok(tdict_share_ring_begin(worker, 0, &batch, err));
  const pid_t pid = fork();
  if (pid == 0) {
    tdict_error e;
    int wrong = 0;
    wrong += tdict_share_ring_take(ring, 0, &other, &e) != TDICT_EFORKED;
    wrong += tdict_share_ring_give_back(ring, batch, &e) != TDICT_EFORKED;
    wrong += tdict_share_ring_add_worker(ring, 0, 1, &e) != TDICT_EFORKED;
    wrong += tdict_share_ring_pin(NULL, ring, &e) != TDICT_EFORKED;
    wrong += tdict_share_ring_begin(worker, 0, &other, &e) != TDICT_EFORKED;
    wrong += tdict_share_ring_publish(worker, batch, &e) != TDICT_EFORKED;
    td_release(worker, ring);
    _exit(wrong);
  }
  assert_int_equal(rig_reap(pid), 0);
  rig_fill(batch, 4);
  td_ok(tdict_share_ring_publish(worker, batch, err));
  assert_int_equal(rig_take(ring), 3);
  assert_int_equal(rig_take(ring), 4);
  rig_publish(worker, 5);
  assert_int_equal(rig_take(ring), 5);
}

CASE(share_ring_survives_enomem) {
  scoped_tree like = rig_batch();
  tdict_share_ring_options o = td_with(tdict_share_ring_options, num_slots = 2, max_workers = TDICT_SHARE_MAX_WORKERS);
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  tdict_share_ring *ring = NULL, *worker = NULL;
  const rig_resources before = rig_resources_now();
  TD_WITHOUT_MEMORY_THEN(tdict_share_ring_create(like, &o, &ring, err), assert_null(ring); rig_nothing_leaked(before));
  TD_SWEEP(s) {
    td_ok(tdict_share_ring_add_worker(ring, pair.ours, (int32_t)getpid(), err));
    const rig_resources with = rig_resources_now();
    if (!td_refused(s, tdict_share_ring_attach(pair.theirs, 0, &worker, NULL))) continue;
    assert_int_equal(rig_count_maps(), with.maps);
    assert_null(worker);
  }
  rig_publish(worker, 1);
  /* Taking a batch and giving it back need no memory. */
  tdict_tree *batch = NULL;
  td_fail_alloc(0, true);
  tdict_status status = tdict_share_ring_take(ring, 0, &batch, NULL);
  if (status == TDICT_OK) status = tdict_share_ring_give_back(ring, batch, NULL);
  td_fail_alloc_stop();
  assert_int_equal(status, TDICT_OK);
  td_release(worker, ring);
  rig_nothing_leaked(before);
  rig_close(pair);
}
