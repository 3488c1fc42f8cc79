/* Helpers for directories, used by the tests of TensorDict's formats. Thread rule: one thread. */
#ifndef TDICT_TESTS_SERVICES_IO_DIRECTORY_H
#define TDICT_TESTS_SERVICES_IO_DIRECTORY_H

#include <ftw.h>

#include "files.h"

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at) {
  (void)info, (void)kind, (void)at;
  return remove(path);
}
/* Removes a file, or a directory with everything in it. */
static inline void remove_all(const char *path) {
  assert_int_equal(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}
static inline void remove_directory(const folder *f) { remove_all(f->path); }
#define scoped_directory TD_SCOPED(remove_directory, folder) /* unlike a scoped_folder, may contain folders */
/* Writes the string `text` to the file `name` in the test's folder. Creates missing parent folders. */
static inline void write_text_below(const folder *f, const char *name, const char *text) {
  char *path = td_text("%s", in(f, name));
  for (char *at = path + strlen(f->path) + 1; *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    mkdir(path, 0777);
    *at = '/';
  }
  write_bytes(path, text, strlen(text));
}

#define TD_CLASS "\"_type\":\"<class 'tensordict._td.TensorDict'>\""
#define TD_LEAF(dtype, shape) "{\"device\":\"cpu\",\"shape\":" shape ",\"dtype\":\"" dtype "\",\"is_nested\":false}"
#define TD_META(entries, shape) "{" entries "\"shape\":" shape ",\"device\":\"cpu\"," TD_CLASS "}"

static inline tdict_save_options save_as(tdict_file_format format) {
  return td_with(tdict_save_options, format = (int32_t)format);
}
/* Checks that tdict_open() fails, and that the path in the error begins with `path`. */
static inline void refuse(const char *path, tdict_status status, const char *text) {
  tdict_tree *tree = NULL;
  td_fails(status, text, tdict_open(path, NULL, &tree, err));
  assert_null(tree);
  assert_int_equal(strncmp(td_last_error.path, path, strlen(path)), 0);
}

#ifdef GOLDEN_FOLDER /* see modules.cmake */
static inline const char *golden(const char *name) {
  static char paths[4][PATH_BYTES];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, PATH_BYTES, "%s/%s", GOLDEN_FOLDER, name);
  return path;
}
#endif

#endif
