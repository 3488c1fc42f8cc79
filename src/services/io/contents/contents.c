/* Keeps opened files and their items, and builds trees of the items. See contents.h for ownership and threads. */
#include "services/io/contents/contents.h"

#include <errno.h>
#include <inttypes.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/array.h"
#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/nontensor.h"
#include "tdict/path.h"
#include "tdict/ragged.h"
#include "tdict/unbatched.h"

enum { BLOCK_BYTES = 16384, MOST_OPEN_SHARDS = 32, ALIGNMENT = alignof(max_align_t) };

typedef struct tdict_contents_block {
  struct tdict_contents_block *next;
  size_t used, cap;
  alignas(max_align_t) char bytes[];
} tdict_contents_block;

static tdict_status fail_memory(const tdict_contents *c, size_t bytes, tdict_error *err) {
  return tdict_fail_memory(err, c->what, c->path, "%zu bytes of keys and shapes", bytes);
}

void tdict_contents_init(tdict_contents *contents, const char *what, const char *path) {
  *contents = (tdict_contents){.what = what, .path = path, .root = -1};
}

static void drop_leaves(tdict_contents *c) {
  for (size_t i = 0; i < c->num_leaves; i++) tdict_tensor_release(c->leaves[i]);
  free((void *)c->leaves);
  c->leaves = NULL;
  c->num_leaves = 0;
}

void tdict_contents_close(tdict_contents *contents) {
  drop_leaves(contents);
  for (size_t i = 0; i < contents->num_files; i++)
    if (contents->files[i].fd >= 0) close(contents->files[i].fd);
  if (contents->root >= 0) close(contents->root);
  free(contents->files);
  free(contents->items);
  free(contents->metadata);
  while (contents->blocks) {
    tdict_contents_block *block = contents->blocks;
    contents->blocks = block->next;
    free(block);
  }
  tdict_contents_init(contents, contents->what, contents->path);
}

tdict_status tdict_contents_alloc(tdict_contents *contents, size_t bytes, void **out, tdict_error *err) {
  tdict_contents_block *block = contents->blocks;
  size_t rounded, whole;
  if (!tdict_round_up(bytes, ALIGNMENT, &rounded) || !tdict_add_size(rounded, sizeof *block, &whole))
    return fail_memory(contents, bytes, err);
  if (!block || block->cap - block->used < rounded) {
    const size_t cap = rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES;
    block = malloc(sizeof *block + cap);
    if (!block) return fail_memory(contents, bytes, err);
    block->next = contents->blocks;
    block->used = 0;
    block->cap = cap;
    contents->blocks = block;
  }
  *out = block->bytes + block->used;
  block->used += rounded;
  return TDICT_OK;
}

tdict_status tdict_contents_copy_text(tdict_contents *contents, const char *text, size_t length, const char **out,
                                      tdict_error *err) {
  void *copy = NULL;
  tdict_status status = tdict_contents_alloc(contents, length + 1, &copy, err);
  if (status != TDICT_OK) return status;
  if (length) memcpy(copy, text, length);
  ((char *)copy)[length] = 0;
  *out = copy;
  return TDICT_OK;
}

tdict_status tdict_contents_format(tdict_contents *contents, const char **out, tdict_error *err, const char *format,
                                   ...) {
  va_list arguments;
  void *text = NULL;
  va_start(arguments, format);
  const size_t bytes = (size_t)vsnprintf(NULL, 0, format, arguments) + 1;
  va_end(arguments);
  tdict_status status = tdict_contents_alloc(contents, bytes, &text, err);
  if (status != TDICT_OK) return status;
  va_start(arguments, format);
  vsnprintf(text, bytes, format, arguments);
  va_end(arguments);
  *out = text;
  return TDICT_OK;
}

tdict_status tdict_contents_set_shape(tdict_contents *contents, tdict_item *item, int ndim, const int64_t *sizes,
                                      tdict_error *err) {
  void *copy = NULL;
  tdict_status status = tdict_contents_alloc(contents, (size_t)ndim * sizeof *sizes, &copy, err);
  if (status != TDICT_OK) return status;
  if (ndim) memcpy(copy, sizes, (size_t)ndim * sizeof *sizes);
  item->ndim = ndim;
  item->shape = copy;
  return TDICT_OK;
}

