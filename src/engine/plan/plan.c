/* Keeps the memory of a plan, places its items and cuts its line into chunks. See plan.h for ownership and threads. */
#include "engine/plan/plan.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"

/* Releases the tensors of all items. One atomic operation releases consecutive sources that are in the same slab. */
static void release_tensors(tdict_plan *plan) {
  for (uint32_t i = 0; i < plan->num_items && !plan->borrows;) {
    const tdict_tensor *first = plan->items[i++].src;
    if (!first || !first->slab) {
      tdict_tensor_release((tdict_tensor *)first);
      continue;
    }
    int64_t together = 1;
    for (; i < plan->num_items && plan->items[i].src && plan->items[i].src->slab == first->slab; i++) together++;
    tdict_slab_release(first->slab, together);
  }
  for (uint32_t i = 0; i < plan->num_items && plan->writes_existing; i++) tdict_tensor_release(plan->items[i].dst);
}

bool tdict_plan_reserve(tdict_plan *p, size_t more) {
  size_t cap = (p->num_items > p->num_leaves ? p->num_items : p->num_leaves) + more;
  if (cap >= TDICT_SHARED) return false;
  if (cap <= p->cap) return true;
  if (cap < 2 * (size_t)p->cap && p->cap < TDICT_SHARED / 2) cap = 2 * (size_t)p->cap;
  tdict_item *items = realloc(p->items, cap * sizeof *items);
  if (items) p->items = items;
  tdict_fence_node *nodes = items ? realloc(p->nodes, cap * sizeof *nodes) : NULL;
  if (nodes) p->nodes = nodes;
  uint32_t *item_of_leaf = nodes ? realloc(p->item_of_leaf, cap * sizeof *item_of_leaf) : NULL;
  if (!item_of_leaf) return false;
  p->item_of_leaf = item_of_leaf;
  p->cap = (uint32_t)cap;
  return true;
}

static void free_objects(tdict_objects *objects) {
  for (uint32_t i = 0; i < objects->count; i++) {
    const tdict_object_step *step = &objects->steps[i];
    tdict_box_release(step->box);
    tdict_box_release(step->result);
    tdict_release(step->flat);
    tdict_release(step->moved);
  }
  free(objects->steps);
  free(objects);
}

static void free_wire(tdict_plan *plan) {
  free(plan->wire->casts);
  tdict_images_free(plan->wire->images);
  free(plan->wire);
  plan->wire = NULL;
}

void tdict_plan_drop_unused_wire(tdict_plan *plan) {
  if (!plan->wire->packs) free_wire(plan);
}

/* Releases the tensors and objects of the plan, and keeps the memory of the plan's arrays for reuse. */
static void clear(tdict_plan *plan) {
  release_tensors(plan);
  if (plan->objects) free_objects(plan->objects);
  if (plan->wire) free_wire(plan);
  if (plan->block) tdict_consolidated_release(plan->block);
  tdict_plan kept = {.items = plan->items,
                     .nodes = plan->nodes,
                     .item_of_leaf = plan->item_of_leaf,
                     .cap = plan->cap,
                     .chunks = plan->chunks,
                     .cap_chunks = plan->cap_chunks};
  *plan = kept;
}

void tdict_plan_reset(tdict_plan *plan) {
  clear(plan);
  free(plan->items);
  free(plan->nodes);
  free(plan->item_of_leaf);
  free(plan->chunks);
  memset(plan, 0, sizeof *plan);
}

#define MAX_USED_BYTES ((size_t)32 << 20) /* enough for about 350,000 leaves; a larger plan is freed */

void tdict_plan_take_used(tdict_used_plan *used, tdict_plan *out) {
  pthread_mutex_lock(&used->lock);
  *out = used->plan;
  memset(&used->plan, 0, sizeof used->plan);
  pthread_mutex_unlock(&used->lock);
}

void tdict_plan_give_used(tdict_used_plan *used, tdict_plan *plan) {
  clear(plan);
  pthread_mutex_lock(&used->lock);
  size_t bytes = plan->cap * (sizeof *plan->items + sizeof *plan->nodes);
  if (bytes <= MAX_USED_BYTES && plan->cap > used->plan.cap) {
    /* Keep the larger plan. The smaller plan is freed after the unlock. */
    tdict_plan kept = used->plan;
    used->plan = *plan;
    *plan = kept;
  }
  pthread_mutex_unlock(&used->lock);
  if (plan->items || plan->item_of_leaf || plan->chunks) tdict_plan_reset(plan);
}

void tdict_plan_place(tdict_plan *plan, tdict_storage *arena) {
  /* if the arena has no data, all leaves are empty and need no address */
  for (uint32_t i = 0; i < plan->num_items && arena->data; i++)
    if (!plan->items[i].dst) plan->items[i].dst_data = (char *)arena->data + plan->items[i].offset;
}

bool tdict_plan_gap_is_free(const tdict_tensor *t) {
  return !t || (t->slab && t->slab->storage && t->storage->flags & TDICT_STORAGE_ARENA);
}

