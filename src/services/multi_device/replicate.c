/* Replicates a tree on several devices. Devices with peer access to each other form a group. Each device of a group
 * receives a part of the bytes from the host, and the others copy the part from this device. If one of the trees is
 * pinned host memory, all devices form a group: each part is pinned, and the devices copy the part from there. See
 * spread.h for ownership and threads. */
#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/ops/map.h"
#include "device/devices.h"
#include "engine/engine.h"
#include "engine/plan/pair.h"
#include "services/multi_device/spread.h"

/* A tree of at most an eighth of the staging ring is copied whole to the first device of a group. A second transfer
 * from the host would take longer than the copy between devices. A larger tree is divided into rounds, so that devices
 * exchange the parts of one round while the parts of the next round arrive. In each round, each device receives about
 * two staging rings, or more if the rounds would have too many parts. */
enum { SMALL_PART = 8, ROUND_RINGS = 2 };
/* Parts begin at multiples of this number, unless a strided leaf is there. */
#define PART_ALIGNMENT ((size_t)64 << 10)

/* The leaves of a tree, borrowed from the tree. */
typedef struct source {
  tdict_tensor **leaves; /* in tree order */
  uint32_t num_leaves;
  size_t cap_leaves;
  size_t bytes; /* of all leaves, without padding */
  /* true: some leaf is not empty, all leaves are in host memory, and the tree has no objects that must be moved */
  bool is_suitable;
  bool has_pinned; /* true: some leaf is pinned */
} source;

/* A result: a tree with the keys, shapes and locks of the source, whose leaves are in one new storage. All results of
 * one source have the same layout. */
typedef struct replica {
  tdict_tree *tree;
  tdict_tensor **leaves;  /* in tree order, borrowed from `tree` */
  tdict_storage *storage; /* borrowed from `tree` */
} replica;

/* The devices that copy parts from each other. */
typedef struct group {
  tdict_spreading *spreading;
  const source *source;
  size_t positions[TDICT_MAX_DEVICES]; /* in spreading->devices */
  size_t count;
  size_t num_receivers; /* the first devices of the group, which receive parts of the source: all, or pinned memory */
  replica replicas[TDICT_MAX_DEVICES];
  tdict_copy_pair *pairs; /* room for the pairs of one transfer */
} group;

/* The parts that a new part waits for. */
typedef struct awaited {
  tdict_future *const *parts;
  size_t count;
} awaited;

/* The bytes [begin, end) of all storages of the group, and the leaves in them. A leaf that is not contiguous is never
 * divided. */
typedef struct part {
  size_t begin, end;
  uint32_t first_leaf, end_leaf;
} part;

static size_t staging_bytes(const group *g) {
  return tdict_context_engine(g->spreading->context)->config.staging_bytes;
}

static tdict_memory *memory_of(const group *g, size_t i) {
  const tdict_spreading *s = g->spreading;
  tdict_devices *devices = tdict_context_devices(s->context);
  return g->positions[i] == s->pinned ? tdict_devices_pinned(devices)
                                      : tdict_devices_memory(devices, s->devices[g->positions[i]]);
}

static bool add_leaf(source *s, tdict_tensor *t) {
  if (s->num_leaves > UINT32_MAX / 2 || !TDICT_RESERVE(s->leaves, s->cap_leaves, (size_t)s->num_leaves + 1))
    return false;
  s->leaves[s->num_leaves++] = t;
  s->bytes += tdict_tensor_nbytes(t);
  s->has_pinned |= tdict_tensor_is_pinned(t);
  s->is_suitable &= t->storage->device.type == TDICT_DEVICE_CPU && !tdict_storage_is_unloaded(t->storage);
  return true;
}

/* Reads the leaves of a tree. If `device` is not NULL, also sets this device in all trees below the tree. The caller
 * frees s->leaves, also after a failure. */
