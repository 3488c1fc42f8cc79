/* A key table: the names of one node, their order and a hash index. Counted, shared by all nodes with the same keys,
 * and copied by who changes it while it is shared. Slots of deleted keys stay, marked, until the table is compacted, so
 * that slot numbers of other keys do not change.
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
  uint32_t *index;               /* slot + 1, or 0 */
  struct tdict_names *names;     /* the bytes of the names */
  size_t name_bytes, dead_bytes; /* of names in use, and of names that nobody uses any more */
} tdict_keys;

tdict_keys *tdict_keys_create(void); /* NULL without memory */
tdict_keys *tdict_keys_retain(tdict_keys *keys);
void tdict_keys_release(tdict_keys *keys);
/* A private copy with the same slot numbers; NULL without memory. */
tdict_keys *tdict_keys_copy(const tdict_keys *keys);
/* The slot of a key (length bytes, no 0 needed), or -1. */
int64_t tdict_keys_find(const tdict_keys *keys, const char *name, size_t length);
/* The hash of a name, and the same search and addition where it is known already. */
uint32_t tdict_keys_hash(const char *name, size_t length);
int64_t tdict_keys_find_hashed(const tdict_keys *keys, const char *name, size_t length, uint32_t hash);
/* The following change a table that has one reference. */
/* A new slot at the end, or -1 without memory, in which case nothing has changed. The key is not there yet. */
int64_t tdict_keys_add(tdict_keys *keys, const char *name, size_t length);
int64_t tdict_keys_add_hashed(tdict_keys *keys, const char *name, size_t length, uint32_t hash);
void tdict_keys_delete(tdict_keys *keys, uint32_t slot);
/* Gives a slot another name that is not there yet; false without memory. */
bool tdict_keys_rename(tdict_keys *keys, uint32_t slot, const char *name, size_t length);
/* Gives `slot` the name of slot `from`, which is deleted. Needs no memory. */
void tdict_keys_take_name(tdict_keys *keys, uint32_t slot, uint32_t from);
/* Moves the live slots together, in order, and the elements of `leaves` with them. Needs no memory. */
void tdict_keys_compact(tdict_keys *keys, uintptr_t *leaves);

#endif
