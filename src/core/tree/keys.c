/* Implements key tables: slots in insertion order, names in chunks, and a hash index with linear probing. A key table
 * is owned jointly by the nodes that use it. Thread rule: see keys.h. */
#include "core/tree/keys.h"

#include <stdlib.h>
#include <string.h>

enum {
  FIRST_SLOTS = 8,
  FIRST_NAMES = 96,
  NAME_SLACK = TDICT_WORD_BYTES, /* names are read and written in words, so up to 7 bytes past a name are touched */
  MOST_NAMES = 1 << 16,
  REPACK_BYTES = 1024 /* names are repacked only if deleted names have more bytes than this limit */
};
#define MOST_SLOTS ((uint32_t)1 << 30)

typedef struct tdict_names names_chunk;

static void free_name_chunks(names_chunk *chunk) {
  while (chunk) {
    names_chunk *next = chunk->next;
    free(chunk);
    chunk = next;
  }
}

static names_chunk *new_name_chunk(size_t cap) {
  names_chunk *chunk = malloc(sizeof *chunk + cap + NAME_SLACK);
  if (!chunk) return NULL;
  chunk->next = NULL;
  chunk->used = 0;
  chunk->cap = cap;
  return chunk;
}

/* Adds a chunk with room for at least `bytes` bytes. Returns NULL if memory is exhausted. */
static names_chunk *add_name_chunk(tdict_keys *keys, size_t bytes) {
  names_chunk *chunk = keys->names;
  /* Doubling keeps the number of chunks small. The limit MOST_NAMES bounds the unused bytes of a large table. */
  size_t cap = chunk ? chunk->cap * 2 : FIRST_NAMES;
  if (cap < FIRST_NAMES) cap = FIRST_NAMES;
  if (cap > MOST_NAMES) cap = MOST_NAMES;
  if (cap < bytes) cap = bytes;
  chunk = new_name_chunk(cap);
  if (!chunk) return NULL;
  chunk->next = keys->names;
  keys->names = chunk;
  return chunk;
}

const char *tdict_keys_store_name(tdict_keys *keys, const tdict_name *name) {
  names_chunk *chunk = keys->names;
  /* tdict_key stores the length in 32 bits. */
  if (name->length >= UINT32_MAX) return NULL;
  if (!chunk || chunk->cap - chunk->used <= name->length) chunk = add_name_chunk(keys, name->length + 1);
  if (!chunk) return NULL;
  char *stored = chunk->bytes + chunk->used;
  tdict_name_copy(name, stored);
  stored[name->length] = 0;
  chunk->used += name->length + 1;
  keys->name_bytes += name->length + 1;
  return stored;
}

/* Copies slots and live names of `from` to `to`, which may be `from`, into one new chunk. False: no memory. */
static bool pack_names(tdict_keys *to, const tdict_keys *from) {
  names_chunk *chunk = new_name_chunk(from->name_bytes);
  if (!chunk) return false;
  for (uint32_t i = 0; i < from->num_slots; i++) {
    const tdict_key *key = &from->slots[i];
    to->slots[i] = *key;
    if (!key->name) continue;
    to->slots[i].name = memcpy(chunk->bytes + chunk->used, key->name, (size_t)key->length + 1);
    chunk->used += (size_t)key->length + 1;
  }
  /* If a table is repacked, free its old chunks only now, after every name was copied. */
  if (to == from) free_name_chunks(to->names);
  to->names = chunk;
  to->name_bytes = from->name_bytes;
  to->dead_bytes = 0;
  return true;
}

/* Frees the bytes of unused names, if more than REPACK_BYTES and those in use, and memory for a chunk is there. */
static void repack_dead_names(tdict_keys *keys) {
  if (keys->dead_bytes > REPACK_BYTES && keys->dead_bytes > keys->name_bytes) (void)pack_names(keys, keys);
}

/* Counts the bytes of a name as dead bytes, no longer as bytes in use. */
static void count_dead_name(tdict_keys *keys, const tdict_key *key) {
  keys->name_bytes -= (size_t)key->length + 1;
  keys->dead_bytes += (size_t)key->length + 1;
}

/* Returns the maximum number of slots for an index of `cells` cells. A half-full index keeps probe sequences short. */
static uint32_t max_indexed_slots(uint32_t cells) { return cells / 2; }

