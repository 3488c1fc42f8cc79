/* Finds the file that holds the elements of a tensor: the shard of a model in several files. The tensors of an opened
 * file are in mappings of the file. Thread rule: one thread. */
#ifndef TDICT_TOOLS_SHARDS_H
#define TDICT_TOOLS_SHARDS_H

#include "leaves.h"

typedef struct shard_list {
  struct shard *items; /* sorted by address */
  size_t count;
} shard_list;

/* Lists the mappings of the safetensors files in the folder of `path`, which was opened. The list is empty if the
 * leaves are in fewer than two files, or if memory is exhausted. The caller frees the list. */
void shards_find(shard_list *list, const leaf_list *leaves, const char *path);
void shards_free(shard_list *list);
/* Returns the name of the file that holds the elements, or NULL if it is unknown. Borrowed from the list. */
const char *shard_of(const shard_list *list, const leaf *l);

#endif
