/* TensorDict's files from any bytes. The first byte chooses how the other bytes become a save: as the JSON of a
 * consolidated file, as the whole file, as the meta.json of a directory with some files, as the meta.json of a folder
 * of this directory, or as the meta.json of the same files in an archive. A tree that is opened is written to a
 * consolidated file and to an archive, opened again and compared. Rows are appended to the directory. A save that is
 * refused leaves a message. Built with libFuzzer by scripts/fuzz, and with replay.c for CTest, which runs the corpus.
 * Thread rule: one thread. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tdict/clone.h"
#include "tdict/io.h"
#include "tdict/tdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
void fuzz_print_counts(void);

static long long accepted, refused, written, appended;
static char folder[64];

enum { CONSOLIDATED, FILE_OF_BYTES, DIRECTORY, CHILD, ARCHIVE, NUM_KINDS };
static const char child_meta[] = "{\"x\":{\"shape\":[2],\"dtype\":\"torch.float32\"},\"shape\":[2],"
                                 "\"_type\":\"<class 'tensordict._td.TensorDict'>\"}";
static const char parent_meta[] = "{\"x\":{\"shape\":[2],\"dtype\":\"torch.float32\"},\"n\":{\"type\":\"TensorDict\"},"
                                  "\"shape\":[2],\"_type\":\"<class 'tensordict._td.TensorDict'>\"}";
static const char value_meta[] = "{\"_type\":\"<class 'tensordict.tensorclass.NonTensorData'>\",\"data\":[1,\"a\"]}";
static const char stack_meta[] = "{\"_type\":\"<class 'tensordict.tensorclass.NonTensorStack'>\",\"stack_dim\":0,"
                                 "\"data\":[\"a\",null]}";

static void demand(int good, const char *text) {
  if (good) return;
  fprintf(stderr, "%s\n", text);
  abort();
}
static const char *in_folder(const char *name) {
  static char paths[4][160];
  static int next;
  char *path = paths[next++ % 4];
  snprintf(path, sizeof paths[0], "%s/%s", folder, name);
  return path;
}
static void put_file(const char *name, const void *bytes, size_t count) {
  int fd = open(in_folder(name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
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

/* Makes the directory: the root and the folders n, 0, 1 have the files x and y of 8 bytes. */
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
/* Writes the texts that the input does not replace. */
static void put_metas(void) {
  put_file("d/meta.json", parent_meta, sizeof parent_meta - 1);
  put_file("d/n/meta.json", child_meta, sizeof child_meta - 1);
  put_file("d/0/meta.json", child_meta, sizeof child_meta - 1);
  put_file("d/1/meta.json", child_meta, sizeof child_meta - 1);
  put_file("d/v/meta.json", value_meta, sizeof value_meta - 1);
  put_file("d/s/meta.json", stack_meta, sizeof stack_meta - 1);
}

static void begin(void) {
  snprintf(folder, sizeof folder, "%s/tdict-fuzz.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  demand(mkdtemp(folder) != NULL, "no folder");
  make_directory();
  atexit(fuzz_print_counts);
}

static uint32_t checksum(const uint8_t *bytes, size_t count) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}
typedef struct image {
  uint8_t *bytes;
  size_t count, local[8], num_entries;
} image;
static void put(image *m, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) m->bytes[m->count++] = (uint8_t)(value >> 8 * i);
}
static void put_entry(image *m, const char *name, const void *bytes, size_t count) {
  m->local[m->num_entries++] = m->count;
  put(m, 0x04034b50, 4);
  put(m, 20, 2);
  put(m, 0, 8);
  put(m, checksum(bytes, count), 4);
  put(m, count, 4);
  put(m, count, 4);
  put(m, strlen(name), 2);
  put(m, 0, 2);
  memcpy(m->bytes + m->count, name, strlen(name));
  memcpy(m->bytes + m->count + strlen(name), bytes, count);
  m->count += strlen(name) + count;
}
/* Writes an archive with this meta.json. */
static void put_archive(const uint8_t *text, size_t count) {
  image m = {malloc(4096 + count), 0, {0}, 0};
  put_entry(&m, "meta.json", text, count);
  put_entry(&m, "x.memmap", "12345678", 8);
  put_entry(&m, "n/meta.json", child_meta, sizeof child_meta - 1);
  put_entry(&m, "n/x.memmap", "12345678", 8);
  put_entry(&m, "v/meta.json", value_meta, sizeof value_meta - 1);
  const size_t directory = m.count;
  for (size_t i = 0; i < m.num_entries; i++) {
    const uint8_t *local = m.bytes + m.local[i];
    const size_t name = local[26];
    put(&m, 0x02014b50, 4);
    put(&m, 20, 2);
    memcpy(m.bytes + m.count, local + 4, 26);
    m.count += 26;
    put(&m, 0, 8);
    put(&m, 0, 2);
    put(&m, m.local[i], 4);
    memcpy(m.bytes + m.count, local + 30, name);
    m.count += name;
  }
  const size_t end = m.count;
  put(&m, 0x06054b50, 4);
  put(&m, 0, 4);
  put(&m, m.num_entries, 2);
  put(&m, m.num_entries, 2);
  put(&m, end - directory, 4);
  put(&m, directory, 4);
  put(&m, 0, 2);
  put_file("f", m.bytes, m.count);
  free(m.bytes);
}

