/* Finds the shards of tensors in the mappings of this process. See shards.h. Owns the memory of the lists. */
#include "shards.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct shard {
  uintptr_t begin, end;
  char *name;
} shard;

/* Returns a new string with the name of the file in a folder that has the inode, or NULL. The file can be a symbolic
 * link, as in the cache of huggingface_hub. */
static char *name_of(const char *folder, ino_t inode) {
  DIR *dir = opendir(folder);
  char *name = NULL;
  for (struct dirent *entry; dir && !name && (entry = readdir(dir));) {
    struct stat file;
    const size_t length = strlen(entry->d_name);
    if (length <= 12 || strcmp(entry->d_name + length - 12, ".safetensors") != 0) continue;
    if (fstatat(dirfd(dir), entry->d_name, &file, 0) == 0 && file.st_ino == inode) name = strdup(entry->d_name);
  }
  if (dir) closedir(dir);
  return name;
}

static void add_shard(shard_list *list, uintptr_t begin, uintptr_t end, char *name) {
  shard *items = realloc(list->items, (list->count + 1) * sizeof *items);
  if (items) list->items = items;
  if (items)
    items[list->count++] = (shard){begin, end, name};
  else
    free(name);
}

static void read_maps(shard_list *list, const char *folder) {
  char *line = NULL;
  size_t bytes = 0;
  FILE *file = fopen("/proc/self/maps", "r");
  while (file && getline(&line, &bytes, file) > 0) {
    uintptr_t begin, end;
    uintmax_t inode;
    const bool is_file =
        sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %" SCNuMAX, &begin, &end, &inode) == 3 && inode;
    char *name = is_file ? name_of(folder, (ino_t)inode) : NULL;
    if (name) add_shard(list, begin, end, name);
  }
  if (file) fclose(file);
  free(line);
}

static int compare_shards(const void *a, const void *b) {
  const shard *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

void shards_find(shard_list *list, const leaf_list *leaves, const char *path) {
  struct stat file;
  const char *first = NULL, *slash = strrchr(path, '/');
  char *folder = strdup(path);
  *list = (shard_list){NULL, 0};
  if (folder && (stat(path, &file) != 0 || !S_ISDIR(file.st_mode))) folder[slash ? slash - path + 1 : 0] = 0;
  if (folder) read_maps(list, folder[0] ? folder : ".");
  free(folder);
  if (list->count) qsort(list->items, list->count, sizeof *list->items, compare_shards);
  for (size_t i = 0; i < leaves->count; i++) {
    const char *name = shard_of(list, &leaves->items[i]);
    if (name && !first) first = name;
    if (name && strcmp(name, first) != 0) return;
  }
  shards_free(list);
}

void shards_free(shard_list *list) {
  for (size_t i = 0; i < list->count; i++) free(list->items[i].name);
  free(list->items);
  *list = (shard_list){NULL, 0};
}

const char *shard_of(const shard_list *list, const leaf *l) {
  const uintptr_t address = l->tensor ? (uintptr_t)tdict_tensor_const_data(l->tensor) : 0;
  size_t low = 0, high = list->count;
  while (low < high) { /* finds the number of mappings that begin at or before the address */
    const size_t middle = (low + high) / 2;
    if (list->items[middle].begin <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low > 0 && address < list->items[low - 1].end ? list->items[low - 1].name : NULL;
}
