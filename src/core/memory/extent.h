/* Declares extents, which describe the bytes of a storage that a tensor covers. Functions of single extents keep no
 * state and are thread-safe. A set of extents has no lock: the owner of the set must hold a lock during each call. */
#ifndef TDICT_CORE_MEMORY_EXTENT_H
#define TDICT_CORE_MEMORY_EXTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An extent covers all bytes of [begin, end), or rows of equal width in this range. */
typedef struct tdict_extent {
  size_t begin, end; /* offsets from the storage's first byte, or addresses. If `begin` equals `end`, the extent is
                      * empty */
  uint64_t layout;   /* 0: dense, all bytes. Else strided: extents of equal layout and origin have the same rows. */
  /* Of these fields, a dense extent uses only `origin`, which equals `begin`. A row of a strided extent starts at
   * origin + n * pitch for every integer n, and has `width` bytes. If `pitch` is 0, the rows are unknown. */
  size_t origin, pitch, width;
} tdict_extent;

static inline tdict_extent tdict_extent_all(size_t begin, size_t end) {
  return (tdict_extent){.begin = begin, .end = end, .origin = begin};
}
typedef enum tdict_overlap { TDICT_OVERLAP_NONE, TDICT_OVERLAP_UNKNOWN, TDICT_OVERLAP_YES } tdict_overlap;
/* Returns whether two extents share a byte. Returns TDICT_OVERLAP_UNKNOWN if the ranges overlap but the rows cannot be
 * compared: the rows of an extent are unknown, or two strided extents have different pitches. Extents of equal layout
 * and origin whose ranges overlap always share a byte. */
tdict_overlap tdict_extent_overlap(const tdict_extent *a, const tdict_extent *b);

/* An array that can have free entries at both ends. The first extent is at[first]. */
typedef struct tdict_extents {
  tdict_extent *at;
  size_t first, count, cap;
} tdict_extents;

/* A set of bytes. Adding a dense extent at the end moves the others only if the array is full. Removing the first dense
 * extent moves none. */
typedef struct tdict_extent_set {
  tdict_extents dense;   /* sorted; extents neither overlap nor touch */
  tdict_extents strided; /* unsorted; one layout can have several parts */
} tdict_extent_set;

/* Adds the bytes of an extent. A strided extent replaces all extents of its layout. Returns false if memory is
 * exhausted; the set can then lack the replaced extents. */
bool tdict_extent_set_add(tdict_extent_set *set, const tdict_extent *extent);
/* Removes the bytes of a dense extent, or all extents of the layout of a strided one. Extents may be split, strided
 * ones only while the set has fewer than 4096, and one that cannot be split stays. Returns false if a dense extent must
 * be split and memory is exhausted. */
bool tdict_extent_set_remove(tdict_extent_set *set, const tdict_extent *extent);
/* Returns true if the set has a byte of the extent, and sometimes if it has none. */
bool tdict_extent_set_may_have(const tdict_extent_set *set, const tdict_extent *extent);
bool tdict_extent_set_is_empty(const tdict_extent_set *set);
/* Removes all bytes from the set and frees the memory of the set. */
void tdict_extent_set_reset(tdict_extent_set *set);

#endif
