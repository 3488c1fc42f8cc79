/* Maps files of token ids into memory. The struct owns its mapping.
 * Thread rule: several threads may read an open file. */
#ifndef TDICT_SERVICES_LOADER_TOKEN_FILE_H
#define TDICT_SERVICES_LOADER_TOKEN_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "tdict/status.h"

typedef struct tdict_token_file {
  void *map; /* NULL: not mapped */
  size_t map_bytes;
  const void *tokens;
  int64_t count;
  int32_t width; /* bytes in a token: 2 or 4 */
} tdict_token_file;

/* Opens and maps a file. `format` is a tdict_token_format. Returns TDICT_EIO if the file cannot be read. Returns
 * TDICT_EFORMAT if the size or the header is wrong, or the file is not a regular file. In both cases err->path is
 * `path`. */
tdict_status tdict_token_file_open(tdict_token_file *out, const char *path, int32_t format, tdict_error *err);
/* Unmaps the file. A second call does nothing. */
void tdict_token_file_close(tdict_token_file *file);

#endif
