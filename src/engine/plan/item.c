/* Makes items of a plan: chooses the way and the GPU of an item, and appends the item to the line. Also finds leaves
 * with the same bytes, in a hash table with linear probing whose key is the address of the first element, and collects
 * uniform leaves. Several threads read a node that has many uniform leaves. See item.h for ownership and threads. */
#include "engine/plan/item.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/tensor/layout.h"

bool tdict_item_is_plain(const tdict_tensor *t) {
  const int64_t *strides = tdict_tensor_dims_strides(t);
  if (t->ndim == 1 && strides[0] == 1) return true;
  if (t->ndim == 2 && strides[1] == 1 && strides[0] == t->dims[1]) return true;
  return tdict_layout_is_contiguous(t->ndim, t->dims, strides);
}

bool tdict_item_is_unshared(const tdict_tensor *t) {
  return !t->slab && atomic_load_explicit(&t->refs, memory_order_relaxed) == 1 &&
         atomic_load_explicit(&t->storage->refs, memory_order_relaxed) == 1;
}

tdict_status tdict_item_maker_init(tdict_item_maker *m, tdict_collected *collected, const tdict_plan_request *request,
                                   tdict_error *err) {
  tdict_plan *plan = collected->plan;
  *collected = (tdict_collected){.plan = plan, .rows = request->rows};
  *m = (tdict_item_maker){.collected = collected,
                          .plan = plan,
                          .request = request,
                          .found_device = request->device,
                          .found_gpu = request->gpu};
  *plan = request->used ? *request->used : (tdict_plan){0};
  if (!request->conversions && !request->narrow) return TDICT_OK;
  plan->wire = calloc(1, sizeof *plan->wire);
  return plan->wire ? TDICT_OK : tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its conversions");
}

/* Flags are not enough: another driver may have pinned the memory, or the program's claim may be false. Consecutive
 * leaves often share a storage, so keeps the last result. */
bool tdict_item_is_pinned(tdict_item_maker *m, tdict_gpu *gpu, const tdict_tensor *t) {
  const tdict_storage *s = t->storage;
  if (!(s->flags & (TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED))) return false;
  if (s != m->last || gpu != m->last_gpu) {
    m->last = s;
    m->last_gpu = gpu;
    m->last_pinned = tdict_gpu_is_pinned(gpu, s, s->data, s->bytes);
  }
  return m->last_pinned;
}

tdict_status tdict_item_find_gpu(tdict_item_maker *m, tdict_device device, tdict_gpu **out, tdict_error *err) {
  if (m->found_gpu && m->found_device.type == device.type && m->found_device.index == device.index) {
    *out = m->found_gpu;
    return TDICT_OK;
  }
  tdict_status status = tdict_devices_gpu(m->request->devices, device, out, err);
  if (status == TDICT_OK) {
    m->found_device = device;
    m->found_gpu = *out;
  }
  if (status == TDICT_ENODEVICE && err) err->status = TDICT_EWRONGDEVICE;
  return status == TDICT_ENODEVICE ? TDICT_EWRONGDEVICE : status;
}

/* Returns the GPU of a storage. Returns TDICT_EWRONGDEVICE if the storage is on an absent device, or on a
 * simulated device of another context. Other errors: those of tdict_devices_gpu(). */
static tdict_status find_storage_gpu(tdict_item_maker *m, const tdict_storage *s, tdict_gpu **out, tdict_error *err) {
  if (!tdict_devices_own_storage(m->request->devices, s))
    return tdict_fail(err, TDICT_EWRONGDEVICE,
                      "transfer: the tensor is on %s of another context: simulated devices belong to one context",
                      TDICT_DEVICE_TEXT(s->device));
  return tdict_item_find_gpu(m, s->device, out, err);
}

/* Returns true if the GPU should read the tensor's ordinary memory without a slot. Only memory that the library
 * allocated counts: memory of the program may be the mapping of a file, which a device would read page by page. */
static bool is_read_in_place(const tdict_item_maker *m, const tdict_gpu *gpu, const tdict_tensor *t) {
  return m->request->may_read_pageable && gpu->reads_pageable && tdict_storage_is_plain(t->storage);
}

