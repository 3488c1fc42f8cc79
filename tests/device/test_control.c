/* Tests the public calls for devices: streams, counts and trimming. */
#include "device/counted.h"
#include "device/gpu_help.h"

enum { MIB = 1 << 20 };

/* Waits for all work on the device, including the work of destroyed streams. */
static void drain(tdict_driver *d) {
  void *p;
  CU(SUCCESS, mem_alloc, &p, 256);
  CU(SUCCESS, mem_free, p);
}

GPU_CASE(stream_create_and_destroy) {
  scoped_fixture b = fixture_open(NULL);
  tdict_driver *d = b.d;
  scoped_raw raw = raw_open(b.context, td_device());
  tdict_device_counts begin = fixture_counts(&b);
  tdict_stream streams[3];
  tdict_cu_event ended[3]; /* the test waits for these, because compute-sanitizer forgets destroyed streams */
  tdict_block block = fixture_take(&b, 4 * MIB);
  unsigned char *found = malloc(4 * MIB);
  void *host;
  assert_non_null(found);
  assert_int_equal(tdict_counted_host_alloc(d, &host, 4 * MIB), TDICT_CU_SUCCESS);
  td_fill_random(host, 4 * MIB, 21);
  raw_fill(raw, block.data, 0xA5, 4 * MIB);
  for (int i = 0; i < 3; i++) {
    td_ok(
        tdict_stream_create(b.context, i == 2 ? (tdict_device){TDICT_DEVICE_AUTO, 0} : td_device(), &streams[i], err));
    assert_true(tdict_device_equal(streams[i].device, td_device()));
    assert_non_null(streams[i].handle);
    for (int k = 0; k < i; k++) assert_ptr_not_equal(streams[k].handle, streams[i].handle);
  }
  assert_int_equal(fixture_counts(&b).num_streams, begin.num_streams + 3);
  for (int i = 0; i < 3; i++) { /* queued work still runs */
    size_t third = 4 * MIB / 3 + 1, at = (size_t)i * third, bytes = i == 2 ? 4 * MIB - at : third;
    CU(SUCCESS, copy_h2d_async, (char *)block.data + at, (char *)host + at, bytes, streams[i].handle);
    CU(SUCCESS, event_create, &ended[i], TDICT_CU_EVENT_DISABLE_TIMING);
    CU(SUCCESS, event_record, ended[i], streams[i].handle);
    tdict_stream_destroy(b.context, streams[i]);
  }
  drain(d);
  for (int i = 0; i < 3; i++) {
    CU(SUCCESS, event_synchronize, ended[i]);
    CU(SUCCESS, event_destroy, ended[i]);
  }
  raw_read(raw, found, block.data, 4 * MIB);
  assert_memory_equal(found, host, 4 * MIB);
  assert_int_equal(fixture_counts(&b).num_streams, begin.num_streams);
  tdict_stream_destroy(b.context, (tdict_stream){td_device(), NULL}); /* destroying the legacy stream does nothing */
  tdict_stream_destroy(b.context, (tdict_stream){{td_device().type, 63}, host});
  assert_int_equal(fixture_counts(&b).num_streams, begin.num_streams);
  assert_int_equal(tdict_counted_host_free(d, host, 4 * MIB), TDICT_CU_SUCCESS);
  free(found);
  fixture_give(&b, &block);
}

SIM_CASE(stream_destroy_lets_queued_work_run) {
  scoped_fixture b = fixture_open(NULL);
  tdict_driver *d = b.d;
  scoped_raw raw = raw_open(b.context, td_device());
  tdict_stream stream;
  tdict_block block = fixture_take(&b, 4096);
  unsigned char found[4096];
  void *host;
  assert_int_equal(tdict_counted_host_alloc(d, &host, 4096), TDICT_CU_SUCCESS);
  td_fill_random(host, 4096, 22);
  raw_fill(raw, block.data, 0xA5, 4096);
  td_ok(tdict_stream_create(b.context, td_device(), &stream, err));
  td_ok(tdict_sim_hold(b.context, err));
  CU(SUCCESS, copy_h2d_async, block.data, host, 4096, stream.handle);
  tdict_stream_destroy(b.context, stream);
  raw_read(raw, found, block.data, 4096);
  assert_true(td_all_bytes(found, 4096, 0xA5));
  td_ok(tdict_sim_step(b.context, 1, err));
  raw_read(raw, found, block.data, 4096);
  assert_memory_equal(found, host, 4096);
  td_ok(tdict_sim_resume(b.context, err));
  assert_int_equal(tdict_counted_host_free(d, host, 4096), TDICT_CU_SUCCESS);
  fixture_give(&b, &block);
}

