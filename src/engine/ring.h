/* Declares the staging ring of a GPU, which is a fixed amount of pinned memory, divided into slots. Leaves in ordinary
 * memory, strided leaves and small pinned leaves are copied through the slots. A slot belongs to the lane that took the
 * slot. A lane may return a slot while a copy still uses the slot. The ring reuses the slot only after the copy has
 * ended and the slot's event is complete. A context has one ring for each GPU that has needed a ring. Thread rule: safe
 * from any thread, except tdict_rings_init() and tdict_rings_reset(). A thread must be inside a scope of the ring's
 * GPU, except in tdict_ring_give(), tdict_rings_pin_way() and these two functions. */
#ifndef TDICT_ENGINE_RING_H
#define TDICT_ENGINE_RING_H

#include <stdatomic.h>

#include "core/sched/pool.h"
#include "device/gpu.h"

typedef struct tdict_slot tdict_slot;
struct tdict_slot {
  char *data;
  tdict_cu_event event; /* recorded after the copy that uses the bytes */
  char *scratch;        /* device memory of slot_bytes, see tdict_ring_scratch(); NULL: not allocated yet */
  tdict_slot *next;     /* link of the ring's lists */
  _Atomic(bool) posted; /* acquire/release: true while the slot's copy waits in a burst and the slot's event is not
                         * recorded yet */
};
typedef struct tdict_ring {
  tdict_gpu *gpu; /* borrowed */
  tdict_pinner pinner;
  tdict_pinned_pages pages;
  void *pageable; /* ordinary memory, used if no memory could be pinned; else NULL */
  size_t slot_bytes;
  int num_slots;
  tdict_slot *slots;
  pthread_mutex_t lock; /* guards all fields below */
  pthread_cond_t slot_returned;
  int num_idle;
  tdict_slot *idle;                      /* slots whose bytes no copy uses; the slot that became idle last comes
                                          * first */
  tdict_slot *oldest_busy, *newest_busy; /* slots that were returned while a copy used their bytes */
} tdict_ring;

enum { TDICT_MAX_RINGS = 64 };
typedef struct tdict_rings {
  tdict_pool *pool;          /* borrowed */
  size_t staging_bytes;      /* bytes of each ring */
  size_t slot_bytes;         /* bytes of a slot in each ring */
  size_t num_slots;          /* of each ring */
  pthread_mutex_t list_lock; /* guards: list, count. Held while a ring is created */
  tdict_ring *list[TDICT_MAX_RINGS];
  int count;
} tdict_rings;

void tdict_rings_init(tdict_rings *rings, tdict_pool *pool, size_t staging_bytes);
void tdict_rings_reset(tdict_rings *rings); /* destroys the rings */
/* Writes the GPU's ring, borrowed, created by the first call. Errors: TDICT_ENOMEM, TDICT_EDEVICE, TDICT_ELOST. */
tdict_status tdict_rings_get(tdict_rings *rings, tdict_gpu *gpu, tdict_ring **out, tdict_error *err);
/* Returns the tdict_pinned_way of a GPU's ring: -1 if not pinned, 0 if the GPU has no ring. */
int tdict_rings_pin_way(tdict_rings *rings, const tdict_gpu *gpu);

size_t tdict_ring_slot_bytes(size_t staging_bytes);
/* Creates a ring of at most 4096 slots in staging_bytes. If pinning fails, uses slower ordinary memory, and pin_path of
 * the statistics is TDICT_PIN_PAGEABLE. Errors: TDICT_ENOMEM, TDICT_EDEVICE, TDICT_ELOST. */
tdict_status tdict_ring_create(tdict_gpu *gpu, tdict_pool *pool, size_t staging_bytes, tdict_ring **out,
                               tdict_error *err);
void tdict_ring_destroy(tdict_ring *ring); /* call after all slots were returned; waits for the copies that use the
                                            * slots */
/* If more than keep_free slots are used by no copy, takes one of these slots, else sets *out to NULL. If `wait` is true
 * and no slot can be taken, first waits up to two milliseconds for a slot. A caller that waits must hold no slot, and
 * must call again until it gets a slot or its transfer has failed. Errors: TDICT_EDEVICE, TDICT_ELOST, TDICT_ENOMEM. */
tdict_status tdict_ring_take(tdict_ring *ring, int keep_free, bool wait, tdict_slot **out, tdict_error *err);
/* Returns true if the device can read the slots. */
static inline bool tdict_ring_is_pinned(const tdict_ring *ring) { return ring->pages.data != NULL; }
/* Returns the device memory that belongs to a slot and is as large as the slot. The lane that holds the slot may use
 * the memory while the lane holds the slot, on the stream of the slot's copies. The first call for a slot allocates the
 * memory. Errors: TDICT_ENOMEM, TDICT_EDEVICE, TDICT_ELOST. */
tdict_status tdict_ring_scratch(tdict_ring *ring, tdict_slot *slot, char **out, tdict_error *err);
/* Returns a slot to the ring. `busy` is true if a copy may still use the slot's bytes. If `busy` is true, the slot's
 * event must have been recorded after that copy. */
void tdict_ring_give(tdict_ring *ring, tdict_slot *slot, bool busy);
/* Returns true while the slot's copy waits in a burst, see burst.h. While the copy waits, the slot's event is not
 * recorded yet and must not be queried. NULL is allowed. */
static inline bool tdict_slot_is_in_burst(const tdict_slot *slot) {
  return slot && atomic_load_explicit(&slot->posted, memory_order_acquire);
}

#endif
