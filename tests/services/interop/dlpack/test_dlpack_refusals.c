/* Tests refusals by DLPack calls: streams that do not fit the tensor or cannot be used, lost bytes, and forks. */
#include <sys/wait.h>

#include "streams.h"
#include "support/unloaded.h"

/* Checks that exports and imports of a tensor refuse a stream, and neither own nor retain anything afterwards. */
static void refuse_stream(const place *w, const tdict_tensor *t, tdict_stream s, tdict_status status,
                          const char *text) {
  tdict_dlpack_export_options e = consumer_on(s);
  tdict_dlpack_import_options i = producer_on(s);
  struct DLManagedTensorVersioned *m = NULL;
  struct DLManagedTensor *old = NULL;
  tdict_tensor *out = NULL;
  produced p;
  const int64_t refs = atomic_load(&t->storage->refs);
  td_fails(status, text, export_versioned(w->c, t, &e, &m, err));
  td_fails(status, text, export_legacy(w->c, t, &e, &old, err));
  assert_true(!m && !old);
  produce_leaf(&p, t);
  m = give_versioned(&p);
  old = give_legacy(&p);
  td_fails(status, text, import_versioned(w->c, &m, &i, &out, err));
  td_fails(status, text, import_legacy(w->c, &old, &i, &out, err));
  assert_true(m && old && !out);
  assert_int_equal(times_deleted(&p), 0);
  assert_int_equal(atomic_load(&t->storage->refs), refs);
}

static tdict_cu refuse_record(tdict_driver *d, tdict_cu_event e, tdict_cu_stream s) {
  (void)d, (void)e, (void)s;
  return TDICT_CU_ILLEGAL_ADDRESS;
}

SIM_CASE(dlpack_refuses_streams) {
  place w = place_sim(2, 0, 2), other = place_sim(2, 0, 1);
  tdict_tree *td = arena(&w, 1), *foreign = arena(&other, 2), *second = NULL;
  tdict_stream s = new_stream(&w), theirs = new_stream(&other);
  tdict_tensor *t = td_leaf(td, "a");
  shim h;
  refuse_stream(&w, t, (tdict_stream){tdict_cpu(), NULL}, TDICT_EWRONGDEVICE, "stream belongs to cpu");
  refuse_stream(&w, t, (tdict_stream){tdict_sim(5), NULL}, TDICT_EWRONGDEVICE, "stream belongs to sim:5");
  refuse_stream(&w, t, theirs, TDICT_EWRONGDEVICE, "simulated devices belong to one context");
  refuse_stream(&w, td_leaf(foreign, "a"), s, TDICT_EWRONGDEVICE, "simulated device of another context");
  td_ok(tdict_to_device(w.c, td, tdict_sim(1), NULL, &second, err));
  refuse_stream(&w, td_leaf(second, "a"), s, TDICT_EWRONGDEVICE, "stream belongs to sim:0, and the tensor is on sim:1");
  /* for a tree, the error names the leaf */
  tdict_dlpack_export_options e = consumer_on(s);
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  tdict_tree *mixed = new_tree();
  td_ok(tdict_set(mixed, "n.near", t, err));
  td_ok(tdict_set(mixed, "n.far", td_leaf(second, "d"), err));
  td_fails_at(TDICT_EWRONGDEVICE, "sim:1", "n.far", tdict_dlpack_export_tree(w.c, mixed, &e, &entries, &count, err));
  assert_null(entries);
  shim_begin(&h, w.d);
  h.ops.stream_capture_status = say_capturing;
  refuse_stream(&w, t, s, TDICT_ECAPTURE, "dlpack: the stream is being captured");
  h.ops.stream_capture_status = h.real->stream_capture_status;
  h.ops.event_record = refuse_record;
  produced p;
  produce_leaf(&p, t);
  struct DLManagedTensorVersioned *m = give_versioned(&p);
  tdict_tensor *out = NULL;
  tdict_dlpack_import_options i = producer_on(s);
  td_fails(TDICT_ELOST, "cuEventRecord", import_versioned(w.c, &m, &i, &out, err));
  assert_non_null(m);
  assert_int_equal(times_deleted(&p), 0);
  shim_end(&h, w.d);
  td_release(mixed, second, foreign, td);
  tdict_stream_destroy(w.c, s);
  tdict_stream_destroy(other.c, theirs);
  place_close(&w);
  place_close(&other);
}

