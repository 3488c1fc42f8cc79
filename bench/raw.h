/* The CUDA driver, taken by the benchmark's own hands: what is measured against, and what reads results back, must not
 * come from the library under test. Declared in our own words after NVIDIA's "CUDA Driver API" manual; libcuda.so.1 is
 * opened at run time.
 *
 * One thread at a time: the device's primary context, which the library uses too, is current on the thread that opened
 * it until raw_close(). Every call that answers bool leaves a sentence in raw_why() when it answers false. */
#ifndef TDICT_BENCH_RAW_H
#define TDICT_BENCH_RAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct raw_driver raw_driver;
typedef uint64_t raw_address; /* CUdeviceptr */

/* NULL and a sentence in `why` when there is no driver or device. */
raw_driver *raw_open(int ordinal, char *why, size_t why_bytes);
void raw_close(raw_driver *r); /* NULL is allowed */
const char *raw_why(const raw_driver *r);

const char *raw_device_name(const raw_driver *r);
int raw_driver_version(const raw_driver *r); /* of the API: 13000 is 13.0 */

bool raw_alloc(raw_driver *r, size_t bytes, raw_address *out);
bool raw_free(raw_driver *r, raw_address device);
bool raw_host_alloc(raw_driver *r, size_t bytes, void **out); /* page-locked */
bool raw_host_free(raw_driver *r, void *host);

bool raw_copy_in(raw_driver *r, raw_address device, const void *host, size_t bytes);
bool raw_copy_out(raw_driver *r, void *host, raw_address device, size_t bytes);
/* Queued on a stream of r's own; raw_finish() waits for that stream and for the legacy one. */
bool raw_copy_in_async(raw_driver *r, raw_address device, const void *host, size_t bytes);
bool raw_copy_out_async(raw_driver *r, void *host, raw_address device, size_t bytes);
bool raw_finish(raw_driver *r);
bool raw_finish_own(raw_driver *r);    /* waits for the stream of r's own alone */
bool raw_own_is_idle(raw_driver *r);   /* asks that stream, never waits; true also when the driver cannot say */
void *raw_stream(const raw_driver *r); /* that stream, a CUstream */
bool raw_fill(raw_driver *r, raw_address device, unsigned char byte, size_t bytes); /* and waits */

/* A kernel of one thread that does nothing for so long, on the stream of r's own. The first launch builds it. */
bool raw_spin(raw_driver *r, uint64_t nanoseconds);

/* What a device is. Asks the driver only; needs no context. */
typedef struct raw_device_info {
  char name[128], bus[32]; /* bus: "0000:1b:00.0" */
  size_t memory_bytes;
  int compute_major, compute_minor, copy_engines;
} raw_device_info;
int raw_device_count(raw_driver *r); /* -1: not to be had */
bool raw_device_describe(raw_driver *r, int ordinal, raw_device_info *out);

#endif
