/* Maps, touches and registers pages, or lets the driver allocate them. The caller owns the pages. Thread-safe. */
#include "core/memory/pinned_pages.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/base/thread.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, MAX_TOUCHING_THREADS = 16, RESERVED_CPUS = 2 };
/* The pause between the registrations of two pieces, in which another thread can take the driver's lock. A thread that
 * sleeps on the lock must first wake up, which usually takes less than half of this pause. */
enum { PAUSE_NS = 200000 }; /* for pieces of TDICT_PINNED_PIECE bytes or more; see pause_between_pieces() */
enum { LOG_WARNING = 2 };   /* equals TDICT_LOG_WARNING of tdict/context.h, which belongs to a layer above */

/* Maps `bytes` at a multiple of `alignment`. Returns NULL if the system refuses the mapping. */
static void *map_aligned(size_t bytes, size_t alignment) {
  char *raw = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  /* Unmap the pages outside of the aligned range. */
  size_t head = (alignment - (uintptr_t)raw % alignment) % alignment;
  if (head) munmap(raw, head);
  munmap(raw + head + bytes, alignment - head);
  madvise(raw + head, bytes, MADV_HUGEPAGE); /* can fail if huge pages are disabled; small pages suffice */
  /* Keep the pages out of a forked child: the registration with the driver belongs to the parent. */
  madvise(raw + head, bytes, MADV_DONTFORK);
  return raw + head;
}

/* Asks the system to place the pages on the pinner's node, whichever thread touches the pages first. */
static void bind_to_node(const tdict_pinner *p, void *data, size_t bytes) {
  enum { BITS = 8 * sizeof(unsigned long), MOST_NODES = 1024 };
  unsigned long nodes[MOST_NODES / BITS] = {0};
  if (p->node < 0 || p->node >= MOST_NODES) return;
  nodes[p->node / BITS] = 1UL << p->node % BITS;
  if (syscall(SYS_mbind, data, bytes, (long)MPOL_PREFERRED, nodes, (long)MOST_NODES + 1, 0L) != 0)
    p->ops->bind_refused(p->self, p->node, errno);
}

/* Pauses, so that other threads can take the driver's lock. The pause is shorter after small pieces. */
static void pause_between_pieces(size_t piece) {
  const size_t parts = piece < TDICT_PINNED_PIECE ? TDICT_PINNED_PIECE / piece : 1;
  const struct timespec pause = {0, (long)(PAUSE_NS / parts)};
  tdict_sleep(&pause);
}

/* Unregisters the first `bytes` bytes by pieces. `bytes` is a multiple of `piece`, or all pages. */
static void unregister(const tdict_pinner *p, char *data, size_t bytes, size_t piece) {
  for (size_t at = 0; at < bytes; at += piece) {
    if (at) pause_between_pieces(piece);
    p->ops->unreg(p->self, data + at, bytes - at < piece ? bytes - at : piece);
  }
}

/* The state of pinning. Several threads touch pages, and one at a time registers touched ones. */
typedef struct pinning {
  const tdict_pinner *pinner;
  char *data;
  size_t bytes, piece;
  /* Untouched huge pages of each piece (release/acquire). NULL: all pages are touched before registrations. */
  atomic_int *num_untouched;
  pthread_mutex_t lock; /* guards: registered, status, cause, busy */
  size_t registered;
  tdict_status status;
  tdict_error cause;
  bool busy; /* true: a thread is registering pages */
} pinning;

static size_t piece_bytes_at(const pinning *m, size_t at) {
  return m->bytes - at < m->piece ? m->bytes - at : m->piece;
}

/* Returns true if the next piece can be registered. Call under the lock. */
static bool is_next_ready(const pinning *m, bool is_all_touched) {
  if (m->status != TDICT_OK || m->registered >= m->bytes) return false;
  if (is_all_touched) return true;
  const size_t next = m->registered / m->piece;
  return m->num_untouched && atomic_load_explicit(&m->num_untouched[next], memory_order_acquire) == 0;
}

