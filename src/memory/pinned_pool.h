/* The pool behind tdict_pinned_memory(): blocks of exact sizes (multiples of 4096), cut from runs of pages that are kept
 * when they are freed: the smallest free block that is large enough is cut (one of more than 16 times the size only when
 * no more may be pinned), neighbours that are free are put together again, and a block is used once its fences are done.
 * A run belongs to the memory node that it was pinned for (see tdict_pinner), and serves another one only when no more may
 * be pinned.
 * What is kept never exceeds the most that was live at once (or 64 MiB), but for blocks whose fences are not done and
 * what lies between live blocks; the runs freed longest ago go first.
 * Thread rule: safe from any thread. */
#ifndef TDICT_MEMORY_PINNED_POOL_H
#define TDICT_MEMORY_PINNED_POOL_H

#include "memory/memory.h"
#include "memory/pinned_pages.h"
#include "memory/storage.h"

/* One reference. limit_bytes: the most that is pinned at any time, live, cached, on its way in or out; 0:
 * no limit. The pinner is retained.
 * TDICT_ENOMEM. */
tdict_status tdict_pinned_pool_create(const tdict_pinner *pinner, size_t limit_bytes, tdict_memory **out,
                                      tdict_error *err);
/* The pinner's thread pool is gone from here on: pages are touched by the caller. */
void tdict_pinned_pool_forget_threads(tdict_memory *memory);
/* Gives cached blocks whose fences are done back until at most keep_bytes are cached. */
void tdict_pinned_pool_trim(tdict_memory *memory, size_t keep_bytes);
/* The pinner's own pointer; NULL when the memory is no pinned pool. */
void *tdict_pinned_pool_pinner_self(const tdict_memory *memory);
/* How the storage's pages were come by; 0 when it is not this pool's. */
int tdict_pinned_pool_way(const tdict_memory *memory, const tdict_storage *storage);

#endif
