/* Tests shared trees: copies, other processes, refusals, and the release of segments. */
#include <sys/mman.h>

#include "rig.h"

static const char *const leaves[] = {"obs.pixels", "r", "h\\.0", "wide"};
enum { LEAVES = sizeof leaves / sizeof leaves[0] };

/* Receives a tree, writes the bytes of all leaves to the socket, then overwrites "r" and reports this. */
WORKER(share_worker_reads) {
  tdict_tree *td = td_made(tree, tdict_share_receive(RIG_SOCKET, 60 * RIG_SECOND, &made, err));
  help_paths(td, "obs obs.pixels obs.none r h\\.0 wide");
  assert_true(tdict_is_consolidated(td));
  assert_int_equal(rig_count_maps(), 1);
  for (int i = 0; i < LEAVES; i++) {
    const tdict_tensor *t = td_leaf(td, leaves[i]);
    rig_write(RIG_SOCKET, tdict_tensor_const_data(t), tdict_tensor_bytes(t));
  }
  td_fill_random(tdict_data(td, "r"), 24, 99);
  rig_write(RIG_SOCKET, "w", 1);
  tdict_release(td);
  assert_int_equal(rig_count_maps(), 0);
}

CASE(share_passes_trees_to_other_processes) {
  const rig_resources before = rig_resources_now();
  tdict_tree *td = rig_tree(), *shared = td_made(tree, tdict_share_create(td, NULL, &made, err));
  rig_pair pair = rig_sockets(SOCK_STREAM);
  const pid_t pid = rig_spawn("share_worker_reads", &pair);
  td_ok(tdict_share_send(pair.ours, shared, err));
  /* The file of a segment is not in /dev/shm, because it comes from memfd_create(). */
  assert_int_equal(rig_count_maps(), before.maps + 1);
  assert_int_equal(rig_count_maps_of("/dev/shm"), 0);
  for (int i = 0; i < LEAVES; i++) {
    scoped_tensor flat = NULL;
    unsigned char found[2 * 3 * 700 * 8];
    td_ok(tdict_tensor_contiguous(td_leaf(td, leaves[i]), &flat, err));
    const size_t bytes = tdict_tensor_bytes(flat);
    assert_true(rig_read_bytes(pair.ours, found, bytes));
    assert_memory_equal(found, tdict_tensor_const_data(flat), bytes);
  }
  /* The worker writes into the same memory. */
  unsigned char wanted[24], say;
  assert_true(rig_read_bytes(pair.ours, &say, 1));
  td_fill_random(wanted, sizeof wanted, 99);
  assert_memory_equal(tdict_const_data(shared, "r"), wanted, sizeof wanted);
  assert_int_equal(rig_reap(pid), 0);
  close(pair.ours);
  td_release(td, shared);
  rig_nothing_leaked(before);
}

CASE(share_create_copies) {
  scoped_tree td = rig_tree(), shared = td_made(tree, tdict_share_create(td, NULL, &made, err));
  assert_true(rig_equal(td, shared));
  assert_true(tdict_is_consolidated(shared) && tdict_is_locked(shared));
  assert_false(tdict_get_device(shared, NULL));
  assert_int_equal((uintptr_t)tdict_data(shared, "r") % 256, 0);
  /* A clone is ordinary memory, and outlives the segment. */
  scoped_tree clone = td_made(tree, tdict_clone_deep(shared, NULL, &made, err));
  td_release(shared);
  assert_int_equal(rig_count_maps(), 0);
  assert_true(rig_equal(td, clone));
}

