/* Reads and writes device memory without the library, so that a test can check what the library did.
 *
 * Uses memcpy() on the CPU, libcuda's copies on CUDA, and tdict_sim_host_pointer() on the simulated device. The
 * functions do not wait for the library's work, so the caller must wait first. A write or fill is complete when the
 * call returns. Call from the main thread, because failures end the case. */
#ifndef TDICT_TESTS_SUPPORT_RAW_H
#define TDICT_TESTS_SUPPORT_RAW_H

#include "support/scoped.h"

typedef struct raw_memory raw_memory;

/* `context` must outlive the handle. */
raw_memory *raw_open(tdict_context *context, tdict_device device);
void raw_close(raw_memory *raw);
TD_DECLARE_SCOPED(raw, raw_memory, raw_close)
#define scoped_raw TD_SCOPED_NAMED(raw)

void raw_read(raw_memory *raw, void *host, const void *device_address, size_t bytes);
void raw_write(raw_memory *raw, void *device_address, const void *host, size_t bytes);
void raw_fill(raw_memory *raw, void *device_address, unsigned char byte, size_t bytes);

/* Make one copy, without splitting it, and wait for it. Use cuMemcpyHtoDAsync or cuMemcpyDtoHAsync, or the simulated
 * driver's entries for them. Return the driver's code, so that a test can expect an error. */
int raw_copy_in(raw_memory *raw, void *device_address, const void *host, size_t bytes);
int raw_copy_out(raw_memory *raw, void *host, const void *device_address, size_t bytes);

#endif
