/* Tests the devices of a context: which device is the default, why devices are absent, and that each device is opened
 * once. Most cases use a simulated driver of type sim or cuda, so results are the same on every machine. */
#include "device/devices.h"

#include "core/memory/pinned_pool.h"
#include "device/gpu_help.h"
#include "support/threads.h"

static tdict_status create(const tdict_context_options *options, tdict_driver *driver, tdict_pool *pool,
                           tdict_devices **out, tdict_error *err) {
  const tdict_devices_config config = {
      .options = options, .driver = driver, .open_sim = tdict_driver_sim_open, .pool = pool};
  return tdict_devices_create(&config, out, err);
}

static tdict_context_options options_for(tdict_device device) {
  return td_with(tdict_context_options, device = device);
}
static const tdict_device any = {TDICT_DEVICE_AUTO, 0};

/* Opens a simulated driver with the device type cuda. Code above the table cannot tell the difference. */
static tdict_driver *open_as_cuda(void) {
  tdict_driver *d = open_sim();
  d->device_type = TDICT_DEVICE_CUDA;
  return d;
}
static tdict_devices *open_devices(tdict_device device, tdict_driver *driver) {
  tdict_context_options o = options_for(device);
  tdict_devices *devices = NULL;
  td_ok(create(&o, driver, NULL, &devices, err));
  return devices;
}
static void check_absent(tdict_devices *devices, tdict_device device, const char *text) {
  tdict_gpu *gpu = NULL;
  tdict_block block = {0};
  td_fails(TDICT_ENODEVICE, text, tdict_devices_gpu(devices, device, &gpu, err));
  assert_null(gpu);
  tdict_memory *m = tdict_devices_memory(devices, device);
  assert_non_null(m);
  assert_ptr_equal(tdict_devices_memory(devices, device), m);
  td_fails(TDICT_ENODEVICE, text, m->ops->allocate(m, 1, &block, err));
  assert_true(tdict_device_equal(m->device, device));
}

CASE(devices_auto_prefers_cuda) {
  scoped_driver d = open_as_cuda();
  tdict_devices *devices = open_devices(any, d);
  tdict_error why, untouched;
  tdict_gpu *gpu, *same;
  memset(&why, 0xA5, sizeof why);
  memset(&untouched, 0xA5, sizeof untouched);
  assert_true(tdict_device_equal(tdict_devices_default(devices, &why), tdict_cuda(0)));
  assert_memory_equal(&why, &untouched, sizeof why);
  td_ok(tdict_devices_gpu(devices, tdict_cuda(0), &gpu, err));
  td_ok(tdict_devices_gpu(devices, any, &same, err));
  assert_ptr_equal(gpu, same);
  assert_ptr_equal(tdict_devices_memory(devices, any), &gpu->memory);
  assert_ptr_equal(tdict_devices_memory(devices, tdict_cuda(0)), &gpu->memory);
  assert_null(tdict_devices_sim(devices));
  assert_true(tdict_devices_pinned(devices)->pinned);
  check_absent(devices, tdict_cuda(1), "cuda:1 is absent");
  check_absent(devices, tdict_cuda(-1), "cuda:-1 is absent");
  check_absent(devices, tdict_sim(0), "sim:0 is absent");
  check_absent(devices, (tdict_device){99, 0}, "99");
  tdict_devices_destroy(devices);
  assert_int_equal(atomic_load(&d->refs), 1);
}

CASE(devices_auto_takes_sim_without_cuda) {
  scoped_driver d = open_sim();
  tdict_devices *devices = open_devices(any, d);
  tdict_error why = {0};
  assert_true(tdict_device_equal(tdict_devices_default(devices, &why), tdict_sim(0)));
  assert_int_equal(why.status, TDICT_ENODEVICE);
  assert_true(strlen(why.message) > 10);
  assert_true(tdict_device_equal(tdict_devices_default(devices, NULL), tdict_sim(0)));
  assert_ptr_equal(tdict_devices_sim(devices), d);
  check_absent(devices, tdict_cuda(0), "cuda:0 is absent");
  check_absent(devices, tdict_sim(1), "sim:1 is absent");
  tdict_devices_destroy(devices);
}

CASE(devices_cpu_may_be_the_default) {
  scoped_driver d = open_as_cuda();
  tdict_devices *devices = open_devices(tdict_cpu(), d);
  tdict_error why = {0};
  tdict_gpu *gpu = NULL;
  tdict_storage *s = NULL;
  assert_true(tdict_device_equal(tdict_devices_default(devices, &why), tdict_cpu()));
  assert_int_equal(why.status, TDICT_ENODEVICE);
  assert_non_null(strstr(why.message, "another device")); /* a GPU exists, but the options name the cpu */
  td_fails(TDICT_EINVAL, "cpu", tdict_devices_gpu(devices, tdict_cpu(), &gpu, err));
  td_fails(TDICT_EINVAL, "cpu", tdict_devices_gpu(devices, any, &gpu, err));
  assert_null(tdict_gpu_of_memory(tdict_devices_memory(devices, any)));
  assert_true(tdict_device_equal(tdict_devices_memory(devices, any)->device, tdict_cpu()));
  td_ok(tdict_storage_create(tdict_devices_pinned(devices), 4096, true, &s, err)); /* page-locked by the GPU */
  tdict_devices_destroy(devices);
  tdict_storage_release(s);
  assert_int_equal(atomic_load(&d->refs), 1);
}

