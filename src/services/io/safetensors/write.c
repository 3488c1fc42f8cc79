/* Writes safetensors files. See safetensors.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "services/io/safetensors/safetensors.h"

enum { ALIGNMENT = 8 };

void tdict_safetensors_write_metadata(const tdict_io_text *metadata, const tdict_io_text *structure,
                                      tdict_io_text *text) {
  if (metadata->length) tdict_io_text_add(text, metadata->bytes, metadata->length);
  if (!structure) return;
  tdict_io_text_add_string(text, metadata->length ? ",\"tensordict\":" : "\"tensordict\":");
  tdict_io_text_add_json(text, structure->bytes, structure->length);
}

/* Writes the header with the bytes that the package safetensors writes. The JSON text has no spaces between its tokens.
 * Spaces at the end pad the text to a multiple of 8 bytes. */
static void write_header(const tdict_out_file *file, tdict_io_text *text) {
  size_t offset = 0;
  tdict_io_text_add_string(text, "{");
  const bool has_structure = file->structure && file->structure->length;
  if (has_structure || file->metadata->length) {
    tdict_io_text_add_string(text, "\"__metadata__\":{");
    tdict_safetensors_write_metadata(file->metadata, has_structure ? file->structure : NULL, text);
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

/* Writes the elements, which follow the header. */
static tdict_status write_elements(const tdict_out_file *file, const tdict_save_request *request, tdict_output *to,
                                   tdict_error *err) {
  tdict_output_part *parts = malloc((file->num_tensors + 1) * sizeof *parts);
  uint64_t offset = to->offset;
  if (!parts)
    return tdict_fail_file(err, TDICT_ENOMEM, to->folder->path, "%s: no host memory for %zu tensors", to->folder->what,
                           file->num_tensors);
  for (size_t i = 0; i < file->num_tensors; i++) {
    parts[i] = (tdict_output_part){file->tensors[i].tensor, file->tensors[i].name, offset};
    offset += tdict_tensor_bytes(file->tensors[i].tensor);
  }
  tdict_status status = tdict_output_write_parts(to, request, parts, file->num_tensors, err);
  free(parts);
  return status;
}

tdict_status tdict_safetensors_write(const tdict_out_file *file, const tdict_save_request *request, tdict_output *to,
                                     tdict_error *err) {
  const char *what = to->folder->what, *path = to->folder->path;
  tdict_io_text header = {0};
  char length[TDICT_SAFETENSORS_PREFIX];
  tdict_status status = TDICT_OK;
  write_header(file, &header);
  if (header.has_failed)
    status = tdict_fail_file(err, TDICT_ENOMEM, path, "%s: no host memory for the header", what);
  else if (header.length > TDICT_SAFETENSORS_MAX_HEADER)
    status = tdict_fail_file(err, TDICT_ENOTSUP, path, "%s: the header has %zu bytes, wanted at most %d", what,
                             header.length, TDICT_SAFETENSORS_MAX_HEADER);
  for (int i = 0; i < TDICT_SAFETENSORS_PREFIX; i++) length[i] = (char)(header.length >> 8 * i & 0xff);
  if (status == TDICT_OK) status = tdict_output_write(to, length, sizeof length, err);
  if (status == TDICT_OK) status = tdict_output_write(to, header.bytes, header.length, err);
  if (status == TDICT_OK) status = write_elements(file, request, to, err);
  tdict_io_text_reset(&header);
  return status;
}