static void put_consolidated(const uint8_t *text, size_t count) {
  enum { PAYLOAD = 64 };
  uint8_t *all = calloc(1, PAYLOAD + count + 8);
  memcpy(all + PAYLOAD, text, count);
  for (int i = 0; i < 8; i++) all[PAYLOAD + count + (size_t)i] = (uint8_t)((uint64_t)count >> 8 * i);
  put_file("f", all, PAYLOAD + count + 8);
  free(all);
}

/* Writes the tree and opens the new file. */
static void write_again(const tdict_tree *tree, tdict_file_format format) {
  tdict_tree *back = NULL;
  tdict_error error = {0};
  tdict_save_options o = tdict_save_options_default();
  o.format = (int32_t)format;
  tdict_status status = tdict_save(NULL, in_folder("saved"), tree, &o, &error);
  demand(status == TDICT_OK || status == TDICT_ENOTSUP, error.message);
  if (status != TDICT_OK) return;
  written++;
  demand(tdict_open(in_folder("saved"), NULL, &back, &error) == TDICT_OK, error.message);
  demand(tdict_num_leaves(back) == tdict_num_leaves(tree), "another number of leaves");
  demand(tdict_num_objects(back) == tdict_num_objects(tree), "another number of objects");
  demand(tdict_bytes(back) == tdict_bytes(tree), "another number of bytes");
  tdict_release(back);
}

/* Appends the tree to its own directory. */
static void append(const tdict_tree *tree) {
  tdict_error error = {0};
  tdict_append_options o = tdict_append_options_default();
  tdict_tree *rows = NULL;
  o.without_flush = true;
  demand(tdict_clone_deep(tree, NULL, &rows, &error) == TDICT_OK, error.message);
  tdict_status status = tdict_append(NULL, in_folder("d"), rows, &o, &error);
  demand(status == TDICT_OK || error.message[0], "no message");
  demand(status != TDICT_ENOMEM && status != TDICT_EIO, error.message);
  appended += status == TDICT_OK;
  tdict_release(rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  tdict_tree *tree = NULL;
  tdict_error error = {0};
  tdict_open_options o = tdict_open_options_default();
  if (!folder[0]) begin();
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
  o.flat = bytes[0] >= 128;
  const char *path = in_folder(is_directory ? "d" : "f");
  tdict_status status = tdict_open(path, &o, &tree, &error);
  if (status == TDICT_OK) {
    accepted++;
    write_again(tree, TDICT_FORMAT_CONSOLIDATED);
    write_again(tree, TDICT_FORMAT_TDZ);
    if (is_directory) append(tree);
  } else {
    refused++;
    demand(!tree && error.message[0], "no message");
    demand(strncmp(error.path, path, strlen(path)) == 0, "the wrong file");
    demand(status != TDICT_ENOMEM && status != TDICT_EINVAL && status != TDICT_EIO, error.message);
  }
  tdict_release(tree);
  return 0;
}