static void choose_way_in(tdict_item_maker *m, tdict_item *item) {
  item->kind = TDICT_CU_H2D;
  if (m->cast.rule || !item->src_plain || !item->dst_plain)
    item->way = TDICT_WAY_STAGE_IN;
  else if (tdict_item_is_pinned(m, item->gpu, item->src))
    item->way = TDICT_WAY_DIRECT;
  else if (m->request->narrow && tdict_item_can_pack(m->plan, item))
    item->way = TDICT_WAY_STAGE_IN;
  else if (is_read_in_place(m, item->gpu, item->src))
    item->way = TDICT_WAY_DIRECT;
  else if (m->request->mode == TDICT_MODE_NON_BLOCKING_PIN)
    item->way = TDICT_WAY_STAGE_IN;
  else
    item->way = TDICT_WAY_PAGEABLE_IN;
}

/* Chooses the way to the host: never a pageable driver copy, which blocks other threads. */
static void choose_way_out(tdict_item_maker *m, tdict_item *item) {
  item->kind = TDICT_CU_D2H;
  bool pinned =
      item->dst ? tdict_item_is_pinned(m, item->gpu, item->dst) : m->request->want_pinned; /* false for a sink */
  item->way = pinned && !m->cast.rule && item->src_plain && item->dst_plain ? TDICT_WAY_DIRECT : TDICT_WAY_STAGE_OUT;
}

tdict_status tdict_item_choose_way(tdict_item_maker *m, tdict_item *item, tdict_device to, tdict_error *err) {
  tdict_device from = item->src->storage->device;
  bool from_host = from.type == TDICT_DEVICE_CPU, to_host = to.type == TDICT_DEVICE_CPU;
  item->src_plain = !tdict_storage_is_unloaded(item->src->storage) && tdict_item_is_plain(item->src);
  item->dst_plain = !item->dst || (!tdict_storage_is_unloaded(item->dst->storage) && tdict_item_is_plain(item->dst));
  if (from_host && to_host) {
    item->way = TDICT_WAY_HOST;
    return TDICT_OK;
  }
  tdict_gpu *source;
  tdict_status status = from_host ? TDICT_OK : find_storage_gpu(m, item->src->storage, &source, err);
  if (status == TDICT_OK && !to_host)
    status = item->dst ? find_storage_gpu(m, item->dst->storage, &item->gpu, err)
                       : tdict_item_find_gpu(m, to, &item->gpu, err);
  if (status != TDICT_OK) return status;
  m->collected->reads_device |= !from_host;
  if (to_host) item->gpu = source;
  if (from_host) {
    choose_way_in(m, item);
  } else if (to_host) {
    choose_way_out(m, item);
  } else {
    item->kind = TDICT_CU_D2D;
    item->way = TDICT_WAY_DIRECT;
    m->collected->peer_bytes += source != item->gpu ? item->bytes : 0;
    if (source->driver != item->gpu->driver)
      return tdict_fail(err, TDICT_ENOTSUP,
                        "transfer: no copies between simulated devices and GPUs: move to the cpu first");
  }
  return TDICT_OK;
}

/* Adds the pending references of a slab with one atomic operation. */
void tdict_item_count_slab(tdict_item_maker *m) {
  if (m->slab_count) tdict_slab_retain(m->slab, m->slab_count);
  m->slab_count = 0;
}

static inline void retain_source(tdict_item_maker *m, tdict_tensor *t) {
  if (m->plan->borrows) return;
  if (!t->slab) {
    tdict_tensor_retain(t);
    return;
  }
  if (t->slab != m->slab && m->slab_count) tdict_item_count_slab(m);
  m->slab = t->slab;
  m->slab_count++;
}

