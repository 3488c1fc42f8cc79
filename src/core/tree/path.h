/* Reads paths key by key. The caller owns the reader. A key is valid until the next is read. Allocates only for a key
 * with a backslash that takes more than 128 bytes. Thread rule: used by one thread at a time. */
#ifndef TDICT_CORE_TREE_PATH_H
#define TDICT_CORE_TREE_PATH_H

#include <stdbool.h>

#include "core/tree/name.h"
#include "tdict/tree.h"

typedef struct tdict_path {
  const char *whole, *what; /* the path, and the name of the public call, for errors */
  /* start of the last key read, in the escaped text. To read that key again, set `rest = begin`. */
  const char *begin;
  const char *rest; /* the text that is not read yet: begins after the last key read and its dot */
  const char *end;  /* end of the path */
  tdict_name name;  /* the last key read, unescaped */
  bool last;        /* true: the path ends with the last key read */
  char *heap;
  char local[128];
} tdict_path;

void tdict_path_init(tdict_path *path, const char *text, const char *what);
void tdict_path_reset(tdict_path *path);
/* Reads the next key, which must exist. Returns TDICT_EINVAL for an empty key or a backslash at the end, and
 * TDICT_ENOMEM. */
tdict_status tdict_path_next(tdict_path *path, tdict_error *err);
/* Returns TDICT_EINVAL if the text after the last key read is not a valid path. */
tdict_status tdict_path_check_rest(const tdict_path *path, tdict_error *err);

#endif
