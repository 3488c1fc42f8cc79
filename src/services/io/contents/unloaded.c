/* Makes tensors over storages that read files. Reading threads share only descriptor and progress. See contents.h. */
#include "services/io/contents/contents.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/tensor/tensor.h"

/* Longer paths are cut at their start, so that the rest of a message has room. */
enum { PATH_IN_MESSAGE = 120 };

/* The folder of files that are opened for each read, so that a folder of many files needs one descriptor. */
typedef struct source_folder {
  _Atomic(int32_t) refs;
  int fd;
} source_folder;

typedef struct source {
  tdict_io_progress *progress; /* NULL: the program wants no progress */
  const char *what;            /* static */
  uint64_t bytes;              /* size of the file when the file was opened */
  int fd;                      /* -1: the file is opened for each read */
  source_folder *folder;       /* set if `fd` is -1; else NULL */
  tdict_below_file below;      /* the file in the folder */
  char path[];                 /* the text of below.name follows */
} source;

/* Returns the end of the path, and sets *dots to "..." if the start is left out. */
static const char *shorten(const char *path, const char **dots) {
  const size_t length = strlen(path);
  *dots = length > PATH_IN_MESSAGE ? "..." : "";
  return length > PATH_IN_MESSAGE ? path + length - PATH_IN_MESSAGE : path;
}

/* The engine sets err->path to the path of the leaf, so the message names the file. */
static tdict_status fail_read(const source *s, uint64_t offset, int code, tdict_error *err) {
  const char *dots, *path = shorten(s->path, &dots);
  if (code)
    return tdict_fail_native(err, TDICT_EIO, code, "%s: byte %" PRIu64 " of %s%s cannot be read: %s", s->what, offset,
                             dots, path, strerror(code));
  return tdict_fail(err, TDICT_EIO, "%s: %s%s ends at byte %" PRIu64 ", wanted %" PRIu64 " bytes: it was shortened",
                    s->what, dots, path, offset, s->bytes);
}

static void release_folder(source_folder *folder) {
  if (!folder || atomic_fetch_sub(&folder->refs, 1) > 1) return;
  close(folder->fd);
  free(folder);
}

static void close_after_read(const source *s, int fd) {
  if (s->fd < 0) close(fd);
}