/* Recomputes `room`, so that an append checks one limit instead of two. */
static void update_room(tdict_keys *keys) {
  const uint32_t indexed = keys->cap_index ? max_indexed_slots(keys->cap_index) : TDICT_SCANNED_SLOTS;
  keys->room = indexed < keys->cap_slots ? indexed : keys->cap_slots;
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
  free_name_chunks(keys->names);
  free(keys->slots);
  free(keys->index);
  free(keys);
}

tdict_keys *tdict_keys_copy(const tdict_keys *keys) {
  tdict_keys *copy = tdict_keys_create();
  if (!copy) return NULL;
  copy->num_slots = keys->num_slots;
  copy->num_live = keys->num_live;
  /* Leave room for one more slot, because the caller copies the table to change it. */
  copy->cap_slots = keys->num_slots < FIRST_SLOTS ? FIRST_SLOTS : keys->num_slots + 1;
  copy->slots = malloc(copy->cap_slots * sizeof *copy->slots);
  if (!copy->slots || !pack_names(copy, keys)) goto failed;
  /* Slot numbers are the same, so the index can be copied without changes. */
  if (keys->cap_index) {
    copy->cap_index = keys->cap_index;
    copy->index = malloc(copy->cap_index * sizeof *copy->index);
    if (!copy->index) goto failed;
    memcpy(copy->index, keys->index, copy->cap_index * sizeof *copy->index);
  }
  update_room(copy);
  return copy;
failed:
  tdict_keys_release(copy);
  return NULL;
}

int64_t tdict_keys_find_key(const tdict_keys *keys, const tdict_key *key) {
  const tdict_name wanted = tdict_key_name(key);
  return tdict_keys_find_name(keys, &wanted);
}

int64_t tdict_keys_find_near(const tdict_keys *keys, const tdict_key *key, int64_t guess) {
  const tdict_key *slot = guess < keys->num_slots ? &keys->slots[guess] : NULL;
  if (slot && slot->name && slot->hash == key->hash && slot->length == key->length &&
      memcmp(slot->name, key->name, key->length) == 0)
    return guess;
  return tdict_keys_find_key(keys, key);
}

const tdict_key *tdict_keys_find_extra(const tdict_keys *keys, const tdict_keys *base) {
  if (keys == base || keys->num_live <= base->num_live) return NULL;
  for (uint32_t i = 0; i < keys->num_slots; i++)
    if (keys->slots[i].name && tdict_keys_find_key(base, &keys->slots[i]) < 0) return &keys->slots[i];
  return NULL;
}

int64_t tdict_keys_find(const tdict_keys *keys, const char *name, size_t length) {
  const tdict_name wanted = tdict_name_of(name, length);
  return tdict_keys_find_name(keys, &wanted);
}

static void index_put(tdict_keys *keys, uint32_t slot, uint32_t hash) {
  uint32_t *index = keys->index, mask = keys->cap_index - 1, i = hash & mask;
  while (index[i]) i = (i + 1) & mask;
  index[i] = (hash & ~mask) | (slot + 1);
}

/* Adds all live slots to an index whose cells are 0. */
static void index_fill(tdict_keys *keys) {
  for (uint32_t i = 0; i < keys->num_slots; i++)
    if (keys->slots[i].name) index_put(keys, i, keys->slots[i].hash);
}

/* Adds a slot to the index, if the table has an index. */
static void index_put_slot(tdict_keys *keys, uint32_t slot) {
  if (keys->cap_index) index_put(keys, slot, keys->slots[slot].hash);
}

/* Removes a slot from the index, and moves later cells of the probe sequence, so that no marker is needed. */
static void index_remove(tdict_keys *keys, uint32_t slot) {
  if (!keys->cap_index) return;
  /* Find the cell of the slot. */
  uint32_t mask = keys->cap_index - 1, hole = keys->slots[slot].hash & mask;
  while ((keys->index[hole] & mask) != slot + 1) hole = (hole + 1) & mask;
  for (uint32_t i = (hole + 1) & mask; keys->index[i]; i = (i + 1) & mask) {
    /* Move a cell if the hole is between its home and itself: a search would otherwise stop at the hole. */
    uint32_t home = keys->slots[(keys->index[i] & mask) - 1].hash & mask;
    if (((i - home) & mask) < ((i - hole) & mask)) continue;
    keys->index[hole] = keys->index[i];
    hole = i;
  }
  keys->index[hole] = 0;
}

