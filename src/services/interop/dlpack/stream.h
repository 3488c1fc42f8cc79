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
/* Returns TDICT_EWRONGDEVICE if the stream does not belong to the device of the storage. Also returns
 * TDICT_EWRONGDEVICE if the storage is on a simulated device of another context. Accepts host memory with any
 * stream. */
tdict_status tdict_dlpack_check_device(const tdict_dlpack_stream *stream, const tdict_storage *storage,
                                       tdict_error *err);

/* Orders the consumer after the transfers that write the bytes of `count` storages, and after the fillers of the
 * storages, see tdict_use_kind. If `to_write` is true, also orders the consumer after transfers that read
 * the bytes and after recorded uses, except for read-only storages. The stream waits for work on device memory. The
 * host waits for work on host memory, and for all work if there is no stream. If `is_unordered` is true, neither waits
 * for work on device memory. Returns TDICT_ENOMEM or an error of the driver. */
tdict_status tdict_dlpack_order_consumer(const tdict_dlpack_stream *consumer, tdict_storage *const *storages,
                                         size_t count, bool to_write, tdict_error *err);
/* Records the work that is now queued on the consumer's stream as a use of the storages. Storages on the GPU and pinned
 * storages are neither freed nor written before this work is done. If the work cannot be recorded, waits for the
 * stream, unless the stream is lost, is being captured, or belongs to the parent process. */
void tdict_dlpack_record_consumer(tdict_gpu *gpu, tdict_cu_stream handle, tdict_storage *const *storages, size_t count);
/* Creates a fence for the work that is queued on the producer's stream now. If there is no stream, *out is NULL.
 * Returns the errors of tdict_use_create(). */
tdict_status tdict_dlpack_note_producer(const tdict_dlpack_stream *producer, tdict_fence **out, tdict_error *err);

#endif
