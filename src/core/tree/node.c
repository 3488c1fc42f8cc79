/* Creates nodes and counts references to them. Adds and removes slots. Copies shared key tables and leaves before a
 * change. A node owns one reference to its key table and one reference to its list of leaves. Thread rule: as in
 * tdict/tree.h; the reference count is thread-safe. */
#include "core/tree/node.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "tdict/path.h"

enum { FIRST_LEAVES = 8 };

/* Makes a node without batch size and device that takes over `keys`. Returns NULL if memory is exhausted. */
static tdict_tree *new_node(tdict_keys *keys) {
  tdict_tree *td = malloc(sizeof *td);
  if (!td) return NULL;
  atomic_init(&td->refs, 1);
  td->keys = keys;
  td->leaves = NULL;
  td->cap_leaves = 0;
  td->batch_ndim = 0;
  td->has_device = td->locked = false;
  td->device = (tdict_device){0, 0};
  atomic_init(&td->locks_above, 0);
  td->consolidated = NULL;
  for (int i = 0; i < TDICT_ATTACHMENT_SLOTS; i++) atomic_init(&td->attachments[i], NULL);
  td->pending = NULL;
  return td;
}

static tdict_tree *new_empty_node(void) {
  tdict_keys *keys = tdict_keys_create();
  tdict_tree *td = keys ? new_node(keys) : NULL;
  if (!td) tdict_keys_release(keys);
  return td;
}

static void copy_batch_and_device(tdict_tree *td, const tdict_tree *like) {
  td->batch_ndim = like->batch_ndim;
  memcpy(td->batch_size, like->batch_size, (size_t)like->batch_ndim * sizeof *td->batch_size);
  td->has_device = like->has_device;
  td->device = like->device;
}

tdict_tree *tdict_node_create_under(const tdict_tree *like) {
  tdict_tree *td = new_empty_node();
  if (td) copy_batch_and_device(td, like);
  return td;
}

static tdict_slab *slab_of(tdict_leaf leaf) {
  const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
  return tensor ? tensor->slab : NULL;
}

/* Allocates a list of `cap` leaves, of which the first `count` are empty. Returns NULL if memory is exhausted. */
static tdict_leaf *new_leaf_list(size_t cap, size_t count) {
  tdict_leaf_list *list = malloc(sizeof *list + cap * sizeof *list->leaves);
  if (!list) return NULL;
  atomic_init(&list->refs, 1);
  if (count) memset(list->leaves, 0, count * sizeof *list->leaves);
  return list->leaves;
}

static tdict_status fail_node_memory(size_t slots, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOMEM, "tree: no memory for a node of %zu keys", slots);
}

tdict_status tdict_node_create_over(tdict_keys *keys, int batch_ndim, const int64_t *batch_size, tdict_tree **out,
                                    tdict_error *err) {
  size_t slots = keys->num_slots;
  tdict_tree *td = new_node(keys);
  tdict_leaf *leaves = td && slots ? new_leaf_list(slots, slots) : NULL;
  if (!td || (slots && !leaves)) {
    free(td);
    return fail_node_memory(slots, err);
  }
  /* new_node() adds no reference to the key table, so the failure above has no reference to release. */
  (void)tdict_keys_retain(keys);
  td->batch_ndim = batch_ndim;
  for (int i = 0; i < batch_ndim; i++) td->batch_size[i] = batch_size[i];
  td->leaves = leaves;
  td->cap_leaves = (uint32_t)slots;
  *out = td;
  return TDICT_OK;
}

tdict_status tdict_node_create_like(const tdict_tree *like, tdict_tree **out, tdict_error *err) {
  tdict_status status = tdict_node_create_over(like->keys, like->batch_ndim, like->batch_size, out, err);
  if (status != TDICT_OK) return status;
  (*out)->has_device = like->has_device;
  (*out)->device = like->device;
  return status;
}

/* Copies leaves with a reference each, but trees only if `trees`. Tensors of one slab share an atomic addition. */
static void copy_leaves(tdict_leaf *to, const tdict_leaf *from, size_t count, bool trees) {
  for (size_t i = 0; i < count;) {
    tdict_leaf leaf = from[i];
    tdict_slab *slab = slab_of(leaf);
    if (slab) {
      size_t begin = i;
      for (; i < count && slab_of(from[i]) == slab; i++) to[i] = from[i];
      atomic_fetch_add_explicit(&slab->refs, (int64_t)(i - begin), memory_order_relaxed);
      continue;
    }
    to[i++] = trees || !tdict_leaf_tree(leaf) ? tdict_leaf_retain(leaf) : 0;
  }
}

