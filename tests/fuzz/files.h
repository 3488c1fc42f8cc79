/* The temporary folder of a fuzz target that reads files. The folder is removed when the program exits. */
#ifndef TDICT_TESTS_FUZZ_FILES_H
#define TDICT_TESTS_FUZZ_FILES_H

#include <fcntl.h>
#include <unistd.h>

#include "demand.h"
#include "tdict/clone.h"
#include "tdict/io.h"
#include "tdict/tdict.h"

static long long written, appended;
static char folder[64];

/* Returns the path of a file in the folder. The string is valid until the fourth call after this one. */
static inline const char *in_folder(const char *name) {
  static char paths[4][160];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}
static inline void put_file(const char *name, const void *bytes, size_t count) {
  const int fd = open(in_folder(name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  demand(fd >= 0 && write(fd, bytes, count) == (ssize_t)count, "the file cannot be written");
  close(fd);
}

void fuzz_print_counts(void) {
  char command[128];
  fprintf(stderr, "%lld accepted, %lld refused, %lld written again, %lld appends\n", accepted, refused, written,
          appended);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  if (system(command) != 0) fprintf(stderr, "%s stays\n", folder);
}
/* Makes the folder and returns true in the first call. Later calls return false. */
static inline bool make_folder(void) {
  if (folder[0]) return false;
  snprintf(folder, sizeof folder, "%s/tdict-fuzz.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  demand(mkdtemp(folder) != NULL, "no folder");
  atexit(fuzz_print_counts);
  return true;
}

/* Saves a tree, opens the file and compares some counts. Returns NULL if the format cannot hold the tree. */
static inline tdict_tree *write_again(const tdict_tree *tree, tdict_file_format format) {
  const bool is_of_tensordict = format == TDICT_FORMAT_CONSOLIDATED || format == TDICT_FORMAT_TDZ;
  const bool has_crc = format == TDICT_FORMAT_NPY || format == TDICT_FORMAT_NPZ;
  tdict_tree *back = NULL;
  tdict_error error = {0};
  tdict_status status =
      tdict_save(NULL, in_folder("saved"), tree, td_options(tdict_save_options, format = (int32_t)format), &error);
  demand(status == TDICT_OK || status == TDICT_ENOTSUP || (status == TDICT_EEXIST && !is_of_tensordict), error.message);
  if (status != TDICT_OK) return NULL;
  written++;
  status = tdict_open(in_folder("saved"), td_options(tdict_open_options, check_crc = has_crc), &back, &error);
  demand(status == TDICT_OK, error.message);
  demand(tdict_num_leaves(back) == tdict_num_leaves(tree), "another number of leaves");
  demand(tdict_num_objects(back) == tdict_num_objects(tree), "another number of objects");
  demand(tdict_bytes(back) == tdict_bytes(tree), "another number of bytes");
  return back;
}

#endif
