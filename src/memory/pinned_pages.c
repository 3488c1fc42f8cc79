/* Page-locked pages: mapped, touched and registered, or the driver's own. */
#include "memory/pinned_pages.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/checked.h"
#include "base/error.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, TOUCH_HELPERS = 15 };

/* Maps `bytes` at an address that is a multiple of a huge page; NULL without address space. */
static void *map_aligned(size_t bytes) {
  char *raw = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return NULL;
  size_t head = (HUGE_PAGE - (uintptr_t)raw % HUGE_PAGE) % HUGE_PAGE;
  if (head) munmap(raw, head);
  munmap(raw + head + bytes, HUGE_PAGE - head);
  madvise(raw + head, bytes, MADV_HUGEPAGE); /* refused where huge pages are off: small ones do as well */
  madvise(raw + head, bytes, MADV_DONTFORK); /* a child could do nothing with them */
  return raw + head;
}

typedef struct touch {
  char *data;
  size_t bytes;
} touch;
static void touch_piece(void *user, long i) {
  const touch *t = user;
  size_t end = ((size_t)i + 1) * HUGE_PAGE < t->bytes ? ((size_t)i + 1) * HUGE_PAGE : t->bytes;
  for (size_t at = (size_t)i * HUGE_PAGE; at < end; at += PAGE) ((volatile char *)t->data)[at] = 0;
}

static tdict_status get_registered(const tdict_pinner *p, size_t bytes, tdict_pinned_pages *out, tdict_error *err) {
  void *data = map_aligned(bytes);
  if (!data) return tdict_fail(err, TDICT_ENOMEM, "pinned memory: no address space for %zu bytes", bytes);
  touch t = {data, bytes};
  tdict_parallel_for(p->pool, TOUCH_HELPERS, (long)((bytes + HUGE_PAGE - 1) / HUGE_PAGE), touch_piece, &t);
  tdict_status status = p->ops->reg(p->self, data, bytes, err);
  if (status != TDICT_OK) {
    munmap(data, bytes);
    return status;
  }
  *out = (tdict_pinned_pages){data, bytes, TDICT_PINNED_REGISTERED};
  return TDICT_OK;
}

static tdict_status get_from_driver(const tdict_pinner *p, size_t bytes, tdict_pinned_pages *out, tdict_error *err) {
  void *data;
  tdict_status status = p->ops->allocate(p->self, bytes, &data, err);
  if (status == TDICT_OK) *out = (tdict_pinned_pages){data, bytes, TDICT_PINNED_DRIVER};
  return status;
}

tdict_status tdict_pinned_pages_get(const tdict_pinner *p, size_t bytes, tdict_pinned_pages *out, tdict_error *err) {
  size_t rounded;
  if (!tdict_round_up(bytes ? bytes : 1, PAGE, &rounded) || rounded > SIZE_MAX / 2)
    return tdict_fail(err, TDICT_EOVERFLOW, "pinned memory: %zu bytes do not fit the address space", bytes);
  if (rounded >= HUGE_PAGE && get_registered(p, rounded, out, NULL) == TDICT_OK) return TDICT_OK;
  tdict_error why;
  tdict_status status = get_from_driver(p, rounded, out, &why);
  if (status == TDICT_OK) return status;
  if (rounded < HUGE_PAGE && get_registered(p, rounded, out, NULL) == TDICT_OK) return TDICT_OK;
  if (err) *err = why;
  return status;
}

void tdict_pinned_pages_put(const tdict_pinner *p, const tdict_pinned_pages *pages) {
  if (pages->way == TDICT_PINNED_DRIVER) {
    p->ops->free(p->self, pages->data, pages->bytes);
    return;
  }
  p->ops->unreg(p->self, pages->data, pages->bytes);
  munmap(pages->data, pages->bytes);
}