static bool holds_trees(const tdict_tree *td) {
  const size_t count = td->keys->num_slots;
  size_t trees = 0;
  for (size_t i = 0; i < count; i++) trees += (td->leaves[i] & TDICT_LEAF_MASK) == TDICT_LEAF_TREE;
  return trees != 0;
}

tdict_status tdict_node_create_sharing(const tdict_tree *like, tdict_tree **out, bool *trees, tdict_error *err) {
  const size_t slots = like->keys->num_slots;
  /* A list with trees cannot be shared, because each copy needs separate child nodes. */
  *trees = holds_trees(like);
  if (*trees) {
    tdict_status status = tdict_node_create_like(like, out, err);
    if (status == TDICT_OK) copy_leaves((*out)->leaves, like->leaves, slots, false);
    return status;
  }
  tdict_tree *td = new_node(like->keys);
  if (!td) return fail_node_memory(slots, err);
  (void)tdict_keys_retain(like->keys);
  copy_batch_and_device(td, like);
  if (like->leaves) atomic_fetch_add_explicit(&tdict_node_list(like)->refs, 1, memory_order_relaxed);
  td->leaves = like->leaves;
  td->cap_leaves = like->cap_leaves;
  *out = td;
  return TDICT_OK;
}

tdict_status tdict_batch_check(const char *what, int batch_ndim, const int64_t *batch_size, tdict_error *err) {
  if (batch_ndim < 0 || batch_ndim > TDICT_MAX_BATCH_NDIM)
    return tdict_fail(err, TDICT_EINVAL, "%s: %d batch dimensions, wanted 0 to %d", what, batch_ndim,
                      TDICT_MAX_BATCH_NDIM);
  if (batch_ndim > 0 && !batch_size)
    return tdict_fail(err, TDICT_EINVAL, "%s: batch_size is NULL, wanted %d counts", what, batch_ndim);
  for (int i = 0; i < batch_ndim; i++)
    if (batch_size[i] < 0)
      return tdict_fail(err, TDICT_EINVAL, "%s: batch dimension %d is %lld, wanted 0 or more", what, i,
                        (long long)batch_size[i]);
  return TDICT_OK;
}

tdict_status tdict_create(int batch_ndim, const int64_t *batch_size, tdict_tree **out, tdict_error *err) {
  if (!out) return tdict_fail_null(err, "create", "out");
  tdict_status status = tdict_batch_check("create", batch_ndim, batch_size, err);
  if (status != TDICT_OK) return status;
  tdict_tree *td = new_empty_node();
  if (!td) return tdict_fail(err, TDICT_ENOMEM, "create: no memory for a node");
  td->batch_ndim = batch_ndim;
  for (int i = 0; i < batch_ndim; i++) td->batch_size[i] = batch_size[i];
  *out = td;
  return TDICT_OK;
}

tdict_tree *tdict_retain(const tdict_tree *tree) {
  tdict_tree *counted = (tdict_tree *)(uintptr_t)tree;
  atomic_fetch_add_explicit(&counted->refs, 1, memory_order_relaxed);
  return counted;
}

/* Drops a reference. The last one pushes the node on *to_free, for a loop: a deep tree would overflow the stack. */
static void drop_node_reference(tdict_tree *td, tdict_tree **to_free) {
  /* acq_rel: the thread that frees the node must see all writes of former holders. */
  if (atomic_fetch_sub_explicit(&td->refs, 1, memory_order_acq_rel) != 1) return;
  td->pending = *to_free;
  *to_free = td;
}

/* Returns the lowest index, `i` or higher, whose leaf is not a tensor of the slab, or `count`. Compares only addresses
 * and does not read the tensors: the tensors of a slab are in the memory of the slab. */
static uint32_t find_slab_run_end(const tdict_tree *td, uint32_t i, uint32_t count, const tdict_slab *slab) {
  const uintptr_t first = (uintptr_t)slab->tensors, bytes = slab->num_tensors * sizeof slab->tensors[0];
  while (i < count && td->leaves[i] - first < bytes && tdict_leaf_kind(td->leaves[i]) == TDICT_LEAF_TENSOR) i++;
  return i;
}

