/* Declares sorted tables of address ranges, the memory of a simulated device, and its pools.
 *
 * A device's memory is one mapping of twice the size of the memory. The first half is protected, and its addresses
 * are the device addresses. Host code that accesses a device address causes a segmentation fault. The second half
 * holds the bytes. A space owns its mapping and its table of live ranges. Thread rule: the functions take no lock.
 * The caller holds the driver's lock, which guards all data. */
#ifndef TDICT_DEVICE_SIM_MEMORY_H
#define TDICT_DEVICE_SIM_MEMORY_H

#include "device/driver.h"

typedef struct tdict_cu_pool tdict_sim_pool;

/* An allocation of device memory, or a range of page-locked host memory. */
typedef struct tdict_sim_range {
  uintptr_t start;
  size_t bytes;         /* the requested bytes, not rounded */
  uint64_t id;          /* unique number, which shows whether an address was reused */
  tdict_sim_pool *pool; /* the pool from which the memory was allocated, or NULL */
  int32_t ordinal;      /* the owning device */
  bool free_queued;     /* true: the free is queued, so new calls must not use the range */
  bool mapped;          /* true: the driver allocated this host memory; false: the program registered it */
} tdict_sim_range;

/* Ranges that do not overlap, sorted by address. */
typedef struct tdict_sim_ranges {
  tdict_sim_range *items;
  size_t count, capacity;
} tdict_sim_ranges;

/* Returns the range that contains the address, or NULL. The pointer is valid until the next insert or remove. */
tdict_sim_range *tdict_sim_ranges_find(const tdict_sim_ranges *ranges, const void *address);
bool tdict_sim_ranges_overlap(const tdict_sim_ranges *ranges, const void *address, size_t bytes);
/* Inserts a copy of the range, which must not overlap another range. Returns false if memory is exhausted. */
bool tdict_sim_ranges_insert(tdict_sim_ranges *ranges, const tdict_sim_range *range);
void tdict_sim_ranges_remove(tdict_sim_ranges *ranges, const tdict_sim_range *range);
void tdict_sim_ranges_reset(tdict_sim_ranges *ranges);

typedef struct tdict_sim_space {
  char *base;      /* device addresses are [base, base + span); the bytes of these addresses begin at base + span */
  size_t span;     /* capacity, rounded up to a page, in bytes */
  size_t capacity; /* limit of `reserved` */
  size_t reserved; /* bytes of live allocations and of the pools' caches */
  uint64_t next_id;
  tdict_sim_ranges live;
} tdict_sim_space;

/* Reserves the address space for `capacity` bytes. Returns false if the system call fails. */
bool tdict_sim_space_open(tdict_sim_space *space, size_t capacity);
void tdict_sim_space_close(tdict_sim_space *space);
/* Returns true if [address, address + bytes) overlaps the mapping: the device addresses or their bytes. */
bool tdict_sim_space_overlaps(const tdict_sim_space *space, const void *address, size_t bytes);
static inline bool tdict_sim_space_has(const tdict_sim_space *space, const void *address) {
  return (uintptr_t)address - (uintptr_t)space->base < space->span;
}
/* Returns the host pointer to the bytes of a device address. */
static inline void *tdict_sim_space_bytes(const tdict_sim_space *space, const void *address) {
  return space->base + space->span + ((uintptr_t)address - (uintptr_t)space->base);
}
/* Allocates device memory without clearing it. If `pool` is not NULL, uses the pool's cached bytes first. */
tdict_cu tdict_sim_space_alloc(tdict_sim_space *space, tdict_sim_pool *pool, size_t bytes, int32_t ordinal, void **out);
void tdict_sim_space_free(tdict_sim_space *space, void *start);

struct tdict_cu_pool {
  uint64_t magic;
  tdict_driver *driver;
  tdict_sim_space *space;
  tdict_sim_pool *next; /* the next pool in the driver's list */
  int32_t ordinal;
  uint32_t allowed_peers; /* bit n: copies on device n may access this pool's memory */
  bool destroyed;         /* true: the struct is freed together with the pool's last allocation */
  uint64_t reuse[3];      /* values of the three REUSE attributes, which have no effect */
  uint64_t threshold;     /* while `reserved` exceeds this number of bytes, freed bytes go back to the space */
  size_t reserved, used;  /* bytes */
};
enum { TDICT_SIM_POOL_MAGIC = 0x736d706c };
/* Returns cached bytes to the space until at most keep_bytes are reserved, or until no bytes are cached. */
void tdict_sim_pool_trim(tdict_sim_pool *pool, size_t keep_bytes);

#endif
