/* A segment is a sealed memfd that holds a schema and the bytes of trees of this schema. A segment is
 * reference-counted: rings and the storages of the segment's trees hold references. The last release unpins and unmaps
 * the memory, and closes the memfd.
 *
 * Layout: a page with the head, the shared words of a ring, the blob of the schema, and the slots. Each slot begins at
 * an offset that is a multiple of 4096 bytes. Another process may write all bytes of a segment at any time. The head is
 * therefore read only once, before the segment is mapped.
 *
 * Thread rule: thread-safe. Only the thread that uses a ring writes the field `gpu` of its segment. */
#ifndef TDICT_SERVICES_SHARE_SEGMENT_H
#define TDICT_SERVICES_SHARE_SEGMENT_H

#include <stdatomic.h>

#include "device/gpu.h"
#include "tdict/share.h"

typedef enum tdict_segment_kind { TDICT_SEGMENT_TREE = 1, TDICT_SEGMENT_RING = 2 } tdict_segment_kind;

typedef struct tdict_segment_layout {
  uint32_t kind;                   /* a tdict_segment_kind */
  uint32_t num_slots, max_workers; /* 1 and 0 for a tree */
  size_t blob_bytes, slot_bytes;
  /* The following fields are offsets and sizes in bytes. The functions of segment.c compute these fields. */
  size_t words_at, blob_at, slots_at, slot_stride, total_bytes;
} tdict_segment_layout;

typedef struct tdict_segment {
  _Atomic(int64_t) refs;
  int fd;
  char *map; /* the mapping, of layout.total_bytes bytes */
  tdict_segment_layout layout;
  tdict_schema *schema; /* retained; of the trees */
  tdict_gpu *gpu;       /* retained; the GPU that pinned the mapping; NULL: not pinned */
} tdict_segment;

/* Creates and maps a segment, of the caller, for trees like `tree`, with kind, num_slots and max_workers of `wanted`.
 * `what` is the name of the public call, also below. Returns TDICT_ENOTSUP for an object, TDICT_EOVERFLOW,
 * TDICT_ENOMEM, and TDICT_EIO if a system call fails for another reason than memory. */
tdict_status tdict_segment_create(const char *what, const tdict_tree *tree, const tdict_segment_layout *wanted,
                                  tdict_segment **out, tdict_error *err);
/* Checks and maps a segment that another process sent. Takes over `fd`, and closes `fd` on failure. Returns
 * TDICT_EFORMAT if the segment is not valid, and TDICT_ENOTSUP for an object or another version. Returns TDICT_ENOMEM,
 * and TDICT_EIO if a system call fails for a reason other than memory. */
tdict_status tdict_segment_open(const char *what, int fd, tdict_segment_kind kind, tdict_segment **out,
                                tdict_error *err);
/* Drops a reference. NULL is allowed. */
void tdict_segment_release(tdict_segment *segment);
/* Makes the tree of a slot. The tree retains the segment. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_segment_make_tree(tdict_segment *segment, uint32_t slot, tdict_tree **out, tdict_error *err);
/* Returns the borrowed segment of a tree of tdict_segment_make_tree(), or NULL for others and unlocked trees. */
tdict_segment *tdict_segment_of(const tdict_tree *tree);

#endif