/* Drops the reference to the list. The last one releases `count` leaves, and pushes trees on *to_free. */
static void release_leaves(tdict_tree *td, uint32_t count, tdict_tree **to_free) {
  if (!td->leaves) return;
  tdict_leaf_list *list = tdict_node_list(td);
  if (atomic_fetch_sub_explicit(&list->refs, 1, memory_order_acq_rel) != 1) return;
  for (uint32_t i = 0; i < count;) {
    tdict_leaf leaf = td->leaves[i++];
    tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    if (tensor && tensor->slab) { /* one atomic subtraction for the whole run */
      uint32_t end = find_slab_run_end(td, i, count, tensor->slab);
      tdict_slab_release(tensor->slab, (int64_t)(end - i) + 1);
      i = end;
    } else if (tensor) {
      tdict_tensor_release(tensor);
    } else if (tdict_leaf_tree(leaf)) {
      drop_node_reference(tdict_leaf_tree(leaf), to_free);
    } else {
      tdict_box_release(tdict_leaf_box(leaf));
    }
  }
  free(list);
}

/* Relaxed: no other thread attaches data while the tree is unlocked or freed. */
static void detach_data(tdict_tree *td) {
  for (int i = 0; i < TDICT_ATTACHMENT_SLOTS; i++) {
    tdict_attachment *data = atomic_load_explicit(&td->attachments[i], memory_order_relaxed);
    if (!data) continue;
    atomic_store_explicit(&td->attachments[i], NULL, memory_order_relaxed);
    data->detach(data);
  }
}

void tdict_node_clear_lock(tdict_tree *td) {
  detach_data(td);
  td->locked = false;
  tdict_consolidated_release(td->consolidated);
  td->consolidated = NULL;
}

void tdict_node_uncount_lock(tdict_tree *td, bool clear) {
  td->pending = NULL;
  for (tdict_tree *list = td; list;) {
    tdict_tree *node = list;
    list = node->pending;
    for (uint32_t i = 0; i < node->keys->num_slots; i++) {
      tdict_tree *child = tdict_leaf_tree(node->leaves[i]);
      if (!child || atomic_fetch_sub_explicit(&child->locks_above, 1, memory_order_relaxed) != 1) continue;
      if (clear) tdict_node_clear_lock(child);
      if (child->locked) continue;
      child->pending = list;
      list = child;
    }
  }
}

void tdict_release(tdict_tree *tree) {
  tdict_tree *to_free = NULL;
  if (tree) drop_node_reference(tree, &to_free);
  while (to_free) {
    tdict_tree *node = to_free;
    to_free = node->pending;
    /* A freed tree must no longer lock the children that other trees hold. */
    if (node->locked) tdict_node_uncount_lock(node, false);
    detach_data(node);
    release_leaves(node, node->keys->num_slots, &to_free);
    tdict_consolidated_release(node->consolidated);
    tdict_keys_release(node->keys);
    free(node);
  }
}

tdict_leaf tdict_leaf_retain(tdict_leaf leaf) {
  if (tdict_leaf_tensor(leaf))
    (void)tdict_tensor_retain(tdict_leaf_tensor(leaf));
  else if (tdict_leaf_tree(leaf))
    (void)tdict_retain(tdict_leaf_tree(leaf));
  else if (leaf)
    (void)tdict_box_retain(tdict_leaf_box(leaf));
  return leaf;
}

void tdict_leaf_release(tdict_leaf leaf) {
  tdict_release(tdict_leaf_tree(leaf));
  tdict_tensor_release(tdict_leaf_tensor(leaf));
  tdict_box_release(tdict_leaf_box(leaf));
}

/* Replaces a shared key table by a private copy. Returns false if memory is exhausted. */
static bool own_key_table(tdict_tree *td) {
  if (atomic_load_explicit(&td->keys->refs, memory_order_acquire) == 1) return true;
  tdict_keys *own = tdict_keys_copy(td->keys);
  if (!own) return false;
  tdict_keys_release(td->keys);
  td->keys = own;
  return true;
}

/* Replaces a shared list by a copy with room for `cap` leaves. It holds no trees, so no node is freed. */
static bool copy_shared_list(tdict_tree *td, size_t cap) {
  const uint32_t count = td->keys->num_slots;
  tdict_tree *none = NULL;
  tdict_leaf *leaves = new_leaf_list(cap, 0);
  if (!leaves) return false;
  copy_leaves(leaves, td->leaves, count, true);
  release_leaves(td, count, &none);
  td->leaves = leaves;
  td->cap_leaves = (uint32_t)cap;
  return true;
}

bool tdict_node_own_leaves(tdict_tree *td) {
  return !tdict_node_shares_leaves(td) || copy_shared_list(td, td->keys->num_slots);
}

bool tdict_node_own(tdict_tree *td) { return tdict_node_own_leaves(td) && own_key_table(td); }

