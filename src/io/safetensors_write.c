/* Writes safetensors files. See safetensors.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "io/safetensors.h"
#include "tensor/layout.h"
#include "tensor/tensor.h"

enum { BUFFER_BYTES = 1 << 20, ALIGNMENT = 8 };

/* Writes the header as the package safetensors does: no spaces, and spaces at the end up to a multiple of 8. */
static void write_header(const tdict_out_file *file, tdict_io_text *text) {
  size_t offset = 0;
  tdict_io_text_add_string(text, "{");
  if (file->structure && file->structure->length) {
    tdict_io_text_add_string(text, "\"__metadata__\":{\"tensordict\":");
    tdict_io_text_add_json(text, file->structure->bytes, file->structure->length);
    tdict_io_text_add_string(text, file->num_tensors ? "}," : "}");
  }
  for (size_t i = 0; i < file->num_tensors; i++) {
    const tdict_out_tensor *t = &file->tensors[i];
    const size_t end = offset + tdict_tensor_bytes(t->tensor);
    if (i) tdict_io_text_add(text, ",", 1);
    tdict_io_text_add_json(text, t->name, strlen(t->name));
    tdict_io_text_format(text, ":{\"dtype\":\"%s\",\"shape\":", t->dtype->name);
    tdict_io_text_add_sizes(text, tdict_tensor_ndim(t->tensor), tdict_tensor_shape(t->tensor));
    tdict_io_text_format(text, ",\"data_offsets\":[%zu,%zu]}", offset, end);
    offset = end;
  }
  tdict_io_text_add_string(text, "}");
  while (text->length % ALIGNMENT && !text->has_failed) tdict_io_text_add(text, " ", 1);
}

static tdict_status copy_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  (void)user, (void)err;
  tdict_rect_copy(rect);
  return TDICT_OK;
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
    const tdict_pair_part part = {(void *)((uintptr_t)buffer - begin), data, begin, end};
    tdict_pair_walk(&pair, &part, copy_rect, NULL, NULL);
    status = tdict_output_write(to, buffer, end - begin, err);
  }
  return status;
}

static tdict_status write_tensor(const tdict_out_tensor *t, tdict_output *to, char **buffer, tdict_error *err) {
  const size_t bytes = tdict_tensor_bytes(t->tensor);
  if (bytes == 0) return TDICT_OK;
  const void *data = tdict_tensor_const_data(t->tensor);
  if (!data)
    return tdict_fail_file(err, TDICT_EINVAL, t->name, "%s: a transfer into tensor '%.100s' failed", to->folder->what,
                           t->name);
  if (tdict_tensor_is_contiguous(t->tensor)) return tdict_output_write(to, data, bytes, err);
  if (!*buffer) *buffer = malloc(BUFFER_BYTES);
  if (!*buffer)
    return tdict_fail_file(err, TDICT_ENOMEM, to->folder->path, "%s: no host memory for a buffer of %d bytes",
                           to->folder->what, BUFFER_BYTES);
  return write_strided(t->tensor, data, to, *buffer, err);
}

tdict_status tdict_safetensors_write(const tdict_out_file *file, tdict_output *to, tdict_error *err) {
  const char *what = to->folder->what, *path = to->folder->path;
  tdict_io_text header = {0};
  char length[TDICT_SAFETENSORS_PREFIX];
  char *buffer = NULL;
  tdict_status status = TDICT_OK;
  write_header(file, &header);
  if (header.has_failed)
    status = tdict_fail_file(err, TDICT_ENOMEM, path, "%s: no host memory for the header", what);
  else if (header.length > TDICT_SAFETENSORS_MAX_HEADER)
    status = tdict_fail_file(err, TDICT_ENOTSUP, path, "%s: the header has %zu bytes, wanted at most %d; write shards",
                             what, header.length, TDICT_SAFETENSORS_MAX_HEADER);
  for (int i = 0; i < TDICT_SAFETENSORS_PREFIX; i++) length[i] = (char)(header.length >> 8 * i & 0xff);
  if (status == TDICT_OK) status = tdict_output_write(to, length, sizeof length, err);
  if (status == TDICT_OK) status = tdict_output_write(to, header.bytes, header.length, err);
  for (size_t i = 0; i < file->num_tensors && status == TDICT_OK; i++)
    status = write_tensor(&file->tensors[i], to, &buffer, err);
  tdict_io_text_reset(&header);
  free(buffer);
  return status;
}