/* Returns true if one driver copy can continue from item a into item b. On both sides, the items must lie in one
 * storage, at the same distance as on the line. The bytes between the items must belong to no tensor. */
static bool continues_stretch(const tdict_item *a, const tdict_item *b) {
  if (a->is_cast || b->is_cast || !b->shares_storage) return false;
  if (b->way != TDICT_WAY_DIRECT || a->gpu != b->gpu || a->kind != b->kind) return false;
  if (!a->src_plain || !a->dst_plain || !b->src_plain || !b->dst_plain) return false;
  if (!a->dst != !b->dst || (a->dst && a->dst->storage != b->dst->storage)) return false;
  const size_t step = b->offset - a->offset;
  if ((uintptr_t)b->src_data - (uintptr_t)a->src_data != step ||
      (uintptr_t)b->dst_data - (uintptr_t)a->dst_data != step)
    return false;
  return step == a->bytes || (tdict_plan_gap_is_free(a->dst) && tdict_plan_gap_is_free(a->src));
}

uint32_t tdict_plan_stretch_end(const tdict_plan *plan, uint32_t first) {
  uint32_t end = plan->is_one_stretch ? plan->num_items : first + 1;
  while (end < plan->num_items && continues_stretch(&plan->items[end - 1], &plan->items[end])) end++;
  return end;
}

void tdict_plan_stage_small(tdict_plan *plan) {
  for (uint32_t i = 0, end; i < plan->num_items; i = end) {
    end = i + 1;
    if (plan->items[i].way != TDICT_WAY_DIRECT || plan->items[i].kind != TDICT_CU_H2D || plan->items[i].is_cast)
      continue;
    end = tdict_plan_stretch_end(plan, i);
    /* Store whether one stretch covers all items. In this case, tdict_plan_stretch_end() need not compare items. */
    plan->is_one_stretch = i == 0 && end == plan->num_items;
    size_t stretch_bytes = plan->items[end - 1].offset + plan->items[end - 1].bytes - plan->items[i].offset;
    if (stretch_bytes >= TDICT_SMALL_DIRECT_BYTES || plan->num_items == end - i) continue;
    for (uint32_t k = i; k < end; k++) {
      plan->items[k].way = TDICT_WAY_STAGE_IN;
      plan->way_bytes[TDICT_WAY_DIRECT] -= plan->items[k].bytes;
      plan->way_bytes[TDICT_WAY_STAGE_IN] += plan->items[k].bytes;
    }
  }
}

static tdict_status add_chunk(tdict_plan *plan, tdict_chunk chunk, tdict_error *err) {
  if (plan->num_chunks == UINT32_MAX || !TDICT_RESERVE(plan->chunks, plan->cap_chunks, (size_t)plan->num_chunks + 1))
    return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for %u chunks", plan->num_chunks + 1);
  plan->chunks[plan->num_chunks++] = chunk;
  return TDICT_OK;
}

