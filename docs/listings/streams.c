#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { COUNT = 1000 };

typedef struct job {
  tdict_stream stream;
  const void *x;
  double sum;
} job;

/* A kernel of the simulated device. With CUDA, this is
 * a kernel that the program launches on its stream. */
static void sum_kernel(void *user) {
  job *j = user;
  const float *x = tdict_sim_host_pointer(j->stream, j->x);
  for (int i = 0; x && i < COUNT; i++) j->sum += (double)x[i];
}

int main(void) {
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_stream stream = {{0, 0}, NULL};
  tdict_tensor *x = NULL;
  tdict_tree *batch = NULL, *moved = NULL;
  tdict_future *future = NULL;
  const float one = 1;
  job sum = {{{0, 0}, NULL}, NULL, 0};
  tdict_error err = {0};
  options.device = tdict_sim(0);
  TDICT_TRY(tdict_context_create(&options, &context, &err));
  /* with CUDA: {device, your cudaStream_t} */
  TDICT_TRY(tdict_stream_create(context, options.device, &stream, &err));
  TDICT_TRY(tdict_create(0, NULL, &batch, &err));
  TDICT_TRY(tdict_tensor_full(TDICT_F32, TDICT_SHAPE(COUNT), &one, &x, &err));
  TDICT_TRY(tdict_set(batch, "x", x, &err));
  TDICT_TRY(tdict_to_device_async(context, batch, options.device, NULL, &future, &err));
  /* the stream waits, not this thread */
  TDICT_TRY(tdict_future_wait_on_stream(future, stream, &moved, &err));
  sum = (job){stream, tdict_const_data(moved, "x"), 0};
  TDICT_TRY(tdict_sim_launch(stream, sum_kernel, &sum, &err));
  /* `moved` may be released before the kernel has run */
  TDICT_TRY(tdict_record_stream(moved, stream, &err));
  tdict_release(moved);
  moved = NULL;
  TDICT_TRY(tdict_stream_synchronize(context, stream, &err));
  printf("sum on the device: %.0f\n", sum.sum);
done:
  tdict_future_release(future);
  tdict_release(moved);
  tdict_release(batch);
  tdict_tensor_release(x);
  if (stream.handle) tdict_stream_destroy(context, stream);
  tdict_context_destroy(context);
  return err.status != TDICT_OK;
}
