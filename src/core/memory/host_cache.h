/* Keeps the block of the last freed large result for the next one. The kernel clears new pages, which takes longer than
 * the copy into them. While a block is kept, the system may take its pages (MADV_FREE), as it takes pages of cached
 * files. A context has one cache. Thread rule: safe from any thread, and after a fork. */
#ifndef TDICT_CORE_MEMORY_HOST_CACHE_H
#define TDICT_CORE_MEMORY_HOST_CACHE_H

#include "core/memory/storage.h"

/* Smaller blocks come from malloc(), which reuses freed blocks itself. */
#define TDICT_HOST_CACHE_FROM ((size_t)32 << 20)

typedef struct tdict_host_cache tdict_host_cache;

/* Creates a cache without a block. Returns TDICT_ENOMEM. */
tdict_status tdict_host_cache_create(tdict_host_cache **out, tdict_error *err);
/* Frees the block, and keeps none from now on. The storages stay valid. `cache` may be NULL. */
void tdict_host_cache_close(tdict_host_cache *cache);
/* Returns whether tdict_host_cache_storage() would use the kept block, unless another thread takes it meanwhile. */
bool tdict_host_cache_has(const tdict_host_cache *cache, size_t bytes);
/* Creates a plain host storage of TDICT_HOST_CACHE_FROM bytes or more, with unspecified contents. Uses the kept block
 * if the block is at most an eighth larger than `bytes`, and otherwise a new block. Returns TDICT_ENOMEM. */
tdict_status tdict_host_cache_storage(tdict_host_cache *cache, size_t bytes, tdict_storage **out, tdict_error *err);

#endif
