/* Tests that work of the library on an imported tensor waits for the producer's stream. Kernels wait at a gate, so work
 * that runs too early is always detected. */
#include "streams.h"

static tdict_tree *import_one(const place *w, produced *p, tdict_stream s) {
  tdict_dlpack_import_options o = producer_on(s);
  tdict_dlpack_entry entry = {"t", give_versioned(p), NULL};
  return td_made(tree, tdict_dlpack_import_tree(w->c, &entry, 1, &o, &made, err));
}

SIM_CASE(dlpack_import_waits_for_the_producer) {
  scoped_place w = place_open(2);
  scoped_tree own = arena(&w, 7);
  tdict_tensor *leaf = td_leaf(own, "a");
  produced p;
  writer at;
  /* a transfer to the host waits, even if its option `after` names another stream */
  for (int with_after = 0; with_after < 2; with_after++) {
    TD_STREAM(idle, w.c, w.device);
    tdict_transfer_options o = tdict_transfer_options_default();
    if (with_after) o.after = idle;
    number_tree(&w, own, 7);
    start_writer(&w, &at, leaf, 50);
    produce_leaf(&p, leaf);
    tdict_tree *in = import_one(&w, &p, at.s); /* the import does not wait */
    tdict_future *f = move_async(&w, in, tdict_cpu(), &o);
    tdict_release(in);
    check_pending(f);
    assert_int_equal(times_deleted(&p), 0); /* the transfer still uses the bytes */
    gate_open(&at.gate);
    scoped_tree host = finish(f);
    assert_true(has_number(&w, td_leaf(host, "t"), 50));
    assert_int_equal(times_deleted(&p), 1);
    end_writer(&w, &at);
  }
}

/* A write into the imported tensor also runs after the producer's write. */
SIM_CASE(dlpack_import_holds_writes_back) {
  scoped_place w = place_open(2);
  scoped_tree own = arena(&w, 7), src = new_tree();
  tdict_tensor *leaf = td_leaf(own, "a"), *fresh = new_tensor(TDICT_U8, 2, numbered[0].shape, NULL);
  TD_STREAM(idle, w.c, w.device);
  produced p;
  writer at;
  put_number(&w, fresh, 60);
  td_put(src, "t", fresh);
  start_writer(&w, &at, leaf, 50);
  produce_leaf(&p, leaf);
  scoped_tree in = import_one(&w, &p, at.s);
  tdict_future *f = copy_async(&w, src, in, td_options(tdict_transfer_options, after = idle));
  check_pending(f);
  gate_open(&at.gate);
  finish_copy(f);
  end_writer(&w, &at);
  assert_true(has_number(&w, leaf, 60)); /* the bytes of the later write */
}

/* If an imported tensor is exported again, the next consumer waits for the first producer. */
SIM_CASE(dlpack_import_passes_its_order_on) {
  scoped_place w = place_open(2);
  scoped_tree own = arena(&w, 7);
  tdict_tensor *leaf = td_leaf(own, "a");
  TD_STREAM(s, w.c, w.device);
  struct DLManagedTensorVersioned *m = NULL;
  produced p;
  writer at;
  consumer_copy read;
  start_writer(&w, &at, leaf, 50);
  produce_leaf(&p, leaf);
  tdict_tree *in = import_one(&w, &p, at.s);
  tdict_dlpack_export_options o = consumer_on(s);
  o.read_only = true;
  td_ok(export_versioned(w.c, td_leaf(in, "t"), &o, &m, err));
  tdict_release(in);
  start_read(&w, &read, s, leaf);
  td_rest();
  assert_false(is_copied(&w, &read));
  gate_open(&at.gate);
  assert_true(end_copy(&w, &read, 50));
  assert_int_equal(times_deleted(&p), 0);
  delete_versioned_of(m);
  assert_int_equal(times_deleted(&p), 1);
  end_writer(&w, &at);
}

/* An import that copies waits for the producer's stream. The release of an imported tensor does not wait. */
SIM_CASE(dlpack_import_copies_after_the_producer) {
  scoped_place w = place_open(2);
  scoped_tree own = arena(&w, 7);
  tdict_tensor *leaf = td_leaf(own, "a");
  produced p;
  writer at;
  call c = {.c = w.c};
  start_writer(&w, &at, leaf, 50);
  produce_leaf(&p, leaf);
  tdict_release(import_one(&w, &p, at.s));
  assert_int_equal(times_deleted(&p), 1);
  produce_leaf(&p, leaf);
  p.versioned.flags = TDICT_DL_READ_ONLY;
  c.managed = give_versioned(&p);
  c.import_options = producer_on(at.s);
  c.import_options.copy_read_only = true;
  start_waiting(&c, run_import);
  gate_open(&at.gate);
  finish_waiting(&c);
  assert_int_equal(times_deleted(&p), 1);
  assert_true(c.made->data != leaf->data && has_number(&w, c.made, 50));
  assert_true(tdict_device_equal(tdict_tensor_device(c.made), w.device));
  assert_non_null(tdict_tensor_data(c.made));
  tdict_tensor_release(c.made);
  end_writer(&w, &at);
}

/* Threads may read host memory without waiting, so the import itself waits. */
SIM_CASE(dlpack_import_of_pinned_memory_waits) {
  scoped_place w = place_open(2);
  scoped_tensor pinned = new_bytes(5000, w.pinned);
  produced p;
  writer at;
  call c = {.c = w.c};
  put_number(&w, pinned, 1);
  start_writer(&w, &at, pinned, 50);
  produce_leaf(&p, pinned);
  p.versioned.tensor.device.type = TDICT_DL_CUDA_HOST;
  c.managed = give_versioned(&p);
  c.import_options = producer_on(at.s);
  start_waiting(&c, run_import);
  gate_open(&at.gate);
  finish_waiting(&c);
  assert_true(tdict_tensor_is_pinned(c.made) && has_number(&w, c.made, 50));
  tdict_tensor_release(c.made);
  assert_int_equal(times_deleted(&p), 1);
  end_writer(&w, &at);
}
