/* Creates and frees storages. Each storage lists the marks of transfers that use its bytes, and the fences of streams
 * that use its bytes. Storages are reference-counted. Thread rule: see storage.h. */
#include "core/memory/storage.h"

#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/base/assert.h"
#include "core/base/error.h"
#include "core/base/thread.h"

enum { HOST_ALIGNMENT = 256, HUGE_PAGE = 2 << 20 };
#define HUGE_BYTES ((size_t)4 << 20) /* a block of this size or more contains a whole huge page at any alignment */
/* Blocks of MALLOC_FROM to MALLOC_UP_TO bytes come from malloc(), which reuses freed blocks, and are aligned here. A
 * block freed after posix_memalign() is often too small for the next call of the same size, so each call would get new
 * pages. */
#define MALLOC_FROM ((size_t)64 << 10)
#define MALLOC_UP_TO ((size_t)(32 << 20) - 8192) /* glibc maps new pages for each block above this size */

/* The data of an unloaded storage begins at this number plus the address of the storage's record. If addresses have 64
 * bits, the number is 2^55. On processors with 48-bit addresses, no program has memory there, so a wrong access fails
 * at once. The plan of a transfer hashes the addresses of leaves, and leaves at equal addresses would collide. So each
 * unloaded storage begins at a different address. */
#define UNLOADED_ADDRESS (UINTPTR_MAX / 512 + 1)

static tdict_status make_record(size_t bytes, tdict_device device, uint32_t flags, tdict_storage **out,
                                tdict_error *err) {
  tdict_storage *s = calloc(1, sizeof *s);
  if (!s) return tdict_fail_memory(err, "storage", NULL, "its record");
  atomic_init(&s->refs, 1);
  atomic_init(&s->marks, 0);
  atomic_init(&s->busy_uses, 0);
  atomic_init(&s->lost, false);
  atomic_init(&s->lock, 0);
  s->bytes = bytes;
  s->device = device;
  s->flags = flags;
  *out = s;
  return TDICT_OK;
}

static void free_lost(tdict_storage *s) {
  if (s->lost_bytes) tdict_extent_set_reset(s->lost_bytes);
  free(s->lost_bytes);
  s->lost_bytes = NULL;
}

static void free_record(tdict_storage *s) {
  free_lost(s);
  free(s->uses);
  free(s);
}

