/* Writes archives `.tdz` of TensorDict. Owns nothing. Thread-safe. */
#include <string.h>

#include "core/base/error.h"
#include "services/io/tensordict/archive.h"
#include "services/io/tensordict/memmap.h"
#include "tdict/view.h"

enum { ALIGNMENT = 64 };

/* Writes the file of a tensor. The checksum comes before the bytes, so a strided tensor is copied first. */
static tdict_status write_tensor(const tdict_td_new_file *file, tdict_zip_writer *zip, const tdict_crc_tables *tables,
                                 tdict_error *err) {
  tdict_tensor *tensor = NULL;
  tdict_status status = tdict_tensor_contiguous(file->tensor, &tensor, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, file->name);
  const void *data = tdict_tensor_const_data(tensor);
  const tdict_zip_new entry = {file->path, tdict_tensor_bytes(tensor),
                               data ? tdict_crc_add(tables, 0, data, tdict_tensor_bytes(tensor)) : 0, ALIGNMENT};
  status = tdict_zip_begin(zip, &entry, err);
  if (status == TDICT_OK) status = tdict_output_write_tensor(zip->to, tensor, file->name, err);
  tdict_tensor_release(tensor);
  return status;
}

static tdict_status write_text(const tdict_td_new_file *file, tdict_zip_writer *zip, const tdict_crc_tables *tables,
                               tdict_error *err) {
  const tdict_zip_new entry = {file->path, file->length, tdict_crc_add(tables, 0, file->text, file->length), 0};
  tdict_status status = tdict_zip_begin(zip, &entry, err);
  return status == TDICT_OK ? tdict_output_write(zip->to, file->text, file->length, err) : status;
}

static tdict_status write_files(void *user, tdict_output *to, tdict_error *err) {
  const tdict_td_new_files *files = user;
  tdict_zip_writer zip = {.to = to};
  tdict_crc_tables tables;
  tdict_status status = TDICT_OK;
  tdict_crc_init(&tables);
  for (size_t i = 0; i < files->count && status == TDICT_OK; i++) {
    const tdict_td_new_file *file = &files->files[i];
    status = file->tensor ? write_tensor(file, &zip, &tables, err) : write_text(file, &zip, &tables, err);
  }
  if (status == TDICT_OK) status = tdict_zip_finish(&zip, err);
  tdict_zip_writer_reset(&zip);
  return status;
}

tdict_status tdict_archive_save(const tdict_save_request *request, tdict_error *err) {
  tdict_td_new_files files = {0};
  tdict_contents_init(&files.contents, request->what, request->path);
  tdict_status status = tdict_td_collect(&files, request->tree, err);
  if (status == TDICT_OK) status = tdict_output_file(request, write_files, &files, err);
  tdict_td_new_files_reset(&files);
  return status;
}
