/* Address ranges, device memory and pools of the simulated driver. See memory.h for ownership and threads. */
#include "device/sim/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/base/array.h"
#include "core/base/checked.h"

enum { PAGE_BYTES = 4096, ALIGN_BYTES = 512 };

/* Returns the number of ranges that start at or before the address, by binary search. */
static size_t count_up_to(const tdict_sim_ranges *ranges, uintptr_t address) {
  size_t low = 0, high = ranges->count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (ranges->items[middle].start <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

tdict_sim_range *tdict_sim_ranges_find(const tdict_sim_ranges *ranges, const void *address) {
  size_t n = count_up_to(ranges, (uintptr_t)address);
  if (n == 0) return NULL;
  tdict_sim_range *range = &ranges->items[n - 1];
  return (uintptr_t)address - range->start < range->bytes ? range : NULL;
}

bool tdict_sim_ranges_overlap(const tdict_sim_ranges *ranges, const void *address, size_t bytes) {
  uintptr_t start = (uintptr_t)address;
  if (tdict_sim_ranges_find(ranges, address)) return true;
  size_t next = count_up_to(ranges, start);
  return next < ranges->count && ranges->items[next].start - start < bytes;
}

bool tdict_sim_ranges_insert(tdict_sim_ranges *ranges, const tdict_sim_range *range) {
  if (!TDICT_RESERVE(ranges->items, ranges->capacity, ranges->count + 1)) return false;
  size_t at = count_up_to(ranges, range->start);
  memmove(ranges->items + at + 1, ranges->items + at, (ranges->count - at) * sizeof *range);
  ranges->items[at] = *range;
  ranges->count++;
  return true;
}

void tdict_sim_ranges_remove(tdict_sim_ranges *ranges, const tdict_sim_range *range) {
  size_t at = (size_t)(range - ranges->items);
  ranges->count--;
  memmove(ranges->items + at, ranges->items + at + 1, (ranges->count - at) * sizeof *range);
}

void tdict_sim_ranges_reset(tdict_sim_ranges *ranges) {
  free(ranges->items);
  memset(ranges, 0, sizeof *ranges);
}

bool tdict_sim_space_open(tdict_sim_space *space, size_t capacity) {
  size_t span, total;
  memset(space, 0, sizeof *space);
  if (!tdict_round_up(capacity, PAGE_BYTES, &span) || !tdict_mul_size(span, 2, &total)) return false;
  /* Only the second half gets access. NORESERVE: pages are allocated at first use. */
  void *base = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return false;
  if (mprotect((char *)base + span, span, PROT_READ | PROT_WRITE) != 0) {
    munmap(base, total);
    return false;
  }
  space->base = base;
  space->span = span;
  space->capacity = capacity;
  return true;
}

void tdict_sim_space_close(tdict_sim_space *space) {
  tdict_sim_ranges_reset(&space->live);
  if (space->base) munmap(space->base, 2 * space->span);
  memset(space, 0, sizeof *space);
}

/* The first test relies on unsigned wraparound: an address below base gives a large number. */
bool tdict_sim_space_overlaps(const tdict_sim_space *space, const void *address, size_t bytes) {
  uintptr_t start = (uintptr_t)address, base = (uintptr_t)space->base;
  return start - base < 2 * space->span || (base > start && base - start < bytes);
}

/* Finds the lowest gap of at least `rounded` bytes. Returns false if no gap is large enough. */
static bool find_gap(const tdict_sim_space *space, size_t rounded, uintptr_t *out) {
  uintptr_t at = (uintptr_t)space->base;
  for (size_t i = 0; i < space->live.count; i++) {
    const tdict_sim_range *range = &space->live.items[i];
    if (range->start - at >= rounded) break;
    at = range->start + tdict_align(range->bytes, ALIGN_BYTES);
  }
  size_t used = at - (uintptr_t)space->base;
  if (used > space->span || space->span - used < rounded) return false;
  *out = at;
  return true;
}

tdict_cu tdict_sim_space_alloc(tdict_sim_space *space, tdict_sim_pool *pool, size_t bytes, int32_t ordinal,
                               void **out) {
  size_t rounded;
  if (bytes == 0) return TDICT_CU_INVALID_VALUE;
  if (!tdict_round_up(bytes, ALIGN_BYTES, &rounded)) return TDICT_CU_OUT_OF_MEMORY;
  /* Use cached bytes of the pool first. Only the remaining bytes count against the device's capacity. */
  size_t cached = pool ? pool->reserved - pool->used : 0;
  size_t more = rounded > cached ? rounded - cached : 0;
  if (more > space->capacity - space->reserved) return TDICT_CU_OUT_OF_MEMORY;
  tdict_sim_range range = {.bytes = bytes, .id = ++space->next_id, .pool = pool, .ordinal = ordinal};
  if (!find_gap(space, rounded, &range.start) || !tdict_sim_ranges_insert(&space->live, &range))
    return TDICT_CU_OUT_OF_MEMORY;
  space->reserved += more;
  if (pool) {
    pool->reserved += more;
    pool->used += rounded;
  }
  *out = (void *)range.start;
  return TDICT_CU_SUCCESS;
}

void tdict_sim_pool_trim(tdict_sim_pool *pool, size_t keep_bytes) {
  size_t keep = keep_bytes > pool->used ? keep_bytes : pool->used;
  if (pool->reserved <= keep) return;
  pool->space->reserved -= pool->reserved - keep;
  pool->reserved = keep;
}

/* Freed bytes of a pool stay reserved, up to its threshold. Above it, they go back to the space. */
void tdict_sim_space_free(tdict_sim_space *space, void *start) {
  tdict_sim_range *range = tdict_sim_ranges_find(&space->live, start);
  size_t rounded = tdict_align(range->bytes, ALIGN_BYTES);
  tdict_sim_pool *pool = range->pool;
  tdict_sim_ranges_remove(&space->live, range);
  if (pool) {
    pool->used -= rounded;
    tdict_sim_pool_trim(pool, pool->destroyed ? 0 : (size_t)pool->threshold);
  } else {
    space->reserved -= rounded;
  }
}
