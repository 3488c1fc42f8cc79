/* Implements a hash table of leaves with linear probing. The key is the address of the first element. See same_bytes.h
 * for ownership and threads. */
#include "engine/plan/same_bytes.h"

#include <stdlib.h>
#include <string.h>

#include "core/tensor/layout.h"

bool tdict_same_bytes_is_unshared(const tdict_tensor *t) {
  return !t->slab && atomic_load_explicit(&t->refs, memory_order_relaxed) == 1 &&
         atomic_load_explicit(&t->storage->refs, memory_order_relaxed) == 1;
}

bool tdict_same_bytes_follows(tdict_same_bytes *same, const tdict_tensor *t) {
  const uintptr_t begin = (uintptr_t)t->data;
  const size_t bytes = tdict_tensor_nbytes(t);
  if (!bytes || !tdict_layout_is_contiguous(t->ndim, t->dims, tdict_tensor_dims_strides(t))) return false;
  if (same->num_runs && same->runs[same->num_runs - 1] == t->storage) {
    if (begin < same->run_end) return false;
  } else {
    for (int i = 0; i < same->num_runs; i++)
      if (same->runs[i] == t->storage) return false;
    if (same->num_runs == TDICT_SAME_BYTES_RUNS) return false;
    same->runs[same->num_runs++] = t->storage;
  }
  same->run_end = begin + bytes;
  return true;
}

static size_t hash_slot(const tdict_same_bytes *same, const tdict_tensor *t) {
  uint64_t x = (uint64_t)(uintptr_t)t->data * 0x9e3779b97f4a7c15u;
  /* Use the upper half of the product, because the low bits of an address are often zero. */
  return (size_t)(x >> 32) & (same->cap - 1);
}

static bool are_same_bytes(const tdict_tensor *a, const tdict_tensor *b) {
  if (a->storage != b->storage || a->data != b->data || tdict_tensor_nbytes(a) != tdict_tensor_nbytes(b)) return false;
  /* If both leaves are in C order, their shapes may differ. If not, dtype, shape and strides must be equal. */
  bool a_plain = tdict_layout_is_contiguous(a->ndim, a->dims, tdict_tensor_dims_strides(a));
  bool b_plain = tdict_layout_is_contiguous(b->ndim, b->dims, tdict_tensor_dims_strides(b));
  if (a_plain && b_plain) return true;
  return a->dtype == b->dtype && a->ndim == b->ndim &&
         memcmp(a->dims, b->dims, 2 * (size_t)a->ndim * sizeof *a->dims) == 0;
}

/* Returns true if entry `i` and the leaf `t` are both copied unchanged, or are converted alike. */
static bool have_same_cast(const tdict_same_bytes *same, size_t i, const tdict_tensor *t) {
  if (!same->plan || !same->plan->wire) return true;
  const uint32_t rule = same->plan->wire->casts[same->table[i] - 1].rule;
  return rule == same->wanted->rule && (rule == 0 || same->tensors[i]->dtype == t->dtype);
}

void tdict_same_bytes_find(const tdict_same_bytes *same, const tdict_tensor *t, uint32_t *place) {
  if (!same->cap || !t->data) return;
  for (size_t i = hash_slot(same, t); same->table[i]; i = (i + 1) & (same->cap - 1)) {
    if (!are_same_bytes(same->tensors[i], t) || !have_same_cast(same, i, t)) continue;
    *place = same->table[i] - 1;
    return;
  }
}

static void put_entry(tdict_same_bytes *same, const tdict_tensor *t, uint32_t entry) {
  size_t i = hash_slot(same, t);
  while (same->table[i]) i = (i + 1) & (same->cap - 1);
  same->table[i] = entry;
  same->tensors[i] = t;
}

static bool grow_table(tdict_same_bytes *same) {
  tdict_same_bytes bigger = *same;
  bigger.cap = same->cap ? 2 * same->cap : 64;
  bigger.table = calloc(bigger.cap, sizeof *bigger.table);
  bigger.tensors = malloc(bigger.cap * sizeof *bigger.tensors);
  if (!bigger.table || !bigger.tensors) {
    tdict_same_bytes_reset(&bigger);
    return false;
  }
  for (size_t i = 0; i < same->cap; i++)
    if (same->table[i]) put_entry(&bigger, same->tensors[i], same->table[i]);
  tdict_same_bytes_reset(same);
  *same = bigger;
  return true;
}

bool tdict_same_bytes_add(tdict_same_bytes *same, const tdict_tensor *t, uint32_t item) {
  if (!t->data) return true;
  /* At most half of the table is used, so that searches stay short. */
  if (2 * (same->count + 1) > same->cap && !grow_table(same)) return false;
  put_entry(same, t, item + 1);
  same->count++;
  return true;
}

void tdict_same_bytes_reset(tdict_same_bytes *same) {
  free(same->table);
  free(same->tensors);
  memset(same, 0, sizeof *same);
}
