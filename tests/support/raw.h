/* Reads and writes device memory without the library, so that a test can check what the library did.
 *
 * cpu: memcpy. cuda: libcuda's own plain copies, declared and opened here. sim: the bytes behind the device address,
 * found with tdict_sim_host_pointer(). Nothing here waits for the library's work: the caller does so first. A write or
 * fill is finished when the call returns. Failures end the case, so all calls are made on the main thread. */
#ifndef TDICT_TESTS_SUPPORT_RAW_H
#define TDICT_TESTS_SUPPORT_RAW_H

#include "support/scoped.h"

typedef struct raw_memory raw_memory;

/* `context` must outlive the handle; for sim it lends a stream. */
raw_memory *raw_open(tdict_context *context, tdict_device device);
void raw_close(raw_memory *raw);
TD_DECLARE_SCOPED(raw, raw_memory, raw_close)
#define scoped_raw TD_SCOPED_NAMED(raw)

void raw_read(raw_memory *raw, void *host, const void *device_address, size_t bytes);
void raw_write(raw_memory *raw, void *device_address, const void *host, size_t bytes);
void raw_fill(raw_memory *raw, void *device_address, unsigned char byte, size_t bytes);

/* One copy as a program makes it by itself, cut nowhere, and the wait for it: cuMemcpyHtoDAsync and cuMemcpyDtoHAsync
 * on a stream of the driver's, or the simulated driver's entries of these names. Returns the driver's code, 0 for done,
 * so that a test can ask for a refusal. */
int raw_copy_in(raw_memory *raw, void *device_address, const void *host, size_t bytes);
int raw_copy_out(raw_memory *raw, void *host, const void *device_address, size_t bytes);

#endif