tdict_status tdict_item_append(tdict_item_maker *m, tdict_item *item, tdict_error *err) {
  tdict_plan *p = m->plan;
  size_t end;
  if (!tdict_round_up(p->line_bytes, TDICT_LEAF_ALIGNMENT, &item->offset) ||
      !tdict_add_size(item->offset, item->bytes, &end))
    return tdict_fail(err, TDICT_EOVERFLOW, "transfer: the tree's bytes do not fit the address space");
  if (p->num_items == p->cap && !tdict_plan_reserve(p, 1))
    return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its plan");
  const bool pinned = m->cast.rule && item->way == TDICT_WAY_STAGE_IN && tdict_item_is_pinned(m, item->gpu, item->src);
  tdict_status status = p->wire ? tdict_plan_append_cast(p, &m->cast, item, m->request->narrow, pinned, err) : TDICT_OK;
  if (status != TDICT_OK) return status;
  retain_source(m, item->src);
  if (item->dst) tdict_tensor_retain(item->dst);
  const uint32_t n = p->num_items++;
  tdict_storage *storage = item->src->storage;
  item->shares_storage = n && p->items[n - 1].src->storage == storage;
  p->nodes[n] = (tdict_fence_node){.storage = item->shares_storage ? NULL : storage};
  p->items[n] = *item;
  p->line_bytes = end;
  p->way_bytes[item->way] += item->bytes;
  p->writes_existing |= item->dst != NULL;
  return TDICT_OK;
}

tdict_status tdict_plan_collect_pairs(tdict_collected *collected, const tdict_plan_request *request,
                                      const tdict_copy_pair *pairs, size_t num_pairs, tdict_error *err) {
  tdict_item_maker m;
  tdict_status status = tdict_item_maker_init(&m, collected, request, err);
  for (size_t i = 0; i < num_pairs && status == TDICT_OK; i++) {
    tdict_tensor *src = pairs[i].src;
    tdict_item item = {.src = src, .src_data = src->data, .dst_data = pairs[i].dst, .leaf = pairs[i].leaf};
    item.bytes = tdict_tensor_nbytes(src);
    status = tdict_item_choose_way(&m, &item, request->device, err);
    if (status == TDICT_OK) status = tdict_item_append(&m, &item, err);
  }
  tdict_item_count_slab(&m);
  if (status != TDICT_OK) tdict_plan_reset(m.plan);
  return status;
}

/* Leaves with the same bytes. */

bool tdict_same_bytes_follows(tdict_same_bytes *same, const tdict_tensor *t) {
  const uintptr_t begin = (uintptr_t)t->data;
  const size_t bytes = tdict_tensor_nbytes(t);
  if (!bytes || !tdict_item_is_plain(t)) return false;
  if (same->num_storages && same->storages[same->num_storages - 1] == t->storage) {
    if (begin < same->storage_end) return false;
  } else {
    for (int i = 0; i < same->num_storages; i++)
      if (same->storages[i] == t->storage) return false;
    if (same->num_storages == TDICT_SAME_BYTES_STORAGES) return false;
    same->storages[same->num_storages++] = t->storage;
  }
  same->storage_end = begin + bytes;
  return true;
}

static size_t hash_slot(const tdict_same_bytes *same, const tdict_tensor *t) {
  uint64_t x = (uint64_t)(uintptr_t)t->data * 0x9e3779b97f4a7c15u;
  /* Use the upper half of the product, because the low bits of an address are often zero. */
  return (size_t)(x >> 32) & (same->cap - 1);
}

static bool are_same_bytes(const tdict_tensor *a, const tdict_tensor *b) {
  if (a->storage != b->storage || a->data != b->data || tdict_tensor_nbytes(a) != tdict_tensor_nbytes(b)) return false;
  /* If both leaves are in C order, their shapes may differ. If not, dtype, shape and strides must be equal. */
  if (tdict_item_is_plain(a) && tdict_item_is_plain(b)) return true;
  return a->dtype == b->dtype && a->ndim == b->ndim &&
         memcmp(a->dims, b->dims, 2 * (size_t)a->ndim * sizeof *a->dims) == 0;
}

/* Returns true if entry `i` and the leaf `t` are both copied unchanged, or are converted alike. */
static bool have_same_cast(const tdict_same_bytes *same, size_t i, const tdict_tensor *t) {
  if (!same->plan) return true;
  const uint32_t rule = same->plan->wire->casts[same->table[i] - 1].rule;
  if (rule != same->wanted->rule) return false;
  const tdict_tensor *other = same->tensors[i];
  if (rule && same->wanted->images && !tdict_shapes_equal(other->ndim, other->dims, t->ndim, t->dims)) return false;
  return rule == 0 || other->dtype == t->dtype;
}

