/* Implements the trainer's calls, and notices dead workers. Thread rule: one thread at a time uses a ring. */
#include <errno.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/thread.h"
#include "device/devices.h"
#include "services/share/message.h"
#include "services/share/ring.h"

static const char take_what[] = "share_ring_take";
/* The longest wait for the end of a use. After the wait, the trainer searches the published slots again. */
enum { USE_WAIT_NS = 1000000 };

static tdict_status fail_open(const char *what, int32_t pid, tdict_error *err) {
  const int code = errno;
  if (code == ESRCH || code == EINVAL)
    return tdict_fail_native(err, TDICT_ENOTFOUND, code, "%s: there is no process %d", what, (int)pid);
  if (code == ENOSYS)
    return tdict_fail_native(err, TDICT_ENOTSUP, code, "%s: process descriptors need Linux 5.3", what);
  return tdict_fail_native(err, TDICT_EIO, code, "%s: pidfd_open for process %d failed: %s", what, (int)pid,
                           strerror(code));
}

/* Sends the ring to a worker, with a descriptor of this process. */
static tdict_status send_ring(const tdict_share_ring *r, uint32_t worker, int socket, const char *what,
                              tdict_error *err) {
  const int self = tdict_ring_open_process((int32_t)getpid());
  if (self < 0) return fail_open(what, (int32_t)getpid(), err);
  const tdict_message message = {
      .kind = TDICT_SEGMENT_RING, .worker = worker, .num_fds = 2, .fds = {r->segment->fd, self}};
  tdict_status status = tdict_message_send(what, socket, &message, err);
  close(self);
  return status;
}

tdict_status tdict_share_ring_add_worker(tdict_share_ring *ring, int socket, int32_t pid, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "share_ring_add_worker";
  uint32_t worker = 0;
  tdict_status status = tdict_ring_check(ring, true, what, err);
  if (status != TDICT_OK) return status;
  while (worker < ring->max_workers && ring->processes[worker].fd >= 0) worker++;
  if (worker == ring->max_workers)
    return tdict_fail(err, TDICT_EINVAL, "%s: max_workers is %u, and all of them live", what, ring->max_workers);
  const int process = tdict_ring_open_process(pid);
  if (process < 0) return fail_open(what, pid, err);
  atomic_store_explicit(&ring->left[worker], 0, memory_order_release);
  status = send_ring(ring, worker, socket, what, err);
  if (status != TDICT_OK) {
    close(process);
    return status;
  }
  ring->processes[worker].fd = process;
  ring->pids[worker] = pid;
  return TDICT_OK;
}

tdict_status tdict_share_ring_pin(tdict_context *context, tdict_share_ring *ring, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "share_ring_pin";
  tdict_gpu *gpu;
  tdict_status status = tdict_ring_check(ring, true, what, err);
  if (status != TDICT_OK) return status;
  if (!context) return tdict_fail(err, TDICT_EINVAL, "%s: context is NULL", what);
  if (ring->segment->gpu) return tdict_fail(err, TDICT_EINVAL, "%s: the ring is pinned already", what);
  for (uint32_t i = 0; i < ring->num_slots; i++)
    if (ring->slots[i].use != TDICT_SLOT_NOT_OURS)
      return tdict_fail(err, TDICT_EINVAL, "%s: slot %u is in use, wanted a ring whose slots are not", what, i);
  tdict_devices *devices = tdict_context_devices(context);
  const tdict_device device = tdict_devices_default(devices, NULL);
  if (device.type == TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_ENODEVICE, "%s: the default device of the context is the cpu", what);
  status = tdict_devices_check_fork(devices, what, err);
  if (status == TDICT_OK) status = tdict_devices_gpu(devices, device, &gpu, err);
  if (status != TDICT_OK) return status;
  const tdict_pinner pinner = tdict_gpu_pinner(gpu, NULL);
  status = pinner.ops->reg(pinner.self, ring->segment->map, ring->segment->layout.total_bytes, err);
  if (status != TDICT_OK) return status;
  ring->segment->gpu = tdict_gpu_retain(gpu);
  for (uint32_t i = 0; i < ring->num_slots; i++) ring->slots[i].storage->flags |= TDICT_STORAGE_PINNED;
  return TDICT_OK;
}

