/* Key tables: slots in insertion order, names in chunks, an index with linear probing that is at most half full.
 * A table is owned by the nodes that count it. Thread rule: see keys.h. */
#include "tree/keys.h"

#include <stdlib.h>
#include <string.h>

enum {
  FIRST_SLOTS = 8,
  SCANNED_SLOTS = 8, /* up to so many slots are compared one by one, without an index */
  FIRST_NAMES = 96,
  MOST_NAMES = 1 << 16,
  REPACK_BYTES = 1024 /* fewer dead bytes are not worth a new chunk */
};
#define MOST_SLOTS ((uint32_t)1 << 30)

/* A chunk of names. Only the first of the list has room. */
struct tdict_names {
  struct tdict_names *next;
  size_t used, cap;
  char bytes[];
};
typedef struct tdict_names names_chunk;

static void free_names(names_chunk *chunk) {
  while (chunk) {
    names_chunk *next = chunk->next;
    free(chunk);
    chunk = next;
  }
}

static names_chunk *new_names(size_t cap) {
  names_chunk *chunk = malloc(sizeof *chunk + cap);
  if (!chunk) return NULL;
  chunk->next = NULL;
  chunk->used = 0;
  chunk->cap = cap;
  return chunk;
}

/* A copy of a name, ended by 0; NULL without memory. */
static const char *store_name(tdict_keys *keys, const char *name, size_t length) {
  names_chunk *chunk = keys->names;
  if (!chunk || chunk->cap - chunk->used < length + 1) {
    size_t cap = chunk ? chunk->cap * 2 : FIRST_NAMES;
    if (cap < FIRST_NAMES) cap = FIRST_NAMES;
    if (cap > MOST_NAMES) cap = MOST_NAMES;
    if (cap < length + 1) cap = length + 1;
    chunk = new_names(cap);
    if (!chunk) return NULL;
    chunk->next = keys->names;
    keys->names = chunk;
  }
  char *stored = chunk->bytes + chunk->used;
  memcpy(stored, name, length);
  stored[length] = 0;
  chunk->used += length + 1;
  keys->name_bytes += length + 1;
  return stored;
}

/* Moves the names of `from`'s live slots to one chunk of `to`, which has as many slots. False without memory. */
static bool pack_names(tdict_keys *to, const tdict_keys *from) {
  names_chunk *chunk = new_names(from->name_bytes);
  if (!chunk) return false;
  for (uint32_t i = 0; i < from->num_slots; i++) {
    const tdict_key *key = &from->slots[i];
    to->slots[i] = *key;
    if (!key->name) continue;
    to->slots[i].name = memcpy(chunk->bytes + chunk->used, key->name, (size_t)key->length + 1);
    chunk->used += (size_t)key->length + 1;
  }
  if (to == from) free_names(to->names);
  to->names = chunk;
  to->name_bytes = from->name_bytes;
  to->dead_bytes = 0;
  return true;
}

/* Gives dead names back when they are more than half; without memory for that they stay. */
static void drop_dead_names(tdict_keys *keys) {
  if (keys->dead_bytes > REPACK_BYTES && keys->dead_bytes > keys->name_bytes) (void)pack_names(keys, keys);
}

static void forget_name(tdict_keys *keys, const tdict_key *key) {
  keys->name_bytes -= (size_t)key->length + 1;
  keys->dead_bytes += (size_t)key->length + 1;
}

tdict_keys *tdict_keys_create(void) {
  tdict_keys *keys = calloc(1, sizeof *keys);
  if (keys) atomic_init(&keys->refs, 1);
  return keys;
}

tdict_keys *tdict_keys_retain(tdict_keys *keys) {
  atomic_fetch_add_explicit(&keys->refs, 1, memory_order_relaxed);
  return keys;
}

void tdict_keys_release(tdict_keys *keys) {
  if (!keys || atomic_fetch_sub_explicit(&keys->refs, 1, memory_order_acq_rel) != 1) return;
  free_names(keys->names);
  free(keys->slots);
  free(keys->index);
  free(keys);
}

tdict_keys *tdict_keys_copy(const tdict_keys *keys) {
  tdict_keys *copy = tdict_keys_create();
  if (!copy) return NULL;
  copy->num_slots = keys->num_slots;
  copy->num_live = keys->num_live;
  /* One slot to spare: a copy is made to be changed. */
  copy->cap_slots = keys->num_slots < FIRST_SLOTS ? FIRST_SLOTS : keys->num_slots + 1;
  copy->slots = malloc(copy->cap_slots * sizeof *copy->slots);
  if (!copy->slots || !pack_names(copy, keys)) goto failed;
  if (keys->cap_index) {
    copy->cap_index = keys->cap_index;
    copy->index = malloc(copy->cap_index * sizeof *copy->index);
    if (!copy->index) goto failed;
    memcpy(copy->index, keys->index, copy->cap_index * sizeof *copy->index);
  }
  return copy;
failed:
  tdict_keys_release(copy);
  return NULL;
}

/* FNV-1a, with its bits mixed once more because the index looks at the low ones only. */
uint32_t tdict_keys_hash(const char *name, size_t length) {
  uint32_t h = 2166136261u;
  for (size_t i = 0; i < length; i++) h = (h ^ (unsigned char)name[i]) * 16777619u;
  h ^= h >> 16;
  h *= 0x7feb352du;
  return h ^ h >> 15;
}

static bool is_named(const tdict_key *key, const char *name, size_t length, uint32_t hash) {
  return key->hash == hash && key->length == length && key->name && memcmp(key->name, name, length) == 0;
}

