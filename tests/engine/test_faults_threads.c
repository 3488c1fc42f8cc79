/* Tests contexts whose threads cannot be started. The first pthread_create() of a new context fails, then the second
 * and so on, until no call fails. Threads of the simulated device are counted, too. */
#include <errno.h>
#include <pthread.h>

#include "context.h"
#include "device/sim/driver.h"
#include "support/driver_fault.h"
#include "support/test.h"

static int64_t fails_at, seen, started; /* used only by the main thread, which starts all threads */
static bool fired;

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  if (++seen == fails_at) {
    fired = true;
    return EAGAIN;
  }
  int code = __real_pthread_create(thread, attributes, run, argument);
  started += code == 0;
  return code;
}
int __real_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result) {
  int code = __real_pthread_join(thread, result);
  started -= code == 0;
  return code;
}

static void use(tdict_context *context, tdict_device device) {
  scoped_tree td = NULL, moved = NULL, back = NULL;
  td_ok(tdict_create(0, NULL, &td, err));
  scoped_tensor t = td_made(tensor, tdict_tensor_empty(TDICT_U8, 1, (const int64_t[]){3000000}, NULL, &made, err));
  td_fill_random(tdict_tensor_data(t), 3000000, 5);
  td_ok(tdict_set(td, "t", t, err));
  td_ok(tdict_to_device(context, td, device, NULL, &moved, err));
  td_ok(tdict_to_device(context, moved, tdict_cpu(), NULL, &back, err));
  assert_memory_equal(tdict_const_data(back, "t"), tdict_const_data(td, "t"), 3000000);
  assert_int_equal(seen, 0); /* transfers start no threads */
}

static tdict_driver *open_inner(void) {
  tdict_driver *inner = NULL;
  tdict_error why = {0};
  tdict_status status = TDICT_ENODEVICE;
  tdict_sim_options sim = tdict_sim_options_default();
  if (td_device().type == TDICT_DEVICE_SIM) status = tdict_driver_sim_open(&sim, &inner, &why);
#if TDICT_CUDA
  if (td_device().type == TDICT_DEVICE_CUDA) status = tdict_driver_cuda_open(&inner, &why);
#endif
  if (status != TDICT_OK) td_skip(why.message[0] ? why.message : "built without CUDA");
  return inner;
}

GPU_CASE(faults_threads_of_a_context) {
  int64_t met = 0;
  tdict_context_options o = td_with(tdict_context_options, device = td_device(), num_threads = 4);
  for (fails_at = 1;; fails_at++) {
    tdict_driver *inner = open_inner(), *driver = NULL;
    tdict_context *context = NULL;
    tdict_error why = {0};
    tdict_fault_live live, none = {0};
    td_ok(tdict_driver_fault_open(inner, &driver, err));
    const int64_t before = started;
    seen = 0;
    fired = false;
    tdict_status status = tdict_context_create_over(&o, driver, &context, &why);
    seen = INT64_MIN;
    if (fired) {
      assert_int_equal(status, TDICT_ENOMEM);
      assert_int_equal(why.status, TDICT_ENOMEM);
      assert_true(strlen(why.message) > 10);
      assert_null(context);
      if (fails_at <= o.num_threads) assert_int_equal(started, before); /* the pool threads have been joined */
      td_ok(tdict_context_create_over(&o, driver, &context, err));      /* the next context can be created */
    } else {
      assert_int_equal(status, TDICT_OK);
    }
    met += fired;
    seen = 0;
    use(context, o.device);
    seen = INT64_MIN;
    tdict_context_destroy(context);
    tdict_driver_fault_get_live(driver, &live);
    assert_memory_equal(&live, &none, sizeof live);
    td_release(driver, inner);
    assert_int_equal(started, before);
    if (!fired) break;
    assert_int_equal(met, fails_at);
  }
  assert_int_equal(met, td_device().type == TDICT_DEVICE_SIM ? 7 : 4); /* 4 pool threads, and 3 simulated engines */
  printf("fault %s context any threads 0 %lld %lld\n", td_device().type == TDICT_DEVICE_SIM ? "sim" : "cuda",
         (long long)met, (long long)met);
}
