/* Calls the CUDA driver directly. Verification and reference measurements must not use the library under test. The
 * declarations follow NVIDIA's "CUDA Driver API" manual. libcuda.so.1 is opened at run time.
 * Thread rule: one thread. raw_open() makes the primary context current on its thread until raw_close(). The library
 * uses the same context. A function that returns false sets the message of raw_why(). */
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
int raw_driver_version(const raw_driver *r); /* API version: 13000 is 13.0 */

bool raw_alloc(raw_driver *r, size_t bytes, raw_address *out);
bool raw_free(raw_driver *r, raw_address device);
bool raw_host_alloc(raw_driver *r, size_t bytes, void **out); /* page-locked */
bool raw_host_free(raw_driver *r, void *host);

bool raw_copy_in(raw_driver *r, raw_address device, const void *host, size_t bytes);
bool raw_copy_out(raw_driver *r, void *host, raw_address device, size_t bytes);
/* Queue a copy on the own stream of `r`. raw_finish() waits for that stream and for the legacy stream. */
bool raw_copy_in_async(raw_driver *r, raw_address device, const void *host, size_t bytes);
bool raw_copy_out_async(raw_driver *r, void *host, raw_address device, size_t bytes);
bool raw_finish(raw_driver *r);
bool raw_finish_own(raw_driver *r);    /* waits for the own stream of `r` only */
bool raw_own_is_idle(raw_driver *r);   /* polls that stream; also true if the driver cannot tell */
void *raw_stream(const raw_driver *r); /* the own stream of `r`, a CUstream */
bool raw_fill(raw_driver *r, raw_address device, unsigned char byte, size_t bytes); /* fills device memory and waits */

/* Launches a kernel of one thread that spins for a time, on the own stream of `r`. The first launch compiles the
 * kernel. */
bool raw_spin(raw_driver *r, uint64_t nanoseconds);

/* Properties of a device. Reading them needs no context. */
typedef struct raw_device_info {
  char name[128], bus[32]; /* bus: "0000:1b:00.0" */
  size_t memory_bytes;
  int compute_major, compute_minor, copy_engines;
} raw_device_info;
int raw_device_count(raw_driver *r); /* -1: unavailable */
bool raw_device_describe(raw_driver *r, int ordinal, raw_device_info *out);

#endif
