/* Writes memory-mapped directories of TensorDict. Owns nothing. Thread-safe. */
#include <string.h>

#include "core/base/error.h"
#include "services/io/output/output_folder.h"
#include "services/io/tensordict/memmap.h"

enum { MOST_NAME = 255 };

/* The folders from the root to the file that was written last. */
typedef struct open_folders {
  tdict_folder at[TDICT_IO_MAX_DEPTH + 2];
  size_t lengths[TDICT_IO_MAX_DEPTH + 2]; /* at[i] is the folder of the first lengths[i] bytes of the path */
  int count;
  const char *path; /* of the last file */
} open_folders;

/* Leaves the folders that do not hold the file. */
static tdict_status leave_folders(open_folders *f, const char *path, tdict_error *err) {
  tdict_status status = TDICT_OK;
  while (f->count > 1 && status == TDICT_OK) {
    const size_t length = f->lengths[f->count - 1];
    if (strncmp(path, f->path, length) == 0) return TDICT_OK;
    status = tdict_output_folder_leave(&f->at[--f->count], err);
  }
  return status;
}

/* Enters the folders of a file, and sets *name to the name of the file in the last folder. */
static tdict_status enter_folders(open_folders *f, const char *path, const char **name, tdict_error *err) {
  tdict_status status = f->path ? leave_folders(f, path, err) : TDICT_OK;
  size_t begin = f->lengths[f->count - 1];
  const char *slash;
  while (status == TDICT_OK && (slash = strchr(path + begin, '/')) != NULL) {
    char folder[MOST_NAME + 1];
    const size_t bytes = (size_t)(slash - path) - begin;
    memcpy(folder, path + begin, bytes);
    folder[bytes] = 0;
    status = tdict_output_folder_enter(&f->at[f->count - 1], folder, &f->at[f->count], err);
    if (status != TDICT_OK) return status;
    begin += bytes + 1;
    f->lengths[f->count++] = begin;
  }
  f->path = path;
  *name = path + begin;
  return status;
}

static tdict_status write_file(const tdict_zip_new *file, const tdict_folder *folder, const char *name,
                               tdict_error *err) {
  tdict_output to;
  tdict_status status = tdict_output_create(&to, folder, name, err);
  if (status != TDICT_OK) return status;
  status = file->tensor ? tdict_output_write_tensor(&to, file->tensor, file->tensor_name, err)
                        : tdict_output_write(&to, file->text, file->length, err);
  if (status == TDICT_OK) status = tdict_output_close(&to, err);
  tdict_output_end(&to);
  return status;
}

static tdict_status write_files(const tdict_td_new_files *files, const tdict_folder *root, tdict_error *err) {
  open_folders f = {.count = 1};
  tdict_status status = TDICT_OK;
  f.at[0] = *root;
  for (size_t i = 0; i < files->count && status == TDICT_OK; i++) {
    const char *name = NULL;
    status = enter_folders(&f, files->files[i].name, &name, err);
    if (status == TDICT_OK) status = write_file(&files->files[i], &f.at[f.count - 1], name, err);
  }
  while (f.count > 1) {
    tdict_folder *last = &f.at[--f.count];
    if (status == TDICT_OK)
      status = tdict_output_folder_leave(last, err);
    else
      tdict_folder_close(last);
  }
  return status;
}

/* Checks that no name has more than MOST_NAME bytes, because file systems limit the length of a name. */
static tdict_status check_names(const tdict_td_new_files *files, tdict_error *err) {
  for (size_t i = 0; i < files->count; i++) {
    const char *path = files->files[i].name;
    for (size_t begin = 0, bytes; path[begin]; begin += bytes + (path[begin + bytes] == '/')) {
      bytes = strcspn(path + begin, "/");
      if (bytes > MOST_NAME)
        return tdict_fail_at(err, TDICT_ENOTSUP, files->files[i].tensor ? files->files[i].tensor_name : path,
                             "%s: the key needs a file name of %zu bytes, wanted at most %d", files->list.contents.what,
                             bytes, MOST_NAME);
    }
  }
  return TDICT_OK;
}

tdict_status tdict_memmap_save(const tdict_save_request *request, tdict_error *err) {
  tdict_td_new_files files;
  tdict_output_folder folder;
  tdict_status status = tdict_td_collect(&files, request, err);
  if (status == TDICT_OK) status = check_names(&files, err);
  if (status == TDICT_OK) status = tdict_output_folder_create(&folder, request, "meta.json", err);
  if (status == TDICT_OK) {
    status = write_files(&files, &folder.root, err);
    if (status == TDICT_OK)
      status = tdict_output_folder_replace(&folder, err);
    else
      tdict_output_folder_discard(&folder);
  }
  tdict_td_new_files_reset(&files);
  return status;
}
