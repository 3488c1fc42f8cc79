/* Reads and writes archives `.tdz` of TensorDict: zip files of a memory-mapped directory. See memmap.h for ownership
 * and threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "services/io/tensordict/memmap.h"

enum { ALIGNMENT = 64 };

/* The entries, sorted by name. */
typedef struct archive {
  const tdict_zip_entry **sorted;
  size_t count;
} archive;

static int compare_entries(const void *a, const void *b) {
  return strcmp((*(const tdict_zip_entry *const *)a)->name, (*(const tdict_zip_entry *const *)b)->name);
}

static tdict_status find_entry(tdict_contents *contents, const void *from, const char *path, tdict_span *span,
                               bool *exists, tdict_error *err) {
  const archive *all = from;
  const tdict_zip_entry wanted = {.name = path}, *key = &wanted;
  const tdict_zip_entry **found =
      all->count ? bsearch(&key, (const void *)all->sorted, all->count, sizeof *all->sorted, compare_entries) : NULL;
  *exists = found != NULL;
  if (!found) return TDICT_OK;
  *span = (*found)->span;
  return tdict_zip_check_stored(contents, *found, err);
}

bool tdict_archive_is(const tdict_zip *zip) {
  for (size_t i = 0; i < zip->count; i++)
    if (strcmp(zip->entries[i].name, "meta.json") == 0) return true;
  return false;
}

tdict_status tdict_archive_read(tdict_contents *contents, const tdict_zip *zip, const tdict_open_options *options,
                                tdict_error *err) {
  archive all = {tdict_array_sorted(zip->entries, zip->count, sizeof *zip->entries, compare_entries), zip->count};
  if (!all.sorted) return tdict_fail_memory(err, contents->what, contents->path, "the entries");
  tdict_status status = tdict_td_read_files(contents, find_entry, &all, options, err);
  free((void *)all.sorted);
  return status;
}

static tdict_status write_files(void *user, tdict_output *to, tdict_error *err) {
  const tdict_td_new_files *files = user;
  tdict_zip_writer zip;
  tdict_status status = TDICT_OK;
  tdict_zip_writer_init(&zip, to);
  for (size_t i = 0; i < files->count && status == TDICT_OK; i++) {
    const tdict_td_new_file *f = &files->files[i];
    status = tdict_zip_add(
        &zip, &(tdict_zip_new){f->path, f->text, f->length, f->tensor, f->name, f->tensor ? ALIGNMENT : 0}, err);
  }
  if (status == TDICT_OK) status = tdict_zip_finish(&zip, err);
  tdict_zip_writer_reset(&zip);
  return status;
}

tdict_status tdict_archive_save(const tdict_save_request *request, tdict_error *err) {
  tdict_td_new_files files;
  tdict_status status = tdict_td_collect(&files, request, err);
  if (status == TDICT_OK) status = tdict_output_file(request, NULL, write_files, &files, err);
  tdict_td_new_files_reset(&files);
  return status;
}