CASE(share_create_zeroes) {
  scoped_tree td = rig_tree(), shared = NULL;
  scoped_schema schema = NULL, made = NULL;
  td_ok(tdict_schema_from_tree(td, &schema, err));
  td_ok(tdict_share_create(td, td_options(tdict_share_options, is_zero = true), &shared, err));
  td_ok(tdict_schema_from_tree(shared, &made, err));
  assert_true(tdict_schema_equal(schema, made, NULL));
  scoped_tensor bytes = NULL;
  td_ok(tdict_consolidated_bytes(shared, &bytes, err));
  const unsigned char *at = tdict_tensor_const_data(bytes);
  for (size_t i = 0; i < tdict_tensor_bytes(bytes); i++) assert_int_equal(at[i], 0);
}

SIM_CASE(share_create_copies_from_devices) {
  scoped_context context = td_context(NULL);
  scoped_tree td = rig_tree(), moved = NULL, shared = NULL;
  td_ok(tdict_to_device(context, td, td_device(), NULL, &moved, err));
  td_ok(tdict_share_create(moved, NULL, &shared, err));
  assert_true(rig_equal(td, shared));
}

/* Shares a tree without tensors, and a tree whose tensors have no bytes. */
CASE(share_empty_trees) {
  const rig_resources before = rig_resources_now();
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  for (int i = 0; i < 2; i++) {
    scoped_tree td = TREE(2), shared = NULL, received = NULL;
    td_put_tree(td, "child", TREE(2));
    if (i) td_put(td, "none", TENSOR(2, 0));
    td_ok(tdict_share_create(td, NULL, &shared, err));
    td_ok(tdict_share_send(pair.ours, shared, err));
    td_ok(tdict_share_receive(pair.theirs, 0, &received, err));
    assert_true(rig_equal(td, received));
  }
  rig_close(pair);
  rig_nothing_leaked(before);
}

/* The segment lives as long as any tensor of the tree. A received tree can be forwarded. */
CASE(share_frees_with_the_last_reference) {
  const rig_resources before = rig_resources_now();
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  tdict_tree *first = rig_shared(), *second = NULL, *third = NULL;
  td_ok(tdict_share_send(pair.ours, first, err));
  td_ok(tdict_share_receive(pair.theirs, 0, &second, err));
  td_ok(tdict_share_send(pair.theirs, second, err));
  td_ok(tdict_share_receive(pair.ours, 0, &third, err));
  assert_int_equal(rig_count_maps(), before.maps + 3);
  assert_int_equal(td_count_descriptors(), before.fds + 2 + 3);
  assert_true(rig_equal(first, third));
  tdict_tensor *kept = tdict_tensor_retain(td_leaf(second, "r"));
  const float value = *(const float *)tdict_const_data(first, "r");
  td_release(first, second, third);
  assert_int_equal(rig_count_maps(), before.maps + 1);
  assert_true(*(const float *)tdict_tensor_const_data(kept) == value);
  tdict_tensor_release(kept);
  rig_close(pair);
  rig_nothing_leaked(before);
}

/* Operations on shared tensors make results in ordinary memory. */
CASE(share_tensors_work_in_operations) {
  scoped_tree shared = rig_shared();
  const tdict_tensor *wide = td_leaf(shared, "wide");
  scoped_tensor turned = td_made(tensor, tdict_tensor_permute(wide, 3, (const int[]){2, 0, 1}, &made, err));
  scoped_tensor flat = td_made(tensor, tdict_tensor_contiguous(turned, &made, err));
  assert_false(tdict_tensor_shares_storage(flat, wide));
  const double *from = tdict_tensor_const_data(wide), *to = tdict_tensor_const_data(flat);
  for (int i = 0; i < 6; i++)
    for (int k = 0; k < 700; k++) assert_memory_equal(&to[k * 6 + i], &from[i * 700 + k], sizeof *to);
}