void tdict_same_bytes_find(const tdict_same_bytes *same, const tdict_tensor *t, uint32_t *place) {
  if (!same->cap || !t->data) return;
  for (size_t i = hash_slot(same, t); same->table[i]; i = (i + 1) & (same->cap - 1)) {
    if (!are_same_bytes(same->tensors[i], t) || !have_same_cast(same, i, t)) continue;
    *place = same->table[i] - 1;
    return;
  }
}

static void put_entry(tdict_same_bytes *same, const tdict_tensor *t, uint32_t entry) {
  size_t i = hash_slot(same, t);
  while (same->table[i]) i = (i + 1) & (same->cap - 1);
  same->table[i] = entry;
  same->tensors[i] = t;
}

static bool grow_table(tdict_same_bytes *same) {
  tdict_same_bytes bigger = *same;
  bigger.cap = same->cap ? 2 * same->cap : 64;
  bigger.table = calloc(bigger.cap, sizeof *bigger.table);
  bigger.tensors = malloc(bigger.cap * sizeof *bigger.tensors);
  if (!bigger.table || !bigger.tensors) {
    tdict_same_bytes_reset(&bigger);
    return false;
  }
  for (size_t i = 0; i < same->cap; i++)
    if (same->table[i]) put_entry(&bigger, same->tensors[i], same->table[i]);
  tdict_same_bytes_reset(same);
  *same = bigger;
  return true;
}

bool tdict_same_bytes_add(tdict_same_bytes *same, const tdict_tensor *t, uint32_t item) {
  if (!t->data) return true;
  /* At most half of the table is used, so that searches stay short. */
  if (2 * (same->count + 1) > same->cap && !grow_table(same)) return false;
  put_entry(same, t, item + 1);
  same->count++;
  return true;
}

void tdict_same_bytes_reset(tdict_same_bytes *same) {
  free(same->table);
  free(same->tensors);
  memset(same, 0, sizeof *same);
}

/* Uniform leaves. */

/* Several threads read a node that has at least PARALLEL_LEAVES unread leaves. The leaves are divided into at most
 * MAX_STRETCHES stretches. A stretch normally has LEAST_STRETCH to MOST_STRETCH leaves. */
enum { PARALLEL_LEAVES = 512, LEAST_STRETCH = 200, MOST_STRETCH = 2048, MAX_STRETCHES = 64 };
/* Fewer than FEW_HELPERS helpers save little time, so they are woken only for PARALLEL_BY_FEW leaves or more. */
enum { FEW_HELPERS = 3, PARALLEL_BY_FEW = 8192 };

/* Returns true for a leaf in ordinary memory, and for a small pinned leaf that is packed into slots. The caller checks
 * that no other tensor uses the storage. A driver copy covers several leaves only if the leaves have one storage. This
 * leaf is alone in its storage, so packing the leaf splits no larger copy. */
static inline bool uses_slots(const tdict_uniform *m, const tdict_storage *s) {
  if (!(s->flags & (TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED | TDICT_STORAGE_UNLOADED))) return true;
  return m->stages_small && s->bytes < TDICT_SMALL_DIRECT_BYTES && !tdict_storage_is_unloaded(s);
}

static inline bool is_uniform(const tdict_uniform *m, tdict_leaf leaf) {
  if (!leaf || tdict_leaf_kind(leaf) != TDICT_LEAF_TENSOR) return false;
  const tdict_tensor *t = tdict_leaf_tensor(leaf);
  return (m->is_distinct || tdict_item_is_unshared(t)) && t->storage->device.type == TDICT_DEVICE_CPU &&
         uses_slots(m, t->storage) && tdict_item_is_plain(t);
}

/* Adds a uniform leaf as item `n`, at the next multiple of 256 from *line, and sets *line to the leaf's end. `number`
 * is the leaf's number. Returns false if the leaf is not uniform, or if the offsets overflow. */
