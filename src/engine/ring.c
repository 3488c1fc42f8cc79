/* Implements the staging ring with a list of idle slots and a list of slots that a copy may still use, and creates the
 * rings of a context on demand. See ring.h for ownership and threads. */
#include "engine/ring.h"

#include <stdlib.h>

#include "core/base/assert.h"
#include "core/base/checked.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"

/* A ring normally has 32 slots of 4 KiB to 4 MiB: a very small ring has fewer, and a large ring more. */
enum { WANTED_SLOTS = 32, SLOT_STEP = 4096 };
#define MAX_SLOT_BYTES ((size_t)4 << 20)

static void push_idle(tdict_ring *ring, tdict_slot *slot) {
  TDICT_ASSERT(ring->num_idle < ring->num_slots);
  slot->next = ring->idle;
  ring->idle = slot;
  ring->num_idle++;
}

static tdict_status make_ring_slots(tdict_ring *ring, char *data, tdict_error *err) {
  ring->slots = calloc((size_t)ring->num_slots, sizeof *ring->slots);
  if (!ring->slots) return tdict_fail_memory(err, "staging", NULL, "%d slots", ring->num_slots);
  for (int i = 0; i < ring->num_slots; i++) {
    tdict_slot *slot = &ring->slots[i];
    tdict_status status = tdict_gpu_take_event(ring->gpu, &slot->event, err);
    if (status != TDICT_OK) return status;
    slot->data = data + (size_t)i * ring->slot_bytes;
    push_idle(ring, slot);
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
  if (!ring) return tdict_fail_memory(err, "staging", NULL, "its record");
  pthread_mutex_init(&ring->lock, NULL);
  tdict_cond_init_monotonic(&ring->slot_returned);
  ring->gpu = gpu;
  ring->pinner = tdict_gpu_pinner(gpu, pool);
  /* the memory may be pinned in pieces, because only the library queues copies from or to the ring */
  if (!ring->pinner.piece) ring->pinner.piece = TDICT_PINNED_PIECE;
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
  if (status == TDICT_OK) status = make_ring_slots(ring, data, err);
  return TDICT_HAND_OVER(status, ring, out, tdict_ring_destroy);
}

void tdict_ring_destroy(tdict_ring *ring) {
  if (!ring) return;
  for (tdict_slot *slot = ring->oldest_busy; slot; slot = slot->next)
    (void)!tdict_gpu_sync_event(ring->gpu, slot->event, NULL);
  for (int i = 0; ring->slots && i < ring->num_slots; i++) {
    tdict_driver *d = ring->gpu->driver;
    if (ring->slots[i].event) tdict_gpu_give_event(ring->gpu, ring->slots[i].event);
    if (ring->slots[i].scratch) d->ops->mem_free_async(d, ring->slots[i].scratch, ring->gpu->free_stream);
  }
  if (ring->pages.data) tdict_pinned_pages_put(&ring->pinner, &ring->pages);
  free(ring->pageable);
  free(ring->slots);
  pthread_cond_destroy(&ring->slot_returned);
  pthread_mutex_destroy(&ring->lock);
  free(ring);
}

tdict_status tdict_ring_scratch(tdict_ring *ring, tdict_slot *slot, char **out, tdict_error *err) {
  void *made = slot->scratch;
  tdict_status status = made ? TDICT_OK : tdict_gpu_allocate(ring->gpu, ring->slot_bytes, &made, err);
  if (status == TDICT_OK) *out = slot->scratch = made;
  return status;
}

static tdict_slot *pop_idle(tdict_ring *ring) {
  TDICT_ASSERT(tdict_lock_is_held(&ring->lock) && ring->idle && ring->num_idle > 0);
  tdict_slot *slot = ring->idle;
  ring->idle = slot->next;
  ring->num_idle--;
  return slot;
}

/* Moves busy slots whose copies have ended to the idle list, until more than keep_free slots are idle. If the driver
 * cannot query an event, waits for the event. The caller holds the lock. Returns the errors of tdict_ring_take(). */
static tdict_status collect_idle(tdict_ring *ring, int keep_free, tdict_error *err) {
  TDICT_ASSERT(tdict_lock_is_held(&ring->lock));
  tdict_slot *before = NULL, *next;
  for (tdict_slot *slot = ring->oldest_busy; slot && ring->num_idle <= keep_free; slot = next) {
    next = slot->next;
    tdict_cu answer = tdict_gpu_query_event(ring->gpu, slot->event);
    if (answer == TDICT_CU_NOT_READY) {
      before = slot;
      continue;
    }
    tdict_status status = answer == TDICT_CU_SUCCESS ? TDICT_OK : tdict_gpu_sync_event(ring->gpu, slot->event, err);
    if (status != TDICT_OK) return status;
    *(before ? &before->next : &ring->oldest_busy) = next;
    if (ring->newest_busy == slot) ring->newest_busy = before;
    push_idle(ring, slot);
  }
  return TDICT_OK;
}

/* Waits briefly for a slot. No thread signals the end of a copy or a failure, so the caller must check again. */
static void wait_briefly(tdict_ring *ring) {
  enum { COPY_NS = 50000, FAILURE_NS = 2000000 };
  const int64_t until = tdict_now_ns() + (ring->oldest_busy ? COPY_NS : FAILURE_NS);
  const struct timespec deadline = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
  tdict_cond_wait_until(&ring->slot_returned, &ring->lock, &deadline);
}

tdict_status tdict_ring_take(tdict_ring *ring, int keep_free, bool wait, tdict_slot **out, tdict_error *err) {
  pthread_mutex_lock(&ring->lock);
  tdict_status status = ring->num_idle > keep_free ? TDICT_OK : collect_idle(ring, keep_free, err);
  if (ring->num_idle <= keep_free && wait && status == TDICT_OK) {
    wait_briefly(ring);
    status = collect_idle(ring, keep_free, err);
  }
  *out = ring->num_idle > keep_free ? pop_idle(ring) : NULL;
  pthread_mutex_unlock(&ring->lock);
  return status; /* on failure *out is NULL */
}

void tdict_ring_give(tdict_ring *ring, tdict_slot *slot, bool busy) {
  TDICT_ASSERT(slot >= ring->slots && slot < ring->slots + ring->num_slots);
  pthread_mutex_lock(&ring->lock);
  if (busy) {
    slot->next = NULL;
    if (ring->newest_busy && ring->oldest_busy)
      ring->newest_busy->next = slot;
    else
      ring->oldest_busy = slot;
    ring->newest_busy = slot;
  } else {
    push_idle(ring, slot);
  }
  pthread_cond_signal(&ring->slot_returned);
  pthread_mutex_unlock(&ring->lock);
}

void tdict_rings_init(tdict_rings *r, tdict_pool *pool, size_t staging_bytes) {
  *r = (tdict_rings){.pool = pool, .staging_bytes = staging_bytes, .slot_bytes = tdict_ring_slot_bytes(staging_bytes)};
  r->num_slots = staging_bytes / r->slot_bytes;
  pthread_mutex_init(&r->list_lock, NULL);
}

void tdict_rings_reset(tdict_rings *r) {
  for (int i = 0; i < r->count; i++) {
    /* Destroying a ring calls the driver, so the GPU's context must be current. If the device is lost, entering the
     * context may fail, and the ring is destroyed nevertheless. */
    tdict_gpu *gpu = r->list[i]->gpu;
    tdict_gpu_scope scope;
    (void)!tdict_gpu_enter(gpu, &scope, NULL);
    tdict_ring_destroy(r->list[i]);
    tdict_gpu_leave(gpu, &scope);
  }
  pthread_mutex_destroy(&r->list_lock);
}

/* The caller holds list_lock. Returns NULL if the GPU has no ring. */
static tdict_ring *find_ring(const tdict_rings *r, const tdict_gpu *gpu) {
  for (int i = 0; i < r->count; i++)
    if (r->list[i]->gpu == gpu) return r->list[i];
  return NULL;
}

tdict_status tdict_rings_get(tdict_rings *r, tdict_gpu *gpu, tdict_ring **out, tdict_error *err) {
  /* Hold the lock while a ring is created, so that two workers do not create two rings of one GPU. */
  tdict_status status = TDICT_OK;
  pthread_mutex_lock(&r->list_lock);
  tdict_ring *ring = find_ring(r, gpu);
  if (!ring) {
    status = r->count == TDICT_MAX_RINGS
                 ? tdict_fail(err, TDICT_ENOMEM, "staging: rings for at most %d devices", TDICT_MAX_RINGS)
                 : tdict_ring_create(gpu, r->pool, r->staging_bytes, &ring, err);
    if (status == TDICT_OK) r->list[r->count++] = ring;
  }
  pthread_mutex_unlock(&r->list_lock);
  if (status == TDICT_OK) *out = ring;
  return status;
}

int tdict_rings_pin_way(tdict_rings *r, const tdict_gpu *gpu) {
  pthread_mutex_lock(&r->list_lock);
  const tdict_ring *ring = find_ring(r, gpu);
  const int way = !ring ? 0 : ring->pages.data ? (int)ring->pages.way : -1;
  pthread_mutex_unlock(&r->list_lock);
  return way;
}
