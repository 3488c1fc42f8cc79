/* A key table: the names of one node, their order and a hash index. Counted, shared by all nodes with the same keys, and
 * copied by who changes it while it is shared. Slots of deleted keys stay, marked, until the table is compacted, so that
 * slot numbers of other keys do not change.
 * Thread rule: a table that is shared is never changed; counting is safe everywhere. */
#ifndef TDICT_TREE_KEYS_H
#define TDICT_TREE_KEYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tdict/status.h"

typedef struct tdict_key {
  const char *name; /* ended by 0; NULL for a slot whose key was deleted */
  uint32_t length, hash;
} tdict_key;
typedef struct tdict_keys {
  _Atomic(int64_t) refs;
  uint32_t num_slots, num_live, cap_slots, cap_index; /* cap_index is a power of two, or 0 */
  tdict_key *slots;
  uint32_t *index;    /* slot + 1, or 0 */
  struct tdict_names *names; /* the bytes of the names */
} tdict_keys;

tdict_keys *tdict_keys_create(void); /* NULL without memory */
tdict_keys *tdict_keys_retain(tdict_keys *keys);
void tdict_keys_release(tdict_keys *keys);
/* A private copy with the same slot numbers; NULL without memory. */
tdict_keys *tdict_keys_copy(const tdict_keys *keys);
/* The slot of a key (length bytes, no 0 needed), or -1. */
int64_t tdict_keys_find(const tdict_keys *keys, const char *name, size_t length);
/* The following change a table that has one reference. */
/* A new slot at the end, or -1 without memory, in which case nothing has changed. The key is not there yet. */
int64_t tdict_keys_add(tdict_keys *keys, const char *name, size_t length);
void tdict_keys_delete(tdict_keys *keys, uint32_t slot);
/* Gives a slot another name that is not there yet; false without memory. */
bool tdict_keys_rename(tdict_keys *keys, uint32_t slot, const char *name, size_t length);

#endif
