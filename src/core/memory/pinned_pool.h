/* Declares the pool of tdict_pinned_memory(). The pool splits runs of pinned pages into blocks of exact sizes
 * (multiples of 4096 bytes) and keeps freed runs for reuse. An allocation takes the smallest free block that fits. A
 * block of more than 16 times the requested size is split only if no more bytes can be pinned. Free neighbours are
 * merged. A freed block is reused only after its fences are done. A run is pinned for one NUMA node (see tdict_pinner).
 * A run is used for another node only if no more bytes can be pinned. The maximum size of the cache is the highest
 * number of live bytes so far or 64 MiB, whichever is larger. Even above this maximum, a free block is kept if another
 * block of its run is live or has unfinished fences. The runs that were freed first are unpinned first. Thread rule:
 * safe from any thread, except tdict_pinned_pool_forget_threads(). */
#ifndef TDICT_CORE_MEMORY_PINNED_POOL_H
#define TDICT_CORE_MEMORY_PINNED_POOL_H

#include "core/memory/memory.h"
#include "core/memory/pinned_pages.h"
#include "core/memory/storage.h"

/* Creates a pool with one reference. At most `limit_bytes` are pinned at any time, also cached, or being pinned or
 * unpinned; 0: no limit. Copies *pinner and retains pinner->self. Returns TDICT_ENOMEM. */
tdict_status tdict_pinned_pool_create(const tdict_pinner *pinner, size_t limit_bytes, tdict_memory **out,
                                      tdict_error *err);
/* Tells the pool that the pinner's thread pool no longer exists. After this call, each thread that allocates pinned
 * memory touches the new pages itself. No other thread may allocate from the pool during this call. */
void tdict_pinned_pool_forget_threads(tdict_memory *memory);
/* Unpins cached runs whose fences are done, until at most keep_bytes are cached. */
void tdict_pinned_pool_trim(tdict_memory *memory, size_t keep_bytes);
/* Returns the `self` pointer of the pinner; NULL if the memory is not a pinned pool. */
void *tdict_pinned_pool_pinner_self(const tdict_memory *memory);
/* Returns how the pages of the storage were obtained (a tdict_pinned_way); 0 if the pages are not from this pool. */
int tdict_pinned_pool_way(const tdict_memory *memory, const tdict_storage *storage);

#endif
