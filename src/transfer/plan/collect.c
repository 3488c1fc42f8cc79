/* Reading a tree into a plan: every leaf is shared, or an item with its way. See collect.h for ownership and threads. */
#include "transfer/plan/collect.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "tensor/layout.h"
#include "transfer/plan/collect_uniform.h"
#include "transfer/plan/same_bytes.h"
#include "tree/cursor.h"
#include "tree/text.h"

enum { TDICT_PATH_BYTES = sizeof((tdict_error *)0)->path };

/* What a collection works with; lives for one call. */
typedef struct collector {
  tdict_plan *plan;
  const tdict_plan_request *request;
  tdict_same_bytes same;     /* finds leaves that are the same bytes */
  bool listed;               /* its table is in use: some leaf did not lie behind those before it */
  int misses;                /* leaves in a row that were not common */
  const tdict_storage *last; /* the storage asked about last, and the answer */
  tdict_gpu *last_gpu;
  bool last_pinned;
  tdict_device found_device; /* the device looked up last, and its gpu; NULL: none yet */
  tdict_gpu *found_gpu;
  tdict_uniform uniform;       /* how common leaves are read */
  const tdict_tree *once_node; /* the node asked about last, whether it hangs at one place only */
  bool once;
  const tdict_tree *once_dst; /* the same for the destination's nodes */
  bool dst_once;
  uintptr_t dst_end; /* the end of the destinations so far that others may share */
  tdict_slab *slab;  /* whose tensors are to be counted `slab_count` times more */
  int64_t slab_count;
  size_t flat_depth; /* the cursor's depth in a flattened object, 0 when it is in none */
} collector;

static tdict_status no_memory(tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for its plan");
}

static bool grow(void **array, uint32_t count, uint32_t *cap, size_t bytes) {
  if (count < *cap) return true;
  uint32_t wanted = *cap ? 2 * *cap : 64;
  void *grown = wanted > *cap ? realloc(*array, (size_t)wanted * bytes) : NULL;
  if (!grown) return false;
  *array = grown;
  *cap = wanted;
  return true;
}

/* Room for `more` items and leaves; nothing is lost without memory. */
static bool reserve(tdict_plan *p, uint32_t more) {
  size_t items = (size_t)p->num_items + more, leaves = (size_t)p->num_leaves + more;
  if (items >= TDICT_SHARED || leaves >= TDICT_SHARED) return false;
  if (items > p->cap_items) {
    if (items < 2 * (size_t)p->cap_items && p->cap_items < TDICT_SHARED / 2) items = 2 * (size_t)p->cap_items;
    tdict_item *grown = realloc(p->items, items * sizeof *grown);
    if (grown) p->items = grown;
    tdict_fence_node *nodes = grown ? realloc(p->nodes, items * sizeof *nodes) : NULL;
    if (!nodes) return false;
    p->nodes = nodes;
    p->cap_items = (uint32_t)items;
  }
  if (leaves > p->cap_leaves) {
    if (leaves < 2 * (size_t)p->cap_leaves && p->cap_leaves < TDICT_SHARED / 2) leaves = 2 * (size_t)p->cap_leaves;
    uint32_t *grown = realloc(p->item_of_leaf, leaves * sizeof *grown);
    if (!grown) return false;
    p->item_of_leaf = grown;
    p->cap_leaves = (uint32_t)leaves;
  }
  return true;
}

/* Ordinary host memory and pinned memory lie on one device; only pinned memory is read by the gpu itself. */
static bool is_pinned(collector *c, tdict_gpu *gpu, const tdict_tensor *t) {
  const tdict_storage *s = t->storage;
  if (!(s->flags & (TDICT_STORAGE_PINNED | TDICT_STORAGE_CLAIMED))) return false;
  if (s != c->last || gpu != c->last_gpu) {
    c->last = s;
    c->last_gpu = gpu;
    c->last_pinned = tdict_gpu_is_pinned(gpu, s, s->data, s->bytes);
  }
  return c->last_pinned;
}