/* Reads the size of an open file. Closes the file on failure. */
static tdict_status inspect(const tdict_contents *c, int fd, const char *path, struct stat *out, tdict_error *err) {
  if (fstat(fd, out) == 0) return TDICT_OK;
  tdict_fail_errno(err, errno, path, "%s: the file cannot be inspected", c->what);
  close(fd);
  return TDICT_EIO;
}

/* Adds a file whose texts belong to the contents. */
static tdict_status append_file(tdict_contents *c, const tdict_source_file *file, tdict_error *err) {
  if (!TDICT_RESERVE(c->files, c->cap_files, c->num_files + 1))
    return fail_memory(c, 2 * c->cap_files * sizeof *c->files, err);
  c->files[c->num_files++] = *file;
  return TDICT_OK;
}

tdict_status tdict_contents_add_file(tdict_contents *contents, int fd, const char *path, tdict_error *err) {
  struct stat info;
  tdict_source_file file = {.fd = fd};
  tdict_status status = inspect(contents, fd, path, &info, err);
  if (status != TDICT_OK) return status;
  status = tdict_contents_copy_text(contents, path, strlen(path), &file.path, err);
  if (status == TDICT_OK) {
    file.bytes = (uint64_t)info.st_size;
    file.below.device = info.st_dev;
    file.below.inode = info.st_ino;
    status = append_file(contents, &file, err);
  }
  if (status != TDICT_OK) close(fd);
  return status;
}

tdict_status tdict_contents_add_below(tdict_contents *contents, const char *below, tdict_error *err) {
  struct stat info;
  int fd;
  tdict_source_file file = {.fd = -1};
  const char *folder = contents->path, *slash = folder[0] && folder[strlen(folder) - 1] == '/' ? "" : "/";
  tdict_status status = tdict_contents_format(contents, &file.path, err, "%s%s%s", folder, slash, below);
  if (status == TDICT_OK) status = tdict_contents_copy_text(contents, below, strlen(below), &file.below.name, err);
  if (status != TDICT_OK) return status;
  status = tdict_below_open(contents->what, contents->root, below, &fd, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, file.path);
  status = inspect(contents, fd, file.path, &info, err);
  if (status != TDICT_OK) return status;
  close(fd);
  file.bytes = (uint64_t)info.st_size;
  return append_file(contents, &file, err);
}

