/* Converts between JSON and values of leaves (tdict/nontensor.h). The caller owns all arguments. Thread-safe for
 * different contents and texts. */
#ifndef TDICT_SERVICES_IO_JSON_VALUE_H
#define TDICT_SERVICES_IO_JSON_VALUE_H

#include "services/io/json/read.h"
#include "services/io/text.h"

/* Reads a value. Arrays and objects become JSON texts without spaces. The contents own the texts. Returns
 * TDICT_ENOMEM. */
tdict_status tdict_value_from_json(tdict_contents *contents, tdict_json json, tdict_value *out, tdict_error *err);

/* Appends the JSON of a value. Returns TDICT_ENOTSUP if tdict_open() could not read the JSON again, and sets *why to
 * the reason. Returns TDICT_ENOMEM if a JSON text cannot be checked. If memory for `text` is exhausted, sets
 * text->has_failed instead. Fills no tdict_error. */
tdict_status tdict_value_to_json(tdict_io_text *text, const tdict_value *value, const char **why);
/* Appends a JSON value of a file in the form that all equal texts have: without spaces between tokens, strings escaped
 * as tdict_io_text_add_json() does, and reals with 17 digits. */
void tdict_json_write(tdict_io_text *text, tdict_json value);
/* Returns the number of values of a leaf. */
int64_t tdict_nontensor_count(const tdict_nontensor *values);

#endif
