/* Tests tdict_stream_synchronize(). test_control.c tests how streams are created and destroyed. */

#include "device/counted.h"
#include "device/gpu_help.h"

static void end_when_waited_for(void *ended) {
  td_rest();
  atomic_store((atomic_bool *)ended, true);
}

SIM_CASE(stream_synchronize_waits) {
  scoped_context c = td_context(NULL);
  atomic_bool ended;
  atomic_init(&ended, false);
  TD_STREAM(s, c, td_device());
  td_ok(tdict_stream_synchronize(c, s, err)); /* nothing is queued */
  td_ok(tdict_sim_launch(s, end_when_waited_for, &ended, err));
  td_ok(tdict_stream_synchronize(c, s, err));
  assert_true(atomic_load(&ended));
  td_ok(tdict_stream_synchronize(c, (tdict_stream){td_device(), NULL}, err));
  td_ok(tdict_stream_synchronize(c, (tdict_stream){tdict_cpu(), NULL}, err));
}

/* Waits for copies. This case also runs on real GPUs. */
GPU_CASE(stream_synchronize_waits_for_copies) {
  enum { BYTES = 8 << 20 };
  scoped_fixture b = fixture_open(NULL);
  tdict_driver *d = b.d;
  scoped_raw raw = raw_open(b.context, td_device());
  tdict_block block = fixture_take(&b, BYTES);
  scoped_bytes found = malloc(BYTES);
  void *host;
  assert_non_null(found);
  assert_int_equal(tdict_counted_host_alloc(d, &host, BYTES), TDICT_CU_SUCCESS);
  td_fill_random(host, BYTES, 9);
  TD_STREAM(s, b.context, td_device());
  CU(SUCCESS, copy_h2d_async, block.data, host, BYTES, s.handle);
  td_ok(tdict_stream_synchronize(b.context, s, err));
  CU(SUCCESS, stream_query, s.handle);
  raw_read(raw, found, block.data, BYTES);
  assert_memory_equal(found, host, BYTES);
  assert_int_equal(tdict_counted_host_free(d, host, BYTES), TDICT_CU_SUCCESS);
  fixture_give(&b, &block);
}

DEVICE_CASE(stream_synchronize_refuses) {
  scoped_context c = td_context(NULL);
  const tdict_stream none = {td_device(), NULL};
  td_fails(TDICT_EINVAL, "context is NULL", tdict_stream_synchronize(NULL, none, err));
  td_fails(TDICT_EWRONGDEVICE, "cuda:77", tdict_stream_synchronize(c, (tdict_stream){tdict_cuda(77), NULL}, err));
  char own[32]; /* the error must name the devices that have streams */
  tdict_device_format(td_device(), own, sizeof own);
  td_fails(TDICT_EWRONGDEVICE, td_device().type == TDICT_DEVICE_CPU ? "wanted a stream of " : own,
           tdict_stream_synchronize(c, (tdict_stream){tdict_cuda(77), NULL}, err));
  td_fails(TDICT_EWRONGDEVICE, "auto", tdict_stream_synchronize(c, (tdict_stream){{TDICT_DEVICE_AUTO, 0}, NULL}, err));
}

static tdict_cu answer_lost(tdict_driver *d, tdict_cu_stream s) {
  (void)d, (void)s;
  return TDICT_CU_ILLEGAL_ADDRESS;
}
SIM_CASE(stream_synchronize_reports_faults) {
  scoped_fixture b = fixture_open(NULL);
  TD_STREAM(s, b.context, td_device());
  const tdict_driver_ops *real = b.d->ops;
  tdict_driver_ops ops = *real;
  ops.stream_synchronize = answer_lost;
  b.d->ops = &ops;
  td_fails(TDICT_ELOST, "cuStreamSynchronize", tdict_stream_synchronize(b.context, s, err));
  b.d->ops = real;
  td_fails(TDICT_ELOST, "lost", tdict_stream_synchronize(b.context, s, err)); /* later calls fail, too */
}
