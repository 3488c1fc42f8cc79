/* Reads uniform leaves into a plan. Several threads read a node that has many leaves. See collect_uniform.h for
 * ownership and threads. */
#include "engine/plan/collect_uniform.h"

#include "core/base/checked.h"
#include "core/tensor/layout.h"

/* Several threads read a node that has at least PARALLEL_LEAVES unread leaves. The leaves are divided into at most
 * MAX_STRETCHES stretches. A stretch normally has LEAST_STRETCH to MOST_STRETCH leaves. */
enum { PARALLEL_LEAVES = 512, LEAST_STRETCH = 200, MOST_STRETCH = 2048, MAX_STRETCHES = 64 };
/* Fewer than FEW_HELPERS helpers are woken only for PARALLEL_BY_FEW leaves or more, because so few helpers save little
 * time. */
enum { FEW_HELPERS = 3, PARALLEL_BY_FEW = 8192 };

static inline bool is_plain(const tdict_tensor *t) {
  const int64_t *strides = tdict_tensor_dims_strides(t);
  if (t->ndim == 1 && strides[0] == 1) return true;
  if (t->ndim == 2 && strides[1] == 1 && strides[0] == t->dims[1]) return true;
  return tdict_layout_is_contiguous(t->ndim, t->dims, strides);
}
bool tdict_uniform_is_plain(const tdict_tensor *t) { return is_plain(t); }

/* Returns true for a leaf in ordinary memory, and for a small pinned leaf that is packed into slots. The caller checks
 * that no other tensor uses the storage. A driver copy covers several leaves only if the leaves have one storage. This
 * leaf is alone in its storage, so packing the leaf splits no larger copy. */
static inline bool uses_slots(const tdict_uniform *m, const tdict_storage *s) {
  if (!(s->flags & (TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED | TDICT_STORAGE_UNLOADED))) return true;
  return m->packs_pinned && s->bytes < TDICT_SMALL_DIRECT_BYTES && !tdict_storage_is_unloaded(s);
}

static inline bool is_uniform(const tdict_uniform *m, tdict_leaf leaf) {
  if (!leaf || tdict_leaf_kind(leaf) != TDICT_LEAF_TENSOR) return false;
  const tdict_tensor *t = tdict_leaf_tensor(leaf);
  if (t->slab || atomic_load_explicit(&t->refs, memory_order_relaxed) != 1) return false;
  const tdict_storage *s = t->storage;
  return s->device.type == TDICT_DEVICE_CPU && uses_slots(m, s) &&
         atomic_load_explicit(&s->refs, memory_order_relaxed) == 1 && is_plain(t);
}

/* Adds a uniform leaf as item `n`, at the next multiple of 256 from *line, and sets *line to the leaf's end. `number`
 * is the leaf's number. Returns false if the leaf is not uniform, or if the offsets overflow. */
static inline bool add_uniform_leaf(const tdict_uniform *m, tdict_leaf leaf, uint32_t n, uint32_t number,
                                    size_t *line) {
  if (!is_uniform(m, leaf)) return false;
  tdict_tensor *t = tdict_leaf_tensor(leaf);
  tdict_storage *s = t->storage;
  size_t begin, end, bytes = tdict_tensor_nbytes(t);
  if (!tdict_round_up(*line, TDICT_LEAF_ALIGNMENT, &begin) || !tdict_add_size(begin, bytes, &end)) return false;
  if (!m->plan->borrows) atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
  m->plan->nodes[n] = (tdict_fence_node){.storage = s};
  m->plan->items[n] = (tdict_item){.src = t,
                                   .src_data = t->data,
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
  p->stretches[i] = s;
}

/* Places the stretches one after another on the plan's line. Returns false if a stretch stopped early or the line
 * overflows. */
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

/* Guesses the offset on the line at which a stretch begins. Returns a multiple of 256. Returns 0 if the offset
 * overflows or the first leaf is not a tensor. */
static size_t guess_begin(const tdict_plan *plan, tdict_leaf first_leaf, uint32_t first) {
  const tdict_tensor *t = tdict_leaf_tensor(first_leaf);
  size_t each, before, line, begin;
  if (!t || !tdict_round_up(tdict_tensor_nbytes(t), TDICT_LEAF_ALIGNMENT, &each) ||
      !tdict_mul_size(each, first, &before) || !tdict_round_up(plan->line_bytes, TDICT_LEAF_ALIGNMENT, &line) ||
      !tdict_add_size(line, before, &begin) || begin > SIZE_MAX / 2)
    return 0;
  return begin;
}

/* Reads the leaves in the slots from frame->slot up to `end`, in stretches. If a leaf is not uniform or the line
 * overflows, leaves the plan unchanged and returns false. */
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
    size_t begin = guess_begin(plan, frame->node->leaves[frame->slot], first);
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
  for (long i = 0; i < count; i++) plan->num_new_dims += stretches[i].num_dims;
  plan->num_uniform += leaves;
  plan->num_new += leaves;
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
         m->plan->cap_items - m->plan->num_items >= leaves && m->plan->cap_leaves - m->plan->num_leaves >= leaves &&
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
  for (; frame->slot < end && n < plan->cap_items && number < plan->cap_leaves; frame->slot++) {
    if (frame->slot + TDICT_LOOK_NEAR < end) tdict_look_ahead(node, frame->slot, end);
    tdict_leaf leaf = node->leaves[frame->slot];
    if (leaf && !add_uniform_leaf(m, leaf, n, number, &plan->line_bytes)) break;
    if (!leaf) continue;
    plan->way_bytes[m->way] += plan->items[n].bytes;
    plan->num_uniform++;
    plan->num_new++;
    plan->num_new_dims += (size_t)plan->items[n].src->ndim;
    n++;
    number++;
  }
  plan->num_items = n;
  plan->num_leaves = number;
}