static inline bool add_uniform_leaf(const tdict_uniform *m, tdict_leaf leaf, uint32_t n, uint32_t number,
                                    size_t *line) {
  if (!is_uniform(m, leaf)) return false;
  tdict_tensor *t = tdict_leaf_tensor(leaf);
  tdict_storage *s = t->storage;
  size_t begin, end, at = 0, bytes = tdict_tensor_nbytes(t);
  if (m->rows) at = tdict_source_rows_cut(m->rows, &bytes);
  if (!tdict_round_up(*line, TDICT_LEAF_ALIGNMENT, &begin) || !tdict_add_size(begin, bytes, &end)) return false;
  if (!m->plan->borrows && !t->slab) atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  m->plan->nodes[n] = (tdict_fence_node){.storage = s};
  m->plan->items[n] = (tdict_item){.src = t,
                                   .src_data = at ? (char *)t->data + at : t->data,
                                   .offset = begin,
                                   .bytes = bytes,
                                   .gpu = m->to,
                                   .leaf = number,
                                   .way = m->way,
                                   .kind = TDICT_CU_H2D,
                                   .src_plain = true,
                                   .dst_plain = true};
  m->plan->item_of_leaf[number] = n;
  *line = end;
  return true;
}

/* Adds the references to the tensors of items that are in slabs. Only distinct leaves can be in slabs. One atomic
 * operation adds the references to consecutive tensors of one slab. */
static void retain_slabs(const tdict_uniform *m, uint32_t first, uint32_t end) {
  const tdict_item *items = m->plan->items;
  for (uint32_t i = first; i < end && !m->plan->borrows;) {
    tdict_slab *slab = items[i].src->slab;
    const uint32_t begin = i;
    while (i < end && items[i].src->slab == slab) i++;
    if (slab) tdict_slab_retain(slab, (int64_t)(i - begin));
  }
}

/* Consecutive leaves of a node that one thread reads. The thread needs to know where the stretch begins on the line.
 * guess_begin() assumes that all leaves have the size of the first leaf. join_stretches() corrects a wrong guess. */
typedef struct stretch {
  uint32_t first, count, done; /* number of the first leaf, number of leaves, number of leaves that were read */
  size_t begin, end;           /* offsets on the line */
  size_t bytes, num_dims;
} stretch;
typedef struct parallel {
  const tdict_uniform *uniform;
  const tdict_tree *node;
  uint32_t slot; /* slot of the first leaf */
  stretch *stretches;
} parallel;

static void read_stretch(void *user, long i) {
  const parallel *p = user;
  const tdict_plan *plan = p->uniform->plan;
  stretch s = p->stretches[i]; /* a local copy: neighbouring stretches share a cache line */
  const uint32_t slot = p->slot + s.first, end = slot + s.count;
  for (uint32_t k = 0; k < s.count; k++, s.done++) {
    tdict_look_ahead(p->node, slot + k, end);
    const uint32_t at = s.first + k;
    if (!add_uniform_leaf(p->uniform, p->node->leaves[slot + k], plan->num_items + at, plan->num_leaves + at, &s.end))
      break;
    s.bytes += plan->items[plan->num_items + at].bytes;
    s.num_dims += (size_t)plan->items[plan->num_items + at].src->ndim;
  }
  if (p->uniform->is_distinct) retain_slabs(p->uniform, plan->num_items + s.first, plan->num_items + s.first + s.done);
  p->stretches[i] = s;
}

/* Places the stretches on the line. Returns false if one stopped early or the line overflows. */
static bool join_stretches(tdict_plan *plan, stretch *stretches, long count) {
  size_t line = plan->line_bytes, bytes = 0;
  for (long i = 0; i < count; i++) {
    stretch *s = &stretches[i];
    size_t base;
    if (s->done != s->count || !tdict_round_up(line, TDICT_LEAF_ALIGNMENT, &base) ||
        !tdict_add_size(base, s->end - s->begin, &line))
      return false;
    size_t guessed = s->begin;
    for (uint32_t k = 0; base != guessed && k < s->count; k++)
      plan->items[plan->num_items + s->first + k].offset += base - guessed;
    bytes += s->bytes;
  }
  plan->line_bytes = line;
  plan->way_bytes[plan->items[plan->num_items].way] += bytes;
  return true;
}

/* Guesses where on the line a stretch begins, at a multiple of 256. 0: overflow, or no tensor first. */
static size_t guess_begin(const tdict_uniform *m, tdict_leaf first_leaf, uint32_t first) {
  const tdict_plan *plan = m->plan;
  const tdict_tensor *t = tdict_leaf_tensor(first_leaf);
  size_t each, before, line, begin, bytes = t ? tdict_tensor_nbytes(t) : 0;
  if (m->rows) (void)tdict_source_rows_cut(m->rows, &bytes);
  if (!t || !tdict_round_up(bytes, TDICT_LEAF_ALIGNMENT, &each) || !tdict_mul_size(each, first, &before) ||
      !tdict_round_up(plan->line_bytes, TDICT_LEAF_ALIGNMENT, &line) || !tdict_add_size(line, before, &begin) ||
      begin > SIZE_MAX / 2)
    return 0;
  return begin;
}