/* A deleter cannot record an event during a capture or after the loss of the device. It returns in both cases. */
SIM_CASE(dlpack_deleter_never_fails) {
  scoped_place w = place_open(2);
  tdict_tree *td = arena(&w, 1);
  TD_STREAM(s, w.c, w.device);
  tdict_dlpack_export_options e = consumer_on(s);
  struct DLManagedTensorVersioned *m[2];
  shim h;
  for (int n = 0; n < 2; n++) td_ok(export_versioned(w.c, td_leaf(td, "a"), &e, &m[n], err));
  tdict_release(td);
  shim_begin(&h, w.d);
  h.ops.stream_capture_status = say_capturing;
  delete_versioned_of(m[0]);
  h.ops.stream_capture_status = h.real->stream_capture_status;
  h.ops.event_record = refuse_record;
  delete_versioned_of(m[1]);
  shim_end(&h, w.d);
}

GPU_CASE(dlpack_export_refuses_lost_bytes) {
  scoped_place w = place_open(2);
  scoped_tree dst = arena(&w, 1);
  tdict_dlpack_entry *entries = NULL;
  struct DLManagedTensorVersioned *m = NULL;
  size_t count = 0;
  tdict_tensor_lose(td_leaf(dst, "n.b"));
  td_fails(TDICT_EINVAL, "bytes are lost", export_versioned(w.c, td_leaf(dst, "n.b"), NULL, &m, err));
  td_fails_at(TDICT_EINVAL, "bytes are lost", "n.b", tdict_dlpack_export_tree(w.c, dst, NULL, &entries, &count, err));
  td_ok(export_versioned(w.c, td_leaf(dst, "d"), NULL, &m, err));
  delete_versioned_of(m);
}

/* Unloaded leaves have no address that could be exported. */
GPU_CASE(dlpack_export_refuses_unloaded_leaves) {
  scoped_place w = place_open(2);
  scoped_tree td = numbered_tree(&w, NULL, 1);
  scoped_disk d = disk_open();
  scoped_tree twin = disk_twin(&d, td, 100, 1);
  tdict_dlpack_entry *entries = NULL;
  struct DLManagedTensorVersioned *m = NULL;
  size_t count = 0;
  td_fails(TDICT_EINVAL, "load the tree first", export_versioned(w.c, td_leaf(twin, "n.b"), NULL, &m, err));
  td_fails(TDICT_EINVAL, "load the tree first", tdict_dlpack_export_tree(w.c, twin, NULL, &entries, &count, err));
  assert_true(tdict_has(td, td_last_error.path));
  assert_true(!m && !entries);
}

/* A forked child may call the deleters of its parent's exports, and may use host memory. */
GPU_CASE(dlpack_in_a_fork) {
  scoped_place w = place_open(2);
  tdict_tree *td = arena(&w, 1), *host = numbered_tree(&w, NULL, 2);
  TD_STREAM(s, w.c, w.device);
  tdict_dlpack_export_options e = consumer_on(s);
  tdict_dlpack_entry *entries = NULL;
  size_t count = 0;
  td_ok(tdict_dlpack_export_tree(w.c, td, &e, &entries, &count, err));
  fflush(NULL);
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct DLManagedTensorVersioned *m = NULL;
    tdict_tensor *back = NULL;
    alarm(20);
    bool good = export_versioned(w.c, td_leaf(td, "a"), &e, &m, NULL) == TDICT_EFORKED;
    good = good && export_versioned(w.c, td_leaf(host, "a"), NULL, &m, NULL) == TDICT_OK;
    good = good && import_versioned(w.c, &m, NULL, &back, NULL) == TDICT_OK;
    good = good && tdict_tensor_const_data(back) == td_leaf(host, "a")->data;
    tdict_tensor_release(back);
    tdict_dlpack_release_entries(entries, count);
    _exit(good ? 0 : 1);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) fail_msg("signal %d killed the child", WTERMSIG(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  check_tree_number(&w, td, 1);
  td_release(td, host);
  tdict_dlpack_release_entries(entries, count);
}
