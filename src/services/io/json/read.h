/* Reads JSON parts of files. The caller owns the documents. Thread-safe. */
#ifndef TDICT_SERVICES_IO_JSON_READ_H
#define TDICT_SERVICES_IO_JSON_READ_H

#include "services/io/contents/contents.h"
#include "services/io/json/document.h"
#include "services/io/text.h"

/* Reads a JSON text of a file, which must be a JSON object, and makes its document, which owns the text. `part` names
 * the text in messages, for example "the header". The caller closes the document. Returns TDICT_EFORMAT with the
 * position of the wrong byte for a text that tdict_json_open() refuses, TDICT_EIO and TDICT_ENOMEM. */
tdict_status tdict_json_load(const tdict_contents *contents, tdict_span span, const char *part,
                             tdict_json_document *out, tdict_error *err);
/* Makes the document of such a text in memory. A 0 byte must follow the text, which must live as long as the document.
 * The text has the offset `offset` in the file, whose path is `file`. */
typedef struct tdict_json_source {
  const char *what, *file, *part;
  uint64_t offset;
} tdict_json_source;
tdict_status tdict_json_read(const tdict_json_source *source, const char *text, size_t length, tdict_json_document *out,
                             tdict_error *err);
/* Copies a string to the contents, and adds a 0 byte. `length` may be NULL. The value must be a string. */
tdict_status tdict_json_copy(tdict_contents *contents, tdict_json string, const char **out, size_t *length,
                             tdict_error *err);
/* Copies a string as tdict_json_copy() does. If the value is not a string or has a 0 byte, sets *out to NULL. */
tdict_status tdict_json_text(tdict_contents *contents, tdict_json value, const char **out, tdict_error *err);
/* A place in a JSON text, for messages: "tensor 'obs.x'" or "key 'obs'". */
typedef struct tdict_json_place {
  const tdict_contents *contents;
  const char *file;          /* path of the file */
  const char *kind, *key;    /* "tensor", "obs.x" */
  const tdict_io_text *path; /* replaces a `key` that is NULL */
} tdict_json_place;
const char *tdict_json_place_key(const tdict_json_place *place);
/* Returns TDICT_EFORMAT with a message such as "open: tensor 'obs.x': no shape". */
tdict_status tdict_json_fail(const tdict_json_place *place, tdict_error *err, const char *format, ...)
    TDICT_PRINTF(3, 4);
/* Returns TDICT_ENOTSUP with such a message. */
tdict_status tdict_json_refuse(const tdict_json_place *place, tdict_error *err, const char *format, ...)
    TDICT_PRINTF(3, 4);
typedef struct tdict_sizes {
  int32_t count;
  int64_t at[TDICT_MAX_NDIM];
} tdict_sizes;
/* Reads an array of at most `most` integers of 0 or more. `name` names it in messages. Returns TDICT_EFORMAT. */
tdict_status tdict_json_sizes(const tdict_json_place *place, const char *name, tdict_json value, int most,
                              tdict_sizes *out, tdict_error *err);

/* Converts between JSON and values of leaves (tdict/nontensor.h). */

/* Reads a value. Arrays and objects become JSON texts of the contents, without spaces. Returns TDICT_ENOMEM. */
tdict_status tdict_value_from_json(tdict_contents *contents, tdict_json json, tdict_value *out, tdict_error *err);

/* Appends the JSON of a value. Returns TDICT_ENOTSUP, with a reason in *why, if tdict_open() could not read it again,
 * and TDICT_ENOMEM if it cannot be checked. Without memory for `text`, sets has_failed. Fills no tdict_error. */
tdict_status tdict_value_to_json(tdict_io_text *text, const tdict_value *value, const char **why);
/* Appends a JSON value of a file in one form: no spaces, escapes of tdict_io_text_add_json(), reals of 17 digits. */
void tdict_json_write(tdict_io_text *text, tdict_json value);
/* Returns the number of values of a leaf. */
int64_t tdict_nontensor_count(const tdict_nontensor *values);

#endif
