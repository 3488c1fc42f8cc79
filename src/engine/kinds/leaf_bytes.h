/* Copies between host leaves of any layout and memory of the caller in C order. Keeps no state; thread-safe. */
#ifndef TDICT_ENGINE_KINDS_LEAF_BYTES_H
#define TDICT_ENGINE_KINDS_LEAF_BYTES_H

#include "core/tensor/layout.h"
#include "engine/plan/plan.h"

/* Subtracts as integers: a leaf may begin before the slot, where pointer arithmetic would be undefined. */
static inline void *tdict_shift_back(const void *address, size_t back) { return (void *)((uintptr_t)address - back); }
/* Initializes the layouts of the destination and the source of an item. A side that is not used is in C order. Both
 * have the element size of the source, or of the destination if the source is not used and there is a destination. */
void tdict_leaf_pair(tdict_pair *pair, const tdict_item *item, bool use_dst, bool use_src);
/* Copies a part of an item, also from an unloaded storage. Returns the errors of tdict_storage_read(). */
tdict_status tdict_leaf_copy(const tdict_item *item, bool use_dst, bool use_src, const tdict_pair_span *span,
                             tdict_error *err);
static inline bool tdict_leaf_goes_to_sink(const tdict_item *item) {
  return item->dst && tdict_storage_is_sink(item->dst->storage);
}
/* Writes bytes, `at` bytes after the start of the destination, to a sink. Errors: tdict_storage_write(). */
tdict_status tdict_leaf_write_sink(const tdict_item *item, size_t at, const char *bytes, size_t count,
                                   tdict_error *err);

#endif
