/* NumPy's files from any bytes: an input is a whole .npy or .npz file. A tree that is opened is written to a .npz file,
 * and a tree of one array also to a .npy file. The new files are opened and compared. A file that is refused leaves a
 * message. Built with libFuzzer by scripts/fuzz, and with replay.c for CTest, which runs the corpus. Thread rule: one
 * thread. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tdict/clone.h"
#include "tdict/io.h"
#include "tdict/tdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
void fuzz_print_counts(void);

static long long accepted, refused, written;
static char folder[64], input[96], saved[96];

void fuzz_print_counts(void) {
  fprintf(stderr, "%lld accepted, %lld refused, %lld written again\n", accepted, refused, written);
  unlink(input);
  unlink(saved);
  rmdir(folder);
}

static void demand(int good, const char *text) {
  if (good) return;
  fprintf(stderr, "%s\n", text);
  abort();
}

static void begin(void) {
  snprintf(folder, sizeof folder, "%s/tdict-fuzz.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  demand(mkdtemp(folder) != NULL, "no folder");
  snprintf(input, sizeof input, "%s/input", folder);
  snprintf(saved, sizeof saved, "%s/saved", folder);
  atexit(fuzz_print_counts);
}

static void put_input(const uint8_t *bytes, size_t count) {
  const int fd = open(input, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  demand(fd >= 0 && write(fd, bytes, count) == (ssize_t)count, "the file cannot be written");
  close(fd);
}

/* Writes the tree and opens the new file. */
static void write_again(const tdict_tree *tree, tdict_file_format format) {
  tdict_tree *back = NULL;
  tdict_error error = {0};
  tdict_difference difference;
  tdict_save_options o = tdict_save_options_default();
  tdict_difference_options c = tdict_difference_options_default();
  tdict_open_options opened = tdict_open_options_default();
  opened.check_crc = true;
  o.format = (int32_t)format;
  c.nan_equal = true;
  tdict_status status = tdict_save(NULL, saved, tree, &o, &error);
  demand(status == TDICT_OK || status == TDICT_ENOTSUP || status == TDICT_EEXIST, error.message);
  if (status != TDICT_OK) return;
  written++;
  demand(tdict_open(saved, &opened, &back, &error) == TDICT_OK, error.message);
  if (format == TDICT_FORMAT_NPY) { /* the file has no name of the array */
    demand(tdict_bytes(back) == tdict_bytes(tree), "another number of bytes");
  } else {
    demand(tdict_get_difference(tree, back, &c, &difference, &error) == TDICT_OK, error.message);
    demand(!difference.differs, difference.message);
  }
  tdict_release(back);
}

/* Opens the input, with nested or with flat names, and with or without a check of the checksums. */
static tdict_status open_input(bool flat, bool check_crc, tdict_tree **out) {
  tdict_error error = {0};
  tdict_open_options o = tdict_open_options_default();
  o.flat = flat;
  o.check_crc = check_crc;
  tdict_status status = tdict_open(input, &o, out, &error);
  if (status == TDICT_OK) return status;
  demand(!*out && error.message[0], "no message");
  demand(strcmp(error.path, input) == 0, "the wrong file");
  demand(status != TDICT_ENOMEM && status != TDICT_EINVAL && status != TDICT_EIO, error.message);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  tdict_tree *tree = NULL, *flat = NULL, *checked = NULL;
  if (!folder[0]) begin();
  put_input(bytes, count);
  const bool is_flat = open_input(true, false, &flat) == TDICT_OK;
  const bool is_checked = open_input(true, true, &checked) == TDICT_OK;
  demand(is_flat || !is_checked, "the check accepts more");
  if (open_input(false, false, &tree) == TDICT_OK) {
    accepted++;
    demand(is_flat && tdict_num_leaves(tree) == tdict_num_leaves(flat), "flat names give other leaves");
    write_again(tree, TDICT_FORMAT_NPZ);
    write_again(tree, TDICT_FORMAT_NPY);
  } else {
    refused++;
  }
  tdict_release(tree);
  tdict_release(flat);
  tdict_release(checked);
  return 0;
}
