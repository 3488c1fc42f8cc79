/* Fuzzes TensorDict files. The first byte chooses what the other bytes are: the JSON of a consolidated file, a whole
 * consolidated file, the meta.json of a directory with some files, the meta.json of a folder in this directory, or the
 * meta.json of an archive with the same files. If a tree is opened, it is written to a consolidated file and to an
 * archive, opened again and compared. A directory is also appended to itself. If a file is refused, there must be a
 * message. Thread rule: one thread. */
#include <sys/stat.h>

#include "files.h"
#include "services/io/archive.h"

enum { CONSOLIDATED, FILE_OF_BYTES, DIRECTORY, CHILD, ARCHIVE, NUM_KINDS };
static const char child_meta[] = "{\"x\":{\"shape\":[2],\"dtype\":\"torch.float32\"},\"shape\":[2],"
                                 "\"_type\":\"<class 'tensordict._td.TensorDict'>\"}";
static const char parent_meta[] = "{\"x\":{\"shape\":[2],\"dtype\":\"torch.float32\"},\"n\":{\"type\":\"TensorDict\"},"
                                  "\"shape\":[2],\"_type\":\"<class 'tensordict._td.TensorDict'>\"}";
static const char value_meta[] = "{\"_type\":\"<class 'tensordict.tensorclass.NonTensorData'>\",\"data\":[1,\"a\"]}";
static const char stack_meta[] = "{\"_type\":\"<class 'tensordict.tensorclass.NonTensorStack'>\",\"stack_dim\":0,"
                                 "\"data\":[\"a\",null]}";

/* Makes the directory and its folders. Each folder has two files of 8 bytes, x.memmap and y.memmap. */
static void make_directory(void) {
  static const char *const folders[] = {"d", "d/n", "d/0", "d/1", "d/v", "d/s"};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    char name[32];
    demand(mkdir(in_folder(folders[i]), 0700) == 0, "no folder");
    snprintf(name, sizeof name, "%s/x.memmap", folders[i]);
    put_file(name, "12345678", 8);
    snprintf(name, sizeof name, "%s/y.memmap", folders[i]);
    put_file(name, "\0\0\0\0\0\0\0", 8);
  }
}
/* Writes all meta.json files of the directory. The input may then replace one of them. */
static void put_metas(void) {
  put_file("d/meta.json", parent_meta, sizeof parent_meta - 1);
  put_file("d/n/meta.json", child_meta, sizeof child_meta - 1);
  put_file("d/0/meta.json", child_meta, sizeof child_meta - 1);
  put_file("d/1/meta.json", child_meta, sizeof child_meta - 1);
  put_file("d/v/meta.json", value_meta, sizeof value_meta - 1);
  put_file("d/s/meta.json", stack_meta, sizeof stack_meta - 1);
}

/* Writes an archive whose top meta.json is `text`. */
static void put_archive(const uint8_t *text, size_t count) {
  static image m;
  m.count = m.entries = 0;
  put_entry(&m, "meta.json", text, count);
  put_entry(&m, "x.memmap", "12345678", 8);
  put_entry(&m, "n/meta.json", child_meta, sizeof child_meta - 1);
  put_entry(&m, "n/x.memmap", "12345678", 8);
  put_entry(&m, "v/meta.json", value_meta, sizeof value_meta - 1);
  put_directory(&m);
  put_file("f", m.bytes, m.count);
}

static void put_consolidated(const uint8_t *text, size_t count) {
  enum { PAYLOAD = 64 };
  scoped_bytes all = calloc(1, PAYLOAD + count + 8);
  memcpy(all + PAYLOAD, text, count);
  for (int i = 0; i < 8; i++) all[PAYLOAD + count + (size_t)i] = (uint8_t)((uint64_t)count >> 8 * i);
  put_file("f", all, PAYLOAD + count + 8);
}

static void append(const tdict_tree *tree) {
  tdict_error error = {0};
  scoped_tree rows = NULL;
  demand(tdict_clone_deep(tree, NULL, &rows, &error) == TDICT_OK, error.message);
  tdict_status status =
      tdict_append(NULL, in_folder("d"), rows, td_options(tdict_append_options, without_flush = true), &error);
  demand(status == TDICT_OK || error.message[0], "no message");
  demand(status != TDICT_ENOMEM && status != TDICT_EIO, error.message);
  appended += status == TDICT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  scoped_tree tree = NULL, consolidated = NULL, archive = NULL;
  tdict_error error = {0};
  if (make_folder()) make_directory();
  if (count < 1) return 0;
  const int kind = bytes[0] % NUM_KINDS;
  const bool is_directory = kind == DIRECTORY || kind == CHILD;
  const uint8_t *text = bytes + 1;
  count--;
  if (is_directory) put_metas();
  if (kind == CONSOLIDATED) put_consolidated(text, count);
  if (kind == FILE_OF_BYTES) put_file("f", text, count);
  if (kind == DIRECTORY) put_file("d/meta.json", text, count);
  if (kind == CHILD) put_file("d/n/meta.json", text, count);
  if (kind == ARCHIVE) put_archive(text, count);
  const char *path = in_folder(is_directory ? "d" : "f");
  tdict_status status = tdict_open(path, td_options(tdict_open_options, flat = bytes[0] >= 128), &tree, &error);
  if (status == TDICT_OK) {
    accepted++;
    consolidated = write_again(tree, TDICT_FORMAT_CONSOLIDATED);
    archive = write_again(tree, TDICT_FORMAT_TDZ);
    if (is_directory) append(tree);
  } else {
    refused++;
    demand(!tree && error.message[0], "no message");
    demand(strncmp(error.path, path, strlen(path)) == 0, "the wrong file");
    demand(status != TDICT_ENOMEM && status != TDICT_EINVAL && status != TDICT_EIO, error.message);
  }
  return 0;
}
