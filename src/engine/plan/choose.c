/* Chooses threads and chunks from the plan and the tuning table. See choose.h for ownership and threads. */
#include "engine/plan/choose.h"

enum { SPIN_MIN_CPUS = 3, MANY_ITEMS = 2048 };
/* in larger transfers, the time to wake a thread is negligible */
#define SPIN_MAX_BYTES ((size_t)80 << 20)
/* Threads for a transfer of more than SPIN_MAX_BYTES that reads files or packs elements: the threads limit it, and not
 * the link. With an H200, one thread read 8 GB/s from the page cache, and eight 54 GB/s, about the speed of PCIe 5. For
 * packing, 16 threads were faster than 12, with 16 processors. */
enum { SLOW_WORKERS = 16 };
/* Number of slots that a thread of a transfer with a pace may hold: one to fill while the other is copied. */
enum { SLOTS_WITH_PACE = 2 };

/* Returns the bytes of pinned leaves that tdict_plan_stage_small() will probably send through slots. The result is only
 * an estimate, because leaves have no addresses yet. */
static size_t packed_bytes(const tdict_plan *p) {
  size_t bytes = 0;
  for (uint32_t i = 0; i < p->num_items; i++) {
    const tdict_item *item = &p->items[i];
    if (item->way != TDICT_WAY_DIRECT || item->kind != TDICT_CU_H2D || item->bytes >= TDICT_SMALL_DIRECT_BYTES)
      continue;
    if (item->is_cast) continue; /* no thread reads this leaf */
    if (i > 0 && item[-1].src->storage == item->src->storage) continue;
    bytes += item->bytes;
  }
  return bytes;
}

/* Returns the bytes that host threads copy. If elements are converted, counts their bytes in slots. */
static size_t thread_bytes(const tdict_choice_request *r) {
  const size_t *by = r->plan->way_bytes;
  const bool packs = r->mode == TDICT_MODE_NON_BLOCKING_PIN && by[TDICT_WAY_DIRECT];
  const size_t packed = packs ? packed_bytes(r->plan) : 0;
  const tdict_wire *wire = r->plan->wire;
  const size_t staged = wire ? wire->slot_bytes : by[TDICT_WAY_STAGE_IN] + by[TDICT_WAY_STAGE_OUT];
  return staged + by[TDICT_WAY_HOST] + packed;
}

/* A plan with at most this many items has little to queue. */
enum { FEW_ITEMS = 16 };
/* Returns true if the driver copies everything into a new result, and there is little to queue. Queueing then takes
 * less time than waking a thread, so the calling thread queues the copies, even in an _async call. After the line is
 * cut, is_queued_without_waiting() of start.c checks again. */
static bool is_queued_soon(const tdict_choice_request *r, size_t bytes) {
  const tdict_plan *p = r->plan;
  return r->mode == TDICT_MODE_NON_BLOCKING_PIN && bytes == 0 &&
         p->way_bytes[TDICT_WAY_DIRECT] == tdict_plan_bytes(p) && p->num_items > 0 && p->num_items <= FEW_ITEMS &&
         !p->objects && !p->writes_existing && p->line_bytes <= TDICT_DIRECT_IN_FLIGHT * TDICT_LARGE_DIRECT_BYTES;
}

static int at_most(int n, int most) { return n < most ? n : most; }

/* Returns the direction in which host threads copy most bytes. */
static tdict_tuning_direction find_direction(const tdict_choice_request *r) {
  const tdict_plan *p = r->plan;
  const size_t *bytes = p->way_bytes;
  if (bytes[TDICT_WAY_HOST] > bytes[TDICT_WAY_STAGE_IN] + bytes[TDICT_WAY_STAGE_OUT]) return TDICT_TUNING_HOST;
  if (bytes[TDICT_WAY_STAGE_IN] >= bytes[TDICT_WAY_STAGE_OUT]) return TDICT_TUNING_IN;
  return p->writes_existing || r->reuses_memory ? TDICT_TUNING_OUT : TDICT_TUNING_OUT_NEW;
}

/* Chooses the threads. A pool thread that starts a transfer makes all copies itself, so that tasks never wait for other
 * tasks. */
static void choose_threads(const tdict_choice_request *r, tdict_tuning_direction direction, size_t bytes,
                           tdict_choice *c) {
  const tdict_pool *pool = r->pool;
  tdict_how *how = &c->how;
  const bool on_worker = tdict_pool_is_worker(pool);
  const int threads = tdict_pool_size(pool), cpus = tdict_pool_num_cpus(pool);
  /* otherwise the driver makes nearly all copies, and more threads would only wait for each other */
  bool single_threaded = r->mode != TDICT_MODE_NON_BLOCKING_PIN;
  bool has_hooks = r->plan->objects && r->plan->objects->num_hooked > 1;
  bool builds_result = r->plan->num_items >= MANY_ITEMS; /* the caller builds the result while other threads copy */
  bool caller_helps = r->caller_waits && r->num_threads < 0 && c->row.caller && !has_hooks && !builds_result;
  /* Memory bandwidth limits copies within the host, so a processor is left for the program. */
  bool spares_cpu = direction == TDICT_TUNING_HOST;
  const tdict_wire *wire = r->plan->wire;
  const int least = bytes > SPIN_MAX_BYTES && (r->reads_files || (wire && wire->packs)) ? SLOW_WORKERS : 0;
  int chosen = c->row.workers < least ? least : c->row.workers;
  chosen = at_most(chosen, spares_cpu ? tdict_pool_max_working(pool, 1) : cpus);
  how->num_workers = single_threaded || r->num_threads == 0 ? 1 : r->num_threads > 0 ? r->num_threads : chosen;
  how->num_workers = at_most(how->num_workers, threads + (caller_helps ? 1 : 0));
  if (r->max_workers) how->num_workers = at_most(how->num_workers, r->max_workers);
  how->on_caller = r->num_threads == 0 || (r->caller_waits && single_threaded) || caller_helps || on_worker;
  c->on_caller_if_ready = r->num_threads < 0 && !r->caller_waits && !how->on_caller && is_queued_soon(r, bytes);
  how->on_caller |= c->on_caller_if_ready;
  if (how->on_caller && !caller_helps) how->num_workers = 1;
  if (on_worker) how->num_workers = 1;
  how->spin_ns = cpus >= SPIN_MIN_CPUS && bytes <= SPIN_MAX_BYTES ? (int64_t)c->row.spin_us * 1000 : 0;
}

