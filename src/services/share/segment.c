/* Creates, checks, maps and frees segments. See segment.h for ownership and threads. */
#include "services/share/segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/ops/clone.h"
#include "core/schema/blob.h"
#include "core/schema/create.h"
#include "services/share/words.h"
#include "tdict/nontensor.h"

#ifndef MADV_COLLAPSE /* missing in headers before Linux 6.1 */
#define MADV_COLLAPSE 25
#endif
enum { PAGE = 4096, PIECE = 256 << 10, HUGE_PAGE = 2 << 20, MAGIC = 0x67657374 /* "tseg" */, VERSION = 1 };
enum { WANTED_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* The first bytes of a segment. */
typedef struct segment_head {
  uint32_t magic, version, kind, num_slots, max_workers, unused;
  uint64_t blob_bytes, slot_bytes;
} segment_head;

/* Computes the offsets and sizes. Returns false if an offset or a size overflows. */
static bool compute_layout(tdict_segment_layout *l) {
  size_t words = l->kind == TDICT_SEGMENT_RING ? tdict_words_bytes(l->num_slots, l->max_workers) : 0, slots;
  l->words_at = PAGE;
  l->blob_at = PAGE + words;
  return tdict_add_size(l->blob_at, l->blob_bytes, &l->slots_at) && tdict_round_up(l->slots_at, PAGE, &l->slots_at) &&
         tdict_round_up(l->slot_bytes, PAGE, &l->slot_stride) && tdict_mul_size(l->slot_stride, l->num_slots, &slots) &&
         tdict_add_size(l->slots_at, slots, &l->total_bytes) && l->total_bytes <= INT64_MAX;
}

static tdict_status fail_errno(const char *what, const char *call, tdict_error *err) {
  const int code = errno;
  if (code == ENOMEM || code == ENOSPC)
    return tdict_fail_native(err, TDICT_ENOMEM, code, "%s: no memory for the segment: %s", what, call);
  return tdict_fail_native(err, TDICT_EIO, code, "%s: %s failed: %s", what, call, strerror(code));
}

/* Maps a segment at a multiple of the size of a huge page. On failure returns MAP_FAILED and sets errno. */
static char *map_segment(int fd, size_t bytes) {
  char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return raw;
  const size_t head = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
  char *map = mmap(raw + head, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  const int code = errno;
  if (map == MAP_FAILED) {
    munmap(raw, bytes + HUGE_PAGE);
  } else {
    /* Unmap the pages outside of the segment. */
    const size_t end = tdict_align(bytes, (size_t)sysconf(_SC_PAGESIZE));
    if (head) munmap(raw, head);
    munmap(map + end, HUGE_PAGE - head);
  }
  errno = code;
  return map;
}

/* Maps a segment. Retains the schema. */
static tdict_status make_segment(const char *what, int fd, const tdict_segment_layout *layout,
                                 const tdict_schema *schema, tdict_segment **out, tdict_error *err) {
  tdict_segment *s = calloc(1, sizeof *s);
  if (!s) return tdict_fail_memory(err, what, NULL, "a segment");
  char *map = map_segment(fd, layout->total_bytes);
  if (map == MAP_FAILED) {
    free(s);
    return fail_errno(what, "mmap", err);
  }
  atomic_init(&s->refs, 1);
  s->fd = fd;
  s->map = map;
  s->layout = *layout;
  s->schema = tdict_schema_retain(schema);
  *out = s;
  return TDICT_OK;
}

/* Computes the bytes of a tree. Returns TDICT_ENOTSUP if the schema has an object, whose path is err->path. */
static tdict_status measure_tree(const char *what, const tdict_schema *schema, size_t *out, tdict_error *err) {
  char path[TDICT_SCHEMA_PATH_BYTES];
  for (size_t i = 0; schema->num_objects && i < schema->num_entries; i++) {
    const char *type = schema->entries[i].type_name;
    if (schema->entries[i].kind != TDICT_SCHEMA_OBJECT) continue;
    const bool is_value = strcmp(type, tdict_nontensor_type()->name) == 0;
    return tdict_fail_at(err, TDICT_ENOTSUP, tdict_schema_cut_path(schema, i, path),
                         "%s: %s%.60s, wanted tensors and trees only", what,
                         is_value ? "a text or value" : "an object of type ", is_value ? "" : type);
  }
  return tdict_schema_measure(schema, out, err);
}

/* Allocates the memory of a new memfd and seals its size. */
static tdict_status allocate_and_seal(const char *what, int fd, size_t bytes, tdict_error *err) {
  if (ftruncate(fd, (off_t)bytes) != 0) return fail_errno(what, "ftruncate", err);
  /* Allocate all pages now: one that is missing later would end the process with SIGBUS. Short calls, because older
   * kernels undo one that a signal interrupts, and a fast timer would never let it end. */
  for (size_t at = 0; at < bytes;) {
    const size_t left = bytes - at, piece = left < PIECE ? left : PIECE;
    if (fallocate(fd, 0, (off_t)at, (off_t)piece) == 0)
      at += piece;
    else if (errno != EINTR)
      return fail_errno(what, "fallocate", err);
  }
  return fcntl(fd, F_ADD_SEALS, WANTED_SEALS) == 0 ? TDICT_OK : fail_errno(what, "F_ADD_SEALS", err);
}

/* Creates and maps a segment for trees of `schema`. */
static tdict_status create_of_schema(const char *what, const tdict_schema *schema, const tdict_segment_layout *wanted,
                                     tdict_segment **out, tdict_error *err) {
  tdict_segment_layout layout = *wanted;
  tdict_status status = measure_tree(what, schema, &layout.slot_bytes, err);
  if (status != TDICT_OK) return status;
  layout.blob_bytes = schema->num_bytes;
  if (!compute_layout(&layout))
    return tdict_fail(err, TDICT_EOVERFLOW, "%s: %u trees of %zu bytes do not fit a segment", what, layout.num_slots,
                      layout.slot_bytes);
  const int fd = (int)syscall(SYS_memfd_create, "tdict", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return fail_errno(what, "memfd_create", err);
  status = allocate_and_seal(what, fd, layout.total_bytes, err);
  if (status == TDICT_OK) status = make_segment(what, fd, &layout, schema, out, err);
  if (status != TDICT_OK) {
    close(fd);
    return status;
  }
  const segment_head head = {.magic = MAGIC,
                             .version = VERSION,
                             .kind = layout.kind,
                             .num_slots = layout.num_slots,
                             .max_workers = layout.max_workers,
                             .blob_bytes = layout.blob_bytes,
                             .slot_bytes = layout.slot_bytes};
  /* Copies are faster with huge pages. A failure does not matter, because small pages suffice. */
  (void)madvise((*out)->map, layout.total_bytes / HUGE_PAGE * HUGE_PAGE, MADV_COLLAPSE);
  memcpy((*out)->map, &head, sizeof head);
  memcpy((*out)->map + layout.blob_at, schema->bytes, schema->num_bytes);
  return TDICT_OK;
}

tdict_status tdict_segment_create(const char *what, const tdict_tree *tree, const tdict_segment_layout *wanted,
                                  tdict_segment **out, tdict_error *err) {
  tdict_schema *schema;
  tdict_status status = tdict_schema_from_tree(tree, &schema, err);
  if (status != TDICT_OK) return status;
  status = create_of_schema(what, schema, wanted, out, err);
  tdict_schema_release(schema);
  return status;
}

/* Reads exactly `bytes` bytes. */
static tdict_status read_at(const char *what, int fd, void *buffer, size_t bytes, size_t at, tdict_error *err) {
  char *to = buffer;
  while (bytes) {
    const ssize_t got = pread(fd, to, bytes, (off_t)at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(what, "pread", err);
    if (got == 0) return tdict_fail(err, TDICT_EFORMAT, "%s: the segment ends at byte %zu", what, at);
    to += got;
    at += (size_t)got;
    bytes -= (size_t)got;
  }
  return TDICT_OK;
}

/* Checks the head of a segment of `found` bytes, and computes the layout. */
static tdict_status check_head(const char *what, const segment_head *h, tdict_segment_kind kind, size_t found,
                               tdict_segment_layout *layout, tdict_error *err) {
  const bool is_ring = kind == TDICT_SEGMENT_RING;
  if (h->magic != MAGIC)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the segment begins with 0x%08x, wanted 0x%08x", what, h->magic, MAGIC);
  if (h->version != VERSION)
    return tdict_fail(err, TDICT_ENOTSUP, "%s: the segment has version %u, wanted %d", what, h->version, VERSION);
  if (h->kind != (uint32_t)kind)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the segment has kind %u, wanted %s", what, h->kind,
                      is_ring ? "2, a ring" : "1, a tree");
  if (h->num_slots < 1 || h->num_slots > (is_ring ? TDICT_SHARE_MAX_SLOTS : 1) || h->max_workers < is_ring ||
      h->max_workers > (is_ring ? TDICT_SHARE_MAX_WORKERS : 0))
    return tdict_fail(err, TDICT_EFORMAT, "%s: the segment has %u slots and %u workers", what, h->num_slots,
                      h->max_workers);
  *layout = (tdict_segment_layout){.kind = h->kind,
                                   .num_slots = h->num_slots,
                                   .max_workers = h->max_workers,
                                   .blob_bytes = h->blob_bytes,
                                   .slot_bytes = h->slot_bytes};
  if (h->blob_bytes > TDICT_BLOB_MAX_BYTES || !compute_layout(layout) || layout->total_bytes != found)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the segment has %zu bytes, wanted those of its head", what, found);
  return TDICT_OK;
}

/* Checks the seals, the size and the head of a segment. Nothing is mapped yet, so a file that shrinks does no harm. */
static tdict_status check_file(const char *what, int fd, tdict_segment_kind kind, tdict_segment_layout *layout,
                               tdict_error *err) {
  struct stat file;
  segment_head head;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return tdict_fail(err, TDICT_EFORMAT, "%s: the descriptor is not a memfd", what);
  if ((seals & WANTED_SEALS) != WANTED_SEALS)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the segment has the seals 0x%x, wanted 0x%x", what, (unsigned)seals,
                      (unsigned)WANTED_SEALS);
  if (fstat(fd, &file) != 0) return fail_errno(what, "fstat", err);
  if (!S_ISREG(file.st_mode) || file.st_size < PAGE)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the segment has %lld bytes, wanted at least %d", what,
                      (long long)file.st_size, PAGE);
  tdict_status status = read_at(what, fd, &head, sizeof head, 0, err);
  return status == TDICT_OK ? check_head(what, &head, kind, (size_t)file.st_size, layout, err) : status;
}

/* Reads the schema from a copy of the blob, because another process may change the segment. */
static tdict_status read_schema(const char *what, int fd, const tdict_segment_layout *layout, tdict_schema **out,
                                tdict_error *err) {
  void *blob = malloc(layout->blob_bytes ? layout->blob_bytes : 1);
  if (!blob) return tdict_fail_memory(err, what, NULL, "%zu bytes", layout->blob_bytes);
  tdict_status status = read_at(what, fd, blob, layout->blob_bytes, layout->blob_at, err);
  if (status == TDICT_OK) status = tdict_schema_read(blob, layout->blob_bytes, out, err);
  free(blob);
  return status;
}

/* Checks that the schema has no objects, and that the slots have the size that the schema needs. */
static tdict_status check_schema(const char *what, const tdict_schema *schema, const tdict_segment_layout *layout,
                                 tdict_error *err) {
  size_t bytes;
  tdict_status status = measure_tree(what, schema, &bytes, err);
  if (status != TDICT_OK || bytes == layout->slot_bytes) return status;
  return tdict_fail(err, TDICT_EFORMAT, "%s: the segment has slots of %zu bytes, but its schema needs %zu", what,
                    layout->slot_bytes, bytes);
}

tdict_status tdict_segment_open(const char *what, int fd, tdict_segment_kind kind, tdict_segment **out,
                                tdict_error *err) {
  tdict_segment_layout layout;
  tdict_schema *schema = NULL;
  tdict_status status = check_file(what, fd, kind, &layout, err);
  if (status == TDICT_OK) status = read_schema(what, fd, &layout, &schema, err);
  if (status == TDICT_OK) status = check_schema(what, schema, &layout, err);
  if (status == TDICT_EOVERFLOW)
    status = tdict_fail(err, TDICT_EFORMAT, "%s: the trees of the schema do not fit 63 bits", what);
  if (status == TDICT_OK) status = make_segment(what, fd, &layout, schema, out, err);
  tdict_schema_release(schema);
  if (status != TDICT_OK) close(fd);
  return status;
}

void tdict_segment_release(tdict_segment *s) {
  if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  if (s->gpu) {
    tdict_pinner pinner = tdict_gpu_pinner(s->gpu, NULL);
    pinner.ops->unreg(pinner.self, s->map, s->layout.total_bytes);
    tdict_gpu_release(s->gpu);
  }
  munmap(s->map, s->layout.total_bytes);
  tdict_schema_release(s->schema);
  close(s->fd);
  free(s);
}

/* Drops a storage's reference to its segment. tdict_segment_of() knows such storages by this callback. */
static void release_storage(void *user) { tdict_segment_release(user); }

tdict_status tdict_segment_make_tree(tdict_segment *s, uint32_t slot, tdict_tree **out, tdict_error *err) {
  tdict_storage *storage;
  tdict_tree *made = NULL;
  char *data = s->map + s->layout.slots_at + slot * s->layout.slot_stride;
  tdict_status status = tdict_storage_wrap(data, s->layout.slot_bytes, tdict_cpu(), 0, &storage, err);
  if (status != TDICT_OK) return status;
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  storage->release = release_storage;
  storage->user = s;
  status = tdict_schema_create_over(s->schema, storage, &made, err);
  if (status == TDICT_OK) status = tdict_make_consolidated(made, s->schema->num_tensors, storage, err);
  tdict_storage_release(storage);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

tdict_segment *tdict_segment_of(const tdict_tree *tree) {
  if (!tree->consolidated) return NULL;
  const tdict_storage *storage = tree->consolidated->bytes->storage;
  return storage->release == release_storage ? storage->user : NULL;
}
