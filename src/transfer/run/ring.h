/* The staging ring of a device: a fixed amount of pinned memory in slots through which pageable leaves travel.
 * A slot belongs to the thread that took it. Given back, it may still be read by a copy: its event tells.
 * Thread rule: safe from any thread that is inside a scope of the ring's gpu. */
#ifndef TDICT_TRANSFER_RUN_RING_H
#define TDICT_TRANSFER_RUN_RING_H

#include <stdatomic.h>

#include "device/gpu.h"
#include "sched/pool.h"

typedef struct tdict_slot tdict_slot;
struct tdict_slot {
  char *data;
  tdict_cu_event event; /* recorded behind the copy that uses the bytes */
  tdict_slot *next;     /* the ring's */
  _Atomic(bool) posted; /* acquire/release: its copy waits in a batch, and its event is not recorded yet */
};
typedef struct tdict_ring {
  tdict_gpu *gpu; /* borrowed */
  tdict_pinner pinner;
  tdict_pinned_pages pages;
  void *pageable; /* instead of pages when none could be pinned */
  size_t slot_bytes;
  int num_slots;
  tdict_slot *slots;
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t given;
  int num_idle;
  tdict_slot *idle;                      /* nothing uses their bytes; last given first */
  tdict_slot *oldest_busy, *newest_busy; /* given back with a copy behind them */
} tdict_ring;

/* The bytes of a slot in a ring of staging_bytes, of which there are as many as fit. */
size_t tdict_ring_slot_bytes(size_t staging_bytes);
/* TDICT_ENOMEM, TDICT_EDEVICE. Memory that cannot be pinned is taken as it is: slower, and the statistics say so. */
tdict_status tdict_ring_create(tdict_gpu *gpu, tdict_pool *pool, size_t staging_bytes, tdict_ring **out,
                               tdict_error *err);
void tdict_ring_destroy(tdict_ring *ring); /* all slots are back; waits for copies behind them */
/* A slot whose bytes nothing uses, where more than `leave` are free. wait false: *out is NULL when there is none at once;
 * true: so it is when none came within some ms, whichever copies it might have come from; the caller holds none then, and
 * asks again unless its transfer has failed meanwhile. TDICT_EDEVICE. */
tdict_status tdict_ring_take(tdict_ring *ring, int leave, bool wait, tdict_slot **out, tdict_error *err);
void tdict_ring_give(tdict_ring *ring, tdict_slot *slot, bool busy);

#endif