static tdict_status gpu_of(collector *c, tdict_device device, tdict_gpu **out, tdict_error *err) {
  if (c->found_gpu && c->found_device.type == device.type && c->found_device.index == device.index) {
    *out = c->found_gpu;
    return TDICT_OK;
  }
  tdict_status status = tdict_devices_gpu(c->request->devices, device, out, err);
  if (status == TDICT_OK) {
    c->found_device = device;
    c->found_gpu = *out;
  }
  if (status == TDICT_ENODEVICE && err) err->status = TDICT_EWRONGDEVICE;
  return status == TDICT_ENODEVICE ? TDICT_EWRONGDEVICE : status;
}

/* The gpu that a storage is on. */
static tdict_status gpu_of_storage(collector *c, const tdict_storage *s, tdict_gpu **out, tdict_error *err) {
  char name[32];
  if (!tdict_devices_own_storage(c->request->devices, s))
    return tdict_fail(err, TDICT_EWRONGDEVICE,
                      "transfer: the tensor is on %s of another context: simulated devices belong to one context",
                      tdict_device_format(s->device, name, sizeof name));
  return gpu_of(c, s->device, out, err);
}

/* From the host to a gpu. */
static void route_in(collector *c, tdict_item *item) {
  item->kind = TDICT_CU_H2D;
  if (!item->src_plain || !item->dst_plain)
    item->way = TDICT_WAY_STAGE_IN;
  else if (is_pinned(c, item->gpu, item->src))
    item->way = TDICT_WAY_DIRECT;
  else
    item->way = c->request->mode == TDICT_MODE_NON_BLOCKING_PIN ? TDICT_WAY_STAGE_IN : TDICT_WAY_PAGEABLE_IN;
}

/* From a gpu to the host: never by a pageable copy of the driver, which holds up other threads. */
static void route_out(collector *c, tdict_item *item) {
  item->kind = TDICT_CU_D2H;
  bool pinned = item->dst ? is_pinned(c, item->gpu, item->dst) : c->request->want_pinned;
  item->way = pinned && item->src_plain && item->dst_plain ? TDICT_WAY_DIRECT : TDICT_WAY_STAGE_OUT;
}

static tdict_status route(collector *c, tdict_item *item, tdict_device to, tdict_error *err) {
  tdict_device from = item->src->storage->device;
  bool from_host = from.type == TDICT_DEVICE_CPU, to_host = to.type == TDICT_DEVICE_CPU;
  item->src_plain = tdict_uniform_is_plain(item->src);
  item->dst_plain = !item->dst || tdict_uniform_is_plain(item->dst);
  if (from_host && to_host) {
    item->way = TDICT_WAY_HOST;
    return TDICT_OK;
  }
  tdict_gpu *source;
  tdict_status status = from_host ? TDICT_OK : gpu_of_storage(c, item->src->storage, &source, err);
  if (status == TDICT_OK && !to_host)
    status = item->dst ? gpu_of_storage(c, item->dst->storage, &item->gpu, err) : gpu_of(c, to, &item->gpu, err);
  if (status != TDICT_OK) return status;
  c->plan->reads_device |= !from_host;
  if (to_host) item->gpu = source;
  if (from_host) {
    route_in(c, item);
  } else if (to_host) {
    route_out(c, item);
  } else {
    item->kind = TDICT_CU_D2D;
    item->way = TDICT_WAY_DIRECT;
    if (source->driver != item->gpu->driver)
      return tdict_fail(err, TDICT_ENOTSUP, "transfer: from a simulated device to a GPU, or back: go through the cpu");
  }
  return TDICT_OK;
}

/* Counts what was taken of a slab's tensors: neighbours with one addition. */
static void count_slab(collector *c) {
  if (c->slab_count) atomic_fetch_add_explicit(&c->slab->refs, c->slab_count, memory_order_relaxed);
  c->slab_count = 0;
}

static inline void retain_source(collector *c, tdict_tensor *t) {
  if (c->plan->borrows) return;
  if (!t->slab) {
    tdict_tensor_retain(t);
    return;
  }
  if (t->slab != c->slab) count_slab(c);
  c->slab = t->slab;
  c->slab_count++;
}