/* Allocating pinned memory must still succeed after the thread pool is destroyed. */
CASE(devices_pinned_memory_forgets_the_threads) {
  scoped_driver d = open_sim();
  tdict_context_options o = options_for(tdict_sim(0));
  tdict_devices *devices = NULL;
  tdict_storage *kept = NULL, *later = NULL;
  tdict_pool *pool = td_made(pool, tdict_pool_create(2, &made, err));
  td_ok(create(&o, d, pool, &devices, err));
  tdict_memory *pinned = tdict_devices_pinned(devices);
  td_ok(tdict_storage_create(pinned, 4096, false, &kept, err));
  tdict_devices_destroy(devices);
  tdict_pool_destroy(pool);
  td_ok(tdict_storage_create(kept->memory, (size_t)8 << 20, true, &later, err));
  assert_int_equal(tdict_pinned_pool_way(pinned, later), TDICT_PINNED_REGISTERED);
  td_release(kept, later);
  assert_int_equal(atomic_load(&d->refs), 1);
}

static shim broken;
static tdict_cu no_context(tdict_driver *d, int ordinal, tdict_cu_context *out) {
  (void)d, (void)ordinal, (void)out;
  return TDICT_CU_UNKNOWN;
}

/* If a GPU exists but cannot be opened, only contexts that name it are refused. */
CASE(devices_broken_gpu_is_absent_with_its_reason) {
  scoped_driver d = open_as_cuda();
  shim_begin(&broken, d);
  broken.ops.ctx_retain = no_context;
  tdict_context_options o = options_for(tdict_cuda(0));
  tdict_devices *devices = NULL;
  td_fails(TDICT_EDEVICE, "cuDevicePrimaryCtxRetain", create(&o, d, NULL, &devices, err));
  assert_null(devices);
  assert_int_equal(atomic_load(&d->refs), 1);
  devices = open_devices(any, d);
  tdict_error why = {0};
  tdict_block block;
  assert_true(tdict_device_equal(tdict_devices_default(devices, &why), tdict_cpu()));
  assert_int_equal(why.status, TDICT_ENODEVICE);
  assert_int_equal(why.native, TDICT_CU_UNKNOWN);
  assert_non_null(strstr(why.message, "cuDevicePrimaryCtxRetain"));
  tdict_memory *pinned = tdict_devices_pinned(devices);
  td_fails(TDICT_ENODEVICE, "cuDevicePrimaryCtxRetain", pinned->ops->allocate(pinned, 1, &block, err));
  assert_true(tdict_device_equal(pinned->device, tdict_cpu()));
  shim_end(&broken, d);
  tdict_gpu *gpu = NULL;
  td_ok(tdict_devices_gpu(devices, tdict_cuda(0), &gpu, err)); /* succeeds now: the failure is not remembered */
  tdict_devices_destroy(devices);
}

CASE(devices_keep_one_memory_per_absent_device) {
  enum { COUNT = 300 };
  scoped_driver d = open_sim();
  tdict_devices *devices = open_devices(any, d);
  tdict_memory *memories[COUNT];
  for (int i = 0; i < COUNT; i++) {
    memories[i] = tdict_devices_memory(devices, tdict_cuda(i));
    for (int k = 0; k < i; k++) assert_ptr_not_equal(memories[k], memories[i]);
  }
  for (int i = 0; i < COUNT; i++) {
    const char *text = td_text("cuda:%d is absent", i);
    assert_ptr_equal(tdict_devices_memory(devices, tdict_cuda(i)), memories[i]);
    check_absent(devices, tdict_cuda(i), text);
  }
  td_fail_alloc(0, true);
  tdict_memory *none = tdict_devices_memory(devices, tdict_cuda(COUNT));
  td_fail_alloc_stop();
  assert_non_null(none); /* still returns a memory object, which refuses allocations */
  tdict_block block;
  td_fails(TDICT_ENOMEM, "host memory", none->ops->allocate(none, 1, &block, err));
  tdict_devices_destroy(devices);
}

