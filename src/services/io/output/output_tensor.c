/* Writes tensors to new files: on the calling thread, or as a transfer into a storage over the file. See output.h. */
#include <stdio.h>
#include <stdlib.h>

#include "core/base/error.h"
#include "core/tensor/layout.h"
#include "core/tensor/tensor.h"
#include "services/io/contents/contents.h"
#include "services/io/output/output.h"
#include "services/io/request.h"
#include "tdict/transfer.h"

/* PIECE_BYTES: after each piece, the progress is reported */
enum { BUFFER_BYTES = 1 << 20, PIECE_BYTES = 16 << 20 };

/* Writes elements at the pace of the save, and reports the progress. */
static tdict_status write_elements(tdict_output *to, const char *data, size_t bytes, tdict_error *err) {
  const tdict_save_watch *watch = &to->folder->watch;
  const size_t most = watch->pace ? tdict_pace_max_bytes(watch->pace) : PIECE_BYTES;
  tdict_status status = TDICT_OK;
  while (bytes && status == TDICT_OK) {
    const size_t piece = bytes < most ? bytes : most;
    if (watch->pace && !tdict_pace_wait(watch->pace, piece, watch->is_cancelled))
      return tdict_folder_check_cancelled(to->folder, err);
    status = tdict_output_write(to, data, piece, err);
    if (status == TDICT_OK && tdict_io_progress_add(watch->progress, piece, NULL) != TDICT_OK)
      status = tdict_folder_check_cancelled(to->folder, err);
    data += piece;
    bytes -= piece;
  }
  return status;
}

/* Writes the elements of a tensor that is not in C order. Each piece is copied to the buffer first. */
static tdict_status write_strided(const tdict_tensor *tensor, const void *data, tdict_output *to, char *buffer,
                                  tdict_error *err) {
  const size_t bytes = tdict_tensor_bytes(tensor);
  tdict_pair pair;
  tdict_pair_init(&pair, tdict_tensor_ndim(tensor), tdict_tensor_shape(tensor), NULL, tdict_tensor_strides(tensor),
                  tdict_dtype_bytes(tdict_tensor_dtype(tensor)));
  tdict_status status = TDICT_OK;
  for (size_t begin = 0; begin < bytes && status == TDICT_OK; begin += BUFFER_BYTES) {
    const size_t end = bytes - begin < BUFFER_BYTES ? bytes : begin + BUFFER_BYTES;
    /* The walk adds the offset of a byte in the tensor to `dst`, so subtract the offset of the piece. */
    const tdict_pair_span part = {(void *)((uintptr_t)buffer - begin), data, begin, end};
    tdict_pair_copy(&pair, &part);
    status = write_elements(to, buffer, end - begin, err);
  }
  return status;
}

tdict_status tdict_output_write_tensor(tdict_output *to, const tdict_tensor *tensor, const char *name,
                                       tdict_error *err) {
  const size_t bytes = tdict_tensor_bytes(tensor);
  if (bytes == 0) return TDICT_OK;
  const void *data = tdict_tensor_const_data(tensor);
  if (!data)
    return tdict_fail_at(err, TDICT_EINVAL, name, "%s: a transfer into tensor '%.100s' failed", to->folder->what, name);
  if (tdict_tensor_is_contiguous(tensor)) return write_elements(to, data, bytes, err);
  char *buffer = malloc(BUFFER_BYTES);
  if (!buffer) return tdict_fail_memory(err, to->folder->what, to->folder->path, "a buffer of %d bytes", BUFFER_BYTES);
  tdict_status status = write_strided(tensor, data, to, buffer, err);
  free(buffer);
  return status;
}

typedef struct file_sink {
  const tdict_output *to;
  _Atomic(bool) has_failed; /* relaxed: the end of the transfer makes the store visible */
} file_sink;

static tdict_status write_bytes(void *user, size_t offset, const void *src, size_t bytes, tdict_error *err) {
  file_sink *sink = user;
  tdict_status status = tdict_output_write_at(sink->to, offset, src, bytes, err);
  if (status == TDICT_OK && tdict_io_progress_add(sink->to->folder->watch.progress, bytes, NULL) != TDICT_OK)
    status = tdict_folder_check_cancelled(sink->to->folder, err);
  if (status != TDICT_OK) atomic_store_explicit(&sink->has_failed, true, memory_order_relaxed);
  return status;
}

/* Adds a tensor to the source, and a tensor over the file to the destination. The key of both tensors is `number`. */
static tdict_status add_pair(const tdict_output_part *part, size_t number, tdict_storage *file, tdict_tree *src,
                             tdict_tree *dst, tdict_error *err) {
  const tdict_tensor *t = part->tensor;
  const tdict_tensor_desc layout = {.dtype = t->dtype, .ndim = t->ndim, .shape = t->dims};
  tdict_tensor *place = NULL;
  char key[24];
  snprintf(key, sizeof key, "%zu", number);
  tdict_status status = tdict_tensor_unloaded(file, &layout, (size_t)part->offset, &place, err);
  if (status == TDICT_OK) status = tdict_set(dst, key, place, err);
  if (status == TDICT_OK) status = tdict_set(src, key, (tdict_tensor *)(uintptr_t)t, err);
  tdict_tensor_release(place);
  return status;
}

static tdict_status transfer_parts(tdict_storage *file, const tdict_save_request *request,
                                   const tdict_output_part *parts, size_t count, tdict_error *err) {
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_tree *src = NULL, *dst = NULL;
  tdict_status status = tdict_create(0, NULL, &src, err);
  if (status == TDICT_OK) status = tdict_create(0, NULL, &dst, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++)
    if (parts[i].tensor->numel) status = add_pair(&parts[i], i, file, src, dst, err);
  o.num_threads = request->num_threads;
  o.after = request->options->after;
  o.max_bytes_per_second = request->options->max_bytes_per_second;
  if (status == TDICT_OK) status = tdict_transfer_into(request->context, dst, src, &o, err);
  tdict_release(src);
  tdict_release(dst);
  return status;
}

/* Sets the path of an error: the file if a write failed, else the name of the tensor whose key the transfer named. */
static tdict_status explain(const tdict_output *to, const file_sink *sink, const tdict_output_part *parts, size_t count,
                            const tdict_error *why, tdict_error *err) {
  const size_t number = strtoul(why->path, NULL, 10);
  if (err) *err = *why;
  if (atomic_load_explicit(&sink->has_failed, memory_order_relaxed))
    tdict_error_at(err, TDICT_OK, to->folder->path);
  else if (why->path[0] && number < count)
    tdict_error_at(err, TDICT_OK, parts[number].name);
  return (tdict_status)why->status;
}

tdict_status tdict_output_write_parts(tdict_output *out, const tdict_save_request *request,
                                      const tdict_output_part *parts, size_t count, tdict_error *err) {
  file_sink sink = {.to = out};
  tdict_storage *file = NULL;
  tdict_error why = {0};
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK && !request->context; i++) {
    out->offset = parts[i].offset;
    status = tdict_output_write_tensor(out, parts[i].tensor, parts[i].name, err);
  }
  if (!count || !request->context) return status;
  out->offset = parts[count - 1].offset + tdict_tensor_nbytes(parts[count - 1].tensor);
  status =
      tdict_storage_create_sink(&(tdict_storage_writer){write_bytes, NULL, &sink}, (size_t)out->offset, &file, &why);
  if (status == TDICT_OK) status = transfer_parts(file, request, parts, count, &why);
  tdict_storage_release(file);
  return status == TDICT_OK ? status : explain(out, &sink, parts, count, &why, err);
}