/* Puts the item at the end of the line. */
static tdict_status append(collector *c, tdict_item *item, tdict_error *err) {
  tdict_plan *p = c->plan;
  size_t end;
  if (!tdict_round_up(p->line_bytes, TDICT_LEAF_ALIGNMENT, &item->offset) ||
      !tdict_add_size(item->offset, item->bytes, &end))
    return tdict_fail(err, TDICT_EOVERFLOW, "transfer: the tree's bytes do not fit the address space");
  if (p->num_items == p->cap_items && !reserve(p, 1)) return no_memory(err);
  retain_source(c, item->src);
  if (item->dst) tdict_tensor_retain(item->dst);
  const uint32_t n = p->num_items++;
  tdict_storage *storage = item->src->storage;
  p->nodes[n] = (tdict_fence_node){.storage = n && p->items[n - 1].src->storage == storage ? NULL : storage};
  p->items[n] = *item;
  p->line_bytes = end;
  p->total_bytes += item->bytes;
  p->way_bytes[item->way] += item->bytes;
  p->writes_old |= item->dst != NULL;
  return TDICT_OK;
}

static inline bool stays(const collector *c, const tdict_tensor *t) {
  const tdict_plan_request *r = c->request;
  tdict_device at = t->storage->device;
  if (at.type != r->device.type || at.index != r->device.index) return false;
  if (at.type == TDICT_DEVICE_SIM && !tdict_devices_own_storage(r->devices, t->storage)) return false;
  return !r->want_pinned || tdict_tensor_is_pinned(t);
}

/* The leaf shown last hangs at one place only: every node on the way to it is held once, and none shares it. */
static inline bool hangs_once(collector *c, const tdict_cursor *cursor) {
  const tdict_frame *top = &cursor->frames[cursor->depth - 1];
  if (c->once_node == top->node) return c->once;
  c->once_node = top->node;
  c->once = !top->is_shared && !tdict_node_shares_leaves(top->node);
  return c->once;
}

/* Goes into a tree. Whether it hangs at several places is noted here, so that no leaf looks at all levels above it. */
static bool enter(tdict_cursor *cursor, tdict_tree *node, const tdict_tree *other) {
  if (!tdict_cursor_enter(cursor, node)) return false;
  tdict_frame *top = &cursor->frames[cursor->depth - 1];
  top->mark = (size_t)(uintptr_t)other;
  const tdict_tree *asked = other ? other : node; /* of copy_into it is the destination that matters */
  top->is_shared = top[-1].is_shared || atomic_load_explicit(&asked->refs, memory_order_relaxed) != 1;
  return true;
}

/* Whether the leaf must be looked up; then the table holds all items before it. */
static tdict_status list_items(collector *c, const tdict_tensor *t, tdict_error *err) {
  if (c->listed || tdict_same_bytes_follows(&c->same, t)) return TDICT_OK;
  for (uint32_t i = 0; i < c->plan->num_items; i++)
    if (!tdict_same_bytes_add(&c->same, c->plan->items[i].src, i)) return no_memory(err);
  c->listed = true;
  return TDICT_OK;
}

/* to_device and pin_memory: the leaf is shared, is the same as an earlier one, or travels. */
static tdict_status collect_one(collector *c, const tdict_cursor *cursor, tdict_tensor *t, uint32_t *place,
                                tdict_error *err) {
  const tdict_plan_request *r = c->request;
  char from[32];
  if (r->host_only && t->storage->device.type != TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "pin_memory: the tensor is on %s, wanted one on the cpu",
                      tdict_device_format(t->storage->device, from, sizeof from));
  *place = TDICT_SHARED;
  if (stays(c, t)) {
    c->plan->num_shared++;
    return TDICT_OK;
  }
  bool alone = hangs_once(c, cursor) && tdict_same_bytes_is_alone(t); /* asked before the item counts it */
  tdict_status status = alone ? TDICT_OK : list_items(c, t, err);
  if (status != TDICT_OK) return status;
  if (!alone && c->listed) tdict_same_bytes_find(&c->same, t, place);
  if (*place != TDICT_SHARED) {
    c->plan->num_shared++;
    return TDICT_OK;
  }
  tdict_item item = {.src = t, .src_data = t->data, .bytes = tdict_tensor_nbytes(t), .leaf = c->plan->num_leaves};
  status = route(c, &item, r->device, err);
  if (status == TDICT_OK) status = append(c, &item, err);
  if (status != TDICT_OK) return status;
  *place = c->plan->num_items - 1;
  if (alone || !c->listed) return TDICT_OK;
  return tdict_same_bytes_add(&c->same, t, *place) ? TDICT_OK : no_memory(err);
}

