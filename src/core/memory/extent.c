/* Implements extents and sets of extents. See extent.h for ownership and threads. */
#include "core/memory/extent.h"
#include "core/base/array.h"

#include <stdlib.h>
#include <string.h>

static bool is_unknown(const tdict_extent *e) { return e->layout != 0 && e->pitch == 0; }

/* Returns the distance from `from` to `to` modulo the pitch. */
static size_t offset_in_pitch(size_t from, size_t to, size_t pitch) {
  return to >= from ? (to - from) % pitch : (pitch - (from - to) % pitch) % pitch;
}

/* Returns the number of bytes that the extent covers in each row of `pitch` bytes, at most `pitch`. */
static size_t width_of(const tdict_extent *e, size_t pitch) {
  const size_t bytes = e->layout ? e->width : e->end - e->begin;
  return bytes < pitch ? bytes : pitch;
}

tdict_overlap tdict_extent_overlap(const tdict_extent *a, const tdict_extent *b) {
  if (a->begin == a->end || b->begin == b->end || a->end <= b->begin || b->end <= a->begin) return TDICT_OVERLAP_NONE;
  if (a->layout == b->layout && (!a->layout || a->origin == b->origin)) return TDICT_OVERLAP_YES;
  if (is_unknown(a) || is_unknown(b)) return TDICT_OVERLAP_UNKNOWN;
  const size_t pitch = a->layout ? a->pitch : b->pitch;
  if (b->layout && b->pitch != pitch) return TDICT_OVERLAP_UNKNOWN;
  /* Compare the first rows modulo the pitch. A dense extent counts as one row. */
  const size_t shift = offset_in_pitch(a->origin, b->origin, pitch);
  return shift < width_of(a, pitch) || pitch - shift < width_of(b, pitch) ? TDICT_OVERLAP_YES : TDICT_OVERLAP_NONE;
}

static const tdict_extent *extent_at(const tdict_extents *list, size_t i) { return &list->at[list->first + i]; }

/* Makes space for one more extent at the end. Returns false if memory is exhausted. */
static bool reserve_extent(tdict_extents *list) {
  if (list->first + list->count < list->cap) return true;
  /* Reuse the free entries at the front if these entries are more than half of the array. */
  if (list->first > list->cap / 2) {
    memmove(list->at, list->at + list->first, list->count * sizeof *list->at);
    list->first = 0;
    return true;
  }
  return tdict_array_grow(&list->at, &list->cap, list->cap + 1, sizeof *list->at);
}

static bool insert_extent(tdict_extents *list, size_t i, const tdict_extent *e) {
  if (!reserve_extent(list)) return false;
  tdict_extent *to = list->at + list->first + i;
  memmove(to + 1, to, (list->count - i) * sizeof *to);
  *to = *e;
  list->count++;
  return true;
}

/* Removes the extents [i, end), and closes the gap by moving the fewer of those before and after it. */
static void erase_extents(tdict_extents *list, size_t i, size_t end) {
  tdict_extent *first = list->at + list->first;
  if (i == end) return;
  if (i < list->count - end) {
    memmove(first + (end - i), first, i * sizeof *first);
    list->first += end - i;
  } else {
    memmove(first + i, first + end, (list->count - end) * sizeof *first);
  }
  list->count -= end - i;
}

