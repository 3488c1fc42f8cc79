/* Tests the simulated driver: its options, what it reports about itself, and how it is opened and closed. */
#include <math.h>

#include "device/sim/table.h"

CASE(sim_options_are_checked) {
  tdict_sim_options o = tdict_sim_options_default();
  td_ok(tdict_driver_sim_check(&o, err));
  o.num_devices = 0;
  td_fails(TDICT_EINVAL, "num_devices is 0", tdict_driver_sim_check(&o, err));
  o.num_devices = 9;
  td_fails(TDICT_EINVAL, "num_devices is 9", tdict_driver_sim_check(&o, err));
  o = tdict_sim_options_default();
  o.memory_bytes = (1 << 20) - 1;
  td_fails(TDICT_EINVAL, "memory_bytes is 1048575", tdict_driver_sim_check(&o, err));
  o = tdict_sim_options_default();
  o.h2d_bytes_per_second = -1;
  td_fails(TDICT_EINVAL, "h2d_bytes_per_second is -1", tdict_driver_sim_check(&o, err));
  o.h2d_bytes_per_second = NAN;
  td_fails(TDICT_EINVAL, "h2d_bytes_per_second", tdict_driver_sim_check(&o, err));
  o = tdict_sim_options_default();
  o.d2h_bytes_per_second = INFINITY;
  td_fails(TDICT_EINVAL, "d2h_bytes_per_second is inf", tdict_driver_sim_check(&o, err));
  o = tdict_sim_options_default();
  o.latency_ns = -5;
  td_fails(TDICT_EINVAL, "latency_ns is -5", tdict_driver_sim_check(&o, err));
}

CASE(sim_open_without_address_space_fails) {
  tdict_driver *d = NULL;
  tdict_sim_options o = td_with(tdict_sim_options, memory_bytes = SIZE_MAX / 2);
  td_fails(TDICT_ENOMEM, "address space", tdict_driver_sim_open(&o, &d, err));
  o.memory_bytes = SIZE_MAX;
  td_fails(TDICT_ENOMEM, "address space", tdict_driver_sim_open(&o, &d, err));
  assert_null(d);
}

CASE(sim_driver_reports_its_properties) {
  tdict_sim_options o = sim_options(false);
  o.num_devices = 3;
  scoped_table d = open_table(&o);
  int value = 0;
  char name[64];
  assert_int_equal(d->device_type, TDICT_DEVICE_SIM);
  CU(SUCCESS, device_count, &value);
  assert_int_equal(value, 3);
  CU(SUCCESS, device_name, 2, name, (int)sizeof name);
  assert_non_null(strstr(name, "simulated"));
  CU(INVALID_DEVICE, device_name, 3, name, (int)sizeof name);
  CU(SUCCESS, device_attribute, 0, TDICT_CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &value);
  assert_int_equal(value, 1);
  CU(SUCCESS, device_attribute, 0, TDICT_CU_ATTRIBUTE_ASYNC_ENGINE_COUNT, &value);
  assert_int_equal(value, 2);
  CU(INVALID_VALUE, device_attribute, 0, 9999, &value);
  CU(INVALID_DEVICE, device_attribute, 3, TDICT_CU_ATTRIBUTE_PCI_BUS_ID, &value);
}

CASE(sim_driver_names_its_errors) {
  scoped_table d = open_plain();
  const char *name, *text;
  CU(SUCCESS, error_text, TDICT_CU_OUT_OF_MEMORY, &name, &text);
  assert_string_equal(name, "CUDA_ERROR_OUT_OF_MEMORY");
  assert_string_equal(text, "out of memory");
  CU(SUCCESS, error_text, TDICT_CU_HOST_MEMORY_ALREADY_REGISTERED, &name, &text);
  assert_string_equal(name, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
  CU(INVALID_VALUE, error_text, 12345, &name, &text);
}

CASE(sim_driver_is_counted) {
  tdict_driver *d = open_plain();
  assert_ptr_equal(tdict_driver_retain(d), d);
  tdict_driver_release(d);
  make_device(d, 1000); /* not freed here: the driver frees all its memory when it is closed */
  make_pinned(d, 1000, 1);
  make_stream(d, TDICT_CU_STREAM_DEFAULT);
  tdict_cu_event e = make_event(d);
  CU(SUCCESS, event_record, e, NULL);
  tdict_cu_pool pool;
  void *p;
  CU(SUCCESS, pool_create, 0, &pool);
  CU(SUCCESS, mem_alloc_async, &p, 1000, pool, NULL);
  close_table(d);
  tdict_driver_release(NULL);
}

/* Makes each call that allocates, up to the first that fails. Returns true if none failed. Nothing may leak. */
static bool use_all(tdict_driver *d, const unsigned char *src, unsigned char *back, size_t bytes) {
  const tdict_driver_ops *t = d->ops;
  tdict_cu_context context;
  tdict_cu_stream s = NULL, blocking = NULL;
  tdict_cu_event e = NULL;
  tdict_cu_pool pool = NULL;
  void *host = NULL, *dev = NULL, *pooled = NULL;
  if (t->ctx_retain(d, 0, &context) || t->ctx_push(d, context)) return false;
  tdict_cu r = t->stream_create(d, &s, TDICT_CU_STREAM_NON_BLOCKING);
  if (!r) r = t->stream_create(d, &blocking, TDICT_CU_STREAM_DEFAULT);
  if (!r) r = t->event_create(d, &e, 0);
  if (!r) r = t->host_alloc(d, &host, bytes, 0);
  if (!r) r = t->mem_alloc(d, &dev, bytes);
  if (!r) r = t->pool_create(d, 0, &pool);
  if (!r) r = t->mem_alloc_async(d, &pooled, bytes, pool, s);
  if (!r) r = t->copy_h2d_async(d, dev, src, bytes, blocking);
  if (!r) r = t->copy_d2d_async(d, pooled, dev, bytes, NULL);
  if (!r) r = t->event_record(d, e, NULL);
  if (!r) r = t->stream_wait_event(d, s, e);
  if (!r) r = t->copy_d2h_async(d, host, pooled, bytes, s);
  if (!r) r = t->mem_free_async(d, pooled, s);
  if (!r) r = t->stream_synchronize(d, s);
  if (!r) memcpy(back, host, bytes);
  if (r && r != TDICT_CU_OUT_OF_MEMORY) fail_msg("a call returned %d, wanted success or out of memory", r);
  t->ctx_pop(d, NULL);
  return r == TDICT_CU_SUCCESS;
}

CASE(sim_survives_failing_allocations) {
  enum { BYTES = 3000 };
  tdict_sim_options o = sim_options(false);
  scoped_bytes src = make_pageable(BYTES, 1), back = make_pageable(BYTES, 0);
  for (int all_after = 0; all_after < 2; all_after++) {
    bool refused = true;
    int64_t n = 0;
    for (; n < 100 && refused; n++) {
      tdict_driver *d = NULL;
      bool passed = false;
      memset(back, 0xA5, BYTES);
      td_fail_alloc(n, all_after);
      tdict_status status = tdict_driver_sim_open(&o, &d, NULL);
      if (status == TDICT_OK) passed = use_all(d, src, back, BYTES);
      refused = td_fail_alloc_stop();
      assert_true(status == TDICT_OK || status == TDICT_ENOMEM);
      assert_int_equal(passed, !refused);
      tdict_driver_release(d); /* the leak checker reports what is not freed */
    }
    assert_true(!refused && n > 10);
    assert_memory_equal(back, src, BYTES);
  }
}
