/* Tests launches of kernels on the simulated driver: their order, allowed addresses, and refused launches. */
#include "device/kernels/host.h"
#include "device/sim/table.h"

enum { BYTES = 40000 };

typedef struct kernels {
  tdict_cu_module module;
  tdict_cu_function copy, check;
} kernels;
static kernels load_kernels(tdict_driver *d) {
  kernels k = {0};
  CU(SUCCESS, module_load, "text", &k.module);
  CU(SUCCESS, module_function, k.module, "tdict_copy", &k.copy);
  CU(SUCCESS, module_function, k.module, "tdict_check", &k.check);
  return k;
}

/* The launch of a copy of contiguous bytes. */
typedef struct copy_launch {
  tdict_kernel_params params;
  tdict_cu_launch launch;
} copy_launch;
static copy_launch *make_copy(const kernels *k, void *dst, const void *src, size_t bytes) {
  copy_launch *c = calloc(1, sizeof *c);
  const int64_t shape[] = {(int64_t)bytes}, strides[] = {1};
  const tdict_kernel_move move = {.dst = dst,
                                  .src = src,
                                  .ndim = 1,
                                  .shape = shape,
                                  .dst_strides = strides,
                                  .src_strides = strides,
                                  .item_bytes = 1};
  tdict_kernel_work work;
  tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
  td_ok(tdict_kernel_add_copy(&work, &move, err));
  tdict_kernel_write_table(&work, c->params.words);
  c->params.num_entries = 1;
  c->launch = (tdict_cu_launch){.function = k->copy,
                                .blocks = (unsigned)work.num_blocks,
                                .threads = TDICT_KERNEL_THREADS,
                                .params = &c->params,
                                .params_bytes = sizeof c->params};
  tdict_kernel_work_reset(&work);
  return c;
}
/* Launches a copy, and overwrites the parameters at once, so the call must have copied them. */
static tdict_cu launch_copy(tdict_driver *d, const kernels *k, void *dst, const void *src, tdict_cu_stream s) {
  TD_FREED copy_launch *c = make_copy(k, dst, src, BYTES);
  const tdict_cu result = d->ops->launch(d, &c->launch, s);
  memset(c, 0xff, sizeof *c);
  return result;
}

static int64_t num_finished(tdict_driver *d) {
  tdict_driver_sim_count counts;
  tdict_driver_sim_counts(d, 0, &counts);
  return counts.num_finished;
}

CASE(sim_launch_runs_at_its_step) {
  scoped_table d = open_held();
  const kernels k = load_kernels(d);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *in = make_pinned(d, BYTES, 1), *out = make_pinned(d, BYTES, 0);
  void *one = make_device(d, BYTES), *two = make_device(d, BYTES);
  CU(SUCCESS, copy_h2d_async, one, in, BYTES, s);
  assert_int_equal(launch_copy(d, &k, two, one, s), TDICT_CU_SUCCESS);
  assert_int_equal(launch_copy(d, &k, out, two, s), TDICT_CU_SUCCESS); /* this kernel writes pinned memory */
  for (int64_t step = 1; step <= 3; step++) {
    td_ok(tdict_driver_sim_step(d, 1, err));
    assert_int_equal(num_finished(d), step); /* a launch counts as one operation */
    if (step < 3) assert_true(td_all_bytes(out, BYTES, 0xA5));
  }
  assert_memory_equal(out, in, BYTES);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, s);
  CU(SUCCESS, module_unload, k.module);
}

CASE(sim_launch_waits_for_its_stream) {
  scoped_table d = open_plain();
  const kernels k = load_kernels(d);
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_event e = make_event(d);
  unsigned char *in = make_pinned(d, BYTES, 1), *out = make_pinned(d, BYTES, 0);
  gate g;
  block_stream(a, &g);
  CU(SUCCESS, event_record, e, a);
  CU(SUCCESS, stream_wait_event, b, e);
  assert_int_equal(launch_copy(d, &k, out, in, b), TDICT_CU_SUCCESS);
  td_rest();
  assert_true(td_all_bytes(out, BYTES, 0xA5));
  CU(NOT_READY, stream_query, b);
  open_gate(&g);
  CU(SUCCESS, stream_synchronize, b);
  assert_memory_equal(out, in, BYTES);
  CU(SUCCESS, module_unload, k.module);
}

CASE(sim_launch_on_freed_memory_is_an_error) {
  scoped_table d = open_plain();
  const kernels k = load_kernels(d);
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_pool pool;
  unsigned char *out = make_pinned(d, BYTES, 0);
  void *dev;
  gate g;
  CU(SUCCESS, pool_create, 0, &pool);
  CU(SUCCESS, mem_alloc_async, &dev, BYTES, pool, a);
  block_stream(a, &g);
  assert_int_equal(launch_copy(d, &k, out, dev, a), TDICT_CU_SUCCESS);
  CU(SUCCESS, mem_free_async, dev, b); /* stream b does not wait for stream a, which is the caller's error */
  CU(SUCCESS, stream_synchronize, b);
  open_gate(&g);
  CU(ILLEGAL_ADDRESS, stream_synchronize, a);
  assert_true(td_all_bytes(out, BYTES, 0xA5));
  CU(SUCCESS, module_unload, k.module);
}