/* Makes a slot empty if its word is `word`. Returns false if another process has changed the word. */
static bool empty_slot(tdict_share_ring *r, uint32_t slot, uint32_t word) {
  return tdict_slot_change(&r->words->slots[slot], word, TDICT_SHARE_EMPTY);
}

/* Empties each given-back slot that no transfer and no stream uses. Returns a given-back slot that is still in use, or
 * num_slots if there is none. */
static uint32_t return_slots(tdict_share_ring *r) {
  uint32_t busy = r->num_slots, num_freed = 0;
  for (uint32_t i = 0; i < r->num_slots; i++) {
    tdict_ring_slot *slot = &r->slots[i];
    if (slot->use != TDICT_SLOT_GIVEN_BACK) continue;
    if (!tdict_storage_wait(slot->storage, true, 0)) {
      busy = i;
      continue;
    }
    slot->use = TDICT_SLOT_NOT_OURS;
    /* The trainer holds the slot, so overwrite the word even if another process has changed the word. */
    atomic_store_explicit(&r->words->slots[i].state, TDICT_SHARE_EMPTY, memory_order_release);
    num_freed++;
  }
  if (num_freed) tdict_futex_wake(&r->words->freed);
  return busy;
}

/* Returns true if `word` is possible for a slot that the trainer does not hold. */
static bool is_word_valid(const tdict_share_ring *r, uint32_t word) {
  const uint32_t state = word & 0xff, worker = word >> 8;
  if (word == TDICT_SHARE_EMPTY) return true;
  if (worker >= r->max_workers || r->pids[worker] == 0) return false;
  return state == TDICT_SHARE_FULL || (state == TDICT_SHARE_FILLING && r->processes[worker].fd >= 0);
}

/* Finds the full slot that was published first, or num_slots. An invalid word becomes EMPTY, with TDICT_EFORMAT. */
static tdict_status find_full(tdict_share_ring *r, uint32_t *out, uint32_t *out_word, tdict_error *err) {
  int32_t nearest = INT32_MAX;
  *out = r->num_slots;
  for (uint32_t i = 0; i < r->num_slots; i++) {
    if (r->slots[i].use != TDICT_SLOT_NOT_OURS) continue;
    tdict_slot_words *words = &r->words->slots[i];
    const uint32_t word = atomic_load_explicit(&words->state, memory_order_acquire);
    if (!is_word_valid(r, word)) {
      if (!empty_slot(r, i, word)) continue; /* look at the new word in the next search */
      tdict_futex_wake(&r->words->freed);
      return tdict_fail(err, TDICT_EFORMAT, "%s: a process wrote the word 0x%08x to slot %u, which is empty now",
                        take_what, word, i);
    }
    if ((word & 0xff) != TDICT_SHARE_FULL) continue;
    /* Tickets wrap around, so compare distances. */
    const int32_t distance = (int32_t)(atomic_load_explicit(&words->ticket, memory_order_relaxed) - r->last_ticket);
    if (*out < r->num_slots && distance >= nearest) continue;
    nearest = distance;
    *out = i;
    *out_word = word;
  }
  return TDICT_OK;
}

/* Removes a worker that has ended or left the ring, and empties the slots that it was filling. Returns TDICT_ELOST if
 * it had not left the ring. */
