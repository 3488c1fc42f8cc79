/* Tests that a program can copy to and from the library's pinned memory with its own driver calls: one copy for each
 * leaf, or one copy for the whole arena. */
#include "trees.h"

#include "core/memory/pinned_pages.h"

enum { MIB = 1 << 20, INVALID_VALUE = 1, PIECE = 8 * MIB };

/* leaf sizes in bytes; smaller for the simulated device, which has less memory */
static const int64_t sim_sizes[] = {1, 33 * MIB + 17, 4095, 51200, MIB + 1, 5 * MIB};
static const int64_t cuda_sizes[] = {1, 100000000, 4095, 51200, MIB + 1, 33 * MIB + 17, 1024ll * MIB, 4096ll * MIB};
enum { MAX_SIZES = 8 };

static int get_sizes(const int64_t **out) {
  bool cuda = td_device().type == TDICT_DEVICE_CUDA;
  *out = cuda ? cuda_sizes : sim_sizes;
  return (int)(cuda ? sizeof cuda_sizes / sizeof *cuda_sizes : sizeof sim_sizes / sizeof *sim_sizes);
}

static place open_with_pieces(size_t piece_bytes) {
  tdict_context_options o = td_with(tdict_context_options, staging_bytes = STAGING, pin_piece_bytes = piece_bytes);
  return place_around(td_context(&o));
}

/* Fills memory eight bytes at a time, because trees can be several gigabytes large. */
static void fill_fast(char *bytes, size_t count) {
  uint64_t word = next_seed() * 0x9E3779B97F4A7C15u;
  size_t at = 0;
  for (; at + 8 <= count; at += 8) {
    word = word * 6364136223846793005u + 1442695040888963407u;
    memcpy(bytes + at, &word, 8);
  }
  for (; at < count; at++) bytes[at] = (char)(word >> 8 * (at % 8));
}

static void name_leaf(char *name, int i) { sprintf(name, "leaf%d", i); }

/* Makes a tree of leaves with these sizes in ordinary memory. */
static tdict_tree *make_sources(const int64_t *sizes, int count) {
  tdict_tree *tree = new_tree();
  for (int i = 0; i < count; i++) {
    char name[16];
    tdict_tensor *t = td_made(tensor, tdict_tensor_empty(TDICT_U8, 1, &sizes[i], NULL, &made, err));
    fill_fast(tdict_tensor_data(t), (size_t)sizes[i]);
    name_leaf(name, i);
    td_put(tree, name, t);
  }
  return tree;
}

/* Compares device bytes with host bytes, one part at a time. */
static void check_device_bytes(const place *w, const char *device, const char *host, size_t bytes) {
  static char part[16 * MIB];
  for (size_t at = 0; at < bytes; at += sizeof part) {
    size_t size = bytes - at < sizeof part ? bytes - at : sizeof part;
    raw_read(w->raw, part, device + at, size);
    if (memcmp(part, host + at, size) != 0) fail_msg("bytes from %zu on differ", at);
  }
}

/* Makes one driver copy from pinned memory to the device, changes the pinned bytes, and copies back. Checks both. */
static void copy_whole(const place *w, char *device, char *host, size_t bytes) {
  raw_fill(w->raw, device, POISON, bytes);
  int answer = raw_copy_in(w->raw, device, host, bytes);
  if (answer) fail_msg("a plain copy of %zu bytes at %p to the device: CUDA error %d", bytes, (void *)host, answer);
  check_device_bytes(w, device, host, bytes);
  for (size_t at = 0; at < bytes; at += 4096) host[at] = (char)(host[at] ^ 0x55);
  host[bytes - 1] = (char)(host[bytes - 1] ^ 0x33);
  answer = raw_copy_out(w->raw, host, device, bytes);
  if (answer) fail_msg("a plain copy of %zu bytes at %p from the device: CUDA error %d", bytes, (void *)host, answer);
  check_device_bytes(w, device, host, bytes);
}

