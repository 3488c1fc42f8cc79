/* The simulated driver as a whole: options, what it says of itself, opening and closing. */
#include <math.h>

#include "device/sim_table.h"

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
  tdict_sim_options o = tdict_sim_options_default();
  tdict_driver *d = NULL;
  o.memory_bytes = SIZE_MAX / 2;
  td_fails(TDICT_ENOMEM, "address space", tdict_driver_sim_open(&o, &d, err));
  o.memory_bytes = SIZE_MAX;
  td_fails(TDICT_ENOMEM, "address space", tdict_driver_sim_open(&o, &d, err));
  assert_null(d);
}

CASE(sim_driver_says_what_it_is) {
  tdict_sim_options o = sim_options(false);
  o.num_devices = 3;
  tdict_driver *d = open_table(&o);
  int value = 0;
  char name[64];
  size_t bytes = 0;
  assert_int_equal(d->device_type, TDICT_DEVICE_SIM);
  CU(SUCCESS, driver_version, &value);
  assert_true(value >= 12000);
  CU(SUCCESS, device_count, &value);
  assert_int_equal(value, 3);
  CU(SUCCESS, device_name, 2, name, (int)sizeof name);
  assert_non_null(strstr(name, "simulated"));
  CU(INVALID_DEVICE, device_name, 3, name, (int)sizeof name);
  CU(SUCCESS, device_total_bytes, 0, &bytes);
  assert_int_equal(bytes, o.memory_bytes);
  CU(SUCCESS, device_attribute, 0, TDICT_CU_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, &value);
  assert_int_equal(value, 1);
  CU(SUCCESS, device_attribute, 0, TDICT_CU_ATTRIBUTE_ASYNC_ENGINE_COUNT, &value);
  assert_int_equal(value, 2);
  CU(INVALID_VALUE, device_attribute, 0, 9999, &value);
  CU(INVALID_DEVICE, device_attribute, 3, TDICT_CU_ATTRIBUTE_PCI_BUS_ID, &value);
  close_table(d);
}

CASE(sim_driver_names_its_errors) {
  tdict_driver *d = open_plain();
  const char *name, *text;
  CU(SUCCESS, error_text, TDICT_CU_OUT_OF_MEMORY, &name, &text);
  assert_string_equal(name, "CUDA_ERROR_OUT_OF_MEMORY");
  assert_string_equal(text, "out of memory");
  CU(SUCCESS, error_text, TDICT_CU_HOST_MEMORY_ALREADY_REGISTERED, &name, &text);
  assert_string_equal(name, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED");
  CU(INVALID_VALUE, error_text, 12345, &name, &text);
  close_table(d);
}

CASE(sim_driver_is_counted) {
  tdict_driver *d = open_plain();
  assert_ptr_equal(tdict_driver_retain(d), d);
  tdict_driver_release(d);
  make_device(d, 1000); /* still open; all that is left below goes with the driver */
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