/* Asks for whole huge pages: the first write to a small page costs as much as copying it. */
static void ask_for_huge_pages(char *data, size_t bytes) {
  size_t head = (HUGE_PAGE - (uintptr_t)data % HUGE_PAGE) % HUGE_PAGE;
  if (bytes >= HUGE_BYTES) madvise(data + head, (bytes - head) / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
}

static tdict_status allocate_plain(tdict_storage *s, bool zero, tdict_error *err) {
  if (s->bytes == 0) return TDICT_OK;
  void *block = NULL;
  if (s->bytes >= MALLOC_FROM && s->bytes <= MALLOC_UP_TO)
    block = malloc(s->bytes + HOST_ALIGNMENT);
  else if (posix_memalign(&block, s->bytes >= HUGE_BYTES ? HUGE_PAGE : HOST_ALIGNMENT, s->bytes) != 0)
    block = NULL;
  if (!block) return tdict_fail_memory(err, "storage", NULL, "%zu bytes", s->bytes);
  s->block.data = block;
  s->data = (char *)block + (HOST_ALIGNMENT - (uintptr_t)block % HOST_ALIGNMENT) % HOST_ALIGNMENT;
  ask_for_huge_pages(s->data, s->bytes);
  if (zero) memset(s->data, 0, s->bytes);
  return TDICT_OK;
}

static tdict_status allocate_from(tdict_storage *s, tdict_memory *memory, int node, bool zero, tdict_error *err) {
  tdict_status status = node >= 0 && memory->ops->allocate_near
                            ? memory->ops->allocate_near(memory, s->bytes, node, &s->block, err)
                            : memory->ops->allocate(memory, s->bytes, &s->block, err);
  if (status != TDICT_OK) return status;
  s->data = s->block.data;
  if (zero && s->bytes) {
    if (memory->ops->fill)
      status = memory->ops->fill(memory, s->data, 0, s->bytes, err);
    else
      memset(s->data, 0, s->bytes);
  }
  if (status != TDICT_OK) {
    memory->ops->free(memory, &s->block, NULL, 0);
    return status;
  }
  memory->ops->retain(memory);
  s->memory = memory;
  return TDICT_OK;
}

static tdict_status create_storage(tdict_memory *memory, size_t bytes, int node, bool zero, tdict_storage **out,
                                   tdict_error *err) {
  tdict_storage *s;
  tdict_status status = make_record(bytes, memory ? memory->device : tdict_cpu(),
                                    memory && memory->pinned ? TDICT_STORAGE_PINNED : 0, &s, err);
  if (status != TDICT_OK) return status;
  status = memory ? allocate_from(s, memory, node, zero, err) : allocate_plain(s, zero, err);
  return TDICT_HAND_OVER(status, s, out, free_record);
}

tdict_status tdict_storage_create(tdict_memory *memory, size_t bytes, bool zero, tdict_storage **out,
                                  tdict_error *err) {
  return create_storage(memory, bytes, -1, zero, out, err);
}

tdict_status tdict_storage_create_near(tdict_memory *memory, size_t bytes, int node, tdict_storage **out,
                                       tdict_error *err) {
  return create_storage(memory, bytes, node, false, out, err);
}

tdict_status tdict_storage_wrap(void *data, size_t bytes, tdict_device device, uint32_t flags, tdict_storage **out,
                                tdict_error *err) {
  tdict_storage *s;
  tdict_status status = make_record(bytes, device, flags | TDICT_STORAGE_FOREIGN, &s, err);
  if (status != TDICT_OK) return status;
  s->data = data;
  *out = s;
  return TDICT_OK;
}

/* Creates a storage without memory. The caller sets `read` or `write`. */
static tdict_status create_without_memory(size_t bytes, uint32_t flags, void (*release)(void *user), void *user,
                                          tdict_storage **out, tdict_error *err) {
  if (bytes > SIZE_MAX / 2) return tdict_fail(err, TDICT_EOVERFLOW, "storage: %zu bytes do not fit 63 bits", bytes);
  tdict_status status = tdict_storage_wrap(NULL, bytes, tdict_cpu(), flags | TDICT_STORAGE_UNLOADED, out, err);
  if (status != TDICT_OK) return status;
  (*out)->data = (void *)(UNLOADED_ADDRESS + (uintptr_t)*out);
  (*out)->release = release;
  (*out)->user = user;
  atomic_init(&(*out)->lost, true);
  return TDICT_OK;
}

tdict_status tdict_storage_create_unloaded(const tdict_storage_reader *reader, size_t bytes, tdict_storage **out,
                                           tdict_error *err) {
  tdict_status status = create_without_memory(bytes, TDICT_STORAGE_READ_ONLY, reader->release, reader->user, out, err);
  if (status == TDICT_OK) (*out)->read = reader->read;
  return status;
}

tdict_status tdict_storage_create_sink(const tdict_storage_writer *writer, size_t bytes, tdict_storage **out,
                                       tdict_error *err) {
  tdict_status status = create_without_memory(bytes, TDICT_STORAGE_SINK, writer->release, writer->user, out, err);
  if (status == TDICT_OK) (*out)->write = writer->write;
  return status;
}

tdict_status tdict_storage_read(const tdict_storage *s, size_t offset, void *dst, size_t bytes, tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_error own = {0};
  size_t done = 0;
  TDICT_ASSERT(tdict_storage_is_unloaded(s) && !tdict_storage_is_sink(s));
  TDICT_ASSERT(offset <= s->bytes && bytes <= s->bytes - offset);
  tdict_status status = tdict_callback_status(s->read(s->user, offset, dst, bytes, &done, &own), "storage: read", &own);
  if (status == TDICT_OK && done == bytes) return status;
  if (status == TDICT_OK)
    status = tdict_fail(&own, TDICT_EIO, "storage: read %zu bytes at offset %zu, wanted %zu", done, offset, bytes);
  if (err) *err = own;
  return status;
}

tdict_status tdict_storage_write(const tdict_storage *s, size_t offset, const void *src, size_t bytes,
                                 tdict_error *err) {
  TDICT_UNCANCELLED;
  tdict_error own = {0};
  TDICT_ASSERT(tdict_storage_is_sink(s) && offset <= s->bytes && bytes <= s->bytes - offset);
  tdict_status status = tdict_callback_status(s->write(s->user, offset, src, bytes, &own), "storage: write", &own);
  if (status == TDICT_OK) return status;
  if (err) *err = own;
  return status;
}

tdict_storage *tdict_storage_retain(tdict_storage *s) {
  atomic_fetch_add_explicit(&s->refs, 1, memory_order_relaxed);
  return s;
}

void tdict_storage_release(tdict_storage *s) {
  if (!s || atomic_fetch_sub_explicit(&s->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_memory *memory = s->memory;
  /* A thread of the parent held the lock at the fork. The lists can be half changed, so ignore them. */
  if (atomic_load_explicit(&s->lock, memory_order_relaxed)) {
    s->uses = NULL;
    s->num_uses = 0;
    s->filler = NULL;
    s->lost_bytes = NULL;
  }
  /* Plain host memory and memory of the program have no pool that could wait for the fences, so wait here. Do not wait
   * for the filler if it is work of the memory's owner, who orders later work after the filler. */
  if (!memory)
    for (int i = 0; i < s->num_uses; i++) {
      if (s->uses[i] != s->filler || !s->filler_is_owners) s->uses[i]->ops->wait(s->uses[i], INT64_MAX);
      s->uses[i]->ops->release(s->uses[i]);
    }
  if (memory) {
    memory->ops->free(memory, &s->block, s->uses, s->num_uses);
  } else if (s->release) {
    TDICT_UNCANCELLED; /* the function may close files */
    s->release(s->user);
  } else if (!(s->flags & TDICT_STORAGE_FOREIGN)) {
    free(s->block.data);
  }
  free_record(s);
  if (memory) memory->ops->release(memory);
}

/* The locks of marks and uses are held briefly, so other threads spin. A locked word has LOCKED_BIT and the id of its
 * process. If a thread of the parent held it at a fork, the child takes it over and drops the list: transfers and
 * streams belong to the parent. */
#define LOCKED_BIT ((uintptr_t)1)
enum { SPINS_BEFORE_YIELD = 64 };

/* Returns the word with which this process locks. Needs a system call, which takes longer than all other work on a
 * lock, so work on many storages calls this function once. */
static uintptr_t own_lock_word(void) { return (uintptr_t)getpid() << 1 | LOCKED_BIT; }

/* Locks `word` and sets *held to the value of the unlocked word. `own` is the result of own_lock_word(). If a thread of
 * the parent process holds the lock, takes over the lock, sets *held to 0 and returns false. */
static bool lock_word_as(uintptr_t own, _Atomic(uintptr_t) *word, uintptr_t *held) {
  uintptr_t seen = atomic_load_explicit(word, memory_order_relaxed);
  for (int spins = 1;; spins++) {
    if (seen != own &&
        atomic_compare_exchange_weak_explicit(word, &seen, own, memory_order_acquire, memory_order_relaxed)) {
      *held = seen & LOCKED_BIT ? 0 : seen;
      return !(seen & LOCKED_BIT);
    }
    if (spins % SPINS_BEFORE_YIELD == 0) sched_yield();
    seen = atomic_load_explicit(word, memory_order_relaxed);
  }
}

static bool lock_word(_Atomic(uintptr_t) *word, uintptr_t *held) { return lock_word_as(own_lock_word(), word, held); }

/* Returns true if some thread holds the lock word. Assertions call this function. */
__attribute__((unused)) static inline bool is_locked(_Atomic(uintptr_t) *word) {
  return (atomic_load_explicit(word, memory_order_relaxed) & LOCKED_BIT) != 0;
}

static tdict_fence_node *next_of(const tdict_fence_node *node) {
  return atomic_load_explicit(&node->next, memory_order_relaxed);
}
static tdict_fence_node *first_of(uintptr_t marks) { return (tdict_fence_node *)(marks & ~TDICT_MARKS_WRITE); }
static tdict_fence_node *lock_marks(tdict_storage *s) {
  uintptr_t marks;
  (void)lock_word(&s->marks, &marks);
  return first_of(marks);
}
static void unlock_marks(tdict_storage *s, tdict_fence_node *first) {
  uintptr_t marks = (uintptr_t)first;
  TDICT_ASSERT(is_locked(&s->marks));
  for (const tdict_fence_node *n = first; n; n = next_of(n)) marks |= TDICT_MARK_WORD(n) & TDICT_MARKS_WRITE;
  atomic_store_explicit(&s->marks, marks, memory_order_release);
}
static void set_next(tdict_fence_node *node, tdict_fence_node *next) {
  atomic_store_explicit(&node->next, next, memory_order_relaxed);
}

/* Adds the mark in front without the lock, unless another thread holds it. A lock needs a system call for the id of the
 * process, which takes longer than all other work on a mark. */
void tdict_storage_attach(tdict_fence_node *node) {
  tdict_storage *s = node->storage;
  uintptr_t seen = atomic_load_explicit(&s->marks, memory_order_relaxed);
  while (!(seen & LOCKED_BIT)) {
    const uintptr_t wanted = TDICT_MARK_WORD(node) | (seen & TDICT_MARKS_WRITE);
    set_next(node, first_of(seen));
    if (atomic_compare_exchange_weak_explicit(&s->marks, &seen, wanted, memory_order_acq_rel, memory_order_relaxed))
      return;
  }
  set_next(node, lock_marks(s));
  unlock_marks(s, node);
}

/* Removes a mark. If it is the only one, a single exchange removes it: new marks are added in front, so `next` of this
 * node stays NULL. */
void tdict_storage_detach(tdict_fence_node *node) {
  tdict_storage *s = node->storage;
  uintptr_t own = TDICT_MARK_WORD(node);
  if (!next_of(node) &&
      atomic_compare_exchange_strong_explicit(&s->marks, &own, 0, memory_order_acq_rel, memory_order_relaxed))
    return;
  /* If the storage has other marks, find this mark in the list and unlink the mark. */
  tdict_fence_node *first = lock_marks(s), *previous = NULL, *at = first;
  while (at && at != node) previous = at, at = next_of(at);
  if (at && previous) set_next(previous, next_of(node));
  unlock_marks(s, at == first && at ? next_of(node) : first);
}

static void lock_uses_as(uintptr_t own, tdict_storage *s) {
  uintptr_t none;
  if (lock_word_as(own, &s->lock, &none)) return;
  s->uses = NULL; /* lock_word() took over the lock from the parent process: the lists can be half changed */
  s->filler = NULL;
  s->lost_bytes = NULL;
  s->num_uses = s->cap_uses = 0;
  atomic_store_explicit(&s->busy_uses, 0, memory_order_release);
}
static void lock_uses(tdict_storage *s) { lock_uses_as(own_lock_word(), s); }
static void unlock_uses(tdict_storage *s) {
  TDICT_ASSERT(is_locked(&s->lock));
  atomic_store_explicit(&s->lock, 0, memory_order_release);
}

/* Calls fn for the uses that must be done before the bytes are read or written. */
static void each_use_before(uintptr_t own, tdict_storage *s, bool to_write, void (*fn)(void *user, tdict_fence *fence),
                            void *user) {
  lock_uses_as(own, s);
  for (int i = s->num_uses; i-- > 0;) /* the newest use first, because usually the other uses are done before it */
    if (to_write || s->uses[i] == s->filler) fn(user, s->uses[i]);
  unlock_uses(s);
}

void tdict_storage_each_before(tdict_storage *s, bool to_write, void (*fn)(void *user, tdict_fence *fence),
                               void *user) {
  /* a reader need not lock a list that has only readers */
  const uintptr_t marks = atomic_load_explicit(&s->marks, memory_order_acquire);
  if (marks && (to_write || marks & (TDICT_MARKS_WRITE | LOCKED_BIT))) {
    tdict_fence_node *first = lock_marks(s);
    for (tdict_fence_node *n = first; n; n = next_of(n))
      if (to_write || n->writes) fn(user, n->fence);
    unlock_marks(s, first);
  }
  if (!tdict_storage_has_no_uses(s)) each_use_before(own_lock_word(), s, to_write, fn, user);
}

void tdict_storage_collect(tdict_storage *s, bool to_write, tdict_fences *set) {
  if (tdict_storage_has_marks(s)) {
    tdict_storage_each_before(s, to_write, tdict_fences_add, set);
    return;
  }
  if (tdict_storage_has_no_uses(s)) return;
  if (!set->lock_word) set->lock_word = own_lock_word();
  each_use_before(set->lock_word, s, to_write, tdict_fences_add, set);
}

/* Returns true if the use is not done. `pending` has uses that were found pending, which are not polled again. NULL:
 * none. */
static bool is_pending(tdict_fence *use, tdict_fences *pending) {
  if (!pending || pending->no_memory) return !use->ops->poll(use);
  tdict_fences_add(pending, use);
  return pending->no_memory || tdict_fences_has(pending, use);
}

/* Removes uses that are done. Call under the lock. */
static void prune_uses(tdict_storage *s, tdict_fences *pending) {
  int kept = 0;
  TDICT_ASSERT(is_locked(&s->lock));
  for (int i = 0; i < s->num_uses; i++) {
    tdict_fence *use = s->uses[i];
    if (is_pending(use, pending)) {
      s->uses[kept++] = use;
      continue;
    }
    if (use == s->filler) s->filler = NULL;
    use->ops->release(use);
  }
  s->num_uses = kept;
  atomic_store_explicit(&s->busy_uses, kept, memory_order_release);
}

/* Retains the first fence that is not done. */
static void retain_unfinished(void *user, tdict_fence *fence) {
  tdict_fence **found = user;
  if (*found || fence->ops->poll(fence)) return;
  fence->ops->retain(fence);
  *found = fence;
}

bool tdict_storage_wait(tdict_storage *s, bool to_write, int64_t deadline_ns) {
  for (;;) {
    tdict_fence *fence = NULL;
    tdict_storage_each_before(s, to_write, retain_unfinished, &fence);
    if (!fence) break;
    const bool is_done = fence->ops->wait(fence, deadline_ns);
    fence->ops->release(fence);
    if (!is_done) return false;
  }
  if (tdict_storage_has_no_uses(s)) return true;
  lock_uses(s);
  prune_uses(s, NULL);
  unlock_uses(s);
  return true;
}

/* Sets the flag that tdict_storage_has_lost() reads without the lock. Call under the lock. */
static void set_lost(tdict_storage *s, bool lost) {
  TDICT_ASSERT(is_locked(&s->lock));
  atomic_store_explicit(&s->lost, lost, memory_order_release);
}

void tdict_storage_lose_all(tdict_storage *s) {
  lock_uses(s);
  free_lost(s);
  set_lost(s, true);
  unlock_uses(s);
}

void tdict_storage_lose(tdict_storage *s, const tdict_extent *bytes) {
  if (bytes->begin == bytes->end) return;
  lock_uses(s);
  /* If all bytes are lost, there is nothing to add. Without memory for the set, mark all bytes as lost. */
  const bool all = tdict_storage_has_lost(s) && !s->lost_bytes;
  if (!all && !s->lost_bytes) s->lost_bytes = calloc(1, sizeof *s->lost_bytes);
  if (!all && (!s->lost_bytes || !tdict_extent_set_add(s->lost_bytes, bytes))) free_lost(s);
  set_lost(s, true);
  unlock_uses(s);
}

void tdict_storage_regain(tdict_storage *s, const tdict_extent *bytes) {
  const tdict_extent all = tdict_extent_all(0, s->bytes);
  if (!tdict_storage_has_lost(s) || tdict_storage_is_unloaded(s)) return; /* the bytes of a sink stay unreadable */
  lock_uses(s);
  if (!bytes->layout && bytes->begin == 0 && bytes->end == s->bytes) {
    free_lost(s);
    set_lost(s, false);
  } else if (tdict_storage_has_lost(s)) {
    /* If lost_bytes is NULL, all bytes are lost. Make a set of all bytes, so that bytes can be removed from the set. */
    if (!s->lost_bytes) {
      s->lost_bytes = calloc(1, sizeof *s->lost_bytes);
      if (s->lost_bytes && !tdict_extent_set_add(s->lost_bytes, &all)) free_lost(s);
    }
    if (s->lost_bytes) (void)tdict_extent_set_remove(s->lost_bytes, bytes);
    if (s->lost_bytes && tdict_extent_set_is_empty(s->lost_bytes)) {
      free_lost(s);
      set_lost(s, false);
    }
  }
  unlock_uses(s);
}

bool tdict_storage_is_lost(tdict_storage *s, const tdict_extent *bytes) {
  if (!tdict_storage_has_lost(s) || bytes->begin == bytes->end) return false;
  lock_uses(s);
  const bool lost = tdict_storage_has_lost(s) && (!s->lost_bytes || tdict_extent_set_may_have(s->lost_bytes, bytes));
  unlock_uses(s);
  return lost;
}

/* Removes the newest uses that are in `after`, because the new use is done after them. The filler stays if the new use
 * only reads. Call under the lock. */
static void remove_earlier(tdict_storage *s, tdict_use_kind kind, const tdict_fences *after) {
  for (; s->num_uses > 0; s->num_uses--) {
    tdict_fence *use = s->uses[s->num_uses - 1];
    if (!tdict_fences_has(after, use) || (kind == TDICT_USE_READS && use == s->filler)) return;
    if (use == s->filler) s->filler = NULL;
    use->ops->release(use);
  }
}

/* Adds a use. Call under the lock. */
static tdict_status add_use(tdict_storage *s, tdict_fence *fence, tdict_use_kind kind, tdict_fences *pending,
                            tdict_error *err) {
  /* not at every call, because polling can call the driver */
  if (s->num_uses == s->cap_uses) prune_uses(s, pending);
  if (s->num_uses == s->cap_uses) {
    int cap = s->cap_uses ? 2 * s->cap_uses : 4;
    tdict_fence **grown = realloc(s->uses, (size_t)cap * sizeof *grown);
    if (!grown) return tdict_fail(err, TDICT_ENOMEM, "storage: no host memory to note one more use");
    s->uses = grown;
    s->cap_uses = cap;
  }
  fence->ops->retain(fence);
  s->uses[s->num_uses++] = fence;
  if (kind != TDICT_USE_READS) {
    s->filler = fence;
    s->filler_is_owners = kind == TDICT_USE_FILLS;
  }
  atomic_store_explicit(&s->busy_uses, s->num_uses, memory_order_release);
  return TDICT_OK;
}

tdict_status tdict_storage_add(tdict_storage *s, tdict_fence *fence, tdict_use_kind kind, tdict_error *err) {
  lock_uses(s);
  tdict_status status = add_use(s, fence, kind, NULL, err);
  unlock_uses(s);
  return status;
}

tdict_status tdict_storage_add_all(tdict_storage *const *storages, size_t count, tdict_fence *fence,
                                   tdict_use_kind kind, const tdict_fences *after, tdict_error *err) {
  const uintptr_t own = own_lock_word();
  tdict_fences pending = {0};
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    lock_uses_as(own, storages[i]);
    remove_earlier(storages[i], kind, after);
    status = add_use(storages[i], fence, kind, &pending, err);
    unlock_uses(storages[i]);
  }
  tdict_fences_reset(&pending);
  return status;
}
