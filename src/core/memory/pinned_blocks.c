/* Finds the best fit, splits blocks and merges neighbours. See pinned_blocks.h for ownership and threads. */
#include "core/memory/pinned_blocks.h"

#include <stdint.h>
#include <stdlib.h>

#include "core/base/assert.h"

tdict_pinned_block *tdict_blocks_new(void) {
  tdict_pinned_block *b = calloc(1, sizeof *b);
  tdict_pinned_pages *run = calloc(1, sizeof *run);
  if (!b || !run) {
    free(b);
    free(run);
    return NULL;
  }
  b->run = run;
  return b;
}

void tdict_blocks_drop(tdict_pinned_block *b) {
  free(b->run);
  free(b);
}

void tdict_blocks_append(tdict_block_list *list, tdict_pinned_block *b) {
  TDICT_ASSERT(!list->newest == !list->oldest);
  b->newer = NULL;
  b->older = list->newest;
  if (list->newest)
    list->newest->newer = b;
  else
    list->oldest = b;
  list->newest = b;
}

void tdict_blocks_remove(tdict_block_list *list, tdict_pinned_block *b) {
  TDICT_ASSERT(b->older ? b->older->newer == b : list->oldest == b);
  TDICT_ASSERT(b->newer ? b->newer->older == b : list->newest == b);
  if (b->older)
    b->older->newer = b->newer;
  else
    list->oldest = b->newer;
  if (b->newer)
    b->newer->older = b->older;
  else
    list->newest = b->older;
}

/* Finds the offset at which `bytes` bytes can start: 0, but the border of two registered pieces if the bytes fit into a
 * piece and would cross the border. Returns false if the block is too small. */
static bool find_offset(const tdict_pinned_block *b, size_t bytes, size_t *out) {
  size_t piece = b->run->piece, at = 0;
  if (bytes <= piece && piece != SIZE_MAX) {
    size_t to_border = piece - (uintptr_t)b->data % piece;
    if (bytes > to_border) at = to_border;
  }
  *out = at;
  return at <= b->bytes && bytes <= b->bytes - at;
}

/* Splits the block after `bytes` bytes. Returns its new right neighbour, or NULL if host memory is exhausted. */
static tdict_pinned_block *split_block(tdict_pinned_block *b, size_t bytes) {
  TDICT_ASSERT(bytes > 0 && bytes < b->bytes);
  tdict_pinned_block *rest = calloc(1, sizeof *rest);
  if (!rest) return NULL;
  rest->run = b->run;
  rest->data = b->data + bytes;
  rest->bytes = b->bytes - bytes;
  rest->left = b;
  rest->right = b->right;
  if (b->right) b->right->left = rest;
  b->right = rest;
  b->bytes = bytes;
  return rest;
}

/* Merges the block with its right neighbour and frees the record of that neighbour. */
static void merge_right(tdict_pinned_block *b) {
  tdict_pinned_block *merged = b->right;
  TDICT_ASSERT(merged->left == b && merged->run == b->run && merged->data == b->data + b->bytes);
  b->bytes += merged->bytes;
  b->right = merged->right;
  if (merged->right) merged->right->left = b;
  free(merged);
}

static void mark_free(tdict_block_list *list, tdict_pinned_block *b) {
  TDICT_ASSERT(!b->free && !b->waits);
  tdict_blocks_append(list, b);
  b->free = true;
}
static void mark_taken(tdict_block_list *list, tdict_pinned_block *b) {
  TDICT_ASSERT(b->free);
  tdict_blocks_remove(list, b);
  b->free = false;
}

void tdict_blocks_give(tdict_block_list *list, tdict_pinned_block *b) {
  if (b->right && b->right->free) {
    mark_taken(list, b->right);
    merge_right(b);
  }
  if (b->left && b->left->free) {
    b = b->left;
    mark_taken(list, b);
    merge_right(b);
  }
  mark_free(list, b);
}

/* Splits a free block so that its bytes [at, at + bytes) become a block in use. The parts before and after these bytes
 * are still free. Returns NULL and changes nothing if host memory for the records is exhausted. */
static tdict_pinned_block *carve_block(tdict_block_list *list, tdict_pinned_block *b, size_t at, size_t bytes) {
  tdict_pinned_block *wanted = at ? split_block(b, at) : b, *rest = NULL;
  if (wanted && wanted->bytes > bytes) {
    rest = split_block(wanted, bytes);
    if (!rest && at) merge_right(b);
    if (!rest) return NULL;
  }
  if (!wanted) return NULL;
  if (rest) mark_free(list, rest);
  if (!at) mark_taken(list, b);
  return wanted;
}

tdict_pinned_block *tdict_blocks_take(tdict_block_list *list, size_t bytes, size_t at_most, int node) {
  tdict_pinned_block *best = NULL;
  size_t best_at = 0, at;
  /* Search from the newest block, so that the newest of several blocks of equal size is chosen. */
  for (tdict_pinned_block *b = list->newest; b; b = b->older) {
    if (node != TDICT_ANY_NODE && b->run->node != node) continue;
    if (b->bytes > at_most || (best && b->bytes >= best->bytes) || !find_offset(b, bytes, &at)) continue;
    best = b;
    best_at = at;
  }
  return best ? carve_block(list, best, best_at, bytes) : NULL;
}