/* Makes driver copies of each leaf and of the whole storage. The leaves must keep the bytes of `sources`. */
static void check_tree_copies(const place *w, const tdict_tree *tree, const tdict_tree *sources, char *device) {
  leaf_list leaves = list_entries(tree), wanted = list_entries(sources);
  assert_int_equal(leaves.count, wanted.count);
  const tdict_storage *arena = leaves.tensors[0]->storage;
  for (size_t i = 0; i < leaves.count; i++) {
    tdict_tensor *t = leaves.tensors[i];
    assert_true(tdict_tensor_is_pinned(t));
    assert_ptr_equal(t->storage, arena);
    copy_whole(w, device, tdict_tensor_data(t), tdict_tensor_bytes(t));
  }
  copy_whole(w, device, arena->data, arena->bytes);
  for (size_t i = 0; i < leaves.count; i++) {
    size_t bytes = tdict_tensor_bytes(wanted.tensors[i]);
    assert_int_equal(tdict_tensor_bytes(leaves.tensors[i]), bytes);
    assert_memory_equal(tdict_tensor_data(leaves.tensors[i]), tdict_tensor_data(wanted.tensors[i]), bytes);
  }
  free_list(&leaves);
  free_list(&wanted);
}

static tdict_tree *pin(const place *w, const tdict_tree *sources) {
  return td_made(tree, tdict_pin_memory(w->c, sources, NULL, &made, err));
}

/* Makes a tree from a schema, in one storage of the pinned pool. */
static tdict_tree *make_from_schema(const place *w, const tdict_tree *sources) {
  static char names[MAX_SIZES][16];
  tdict_field fields[MAX_SIZES];
  scoped_leaf_list wanted = list_entries(sources);
  tdict_tree *out = NULL;
  for (size_t i = 0; i < wanted.count; i++) {
    name_leaf(names[i], (int)i);
    fields[i] = (tdict_field){names[i], TDICT_U8, 1, {tdict_tensor_shape(wanted.tensors[i])[0]}};
  }
  td_ok(tdict_create_from(fields, wanted.count, 0, NULL, w->pinned, &out, err));
  td_ok(tdict_transfer_into(w->c, out, sources, NULL, err));
  return out;
}

/* Moves a tree to the device, and from there to pinned memory. */
static tdict_tree *bring_back(const place *w, const tdict_tree *sources) {
  tdict_tree *there = NULL, *out = NULL;
  td_ok(tdict_to_device(w->c, sources, w->device, NULL, &there, err));
  td_ok(tdict_to_device(w->c, there, tdict_cpu(), td_options(tdict_transfer_options, pinned_result = true), &out, err));
  tdict_release(there);
  return out;
}

/* Allocates device memory that is large enough for the largest arena. */
static tdict_tensor *make_target(const place *w, const int64_t *sizes, int count) {
  int64_t bytes = 0;
  tdict_tensor *t = NULL;
  for (int i = 0; i < count; i++) bytes += sizes[i] + 8192;
  tdict_error err;
  tdict_status status = tdict_tensor_empty(TDICT_U8, 1, &bytes, w->memory, &t, &err);
  if (status == TDICT_ENOMEM) td_skip("the device has no room for the largest tree");
  assert_int_equal(status, TDICT_OK);
  return t;
}

GPU_CASE(pinned_trees_take_plain_copies) {
  typedef tdict_tree *(*maker)(const place *, const tdict_tree *);
  static const maker makers[] = {pin, make_from_schema, bring_back};
  scoped_place w = open_with_pieces(0);
  const int64_t *sizes;
  int count = get_sizes(&sizes);
  scoped_tensor target = make_target(&w, sizes, count);
  tdict_tree *sources = make_sources(sizes, count), *tree;
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
    tree = makers[i](&w, sources);
    check_tree_copies(&w, tree, sources, tdict_tensor_data(target));
    tdict_release(tree);
  }
  tdict_release(sources);
  tdict_context_trim(w.c, tdict_cpu(), 0);
  for (int i = 0; i < count; i++) { /* each leaf in its own block */
    sources = make_sources(&sizes[i], 1);
    tree = pin(&w, sources);
    check_tree_copies(&w, tree, sources, tdict_tensor_data(target));
    td_release(tree, sources);
  }
}

