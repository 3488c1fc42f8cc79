/* Fuzzes safetensors files. The first byte chooses what the bytes from the third on become: a whole file, a header,
 * TensorDict's entry in a file of four tensors, or the index of two shards. If a tree is opened, it is written, opened
 * again and compared. If a file is refused, there must be a message. Thread rule: one thread. */
#include <sys/mman.h>

#include "files.h"

static void put(int fd, const void *bytes, size_t count) {
  demand(write(fd, bytes, count) == (ssize_t)count, "the file cannot be written");
}

static void put_header(int fd, const char *header, size_t count) {
  unsigned char length[8];
  for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)count >> 8 * i);
  put(fd, length, sizeof length);
  put(fd, header, count);
}

/* Writes a file with `text` as TensorDict's entry in its metadata. */
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

static void put_shard(const char *name, const char *header) {
  int fd = open(in_folder(name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  demand(fd >= 0, "no shard");
  put_header(fd, header, strlen(header));
  put(fd, "12345678", 8);
  close(fd);
}

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
  scoped_tree tree = NULL, back = NULL;
  tdict_error error = {0};
  char path[160];
  if (make_folder()) {
    put_shard("s", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
    put_shard("t", "{\"b.c\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]}}");
  }
  if (count < 2) return 0;
  const bool is_index = bytes[0] % 5 == 4;
  const char *index = in_folder("x.index.json");
  const int fd = is_index ? open(index, O_CREAT | O_TRUNC | O_WRONLY, 0600) : memfd_create("fuzz", MFD_CLOEXEC);
  demand(fd >= 0, "no file");
  put_input(fd, bytes, count);
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (is_index) snprintf(path, sizeof path, "%s", index);
  tdict_status status = tdict_open(path, td_options(tdict_open_options, flat = bytes[0] % 5 == 3), &tree, &error);
  if (status == TDICT_OK) {
    accepted++;
    back = write_again(tree, TDICT_FORMAT_SAFETENSORS);
  } else {
    refused++;
    demand(!tree && error.message[0], "no message");
    demand(strncmp(error.path, is_index ? folder : path, strlen(is_index ? folder : path)) == 0, "the wrong file");
    demand(status != TDICT_ENOMEM && status != TDICT_EINVAL, error.message);
    demand(is_index || status != TDICT_EIO, error.message); /* an index may name a shard that does not exist */
  }
  close(fd);
  return 0;
}
