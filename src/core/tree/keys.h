/* A key table holds the names of a node's keys in order, and a hash index for more than 8 slots. Tables are
 * reference-counted and shared by nodes; a node copies a shared one before a change. The slot of a deleted key stays
 * until the table is compacted, so that other slots keep their numbers. Thread rule: a shared table is never changed;
 * the reference count is thread-safe. */
#ifndef TDICT_CORE_TREE_KEYS_H
#define TDICT_CORE_TREE_KEYS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/tree/name.h"
#include "tdict/status.h"

typedef struct tdict_key {
  const char *name; /* terminated by 0; NULL if the key of the slot was deleted */
  uint32_t length, hash;
} tdict_key;
/* Writes a key as it stands in paths, and a final 0. Returns the address of the 0. Writes at most 1 + 2 * key->length
 * bytes. */
static inline char *tdict_key_write(char *to, const tdict_key *key) {
  for (const char *c = key->name; *c; c++) {
    if (*c == '.' || *c == '\\') *to++ = '\\';
    *to++ = *c;
  }
  *to = 0;
  return to;
}
typedef struct tdict_keys {
  _Atomic(int64_t) refs;
  uint32_t num_slots, num_live, cap_slots, cap_index; /* cap_index is a power of two, or 0 */
  uint32_t room; /* if num_slots is `room` or more, an append must first grow `slots` or `index` */
  tdict_key *slots;
  /* An unused cell is 0. In other cells, the bits of cap_index - 1 hold slot + 1, and the rest are bits of the hash. */
  uint32_t *index;
  struct tdict_names *names;     /* the bytes of the names; 8 bytes can be read at each name */
  size_t name_bytes, dead_bytes; /* bytes of names in use; bytes of names that no slot uses any more */
} tdict_keys;

tdict_keys *tdict_keys_create(void); /* returns NULL if memory is exhausted */
tdict_keys *tdict_keys_retain(tdict_keys *keys);
void tdict_keys_release(tdict_keys *keys);
/* Makes a copy with the same slot numbers and one reference. Returns NULL if memory is exhausted. */
tdict_keys *tdict_keys_copy(const tdict_keys *keys);
/* Returns the slot of a key of `length` bytes, without a final 0, or -1. */
int64_t tdict_keys_find(const tdict_keys *keys, const char *name, size_t length);
/* Returns the slot of a key of another table, or -1. */
int64_t tdict_keys_find_key(const tdict_keys *keys, const tdict_key *key);
/* Finds a key of another table like tdict_keys_find_key(). Looks first at slot `guess`, because tables that were filled
 * in the same order have equal slots. */
int64_t tdict_keys_find_near(const tdict_keys *keys, const tdict_key *key, int64_t guess);
/* Returns the first key that `base` lacks, or NULL. A table that has no more keys than `base` is not searched. */
const tdict_key *tdict_keys_find_extra(const tdict_keys *keys, const tdict_keys *base);
static inline tdict_name tdict_key_name(const tdict_key *key) {
  tdict_name name = {key->name, key->length, 0, 0, key->hash};
  tdict_name_words(&name);
  return name;
}
/* The functions from here to tdict_keys_compact() change the table, which must have only one reference. The same holds
 * for tdict_keys_append(). */

/* Allocates room for slots and names with a 0 each. Returns false without memory, or for more than 2^30 slots. */
bool tdict_keys_reserve(tdict_keys *keys, size_t slots, size_t name_bytes);
/* Deletes the key of a slot. The slot numbers of other keys do not change. Cannot fail. */
void tdict_keys_delete(tdict_keys *keys, uint32_t slot);
/* Renames a slot's key to a new name. False, without a change: no memory, or a name of 2^32 - 1 bytes or more. */
bool tdict_keys_rename(tdict_keys *keys, uint32_t slot, const tdict_name *name);
/* Moves the name of slot `from` to `slot` and deletes slot `from`. Cannot fail. */
void tdict_keys_take_name(tdict_keys *keys, uint32_t slot, uint32_t from);
/* Removes deleted slots, keeps the order, and moves the elements of `leaves` to the new slot numbers. Cannot fail. */
void tdict_keys_compact(tdict_keys *keys, uintptr_t *leaves);

/* The maximum number of slots of a table without an index. In such a table, a search compares the slots one by one. */
enum { TDICT_SCANNED_SLOTS = 8 };

/* Returns the slot of a name, or -1. Needs an index. Normally reads one cell, one slot and one name. */
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

/* Returns the slot of a name, or -1. A deleted slot has length 0 and hash 0 and so matches no name. */
static inline int64_t tdict_keys_find_name(const tdict_keys *keys, const tdict_name *name) {
  if (keys->cap_index) return tdict_keys_find_indexed(keys, name);
  const tdict_key *slots = keys->slots;
  for (uint32_t i = 0; i < keys->num_slots; i++)
    if (slots[i].hash == name->hash && slots[i].length == name->length && tdict_name_is(name, slots[i].name)) return i;
  return -1;
}

/* For tdict_keys_append(): grow the table, and store a name that is long or needs a new chunk. */
bool tdict_keys_make_room(tdict_keys *keys, size_t slots);
const char *tdict_keys_store_name(tdict_keys *keys, const tdict_name *name);

/* A chunk of names. Only the first one grows. 8 bytes follow `cap`, because names are written in words. */
struct tdict_names {
  struct tdict_names *next;
  size_t used, cap;
  char bytes[];
};

/* Appends a key, which must not be in the table, and returns its slot. Returns -1 if memory is exhausted, the table has
 * 2^30 slots, or the name has 2^32 - 1 bytes or more. On failure, the table keeps its keys. */
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
