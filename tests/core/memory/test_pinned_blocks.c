/* Tests which free block is chosen, what remains of it, and which blocks are merged. Accesses no pinned memory. */
#include "core/memory/pinned_blocks.h"

#include "support/test.h"

enum { PAGE = 4096 };
#define BASE ((uintptr_t)1 << 40)

static tdict_pinned_block *new_run(tdict_block_list *list, uintptr_t at, size_t pages, size_t piece) {
  tdict_pinned_block *b = tdict_blocks_new();
  assert_non_null(b);
  b->data = (char *)at;
  b->bytes = pages * PAGE;
  b->run->piece = piece;
  tdict_blocks_give(list, b);
  return b;
}
static void drop(tdict_block_list *list, tdict_pinned_block *b) {
  assert_true(tdict_block_is_whole(b));
  assert_true(b->free);
  tdict_blocks_remove(list, b);
  tdict_blocks_drop(b);
}
static tdict_pinned_block *take(tdict_block_list *list, size_t pages) {
  tdict_pinned_block *b = tdict_blocks_take(list, pages * PAGE, SIZE_MAX, 0);
  if (b) assert_int_equal(b->bytes, pages * PAGE);
  return b;
}

CASE(pinned_blocks_best_fit_and_newest) {
  tdict_block_list list = {NULL, NULL};
  tdict_pinned_block *runs[4];
  static const size_t pages[] = {6, 4, 9, 4};
  for (int i = 0; i < 4; i++) runs[i] = new_run(&list, BASE + (uintptr_t)i * 100 * PAGE, pages[i], SIZE_MAX);
  assert_ptr_equal(take(&list, 5), runs[0]); /* the newer run of nine pages also fits, but is larger */
  assert_ptr_equal(take(&list, 4), runs[3]); /* the newer of two runs of this size */
  assert_ptr_equal(take(&list, 3), runs[1]);
  assert_null(tdict_blocks_take(&list, 2 * PAGE, 8 * PAGE, 0)); /* the run of nine pages is too large to be cut */
  assert_ptr_equal(take(&list, 9), runs[2]);
  assert_null(take(&list, 2)); /* two runs have one page left each */
  for (int i = 0; i < 4; i++) tdict_blocks_give(&list, runs[i]);
  for (int i = 0; i < 4; i++) {
    assert_int_equal(runs[i]->bytes, pages[i] * PAGE);
    drop(&list, runs[i]);
  }
  assert_null(list.oldest);
  assert_null(list.newest);
}

/* A block that fits into a piece must lie within one registered piece, so that one driver call can copy it. */
CASE(pinned_blocks_cross_no_border) {
  enum { PIECE = 8 };
  tdict_block_list list = {NULL, NULL};
  tdict_pinned_block *run = new_run(&list, BASE, 3 * PIECE, PIECE * PAGE), *b[5];
  b[0] = take(&list, 5);
  b[1] = take(&list, 4); /* only three pages are left before the border */
  assert_ptr_equal(b[1]->data, (char *)BASE + PIECE * PAGE);
  b[2] = take(&list, 3);
  assert_ptr_equal(b[2]->data, (char *)BASE + 5 * PAGE);
  b[3] = take(&list, 8);
  assert_ptr_equal(b[3]->data, (char *)BASE + 2 * PIECE * PAGE);
  assert_null(take(&list, 5));
  for (int i = 0; i < 4; i++) tdict_blocks_give(&list, b[i]);
  b[4] = take(&list, PIECE + 1); /* longer than a piece, so it must cross a border */
  assert_ptr_equal(b[4]->data, (char *)BASE);
  tdict_blocks_give(&list, b[4]);
  drop(&list, run);
}

CASE(pinned_blocks_survive_enomem) {
  enum { PIECE = 8 };
  for (int n = 0; n < 2; n++) { /* the allocation fails for the part before the block, then for the part after it */
    tdict_block_list list = {NULL, NULL};
    tdict_pinned_block *run = new_run(&list, BASE + 6 * PAGE, 10, PIECE * PAGE);
    td_fail_alloc(n, true);
    assert_null(take(&list, 4));
    td_fail_alloc_stop();
    assert_int_equal(run->bytes, 10 * PAGE);
    tdict_pinned_block *b = take(&list, 4);
    assert_ptr_equal(b->data, (char *)BASE + PIECE * PAGE);
    tdict_blocks_give(&list, b);
    assert_int_equal(run->bytes, 10 * PAGE);
    drop(&list, run);
  }
  td_fail_alloc(0, true);
  assert_null(tdict_blocks_new());
  td_fail_alloc_stop();
  td_fail_alloc(1, true);
  assert_null(tdict_blocks_new());
  td_fail_alloc_stop();
}

/* Compares the blocks with a map of pages. No page is taken twice or lost, and freed blocks are merged again. */
CASE(pinned_blocks_random) {
  enum { PAGES = 200, PIECE = 32, LIVE = 24 };
  tdict_block_list list = {NULL, NULL};
  tdict_pinned_block *run = new_run(&list, BASE, PAGES, PIECE * PAGE), *live[LIVE] = {NULL};
  unsigned char map[PAGES] = {0};
  uint64_t seed = 7;
  for (int step = 0; step < 5000; step++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    int i = (int)(seed >> 33) % LIVE;
    size_t wanted = 1 + (size_t)(seed >> 40) % 40, at;
    if (live[i]) {
      at = (size_t)((uintptr_t)live[i]->data - BASE) / PAGE;
      memset(map + at, 0, live[i]->bytes / PAGE);
      tdict_blocks_give(&list, live[i]);
      live[i] = NULL;
      continue;
    }
    live[i] = take(&list, wanted);
    if (!live[i]) continue;
    at = (size_t)((uintptr_t)live[i]->data - BASE) / PAGE;
    assert_true(at + wanted <= PAGES);
    if (wanted <= PIECE) assert_int_equal(at / PIECE, (at + wanted - 1) / PIECE);
    for (size_t k = at; k < at + wanted; k++) assert_int_equal(map[k]++, 0);
    size_t free_bytes = 0, taken = 0;
    for (const tdict_pinned_block *b = list.oldest; b; b = b->newer) {
      free_bytes += b->bytes;
      assert_true(b->free);
      assert_false(b->right && b->right->free);
    }
    for (size_t k = 0; k < PAGES; k++) taken += map[k];
    assert_int_equal(free_bytes, (PAGES - taken) * PAGE);
  }
  for (int i = 0; i < LIVE; i++)
    if (live[i]) tdict_blocks_give(&list, live[i]);
  assert_ptr_equal(list.oldest, run);
  assert_int_equal(run->bytes, PAGES * PAGE);
  drop(&list, run);
}