static tdict_status remove_worker(tdict_share_ring *r, uint32_t worker, tdict_error *err) {
  uint32_t first = 0, count = 0;
  for (uint32_t i = r->num_slots; i-- > 0;) {
    if (r->slots[i].use != TDICT_SLOT_NOT_OURS || !empty_slot(r, i, tdict_slot_word(TDICT_SHARE_FILLING, worker)))
      continue;
    first = i;
    count++;
  }
  if (count) tdict_futex_wake(&r->words->freed);
  close(r->processes[worker].fd);
  r->processes[worker].fd = -1;
  if (atomic_load_explicit(&r->left[worker], memory_order_acquire)) return TDICT_OK;
  const int pid = (int)r->pids[worker];
  if (count == 0)
    return tdict_fail_native(err, TDICT_ELOST, pid, "%s: worker process %d has ended and held no slot", take_what, pid);
  return tdict_fail_native(err, TDICT_ELOST, pid, "%s: worker process %d has ended and held slot %u (%u in all)",
                           take_what, pid, first, count);
}

/* Checks the processes of all workers. *any: a worker remains. Returns TDICT_ELOST for one dead worker at most. */
static tdict_status check_workers(tdict_share_ring *r, bool *any, tdict_error *err) {
  *any = false;
  r->checked_ns = tdict_now_ns();
  const int ended = poll(r->processes, r->max_workers, 0);
  for (uint32_t w = 0; w < r->max_workers; w++) {
    if (r->processes[w].fd < 0) continue;
    const bool is_ended = ended > 0 && r->processes[w].revents != 0;
    if (!is_ended && !atomic_load_explicit(&r->left[w], memory_order_acquire)) {
      *any = true;
      continue;
    }
    tdict_status status = remove_worker(r, w, err);
    if (status == TDICT_OK) continue;
    r->checked_ns = 0; /* other workers may have ended too: check again in the next call */
    return status;
  }
  return TDICT_OK;
}

/* Waits until the slot `busy` is out of use, at most USE_WAIT_NS, or if it is num_slots, until `published` is not
 * `seen`, at most TDICT_RING_CHECK_NS. Never waits longer than `left` nanoseconds. */
static void wait_for_change(tdict_share_ring *r, uint32_t busy, uint32_t seen, int64_t left) {
  if (busy == r->num_slots) {
    tdict_futex_wait(&r->words->published, seen, left < TDICT_RING_CHECK_NS ? left : TDICT_RING_CHECK_NS);
    return;
  }
  /* the workers may need the slot */
  (void)tdict_storage_wait(r->slots[busy].storage, true, tdict_deadline_ns(left < USE_WAIT_NS ? left : USE_WAIT_NS));
}

/* Takes a full slot. Sets *out to num_slots if no slot is full, or if another process has changed the slot. */
static tdict_status take_slot(tdict_share_ring *r, uint32_t *out, tdict_error *err) {
  uint32_t slot = r->num_slots, word = 0, before;
  /* A worker may publish two slots during a search that sees only the second. The next search sees both, so search
   * until the result repeats, but not for ever: a broken worker may keep changing the tickets. */
  for (uint32_t searches = 0; searches <= r->num_slots; searches++) {
    before = slot;
    tdict_status status = find_full(r, &slot, &word, err);
    if (status != TDICT_OK) return status;
    if (slot == before) break;
  }
  *out = r->num_slots;
  if (slot == r->num_slots || !tdict_slot_change(&r->words->slots[slot], word, TDICT_SHARE_TAKEN)) return TDICT_OK;
  r->last_ticket = atomic_load_explicit(&r->words->slots[slot].ticket, memory_order_relaxed);
  r->slots[slot].use = TDICT_SLOT_IN_USE;
  *out = slot;
  return TDICT_OK;
}

/* Returns the number of slots that the worker is filling. */
static uint32_t count_filling(const tdict_share_ring *r, uint32_t worker) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < r->num_slots; i++)
    count += atomic_load_explicit(&r->words->slots[i].state, memory_order_relaxed) ==
             tdict_slot_word(TDICT_SHARE_FILLING, worker);
  return count;
}

