/* Orders streams of other libraries with the work of this library. Export: the consumer's stream waits for the work
 * that uses the bytes, and the bytes are not freed before the consumer's work is done. Import: work of this library
 * waits for the producer's stream. Thread rule: safe from any thread. */
#ifndef TDICT_INTEROP_DLPACK_STREAM_H
#define TDICT_INTEROP_DLPACK_STREAM_H

#include "device/stream.h"
#include "tensor/tensor.h"

/* A stream of the other library. */
typedef struct tdict_dlpack_stream {
  tdict_device device;
  tdict_devices *devices; /* borrowed; the devices of the context */
  tdict_gpu *gpu;         /* borrowed; NULL: no stream */
  tdict_cu_stream handle;
  bool is_unordered; /* true: the program orders device work itself */
} tdict_dlpack_stream;

/* Checks the stream that a program passes; NULL: no stream. Returns TDICT_EINVAL if there is a stream and no context,
 * and the errors of tdict_stream_open(). */
tdict_status tdict_dlpack_stream_open(tdict_context *context, const tdict_stream *stream, tdict_dlpack_stream *out,
                                      tdict_error *err);
/* Returns TDICT_EWRONGDEVICE if the stream does not belong to the device of the storage. Host memory passes. */
tdict_status tdict_dlpack_check_device(const tdict_dlpack_stream *stream, const tdict_storage *storage,
                                       tdict_error *err);

/* Orders the consumer after the transfers that write the bytes of `count` storages, and after fillers. If `to_write` is
 * true, also after the transfers that read the bytes and after recorded uses, except for read-only storages. The stream
 * waits for device memory. The host waits for host memory, or if there is no stream. Returns TDICT_ENOMEM or an error
 * of the driver. */
tdict_status tdict_dlpack_order_consumer(const tdict_dlpack_stream *consumer, tdict_storage *const *storages,
                                         size_t count, bool to_write, tdict_error *err);
/* Records the work that is queued on the consumer's stream now: storages of the gpu and pinned storages are not freed
 * or written before this work is done. If the work cannot be recorded, waits for the stream. Cannot fail. */
void tdict_dlpack_record_consumer(tdict_gpu *gpu, tdict_cu_stream handle, tdict_storage *const *storages, size_t count);
/* Creates a fence for the work that is queued on the producer's stream now. If there is no stream, *out is NULL.
 * Returns the errors of tdict_use_create(). */
tdict_status tdict_dlpack_note_producer(const tdict_dlpack_stream *producer, tdict_fence **out, tdict_error *err);

#endif
