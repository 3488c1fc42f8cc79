/* Calls the CUDA driver directly, for verification and reference measurements, which must not use the library under
 * test. The declarations follow NVIDIA's "CUDA Driver API" manual. libcuda.so.1 is opened at run time.
 * Thread rule: one thread. From raw_open() to raw_close(), the device's primary context, which the library also uses,
 * is current on the thread. A function that returns false sets the message of raw_why(). */
#ifndef TDICT_BENCH_RAW_H
#define TDICT_BENCH_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct raw_driver raw_driver;
typedef uint64_t raw_address; /* CUdeviceptr */

/* Opens the driver. Returns NULL and writes a message to `why` if there is no driver or device. */
raw_driver *raw_open(int ordinal, char *why, size_t why_bytes);
void raw_close(raw_driver *r); /* NULL is allowed */
const char *raw_why(const raw_driver *r);

const char *raw_device_name(const raw_driver *r);
int raw_driver_version(const raw_driver *r); /* for example 13000 for CUDA 13.0 */

bool raw_alloc(raw_driver *r, size_t bytes, raw_address *out);
bool raw_free(raw_driver *r, raw_address device);
bool raw_host_alloc(raw_driver *r, size_t bytes, void **out); /* page-locked */
bool raw_host_free(raw_driver *r, void *host);

bool raw_copy_in(raw_driver *r, raw_address device, const void *host, size_t bytes);
bool raw_copy_out(raw_driver *r, void *host, raw_address device, size_t bytes);
/* Copies like raw_copy_out(), even if the thread has opened another device since. That device's context cannot access
 * the memory pools of this device. */
bool raw_read_back(raw_driver *r, void *host, raw_address device, size_t bytes);
/* Queue a copy on the stream of `r`. raw_finish() waits for this stream and for the legacy stream. */
bool raw_copy_in_async(raw_driver *r, raw_address device, const void *host, size_t bytes);
bool raw_copy_out_async(raw_driver *r, void *host, raw_address device, size_t bytes);
bool raw_finish(raw_driver *r);
bool raw_finish_own(raw_driver *r);    /* waits only for the stream of `r` */
bool raw_own_is_idle(raw_driver *r);   /* returns whether the stream of `r` is idle, or has failed */
void *raw_stream(const raw_driver *r); /* returns the stream of `r`, a CUstream */
bool raw_fill(raw_driver *r, raw_address device, unsigned char byte, size_t bytes); /* fills device memory and waits */

/* Launches a kernel on the stream of `r`: one thread spins for `nanoseconds`. The first call also compiles the
 * kernel. */
bool raw_spin(raw_driver *r, uint64_t nanoseconds);

/* Properties of a device. raw_device_describe() needs no context on that device. */
typedef struct raw_device_info {
  char name[128], bus[32]; /* bus: "0000:1b:00.0" */
  size_t memory_bytes;
  int compute_major, compute_minor, copy_engines;
} raw_device_info;
int raw_device_count(raw_driver *r); /* -1: unavailable */
bool raw_device_describe(raw_driver *r, int ordinal, raw_device_info *out);

#endif
