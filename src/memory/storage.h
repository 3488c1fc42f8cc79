/* Storage: counted bytes with a place, an owner to give them back to, and the fences of the transfers that use them.
 * Thread rule: everything here is safe from any thread. */
#ifndef TDICT_MEMORY_STORAGE_H
#define TDICT_MEMORY_STORAGE_H

#include <stdatomic.h>

#include "memory/extent.h"
#include "memory/memory.h"

#define TDICT_STORAGE_READ_ONLY 1u
#define TDICT_STORAGE_PINNED 2u   /* page-locked by a memory of the library */
#define TDICT_STORAGE_CLAIMED 4u  /* page-locked, says the program */
#define TDICT_STORAGE_ARENA 8u    /* leaves begin on multiples of 256 bytes and the gaps between them are nobody's */
#define TDICT_STORAGE_FOREIGN 16u /* the program's own memory; set by tdict_storage_wrap() */

typedef struct tdict_storage tdict_storage;
typedef struct tdict_fence_node tdict_fence_node;
/* A transfer's mark on a storage; it lies in the transfer's plan, so that marking allocates nothing. */
struct tdict_fence_node {
  _Atomic(tdict_fence_node *) next; /* the storage's; relaxed: whoever has the list writes it, its own thread looks */
  tdict_storage *storage;           /* counted by the plan, not by the node */
  tdict_fence *fence;
  bool writes;
};

struct tdict_storage {
  /* What every transfer looks at comes first: a large tree has as many storages as leaves, and each line of them that is
   * touched costs more than all that is done with it. */
  _Atomic(int64_t) refs;
  /* Acquire/release: the first node, 0 for none; with bit 0 the process of the thread that has the list for a moment. */
  _Atomic(uintptr_t) marks;
  void *data;
  size_t bytes;
  tdict_device device;
  uint32_t flags;
  _Atomic(int32_t) busy_uses; /* acquire/release: num_uses, for who looks without the lock */
  _Atomic(bool) lost;         /* acquire/release: some bytes that were to come never came; lost_bytes says which */
  tdict_memory *memory;       /* counted; NULL: plain host memory or the program's own */
  tdict_block block;          /* what memory gave; of plain host memory, its data is what is freed */
  void (*release)(void *user);
  void *user;
  _Atomic(uintptr_t)
      lock;           /* guards: uses, their numbers and lost_bytes; 0, or the process of who has it, as in marks */
  tdict_fence **uses; /* counted fences that only the giving back of the bytes waits for */
  int num_uses, cap_uses;
  tdict_extent_set *lost_bytes; /* owned; NULL while `lost` is set: all bytes */
};

/* New storage with one reference. memory NULL: malloc, aligned to 256. zero: every byte is zero. bytes may be 0. */
tdict_status tdict_storage_create(tdict_memory *memory, size_t bytes, bool zero, tdict_storage **out, tdict_error *err);
/* The same, not zeroed, of pages on a memory node if the memory can choose it: see allocate_near. */
tdict_status tdict_storage_create_near(tdict_memory *memory, size_t bytes, int node, tdict_storage **out,
                                       tdict_error *err);
/* Over the program's memory; release may be NULL. */
tdict_status tdict_storage_wrap(void *data, size_t bytes, tdict_device device, uint32_t flags, tdict_storage **out,
                                tdict_error *err);
tdict_storage *tdict_storage_retain(tdict_storage *s);
void tdict_storage_release(tdict_storage *s);

/* Marks the storage as read or written by node->fence until tdict_storage_detach(). The node's storage, fence and
 * writes are filled by the caller. */
void tdict_storage_attach(tdict_fence_node *node);
void tdict_storage_detach(tdict_fence_node *node);
/* The same where no other mark is on the storage, which is nearly always; false: there is one, and nothing was done. */
static inline bool tdict_storage_attach_first(tdict_fence_node *node) {
  uintptr_t none = 0;
  atomic_store_explicit(&node->next, NULL, memory_order_relaxed);
  return atomic_compare_exchange_strong_explicit(&node->storage->marks, &none, (uintptr_t)node, memory_order_acq_rel,
                                                 memory_order_acquire);
}
/* Neither a transfer nor a program's stream uses the bytes. */
static inline bool tdict_storage_is_idle(const tdict_storage *s) {
  return atomic_load_explicit(&s->marks, memory_order_acquire) == 0 &&
         atomic_load_explicit(&s->busy_uses, memory_order_acquire) == 0;
}
/* A fence (a new reference, or NULL) that stands in the way: of any writer, and when `to_write` of readers too. Marks of
 * `except` do not count. */
tdict_fence *tdict_storage_conflict(tdict_storage *s, bool to_write, const tdict_fence *except);
/* Shows every fence that stands in the way, with the list of marks held: fn only takes notes. */
void tdict_storage_each_conflict(tdict_storage *s, bool to_write, void (*fn)(void *user, tdict_fence *fence),
                                 void *user);
/* Waits until nothing stands in the way any more. */
void tdict_storage_wait(tdict_storage *s, bool to_write);
/* The bytes may be given back or written only when the fence is done. Takes a reference of its own; uses that are done
 * are dropped. TDICT_ENOMEM. */
tdict_status tdict_storage_add_use(tdict_storage *s, tdict_fence *fence, tdict_error *err);
/* Shows every use, with the storage's lock held: fn only takes notes. */
void tdict_storage_each_use(tdict_storage *s, void (*fn)(void *user, tdict_fence *fence), void *user);
/* These bytes never came. Without memory to note them all bytes of the storage count as lost. */
void tdict_storage_lose(tdict_storage *s, const tdict_extent *bytes);
void tdict_storage_lose_all(tdict_storage *s);
/* These bytes have been written, whether they were lost or not. See tdict_extent_set_remove() for strided ones. */
void tdict_storage_regain(tdict_storage *s, const tdict_extent *bytes);
/* Some byte of the storage is lost. */
static inline bool tdict_storage_has_lost(const tdict_storage *s) {
  return atomic_load_explicit(&s->lost, memory_order_acquire);
}
/* Some of these bytes are lost, or may be. Accessors give NULL for lost ones. */
bool tdict_storage_is_lost(tdict_storage *s, const tdict_extent *bytes);

#endif
