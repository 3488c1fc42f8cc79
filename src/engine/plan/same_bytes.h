/* Finds leaves that cover exactly the same bytes of one storage, so that these bytes are copied once. The table belongs
 * to one tdict_plan_collect() call. Thread rule: only the thread of this call uses the table. */
#ifndef TDICT_ENGINE_PLAN_SAME_BYTES_H
#define TDICT_ENGINE_PLAN_SAME_BYTES_H

#include "engine/plan/plan.h"

enum { TDICT_SAME_BYTES_RUNS = 8 };

typedef struct tdict_same_bytes {
  uint32_t *table; /* number of an item plus 1; 0: the entry is empty. The hash key is the address of the first
                    * element */
  const tdict_tensor **tensors;
  size_t cap, count; /* cap is a power of two, or 0 */
  const tdict_storage
      /* storages for which tdict_same_bytes_follows() has returned true; the last of these is the current storage */
      *runs[TDICT_SAME_BYTES_RUNS];
  int num_runs;
  uintptr_t run_end; /* end address of the last leaf in the current storage */
  /* borrowed; the plan with the conversions of the items, and the conversion of the leaf that is searched. NULL: no
   * leaf is converted */
  const tdict_plan *plan;
  const tdict_item_cast *wanted;
} tdict_same_bytes;

/* Returns true only if the leaf is in C order and begins at or after the end of all leaves of its storage that were
 * passed to this function. If the result is true, no earlier leaf covers the same bytes. The result can be false even
 * if no earlier leaf covers the same bytes. Examples are an empty leaf, leaves that alternate between storages, and a
 * leaf after TDICT_SAME_BYTES_RUNS other storages. After the function has returned false, the caller must add all
 * leaves to the table. */
bool tdict_same_bytes_follows(tdict_same_bytes *same, const tdict_tensor *t);

/* If an item covers the same bytes as `t` and has the same conversion, writes the item's number to *place. Otherwise
 * leaves *place unchanged. */
void tdict_same_bytes_find(const tdict_same_bytes *same, const tdict_tensor *t, uint32_t *place);
/* Returns true if no other tensor can use the tensor's storage: the tensor and the storage have one reference each.
 * Returns false for tensors in a slab, which have no reference counts of their own. */
bool tdict_same_bytes_is_unshared(const tdict_tensor *t);
/* Adds the tensor of an item to the table. Returns false if memory is exhausted. */
bool tdict_same_bytes_add(tdict_same_bytes *same, const tdict_tensor *t, uint32_t item);
void tdict_same_bytes_reset(tdict_same_bytes *same);

#endif