/* Copies one unit of 8 bytes on a new driver, and returns the status that the stream then reports. */
static tdict_cu run_copy(intptr_t dst_shift, intptr_t src_shift, bool pageable) {
  scoped_table d = open_plain();
  const kernels k = load_kernels(d);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  char *dst = make_device(d, 512), *src = pageable ? (char *)make_pageable(512, 1) : make_device(d, 512);
  copy_launch *c = make_copy(&k, dst, src, 8);
  uint64_t *entry = c->params.words;
  entry[TDICT_ENTRY_DST] += (uint64_t)dst_shift;
  entry[TDICT_ENTRY_SRC] += (uint64_t)src_shift;
  CU(SUCCESS, launch, &c->launch, s);
  const tdict_cu result = d->ops->stream_synchronize(d, s);
  free(c);
  if (pageable) free(src);
  CU(SUCCESS, module_unload, k.module);
  return result;
}

CASE(sim_launch_checks_every_address) {
  assert_int_equal(run_copy(0, 0, false), TDICT_CU_SUCCESS);
  assert_int_equal(run_copy(504, 504, false), TDICT_CU_SUCCESS);
  assert_int_equal(run_copy(4, 0, false), TDICT_CU_ILLEGAL_ADDRESS); /* not aligned */
  assert_int_equal(run_copy(0, 2, false), TDICT_CU_ILLEGAL_ADDRESS);
  assert_int_equal(run_copy(4096, 0, false), TDICT_CU_ILLEGAL_ADDRESS); /* not allocated */
  assert_int_equal(run_copy(0, 4096, false), TDICT_CU_ILLEGAL_ADDRESS);
  assert_int_equal(run_copy(0, -8, false), TDICT_CU_SUCCESS); /* the end of the previous block; allowed, as on a GPU */
  assert_int_equal(run_copy(-8, 0, false), TDICT_CU_ILLEGAL_ADDRESS); /* before the first block */
  assert_int_equal(run_copy(0, 0, true), TDICT_CU_ILLEGAL_ADDRESS);   /* host memory that is not pinned */
}

/* A kernel may access another device's pool only if this pool allows it. */
CASE(sim_launch_across_devices) {
  tdict_sim_options o = sim_options(false);
  o.num_devices = 2;
  for (int allowed = 0; allowed < 2; allowed++) {
    scoped_table d = open_table(&o);
    const kernels k = load_kernels(d);
    tdict_cu_context other;
    tdict_cu_pool pool;
    tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), there;
    void *far, *near = make_device(d, BYTES);
    CU(SUCCESS, ctx_retain, 1, &other);
    CU(SUCCESS, ctx_push, other);
    CU(SUCCESS, stream_create, &there, TDICT_CU_STREAM_NON_BLOCKING);
    CU(SUCCESS, pool_create, 1, &pool);
    CU(SUCCESS, mem_alloc_async, &far, BYTES, pool, there);
    CU(SUCCESS, stream_synchronize, there);
    copy_launch *c = make_copy(&k, near, far, BYTES);
    CU(INVALID_HANDLE, launch, &c->launch, there); /* the function belongs to device 0 */
    CU(SUCCESS, ctx_pop, &other);
    CU(INVALID_HANDLE, launch, &c->launch, there); /* the stream belongs to device 1 */
    if (allowed) CU(SUCCESS, pool_allow_peer, pool, 0);
    CU(SUCCESS, launch, &c->launch, s);
    assert_int_equal(d->ops->stream_synchronize(d, s), allowed ? TDICT_CU_SUCCESS : TDICT_CU_ILLEGAL_ADDRESS);
    free(c);
    CU(SUCCESS, module_unload, k.module);
    CU(SUCCESS, ctx_release, 1);
  }
}

CASE(sim_launch_of_a_kernel_refuses) {
  scoped_table d = open_plain();
  const kernels k = load_kernels(d);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  void *device = make_device(d, BYTES);
  tdict_cu_module module = NULL;
  tdict_cu_function function = NULL;
  tdict_cu_context context;
  copy_launch *c = make_copy(&k, device, (char *)device + 512, 512);
  const tdict_cu_launch good = c->launch;
  CU(NOT_FOUND, module_function, k.module, "tdict_planted", &function);
  CU(INVALID_VALUE, module_load, NULL, &module);
  c->launch.blocks = 0;
  CU(INVALID_VALUE, launch, &c->launch, s);
  c->launch.blocks = (unsigned)INT32_MAX + 1;
  CU(INVALID_VALUE, launch, &c->launch, s);
  c->launch = good;
  c->launch.threads = 128;
  CU(INVALID_VALUE, launch, &c->launch, s);
  c->launch = good;
  c->launch.params_bytes--;
  CU(INVALID_VALUE, launch, &c->launch, s);
  c->launch = good;
  for (int n = 0; n < 2; n++) { /* no memory for the operation, then none for its parameters */
    td_fail_alloc(n, false);
    const tdict_cu result = d->ops->launch(d, &c->launch, s);
    assert_true(td_fail_alloc_stop());
    assert_int_equal(result, TDICT_CU_OUT_OF_MEMORY);
  }
  CU(SUCCESS, ctx_pop, &context);
  CU(INVALID_CONTEXT, launch, &c->launch, s);
  CU(INVALID_CONTEXT, module_load, "text", &module);
  CU(INVALID_CONTEXT, module_unload, k.module);
  CU(SUCCESS, ctx_push, context);
  assert_int_equal(num_finished(d), 0);
  assert_null(module);
  assert_null(function);
  free(c);
  CU(SUCCESS, module_unload, k.module);
}
