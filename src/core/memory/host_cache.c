/* Implements the host cache of a context. Each storage of the cache has a reference to the cache, which can outlive the
 * context. There is no lock, because a thread of the parent could hold it when the process is forked. See
 * host_cache.h. */
#include "core/memory/host_cache.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "core/base/assert.h"
#include "core/base/error.h"

enum { PAGE_BYTES = 4096 };

typedef struct block {
  tdict_host_cache *cache;
  void *data; /* freed with free() */
  size_t bytes;
} block;

struct tdict_host_cache {
  _Atomic(int64_t) refs;      /* the context and the storages */
  _Atomic(block *) kept;      /* acq_rel: who exchanges the block owns it; NULL: none */
  _Atomic(size_t) kept_bytes; /* relaxed: a hint, the size of the kept block; 0: none */
  _Atomic(bool) is_closed;    /* relaxed: a block that is kept after all is freed with the last reference */
};

static void free_block(block *b) {
  if (b) free(b->data);
  free(b);
}

static block *take_block(tdict_host_cache *cache, block *instead) {
  atomic_store_explicit(&cache->kept_bytes, instead ? instead->bytes : 0, memory_order_relaxed);
  return atomic_exchange_explicit(&cache->kept, instead, memory_order_acq_rel);
}

static void drop(tdict_host_cache *cache) {
  if (atomic_fetch_sub_explicit(&cache->refs, 1, memory_order_acq_rel) != 1) return;
  free_block(take_block(cache, NULL));
  free(cache);
}

tdict_status tdict_host_cache_create(tdict_host_cache **out, tdict_error *err) {
  tdict_host_cache *cache = calloc(1, sizeof *cache);
  if (!cache) return tdict_fail_memory(err, "context", NULL, "its cache memory");
  atomic_init(&cache->refs, 1);
  *out = cache;
  return TDICT_OK;
}

void tdict_host_cache_close(tdict_host_cache *cache) {
  if (!cache) return;
  atomic_store_explicit(&cache->is_closed, true, memory_order_relaxed);
  free_block(take_block(cache, NULL));
  drop(cache);
}

/* Called when a storage is freed. Keeps its block, and frees the block that was kept before. A block whose pages the
 * system could not take, for example because they are locked, is freed instead. */
static void keep_block(void *user) {
  block *b = user, *surplus = b;
  tdict_host_cache *cache = b->cache;
  if (!atomic_load_explicit(&cache->is_closed, memory_order_relaxed) &&
      madvise(b->data, b->bytes / PAGE_BYTES * PAGE_BYTES, MADV_FREE) == 0)
    surplus = take_block(cache, b);
  free_block(surplus);
  drop(cache);
}

/* Returns whether a block of `have` bytes is large enough, and not much larger. */
static bool fits(size_t have, size_t bytes) { return have >= bytes && have - bytes <= bytes / 8; }

bool tdict_host_cache_has(const tdict_host_cache *cache, size_t bytes) {
  return fits(atomic_load_explicit(&cache->kept_bytes, memory_order_relaxed), bytes);
}

/* Creates a storage in the block. */
static tdict_status reuse(const block *b, size_t bytes, tdict_storage **out, tdict_error *err) {
  tdict_status status = tdict_storage_wrap(b->data, bytes, tdict_cpu(), 0, out, err);
  if (status == TDICT_OK) (*out)->flags &= ~TDICT_STORAGE_FOREIGN; /* the library allocated the memory */
  return status;
}

/* Creates a storage in new memory, which `b` takes over. */
static tdict_status allocate(block *b, size_t bytes, tdict_storage **out, tdict_error *err) {
  tdict_status status = tdict_storage_create(NULL, bytes, false, out, err);
  if (status != TDICT_OK) return status;
  TDICT_ASSERT((*out)->data == (*out)->block.data);
  b->data = (*out)->data;
  b->bytes = bytes;
  return status;
}

tdict_status tdict_host_cache_storage(tdict_host_cache *cache, size_t bytes, tdict_storage **out, tdict_error *err) {
  TDICT_ASSERT(bytes >= TDICT_HOST_CACHE_FROM);
  block *b = take_block(cache, NULL);
  /* A block of another size is freed before the new one is allocated, because both might not fit into memory. */
  if (b && !fits(b->bytes, bytes)) {
    free_block(b);
    b = NULL;
  }
  const bool is_kept = b != NULL;
  if (!b) b = calloc(1, sizeof *b);
  if (!b) return tdict_fail_memory(err, "storage", NULL, "its block");
  tdict_status status = is_kept ? reuse(b, bytes, out, err) : allocate(b, bytes, out, err);
  if (status != TDICT_OK) {
    free_block(b);
    return status;
  }
  atomic_fetch_add_explicit(&cache->refs, 1, memory_order_relaxed);
  b->cache = cache;
  (*out)->release = keep_block;
  (*out)->user = b;
  return TDICT_OK;
}