CASE(share_refuses) {
  const rig_resources before = rig_resources_now();
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  tdict_tree *td = rig_tree(), *shared = rig_shared(), *out = (tdict_tree *)&pair;
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_share_create(NULL, NULL, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_share_create(td, NULL, NULL, err));
  tdict_share_options wrong = {.struct_size = 0};
  td_fails(TDICT_EINVAL, "share_options", tdict_share_create(td, &wrong, &out, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_share_send(pair.ours, NULL, err));
  td_fails(TDICT_EINVAL, "not shared, or was unlocked; wanted one of share_create()",
           tdict_share_send(pair.ours, td, err));
  td_ok(tdict_unlock(shared, err));
  td_fails(TDICT_EINVAL, "or was unlocked", tdict_share_send(pair.ours, shared, err));
  tdict_release(shared);
  td_fails(TDICT_EINVAL, "out is NULL", tdict_share_receive(pair.ours, 0, NULL, err));
  td_fails(TDICT_EINVAL, "timeout_ns is -1", tdict_share_receive(pair.ours, -1, &out, err));
  /* A consolidated tree that is not in a segment is refused. */
  td_ok(tdict_consolidate(td, NULL, &shared, err));
  td_fails(TDICT_EINVAL, "not shared", tdict_share_send(pair.ours, shared, err));
  tdict_release(shared);
  /* A slot of a ring is refused. */
  tdict_share_ring *ring = rig_ring(1, 1);
  td_fails(TDICT_EINVAL, "not shared", tdict_share_send(pair.ours, ring->slots[0].tree, err));
  tdict_share_ring_destroy(ring);
  /* An object is refused, and the error names it. */
  td_ok(tdict_set_text(td, "obs.words", "hello", err));
  td_fails_at(TDICT_ENOTSUP, "share_create: a text or value, wanted tensors and trees only", "obs.words",
              tdict_share_create(td, NULL, &out, err));
  assert_ptr_equal(out, &pair);
  tdict_release(td);
  rig_close(pair);
  rig_nothing_leaked(before);
}

CASE(share_survives_enomem) {
  rig_pair pair = rig_sockets(SOCK_SEQPACKET);
  tdict_tree *td = rig_tree(), *out = NULL;
  const rig_resources before = rig_resources_now();
  TD_WITHOUT_MEMORY_THEN(tdict_share_create(td, NULL, &out, err), assert_null(out); rig_nothing_leaked(before));
  tdict_tree *shared = out, *received = NULL;
  const rig_resources with = rig_resources_now();
  TD_SWEEP(s) {
    td_ok(tdict_share_send(pair.ours, shared, err));
    if (td_refused(s, tdict_share_receive(pair.theirs, 0, &received, err))) rig_nothing_leaked(with);
  }
  assert_true(rig_equal(td, received));
  td_release(received, shared, td);
  rig_close(pair);
}

/* Makes system calls fail: the process has too few descriptors, or the socket is closed. */
CASE(share_reports_the_system) {
  scoped_tree td = rig_tree(), shared = rig_shared();
  tdict_tree *out = NULL;
  rig_pair pair = rig_sockets(SOCK_STREAM);
  close(pair.theirs);
  td_fails(TDICT_EIO, "share_send: the socket refused the message: Broken pipe",
           tdict_share_send(pair.ours, shared, err));
  assert_int_equal(td_last_error.native, EPIPE);
  td_fails(TDICT_EIO, "closed the socket", tdict_share_receive(pair.ours, RIG_SECOND, &out, err));
  close(pair.ours);
  td_fails(TDICT_EIO, "share_receive: recvmsg failed: Bad file descriptor",
           tdict_share_receive(pair.ours, 0, &out, err));
  assert_int_equal(td_last_error.native, EBADF);
  td_fails(TDICT_EINVAL, "socket is -1", tdict_share_receive(-1, INT64_MAX, &out, err));
  int held[4096], count = 0;
  while (count < 4096 && (held[count] = dup(0)) >= 0) count++;
  if (count < 4096) {
    td_fails(TDICT_EIO, "share_create: memfd_create failed: Too many open files",
             tdict_share_create(td, NULL, &out, err));
    assert_int_equal(td_last_error.native, EMFILE);
  }
  while (count) close(held[--count]);
}