/* Most trees go from the host to one gpu, whole. */
static void begin_uniform(collector *c) {
  const tdict_plan_request *r = c->request;
  c->uniform = (tdict_uniform){.plan = c->plan, .pool = r->pool, .num_helpers = r->num_helpers};
  if (r->dst || r->host_only || r->device.type == TDICT_DEVICE_CPU) return;
  if (gpu_of(c, r->device, &c->uniform.to, NULL) != TDICT_OK) c->uniform.to = NULL; /* a leaf will say so */
  c->uniform.way = r->mode == TDICT_MODE_NON_BLOCKING_PIN ? TDICT_WAY_STAGE_IN : TDICT_WAY_PAGEABLE_IN;
}

static tdict_status check_pair(const tdict_tensor *src, const tdict_tensor *dst, tdict_error *err) {
  char have[96], want[96];
  if (src->dtype != dst->dtype)
    return tdict_fail(err, TDICT_EDTYPE, "copy_into: the source is %s, the destination %s",
                      tdict_dtype_format(src->dtype, have, sizeof have),
                      tdict_dtype_format(dst->dtype, want, sizeof want));
  bool same = src->ndim == dst->ndim && memcmp(src->dims, dst->dims, (size_t)src->ndim * sizeof *src->dims) == 0;
  if (!same)
    return tdict_fail(err, TDICT_ESHAPE, "copy_into: the source has shape %s, the destination %s",
                      tdict_text_shape(src->ndim, src->dims, have, sizeof have),
                      tdict_text_shape(dst->ndim, dst->dims, want, sizeof want));
  if (dst->storage->flags & TDICT_STORAGE_READ_ONLY)
    return tdict_fail(err, TDICT_EREADONLY, "copy_into: the destination may not be written");
  return TDICT_OK;
}

/* The destination's node, and all above it, hang at one place only. */
static bool dst_hangs_once(collector *c, const tdict_cursor *cursor) {
  const tdict_tree *node = (const tdict_tree *)cursor->frames[cursor->depth - 1].mark;
  if (c->once_dst == node) return c->dst_once;
  c->once_dst = node;
  c->dst_once = !cursor->frames[cursor->depth - 1].is_shared && !tdict_node_shares_leaves(node);
  return c->dst_once;
}

/* Asked before the item counts `dst`. Destinations that come in the order of their addresses do not overlap, and one that
 * nobody shares overlaps with none. */
static void note_overlap(collector *c, const tdict_cursor *cursor, const tdict_tensor *dst) {
  const uintptr_t begin = (uintptr_t)dst->data, end = begin + tdict_tensor_nbytes(dst);
  if (begin == end || c->plan->may_overlap) return;
  const bool foreign = dst->storage->flags & TDICT_STORAGE_FOREIGN;
  if (!foreign && tdict_same_bytes_is_alone(dst) && dst_hangs_once(c, cursor)) return;
  c->plan->may_overlap = foreign || begin < c->dst_end || !tdict_uniform_is_plain(dst);
  c->dst_end = end;
}

/* copy_into: every leaf travels from its tensor to that of the other tree. */
static tdict_status collect_pair(collector *c, const tdict_cursor *cursor, tdict_tensor *src, tdict_leaf other,
                                 tdict_error *err) {
  tdict_tensor *dst = tdict_leaf_tensor(other);
  if (!dst) return tdict_fail(err, TDICT_ETYPE, "copy_into: a tensor in the source, a tree in the destination");
  tdict_status status = check_pair(src, dst, err);
  if (status != TDICT_OK) return status;
  tdict_item item = {.src = src, .dst = dst, .bytes = tdict_tensor_nbytes(src), .leaf = c->plan->num_leaves};
  item.src_data = src->data;
  item.dst_data = dst->data;
  note_overlap(c, cursor, dst);
  status = route(c, &item, dst->storage->device, err);
  return status == TDICT_OK ? append(c, &item, err) : status;
}

