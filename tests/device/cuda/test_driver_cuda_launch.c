/* Tests modules and launches of driver_cuda.c, on a GPU and on the stand-in, like test_driver_cuda.c. */
#include "core/kernel/work.h"
#include "device/cuda/cuda_table.h"
#include "device/kernels/image.h"

/* Copies bytes with the library's kernel. Fails unless the PTX compiles and the parameters reach the kernel. */
static void launches(fixture *b) {
  enum { BYTES = 300007 };
  scoped_bytes source = filled(BYTES, 11), result = filled(BYTES, 0);
  void *one = device_filled(b, BYTES), *two = device_filled(b, BYTES);
  const int64_t shape[] = {BYTES - 5}, strides[] = {1};
  const tdict_kernel_move move = {.dst = (char *)two + 3,
                                  .src = (char *)one + 1,
                                  .ndim = 1,
                                  .shape = shape,
                                  .dst_strides = strides,
                                  .src_strides = strides,
                                  .item_bytes = 1};
  tdict_cu_module module = NULL;
  tdict_cu_function functions[TDICT_KERNEL_NUM_OPS];
  tdict_cu_stream s = NULL;
  tdict_kernel_work work;
  tdict_kernel_params params = {.num_entries = 1};
  tdict_kernel_work_init(&work, TDICT_KERNEL_COPY);
  td_ok(tdict_kernel_add_copy(&work, &move, err));
  tdict_kernel_write_table(&work, params.words);
  cu_ok(stream_create(b->d, &s, TDICT_CU_STREAM_NON_BLOCKING));
  cu_ok(module_load(b->d, tdict_kernel_image, &module));
  for (int op = 0; op < TDICT_KERNEL_NUM_OPS; op++)
    cu_ok(module_function(b->d, module, tdict_kernel_name((tdict_kernel_op)op), &functions[op]));
  tdict_cu_function none = NULL;
  assert_int_equal(b->ops->module_function(b->d, module, "tdict_planted", &none), TDICT_CU_NOT_FOUND);
  assert_null(none);
  put(b, one, source, BYTES);
  const tdict_cu_launch copy = {functions[TDICT_KERNEL_COPY], (unsigned)work.num_blocks, TDICT_KERNEL_THREADS, &params,
                                sizeof params};
  cu_ok(launch(b->d, &copy, s));
  cu_ok(stream_synchronize(b->d, s));
  cu_now(copy_d2h_async, result, two, BYTES);
  assert_memory_equal(result + 3, source + 1, BYTES - 5);
  assert_int_equal(result[2], 0xA5);
  assert_int_equal(result[BYTES - 2], 0xA5);
  cu_ok(module_unload(b->d, module));
  tdict_kernel_work_reset(&work);
  cu_ok(stream_destroy(b->d, s));
  cu_ok(mem_free(b->d, one));
  cu_ok(mem_free(b->d, two));
}
CUDA_CASE(cuda_launch_gpu) { on_gpu(launches); }
CASE(cuda_launch_fake) { on_fake(launches); }

/* The driver opens even if it lacks the entries for launches. Loading a module is then refused. */
static void no_launches(fixture *b) {
  tdict_cu_module module = NULL;
  assert_int_equal(b->ops->module_load(b->d, tdict_kernel_image, &module), TDICT_CU_NOT_SUPPORTED);
  assert_null(module);
}
CASE(cuda_without_launches_fake) {
  load_fake("fake_libcuda.so")->missing = "cuLaunchKernel";
  on_fake(no_launches);
}
static void no_compiler(fixture *b) {
  tdict_cu_module module = NULL;
  assert_int_equal(b->ops->module_load(b->d, tdict_kernel_image, &module), TDICT_CU_JIT_COMPILER_NOT_FOUND);
  assert_null(module);
}
CASE(cuda_without_compiler_fake) {
  load_fake("fake_libcuda.so")->load_result = TDICT_CU_JIT_COMPILER_NOT_FOUND;
  on_fake(no_compiler);
}
