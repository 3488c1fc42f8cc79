/* Plain device calls, as a program without tdict makes them: asynchronous copies between addresses, and kernels, on
 * streams. Nothing tracks the use of memory. examples/safety.c corrupts batches with them.
 *
 * On cuda these are calls of the driver, loaded from libcuda.so.1 at run time. On the simulated device a copy uses
 * tensors made from addresses, so that the library does not know other users of the memory. A kernel is a function that
 * tdict_sim_launch() runs.
 * All bytes and streams are the program's; streams are those of tdict_stream_create(). Thread rule: one thread. */
#ifndef EXAMPLES_RAW_DEVICE_H
#define EXAMPLES_RAW_DEVICE_H

#include <tdict/tdict.h>

typedef struct raw_device raw_device;

tdict_status raw_open(tdict_context *c, tdict_device device, raw_device **out, tdict_error *err);
void raw_close(raw_device *r); /* NULL is allowed */

/* A kernel that takes long: what is queued behind it on the stream begins when raw_go() is called; on cuda 200 ms
 * later. */
tdict_status raw_slow_kernel(raw_device *r, tdict_stream s, tdict_error *err);
void raw_go(raw_device *r);
/* raw_go() by another thread, a moment later: for calls that wait for the device. */
tdict_status raw_go_soon(raw_device *r, tdict_error *err);

/* Asynchronous copies from page-locked host memory to the device, and back. */
tdict_status raw_copy_in(raw_device *r, tdict_stream s, void *device, const void *host, size_t bytes, tdict_error *err);
tdict_status raw_copy_out(raw_device *r, tdict_stream s, void *host, const void *device, size_t bytes,
                          tdict_error *err);
/* A kernel: *sum = the sum of `count` floats; both addresses are the device's. */
tdict_status raw_sum(raw_device *r, tdict_stream s, const float *data, size_t count, float *sum, tdict_error *err);
/* Waits for what is queued on the stream. */
tdict_status raw_wait(raw_device *r, tdict_stream s, tdict_error *err);

#endif
