/* Copies bytes between a leaf of any layout on the host and memory in C order. The caller owns all memory. The
 * functions keep no state and are thread-safe. */
#ifndef TDICT_ENGINE_KINDS_LEAF_BYTES_H
#define TDICT_ENGINE_KINDS_LEAF_BYTES_H

#include "core/tensor/layout.h"
#include "engine/plan/plan.h"

/* Subtracts from an address as an integer. A leaf may begin before the slot, and pointer arithmetic outside the slot
 * would be undefined. */
static inline void *tdict_shift_back(const void *address, size_t back) { return (void *)((uintptr_t)address - back); }
/* Initializes the layouts of the destination and the source of an item. A side that is not used is in C order. Both
 * layouts have the element size of the source. If the source is not used and the item has a destination, both layouts
 * have the element size of the destination. */
void tdict_leaf_pair(tdict_pair *pair, const tdict_item *item, bool use_dst, bool use_src);
/* Copies a part of an item, or reads a part from an unloaded storage. Only reading can fail: returns the errors of
 * tdict_storage_read(). */
tdict_status tdict_leaf_copy(const tdict_item *item, bool use_dst, bool use_src, const tdict_pair_span *span,
                             tdict_error *err);
static inline bool tdict_leaf_goes_to_sink(const tdict_item *item) {
  return item->dst && tdict_storage_is_sink(item->dst->storage);
}
/* Writes bytes of an item to its sink. The bytes begin `at` bytes after the start of the destination. Returns the
 * errors of tdict_storage_write(). */
tdict_status tdict_leaf_write_sink(const tdict_item *item, size_t at, const char *bytes, size_t count,
                                   tdict_error *err);

#endif