static tdict_status note_leaf(tdict_plan *p, uint32_t place, const tdict_tensor *t, tdict_error *err) {
  if (p->num_leaves == p->cap_leaves && !reserve(p, 1)) return no_memory(err);
  p->item_of_leaf[p->num_leaves++] = place;
  p->num_new += place != TDICT_SHARED;
  p->num_new_dims += place != TDICT_SHARED ? (size_t)t->ndim : 0;
  return TDICT_OK;
}

/* The leaf of the other tree that has the same key as the one shown last. */
static tdict_status match(const tdict_cursor *cursor, tdict_leaf *out, tdict_error *err) {
  const tdict_tree *other = (const tdict_tree *)cursor->frames[cursor->depth - 1].mark;
  const tdict_key *key = tdict_cursor_key(cursor);
  int64_t slot = tdict_keys_find(other->keys, key->name, key->length);
  if (slot < 0) return tdict_fail(err, TDICT_ENOTFOUND, "copy_into: the destination has no such key");
  *out = other->leaves[slot];
  return TDICT_OK;
}

/* Keys of `other` that the source lacks: each side has as many, and each of the source's was or will be found. */
static tdict_status check_node(tdict_cursor *cursor, const tdict_tree *node, const tdict_tree *other,
                               tdict_error *err) {
  if (other->keys->num_live <= node->keys->num_live) return TDICT_OK;
  for (uint32_t i = 0; i < other->keys->num_slots; i++) {
    const tdict_key *key = &other->keys->slots[i];
    if (!key->name || tdict_keys_find(node->keys, key->name, key->length) >= 0) continue;
    char above[TDICT_PATH_BYTES], path[TDICT_PATH_BYTES];
    tdict_cursor_path(cursor, NULL, above, sizeof above);
    tdict_node_path(above, key, path, sizeof path);
    return tdict_error_at(err, tdict_fail(err, TDICT_ENOTFOUND, "copy_into: the source has no such key"), path);
  }
  return TDICT_OK;
}

/* The tensors of an object, as its type gives them. */
static tdict_status flatten(const tdict_box *box, tdict_tree **out, tdict_error *err) {
  tdict_tree *flat = NULL;
  tdict_error said = {0};
  /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the step was planned for a hook that the type has */
  tdict_status status = TDICT_HOOK_OF(box->type, flatten)(box->self, &flat, &said);
  if (status == TDICT_OK && !flat) status = (tdict_status)-1;
  if (status != TDICT_OK) {
    status = tdict_hook_failed(box->type, "flatten", status, &said);
    if (err) *err = said;
    return status;
  }
  *out = flat;
  return TDICT_OK;
}

/* What the type offers for this transfer. Its own hook is asked before anything is guessed. */
static void choose_action(const collector *c, tdict_object_step *step) {
  const tdict_type *type = step->box->type;
  const tdict_plan_request *r = c->request;
  bool can_pin = TDICT_HOOK_OF(type, pin_memory) != NULL;
  bool can_move = TDICT_HOOK_OF(type, to_device) != NULL;
  bool can_flatten = TDICT_HOOK_OF(type, flatten) && TDICT_HOOK_OF(type, unflatten);
  step->move = can_move && !r->host_only && !r->dst;
  step->pin =
      can_pin && !r->dst &&
      (r->host_only || (step->move && r->device.type != TDICT_DEVICE_CPU && r->mode == TDICT_MODE_NON_BLOCKING_PIN));
  step->action = step->pin || step->move ? TDICT_OBJECT_HOOK : can_flatten ? TDICT_OBJECT_FLAT : TDICT_OBJECT_KEEP;
}

/* A node is gone into: room for its leaves at once. */
static bool begin_node(collector *c, const tdict_tree *node) {
  c->plan->some_locked |= tdict_node_is_locked(node);
  return reserve(c->plan, node->keys->num_live);
}

