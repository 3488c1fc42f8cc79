/* Safetensors files from any bytes. The first byte chooses how the other bytes become a file: as the whole file, as a
 * header, as TensorDict's entry in a file of four tensors, or as an index of two shards. A tree that is opened is
 * written, opened again and compared. A file that is refused leaves a message. Built with libFuzzer by scripts/fuzz,
 * and with replay.c for CTest, which runs the corpus. Thread rule: one thread. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tdict/io.h"
#include "tdict/tdict.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);
void fuzz_print_counts(void);

static long long accepted, refused, written;
static char folder[64], saved[80], index_path[96]; /* a folder with the shards "s" and "t" */

static const char *in_folder(const char *name) {
  static char path[96];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

void fuzz_print_counts(void) {
  fprintf(stderr, "%lld accepted, %lld refused, %lld written again\n", accepted, refused, written);
  unlink(saved);
  unlink(index_path);
  unlink(in_folder("s"));
  unlink(in_folder("t"));
  rmdir(folder);
}

static void demand(int good, const char *text) {
  if (good) return;
  fprintf(stderr, "%s\n", text);
  abort();
}

static void put(int fd, const void *bytes, size_t count) {
  demand(write(fd, bytes, count) == (ssize_t)count, "the file cannot be written");
}

static void put_header(int fd, const char *header, size_t count) {
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)count >> 8 * i);
  put(fd, length, sizeof length);
  put(fd, header, count);
}

/* Writes a file whose metadata has the text as TensorDict's entry. */
static void put_structure(int fd, const uint8_t *text, size_t count) {
  static const char tensors[] = "\"}, \"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                                "\"b\":{\"dtype\":\"I64\",\"shape\":[3],\"data_offsets\":[24,48]},"
                                "\"c.d\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[48,49]},"
                                "\"e\":{\"dtype\":\"BF16\",\"shape\":[2,0],\"data_offsets\":[49,49]}}";
  static const int64_t data[7] = {0, 0, 0, 0, 1, 2, 0};
  char *header = malloc(64 + 2 * count + sizeof tensors);
  size_t length = (size_t)sprintf(header, "{\"__metadata__\":{\"tensordict\":\"");
  for (size_t i = 0; i < count; i++) {
    if (text[i] == '"' || text[i] == '\\') header[length++] = '\\';
    header[length++] = (char)text[i];
  }
  memcpy(header + length, tensors, sizeof tensors - 1);
  put_header(fd, header, length + sizeof tensors - 1);
  put(fd, data, 49);
  free(header);
}

/* Writes the tree and opens the new file. */
static void write_again(const tdict_tree *tree) {
  tdict_tree *back = NULL;
  tdict_error error = {0};
  tdict_status status = tdict_save(NULL, saved, tree, NULL, &error);
  demand(status == TDICT_OK || status == TDICT_ENOTSUP || status == TDICT_EEXIST, error.message);
  if (status != TDICT_OK) return;
  written++;
  demand(tdict_open(saved, NULL, &back, &error) == TDICT_OK, error.message);
  demand(tdict_num_leaves(back) == tdict_num_leaves(tree), "another number of leaves");
  demand(tdict_num_objects(back) == tdict_num_objects(tree), "another number of objects");
  demand(tdict_bytes(back) == tdict_bytes(tree), "another number of bytes");
  tdict_release(back);
}

static void put_shard(const char *name, const char *header) {
  int fd = open(in_folder(name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  demand(fd >= 0, "no shard");
  put_header(fd, header, strlen(header));
  put(fd, "12345678", 8);
  close(fd);
}

static void begin(void) {
  snprintf(folder, sizeof folder, "%s/tdict-fuzz.XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  demand(mkdtemp(folder) != NULL, "no folder");
  snprintf(saved, sizeof saved, "%s/saved", folder);
  snprintf(index_path, sizeof index_path, "%s/x.index.json", folder);
  put_shard("s", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
  put_shard("t", "{\"b.c\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}");
  atexit(fuzz_print_counts);
}

/* Writes the file of an input. */
static void put_input(int fd, const uint8_t *bytes, size_t count) {
  char data[256] = {0};
  switch (bytes[0] % 5) {
  case 0:
  case 4:
    put(fd, bytes + 2, count - 2);
    return;
  case 1:
    put_structure(fd, bytes + 2, count - 2);
    return;
  default:
    put_header(fd, (const char *)bytes + 2, count - 2);
    put(fd, data, bytes[1]);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count) {
  tdict_tree *tree = NULL;
  tdict_error error = {0};
  tdict_open_options o = tdict_open_options_default();
  char path[96];
  if (!folder[0]) begin();
  if (count < 2) return 0;
  const bool is_index = bytes[0] % 5 == 4;
  int fd = is_index ? open(index_path, O_CREAT | O_TRUNC | O_WRONLY, 0600) : memfd_create("fuzz", MFD_CLOEXEC);
  demand(fd >= 0, "no file");
  put_input(fd, bytes, count);
  o.flat = bytes[0] % 5 == 3;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (is_index) memcpy(path, index_path, sizeof index_path);
  tdict_status status = tdict_open(path, &o, &tree, &error);
  if (status == TDICT_OK) {
    accepted++;
    write_again(tree);
  } else {
    refused++;
    demand(!tree && error.message[0], "no message");
    demand(strncmp(error.path, is_index ? folder : path, strlen(is_index ? folder : path)) == 0, "the wrong file");
    demand(status != TDICT_ENOMEM && status != TDICT_EINVAL, error.message);
    demand(is_index || status != TDICT_EIO, error.message); /* an index can name a missing shard */
  }
  tdict_release(tree);
  close(fd);
  return 0;
}
