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
#include "tree/name.h"

typedef struct tdict_key {
  const char *name; /* ended by 0; NULL for a slot whose key was deleted */
  uint32_t length, hash;
} tdict_key;
typedef struct tdict_keys {
  _Atomic(int64_t) refs;
  uint32_t num_slots, num_live, cap_slots, cap_index; /* cap_index is a power of two, or 0 */
  uint32_t room;                                      /* slots up to which neither slots nor index have to grow */
  tdict_key *slots;
  uint32_t *index;               /* 0, or slot + 1 in the bits below cap_index and the hash in those above */
  struct tdict_names *names;     /* the bytes of the names; eight may be read at each */
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
/* Room for so many slots, and bytes of names with a 0 each; false without memory. */
bool tdict_keys_reserve(tdict_keys *keys, size_t slots, size_t name_bytes);
/* tdict_keys_append() of a name. */
int64_t tdict_keys_add(tdict_keys *keys, const char *name, size_t length);
void tdict_keys_delete(tdict_keys *keys, uint32_t slot);
/* Gives a slot another name that is not there yet; false without memory. */
bool tdict_keys_rename(tdict_keys *keys, uint32_t slot, const tdict_name *name);
/* Gives `slot` the name of slot `from`, which is deleted. Needs no memory. */
void tdict_keys_take_name(tdict_keys *keys, uint32_t slot, uint32_t from);
/* Moves the live slots together, in order, and the elements of `leaves` with them. Needs no memory. */
void tdict_keys_compact(tdict_keys *keys, uintptr_t *leaves);

enum { TDICT_SCANNED_SLOTS = 8 }; /* up to so many slots are compared one by one, without an index */

/* The slot of a name, or -1, by the index: of the table, some of that and one slot with its bytes are read. */
static inline int64_t tdict_keys_find_indexed(const tdict_keys *keys, const tdict_name *name) {
  const uint32_t mask = keys->cap_index - 1, *index = keys->index;
  uint32_t cell;
  for (uint32_t i = name->hash & mask; (cell = index[i]) != 0; i = (i + 1) & mask) {
    if ((cell ^ name->hash) & ~mask) continue;
    const uint32_t slot = (cell & mask) - 1;
    const tdict_key *key = &keys->slots[slot];
    if (key->length == name->length && tdict_name_is(name, key->name)) return slot;
  }
  return -1;
}

/* The slot of a name, or -1. A slot without a key has length and hash 0, which no name has. */
static inline int64_t tdict_keys_find_name(const tdict_keys *keys, const tdict_name *name) {
  if (keys->cap_index) return tdict_keys_find_indexed(keys, name);
  const tdict_key *slots = keys->slots;
  for (uint32_t i = 0; i < keys->num_slots; i++)
    if (slots[i].hash == name->hash && slots[i].length == name->length && tdict_name_is(name, slots[i].name)) return i;
  return -1;
}

/* Parts of the addition below: more room, and a name that is long or finds no room. */
bool tdict_keys_make_room(tdict_keys *keys, size_t slots);
const char *tdict_keys_store_name(tdict_keys *keys, const tdict_name *name);

/* A chunk of names. Only the first of the list has room; eight bytes more may be written behind it. */
struct tdict_names {
  struct tdict_names *next;
  size_t used, cap;
  char bytes[];
};

/* A new slot at the end, or -1 without memory, in which case nothing has changed. The key is not there yet. */
static inline int64_t tdict_keys_append(tdict_keys *keys, const tdict_name *name) {
  const uint32_t slot = keys->num_slots;
  const size_t length = name->length;
  struct tdict_names *names = keys->names;
  if (slot >= keys->room && !tdict_keys_make_room(keys, (size_t)slot + 1)) return -1;
  const char *stored;
  if (names && length <= TDICT_SHORT_NAME && names->cap - names->used > length) {
    char *to = names->bytes + names->used;
    tdict_name_copy(name, to);
    to[length] = 0;
    names->used += length + 1;
    keys->name_bytes += length + 1;
    stored = to;
  } else {
    stored = tdict_keys_store_name(keys, name);
    if (!stored) return -1;
  }
  keys->slots[slot] = (tdict_key){stored, (uint32_t)length, name->hash};
  keys->num_slots = slot + 1;
  keys->num_live++;
  if (keys->cap_index) {
    uint32_t *index = keys->index, mask = keys->cap_index - 1, i = name->hash & mask;
    while (index[i]) i = (i + 1) & mask;
    index[i] = (name->hash & ~mask) | (slot + 1);
  }
  return slot;
}

#endif