static tdict_status read_source(void *user, size_t offset, void *dst, size_t bytes, size_t *done, tdict_error *err) {
  const source *s = user;
  int fd = s->fd;
  tdict_status status = tdict_io_progress_check(s->progress, err);
  if (status == TDICT_OK && fd < 0) status = tdict_below_reopen(s->what, s->folder->fd, &s->below, &fd, err);
  if (status != TDICT_OK) return status;
  for (*done = 0; *done < bytes;) {
    const ssize_t count = pread(fd, (char *)dst + *done, bytes - *done, (off_t)(offset + *done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int code = count ? errno : 0;
      close_after_read(s, fd);
      return fail_read(s, offset + *done, code, err);
    }
    *done += (size_t)count;
  }
  close_after_read(s, fd);
  return tdict_io_progress_add(s->progress, bytes, err);
}

static void release_source(void *user) {
  source *s = user;
  if (s->fd >= 0) close(s->fd);
  release_folder(s->folder);
  tdict_io_progress_release(s->progress);
  free(s);
}

/* Pointers that all storages of one load hold. */
typedef struct shared_parts {
  tdict_io_progress *progress; /* NULL: the program wants no progress */
  source_folder *folder;       /* NULL: all files are open */
} shared_parts;

/* Creates the storage of a file and moves the descriptor to the storage. */
static tdict_status create_storage(const tdict_contents *c, tdict_source_file *file, const shared_parts *shared,
                                   tdict_storage **out, tdict_error *err) {
  const size_t path = strlen(file->path) + 1, below = file->below.name ? strlen(file->below.name) + 1 : 0;
  source *s = malloc(sizeof *s + path + below);
  if (!s) return tdict_fail_memory(err, c->what, file->path, "the tensors of the file");
  *s = (source){.progress = shared->progress, .what = c->what, .bytes = file->bytes, .fd = file->fd};
  memcpy(s->path, file->path, path);
  if (file->below.name) {
    s->below = file->below;
    s->below.name = memcpy(s->path + path, file->below.name, below);
    s->folder = shared->folder;
  }
  const tdict_storage_reader reader = {read_source, release_source, s};
  tdict_status status = tdict_storage_create_unloaded(&reader, (size_t)file->bytes, out, err);
  if (status != TDICT_OK) {
    free(s);
    return tdict_error_at(err, status, file->path);
  }
  tdict_io_progress_retain(s->progress);
  if (s->folder) atomic_fetch_add_explicit(&s->folder->refs, 1, memory_order_relaxed);
  file->fd = -1;
  return TDICT_OK;
}

/* Returns a new reference to the folder of the contents, or NULL if all files are open. */
static tdict_status share_folder(const tdict_contents *c, source_folder **out, tdict_error *err) {
  *out = NULL;
  if (c->root < 0) return TDICT_OK;
  source_folder *folder = malloc(sizeof *folder);
  if (!folder) return tdict_fail_memory(err, c->what, c->path, "the tensors of the file");
  atomic_init(&folder->refs, 1);
  folder->fd = fcntl(c->root, F_DUPFD_CLOEXEC, 0);
  if (folder->fd >= 0) {
    *out = folder;
    return TDICT_OK;
  }
  tdict_fail_errno(err, errno, c->path, "%s: the folder cannot be kept open", c->what);
  free(folder);
  return TDICT_EIO;
}

/* Subtracts the first offset from all. Offsets of a broken file may overflow; tdict_ragged_create() refuses these. */
static void subtract_first(const tdict_tensor *t) {
  if (t->dtype == TDICT_I64) {
    uint64_t *at = t->data;
    const uint64_t first = at[0];
    for (int64_t i = 0; i < t->numel; i++) at[i] -= first;
  } else {
    uint32_t *at = t->data;
    const uint32_t first = at[0];
    for (int64_t i = 0; i < t->numel; i++) at[i] -= first;
  }
}

bool tdict_item_is_read_early(const tdict_item *item) {
  return tdict_item_has_tensor(item) && (item->kind == TDICT_ITEM_RAGGED_OFFSETS || !tdict_item_is_plain(item));
}

static tdict_status read_early(const tdict_contents *c, bool has_row_range, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    const tdict_item *item = &c->items[i];
    if (!tdict_item_is_read_early(item)) continue;
    status = tdict_tensor_empty(item->dtype, item->ndim, item->shape, NULL, &c->leaves[i], err);
    if (status != TDICT_OK) return tdict_error_at(err, status, c->files[item->span.file].path);
    status = tdict_item_read(c, item, c->leaves[i]->data, err);
    if (status == TDICT_OK && has_row_range && item->kind == TDICT_ITEM_RAGGED_OFFSETS) subtract_first(c->leaves[i]);
  }
  return status;
}

static tdict_status make_leaves(tdict_contents *c, const shared_parts *shared, tdict_storage **storages,
                                tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < c->num_items && status == TDICT_OK; i++) {
    const tdict_item *item = &c->items[i];
    if (!tdict_item_has_tensor(item) || c->leaves[i]) continue;
    tdict_source_file *file = &c->files[item->span.file];
    tdict_storage **storage = &storages[item->span.file];
    if (!*storage) status = create_storage(c, file, shared, storage, err);
    if (status != TDICT_OK) break;
    const tdict_tensor_desc layout = {.dtype = item->dtype, .ndim = item->ndim, .shape = item->shape};
    status = tdict_tensor_unloaded(*storage, &layout, (size_t)item->span.offset, &c->leaves[i], err);
    if (status != TDICT_OK) tdict_error_at(err, status, file->path);
  }
  return status;
}

tdict_status tdict_contents_unload(tdict_contents *contents, tdict_io_progress *progress, bool has_row_range,
                                   tdict_error *err) {
  shared_parts shared = {.progress = progress};
  tdict_status status = tdict_contents_add_leaves(contents, err);
  if (status != TDICT_OK) return status;
  tdict_storage **storages = calloc(contents->num_files + 1, sizeof *storages);
  if (!storages) return tdict_fail_memory(err, contents->what, contents->path, "the tensors of the file");
  /* make_leaves() moves the descriptors, so call make_leaves() last. */
  status = read_early(contents, has_row_range, err);
  if (status == TDICT_OK) status = share_folder(contents, &shared.folder, err);
  if (status == TDICT_OK) status = make_leaves(contents, &shared, storages, err);
  release_folder(shared.folder);
  for (size_t f = 0; f < contents->num_files; f++) tdict_storage_release(storages[f]);
  free((void *)storages);
  return status;
}
