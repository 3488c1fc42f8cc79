/* Reads JSON parts of files with jansson. The caller owns the values. Thread-safe. */
#ifndef TDICT_IO_JSON_READ_H
#define TDICT_IO_JSON_READ_H

#include <jansson.h>

#include "io/contents.h"

/* A JSON text in a file. */
typedef struct tdict_json_source {
  const tdict_contents *contents;
  const char *file; /* path of the file, for messages */
  const char *part; /* name of the text for messages, for example "the header" */
  uint64_t offset;  /* offset of the text in the file; added to positions in messages */
} tdict_json_source;

/* Bytes of a text. */
typedef struct tdict_json_slice {
  const char *text;
  size_t length;
} tdict_json_slice;
/* Checks that a text is one JSON object as RFC 8259 defines it, with at most 512 nested levels. Does not refuse
 * duplicate keys. Returns TDICT_EFORMAT with the position of the wrong byte. */
tdict_status tdict_json_check(const tdict_json_source *source, tdict_json_slice text, tdict_error *err);
/* Finds the next member of an object. The text of the object must be valid. At first, *at is the address after the
 * brace that opens the object. Sets *key to the key with its quotes, and *value to the text of the value. Returns false
 * after the last member. */
bool tdict_json_next_member(const char **at, tdict_json_slice *key, tdict_json_slice *value);
/* Parses a part of a valid text. Refuses duplicate keys, keys with a 0 byte, and numbers that overflow a 64-bit integer
 * or a double. source->offset is the position of the part. The caller releases *out with json_decref(). Returns
 * TDICT_EFORMAT and TDICT_ENOMEM. */
tdict_status tdict_json_parse(const tdict_json_source *source, tdict_json_slice part, json_t **out, tdict_error *err);
/* Checks and parses a text that must be a JSON object. Returns the errors of tdict_json_check() and
 * tdict_json_parse(). */
tdict_status tdict_json_read(const tdict_json_source *source, const char *text, size_t length, json_t **out,
                             tdict_error *err);
/* Returns true if jansson failed to read a text that tdict_json_is_valid() accepts, because memory is exhausted.
 * jansson reports this in several ways, for example as a wrong token. Therefore every error counts as missing memory,
 * except the errors that a valid text can cause. */
bool tdict_json_lacks_memory(const json_error_t *why);
/* Returns the text of a JSON string, or NULL if the value is no string or has a 0 byte. NULL is allowed. */
const char *tdict_json_text(const json_t *value);
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
tdict_status tdict_json_sizes(const tdict_json_place *place, const char *name, const json_t *value, int most,
                              tdict_sizes *out, tdict_error *err);

#endif
