/* Defines the handle that one process has of a ring. The process that created or attached the ring owns the handle.
 * Declares the functions that ring_trainer.c and ring_worker.c share. Thread rule: one thread at a time uses a
 * handle. */
#ifndef TDICT_SERVICES_SHARE_RING_H
#define TDICT_SERVICES_SHARE_RING_H

#include <poll.h>

#include "core/base/forkmark.h"
#include "core/memory/storage.h"
#include "core/tree/node.h"
#include "services/share/segment.h"
#include "services/share/words.h"

/* The longest wait for a futex. A process's death changes no word, so after each wait its life is checked. */
#define TDICT_RING_CHECK_NS ((int64_t)20000000)

/* How this process uses a slot. The functions of a ring trust this value more than the shared word of the slot, which
 * other processes may overwrite. */
typedef enum tdict_slot_use {
  TDICT_SLOT_NOT_OURS,
  TDICT_SLOT_IN_USE,    /* the program uses the tree, and has taken or begun the slot */
  TDICT_SLOT_GIVEN_BACK /* trainer only: transfers or streams may still use the slot */
} tdict_slot_use;
typedef struct tdict_ring_slot {
  tdict_tree *tree;       /* owned; NULL while the ring is being made */
  tdict_storage *storage; /* borrowed from the tree */
  tdict_slot_use use;
} tdict_ring_slot;

struct tdict_share_ring {
  tdict_segment *segment; /* retained */
  tdict_forkmark *mark;   /* retained */
  tdict_ring_words *words;
  _Atomic(uint32_t) *left; /* see tdict_words_left() */
  bool is_trainer;
  uint32_t num_slots, max_workers;
  tdict_ring_slot *slots; /* owned; num_slots elements */
  /* Used in a worker only. */
  uint32_t worker; /* the number of this worker */
  int trainer_fd;  /* owned; descriptor of the trainer's process; -1: none */
  /* Used in the trainer only. `processes` lets one poll() check all workers. */
  struct pollfd *processes; /* owned; max_workers elements. fd is -1: no worker has the number */
  int32_t *pids;            /* owned; max_workers elements */
  int64_t checked_ns;       /* time of the last check of the processes */
  uint32_t last_ticket;     /* ticket of the slot that was taken last */
};

/* Checks that this process may use the ring, as trainer or as worker. Returns TDICT_EINVAL or TDICT_EFORKED. */
tdict_status tdict_ring_check(const tdict_share_ring *ring, bool by_trainer, const char *what, tdict_error *err);
/* Finds the slot of `tree` among the slots taken or begun. Returns TDICT_EINVAL if `tree` is NULL or in no such
 * slot. */
tdict_status tdict_ring_find(const tdict_share_ring *ring, const tdict_tree *tree, const char *what, uint32_t *out,
                             tdict_error *err);
/* Opens a descriptor of a process. If the system call fails, returns -1 and sets errno. */
int tdict_ring_open_process(int32_t pid);
/* Returns the word that a slot has while this worker fills it. */
static inline uint32_t tdict_ring_filling(const tdict_share_ring *ring) {
  return tdict_slot_word(TDICT_SHARE_FILLING, ring->worker);
}

#endif