/* Returns the index of the first dense extent that ends after `at`, or the number of extents. */
static size_t find_dense(const tdict_extents *list, size_t at) {
  size_t low = 0, high = list->count;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (extent_at(list, middle)->end <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Adds a dense extent, merged with those that it overlaps or touches. Returns false without memory. */
static bool add_dense(tdict_extents *list, tdict_extent e) {
  size_t i = find_dense(list, e.begin), end = i;
  if (i > 0 && extent_at(list, i - 1)->end == e.begin) i--;
  while (end < list->count && extent_at(list, end)->begin <= e.end) end++;
  if (i == end) return insert_extent(list, i, &e);
  if (extent_at(list, i)->begin < e.begin) e.begin = extent_at(list, i)->begin;
  if (extent_at(list, end - 1)->end > e.end) e.end = extent_at(list, end - 1)->end;
  list->at[list->first + i] = tdict_extent_all(e.begin, e.end);
  erase_extents(list, i + 1, end);
  return true;
}

/* Removes the bytes of `e` from dense extents. Returns false, changing nothing, if a split needs missing memory. */
static bool remove_dense(tdict_extents *list, const tdict_extent *e) {
  size_t i = find_dense(list, e->begin), end = i;
  if (i == list->count || extent_at(list, i)->begin >= e->end) return true;
  tdict_extent *first = list->at + list->first + i;
  if (first->begin < e->begin && first->end > e->end) {
    const tdict_extent after = tdict_extent_all(e->end, first->end);
    if (!insert_extent(list, i + 1, &after)) return false;
    list->at[list->first + i].end = e->begin;
    return true;
  }
  if (first->begin < e->begin) {
    first->end = e->begin;
    i = ++end;
  }
  while (end < list->count && extent_at(list, end)->end <= e->end) end++;
  if (end < list->count && extent_at(list, end)->begin < e->end)
    list->at[list->first + end] = tdict_extent_all(e->end, extent_at(list, end)->end);
  erase_extents(list, i, end);
  return true;
}

/* Shortens a strided extent with known rows at both sides, so that it begins and ends in rows, not in gaps. */
static void skip_gaps(tdict_extent *e) {
  if (e->begin >= e->end || is_unknown(e)) return;
  const size_t first = offset_in_pitch(e->origin, e->begin, e->pitch),
               last = offset_in_pitch(e->origin, e->end - 1, e->pitch);
  if (first >= e->width) e->begin += e->pitch - first;
  if (last >= e->width) e->end -= last - e->width + 1;
}

/* The list is not sorted, so splits stop at this number of strided extents, which keeps searches fast. */
enum { MAX_STRIDED_PARTS = 4096 };

/* Removes the bytes [begin, end) from the strided extents. If an extent has bytes on both sides of this range, the
 * extent is split into two extents of the same layout. If memory is exhausted or the list has MAX_STRIDED_PARTS
 * extents, the extent stays whole. The set can thus contain too many bytes, but never too few. */
static void trim_strided(tdict_extents *list, size_t begin, size_t end) {
  for (size_t i = list->count; i-- > 0;) {
    tdict_extent *e = &list->at[list->first + i], after = *e;
    if (end <= e->begin || begin >= e->end) continue;
    if (begin > e->begin && end < e->end) {
      after.begin = end;
      skip_gaps(&after);
      if (after.begin < after.end && (list->count >= MAX_STRIDED_PARTS || !insert_extent(list, i + 1, &after)))
        continue;
      e = &list->at[list->first + i];
      e->end = begin;
    } else {
      if (begin <= e->begin) e->begin = end < e->end ? end : e->end;
      if (end >= e->end) e->end = begin > e->begin ? begin : e->begin;
    }
    skip_gaps(e);
    if (e->begin >= e->end) erase_extents(list, i, i + 1);
  }
}

static void remove_layout(tdict_extents *list, uint64_t layout) {
  for (size_t i = list->count; i-- > 0;)
    if (extent_at(list, i)->layout == layout) erase_extents(list, i, i + 1);
}

bool tdict_extent_set_add(tdict_extent_set *set, const tdict_extent *e) {
  if (e->begin == e->end) return true;
  if (!e->layout) return add_dense(&set->dense, *e);
  for (size_t i = 0; i < set->strided.count; i++)
    if (extent_at(&set->strided, i)->layout ==
        e->layout) { /* The new extent contains all parts of this layout that trim_strided() has left. */
      const tdict_extent whole = *e;
      remove_layout(&set->strided, e->layout);
      return insert_extent(&set->strided, set->strided.count, &whole);
    }
  return insert_extent(&set->strided, set->strided.count, e);
}

bool tdict_extent_set_remove(tdict_extent_set *set, const tdict_extent *e) {
  if (e->begin == e->end) return true;
  if (e->layout) {
    remove_layout(&set->strided, e->layout);
    return true;
  }
  trim_strided(&set->strided, e->begin, e->end);
  return remove_dense(&set->dense, e);
}

bool tdict_extent_set_may_have(const tdict_extent_set *set, const tdict_extent *e) {
  for (size_t i = find_dense(&set->dense, e->begin); i < set->dense.count; i++) {
    if (extent_at(&set->dense, i)->begin >= e->end) break;
    if (tdict_extent_overlap(extent_at(&set->dense, i), e) != TDICT_OVERLAP_NONE) return true;
  }
  for (size_t i = 0; i < set->strided.count; i++)
    if (tdict_extent_overlap(extent_at(&set->strided, i), e) != TDICT_OVERLAP_NONE) return true;
  return false;
}

bool tdict_extent_set_is_empty(const tdict_extent_set *set) { return set->dense.count == 0 && set->strided.count == 0; }

void tdict_extent_set_reset(tdict_extent_set *set) {
  free(set->dense.at);
  free(set->strided.at);
  memset(set, 0, sizeof *set);
}