/* Registers the touched pieces in order, up to the first piece with untouched pages or the first failure. Does nothing
 * if another thread is registering pieces. If `is_all_touched` is true, does not check num_untouched. */
static void register_more(pinning *m, bool is_all_touched) {
  pthread_mutex_lock(&m->lock);
  bool is_registrar = !m->busy;
  if (is_registrar) m->busy = true;
  while (is_registrar && is_next_ready(m, is_all_touched)) {
    /* Unlock while registering, because registering takes milliseconds. */
    size_t at = m->registered, bytes = piece_bytes_at(m, at);
    pthread_mutex_unlock(&m->lock);
    if (at) pause_between_pieces(m->piece);
    tdict_error cause = {0};
    tdict_status status = m->pinner->ops->reg(m->pinner->self, m->data + at, bytes, &cause);
    pthread_mutex_lock(&m->lock);
    m->status = status;
    if (status == TDICT_OK)
      m->registered += bytes;
    else
      m->cause = cause;
  }
  if (is_registrar) m->busy = false;
  pthread_mutex_unlock(&m->lock);
}

static void touch_huge_page(void *user, long i) {
  pinning *m = user;
  size_t begin = (size_t)i * HUGE_PAGE, end = begin + HUGE_PAGE < m->bytes ? begin + HUGE_PAGE : m->bytes;
  for (size_t at = begin; at < end; at += PAGE) ((volatile char *)m->data)[at] = 0;
  if (!m->num_untouched) return;
  if (atomic_fetch_sub_explicit(&m->num_untouched[begin / m->piece], 1, memory_order_acq_rel) == 1)
    register_more(m, false);
}

/* Returns the number of helper threads, which leaves RESERVED_CPUS CPUs if there are enough. A suspended helper could
 * hold the driver's lock and delay all copies by milliseconds. */
static int count_touching_helpers(const tdict_pool *pool) {
  int threads = pool ? tdict_pool_max_working(pool, RESERVED_CPUS) : 1;
  return (threads < MAX_TOUCHING_THREADS ? threads : MAX_TOUCHING_THREADS) - 1;
}

static size_t count_huge_pages(size_t bytes) { return (bytes + HUGE_PAGE - 1) / HUGE_PAGE; }

/* Returns an array with the number of untouched huge pages of each piece, or NULL if memory is exhausted. */
static atomic_int *make_counters(const pinning *m) {
  size_t count = (m->bytes + m->piece - 1) / m->piece;
  atomic_int *num_untouched = malloc(count * sizeof *num_untouched);
  for (size_t i = 0; num_untouched && i < count; i++)
    atomic_init(&num_untouched[i], (int)count_huge_pages(piece_bytes_at(m, i * m->piece)));
  return num_untouched;
}

/* Touches and registers all pages. On failure no page is registered. */
static tdict_status register_all(pinning *m, tdict_error *err) {
  pthread_mutex_init(&m->lock, NULL);
  m->num_untouched = make_counters(m);
  const long pages = (long)count_huge_pages(m->bytes);
  tdict_parallel_for(m->pinner->pool, count_touching_helpers(m->pinner->pool), pages, touch_huge_page, m);
  register_more(m, true);
  free(m->num_untouched);
  pthread_mutex_destroy(&m->lock);
  if (m->status == TDICT_OK) return TDICT_OK;
  unregister(m->pinner, m->data, m->registered, m->piece);
  if (err) *err = m->cause;
  return m->status;
}

/* Maps pages and registers each piece, or all at once if `piece` is 0 or at least the number of bytes. */
static tdict_status map_and_register(const tdict_pinner *p, size_t bytes, size_t piece, tdict_pinned_pages *out,
                                     tdict_error *err) {
  const bool whole = piece == 0 || bytes <= piece;
  void *data = map_aligned(bytes, whole ? (size_t)HUGE_PAGE : piece);
  if (!data) return tdict_fail(err, TDICT_ENOMEM, "pinned memory: no address space for %zu bytes", bytes);
  /* Bind before touching, because the system places a page when a thread first touches the page. */
  bind_to_node(p, data, bytes);
  pinning m = {.pinner = p, .data = data, .bytes = bytes, .piece = whole ? bytes : piece};
  tdict_status status = register_all(&m, err);
  if (status == TDICT_OK)
    *out = (tdict_pinned_pages){data, bytes, TDICT_PINNED_REGISTERED, p->node, whole ? SIZE_MAX : piece};
  else
    munmap(data, bytes);
  return status;
}