/* Tests driver copies from reused blocks: parts of a freed block, and a block merged from freed neighbors. */
GPU_CASE(pinned_blocks_that_served_before_take_plain_copies) {
  static const int64_t wholes[] = {40 * MIB}, thirds[] = {12 * MIB, 12 * MIB, 16 * MIB};
  scoped_place w = open_with_pieces(0);
  scoped_tensor target = make_target(&w, wholes, 1);
  tdict_tree *sources = make_sources(wholes, 1), *tree = pin(&w, sources), *parts[3], *part_sources[3];
  tdict_release(tree);
  for (int i = 0; i < 3; i++) {
    part_sources[i] = make_sources(&thirds[i], 1);
    parts[i] = pin(&w, part_sources[i]);
  }
  for (int i = 0; i < 3; i++) {
    check_tree_copies(&w, parts[i], part_sources[i], tdict_tensor_data(target));
    td_release(parts[i], part_sources[i]);
  }
  tree = pin(&w, sources);
  tdict_memory_counts counts = td_memory_counts(w.pinned);
  assert_int_equal(counts.num_reused, 4); /* all in the pages of the first block */
  check_tree_copies(&w, tree, sources, tdict_tensor_data(target));
  td_release(tree, sources);
}

/* If memory is registered in pieces, the driver refuses a copy across the border of two pieces, so the library splits
 * its copies there. */
GPU_CASE(pinned_pieces_end_at_their_borders) {
  static const int64_t sizes[] = {1, 7 * MIB, 4095, 3 * MIB + 5};
  static const size_t wanted[] = {PIECE, PIECE - 1, PIECE - TDICT_PINNED_GRAIN + 1};
  for (int i = 0; i < 3; i++) { /* all are rounded up to PIECE */
    scoped_place w = open_with_pieces(wanted[i]);
    scoped_tensor target = make_target(&w, sizes, 4);
    tdict_tree *sources = make_sources(sizes, 4), *tree = pin(&w, sources), *there = NULL, *back;
    tdict_tensor *leaf = td_leaf(tree, "leaf0");
    char *device = tdict_tensor_data(target), *host = leaf->storage->data;
    const size_t bytes = leaf->storage->bytes, before = PIECE - (uintptr_t)host % PIECE;
    assert_int_equal(raw_copy_in(w.raw, device, host, bytes), INVALID_VALUE);
    assert_int_equal(raw_copy_out(w.raw, host, device, bytes), INVALID_VALUE);
    assert_int_equal(raw_copy_in(w.raw, device, host + before - 1, 2), INVALID_VALUE);
    for (size_t at = 0, part = before; at < bytes; at += part, part = PIECE)
      copy_whole(&w, device, host + at, bytes - at < part ? bytes - at : part);
    check_tree(&w, sources, tree);
    td_ok(tdict_to_device(w.c, tree, w.device, NULL, &there, err));
    check_tree(&w, sources, there);
    back = bring_back(&w, tree);
    check_and_release(&w, sources, back);
    td_release(there, tree, sources);
  }
}

/* Tests pieces of many sizes, including very large ones. If a piece is larger than every block, memory is not split. */
GPU_CASE(pinned_pieces_of_any_size) {
  static const int64_t sizes[] = {9 * MIB};
  static const size_t wanted[] = {1, 9 * MIB, 12 * MIB, (size_t)1 << 62, SIZE_MAX - 1, SIZE_MAX};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    scoped_place w = open_with_pieces(wanted[i]);
    scoped_tensor target = make_target(&w, sizes, 1);
    scoped_tree sources = make_sources(sizes, 1), tree = pin(&w, sources);
    tdict_tensor *leaf = td_leaf(tree, "leaf0");
    if (i == 0)
      assert_int_equal(raw_copy_in(w.raw, tdict_tensor_data(target), tdict_tensor_data(leaf), 9 * MIB), INVALID_VALUE);
    else
      check_tree_copies(&w, tree, sources, tdict_tensor_data(target));
  }
}