/* Adjusts the chunk size. If the calling thread of an _async call makes the copies, enlarges the chunks, because the
 * transfer then needs one slot for each chunk. If the transfer uses slots, reduces chunks that are larger than a slot.
 * If first_bytes is not less than chunk_bytes, makes all chunks about equal. With unequal chunks, one thread could copy
 * a large last chunk while the other threads have no work. Keeps the chunk size for copies into a new host result. */
static void fit_chunks(const tdict_choice_request *r, tdict_tuning_direction direction, size_t bytes, tdict_choice *c) {
  size_t slot = r->slot_bytes, step = TDICT_LEAF_ALIGNMENT;
  if (c->how.on_caller && !r->caller_waits) {
    size_t fitting = (r->plan->line_bytes / r->num_slots / step + 1) * step;
    if (fitting <= slot && c->row.chunk_bytes < fitting) c->row.chunk_bytes = fitting;
    if (fitting <= slot && c->row.first_bytes < fitting) c->row.first_bytes = fitting;
  }
  /* also if `bytes` has no slots, because tdict_plan_stage_small() can send more leaves through slots */
  const bool is_on_host = r->plan->way_bytes[TDICT_WAY_HOST] == tdict_plan_bytes(r->plan);
  if (c->row.chunk_bytes > slot && !is_on_host) c->row.chunk_bytes = slot / step * step;
  if (r->max_copy_bytes && c->row.chunk_bytes > r->max_copy_bytes) c->row.chunk_bytes = r->max_copy_bytes;
  bool is_even = c->row.first_bytes >= c->row.chunk_bytes;
  size_t line_bytes = r->plan->line_bytes - tdict_plan_bytes(r->plan) + bytes; /* includes the padding between leaves */
  /* true: the sizes in the tuning table are kept, so that each page is usually touched by one thread */
  bool pages = direction == TDICT_TUNING_OUT_NEW;
  if (is_even && !pages && line_bytes > c->row.chunk_bytes) {
    size_t count = (line_bytes + c->row.chunk_bytes - 1) / c->row.chunk_bytes;
    c->row.chunk_bytes = ((line_bytes + count - 1) / count + step - 1) / step * step;
  }
  if (is_even) c->row.first_bytes = c->row.chunk_bytes;
}

/* Makes the first chunks small, for a small transfer in which one thread fills a slot. */
static void shrink_chunks(tdict_tuning_row *row) {
  enum { FIRST = 256 << 10, CHUNK = 1 << 20, SLOTS = 4 };
  if (row->chunk_bytes <= CHUNK) return;
  row->chunk_bytes = CHUNK;
  if (row->first_bytes > FIRST) row->first_bytes = FIRST;
  if (row->slots < SLOTS) row->slots = SLOTS;
}

const tdict_tuning_row *tdict_choose_row(const tdict_tuning *tuning, tdict_tuning_direction direction, size_t bytes) {
  const tdict_tuning_row *row = tuning->rows[direction];
  while (row->up_to_bytes < bytes) row++;
  return row;
}

tdict_choice tdict_choose(const tdict_choice_request *r) {
  const tdict_tuning_direction direction = find_direction(r);
  const size_t bytes = thread_bytes(r);
  /* all parts of a tree are copied at the same time, so the bytes of all count */
  const size_t together = r->rows ? bytes / (size_t)r->rows->count * (size_t)r->rows->all : bytes;
  const bool is_small = bytes <= SPIN_MAX_BYTES;
  tdict_choice c = {.row = *tdict_choose_row(r->tuning, direction, together), .num_strips = 1};
  const tdict_wire *wire = r->plan->wire;
  /* In a small transfer, several threads fill one slot together, because the link would otherwise wait long for the
   * first slot. If they cannot, the first chunks are small. In a larger transfer each thread fills its own slots, which
   * takes less time in total. */
  const bool starts_early = direction == TDICT_TUNING_IN && is_small;
  if (starts_early && wire && wire->slots_differ && !wire->packs) shrink_chunks(&c.row);
  c.how = (tdict_how){.mode = r->mode,
                      .max_slots = c.row.slots,
                      .stores = c.row.streaming ? r->best_stores : TDICT_STREAM_PLAIN,
                      .caller_waits = r->caller_waits};
  /* A thread that waits for its time keeps its slots, so few slots are left to the program's transfers otherwise. */
  if (r->max_workers) c.how.max_slots = at_most(c.how.max_slots, SLOTS_WITH_PACE);
  choose_threads(r, direction, bytes, &c);
  fit_chunks(r, direction, bytes, &c);
  if (starts_early && c.how.num_workers > 1 && !(wire && wire->slots_differ))
    c.num_strips = tdict_strips_of_bytes(c.row.chunk_bytes);
  c.wakes_in_chain = !r->caller_waits && !is_small;
  return c;
}
