/* Fuzzes NumPy files: the input is a whole .npy or .npz file. If a tree is opened, it is written to a .npz file, opened
 * again and compared. A tree with one array is also written to a .npy file and opened. If a file is refused, there must
 * be a message. Thread rule: one thread. */
#include "files.h"

/* Opens the input with nested or flat names, and with or without comparing the checksums. */
static tdict_status open_input(bool flat, bool check_crc, tdict_tree **out) {
  const char *input = in_folder("input");
  tdict_error error = {0};
  tdict_status status =
      tdict_open(input, td_options(tdict_open_options, flat = flat, check_crc = check_crc), out, &error);
  if (status == TDICT_OK) return status;
  demand(!*out && error.message[0], "no message");
  demand(strcmp(error.path, input) == 0, "the wrong file");
  demand(status != TDICT_ENOMEM && status != TDICT_EINVAL && status != TDICT_EIO, error.message);
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  scoped_tree tree = NULL, flat = NULL, checked = NULL, npz = NULL, npy = NULL;
  tdict_difference difference;
  make_folder();
  put_file("input", bytes, count);
  const bool is_flat = open_input(true, false, &flat) == TDICT_OK;
  const bool is_checked = open_input(true, true, &checked) == TDICT_OK;
  demand(is_flat || !is_checked, "the check accepts more");
  if (open_input(false, false, &tree) == TDICT_OK) {
    accepted++;
    demand(is_flat && tdict_num_leaves(tree) == tdict_num_leaves(flat), "flat names give other leaves");
    npz = write_again(tree, TDICT_FORMAT_NPZ);
    if (npz) {
      const tdict_difference_options *o = td_options(tdict_difference_options, nan_equal = true);
      demand(tdict_get_difference(tree, npz, o, &difference, NULL) == TDICT_OK, "the trees cannot be compared");
      demand(!difference.differs, difference.message);
    }
    npy = write_again(tree, TDICT_FORMAT_NPY); /* not compared, because the file lacks the name of the array */
  } else {
    refused++;
  }
  return 0;
}
