/* Finding leaves that are the same bytes of one storage, so that they are sent once. A leaf that
 * cannot be met twice need not be added. Owned by one call; one thread. */
#ifndef TDICT_TRANSFER_PLAN_SAME_BYTES_H
#define TDICT_TRANSFER_PLAN_SAME_BYTES_H

#include "transfer/plan/plan.h"

enum { TDICT_SAME_BYTES_RUNS = 8 };

typedef struct tdict_same_bytes {
  uint32_t *table; /* number of an item + 1, or 0; by the address of the first element */
  const tdict_tensor **tensors;
  size_t cap, count; /* cap is a power of two, or 0 */
  const tdict_storage
      *runs[TDICT_SAME_BYTES_RUNS]; /* storages whose leaves came one behind the other; the last is going on */
  int num_runs;
  uintptr_t run_end;
} tdict_same_bytes;

/* The leaf is in C order and lies behind all leaves of its storage that were shown to this function, so none of them is the
 * same bytes: as in trees that were made whole. Once it answered false, all leaves belong into the table. */
bool tdict_same_bytes_follows(tdict_same_bytes *same, const tdict_tensor *t);

/* Writes to *place the number of an item that is the same bytes, or leaves it. */
void tdict_same_bytes_find(const tdict_same_bytes *same, const tdict_tensor *t, uint32_t *place);
/* Nobody else can hold these bytes: one tensor, held once, over a storage held once. */
bool tdict_same_bytes_is_alone(const tdict_tensor *t);
bool tdict_same_bytes_add(tdict_same_bytes *same, const tdict_tensor *t, uint32_t item); /* false without memory */
void tdict_same_bytes_reset(tdict_same_bytes *same);

#endif