/* Hooks are the program's own code, and may let go of what it holds: from here on sources are counted. */
static void end_borrowing(tdict_plan *p) {
  for (uint32_t i = 0; i < p->num_items && p->borrows; i++) tdict_tensor_retain(p->items[i].src);
  p->borrows = false;
}

static tdict_status add_step(collector *c, const tdict_cursor *cursor, tdict_box *box, tdict_error *err) {
  tdict_plan *p = c->plan;
  if (!grow((void **)&p->objects, p->num_objects, &p->cap_objects, sizeof *p->objects)) return no_memory(err);
  end_borrowing(p);
  tdict_object_step *step = &p->objects[p->num_objects++];
  memset(step, 0, sizeof *step);
  step->box = tdict_box_retain(box);
  step->first_leaf = p->num_leaves;
  choose_action(c, step);
  if (step->action != TDICT_OBJECT_KEEP) tdict_cursor_path(cursor, NULL, step->path, sizeof step->path);
  return TDICT_OK;
}

/* The object that stands for this one in the other tree must be of its type, and show its tensors too. */
static tdict_status flatten_other(const tdict_box *box, tdict_leaf other, tdict_tree **out, tdict_error *err) {
  tdict_box *matching = tdict_leaf_box(other);
  if (!matching || matching->type != box->type)
    return tdict_fail(err, TDICT_ETYPE, "copy_into: an object of type %.60s in the source, %s%.60s in the destination",
                      box->type->name, matching ? "one of type " : "none", matching ? matching->type->name : "");
  return flatten(matching, out, err);
}

/* An object: kept, hooked, or gone through as a tree of its tensors. */
static tdict_status collect_object(collector *c, tdict_cursor *cursor, tdict_box *box, tdict_leaf other,
                                   tdict_error *err) {
  tdict_tree *other_flat = NULL;
  if (c->flat_depth && cursor->depth >= c->flat_depth)
    return tdict_fail(err, TDICT_EHOOK,
                      "transfer: what flatten gave holds an object of type %.60s, wanted tensors and trees",
                      box->type->name);
  tdict_status status = add_step(c, cursor, box, err);
  if (status != TDICT_OK) return status;
  tdict_object_step *step = &c->plan->objects[c->plan->num_objects - 1];
  if (step->action == TDICT_OBJECT_KEEP) {
    c->plan->num_untouched++;
    if (!c->request->strict_objects && !c->request->dst) return TDICT_OK;
    return tdict_fail(err, TDICT_ENOTSUP,
                      "transfer: type %.60s has no hook for this: wanted pin_memory, to_device or flatten",
                      box->type->name);
  }
  if (step->action == TDICT_OBJECT_HOOK) return TDICT_OK;
  status = flatten(box, &step->flat, err);
  if (status == TDICT_OK && c->request->dst) status = flatten_other(box, other, &other_flat, err);
  if (status == TDICT_OK && other_flat) status = check_node(cursor, step->flat, other_flat, err);
  if (status == TDICT_OK && other_flat) { /* as long-lived as the source's, whose step holds it */
    step->moved = other_flat;
  } else if (other_flat) {
    tdict_release(other_flat);
  }
  if (status != TDICT_OK) return status;
  if (!begin_node(c, step->flat) || !enter(cursor, step->flat, other_flat)) return no_memory(err);
  c->flat_depth = cursor->depth;
  return TDICT_OK;
}

/* How many leaves each flattened object has; those none of whose leaves travel are kept as they are. */
static void settle_objects(tdict_plan *p, const tdict_plan_request *r) {
  for (uint32_t i = 0; i < p->num_objects; i++) {
    tdict_object_step *step = &p->objects[i];
    if (step->action != TDICT_OBJECT_FLAT) continue;
    step->num_leaves = (uint32_t)tdict_num_leaves(step->flat);
    bool travels = false;
    for (uint32_t k = 0; k < step->num_leaves; k++) travels |= p->item_of_leaf[step->first_leaf + k] != TDICT_SHARED;
    if (r->dst) {
      tdict_release(step->moved);
      step->moved = NULL;
    } else if (!travels) {
      step->action = TDICT_OBJECT_KEEP;
    }
  }
}