int64_t tdict_keys_find_hashed(const tdict_keys *keys, const char *name, size_t length, uint32_t hash) {
  if (!keys->cap_index) {
    for (uint32_t i = 0; i < keys->num_slots; i++)
      if (is_named(&keys->slots[i], name, length, hash)) return i;
    return -1;
  }
  uint32_t mask = keys->cap_index - 1;
  for (uint32_t i = hash & mask; keys->index[i]; i = (i + 1) & mask)
    if (is_named(&keys->slots[keys->index[i] - 1], name, length, hash)) return keys->index[i] - 1;
  return -1;
}

int64_t tdict_keys_find(const tdict_keys *keys, const char *name, size_t length) {
  return tdict_keys_find_hashed(keys, name, length, tdict_keys_hash(name, length));
}

static void index_put(tdict_keys *keys, uint32_t slot) {
  if (!keys->cap_index) return;
  uint32_t mask = keys->cap_index - 1, i = keys->slots[slot].hash & mask;
  while (keys->index[i]) i = (i + 1) & mask;
  keys->index[i] = slot + 1;
}

/* Fills an index that is all 0. */
static void index_fill(tdict_keys *keys) {
  for (uint32_t i = 0; i < keys->num_slots; i++)
    if (keys->slots[i].name) index_put(keys, i);
}

/* Takes a slot out and moves back what probed over it, so that no marks of the deleted are needed. */
static void index_drop(tdict_keys *keys, uint32_t slot) {
  if (!keys->cap_index) return;
  uint32_t mask = keys->cap_index - 1, hole = keys->slots[slot].hash & mask;
  while (keys->index[hole] != slot + 1) hole = (hole + 1) & mask;
  for (uint32_t i = (hole + 1) & mask; keys->index[i]; i = (i + 1) & mask) {
    uint32_t home = keys->slots[keys->index[i] - 1].hash & mask;
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    keys->index[hole] = keys->index[i];
    hole = i;
  }
  keys->index[hole] = 0;
}

static bool reserve_slot(tdict_keys *keys) {
  if (keys->num_slots < keys->cap_slots) return true;
  if (keys->cap_slots >= MOST_SLOTS) return false;
  uint32_t cap = keys->cap_slots ? keys->cap_slots * 2 : FIRST_SLOTS;
  tdict_key *slots = realloc(keys->slots, cap * sizeof *slots);
  if (!slots) return false;
  keys->slots = slots;
  keys->cap_slots = cap;
  return true;
}

static bool reserve_index(tdict_keys *keys) {
  if (!keys->cap_index && keys->num_slots < SCANNED_SLOTS) return true;
  if ((keys->num_live + 1) * 2 <= keys->cap_index) return true;
  uint32_t cap = keys->cap_index ? keys->cap_index : SCANNED_SLOTS;
  while (cap < (keys->num_live + 1) * 2) cap *= 2;
  uint32_t *index = calloc(cap, sizeof *index);
  if (!index) return false;
  free(keys->index);
  keys->index = index;
  keys->cap_index = cap;
  index_fill(keys);
  return true;
}

int64_t tdict_keys_add_hashed(tdict_keys *keys, const char *name, size_t length, uint32_t hash) {
  if (length >= UINT32_MAX || !reserve_slot(keys) || !reserve_index(keys)) return -1;
  const char *stored = store_name(keys, name, length);
  if (!stored) return -1;
  uint32_t slot = keys->num_slots++;
  keys->slots[slot] = (tdict_key){stored, (uint32_t)length, hash};
  keys->num_live++;
  index_put(keys, slot);
  return slot;
}

int64_t tdict_keys_add(tdict_keys *keys, const char *name, size_t length) {
  return tdict_keys_add_hashed(keys, name, length, tdict_keys_hash(name, length));
}

void tdict_keys_delete(tdict_keys *keys, uint32_t slot) {
  index_drop(keys, slot);
  forget_name(keys, &keys->slots[slot]);
  keys->slots[slot] = (tdict_key){NULL, 0, 0};
  keys->num_live--;
}

bool tdict_keys_rename(tdict_keys *keys, uint32_t slot, const char *name, size_t length) {
  if (length >= UINT32_MAX) return false;
  uint32_t hash = tdict_keys_hash(name, length);
  const char *stored = store_name(keys, name, length);
  if (!stored) return false;
  index_drop(keys, slot);
  forget_name(keys, &keys->slots[slot]);
  keys->slots[slot] = (tdict_key){stored, (uint32_t)length, hash};
  index_put(keys, slot);
  drop_dead_names(keys);
  return true;
}

void tdict_keys_take_name(tdict_keys *keys, uint32_t slot, uint32_t from) {
  tdict_key taken = keys->slots[from];
  index_drop(keys, slot);
  index_drop(keys, from);
  forget_name(keys, &keys->slots[slot]);
  keys->slots[slot] = taken;
  keys->slots[from] = (tdict_key){NULL, 0, 0};
  keys->num_live--;
  index_put(keys, slot);
}

void tdict_keys_compact(tdict_keys *keys, uintptr_t *leaves) {
  uint32_t live = 0;
  for (uint32_t i = 0; i < keys->num_slots; i++) {
    if (!keys->slots[i].name) continue;
    keys->slots[live] = keys->slots[i];
    leaves[live++] = leaves[i];
  }
  keys->num_slots = live;
  /* The index shrinks with the table, else a small table that was large once would be cleared at its old cost. */
  if (live <= SCANNED_SLOTS) {
    free(keys->index);
    keys->index = NULL;
    keys->cap_index = 0;
  } else {
    while (keys->cap_index >= 8 * live) keys->cap_index /= 2;
    memset(keys->index, 0, keys->cap_index * sizeof *keys->index);
    index_fill(keys);
  }
  drop_dead_names(keys);
}
