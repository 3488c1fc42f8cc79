/* Reads archives `.tdz` of TensorDict: zip files of a memory-mapped directory. See memmap.h for ownership and
 * threads. */
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "services/io/tensordict/archive.h"
#include "services/io/tensordict/memmap.h"

typedef struct archive {
  const tdict_zip_entry **sorted; /* by name */
  size_t count;
} archive;

static int compare_entries(const void *a, const void *b) {
  return strcmp((*(const tdict_zip_entry *const *)a)->name, (*(const tdict_zip_entry *const *)b)->name);
}

static tdict_status find_entry(const tdict_td_files *files, const char *path, tdict_span *span, bool *exists,
                               tdict_error *err) {
  const archive *all = files->archive;
  const tdict_zip_entry wanted = {.name = path}, *key = &wanted;
  const tdict_zip_entry **found =
      all->count ? bsearch(&key, (const void *)all->sorted, all->count, sizeof *all->sorted, compare_entries) : NULL;
  *exists = found != NULL;
  if (!found) return TDICT_OK;
  *span = (*found)->span;
  return tdict_zip_check_stored(files->contents, *found, err);
}

bool tdict_archive_is(const tdict_zip *zip) {
  for (size_t i = 0; i < zip->count; i++)
    if (strcmp(zip->entries[i].name, "meta.json") == 0) return true;
  return false;
}

tdict_status tdict_archive_read(tdict_contents *contents, const tdict_zip *zip, const tdict_open_options *options,
                                tdict_error *err) {
  archive all = {malloc((zip->count + 1) * sizeof *all.sorted), zip->count};
  const tdict_td_files files = {.find = find_entry, .contents = contents, .archive = &all};
  if (!all.sorted)
    return tdict_fail_file(err, TDICT_ENOMEM, contents->path, "%s: no host memory for the entries", contents->what);
  for (size_t i = 0; i < zip->count; i++) all.sorted[i] = &zip->entries[i];
  qsort((void *)all.sorted, all.count, sizeof *all.sorted, compare_entries);
  tdict_status status = tdict_td_read_files(&files, options, err);
  free((void *)all.sorted);
  return status;
}