static tdict_status allocate_from_driver(const tdict_pinner *p, size_t bytes, tdict_pinned_pages *out,
                                         tdict_error *err) {
  void *data;
  tdict_status status = p->ops->allocate(p->self, bytes, &data, err);
  if (status == TDICT_OK) *out = (tdict_pinned_pages){data, bytes, TDICT_PINNED_DRIVER, p->node, SIZE_MAX};
  return status;
}

/* Logs, once for each way if the pinner has `logged_ways`, that the preferred way did not work. */
static void log_fallback(const tdict_pinner *p, const tdict_pinned_pages *pages, const char *instead,
                         const char *cause) {
  const int bit = 1 << pages->way;
  if (!p->log || (p->logged_ways && atomic_fetch_or_explicit(p->logged_ways, bit, memory_order_relaxed) & bit)) return;
  tdict_log_write(p->log, LOG_WARNING, "pinned memory of %zu bytes %s: %s", pages->bytes, instead, cause);
}

/* Maps pages and registers pieces of TDICT_PINNED_GRAIN, after larger ones failed with the message `cause`. Returns
 * false if this fails, or if the failed pieces were not larger. */
static bool try_small_pieces(const tdict_pinner *p, size_t bytes, tdict_pinned_pages *out, const char *cause) {
  if (bytes <= TDICT_PINNED_GRAIN || p->piece == TDICT_PINNED_GRAIN) return false;
  if (map_and_register(p, bytes, TDICT_PINNED_GRAIN, out, NULL) != TDICT_OK) return false;
  out->way = TDICT_PINNED_SMALL;
  log_fallback(p, out, "is registered in pieces of 4 MiB, and one copy of the program's own cannot cross their borders",
               cause);
  return true;
}

tdict_status tdict_pinned_pages_get(const tdict_pinner *p, size_t bytes, tdict_pinned_pages *out, tdict_error *err) {
  size_t rounded;
  tdict_error first = {0}, cause = {0};
  if (!tdict_round_up(bytes ? bytes : 1, PAGE, &rounded) || rounded > SIZE_MAX / 2)
    return tdict_fail(err, TDICT_EOVERFLOW, "pinned memory: %zu bytes do not fit the address space", bytes);
  /* Try the preferred way first. If pieces are wanted, try small pieces next. */
  bool large = rounded >= HUGE_PAGE;
  if (large && map_and_register(p, rounded, p->piece, out, &first) == TDICT_OK) return TDICT_OK;
  if (large && p->piece && try_small_pieces(p, rounded, out, first.message)) return TDICT_OK;
  /* Let the driver allocate, which is preferred below 2 MiB. Then try a registration that was not tried. */
  tdict_status status = allocate_from_driver(p, rounded, out, &cause);
  if (status == TDICT_OK) {
    if (large) log_fallback(p, out, "was allocated by the driver", first.message);
    return status;
  }
  if (large && !p->piece && try_small_pieces(p, rounded, out, first.message)) return TDICT_OK;
  if (!large && map_and_register(p, rounded, 0, out, NULL) == TDICT_OK) {
    log_fallback(p, out, "is registered", cause.message);
    return TDICT_OK;
  }
  if (err) *err = cause;
  return status;
}

void tdict_pinned_pages_put(const tdict_pinner *p, const tdict_pinned_pages *pages) {
  if (pages->way == TDICT_PINNED_DRIVER) {
    p->ops->free(p->self, pages->data, pages->bytes);
    return;
  }
  unregister(p, pages->data, pages->bytes, pages->piece < pages->bytes ? pages->piece : pages->bytes);
  munmap(pages->data, pages->bytes);
}
