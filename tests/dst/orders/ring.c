/* Model of a ring's shared words. Runs the sources of src/services/share with one trainer and NUM_WORKERS workers, as
 * threads instead of processes. Each worker publishes NUM_BATCHES batches and leaves the ring. If IS_CLOSED is 0, the
 * trainer must get each batch once, each worker's batches in order, with the bytes that the worker wrote, and then
 * learn that no worker is left. If IS_CLOSED is 1, the trainer takes one batch and destroys the ring, and the workers
 * must stop. No thread may wait for a change that has already happened. */
#include "model.h"

#include "core/base/error.h"
#define tdict_fail(err, status, ...) (status)
#define tdict_fail_native(err, status, ...) (status)

/* Replaces the futex call. FUTEX_WAIT polls the word until its value changes, so FUTEX_WAKE does nothing. */
#define FIRST(first, ...) first
#define syscall(number, word, operation, ...) \
  model_futex((_Atomic(uint32_t) *)(word), (int)(operation), FIRST(__VA_ARGS__ + 0, ))
static long model_futex(_Atomic(uint32_t) *word, int operation, long value);
#include "services/share/ring.c"
#include "services/share/ring_trainer.c"
#include "services/share/ring_worker.c"
static long model_futex(_Atomic(uint32_t) *word, int operation, long value) {
  if (operation != FUTEX_WAIT) return 0;
  __VERIFIER_loop_begin();
  do __VERIFIER_spin_start();
  while (atomic_load_explicit(word, memory_order_relaxed) == (uint32_t)value && (__VERIFIER_spin_end(false), true));
  return 0;
}

/* Replacements for the other functions that the sources call. */
bool tdict_forkmark_forked(const tdict_forkmark *mark) { return mark != NULL; }
bool tdict_storage_wait(tdict_storage *s, bool to_write, int64_t deadline_ns) { return true; }
int poll(struct pollfd *fds, nfds_t count, int timeout) { return 0; }
int close(int fd) { return 0; }

static struct {
  tdict_ring_words head;
  tdict_slot_words slots[NUM_SLOTS];
  _Atomic(uint32_t) left[NUM_WORKERS];
} words;
static int bytes[NUM_SLOTS]; /* the contents of the slots' trees */
static char trees[NUM_SLOTS];

/* Fills in a thread's handle of the ring. `slots` belongs to the thread. */
static void make_handle(tdict_share_ring *r, tdict_ring_slot *slots) {
  r->words = &words.head;
  r->left = words.left;
  r->num_slots = NUM_SLOTS;
  r->max_workers = NUM_WORKERS;
  r->slots = slots;
  for (int i = 0; i < NUM_SLOTS; i++) slots[i] = (tdict_ring_slot){.tree = (tdict_tree *)(void *)&trees[i]};
}

static void *work(void *number) {
  tdict_ring_slot slots[NUM_SLOTS];
  tdict_share_ring ring = {.worker = (uint32_t)(intptr_t)number};
  make_handle(&ring, slots);
  for (int n = 1; n <= NUM_BATCHES; n++) {
    tdict_tree *tree;
    tdict_status status = tdict_share_ring_begin(&ring, INT64_MAX, &tree, NULL);
    assert(status == TDICT_OK || (IS_CLOSED && status == TDICT_ECANCELLED));
    if (status != TDICT_OK) break;
    bytes[(char *)tree - trees] = (int)ring.worker * NUM_BATCHES + n;
    status = tdict_share_ring_publish(&ring, tree, NULL);
    assert(status == TDICT_OK);
  }
  leave_ring(&ring);
  return NULL;
}

/* Takes and checks a batch. Returns false if no worker is left. */
static bool take_batch(tdict_share_ring *ring, int *last) {
  tdict_tree *tree;
  tdict_status status = tdict_share_ring_take(ring, INT64_MAX, &tree, NULL);
  assert(status == TDICT_OK || status == TDICT_ENOTFOUND);
  if (status != TDICT_OK) return false;
  const int batch = bytes[(char *)tree - trees], worker = (batch - 1) / NUM_BATCHES;
  assert(batch == ++last[worker]);
  status = tdict_share_ring_give_back(ring, tree, NULL);
  assert(status == TDICT_OK);
  return true;
}

int main(void) {
  struct pollfd processes[NUM_WORKERS];
  int32_t pids[NUM_WORKERS];
  int last[NUM_WORKERS], num_taken = 0;
  tdict_ring_slot slots[NUM_SLOTS];
  tdict_share_ring ring = {.is_trainer = true, .processes = processes, .pids = pids};
  pthread_t threads[NUM_WORKERS];
  make_handle(&ring, slots);
  for (int i = 0; i < NUM_WORKERS; i++) {
    processes[i].fd = pids[i] = i + 1;
    last[i] = i * NUM_BATCHES;
    pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
  }
  while (take_batch(&ring, last))
    if (++num_taken && IS_CLOSED) break;
  assert(IS_CLOSED || num_taken == NUM_WORKERS * NUM_BATCHES);
  leave_ring(&ring);
  for (int i = 0; i < NUM_WORKERS; i++) pthread_join(threads[i], NULL);
  return 0;
}
