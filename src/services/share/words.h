/* Defines the words that all processes of a ring share, and the futex calls on these words. The processes share no
 * lock. Each change of a slot's state is one atomic operation, so a process that dies leaves nothing locked. A faulty
 * process can write any number to any word, so the trainer checks the state of a slot before use. Thread rule:
 * thread-safe.
 *
 * A slot has a state and the number of a worker. Workers change EMPTY to FILLING and FILLING to FULL. The trainer
 * changes FULL to TAKEN and TAKEN to EMPTY. A worker that leaves the ring changes its FILLING slots to EMPTY. If a
 * worker dies, the trainer changes these slots to EMPTY. The trainer also changes an invalid word to EMPTY. TAKEN is
 * changed to EMPTY by a store with release order. Every other change is a compare-and-exchange with acquire and release
 * order. The next owner therefore sees the bytes that the previous owner wrote. */
#ifndef TDICT_SERVICES_SHARE_WORDS_H
#define TDICT_SERVICES_SHARE_WORDS_H

#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

typedef enum tdict_slot_state {
  TDICT_SHARE_EMPTY,
  TDICT_SHARE_FILLING,
  TDICT_SHARE_FULL,
  TDICT_SHARE_TAKEN
} tdict_slot_state;

enum { TDICT_WORDS_LINE = 64 };
/* The words of one slot, in one cache line. */
typedef struct tdict_slot_words {
  _Atomic(uint32_t) state;  /* see tdict_slot_word() */
  _Atomic(uint32_t) ticket; /* for a FULL slot: the place of the slot in the order of publication (relaxed) */
  char unused[TDICT_WORDS_LINE - 8];
} tdict_slot_words;

typedef struct tdict_ring_words {
  _Atomic(uint32_t) published; /* futex: counts changes that the trainer waits for (acq_rel) */
  _Atomic(uint32_t) next_ticket;
  char unused0[TDICT_WORDS_LINE - 8];
  _Atomic(uint32_t) freed;  /* futex: counts changes that workers wait for (acq_rel) */
  _Atomic(uint32_t) closed; /* not 0: the trainer has destroyed the ring (acquire/release) */
  char unused1[TDICT_WORDS_LINE - 8];
  tdict_slot_words slots[];
  /* _Atomic(uint32_t) left[max_workers] follows: see tdict_words_left() */
} tdict_ring_words;

_Static_assert(sizeof(tdict_ring_words) == 2 * TDICT_WORDS_LINE && ATOMIC_INT_LOCK_FREE == 2,
               "the words have the same layout in all processes, and need no lock");

/* Returns the size of all words in bytes. The caller has checked both numbers, so the size cannot overflow. */
static inline size_t tdict_words_bytes(uint32_t num_slots, uint32_t max_workers) {
  return sizeof(tdict_ring_words) + num_slots * sizeof(tdict_slot_words) + max_workers * sizeof(uint32_t);
}
/* Returns an array with one word for each worker: not 0 if the worker has destroyed its ring (acquire/release). */
static inline _Atomic(uint32_t) *tdict_words_left(tdict_ring_words *words, uint32_t num_slots) {
  return (_Atomic(uint32_t) *)&words->slots[num_slots];
}

static inline uint32_t tdict_slot_word(tdict_slot_state state, uint32_t worker) { return worker << 8 | state; }
/* Changes the word of a slot from `from` to `to`. Returns false, and changes nothing, if the word is not `from`. */
static inline bool tdict_slot_change(tdict_slot_words *slot, uint32_t from, uint32_t to) {
  return atomic_compare_exchange_strong_explicit(&slot->state, &from, to, memory_order_acq_rel, memory_order_acquire);
}

/* Waits until another process calls tdict_futex_wake() for the word, at most `ns` nanoseconds. Returns at once if the
 * word is not `seen`. May also return early, for example after a signal. */
static inline void tdict_futex_wait(_Atomic(uint32_t) *word, uint32_t seen, int64_t ns) {
  const struct timespec timeout = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
  (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}
/* Counts a change and wakes all processes that wait for the word. */
static inline void tdict_futex_wake(_Atomic(uint32_t) *word) {
  atomic_fetch_add_explicit(word, 1, memory_order_acq_rel);
  (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
