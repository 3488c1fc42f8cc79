/* Reads and writes archives `.tdz`, zip files of a memory-mapped directory. See memmap.h for ownership and threads. */
#include "services/io/tensordict/memmap.h"

static tdict_status find_entry(tdict_contents *contents, const void *archive, const char *path, tdict_span *span,
                               bool *exists, tdict_error *err) {
  const tdict_zip_entry *found = tdict_zip_find(archive, path);
  *exists = found != NULL;
  if (!found) return TDICT_OK;
  *span = found->span;
  return tdict_zip_check_stored(contents, found, err);
}

bool tdict_archive_is(const tdict_zip *zip) { return tdict_zip_find(zip, "meta.json") != NULL; }

tdict_status tdict_archive_read(tdict_contents *contents, const tdict_zip *zip, const tdict_open_options *options,
                                tdict_error *err) {
  return tdict_td_read_files(contents, find_entry, zip, options, err);
}

static tdict_status write_files(void *user, tdict_output *to, tdict_error *err) {
  const tdict_td_new_files *files = user;
  return tdict_zip_write(to, files->files, files->count, err);
}

tdict_status tdict_archive_save(const tdict_save_request *request, tdict_error *err) {
  tdict_td_new_files files;
  tdict_status status = tdict_td_collect(&files, request, err);
  if (status == TDICT_OK) status = tdict_output_file(request, NULL, write_files, &files, err);
  tdict_td_new_files_reset(&files);
  return status;
}
