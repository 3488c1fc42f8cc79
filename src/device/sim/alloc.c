/* The memory entries of the simulated driver's table. The caller owns an allocation, but closing the driver unmaps all
 * that are left. Thread rule: safe from any thread. */
#include <stdlib.h>
#include <sys/mman.h>

#include "device/sim/entries.h"

/* The sums of all flags that CUDA accepts. The flags are PORTABLE, DEVICEMAP and WRITECOMBINED for an allocation, and
 * PORTABLE, DEVICEMAP, IOMEMORY and READ_ONLY for a registration. */
enum { HOST_ALLOC_FLAGS = 7, HOST_REGISTER_FLAGS = 15 };

/* Returns true if the handle is a live pool of this driver. Small and unaligned values are never dereferenced. */
static bool is_pool(const tdict_sim_driver *d, const tdict_sim_pool *pool) {
  if ((uintptr_t)pool < 4096 || (uintptr_t)pool % _Alignof(tdict_sim_pool) != 0) return false;
  return pool->magic == TDICT_SIM_POOL_MAGIC && pool->driver == &d->base && !pool->destroyed;
}

static tdict_cu pool_create(tdict_driver *base, int ordinal, tdict_cu_pool *out) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  tdict_sim_device *device = tdict_sim_device_at(d, ordinal);
  if (!device) return TDICT_CU_INVALID_DEVICE;
  tdict_sim_pool *pool = calloc(1, sizeof *pool);
  if (!pool) return TDICT_CU_OUT_OF_MEMORY;
  pool->magic = TDICT_SIM_POOL_MAGIC;
  pool->driver = base;
  pool->space = &device->space;
  pool->ordinal = ordinal;
  pool->reuse[0] = pool->reuse[1] = pool->reuse[2] = 1;
  tdict_sim_lock(d);
  pool->next = d->pools;
  d->pools = pool;
  tdict_sim_unlock(d);
  *out = pool;
  return TDICT_CU_SUCCESS;
}

static tdict_cu pool_destroy(tdict_driver *base, tdict_cu_pool pool) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!is_pool(d, pool)) return TDICT_CU_INVALID_VALUE;
  pool->destroyed = true; /* as in CUDA, live allocations keep the pool alive */
  tdict_sim_pool_trim(pool, 0);
  if (pool->used == 0) tdict_sim_pool_free(d, pool);
  return TDICT_CU_SUCCESS;
}

static tdict_cu pool_trim(tdict_driver *base, tdict_cu_pool pool, size_t keep_bytes) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!is_pool(d, pool)) return TDICT_CU_INVALID_VALUE;
  tdict_sim_pool_trim(pool, keep_bytes);
  return TDICT_CU_SUCCESS;
}

/* Returns the value of an attribute that can be set, or NULL. */
static uint64_t *find_value(tdict_sim_pool *pool, int attribute) {
  const int reuse = attribute - TDICT_CU_POOL_REUSE_FOLLOW_EVENT_DEPENDENCIES;
  if (attribute == TDICT_CU_POOL_RELEASE_THRESHOLD) return &pool->threshold;
  return reuse >= 0 && attribute <= TDICT_CU_POOL_REUSE_ALLOW_INTERNAL_DEPENDENCIES ? &pool->reuse[reuse] : NULL;
}

static tdict_cu pool_set(tdict_driver *base, tdict_cu_pool pool, int attribute, uint64_t value) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  uint64_t *found = is_pool(d, pool) ? find_value(pool, attribute) : NULL;
  if (found) *found = value;
  return found ? TDICT_CU_SUCCESS : TDICT_CU_INVALID_VALUE;
}

static tdict_cu pool_get(tdict_driver *base, tdict_cu_pool pool, int attribute, uint64_t *value) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!is_pool(d, pool)) return TDICT_CU_INVALID_VALUE;
  const uint64_t *found = attribute == TDICT_CU_POOL_RESERVED_MEM_CURRENT ? &pool->reserved
                          : attribute == TDICT_CU_POOL_USED_MEM_CURRENT   ? &pool->used
                                                                          : find_value(pool, attribute);
  if (found) *value = *found;
  return found ? TDICT_CU_SUCCESS : TDICT_CU_INVALID_VALUE;
}