bool tdict_node_reserve(tdict_tree *td, size_t count) {
  const bool shared = tdict_node_shares_leaves(td);
  if (count <= td->cap_leaves && !shared) return true;
  size_t cap = td->cap_leaves;
  /* A shared list that is long enough is copied without growing. */
  if (cap < count) cap = cap < FIRST_LEAVES ? FIRST_LEAVES : cap * 2;
  if (cap < count) cap = count;
  if (cap > UINT32_MAX) return false;
  if (shared) return copy_shared_list(td, cap);
  tdict_leaf_list *list = td->leaves ? tdict_node_list(td) : NULL;
  const bool first = !list;
  tdict_leaf_list *grown = realloc(list, sizeof *grown + cap * sizeof *grown->leaves);
  if (!grown) return false;
  if (first) atomic_init(&grown->refs, 1);
  td->leaves = grown->leaves;
  td->cap_leaves = (uint32_t)cap;
  return true;
}

/* Makes leaves and key table private, with room for one more leaf. Returns false if memory is exhausted. */
static TDICT_COLD bool prepare_to_add(tdict_tree *td) {
  return tdict_node_reserve(td, (size_t)td->keys->num_slots + 1) && own_key_table(td);
}

bool tdict_node_add_name(tdict_tree *td, const tdict_name *name, tdict_leaf leaf) {
  /* acquire: pairs with the release of the last other holder, which might have read the table until then. */
  const bool ready = td->keys->num_slots < td->cap_leaves && !tdict_node_shares_leaves(td) &&
                     atomic_load_explicit(&td->keys->refs, memory_order_acquire) == 1;
  if (!ready && !prepare_to_add(td)) return false;
  int64_t slot = tdict_keys_append(td->keys, name);
  if (slot < 0) return false;
  td->leaves[slot] = leaf;
  return true;
}

void tdict_node_swap(tdict_tree *a, tdict_tree *b) {
  tdict_keys *keys = a->keys;
  tdict_leaf *leaves = a->leaves;
  uint32_t cap = a->cap_leaves;
  a->keys = b->keys;
  a->leaves = b->leaves;
  a->cap_leaves = b->cap_leaves;
  b->keys = keys;
  b->leaves = leaves;
  b->cap_leaves = cap;
}

void tdict_node_remove(tdict_tree *td, uint32_t slot) {
  tdict_keys_delete(td->keys, slot);
  td->leaves[slot] = 0;
  tdict_node_compact(td);
}

void tdict_node_compact(tdict_tree *td) {
  tdict_keys *keys = td->keys;
  if (keys->num_slots - keys->num_live > keys->num_slots / 2) tdict_keys_compact(keys, td->leaves);
}

/* A writer that cuts a text in the middle: keeps the first `head` and the last `tail` of the `total` bytes. */
typedef struct cut_writer {
  char *buffer;
  size_t total, head, tail, position;
} cut_writer;

static void put_cut_char(cut_writer *text, char c) {
  size_t at = text->position++;
  if (text->head + text->tail == text->total || at < text->head)
    text->buffer[at] = c;
  else if (at >= text->total - text->tail)
    text->buffer[text->head + 3 + (at - (text->total - text->tail))] = c;
}

void tdict_node_path(const char *above, const tdict_key *key, char *buffer, size_t bytes) {
  char copy[sizeof((tdict_error *)NULL)->path];
  size_t length = above ? strlen(above) : 0, total = length;
  /* If `buffer` is `above`, the output would overwrite the input, so copy the input. */
  if (above && above == buffer && length < sizeof copy) above = memcpy(copy, buffer, length + 1);
  if (key) total += tdict_path_escape(key->name, NULL, 0) + (length != 0);
  /* Decide which bytes are cut, since "..." replaces the middle of a long path. */
  cut_writer text = {buffer, total, total, 0, 0};
  if (total >= bytes) {
    size_t kept = bytes > 4 ? bytes - 1 - 3 : 0; /* gcc 14 warns without the comparison */
    text.head = kept / 2;
    text.tail = kept - text.head;
    memcpy(buffer + text.head, "...", 3);
  }
  /* Write the head and the tail. */
  for (size_t i = 0; i < length; i++) put_cut_char(&text, above[i]);
  if (key && length) put_cut_char(&text, '.');
  for (const char *c = key ? key->name : ""; *c; c++) {
    if (*c == '.' || *c == '\\') put_cut_char(&text, '\\');
    put_cut_char(&text, *c);
  }
  buffer[total < bytes ? total : bytes - 1] = 0;
}