static tdict_status read_leaves(source *s, const tdict_tree *tree, const tdict_device *device, tdict_error *err) {
  tdict_cursor cursor;
  bool has_memory = true;
  *s = (source){.is_suitable = true};
  tdict_cursor_init(&cursor, tree, false);
  for (tdict_leaf leaf; has_memory && (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    tdict_tree *child = tdict_leaf_tree(leaf);
    if (tensor)
      has_memory = add_leaf(s, tensor);
    else if (!child)
      s->is_suitable &= tdict_box_has_fixed_elements(tdict_leaf_box(leaf));
    else
      has_memory = tdict_cursor_enter(&cursor, child);
    if (child && device) {
      child->has_device = true;
      child->device = *device;
    }
  }
  tdict_cursor_reset(&cursor);
  s->is_suitable &= s->bytes > 0;
  return has_memory ? TDICT_OK : tdict_fail(err, TDICT_ENOMEM, "to_devices: no host memory to read the tree");
}

/* Creates the result of device i of the group, with uninitialized elements. Some leaf of the source is not empty. The
 * caller resets the result, also after a failure. */
static tdict_status create_replica(group *g, size_t i, tdict_error *err) {
  const tdict_map map = {.what = g->spreading->what,
                         .memory = memory_of(g, i),
                         .describe = tdict_map_describe_new,
                         .fill = tdict_map_leave_unset,
                         .describes_shapes = true,
                         .way = TDICT_OBJECT_SHARE};
  replica *r = &g->replicas[i];
  source made;
  tdict_status status = tdict_map_run(&map, g->spreading->src, &r->tree, err);
  if (status != TDICT_OK) return status;
  r->tree->has_device = true;
  r->tree->device = map.memory->device;
  status = read_leaves(&made, r->tree, &map.memory->device, err);
  r->leaves = made.leaves;
  for (uint32_t n = 0; n < made.num_leaves && !r->storage; n++)
    if (r->leaves[n]->numel) r->storage = r->leaves[n]->storage;
  return status;
}

static void reset_replica(replica *r) {
  tdict_release(r->tree);
  free(r->leaves);
}

/* Returns the offset of a leaf in the storage. */
static size_t offset_of(const replica *r, uint32_t leaf) {
  return (size_t)((uintptr_t)r->leaves[leaf]->data - (uintptr_t)r->storage->data);
}

/* Makes a tensor of `bytes` bytes over a storage, beginning at the address `data`. The caller owns the reference. */
static tdict_status view_bytes(tdict_storage *storage, const void *data, size_t bytes, tdict_tensor **out,
                               tdict_error *err) {
  const int64_t shape[1] = {(int64_t)bytes};
  const tdict_tensor_desc view = {.data = (void *)(uintptr_t)data, .dtype = TDICT_U8, .ndim = 1, .shape = shape};
  return tdict_tensor_over(storage, &view, out, err);
}

/* Starts a transfer of pairs to device i of the group. */
static tdict_status start_pairs(group *g, size_t i, size_t num_pairs, const awaited *awaits, tdict_error *err) {
  tdict_spreading *s = g->spreading;
  const replica *r = &g->replicas[i];
  tdict_start start = {.what = s->what,
                       .src = s->src,
                       .device = s->devices[g->positions[i]],
                       .options = s->options,
                       .storage = r->storage,
                       .pairs = g->pairs,
                       .num_pairs = num_pairs,
                       .named = r->tree,
                       .result = r->tree,
                       .awaits = awaits->parts,
                       .num_awaits = awaits->count};
  start.options.pinned_result = false; /* the storage is pinned already, or is on a device */
  return tdict_promise_start(s->promise, s->context, &start, g->positions[i], err);
}

/* Starts the copies of the parts j < `count`, except i, from device j to the same offsets on device i. */
static tdict_status start_exchange(group *g, size_t i, const part *parts, size_t count, const awaited *awaits,
                                   tdict_error *err) {
  tdict_tensor *views[TDICT_MAX_DEVICES];
  size_t num_views = 0;
  tdict_status status = TDICT_OK;
  for (size_t j = 0; j < count && status == TDICT_OK; j++) {
    const part *p = &parts[j];
    tdict_storage *from = g->replicas[j].storage;
    if (j == i || p->begin == p->end) continue;
    status = view_bytes(from, (char *)from->data + p->begin, p->end - p->begin, &views[num_views], err);
    if (status != TDICT_OK) break;
    char *to = (char *)g->replicas[i].storage->data + p->begin;
    g->pairs[num_views] = (tdict_copy_pair){views[num_views], to, UINT32_MAX};
    num_views++;
  }
  if (status == TDICT_OK && num_views) status = start_pairs(g, i, num_views, awaits, err);
  for (size_t j = 0; j < num_views; j++) tdict_tensor_release(views[j]);
  return status;
}

/* Moves a small tree to the first device as a whole. Each chunk that has arrived is copied to the other devices. */
static tdict_status replicate_small(group *g, tdict_error *err) {
  tdict_spreading *s = g->spreading;
  tdict_more_target targets[TDICT_MAX_DEVICES];
  for (size_t i = 1; i < g->count; i++) targets[i - 1] = (tdict_more_target){memory_of(g, i), g->positions[i]};
  tdict_start start = {.what = s->what,
                       .src = s->src,
                       .device = s->devices[g->positions[0]],
                       .options = s->options,
                       .more_targets = targets,
                       .num_more_targets = g->count - 1};
  return tdict_promise_start(s->promise, s->context, &start, g->positions[0], err);
}

/* Returns the end of the part that begins at leaf *leaf and ends near `wanted`. Moves *leaf to the first leaf that ends
 * after this end. */
static size_t find_end(const group *g, size_t wanted, uint32_t *leaf) {
  const source *s = g->source;
  const replica *r = &g->replicas[0];
  const size_t all = r->storage->bytes;
  if (wanted >= all) {
    *leaf = s->num_leaves;
    return all;
  }
  while (*leaf < s->num_leaves && offset_of(r, *leaf) + tdict_tensor_nbytes(r->leaves[*leaf]) <= wanted) (*leaf)++;
  if (*leaf == s->num_leaves) return all;
  const size_t begin = offset_of(r, *leaf);
  if (begin >= wanted || tdict_tensor_is_contiguous(s->leaves[*leaf])) return wanted;
  (*leaf)++; /* the part contains the whole strided leaf */
  return *leaf < s->num_leaves ? offset_of(r, *leaf) : all;
}

/* Copies the leaves of a part from the host to device i. `parts` of leaves at the ends of the part are copied by
 * views. */
static tdict_status start_part(group *g, size_t i, const part *p, const awaited *awaits, tdict_error *err) {
  const replica *r = &g->replicas[i];
  tdict_tensor *views[2];
  size_t num_views = 0, num_pairs = 0;
  tdict_status status = TDICT_OK;
  for (uint32_t n = p->first_leaf; n < p->end_leaf && status == TDICT_OK; n++) {
    tdict_tensor *src = g->source->leaves[n];
    const size_t at = offset_of(r, n), bytes = tdict_tensor_nbytes(src);
    const size_t from = at < p->begin ? p->begin - at : 0, to = at + bytes > p->end ? p->end - at : bytes;
    if (bytes == 0 || at >= p->end || from >= to) continue;
    if (to - from < bytes) {
      status = view_bytes(src->storage, (char *)src->data + from, to - from, &views[num_views], err);
      if (status != TDICT_OK) break;
      src = views[num_views++];
    }
    g->pairs[num_pairs++] = (tdict_copy_pair){src, (char *)r->leaves[n]->data + from, n};
  }
  if (status == TDICT_OK) status = start_pairs(g, i, num_pairs, awaits, err);
  for (size_t j = 0; j < num_views; j++) tdict_tensor_release(views[j]);
  return status;
}

/* Moves a large tree in rounds. A part of a round waits for the device's part two rounds before, so that the host
 * copies the rounds in order. */
static tdict_status start_rounds(group *g, tdict_error *err) {
  const size_t all = g->replicas[0].storage->bytes, receivers = g->num_receivers, per_device = all / receivers;
  size_t num_rounds = per_device / (ROUND_RINGS * staging_bytes(g)), end = 0;
  uint32_t leaf = 0;
  tdict_future *sent[3][TDICT_MAX_DEVICES];
  tdict_status status = TDICT_OK;
  /* each device has two parts in a round, its own and those of the others, or only the part that is pinned */
  const size_t most_rounds = (size_t)TDICT_REPLICATE_MAX_PARTS / (receivers > 1 ? 2 : 1);
  num_rounds = num_rounds < 1 ? 1 : num_rounds > most_rounds ? most_rounds : num_rounds;
  const size_t num_parts = num_rounds * receivers;
  for (size_t round = 0; round < num_rounds && status == TDICT_OK; round++) {
    part parts[TDICT_MAX_DEVICES];
    const tdict_promise *promise = g->spreading->promise;
    tdict_future **now = sent[round % 3], **before = sent[(round + 1) % 3];
    for (size_t i = 0; i < receivers && status == TDICT_OK; i++) {
      const size_t number = round * receivers + i + 1;
      size_t wanted = all / num_parts * number / PART_ALIGNMENT * PART_ALIGNMENT;
      if (number == num_parts) wanted = all;
      if (wanted < end) wanted = end;
      parts[i] = (part){.begin = end, .first_leaf = leaf};
      parts[i].end = end = find_end(g, wanted, &leaf);
      parts[i].end_leaf = leaf < g->source->num_leaves ? leaf + 1 : leaf;
      status = start_part(g, i, &parts[i], &(awaited){&before[i], round >= 2}, err);
      if (status == TDICT_OK) now[i] = promise->parts[promise->num_parts - 1];
    }
    const awaited arrived = {now, receivers};
    for (size_t i = 0; i < g->count && status == TDICT_OK; i++)
      status = start_exchange(g, i, parts, receivers, &arrived, err);
  }
  return status;
}

/* Moves a large tree to the devices of a group. */
static tdict_status replicate_large(group *g, tdict_error *err) {
  const size_t most_pairs = g->source->num_leaves + (size_t)TDICT_MAX_DEVICES;
  tdict_status status = TDICT_OK;
  g->pairs = malloc(most_pairs * sizeof *g->pairs);
  if (!g->pairs) return tdict_fail_memory(err, g->spreading->what, NULL, "its parts");
  for (size_t i = 0; i < g->count && status == TDICT_OK; i++) status = create_replica(g, i, err);
  if (status == TDICT_OK) status = start_rounds(g, err);
  for (size_t i = 0; i < g->count; i++) reset_replica(&g->replicas[i]);
  free(g->pairs);
  return status;
}

/* Replicates the source on the devices of a group. */
static tdict_status replicate_group(group *g, tdict_error *err) {
  const bool is_small = g->source->bytes <= staging_bytes(g) / SMALL_PART;
  const bool is_pinned = g->positions[0] == g->spreading->pinned;
  tdict_status status = TDICT_OK;
  g->num_receivers = is_pinned ? 1 : g->count;
  if (g->count > 1 && !is_small) return replicate_large(g, err);
  if (g->count > 1 && !is_pinned) return replicate_small(g, err);
  for (size_t i = 0; i < g->count && status == TDICT_OK; i++)
    status = tdict_spread_one(g->spreading, g->spreading->src, NULL, g->positions[i], err);
  return status;
}

/* Returns true if the device can copy from pinned memory of the group, or has peer access to all devices of the
 * group. */
static bool fits_group(const group *g, size_t position) {
  const tdict_spreading *s = g->spreading;
  if (g->positions[0] == s->pinned) return true;
  tdict_devices *devices = tdict_context_devices(s->context);
  tdict_gpu *gpu, *other;
  bool fits = s->devices[position].type != TDICT_DEVICE_CPU &&
              tdict_devices_gpu(devices, s->devices[position], &gpu, NULL) == TDICT_OK;
  for (size_t i = 0; i < g->count && fits; i++)
    fits = s->devices[g->positions[i]].type != TDICT_DEVICE_CPU &&
           tdict_devices_gpu(devices, s->devices[g->positions[i]], &other, NULL) == TDICT_OK &&
           tdict_gpu_has_peer_access(gpu, other);
  return fits;
}

/* Returns true if the options allow devices to copy from each other. Several parts of a device run at the same time, so
 * they could not keep to one limit of queued bytes, or to one rate. */
static bool may_exchange(const tdict_spreading *s) {
  const tdict_transfer_options *o = &s->options;
  return s->num_devices > 1 && !o->num_keep && !o->num_conversions && !o->narrow && !o->memory && !o->check_sources &&
         (!o->max_queued_bytes || o->max_queued_bytes == SIZE_MAX) && !o->max_bytes_per_second &&
         (!o->pinned_result || s->pinned < s->num_devices);
}

tdict_status tdict_replicate_start(tdict_spreading *s, tdict_error *err) {
  source read = {0};
  bool is_grouped[TDICT_MAX_DEVICES] = {false};
  tdict_status status = may_exchange(s) ? read_leaves(&read, s->src, NULL, err) : TDICT_OK;
  /* the group of pinned memory is the first, and its result shares leaves that are pinned already */
  const size_t first = s->pinned < s->num_devices ? s->pinned : 0;
  if (s->options.pinned_result && read.has_pinned) read.is_suitable = false;
  for (size_t n = 0; n < s->num_devices && status == TDICT_OK; n++) {
    const size_t i = (first + n) % s->num_devices;
    if (is_grouped[i]) continue;
    group g = {.spreading = s, .source = &read, .positions = {i}, .count = 1};
    is_grouped[i] = true;
    for (size_t j = 0; j < s->num_devices && read.is_suitable; j++) {
      if (is_grouped[j] || !fits_group(&g, j)) continue;
      g.positions[g.count++] = j;
      is_grouped[j] = true;
    }
    status = replicate_group(&g, err);
  }
  free(read.leaves);
  return status;
}