uint32_t tdict_plan_item_at(const tdict_plan *plan, uint32_t low, size_t at) {
  for (uint32_t high = plan->num_items - 1; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    if (plan->items[middle].offset + plan->items[middle].bytes <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Returns the bytes of the next chunk, from `low` to `high`: a quarter of those before or after `at`, whichever is
 * less. Small first chunks start the device early, and small last ones keep all threads busy. */
static size_t choose_piece(tdict_chunk all, size_t at, size_t low, size_t high) {
  size_t before = at - all.begin, after = all.end - at;
  size_t piece = (before < after ? before : after) / 4 / TDICT_LEAF_ALIGNMENT * TDICT_LEAF_ALIGNMENT;
  return piece < low ? low : piece > high ? high : piece;
}

/* Returns the end of a chunk that begins at chunk.begin in item number chunk.first, so that the elements need at most
 * `room` bytes in a slot. The result is at most chunk.end, and a multiple of 256 if it is less. */
static size_t end_in_slot(const tdict_plan *plan, tdict_chunk chunk, size_t room) {
  for (uint32_t i = chunk.first; i < plan->num_items && plan->items[i].offset < chunk.end; i++) {
    const tdict_item *item = &plan->items[i];
    const size_t begin = item->offset < chunk.begin ? chunk.begin : item->offset, end = item->offset + item->bytes;
    if (end <= begin) continue;
    const tdict_item_cast *cast = tdict_plan_cast(plan, i);
    const size_t in_slot = tdict_plan_slot_bytes(cast, end - begin);
    if (in_slot <= room) {
      room -= in_slot;
      continue;
    }
    const size_t to = cast ? tdict_dtype_bytes(cast->cast.to) : 1, wire = cast ? tdict_dtype_bytes(cast->wire) : 1;
    const size_t fitting = room / wire * to / TDICT_LEAF_ALIGNMENT * TDICT_LEAF_ALIGNMENT;
    /* the smallest slot has 4096 bytes, so that any 256 bytes of the line fit */
    const size_t least = chunk.begin + TDICT_LEAF_ALIGNMENT, most = begin + fitting;
    return most > chunk.begin ? most : least < chunk.end ? least : chunk.end;
  }
  return chunk.end;
}

/* Cuts an interval from item all.first on into chunks of `low` to `high` bytes, the last maybe less. */
static tdict_status add_pieces(tdict_plan *plan, tdict_chunk all, size_t low, size_t high, size_t max_copy_bytes,
                               tdict_error *err) {
  tdict_status status = TDICT_OK;
  uint32_t first = all.first;
  const bool in_slots = plan->wire && tdict_item_uses_slot(&plan->items[first]);
  for (size_t at = all.begin, end; at < all.end && status == TDICT_OK; at = end) {
    if (plan->items[first].offset + plan->items[first].bytes <= at) first = tdict_plan_item_at(plan, first + 1, at);
    size_t piece = choose_piece(all, at, low, high);
    end = all.end - at < piece ? all.end : at + piece;
    if (in_slots) {
      end = end_in_slot(plan, (tdict_chunk){.begin = at, .end = all.end, .first = first}, piece);
      if (max_copy_bytes && end - at > max_copy_bytes) end = at + max_copy_bytes;
    }
    status = add_chunk(plan, (tdict_chunk){.begin = at, .end = end, .first = first}, err);
  }
  return status;
}

/* Returns the number of the first item after `first` that is copied in another way or by another GPU. If there is no
 * such item, returns num_items. The items from `first` up to that item may share slots. */
static uint32_t group_end(const tdict_plan *plan, const tdict_cut *cut, uint32_t first) {
  uint32_t end = cut->num_uniform == plan->num_items ? plan->num_items : first + 1;
  while (end < plan->num_items && plan->items[end].way == plan->items[first].way &&
         plan->items[end].gpu == plan->items[first].gpu)
    end++;
  return end;
}

static size_t most_direct_bytes(const tdict_cut *cut) {
  const size_t most = cut->max_copy_bytes;
  return most && most < TDICT_LARGE_DIRECT_BYTES ? most : TDICT_LARGE_DIRECT_BYTES;
}

/* Returns the item after the stretches of one chunk, of which the first has items `first` to `end`. */
static uint32_t direct_end(const tdict_plan *plan, const tdict_cut *cut, uint32_t first, uint32_t end) {
  const tdict_item *a = &plan->items[first];
  if (cut->one_by_one || a->kind == TDICT_CU_D2D) return end;
  for (int stretches = 1; stretches < TDICT_CU_MOST_COPIES && end < plan->num_items; stretches++) {
    const tdict_item *b = &plan->items[end];
    if (b->way != TDICT_WAY_DIRECT || b->gpu != a->gpu || b->kind != a->kind) break;
    uint32_t next = tdict_plan_stretch_end(plan, end);
    if (plan->items[next - 1].offset + plan->items[next - 1].bytes - a->offset > most_direct_bytes(cut)) break;
    end = next;
  }
  return end;
}

/* Returns the maximum size of a chunk, if some items are packed. If packed elements do not become smaller than the
 * leaf, their head needs additional space. Only the first and the last packed piece of a chunk can be smaller than
 * TDICT_PACK_MIN_BYTES, so all heads need at most 1/16 of the chunk plus 2 KiB. */
static size_t shrink_chunk(const tdict_plan *plan, size_t chunk_bytes) {
  enum { HEADS = 2048 };
  if (!plan->wire || !plan->wire->packs) return chunk_bytes;
  size_t most = chunk_bytes >= 2 * HEADS ? (chunk_bytes - HEADS) / 17 * 16 : chunk_bytes / 2;
  most = most / TDICT_LEAF_ALIGNMENT * TDICT_LEAF_ALIGNMENT;
  return most ? most : TDICT_LEAF_ALIGNMENT;
}

tdict_status tdict_plan_cut(tdict_plan *plan, const tdict_cut *cut, tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (uint32_t i = 0, end; i < plan->num_items && status == TDICT_OK; i = end) {
    const tdict_item *item = &plan->items[i];
    /* Without a limit: pageable and whole items unsplit, direct chunks up to 16 MiB, others up to chunk_bytes. */
    const bool pageable = item->way == TDICT_WAY_PAGEABLE_IN;
    const bool unsplit = (pageable || item->is_whole) && !cut->max_copy_bytes;
    const bool direct = item->way == TDICT_WAY_DIRECT || (pageable && !unsplit);
    end = pageable ? i + 1
          : direct ? direct_end(plan, cut, i, tdict_plan_stretch_end(plan, i))
                   : group_end(plan, cut, i);
    tdict_chunk span = {.begin = item->offset, .first = i};
    span.end = plan->items[end - 1].offset + plan->items[end - 1].bytes;
    size_t most = unsplit ? SIZE_MAX / 2 : direct ? most_direct_bytes(cut) : cut->chunk_bytes;
    if (tdict_item_uses_slot(item)) most = shrink_chunk(plan, most);
    const size_t first = unsplit || direct || cut->first_bytes > most ? most : cut->first_bytes;
    status = add_pieces(plan, span, first, most, cut->max_copy_bytes, err);
  }
  return status;
}
