/* Addresses of the simulated driver: sorted ranges, the memory of a device, pools.
 *
 * A device's memory is one mapping of twice its size. The first half cannot be touched and gives the device addresses;
 * the second half holds the bytes, so that a device address used on the host is a segmentation fault.
 * Nothing here locks: the driver's lock guards all of it. A space owns its mapping and its table of live ranges. */
#ifndef TDICT_SIM_MEMORY_H
#define TDICT_SIM_MEMORY_H

#include "device/driver.h"

typedef struct tdict_cu_pool tdict_sim_pool;

/* An allocation of device memory or a registration of host memory. */
typedef struct tdict_sim_range {
  uintptr_t start;
  size_t bytes;         /* as asked for */
  uint64_t id;          /* no two ranges ever have the same one, so that an address given again is told apart */
  tdict_sim_pool *pool; /* device memory of a pool, else NULL */
  int32_t ordinal;      /* of the device */
  bool free_queued;     /* a free is queued: no new call may use it */
  bool mapped;          /* host memory that the driver allocated */
} tdict_sim_range;

/* Ranges that do not overlap, sorted by address. */
typedef struct tdict_sim_ranges {
  tdict_sim_range *items;
  size_t count, capacity;
} tdict_sim_ranges;

/* The range that holds the address, or NULL. Good until the next insert or remove. */
tdict_sim_range *tdict_sim_ranges_find(const tdict_sim_ranges *ranges, const void *address);
/* True when a byte of [address, address + bytes) is in a range. */
bool tdict_sim_ranges_overlap(const tdict_sim_ranges *ranges, const void *address, size_t bytes);
/* The range must overlap none. False: no memory. */
bool tdict_sim_ranges_insert(tdict_sim_ranges *ranges, const tdict_sim_range *range);
void tdict_sim_ranges_remove(tdict_sim_ranges *ranges, const tdict_sim_range *range);
void tdict_sim_ranges_reset(tdict_sim_ranges *ranges);

typedef struct tdict_sim_space {
  char *base;      /* device addresses are [base, base + span), their bytes begin at base + span */
  size_t span;     /* capacity, rounded up to a page */
  size_t capacity; /* bytes that may be reserved */
  size_t reserved; /* live allocations and the pools' caches */
  uint64_t next_id;
  tdict_sim_ranges live;
} tdict_sim_space;

/* False: the address space is not to be had. */
bool tdict_sim_space_open(tdict_sim_space *space, size_t capacity);
void tdict_sim_space_close(tdict_sim_space *space);
/* True when a byte of [address, address + bytes) is a device address or the bytes behind one. */
bool tdict_sim_space_overlaps(const tdict_sim_space *space, const void *address, size_t bytes);
static inline bool tdict_sim_space_has(const tdict_sim_space *space, const void *address) {
  return (uintptr_t)address - (uintptr_t)space->base < space->span;
}
/* Where the bytes behind a device address are. */
static inline void *tdict_sim_space_bytes(const tdict_sim_space *space, const void *address) {
  return space->base + space->span + ((uintptr_t)address - (uintptr_t)space->base);
}
/* Memory with the bytes that were there before, from the pool's cache where it suffices. pool may be NULL. */
tdict_cu tdict_sim_space_alloc(tdict_sim_space *space, tdict_sim_pool *pool, size_t bytes, int32_t ordinal, void **out);
/* Frees the allocation that begins at the address. */
void tdict_sim_space_free(tdict_sim_space *space, void *start);

struct tdict_cu_pool {
  uint64_t magic;
  tdict_driver *driver;
  tdict_sim_space *space;
  tdict_sim_pool *next; /* in the driver's list */
  int32_t ordinal;
  uint32_t allowed_peers; /* a bit for each other device that may use its memory by its own copies */
  bool destroyed;         /* lives on until its last allocation is free */
  uint64_t reuse[3];      /* the three REUSE attributes: kept, without effect */
  uint64_t threshold;     /* bytes that stay reserved when they are free */
  size_t reserved, used;  /* bytes */
};
enum { TDICT_SIM_POOL_MAGIC = 0x736d706c };
/* Returns cached bytes until at most keep_bytes are reserved. */
void tdict_sim_pool_trim(tdict_sim_pool *pool, size_t keep_bytes);

#endif
