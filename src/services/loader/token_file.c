/* Maps files of tokens and reads the header of llm.c's shards. See token_file.h for ownership and threads. */
#include "services/loader/token_file.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/file.h"
#include "tdict/dataset.h"
#include "tdict/tokens.h"

enum { HEADER_BYTES = 1024, MAGIC_U16 = 20240520, VERSION_U16 = 1, MAGIC_U32 = 20240801, VERSION_U32 = 7 };

/* Returns TDICT_EIO with errno in err->native and the file's name in err->path. */
static tdict_status fail_token_io(const char *path, const char *verb, tdict_error *err) {
  int code = errno;
  tdict_fail_native(err, TDICT_EIO, code, "tokens: the file cannot be %s: %s", verb, strerror(code));
  return tdict_error_at(err, TDICT_EIO, path);
}

/* Maps the whole file. An empty file is not mapped, because mmap() fails for a length of 0. */
static tdict_status map_token_file(tdict_token_file *file, int fd, const char *path, tdict_error *err) {
  struct stat info;
  if (fstat(fd, &info) != 0) return fail_token_io(path, "inspected", err);
  file->map_bytes = (size_t)info.st_size;
  if (file->map_bytes == 0) return TDICT_OK;
  void *address = mmap(NULL, file->map_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
  if (address == MAP_FAILED) return fail_token_io(path, "mapped", err);
  file->map = address;
  return TDICT_OK;
}

/* Returns a little-endian int32 of the header. Reading bytes works on every byte order and alignment. */
static int32_t read_header_int(const tdict_token_file *file, size_t i) {
  const unsigned char *byte = (const unsigned char *)file->map + 4 * i;
  return (int32_t)((uint32_t)byte[0] | (uint32_t)byte[1] << 8 | (uint32_t)byte[2] << 16 | (uint32_t)byte[3] << 24);
}

static bool has_header(const tdict_token_file *file) {
  if (!file->map || file->map_bytes < HEADER_BYTES) return false;
  int32_t magic = read_header_int(file, 0);
  return magic == MAGIC_U16 || magic == MAGIC_U32;
}

/* Reads the header, and checks that the file has the size that the header implies. */
static tdict_status read_header(tdict_token_file *file, tdict_error *err) {
  if (!has_header(file))
    return tdict_fail(err, TDICT_EFORMAT, "tokens: the file does not begin with the magic number %d or %d", MAGIC_U16,
                      MAGIC_U32);
  int32_t magic = read_header_int(file, 0), version = read_header_int(file, 1), count = read_header_int(file, 2);
  int32_t wanted = magic == MAGIC_U16 ? VERSION_U16 : VERSION_U32;
  if (version != wanted)
    return tdict_fail(err, TDICT_EFORMAT, "tokens: version %d, wanted %d for magic number %d", (int)version,
                      (int)wanted, (int)magic);
  file->width = magic == MAGIC_U16 ? 2 : 4;
  if (count < 0 || file->map_bytes != HEADER_BYTES + (size_t)count * (size_t)file->width)
    return tdict_fail(err, TDICT_EFORMAT, "tokens: %zu bytes, wanted %d of header and %d tokens of %d bytes",
                      file->map_bytes, HEADER_BYTES, (int)count, (int)file->width);
  file->count = count;
  file->tokens = (const char *)file->map + HEADER_BYTES;
  return TDICT_OK;
}

/* Uses the whole file as tokens of `width` bytes. */
static tdict_status read_raw(tdict_token_file *file, int32_t width, tdict_error *err) {
  if (file->map_bytes % (size_t)width)
    return tdict_fail(err, TDICT_EFORMAT, "tokens: %zu bytes, wanted a multiple of %d", file->map_bytes, (int)width);
  file->width = width;
  file->count = (int64_t)(file->map_bytes / (size_t)width);
  file->tokens = file->map;
  return TDICT_OK;
}

tdict_status tdict_token_file_open(tdict_token_file *out, const char *path, int32_t format, tdict_error *err) {
  tdict_token_file file = {.width = 2};
  int fd;
  tdict_status status = tdict_file_open_to_read("tokens", path, &fd, err);
  if (status != TDICT_OK) return status;
  status = map_token_file(&file, fd, path, err);
  close(fd);
  if (status != TDICT_OK) return status;
  bool header = format == TDICT_TOKENS_LLMC || (format == TDICT_TOKENS_AUTO && has_header(&file));
  status = header ? read_header(&file, err) : read_raw(&file, format == TDICT_TOKENS_U32 ? 4 : 2, err);
  if (status != TDICT_OK) {
    tdict_token_file_close(&file);
    return tdict_error_at(err, status, path);
  }
  *out = file;
  return TDICT_OK;
}

void tdict_token_file_close(tdict_token_file *file) {
  if (file->map) munmap(file->map, file->map_bytes);
  file->map = NULL;
}
