/* Orders streams of other libraries with the work of this library. On export, the consumer's stream waits for the work
 * that uses the bytes. The bytes are not freed before the consumer's work is done. On import, work of this library
 * waits for the producer's stream. Thread rule: safe from any thread. */
#ifndef TDICT_SERVICES_INTEROP_DLPACK_STREAM_H
#define TDICT_SERVICES_INTEROP_DLPACK_STREAM_H

#include "core/tensor/tensor.h"
#include "device/stream.h"

/* A stream of the other library. */
typedef struct tdict_dlpack_stream {
  tdict_device device;
  tdict_devices *devices; /* borrowed; the devices of the context */
  tdict_gpu *gpu;         /* borrowed; NULL: no stream */
  tdict_cu_stream handle;
  bool is_unordered; /* true: the program orders device work itself */
} tdict_dlpack_stream;

/* Opens the stream that a program passes, which may be none. Returns TDICT_EINVAL if there is a stream but `context` is
 * NULL, or if the stream has no device. Also returns the errors of tdict_stream_open(). */
tdict_status tdict_dlpack_stream_open(tdict_context *context, tdict_stream stream, tdict_dlpack_stream *out,
                                      tdict_error *err);
/* Returns TDICT_EWRONGDEVICE if the stream is not of the storage's device, or if the storage is on a simulated device
 * of another context. Accepts host memory with any stream. */
tdict_status tdict_dlpack_check_device(const tdict_dlpack_stream *stream, const tdict_storage *storage,
                                       tdict_error *err);

/* Orders the consumer after transfers and fillers (see tdict_use_kind) that write the bytes of `count` storages. With
 * `to_write`, also after reads and recorded uses, but not of read-only storages. The stream waits for work on device
 * memory, unless `is_unordered`. The host waits for work on host memory, and without a stream for all work. Returns
 * TDICT_ENOMEM or an error of the driver. */
tdict_status tdict_dlpack_order_consumer(const tdict_dlpack_stream *consumer, tdict_storage *const *storages,
                                         size_t count, bool to_write, tdict_error *err);
/* Records the work that is now queued on the consumer's stream as a use of the storages. Storages on the GPU and pinned
 * storages are neither freed nor written before this work is done. If the work cannot be recorded, waits for the
 * stream, unless the stream is lost, is being captured, or belongs to the parent process. */
void tdict_dlpack_record_consumer(tdict_gpu *gpu, tdict_cu_stream handle, tdict_storage *const *storages, size_t count);
/* Creates a fence for what is queued on the producer's stream now, or NULL without a stream. See tdict_use_create(). */
tdict_status tdict_dlpack_note_producer(const tdict_dlpack_stream *producer, tdict_fence **out, tdict_error *err);

#endif