tdict_status tdict_contents_add_shard(tdict_contents *contents, const char *name, const char *path, bool follows_links,
                                      tdict_error *err) {
  int fd;
  const char *copy;
  tdict_status status = tdict_contents_copy_text(contents, name, strlen(name), &copy, err);
  if (status == TDICT_OK)
    status = tdict_below_open_shard(contents->what, contents->root, name, follows_links, &fd, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  status = tdict_contents_add_file(contents, fd, path, err);
  if (status != TDICT_OK) return status;
  tdict_below_file *below = &contents->files[contents->num_files - 1].below;
  below->name = copy;
  below->is_shard = true;
  below->follows_links = follows_links;
  return TDICT_OK;
}

void tdict_contents_rest(tdict_contents *contents) {
  tdict_source_file *last = &contents->files[contents->num_files - 1];
  if (contents->num_files <= MOST_OPEN_SHARDS) return;
  close(last->fd);
  last->fd = -1;
}

tdict_status tdict_contents_open_file(const tdict_contents *contents, size_t file, int *fd, tdict_error *err) {
  const tdict_source_file *f = &contents->files[file];
  struct stat info;
  int opened;
  if (f->fd >= 0) {
    *fd = f->fd;
    return TDICT_OK;
  }
  tdict_status status = tdict_below_reopen(contents->what, contents->root, &f->below, &opened, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, f->path);
  status = inspect(contents, opened, f->path, &info, err);
  if (status != TDICT_OK) return status;
  if ((uint64_t)info.st_size < f->bytes) {
    close(opened);
    return tdict_fail_at(err, TDICT_EIO, f->path,
                         "%s: the file has %" PRIu64 " bytes, wanted %" PRIu64 ": the file was shortened",
                         contents->what, (uint64_t)info.st_size, f->bytes);
  }
  *fd = opened;
  return TDICT_OK;
}

void tdict_contents_close_file(const tdict_contents *contents, size_t file, int fd) {
  if (contents->files[file].fd < 0) close(fd);
}

tdict_status tdict_contents_add(tdict_contents *contents, const tdict_item *item, tdict_error *err) {
  if (!TDICT_RESERVE(contents->items, contents->cap_items, contents->num_items + 1))
    return fail_memory(contents, 2 * contents->cap_items * sizeof *contents->items, err);
  contents->items[contents->num_items++] = *item;
  return TDICT_OK;
}

tdict_status tdict_contents_add_metadata(tdict_contents *contents, const tdict_metadata_entry *entry,
                                         tdict_error *err) {
  if (!TDICT_RESERVE(contents->metadata, contents->cap_metadata, contents->num_metadata + 1))
    return fail_memory(contents, 2 * contents->cap_metadata * sizeof *contents->metadata, err);
  contents->metadata[contents->num_metadata++] = *entry;
  return TDICT_OK;
}

static tdict_status set_metadata(tdict_contents *c, const tdict_metadata_entry *from, tdict_tree *tree,
                                 tdict_error *err) {
  const tdict_value value = {.kind = TDICT_VALUE_TEXT, .text = from->value, .length = from->length};
  const size_t bytes = tdict_path_escape(from->key, NULL, 0) + 1;
  tdict_entry entry;
  void *path = NULL;
  tdict_status status = from->key[0] ? tdict_contents_alloc(c, bytes, &path, err) : TDICT_OK;
  if (status != TDICT_OK || !path) return status;
  tdict_path_escape(from->key, path, bytes);
  return tdict_get_entry(tree, path, &entry, NULL) == TDICT_OK
             ? TDICT_OK
             : tdict_set_values(tree, path, &value, TDICT_WHOLE_TREE, err);
}

tdict_status tdict_contents_metadata(tdict_contents *contents, tdict_tree **out, tdict_error *err) {
  tdict_tree *tree = NULL;
  *out = NULL;
  if (!contents->has_metadata) return TDICT_OK;
  tdict_status status = tdict_create(0, NULL, &tree, err);
  for (size_t i = 0; i < contents->num_metadata && status == TDICT_OK; i++)
    status = set_metadata(contents, &contents->metadata[i], tree, err);
  if (status == TDICT_OK) {
    *out = tree;
    return TDICT_OK;
  }
  tdict_release(tree);
  return tdict_error_at(err, status, contents->path);
}

int tdict_item_compare_spans(const void *a, const void *b) {
  const tdict_span x = (*(const tdict_item *const *)a)->span, y = (*(const tdict_item *const *)b)->span;
  if (x.offset != y.offset) return x.offset < y.offset ? -1 : 1;
  return x.bytes < y.bytes ? -1 : x.bytes > y.bytes;
}

static tdict_status read_span(const tdict_contents *c, tdict_span span, int fd, void *to, tdict_error *err) {
  const tdict_source_file *file = &c->files[span.file];
  uint64_t done = 0;
  while (done < span.bytes) {
    ssize_t count = pread(fd, (char *)to + done, (size_t)(span.bytes - done), (off_t)(span.offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return tdict_fail_errno(err, errno, file->path, "%s: byte %" PRIu64 " cannot be read", c->what,
                              span.offset + done);
    if (count == 0)
      return tdict_fail_at(err, TDICT_EIO, file->path,
                           "%s: the file ends at byte %" PRIu64 ", wanted %" PRIu64 " bytes: the file was shortened",
                           c->what, span.offset + done, file->bytes);
    done += (uint64_t)count;
  }
  return TDICT_OK;
}

tdict_status tdict_contents_read(const tdict_contents *contents, tdict_span span, void *to, tdict_error *err) {
  int fd;
  tdict_status status = tdict_contents_open_file(contents, span.file, &fd, err);
  if (status != TDICT_OK) return status;
  status = read_span(contents, span, fd, to, err);
  tdict_contents_close_file(contents, span.file, fd);
  return status;
}

/* Reports an error at an item: the message names the key, and err->path is the path that the program gave. */
static tdict_status fail_at_key(const tdict_contents *c, const tdict_item *item, const tdict_error *why,
                                tdict_error *err) {
  const char *detail = strstr(why->message, ": "); /* leave out the name of the inner call */
  return tdict_fail_at(err, (tdict_status)why->status, c->path, "%s: key '%.80s': %.140s", c->what, item->path,
                       detail ? detail + 2 : why->message);
}

/* Adds a tree. Unlike for tdict_set_tree(), the batch sizes must agree, or an append may have been interrupted. */
static tdict_status create_tree(tdict_tree *root, const tdict_item *item, tdict_error *err) {
  tdict_tree *tree = NULL;
  tdict_entry added;
  tdict_status status = tdict_create(item->ndim, item->shape, &tree, err);
  if (status == TDICT_OK) status = tdict_set_tree(root, item->path, tree, err);
  tdict_release(tree);
  if (status == TDICT_OK) status = tdict_get_entry(root, item->path, &added, err);
  if (status != TDICT_OK) return status;
  for (int d = 0; d < item->ndim; d++)
    if (tdict_batch_size(added.tree)[d] != item->shape[d])
      return tdict_fail(err, TDICT_ESHAPE, "build: the batch size does not begin with the batch size of the parent");
  return TDICT_OK;
}

static tdict_status create_ragged(tdict_tree *root, const char *path, tdict_tensor *const *parts, tdict_error *err) {
  tdict_ragged *ragged = NULL;
  tdict_status status = tdict_ragged_create(parts[0], parts[1], &ragged, err);
  /* The tensors come from the file, so the file is wrong and not an argument. */
  if (status == TDICT_EINVAL || status == TDICT_ESHAPE || status == TDICT_EDTYPE) {
    status = TDICT_EFORMAT;
    err->status = TDICT_EFORMAT;
  }
  if (status == TDICT_OK) status = tdict_set_ragged(root, path, ragged, err);
  tdict_ragged_release(ragged);
  return status;
}

static tdict_status set_item(tdict_tree *root, const tdict_item *item, tdict_tensor *const *leaves, tdict_error *err) {
  tdict_entry entry;
  const bool exists = tdict_get_entry(root, item->path, &entry, NULL) == TDICT_OK;
  if (exists && item->kind == TDICT_ITEM_TREE && entry.tree) return TDICT_OK;
  if (exists) return tdict_fail(err, TDICT_EEXIST, "build: two entries have this key");
  switch (item->kind) {
  case TDICT_ITEM_TREE:
    return create_tree(root, item, err);
  case TDICT_ITEM_TENSOR:
    return tdict_set(root, item->path, leaves[0], err);
  case TDICT_ITEM_UNBATCHED:
    return tdict_set_unbatched(root, item->path, leaves[0], err);
  case TDICT_ITEM_RAGGED_VALUES:
    return create_ragged(root, item->path, leaves, err);
  default:
    return item->ndim ? tdict_nontensor_set(root, item->path, item->values, item->ndim, item->shape, err)
                      : tdict_set_values(root, item->path, item->values, TDICT_WHOLE_TREE, err);
  }
}

tdict_status tdict_contents_add_leaves(tdict_contents *contents, tdict_error *err) {
  contents->leaves = calloc(contents->num_items + 1, sizeof *contents->leaves);
  if (!contents->leaves)
    return tdict_fail_memory(err, contents->what, contents->path, "%zu tensors", contents->num_items);
  contents->num_leaves = contents->num_items;
  return TDICT_OK;
}

tdict_status tdict_contents_build(tdict_contents *contents, tdict_tree **out, tdict_error *err) {
  const tdict_item *items = contents->items;
  const bool has_root = contents->num_items && items[0].kind == TDICT_ITEM_TREE && !items[0].path[0];
  const tdict_item none = {.kind = TDICT_ITEM_TREE, .path = ""};
  const tdict_item *first = has_root ? &items[0] : &none;
  tdict_tree *root = NULL;
  tdict_error why;
  tdict_status status = tdict_create(first->ndim, first->shape, &root, &why);
  if (status != TDICT_OK) return fail_at_key(contents, first, &why, err);
  for (size_t i = has_root; i < contents->num_items && status == TDICT_OK; i++) {
    if (items[i].kind == TDICT_ITEM_RAGGED_OFFSETS) continue;
    status = set_item(root, &items[i], &contents->leaves[i], &why);
    if (status != TDICT_OK) fail_at_key(contents, &items[i], &why, err);
  }
  drop_leaves(contents);
  if (status == TDICT_OK)
    *out = root;
  else
    tdict_release(root);
  return status;
}
