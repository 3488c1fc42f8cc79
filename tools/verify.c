/* tdict verify: opens files, which checks every rule of the format and the checksums of archives, and reads all
 * elements. Thread rule: one thread. */
#include <inttypes.h>
#include <unistd.h>

#include "leaves.h"
#include "progress.h"
#include "tdict/view.h"

/* Reads one byte of each page. The last byte is read too. */
static void read_pages(const unsigned char *data, size_t bytes, progress *p, uint64_t done) {
  enum { BETWEEN_LINES = 1 << 22 };
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (size_t at = 0; at < bytes; at += page) {
    (void)*(const volatile unsigned char *)(data + at);
    if (at % BETWEEN_LINES < page) progress_show(p, done + at);
  }
  if (bytes) (void)*(const volatile unsigned char *)(data + bytes - 1);
}

/* Reads the elements of a tensor. Strided tensors are copied, because their elements are not one range of bytes. */
static tdict_status read_tensor(const tdict_tensor *tensor, progress *p, uint64_t done, tdict_error *err) {
  tdict_tensor *dense = NULL;
  tdict_status status = tdict_tensor_contiguous(tensor, &dense, err);
  if (status != TDICT_OK) return status;
  if (tdict_tensor_bytes(dense)) read_pages(tdict_tensor_const_data(dense), tdict_tensor_bytes(dense), p, done);
  tdict_tensor_release(dense);
  return TDICT_OK;
}

static int verify(const char *path, const tdict_tree *tree, const leaf_list *list) {
  uint64_t done = 0, tensors = 0, values = 0;
  tdict_error err;
  progress p = progress_start("verify", tdict_bytes(tree));
  for (size_t i = 0; i < list->count; i++) {
    const leaf *l = &list->items[i];
    if (l->tensor && read_tensor(l->tensor, &p, done, &err) != TDICT_OK) {
      progress_end(&p);
      return tool_fail(path, &err);
    }
    done += l->bytes;
    tensors += l->tensor != NULL;
    values += l->values != NULL;
  }
  progress_end(&p);
  printf("%s: %" PRIu64 " tensor%s, %" PRIu64 " value%s, %" PRIu64 " bytes: no errors\n", path, tensors,
         tensors == 1 ? "" : "s", values, values == 1 ? "" : "s", done);
  return TOOL_OK;
}

static int verify_one(void *user, bool is_first) {
  const tool_input *input = user;
  const char *path = input->arguments[0];
  tdict_tree *tree = tool_open(path, &input->open);
  leaf_list list = {0};
  tdict_error err;
  (void)is_first;
  if (!tree) return TOOL_FAILED;
  const int status = leaves_collect(tree, &list, &err) == TDICT_OK ? verify(path, tree, &list) : tool_fail(path, &err);
  leaves_free(&list);
  tdict_release(tree);
  return status;
}

static int run(int argc, char **argv) {
  static const struct argp argp = {
      NULL,
      tool_parse_nothing,
      "PATH...",
      "Checks the files or folders PATH: opens the files, checks every rule of the format and the checksums of .npz "
      "and .tdz files, reads all elements, and prints the numbers of tensors, values and bytes.\v"
      "Exit status: 0 no errors, 1 a file is bad or cannot be read, 2 wrong usage.",
      tool_input_child,
      NULL,
      NULL};
  tool_input input = {.open = tdict_open_options_default(), .names = {"PATH"}, .takes_paths = true};
  input.open.check_crc = true;
  argp_parse(&argp, argc, argv, 0, NULL, &input);
  return tool_each_path(&input, verify_one, &input);
}

const tool_command tool_verify = {"verify", "checks files and reads all elements", run, TOOL_FAILED};
