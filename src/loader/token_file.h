/* A file of token ids, mapped into memory. The file owns its mapping. Thread rule: read by many threads once it is open. */
#ifndef TDICT_LOADER_TOKEN_FILE_H
#define TDICT_LOADER_TOKEN_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "tdict/status.h"

typedef struct tdict_token_file {
  void *map; /* NULL: nothing is mapped */
  size_t map_bytes;
  const void *tokens;
  int64_t count;
  int32_t width; /* bytes of a token: 2 or 4 */
} tdict_token_file;

/* `format` is a tdict_token_format. TDICT_EIO, TDICT_EFORMAT, with the file's name as err->path. */
tdict_status tdict_token_file_open(tdict_token_file *out, const char *path, int32_t format, tdict_error *err);
void tdict_token_file_close(tdict_token_file *file);

#endif