static tdict_cu pool_allow_peer(tdict_driver *base, tdict_cu_pool pool, int ordinal) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!is_pool(d, pool)) return TDICT_CU_INVALID_VALUE;
  if (!tdict_sim_device_at(d, ordinal) || !tdict_sim_are_linked(d, pool->ordinal, ordinal))
    return TDICT_CU_INVALID_DEVICE;
  pool->allowed_peers |= (uint32_t)1 << ordinal;
  return TDICT_CU_SUCCESS;
}

static tdict_cu mem_alloc_async(tdict_driver *base, void **out, size_t bytes, tdict_cu_pool pool,
                                tdict_cu_stream handle) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_stream *stream;
  const tdict_cu result = tdict_sim_resolve(d, handle, &stream);
  if (result != TDICT_CU_SUCCESS) return result;
  if (!is_pool(d, pool)) return TDICT_CU_INVALID_VALUE;
  /* The simulated device reuses memory only after the free has run, so this need not be queued. */
  return tdict_sim_space_alloc(pool->space, pool, bytes, pool->ordinal, out);
}

/* Returns the allocation that starts at the address and is not being freed, or NULL. Under the driver's lock. */
static tdict_sim_range *find_allocation(tdict_sim_device *owner, const void *address) {
  if (!owner) return NULL;
  tdict_sim_range *range = tdict_sim_ranges_find(&owner->space.live, address);
  return range && range->start == (uintptr_t)address && !range->free_queued ? range : NULL;
}

static tdict_cu mem_free_async(tdict_driver *base, void *address, tdict_cu_stream handle) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_device *owner = tdict_sim_device_of(d, address);
  tdict_sim_stream *stream;
  tdict_cu result = tdict_sim_resolve(d, handle, &stream);
  if (result != TDICT_CU_SUCCESS) return result;
  tdict_sim_range *range = find_allocation(owner, address);
  if (!range || !range->pool) return TDICT_CU_INVALID_VALUE;
  tdict_sim_op *op = tdict_sim_op_new(TDICT_SIM_OP_FREE);
  if (!op) return TDICT_CU_OUT_OF_MEMORY;
  op->memory = address;
  op->work.dst_use.space = &owner->space;
  range->free_queued = true; /* set before the push, because the operation may run at once */
  result = tdict_sim_push(stream, op);
  if (result != TDICT_CU_SUCCESS) tdict_sim_ranges_find(&owner->space.live, address)->free_queued = false;
  tdict_sim_op_release(op);
  return result;
}

static tdict_cu mem_alloc(tdict_driver *base, void **out, size_t bytes) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_device *device = tdict_sim_current(d);
  if (!device) return TDICT_CU_INVALID_CONTEXT;
  if (device->fault) return device->fault;
  return tdict_sim_space_alloc(&device->space, NULL, bytes, device->ordinal, out);
}

static tdict_cu mem_free(tdict_driver *base, void *address) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  if (!tdict_sim_current(d)) return TDICT_CU_INVALID_CONTEXT;
  tdict_sim_device *owner = tdict_sim_device_of(d, address);
  tdict_sim_range *range = find_allocation(owner, address);
  if (!range) return TDICT_CU_INVALID_VALUE;
  range->free_queued = true;
  tdict_sim_wait_device(owner);
  tdict_sim_release_memory(d, &owner->space, address);
  return owner->fault;
}

/* Adds a range of page-locked host memory, under the driver's lock. Returns the sticky error, INVALID_VALUE over device
 * memory or outside the address space, HOST_MEMORY_ALREADY_REGISTERED over another range, or OUT_OF_MEMORY. */
static tdict_cu add_registration(tdict_sim_device *device, void *host, size_t bytes, bool mapped) {
  tdict_sim_driver *d = device->driver;
  tdict_sim_range range = {.start = (uintptr_t)host, .bytes = bytes, .ordinal = device->ordinal, .mapped = mapped};
  if (device->fault) return device->fault;
  if (range.start + bytes < range.start) return TDICT_CU_INVALID_VALUE;
  for (int32_t i = 0; i < d->num_devices; i++)
    if (tdict_sim_space_overlaps(&d->devices[i].space, host, bytes)) return TDICT_CU_INVALID_VALUE;
  if (tdict_sim_ranges_overlap(&d->hosts, host, bytes)) return TDICT_CU_HOST_MEMORY_ALREADY_REGISTERED;
  range.id = ++d->next_host_id;
  if (!tdict_sim_ranges_insert(&d->hosts, &range)) return TDICT_CU_OUT_OF_MEMORY;
  d->pinned_bytes += bytes;
  return TDICT_CU_SUCCESS;
}

