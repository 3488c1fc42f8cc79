/* Writes the elements of tensors to new files. See output.h for ownership and threads. */
#include <stdlib.h>

#include "base/error.h"
#include "io/contents.h"
#include "io/output.h"
#include "tensor/layout.h"
#include "tensor/tensor.h"

enum { BUFFER_BYTES = 1 << 20 };

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

tdict_status tdict_output_write_tensor(tdict_output *to, const tdict_tensor *tensor, const char *name,
                                       tdict_error *err) {
  const size_t bytes = tdict_tensor_bytes(tensor);
  if (bytes == 0) return TDICT_OK;
  const void *data = tdict_tensor_const_data(tensor);
  if (!data)
    return tdict_fail_file(err, TDICT_EINVAL, name, "%s: a transfer into tensor '%.100s' failed", to->folder->what,
                           name);
  if (tdict_tensor_is_contiguous(tensor)) return tdict_output_write(to, data, bytes, err);
  char *buffer = malloc(BUFFER_BYTES);
  if (!buffer)
    return tdict_fail_file(err, TDICT_ENOMEM, to->folder->path, "%s: no host memory for a buffer of %d bytes",
                           to->folder->what, BUFFER_BYTES);
  tdict_status status = write_strided(tensor, data, to, buffer, err);
  free(buffer);
  return status;
}