/* Allocates room for `count` slots. Returns false if memory is exhausted or `count` is too large. */
static bool reserve_slots(tdict_keys *keys, size_t count) {
  if (count <= keys->cap_slots) return true;
  if (count > MOST_SLOTS) return false;
  size_t cap = keys->cap_slots ? (size_t)keys->cap_slots * 2 : FIRST_SLOTS;
  if (cap < count) cap = count;
  tdict_key *slots = realloc(keys->slots, cap * sizeof *slots);
  if (!slots) return false;
  keys->slots = slots;
  keys->cap_slots = (uint32_t)cap;
  return true;
}

/* Makes the index large enough for `count` slots. Small tables need no index. Returns false if memory is exhausted. */
static bool reserve_index(tdict_keys *keys, size_t count) {
  if (!keys->cap_index && count <= TDICT_SCANNED_SLOTS) return true;
  if (keys->cap_index && count <= max_indexed_slots(keys->cap_index)) return true;
  uint32_t cap = keys->cap_index ? keys->cap_index : TDICT_SCANNED_SLOTS;
  while (max_indexed_slots(cap) < count) cap *= 2;
  /* Build a new index. The old index is kept until the allocation has succeeded. */
  uint32_t *index = calloc(cap, sizeof *index);
  if (!index) return false;
  free(keys->index);
  keys->index = index;
  keys->cap_index = cap;
  index_fill(keys);
  return true;
}

bool tdict_keys_make_room(tdict_keys *keys, size_t slots) {
  /* Update `room` on failure too, since the slots can grow even if the index does not. */
  bool made = reserve_slots(keys, slots) && reserve_index(keys, slots);
  update_room(keys);
  return made;
}

bool tdict_keys_reserve(tdict_keys *keys, size_t slots, size_t name_bytes) {
  return tdict_keys_make_room(keys, slots) && (!name_bytes || add_name_chunk(keys, name_bytes));
}

void tdict_keys_delete(tdict_keys *keys, uint32_t slot) {
  index_remove(keys, slot);
  count_dead_name(keys, &keys->slots[slot]);
  keys->slots[slot] = (tdict_key){NULL, 0, 0};
  keys->num_live--;
}

bool tdict_keys_rename(tdict_keys *keys, uint32_t slot, const tdict_name *name) {
  /* Store the new name first, because only this step can fail. */
  const char *stored = tdict_keys_store_name(keys, name);
  if (!stored) return false;
  index_remove(keys, slot);
  count_dead_name(keys, &keys->slots[slot]);
  keys->slots[slot] = (tdict_key){stored, (uint32_t)name->length, name->hash};
  index_put_slot(keys, slot);
  repack_dead_names(keys);
  return true;
}

void tdict_keys_take_name(tdict_keys *keys, uint32_t slot, uint32_t from) {
  tdict_key taken = keys->slots[from];
  index_remove(keys, slot);
  index_remove(keys, from);
  count_dead_name(keys, &keys->slots[slot]);
  keys->slots[slot] = taken;
  keys->slots[from] = (tdict_key){NULL, 0, 0};
  keys->num_live--;
  index_put_slot(keys, slot);
}

void tdict_keys_compact(tdict_keys *keys, uintptr_t *leaves) {
  uint32_t live = 0;
  for (uint32_t i = 0; i < keys->num_slots; i++) {
    if (!keys->slots[i].name) continue;
    keys->slots[live] = keys->slots[i];
    leaves[live++] = leaves[i];
  }
  keys->num_slots = live;
  /* Shrink the index too: clearing the index must cost O(live slots), even if the table was large before. */
  if (live <= TDICT_SCANNED_SLOTS) {
    free(keys->index);
    keys->index = NULL;
    keys->cap_index = 0;
  } else {
    while (keys->cap_index >= 8 * live) keys->cap_index /= 2;
    memset(keys->index, 0, keys->cap_index * sizeof *keys->index);
    index_fill(keys);
  }
  update_room(keys);
  repack_dead_names(keys);
}