CASE(stream_create_refuses) {
  scoped_driver d = open_sim();
  tdict_context_options o = tdict_context_options_default();
  scoped_context c = td_made(context, tdict_context_create_over(&o, d, &made, err));
  tdict_stream s, s_before;
  tdict_device_counts n, n_before;
  memset(&s, 0xA5, sizeof s);
  memset(&n, 0xA5, sizeof n);
  s_before = s;
  n_before = n;
  td_fails(TDICT_EINVAL, "cpu", tdict_stream_create(c, tdict_cpu(), &s, err));
  td_fails(TDICT_ENODEVICE, "sim:1 is absent", tdict_stream_create(c, tdict_sim(1), &s, err));
  td_fails(TDICT_ENODEVICE, "cuda:0 is absent", tdict_stream_create(c, tdict_cuda(0), &s, err));
  td_fails(TDICT_ENODEVICE, "55", tdict_stream_create(c, (tdict_device){55, 0}, &s, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_stream_create(c, tdict_sim(0), NULL, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_stream_create(NULL, tdict_sim(0), &s, err));
  td_fails(TDICT_EINVAL, "cpu", tdict_context_get_counts(c, tdict_cpu(), &n, err));
  td_fails(TDICT_ENODEVICE, "sim:1 is absent", tdict_context_get_counts(c, tdict_sim(1), &n, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_context_get_counts(c, tdict_sim(0), NULL, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_context_get_counts(NULL, tdict_sim(0), &n, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_sim_hold(NULL, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_sim_step(NULL, 1, err));
  td_fails(TDICT_EINVAL, "context is NULL", tdict_sim_resume(NULL, err));
  assert_memory_equal(&s, &s_before, sizeof s);
  assert_memory_equal(&n, &n_before, sizeof n);
}

static tdict_cu refuse_stream(tdict_driver *d, tdict_cu_stream *out, unsigned flags) {
  (void)d, (void)out, (void)flags;
  return TDICT_CU_UNKNOWN;
}

SIM_CASE(stream_create_fails_with_the_driver) {
  scoped_fixture b = fixture_open(NULL);
  tdict_device_counts begin = fixture_counts(&b);
  tdict_stream stream = {tdict_cpu(), NULL};
  shim s;
  shim_begin(&s, b.d);
  s.ops.stream_create = refuse_stream;
  td_fails(TDICT_EDEVICE, "cuStreamCreate", tdict_stream_create(b.context, td_device(), &stream, err));
  shim_end(&s, b.d);
  assert_int_equal(td_last_error.native, TDICT_CU_UNKNOWN);
  assert_null(stream.handle);
  assert_int_equal(fixture_counts(&b).num_streams, begin.num_streams);
}

GPU_CASE(context_counts_follow_use) {
  scoped_fixture b = fixture_open(NULL);
  tdict_device_counts begin = fixture_counts(&b), now;
  tdict_storage *pinned = NULL;
  tdict_block block = fixture_take(&b, 3 * MIB);
  td_ok(tdict_storage_create(tdict_pinned_memory(b.context), 5 * MIB, false, &pinned, err));
  now = fixture_counts(&b);
  assert_int_equal(now.pinned_bytes, begin.pinned_bytes + 5 * MIB);
  assert_int_equal(now.device_bytes, begin.device_bytes + 3 * MIB);
  assert_true(now.peak_pinned_bytes >= now.pinned_bytes);
  tdict_storage_release(pinned);
  fixture_give(&b, &block);
  assert_int_equal(fixture_counts(&b).pinned_bytes, begin.pinned_bytes + 5 * MIB); /* cached, so still page-locked */
  assert_int_equal(fixture_counts(&b).device_bytes, begin.device_bytes);
  tdict_context_trim(b.context, tdict_cpu(), 0);
  assert_int_equal(fixture_counts(&b).pinned_bytes, begin.pinned_bytes);
  assert_int_equal(fixture_counts(&b).peak_pinned_bytes, now.peak_pinned_bytes);
}

GPU_CASE(context_trim) {
  scoped_fixture b = fixture_open(NULL);
  tdict_memory *pinned = tdict_pinned_memory(b.context);
  tdict_storage *s[3] = {NULL, NULL, NULL};
  for (int i = 0; i < 3; i++) td_ok(tdict_storage_create(pinned, (size_t)(i + 1) * MIB, false, &s[i], err));
  for (int i = 0; i < 3; i++) tdict_storage_release(s[i]);
  tdict_block block = fixture_take(&b, 64 * MIB);
  fixture_give(&b, &block);
  tdict_context_trim(b.context, (tdict_device){td_device().type, 63}, 0); /* does nothing: no such device */
  tdict_context_trim(b.context, (tdict_device){55, 0}, 0);
  tdict_memory_counts n = td_memory_counts(pinned);
  assert_int_equal(n.cached_bytes, 6 * MIB);
  assert_true(fixture_memory(&b).cached_bytes >= (size_t)64 * MIB);
  tdict_context_trim(b.context, tdict_cpu(), 5 * MIB); /* frees only the oldest block, of 1 MiB, which is enough */
  n = td_memory_counts(pinned);
  assert_int_equal(n.cached_bytes, 5 * MIB);
  assert_true(fixture_memory(&b).cached_bytes >= (size_t)64 * MIB);
  tdict_context_trim(b.context, td_device(), SIZE_MAX);
  assert_true(fixture_memory(&b).cached_bytes >= (size_t)64 * MIB);
  tdict_context_trim(b.context, td_device(), 0);
  assert_int_equal(fixture_memory(&b).cached_bytes, 0);
  n = td_memory_counts(pinned);
  assert_int_equal(n.cached_bytes, 5 * MIB);
  tdict_context_trim(b.context, tdict_cpu(), 0);
  n = td_memory_counts(pinned);
  assert_int_equal(n.cached_bytes, 0);
}