CASE(devices_create_refuses) {
  scoped_driver d = open_sim();
  tdict_devices *devices = NULL;
  tdict_context_options o = options_for(tdict_sim(1));
  td_fails(TDICT_ENODEVICE, "sim:1 is absent", create(&o, d, NULL, &devices, err));
  o = options_for(tdict_cuda(0));
  td_fails(TDICT_ENODEVICE, "cuda:0 is absent", create(&o, d, NULL, &devices, err));
  o = options_for((tdict_device){TDICT_DEVICE_CPU, 1});
  td_fails(TDICT_ENODEVICE, "cpu:1 is absent", create(&o, d, NULL, &devices, err));
  o = options_for((tdict_device){77, 0});
  td_fails(TDICT_ENODEVICE, "77", create(&o, d, NULL, &devices, err));
  assert_int_equal(atomic_load(&d->refs), 1);
  tdict_sim_options sim = tdict_sim_options_default();
  o = options_for(tdict_cpu());
  o.sim = &sim;
  sim.num_devices = 0;
  td_fails(TDICT_EINVAL, "num_devices", create(&o, NULL, NULL, &devices, err));
  sim = tdict_sim_options_default();
  sim.struct_size = 3;
  td_fails(TDICT_EINVAL, "sim options", create(&o, NULL, NULL, &devices, err));
  assert_null(devices);
}

CASE(devices_sim_options_are_used) {
  tdict_sim_options sim = small_sim();
  tdict_context_options o = options_for(tdict_sim(2));
  tdict_devices *devices = NULL;
  tdict_gpu *gpus[3];
  sim.num_devices = 3;
  o.sim = &sim;
  td_ok(create(&o, NULL, NULL, &devices, err));
  assert_true(tdict_device_equal(tdict_devices_default(devices, NULL), tdict_sim(2)));
  for (int i = 0; i < 3; i++) {
    td_ok(tdict_devices_gpu(devices, tdict_sim(i), &gpus[i], err));
    assert_true(tdict_device_equal(gpus[i]->memory.device, tdict_sim(i)));
    assert_int_equal(gpus[i]->ordinal, i);
    assert_true(strlen(gpus[i]->name) > 0);
  }
  check_absent(devices, tdict_sim(3), "sim:3 is absent");
  tdict_devices_destroy(devices);
  o = options_for(tdict_cpu());
  td_ok(create(&o, NULL, NULL, &devices, err));
  assert_null(tdict_devices_sim(devices));
  check_absent(devices, tdict_sim(0), "options.sim");
  tdict_devices_destroy(devices);
  tdict_devices_destroy(NULL);
}

CASE(devices_create_survives_enomem) {
  scoped_driver d = open_sim();
  tdict_context_options o = options_for(any);
  TD_SWEEP(s) {
    tdict_devices *devices = NULL;
    tdict_driver_sim_count n;
    const tdict_status status = td_sweep_call(s, create(&o, d, NULL, &devices, err));
    assert_true((devices == NULL) == (status != TDICT_OK));
    tdict_devices_destroy(devices); /* not NULL if only the first use of the pool failed */
    tdict_driver_sim_counts(d, 0, &n);
    assert_int_equal(n.num_streams + n.num_events + n.num_allocations, 0);
    assert_int_equal(atomic_load(&d->refs), 1);
    assert_true(s.failed || s.n > 4);
  }
}

typedef struct opener {
  tdict_devices *devices;
  tdict_gpu *gpu;
  tdict_memory *absent;
} opener;
static void *open_gpu(void *user) {
  opener *o = user;
  if (tdict_devices_gpu(o->devices, tdict_sim(1), &o->gpu, NULL) != TDICT_OK) return user;
  o->absent = tdict_devices_memory(o->devices, tdict_cuda(5));
  return tdict_devices_memory(o->devices, tdict_sim(1)) == &o->gpu->memory ? NULL : user;
}

CASE(devices_open_each_gpu_once) {
  enum { THREADS = 6 };
  tdict_sim_options sim = small_sim();
  opener openers[THREADS];
  pthread_t threads[THREADS];
  sim.num_devices = 2;
  scoped_driver d = td_made(driver, tdict_driver_sim_open(&sim, &made, err));
  tdict_devices *devices = open_devices(tdict_sim(0), d);
  int64_t streams = atomic_load(&d->num_streams);
  for (int i = 0; i < THREADS; i++) {
    openers[i] = (opener){devices, NULL, NULL};
    threads[i] = td_start(open_gpu, &openers[i]);
  }
  for (int i = 0; i < THREADS; i++) {
    void *wrong = &sim;
    pthread_join(threads[i], &wrong);
    assert_null(wrong);
    assert_ptr_equal(openers[i].gpu, openers[0].gpu);
    assert_ptr_equal(openers[i].absent, openers[0].absent);
  }
  assert_int_equal(atomic_load(&d->num_streams), 2 * streams); /* the second GPU creates as many streams as the first */
  tdict_devices_destroy(devices);
}
