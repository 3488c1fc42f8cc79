/* Translates between Arrow's formats and dtypes, and makes the path of a field. Keeps no state. Thread-safe. */
#ifndef TDICT_SERVICES_INTEROP_ARROW_TYPE_H
#define TDICT_SERVICES_INTEROP_ARROW_TYPE_H

#include "services/io/text.h"
#include "tdict/arrow.h"

enum { TDICT_ARROW_MOST_DEPTH = 64 }; /* maximum number of nested structs and fixed-size lists */

typedef enum tdict_arrow_kind {
  TDICT_ARROW_NUMBER,
  TDICT_ARROW_BOOL,
  TDICT_ARROW_TEXT,
  TDICT_ARROW_LIST,
  TDICT_ARROW_FIXED_LIST,
  TDICT_ARROW_STRUCT,
  TDICT_ARROW_NULL
} tdict_arrow_kind;

/* An Arrow type that a tree can hold. */
typedef struct tdict_arrow_type {
  tdict_arrow_kind kind;
  tdict_dtype dtype; /* NUMBER and BOOL: of the elements; TEXT and LIST: of the offsets; else 0 */
  int64_t size;      /* FIXED_LIST: number of elements of each list */
  int32_t num_buffers;
} tdict_arrow_type;

/* Reads the type of a schema. Returns TDICT_ENOTSUP if it is dictionary-encoded or no tree can hold it, and
 * TDICT_EFORMAT if its format is not one of Arrow. The message begins with `what`. */
tdict_status tdict_arrow_type_read(const char *what, const struct ArrowSchema *schema, tdict_arrow_type *out,
                                   tdict_error *err);
/* Returns the format of a number or bool, or NULL if Arrow has no such type. */
const char *tdict_arrow_format(tdict_dtype dtype);

/* Adds a key to the escaped path of a field. Returns TDICT_ENOMEM. tdict_io_text_cut() removes the key. */
tdict_status tdict_arrow_path_push(tdict_io_text *path, const char *key, tdict_error *err);

#endif
