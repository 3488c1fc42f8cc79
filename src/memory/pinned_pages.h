/* Page-locked pages: from whom, and which way they were come by. Nothing is pooled here.
 * Thread rule: safe from any thread. */
#ifndef TDICT_MEMORY_PINNED_PAGES_H
#define TDICT_MEMORY_PINNED_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/log.h"
#include "sched/pool.h"
#include "tdict/status.h"

/* The driver refuses a copy that crosses the border of two registrations, so a block is one registration unless the pinner
 * asks for pieces. Borders lie on addresses that are multiples of the piece, and of this grain: see
 * tdict_gpu_queue_rect(). */
#define TDICT_PINNED_GRAIN ((size_t)4 << 20)
/* Others are held up for about a millisecond while a piece of this size is registered. */
#define TDICT_PINNED_PIECE ((size_t)32 << 20)

/* Pin operations: the device layer implements them. */
typedef struct tdict_pin_ops {
  tdict_status (*reg)(void *self, void *pages, size_t bytes, tdict_error *err); /* page-locks pages of ours */
  void (*unreg)(void *self, void *pages, size_t bytes);
  tdict_status (*allocate)(void *self, size_t bytes, void **out, tdict_error *err); /* the driver's own pages */
  void (*free)(void *self, void *pages, size_t bytes);
  void (*bind_refused)(void *self, int node,
                       int code); /* the system refused (an errno): pages lie where they are touched */
  bool (*is_forked)(void *self);  /* in a fork of the process that made it: nothing may be called or given back */
  void (*retain)(void *self);
  void (*release)(void *self);
} tdict_pin_ops;
typedef struct tdict_pinner {
  const tdict_pin_ops *ops;
  void *self;
  tdict_pool *pool; /* touches pages; NULL: the caller does */
  tdict_log *log;   /* is told when the first way failed; NULL: nobody is. Its owner is `self` */
  int node;         /* of memory, that pages are asked for on; -1: none, and the system is not asked */
  size_t piece; /* 0: one registration a block; else bytes of a piece, a multiple of TDICT_PINNED_GRAIN. While one is
                       registered other threads cannot queue copies; there is a pause after each */
  atomic_int *logged_ways; /* a bit for each way that the log has had its line about; NULL: the log has one each time */
} tdict_pinner;

typedef enum tdict_pinned_way {
  TDICT_PINNED_REGISTERED = 1, /* as the pinner asks */
  TDICT_PINNED_DRIVER = 2,
  TDICT_PINNED_SMALL = 3 /* registered in pieces of TDICT_PINNED_GRAIN, because larger registrations were refused */
} tdict_pinned_way;
typedef struct tdict_pinned_pages {
  void *data;
  size_t bytes; /* a multiple of 4096 */
  tdict_pinned_way way;
  int node;     /* the pinner's */
  size_t piece; /* borders lie on its multiples; SIZE_MAX: there are none */
} tdict_pinned_pages;

/* Gets `bytes` (rounded up to 4096) of page-locked memory. Large blocks are mapped with huge pages, touched in parallel
 * and registered. If that is refused, the driver allocates, which leaves no border either; if that fails, too, pieces of
 * TDICT_PINNED_GRAIN are registered. A pinner that asks for pieces gets those small ones before the driver is asked, since
 * what the driver allocates is one long pause. Small blocks come from the driver; if that fails they are registered.
 * Pages that are registered are bound to the pinner's node before they are touched, by preference: those for which it has
 * no room lie elsewhere, and a system that refuses is no failure. The driver's own pages cannot be bound; they lie where
 * the driver puts them. On failure the status is the driver's: TDICT_ENOMEM for no memory; TDICT_EOVERFLOW. */
tdict_status tdict_pinned_pages_get(const tdict_pinner *pinner, size_t bytes, tdict_pinned_pages *out,
                                    tdict_error *err);
void tdict_pinned_pages_put(const tdict_pinner *pinner, const tdict_pinned_pages *pages);
/* The way that is tried first for so many bytes. */
tdict_pinned_way tdict_pinned_first_way(size_t bytes);

#endif