/* Returns TDICT_ETIMEDOUT. Names who holds the slots: the program, and MOST_NAMED workers at most. */
static tdict_status fail_late(const tdict_share_ring *r, int64_t waited_ns, tdict_error *err) {
  enum { MOST_NAMED = 3 };
  char holders[176];
  uint32_t living = 0, held = 0, named = 0, more = 0;
  for (uint32_t i = 0; i < r->num_slots; i++) held += r->slots[i].use != TDICT_SLOT_NOT_OURS;
  size_t at = (size_t)snprintf(holders, sizeof holders, "%u of %u by this process", held, r->num_slots);
  for (uint32_t w = 0; w < r->max_workers; w++) {
    if (r->processes[w].fd < 0) continue;
    living++;
    const uint32_t count = count_filling(r, w);
    if (count && named == MOST_NAMED) more++;
    if (!count || named == MOST_NAMED) continue;
    named++;
    at += (size_t)snprintf(holders + at, sizeof holders - at, ", %u by process %d", count, (int)r->pids[w]);
  }
  if (more) snprintf(holders + at, sizeof holders - at, ", and others by %u more workers", more);
  return tdict_fail(err, TDICT_ETIMEDOUT, "%s: no slot is full after %lld ms; living workers: %u; slots held: %s",
                    take_what, (long long)(waited_ns / 1000000), living, holders);
}

static tdict_status wait_for_slot(tdict_share_ring *r, int64_t timeout, uint32_t *out, tdict_error *err) {
  const int64_t begin = tdict_now_ns(), deadline = tdict_deadline_ns(timeout);
  bool has_worker = false, has_searched = false;
  for (;;) {
    /* Read the futex before the slots, so that a change after the search ends the wait at once. */
    const uint32_t seen = atomic_load_explicit(&r->words->published, memory_order_acquire);
    const uint32_t busy = return_slots(r);
    tdict_status status = TDICT_OK;
    /* Check the workers before a search, because a worker may have published batches before its end. */
    if (has_searched || tdict_now_ns() - r->checked_ns >= TDICT_RING_CHECK_NS)
      status = check_workers(r, &has_worker, err);
    if (status == TDICT_OK) status = take_slot(r, out, err);
    if (status != TDICT_OK || *out < r->num_slots) return status;
    if (!has_searched) {
      has_searched = true;
      continue;
    }
    if (!has_worker) return tdict_fail(err, TDICT_ENOTFOUND, "%s: no slot is full, and no worker is left", take_what);
    const int64_t now = tdict_now_ns(), left = deadline - now;
    if (left <= 0) return fail_late(r, now - begin, err);
    wait_for_change(r, busy, seen, left);
  }
}

tdict_status tdict_share_ring_take(tdict_share_ring *ring, int64_t timeout_ns, tdict_tree **out, tdict_error *err) {
  TDICT_UNCANCELLED;
  uint32_t slot = 0;
  tdict_status status = tdict_ring_check(ring, true, take_what, err);
  if (status != TDICT_OK) return status;
  if (!out) return tdict_fail(err, TDICT_EINVAL, "%s: out is NULL", take_what);
  if (timeout_ns < 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: timeout_ns is %lld, wanted 0 or more", take_what, (long long)timeout_ns);
  status = wait_for_slot(ring, timeout_ns, &slot, err);
  if (status == TDICT_OK) *out = ring->slots[slot].tree;
  return status;
}

tdict_status tdict_share_ring_give_back(tdict_share_ring *ring, tdict_tree *tree, tdict_error *err) {
  TDICT_UNCANCELLED;
  static const char what[] = "share_ring_give_back";
  uint32_t slot;
  tdict_status status = tdict_ring_check(ring, true, what, err);
  if (status == TDICT_OK) status = tdict_ring_find(ring, tree, what, &slot, err);
  if (status != TDICT_OK) return status;
  ring->slots[slot].use = TDICT_SLOT_GIVEN_BACK;
  return_slots(ring);
  return TDICT_OK;
}
