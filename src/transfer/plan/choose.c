/* Choosing threads and chunks. See choose.h. */
#include "transfer/plan/choose.h"

enum { SPIN_MIN_CPUS = 3, MANY_ITEMS = 2048 };
#define SPIN_MAX_BYTES ((size_t)80 << 20) /* above this nobody notices that a waiting caller had to be woken */

/* Pinned leaves that tdict_plan_pack() is likely to send through slots, once they have their places. */
static size_t packed_bytes(const tdict_plan *p) {
  size_t bytes = 0;
  if (!p->way_bytes[TDICT_WAY_DIRECT]) return bytes;
  for (uint32_t i = 0; i < p->num_items; i++) {
    const tdict_item *item = &p->items[i];
    if (item->way != TDICT_WAY_DIRECT || item->kind != TDICT_CU_H2D || item->bytes >= TDICT_SMALL_DIRECT_BYTES)
      continue;
    if (i > 0 && item[-1].src->storage == item->src->storage) continue;
    bytes += item->bytes;
  }
  return bytes;
}

/* Bytes that host threads copy. */
static size_t thread_bytes(const tdict_choice_request *r) {
  const size_t *by = r->plan->way_bytes;
  size_t packed = r->mode == TDICT_MODE_NON_BLOCKING_PIN ? packed_bytes(r->plan) : 0;
  return by[TDICT_WAY_STAGE_IN] + by[TDICT_WAY_STAGE_OUT] + by[TDICT_WAY_HOST] + packed;
}

/* Objects whose hooks run: several run at once. */
static uint32_t num_hooked(const tdict_plan *p) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < p->num_objects; i++) count += p->objects[i].action == TDICT_OBJECT_HOOK;
  return count;
}

/* The driver does it all, and there is little to queue: that takes less time than to wake a thread. A call that does not
 * wait makes these copies begin, too, unless they turn out to be too many when they are cut. */
enum { FEW_ITEMS = 16 };
static bool is_queued_soon(const tdict_choice_request *r, size_t bytes) {
  const tdict_plan *p = r->plan;
  return r->mode == TDICT_MODE_NON_BLOCKING_PIN && bytes == 0 && p->way_bytes[TDICT_WAY_DIRECT] == p->total_bytes &&
         p->num_items > 0 && p->num_items <= FEW_ITEMS && p->num_objects == 0 && !p->writes_old &&
         p->line_bytes <= TDICT_DIRECT_IN_FLIGHT * TDICT_LARGE_DIRECT_BYTES;
}

static int at_most(int n, int most) { return n < most ? n : most; }

/* That of most of the bytes. */
static tdict_tuning_direction direction_of(const tdict_plan *p) {
  const size_t *bytes = p->way_bytes;
  if (bytes[TDICT_WAY_HOST] > bytes[TDICT_WAY_STAGE_IN] + bytes[TDICT_WAY_STAGE_OUT]) return TDICT_TUNING_HOST;
  if (bytes[TDICT_WAY_STAGE_IN] >= bytes[TDICT_WAY_STAGE_OUT]) return TDICT_TUNING_IN;
  return p->writes_old ? TDICT_TUNING_OUT : TDICT_TUNING_OUT_NEW;
}

/* On a thread of the pool the work is done right there, so that tasks never wait for tasks. */
static void choose_threads(const tdict_choice_request *r, size_t bytes, tdict_choice *c) {
  const tdict_pool *pool = r->pool;
  const bool on_worker = tdict_pool_is_worker(pool);
  const int threads = tdict_pool_size(pool), cpus = tdict_pool_num_cpus(pool);
  bool one = r->mode != TDICT_MODE_NON_BLOCKING_PIN; /* driver copies: threads would only take turns */
  bool hooks = num_hooked(r->plan) > 1;
  bool busy = r->plan->num_items >= MANY_ITEMS; /* the caller makes the result's tree meanwhile */
  bool helps = r->waits && r->asked < 0 && c->row.caller && !hooks && !busy;
  /* Copies on the host keep the memory busy, not the link: one processor more gains little, and the program wants one. */
  bool leaves_one_cpu = direction_of(r->plan) == TDICT_TUNING_HOST;
  int chosen = at_most(c->row.workers, leaves_one_cpu ? tdict_pool_max_working(pool, 1) : cpus);
  c->num_workers = one || r->asked == 0 ? 1 : r->asked > 0 ? r->asked : chosen;
  c->num_workers = at_most(c->num_workers, threads + (helps ? 1 : 0));
  c->on_caller = r->asked == 0 || (r->waits && one) || helps || on_worker;
  c->if_free = r->asked < 0 && !r->waits && !c->on_caller && is_queued_soon(r, bytes);
  c->on_caller |= c->if_free;
  if (c->on_caller && !helps) c->num_workers = 1;
  if (on_worker) c->num_workers = 1;
  c->spin_ns = cpus >= SPIN_MIN_CPUS && bytes <= SPIN_MAX_BYTES ? (int64_t)c->row.spin_us * 1000 : 0;
}

/* A caller that leaves when all is queued wants a slot for each chunk, if that goes. Where all chunks are alike they become
 * equal, so that no thread has a small last one while another has a whole one. */
static void fit_chunks(const tdict_choice_request *r, size_t bytes, tdict_choice *c) {
  size_t slot = r->slot_bytes, step = TDICT_LEAF_ALIGNMENT;
  if (c->on_caller && !r->waits) {
    size_t fitting = (r->plan->line_bytes / r->num_slots / step + 1) * step;
    if (fitting <= slot && c->row.chunk_bytes < fitting) c->row.chunk_bytes = fitting;
    if (fitting <= slot && c->row.first_bytes < fitting) c->row.first_bytes = fitting;
  }
  if (c->row.chunk_bytes > slot && r->plan->way_bytes[TDICT_WAY_HOST] < bytes) c->row.chunk_bytes = slot / step * step;
  bool alike = c->row.first_bytes >= c->row.chunk_bytes;
  size_t line = r->plan->line_bytes - r->plan->total_bytes + bytes; /* with what lies between leaves */
  bool pages = direction_of(r->plan) == TDICT_TUNING_OUT_NEW; /* chunks of whole huge pages, which one thread touches */
  if (alike && !pages && line > c->row.chunk_bytes) {
    size_t count = (line + c->row.chunk_bytes - 1) / c->row.chunk_bytes;
    c->row.chunk_bytes = ((line + count - 1) / count + step - 1) / step * step;
  }
  if (alike) c->row.first_bytes = c->row.chunk_bytes;
}

/* Threads fill a slot together where the link would otherwise wait for the first one, and copies would have to be small. A
 * longer transfer keeps the link busy with a slot a thread, which costs less. */
static uint32_t choose_parts(const tdict_choice_request *r, size_t bytes, const tdict_choice *c) {
  if (c->num_workers < 2 || direction_of(r->plan) != TDICT_TUNING_IN || bytes > SPIN_MAX_BYTES) return 1;
  return tdict_parts_of_bytes(c->row.chunk_bytes);
}

tdict_choice tdict_choose(const tdict_choice_request *r) {
  const tdict_plan *p = r->plan;
  size_t bytes = thread_bytes(r);
  tdict_choice c = {.row = *tdict_tuning_find(r->tuning, direction_of(p), bytes)};
  choose_threads(r, bytes, &c);
  fit_chunks(r, bytes, &c);
  c.num_parts = choose_parts(r, bytes, &c);
  return c;
}