static tdict_status collect_leaf(collector *c, tdict_cursor *cursor, tdict_leaf leaf, tdict_error *err) {
  tdict_tensor *t = tdict_leaf_tensor(leaf);
  tdict_tree *child = tdict_leaf_tree(leaf);
  bool pairs = c->request->dst != NULL;
  tdict_leaf other = 0;
  tdict_status status = pairs ? match(cursor, &other, err) : TDICT_OK;
  if (status != TDICT_OK) return status;
  if (t) {
    uint32_t place = c->plan->num_items;
    status = pairs ? collect_pair(c, cursor, t, other, err) : collect_one(c, cursor, t, &place, err);
    return status == TDICT_OK ? note_leaf(c->plan, place, t, err) : status;
  }
  if (tdict_leaf_box(leaf)) return collect_object(c, cursor, tdict_leaf_box(leaf), other, err);
  tdict_tree *matching = tdict_leaf_tree(other);
  if (pairs && !matching)
    return tdict_fail(err, TDICT_ETYPE, "copy_into: a tree in the source, a tensor in the destination");
  if (pairs) status = check_node(cursor, child, matching, err);
  if (status != TDICT_OK) return status;
  return begin_node(c, child) && enter(cursor, child, matching) ? TDICT_OK : no_memory(err);
}

enum { MOST_MISSES = 64 }; /* after so many in a row, common leaves are not looked for any more */

static bool has_leaves_left(const tdict_cursor *cursor) {
  const tdict_frame *top = &cursor->frames[cursor->depth - 1];
  return top->slot < top->node->keys->num_slots;
}

tdict_status tdict_plan_collect(tdict_plan *plan, const tdict_plan_request *request, const tdict_tree *src,
                                tdict_error *err) {
  collector c = {.plan = plan, .request = request, .found_device = request->device, .found_gpu = request->gpu};
  memset(plan, 0, sizeof *plan);
  if (request->spare) {
    *plan = *request->spare;
    memset(request->spare, 0, sizeof *request->spare);
  }
  plan->borrows = request->borrows;
  plan->one_by_one = request->mode == TDICT_MODE_BLOCKING;
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, src, false);
  cursor.frames[0].mark = (size_t)(uintptr_t)request->dst;
  tdict_status status = request->dst ? check_node(&cursor, src, request->dst, err) : TDICT_OK;
  if (status == TDICT_OK && !begin_node(&c, src)) status = no_memory(err);
  begin_uniform(&c);
  while (status == TDICT_OK) {
    char path[TDICT_PATH_BYTES];
    if (c.uniform.to && cursor.depth && c.misses < MOST_MISSES && has_leaves_left(&cursor) && hangs_once(&c, &cursor)) {
      const uint32_t before = plan->num_items;
      const tdict_tree *node = cursor.frames[cursor.depth - 1].node;
      c.uniform.packs = c.uniform.way == TDICT_WAY_STAGE_IN && node->keys->num_live > 1; /* one alone is one copy */
      tdict_uniform_collect(&c.uniform, &cursor.frames[cursor.depth - 1]);
      c.misses = plan->num_items > before ? 0 : c.misses + 1;
    }
    tdict_leaf leaf = tdict_cursor_next(&cursor);
    if (!leaf) break;
    const tdict_frame *top = &cursor.frames[cursor.depth - 1];
    if (top->slot + TDICT_LOOK_NEAR < top->node->keys->num_slots)
      tdict_look_ahead(top->node, top->slot, top->node->keys->num_slots);
    if (cursor.depth < c.flat_depth) c.flat_depth = 0;
    status = collect_leaf(&c, &cursor, leaf, err);
    if (status == TDICT_OK || !err || err->path[0]) continue;
    tdict_cursor_path(&cursor, NULL, path, sizeof path);
    tdict_error_at(err, status, path);
  }
  count_slab(&c);
  tdict_cursor_reset(&cursor);
  if (c.same.cap) tdict_same_bytes_reset(&c.same);
  if (status == TDICT_OK) settle_objects(plan, request);
  if (status != TDICT_OK) tdict_plan_reset(plan);
  return status;
}
