/* Translates between Arrow's format strings and dtypes, and keeps the path of the field that is being handled. One
 * thread at a time uses a path. The other functions keep no state and are thread-safe. */
#ifndef TDICT_SERVICES_INTEROP_ARROW_TYPE_H
#define TDICT_SERVICES_INTEROP_ARROW_TYPE_H

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

/* Reads the type of a schema. Returns TDICT_ENOTSUP for a dictionary-encoded array, and for an Arrow type that a tree
 * cannot hold; the message gives the reason. Returns TDICT_EFORMAT if the format is NULL, or not an Arrow format. The
 * message begins with `what`. */
tdict_status tdict_arrow_type_read(const char *what, const struct ArrowSchema *schema, tdict_arrow_type *out,
                                   tdict_error *err);
/* Returns the format of a number or bool, or NULL if Arrow has no such type. */
const char *tdict_arrow_format(tdict_dtype dtype);

/* The escaped path of a field. Initialize all members to 0. */
typedef struct tdict_arrow_path {
  char *text; /* NULL: empty */
  size_t length, cap;
  size_t key; /* where the last key begins */
} tdict_arrow_path;
static inline const char *tdict_arrow_path_text(const tdict_arrow_path *path) { return path->text ? path->text : ""; }
/* Adds a key. *mark receives the state for tdict_arrow_path_pop(). Returns TDICT_ENOMEM if memory is exhausted. */
tdict_status tdict_arrow_path_push(tdict_arrow_path *path, const char *key, tdict_arrow_path *mark, tdict_error *err);
/* Removes the last key. */
void tdict_arrow_path_pop(tdict_arrow_path *path, const tdict_arrow_path *mark);
void tdict_arrow_path_reset(tdict_arrow_path *path);

#endif
