/* Extents: which bytes of a storage a tensor has, and lists of them. A list belongs to its owner, who locks it.
 * Pure functions of their arguments. */
#ifndef TDICT_MEMORY_EXTENT_H
#define TDICT_MEMORY_EXTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes from begin to end, or some of them. */
typedef struct tdict_extent {
  size_t begin, end; /* counted from the storage's first byte, or addresses; equal: no byte */
  uint64_t layout;   /* 0: all bytes; else some: extents with one layout have the same bytes */
  /* Of some bytes: the `width` bytes from origin + n * pitch on, for every n. pitch 0: it is not known which. */
  size_t origin, pitch, width;
} tdict_extent;

static inline tdict_extent tdict_extent_all(size_t begin, size_t end) {
  return (tdict_extent){.begin = begin, .end = end, .origin = begin};
}
typedef enum tdict_overlap { TDICT_OVERLAP_NONE, TDICT_OVERLAP_UNKNOWN, TDICT_OVERLAP_YES } tdict_overlap;
tdict_overlap tdict_extent_overlap(const tdict_extent *a, const tdict_extent *b);

/* An array with room at both ends. */
typedef struct tdict_extents {
  tdict_extent *at;
  size_t first, count, cap; /* at[first] is the first one */
} tdict_extents;

/* A set of bytes. Adding and removing in the order of addresses takes constant time. */
typedef struct tdict_extent_set {
  tdict_extents dense;   /* sorted, apart from each other */
  tdict_extents strided; /* in no order; what is left of one layout may be several */
} tdict_extent_set;

/* False without memory; the set is unchanged. */
bool tdict_extent_set_add(tdict_extent_set *set, const tdict_extent *extent);
/* Removes only what the extent is sure to cover: an extent of some bytes covers extents with its own layout. An extent of
 * all bytes splits others, of some bytes up to 4096 times. False without memory to split an extent of all bytes; then that
 * one stays. One of some bytes that cannot be split stays, too. */
bool tdict_extent_set_remove(tdict_extent_set *set, const tdict_extent *extent);
/* False only if none of these bytes is in the set. */
bool tdict_extent_set_may_have(const tdict_extent_set *set, const tdict_extent *extent);
bool tdict_extent_set_is_empty(const tdict_extent_set *set);
void tdict_extent_set_reset(tdict_extent_set *set);

#endif
