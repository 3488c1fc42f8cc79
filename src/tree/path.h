/* Reading paths key by key. A reader is the caller's; a key is valid until the next one is read. Allocates only for a
 * key of more than 128 bytes with a backslash in it. Thread rule: one thread. */
#ifndef TDICT_TREE_PATH_H
#define TDICT_TREE_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "tdict/tree.h"
#include "tree/name.h"

typedef struct tdict_path {
  const char *whole, *what; /* the path and the call it was given to, for errors */
  const char *begin;        /* of the key read last, escaped; put it into `rest` to read that key again */
  const char *rest;         /* what comes after that key and its dot */
  const char *end;          /* of the path */
  tdict_name name;          /* the key read last, unescaped */
  bool last;                /* the path ends with that key */
  char *heap;
  char local[128];
} tdict_path;

void tdict_path_init(tdict_path *path, const char *text, const char *what);
void tdict_path_reset(tdict_path *path);
/* Reads the next key; not called after the last. TDICT_EINVAL an empty key or a backslash at the end; TDICT_ENOMEM. */
tdict_status tdict_path_next(tdict_path *path, tdict_error *err);
/* TDICT_EINVAL when what comes after the key read last is no path. */
tdict_status tdict_path_check_rest(const tdict_path *path, tdict_error *err);

#endif