/* Reads the leaves from frame->slot up to `end` in stretches. If a leaf is not uniform or the line overflows, leaves
 * the plan unchanged and returns false. */
static bool collect_parallel(const tdict_uniform *m, tdict_frame *frame, uint32_t end) {
  tdict_plan *plan = m->plan;
  stretch stretches[MAX_STRETCHES];
  const uint32_t leaves = end - frame->slot;
  uint32_t each = leaves / ((uint32_t)m->num_helpers + 1) + 1;
  if (each < LEAST_STRETCH) each = LEAST_STRETCH;
  if (each > MOST_STRETCH) each = MOST_STRETCH;
  if (leaves / MAX_STRETCHES >= each) each = leaves / MAX_STRETCHES + 1;
  long count = 0;
  for (uint32_t first = 0; first < leaves; first += each, count++) {
    size_t begin = guess_begin(m, frame->node->leaves[frame->slot], first);
    stretches[count] =
        (stretch){.first = first, .count = leaves - first < each ? leaves - first : each, .begin = begin, .end = begin};
  }
  parallel p = {m, frame->node, frame->slot, stretches};
  tdict_parallel_for(m->pool, m->num_helpers, count, read_stretch, &p);
  if (!join_stretches(plan, stretches, count)) {
    for (long i = 0; i < count && !plan->borrows; i++)
      for (uint32_t k = 0; k < stretches[i].done; k++)
        tdict_tensor_release(plan->items[plan->num_items + stretches[i].first + k].src);
    return false;
  }
  for (long i = 0; i < count; i++) m->collected->num_new_dims += stretches[i].num_dims;
  m->collected->num_uniform += leaves;
  m->collected->num_new += leaves;
  plan->num_items += leaves;
  plan->num_leaves += leaves;
  frame->slot = end;
  return true;
}

/* Returns true if several threads should read the leaves of the node that are not read yet. With few helpers, or after
 * a failed attempt in this node, returns true only for PARALLEL_BY_FEW leaves or more. */
static bool is_worth_helpers(const tdict_uniform *m, const tdict_frame *frame, uint32_t end) {
  const uint32_t leaves = end - frame->slot;
  const bool few = m->num_helpers < FEW_HELPERS || m->mixed_node == frame->node;
  return m->num_helpers > 0 && leaves >= (few ? PARALLEL_BY_FEW : PARALLEL_LEAVES) &&
         m->plan->cap - m->plan->num_items >= leaves && m->plan->cap - m->plan->num_leaves >= leaves &&
         is_uniform(m, frame->node->leaves[frame->slot]);
}

void tdict_uniform_collect(tdict_uniform *m, tdict_frame *frame) {
  tdict_plan *plan = m->plan;
  const tdict_tree *node = frame->node;
  const uint32_t end = node->keys->num_slots;
  if (is_worth_helpers(m, frame, end)) {
    if (collect_parallel(m, frame, end)) return;
    m->mixed_node = node;
  }
  uint32_t n = plan->num_items, number = plan->num_leaves;
  for (; frame->slot < end && n < plan->cap && number < plan->cap; frame->slot++) {
    if (frame->slot + TDICT_LOOK_NEAR < end) tdict_look_ahead(node, frame->slot, end);
    tdict_leaf leaf = node->leaves[frame->slot];
    if (leaf && !add_uniform_leaf(m, leaf, n, number, &plan->line_bytes)) break;
    if (!leaf) continue;
    plan->way_bytes[m->way] += plan->items[n].bytes;
    m->collected->num_uniform++;
    m->collected->num_new++;
    m->collected->num_new_dims += (size_t)plan->items[n].src->ndim;
    n++;
    number++;
  }
  if (m->is_distinct) retain_slabs(m, plan->num_items, n);
  plan->num_items = n;
  plan->num_leaves = number;
}
