/* Obtains and frees page-locked pages; see pinned_pool.h for reuse. The caller owns the pages. Thread-safe. */
#ifndef TDICT_CORE_MEMORY_PINNED_PAGES_H
#define TDICT_CORE_MEMORY_PINNED_PAGES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/base/log.h"
#include "core/sched/pool.h"
#include "tdict/status.h"

/* The driver refuses a copy across two registrations. So the pages of a call are one registration, unless the pinner
 * asks for pieces or the driver refuses so many bytes. The size of a piece is a multiple of TDICT_PINNED_GRAIN, and a
 * piece begins at a multiple of its size. See tdict_gpu_queue_rect(). */
#define TDICT_PINNED_GRAIN ((size_t)4 << 20)
/* The piece size for pinning while other threads copy: registering one piece blocks their copies for about a
 * millisecond. */
#define TDICT_PINNED_PIECE ((size_t)32 << 20)

/* The operations that pin pages; the device layer implements them. */
typedef struct tdict_pin_ops {
  /* Page-locks pages that the caller has mapped. */
  tdict_status (*reg)(void *self, void *pages, size_t bytes, tdict_error *err);
  void (*unreg)(void *self, void *pages, size_t bytes);
  /* Lets the driver allocate page-locked pages. */
  tdict_status (*allocate)(void *self, size_t bytes, void **out, tdict_error *err);
  void (*free)(void *self, void *pages, size_t bytes);
  /* Called with the errno `code` if the system refused to bind pages to the node. */
  void (*bind_refused)(void *self, int node, int code);
  /* Returns true in a forked child, which must call no other operation. NULL: forks are not detected */
  bool (*is_forked)(void *self);
  void (*retain)(void *self);
  void (*release)(void *self);
} tdict_pin_ops;
typedef struct tdict_pinner {
  const tdict_pin_ops *ops;
  void *self;
  tdict_pool *pool; /* touches pages in parallel; NULL: the calling thread touches all pages */
  tdict_log *log;   /* receives a message if pages were not obtained in the way that is tried first; NULL: no
                     * message. `self` owns the log */
  int node;         /* NUMA node to prefer; -1: none */
  /* Bytes of one registered piece, a multiple of TDICT_PINNED_GRAIN. If 0, all pages are one registration. While the
   * driver registers a piece, other threads cannot queue copies, so there is a pause after each piece but the last. */
  size_t piece;
  atomic_int *logged_ways; /* bit `1 << way` is set after `way` was logged; NULL: log every time */
} tdict_pinner;

typedef enum tdict_pinned_way {
  TDICT_PINNED_REGISTERED = 1, /* registered as one piece, or in the pieces that the pinner asks for */
  TDICT_PINNED_DRIVER = 2,
  TDICT_PINNED_SMALL = 3 /* registered in pieces of TDICT_PINNED_GRAIN, since the driver refused larger pieces */
} tdict_pinned_way;
typedef struct tdict_pinned_pages {
  void *data;
  size_t bytes; /* a multiple of 4096 */
  tdict_pinned_way way;
  int node;     /* the node of the pinner */
  size_t piece; /* borders of registrations are at multiples of `piece`; SIZE_MAX: no borders */
} tdict_pinned_pages;

/* Obtains `bytes` bytes of page-locked memory, rounded up to a multiple of 4096. Sets *out on success. For 2 MiB or
 * more, maps pages (huge pages if possible), touches the pages in parallel and registers the pages. If registering
 * fails, lets the driver allocate the pages. If the driver fails too, registers pages in pieces of TDICT_PINNED_GRAIN,
 * unless the failed registration had no piece larger than TDICT_PINNED_GRAIN. If the pinner asks for pieces, tries
 * pieces of TDICT_PINNED_GRAIN before the allocation by the driver, because this allocation would block other copies
 * for a long time. For less than 2 MiB, first lets the driver allocate the pages. If the driver fails, maps and
 * registers pages instead. Mapped pages are bound to the node of the pinner before the pages are touched. The node is a
 * preference: if the node has no free pages, pages are placed on other nodes. If the system refuses to bind, no error
 * is returned. Pages that the driver allocates cannot be bound. If every way fails, returns the status of the driver's
 * allocation, such as TDICT_ENOMEM. Returns TDICT_EOVERFLOW if the bytes do not fit the address space. */
tdict_status tdict_pinned_pages_get(const tdict_pinner *pinner, size_t bytes, tdict_pinned_pages *out,
                                    tdict_error *err);
/* Unpins and frees the pages. */
void tdict_pinned_pages_put(const tdict_pinner *pinner, const tdict_pinned_pages *pages);

#endif
