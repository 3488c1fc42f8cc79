/* The staging ring: one list of idle slots, one of slots that a copy may still use. */
#include "transfer/ring.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"

enum { WANTED_SLOTS = 16, SLOT_STEP = 4096 };
#define MAX_SLOT_BYTES ((size_t)4 << 20)

static tdict_status make_slots(tdict_ring *ring, char *data, tdict_error *err) {
  ring->slots = calloc((size_t)ring->num_slots, sizeof *ring->slots);
  if (!ring->slots) return tdict_fail(err, TDICT_ENOMEM, "staging: no host memory for %d slots", ring->num_slots);
  for (int i = 0; i < ring->num_slots; i++) {
    tdict_slot *slot = &ring->slots[i];
    tdict_status status = tdict_gpu_take_event(ring->gpu, &slot->event, err);
    if (status != TDICT_OK) return status;
    slot->data = data + (size_t)i * ring->slot_bytes;
    slot->next = ring->idle;
    ring->idle = slot;
  }
  return TDICT_OK;
}

size_t tdict_ring_slot_bytes(size_t staging_bytes) {
  size_t slot = staging_bytes / WANTED_SLOTS / SLOT_STEP * SLOT_STEP;
  return slot < SLOT_STEP ? SLOT_STEP : slot > MAX_SLOT_BYTES ? MAX_SLOT_BYTES : slot;
}

tdict_status tdict_ring_create(tdict_gpu *gpu, tdict_pool *pool, size_t staging_bytes, tdict_ring **out,
                               tdict_error *err) {
  tdict_ring *ring = calloc(1, sizeof *ring);
  if (!ring) return tdict_fail(err, TDICT_ENOMEM, "staging: no host memory for its record");
  pthread_mutex_init(&ring->lock, NULL);
  pthread_cond_init(&ring->given, NULL);
  ring->gpu = gpu;
  ring->pinner = tdict_gpu_pinner(gpu, pool);
  ring->slot_bytes = tdict_ring_slot_bytes(staging_bytes);
  ring->num_slots = (int)(staging_bytes / ring->slot_bytes < 4096 ? staging_bytes / ring->slot_bytes : 4096);
  size_t bytes = ring->slot_bytes * (size_t)ring->num_slots;
  char *data = NULL;
  tdict_status status = TDICT_OK;
  if (tdict_pinned_pages_get(&ring->pinner, bytes, &ring->pages, NULL) == TDICT_OK)
    data = ring->pages.data;
  else if (posix_memalign(&ring->pageable, SLOT_STEP, bytes) == 0)
    data = ring->pageable;
  else
    status = tdict_fail(err, TDICT_ENOMEM, "staging: no memory for %zu bytes, pinned or not", bytes);
  if (status == TDICT_OK) status = make_slots(ring, data, err);
  if (status != TDICT_OK) {
    tdict_ring_destroy(ring);
    return status;
  }
  *out = ring;
  return TDICT_OK;
}

void tdict_ring_destroy(tdict_ring *ring) {
  if (!ring) return;
  tdict_driver *d = ring->gpu->driver;
  for (tdict_slot *slot = ring->oldest_busy; slot; slot = slot->next) d->ops->event_synchronize(d, slot->event);
  for (int i = 0; ring->slots && i < ring->num_slots; i++)
    if (ring->slots[i].event) tdict_gpu_give_event(ring->gpu, ring->slots[i].event);
  if (ring->pages.data) tdict_pinned_pages_put(&ring->pinner, &ring->pages);
  free(ring->pageable);
  free(ring->slots);
  pthread_cond_destroy(&ring->given);
  pthread_mutex_destroy(&ring->lock);
  free(ring);
}

static tdict_slot *pop_idle(tdict_ring *ring) {
  tdict_slot *slot = ring->idle;
  if (slot) ring->idle = slot->next;
  return slot;
}

/* Takes a busy slot off the list: the first whose copy is done, else, when `any`, the oldest. */
static tdict_slot *pop_busy(tdict_ring *ring, bool any, bool *done) {
  tdict_driver *d = ring->gpu->driver;
  tdict_slot *before = NULL, *slot = ring->oldest_busy;
  while (slot && d->ops->event_query(d, slot->event) != TDICT_CU_SUCCESS) before = slot, slot = slot->next;
  *done = slot != NULL;
  if (!slot && any) before = NULL, slot = ring->oldest_busy;
  if (!slot) return NULL;
  if (before)
    before->next = slot->next;
  else
    ring->oldest_busy = slot->next;
  if (ring->newest_busy == slot) ring->newest_busy = before;
  return slot;
}

tdict_status tdict_ring_take(tdict_ring *ring, bool wait, tdict_slot **out, tdict_error *err) {
  tdict_driver *d = ring->gpu->driver;
  bool done = true;
  pthread_mutex_lock(&ring->lock);
  tdict_slot *slot = pop_idle(ring);
  while (!slot) {
    slot = pop_busy(ring, wait, &done);
    if (slot || !wait) break;
    pthread_cond_wait(&ring->given, &ring->lock);
    slot = pop_idle(ring);
  }
  pthread_mutex_unlock(&ring->lock);
  if (slot && !done) {
    tdict_status status =
        tdict_gpu_check(ring->gpu, d->ops->event_synchronize(d, slot->event), "cuEventSynchronize", err);
    if (status != TDICT_OK) {
      tdict_ring_give(ring, slot, true);
      return status;
    }
  }
  *out = slot;
  return TDICT_OK;
}

void tdict_ring_give(tdict_ring *ring, tdict_slot *slot, bool busy) {
  pthread_mutex_lock(&ring->lock);
  if (busy) {
    slot->next = NULL;
    if (ring->newest_busy && ring->oldest_busy)
      ring->newest_busy->next = slot;
    else
      ring->oldest_busy = slot;
    ring->newest_busy = slot;
  } else {
    slot->next = ring->idle;
    ring->idle = slot;
  }
  pthread_cond_signal(&ring->given);
  pthread_mutex_unlock(&ring->lock);
}
