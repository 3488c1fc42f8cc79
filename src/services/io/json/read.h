/* Reads JSON parts of files. The caller owns the documents. Thread-safe. */
#ifndef TDICT_SERVICES_IO_JSON_READ_H
#define TDICT_SERVICES_IO_JSON_READ_H

#include "services/io/contents.h"
#include "services/io/json/document.h"

/* A JSON text in a file. */
typedef struct tdict_json_source {
  const tdict_contents *contents;
  const char *file; /* path of the file, for messages */
  const char *part; /* name of the text for messages, for example "the header" */
  uint64_t offset;  /* offset of the text in the file; added to positions in messages */
} tdict_json_source;
/* Makes the document of a text that must be a JSON object. A 0 byte must follow the text, which must live as long as
 * the document. The caller closes the document. Returns TDICT_EFORMAT with the position of the wrong byte for a text
 * that tdict_json_open() refuses, and TDICT_ENOMEM. */
tdict_status tdict_json_read(const tdict_json_source *source, const char *text, size_t length, tdict_json_document *out,
                             tdict_error *err);
/* Copies a string to the contents, and adds a 0 byte. `length` may be NULL. The value must be a string. */
tdict_status tdict_json_copy(tdict_contents *contents, tdict_json string, const char **out, size_t *length,
                             tdict_error *err);
/* Copies a string as tdict_json_copy() does. If the value is not a string or has a 0 byte, sets *out to NULL. */
tdict_status tdict_json_text(tdict_contents *contents, tdict_json value, const char **out, tdict_error *err);
/* A place in a JSON text, for messages: "tensor 'obs.x'" or "level 'obs'". */
typedef struct tdict_json_place {
  const tdict_contents *contents;
  const char *file;       /* path of the file */
  const char *kind, *key; /* "tensor", "obs.x" */
} tdict_json_place;
/* Returns TDICT_EFORMAT with a message such as "open: tensor 'obs.x': no shape". */
tdict_status tdict_json_fail(const tdict_json_place *place, tdict_error *err, const char *format, ...)
    TDICT_PRINTF(3, 4);
typedef struct tdict_sizes {
  int32_t count;
  int64_t at[TDICT_MAX_NDIM];
} tdict_sizes;
/* Reads a JSON array of at most `most` integers of 0 or more, where `most` is at most TDICT_MAX_NDIM. `name` names the
 * array in messages. Returns TDICT_EFORMAT. */
tdict_status tdict_json_sizes(const tdict_json_place *place, const char *name, tdict_json value, int most,
                              tdict_sizes *out, tdict_error *err);

#endif