static tdict_cu host_alloc(tdict_driver *base, void **out, size_t bytes, unsigned flags) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  tdict_sim_device *device = tdict_sim_current(d);
  if (!device) return TDICT_CU_INVALID_CONTEXT;
  if (bytes == 0 || flags > HOST_ALLOC_FLAGS) return TDICT_CU_INVALID_VALUE;
  void *host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (host == MAP_FAILED) return TDICT_CU_OUT_OF_MEMORY;
  tdict_sim_lock(d);
  tdict_cu result = add_registration(device, host, bytes, true);
  tdict_sim_unlock(d);
  if (result == TDICT_CU_SUCCESS)
    *out = host;
  else
    munmap(host, bytes);
  return result;
}

static tdict_cu host_register(tdict_driver *base, void *host, size_t bytes, unsigned flags) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_device *device = tdict_sim_current(d);
  if (!device) return TDICT_CU_INVALID_CONTEXT;
  if (!host || bytes == 0 || flags > HOST_REGISTER_FLAGS) return TDICT_CU_INVALID_VALUE;
  return add_registration(device, host, bytes, false);
}

/* Removes a range of page-locked host memory, under the driver's lock, and waits for all queued work, as CUDA does in
 * practice. `mapped`: allocated by the driver. Returns false if no range of this kind begins at `host`. */
static bool remove_registration(tdict_sim_driver *d, const void *host, bool mapped, size_t *bytes) {
  tdict_sim_range *range = tdict_sim_ranges_find(&d->hosts, host);
  if (!range || range->start != (uintptr_t)host || range->mapped != mapped) return false;
  *bytes = range->bytes;
  d->pinned_bytes -= range->bytes;
  tdict_sim_ranges_remove(&d->hosts, range);
  for (int32_t i = 0; i < d->num_devices; i++) tdict_sim_wait_device(&d->devices[i]);
  return true;
}

static tdict_cu host_free(tdict_driver *base, void *host, size_t bytes) {
  tdict_sim_driver *d = tdict_sim_driver_of(base);
  size_t mapped_bytes;
  (void)bytes;
  if (!tdict_sim_current(d)) return TDICT_CU_INVALID_CONTEXT;
  tdict_sim_lock(d);
  bool found = remove_registration(d, host, true, &mapped_bytes);
  tdict_sim_unlock(d);
  if (!found) return TDICT_CU_INVALID_VALUE;
  munmap(host, mapped_bytes);
  return TDICT_CU_SUCCESS;
}

static tdict_cu host_unregister(tdict_driver *base, void *host, size_t bytes) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  size_t registered_bytes;
  (void)bytes;
  if (!tdict_sim_current(d)) return TDICT_CU_INVALID_CONTEXT;
  bool found = remove_registration(d, host, false, &registered_bytes);
  return found ? TDICT_CU_SUCCESS : TDICT_CU_HOST_MEMORY_NOT_REGISTERED;
}

void tdict_sim_hosts_free(tdict_sim_driver *d) {
  for (size_t i = 0; i < d->hosts.count; i++)
    if (d->hosts.items[i].mapped) munmap((void *)d->hosts.items[i].start, d->hosts.items[i].bytes);
  tdict_sim_ranges_reset(&d->hosts);
}

static tdict_cu pointer(tdict_driver *base, const void *address, tdict_cu_pointer *out) {
  TDICT_SIM_LOCKED tdict_sim_driver *d = tdict_sim_lock_of(base);
  tdict_sim_device *owner = tdict_sim_device_of(d, address);
  const tdict_sim_range *range = tdict_sim_ranges_find(owner ? &owner->space.live : &d->hosts, address);
  *out = (tdict_cu_pointer){.known = range && !range->free_queued};
  if (!out->known) return TDICT_CU_SUCCESS;
  out->device = owner != NULL;
  out->ordinal = range->ordinal;
  out->range = (void *)range->start;
  out->range_bytes = range->bytes;
  return TDICT_CU_SUCCESS;
}

void tdict_sim_add_memory(tdict_driver_ops *ops) { TDICT_DRIVER_MEMORY_ENTRIES(TDICT_SIM_FILL) }
