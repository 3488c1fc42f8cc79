/* Checks JSON texts that this library reads. Thread-safe. */
#ifndef TDICT_SERVICES_IO_JSON_OPEN_H
#define TDICT_SERVICES_IO_JSON_OPEN_H

#include "services/io/json/document.h"

/* Makes the document of any text, which a 0 byte must follow. Returns TDICT_EFORMAT for a text that
 * tdict_json_is_valid() refuses. Returns TDICT_ENOTSUP for duplicate keys, keys with a 0 byte, numbers that overflow
 * int64_t or double, and texts of 4 GiB and more. In both cases *fault is the reason. Returns TDICT_ENOMEM without
 * *fault. On success, the caller closes the document. Fills no tdict_error. */
tdict_status tdict_json_open(const char *text, size_t length, tdict_json_document *out, tdict_json_fault *fault);

#endif
