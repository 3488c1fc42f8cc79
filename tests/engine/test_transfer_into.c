/* Tests tdict_transfer_into() in every direction and layout: only elements are written. Refused calls write nothing. */
#include "trees.h"

enum { PLAIN, TURNED, BACKWARDS, NUM_LAYOUTS };

/* Makes a tensor like `t` in `memory` with this layout. Its whole storage is filled with 0xA5. */
static tdict_tensor *like_tensor(const place *w, const tdict_tensor *t, tdict_memory *memory, int layout) {
  int ndim = tdict_tensor_ndim(t);
  int64_t shape[8];
  int order[8];
  tdict_tensor *made = NULL;
  for (int i = 0; i < ndim; i++) {
    order[i] = ndim - 1 - i;
    shape[i] = tdict_tensor_shape(t)[layout == TURNED ? ndim - 1 - i : i];
  }
  if (layout == BACKWARDS && ndim) shape[ndim - 1] = 2 * shape[ndim - 1] + 1;
  td_ok(tdict_tensor_empty(tdict_tensor_dtype(t), ndim, shape, memory, &made, err));
  fill_storage(w, made, POISON);
  if (layout == TURNED && ndim) made = permuted(made, order);
  if (layout == BACKWARDS && ndim) {
    int64_t n = shape[ndim - 1] / 2;
    made = sliced(made, (tdict_tensor_range){ndim - 1, n ? 2 * n - 1 : 0, n, -2});
  }
  return made;
}

/* Chooses the layout of leaf `i`. Large tensors get no layout that needs one driver copy per row. */
static int layout_at(const tdict_tensor *t, size_t i) {
  int layout = (int)(i % NUM_LAYOUTS);
  if (layout == BACKWARDS && tdict_tensor_numel(t) > 2000) layout = TURNED;
  return layout == TURNED && tdict_tensor_ndim(t) > 2 && tdict_tensor_numel(t) > 20000 ? PLAIN : layout;
}

/* Makes a tree like `src` in `memory`. Its leaves are plain or, with `strided`, have all layouts in turn. */
static tdict_tree *like_tree(const place *w, const tdict_tree *src, tdict_memory *memory, bool strided) {
  tdict_tree *dst = new_tree();
  scoped_leaf_list l = list_entries(src);
  for (size_t i = 0; i < l.count; i++) {
    if (l.tensors[i])
      td_put(dst, l.paths[i], like_tensor(w, l.tensors[i], memory, strided ? layout_at(l.tensors[i], i) : PLAIN));
    else
      td_put_tree(dst, l.paths[i], new_tree());
  }
  return dst;
}

/* Returns the expected storage of `got`: the elements of `want`, and 0xA5 in all other bytes. The caller frees it. */
static unsigned char *expect_leaf(const place *w, const tdict_tensor *want, const tdict_tensor *got) {
  check_same_shape(want, got);
  naive_layout layout = naive_layout_of(got), c = layout;
  size_t item = tdict_dtype_bytes(tdict_tensor_dtype(got)), bytes = got->storage->bytes;
  unsigned char *expected = malloc(bytes + 1), *elements = read_elements(w, want);
  assert_non_null(expected);
  memset(expected, POISON, bytes);
  for (int64_t i = c.ndim - 1, step = 1; i >= 0; step *= c.shape[i--]) c.strides[i] = step;
  if (layout.numel)
    naive_copy(&layout, expected + ((char *)got->data - (char *)got->storage->data), &c, elements, item);
  free(elements);
  return expected;
}
static void check_leaf(const place *w, const unsigned char *expected, const tdict_tensor *got, const char *path) {
  scoped_bytes found = read_storage(w, got);
  size_t at = 0, bytes = got->storage->bytes;
  if (memcmp(expected, found, bytes) != 0) {
    while (expected[at] == found[at]) at++;
    fail_msg("byte %zu of the %zu of '%s' is 0x%02x, wanted 0x%02x", at, bytes, path, found[at], expected[at]);
  }
}
static void check_leaf_once(const place *w, const tdict_tensor *want, const tdict_tensor *got, const char *path) {
  scoped_bytes expected = expect_leaf(w, want, got);
  check_leaf(w, expected, got, path);
}
static void check_written(const place *w, const tdict_tree *want, const tdict_tree *got) {
  leaf_list a = list_entries(want), b = list_entries(got);
  assert_int_equal(a.count, b.count);
  for (size_t i = 0; i < a.count; i++) {
    assert_string_equal(a.paths[i], b.paths[i]);
    if (a.tensors[i]) check_leaf_once(w, a.tensors[i], b.tensors[i], a.paths[i]);
  }
  free_list(&a);
  free_list(&b);
}

/* Copies `src` into plain and strided destinations in `memory` with various options. */
static void copy_everywhere(const place *w, const tdict_tree *src, tdict_memory *memory) {
  for (int strided = 0; strided < 2; strided++) {
    scoped_tree dst = like_tree(w, src, memory, strided);
    leaf_list a = list_entries(src), b = list_entries(dst);
    unsigned char *expected[512] = {NULL};
    assert_int_equal(a.count, b.count);
    assert_in_range(a.count, 0, 512);
    for (size_t k = 0; k < a.count; k++)
      if (a.tensors[k]) expected[k] = expect_leaf(w, a.tensors[k], b.tensors[k]);
    for (int i = strided; i < NUM_WAYS; i += (1 + 2 * strided) * WAYS_STEP) {
      const way v = way_at(i);
      copy_tree(w, src, dst, &v);
      for (size_t k = 0; k < a.count; k++)
        if (a.tensors[k]) check_leaf(w, expected[k], b.tensors[k], a.paths[k]);
      spoil_tree(w, dst);
    }
    for (size_t k = 0; k < a.count; k++) free(expected[k]);
    free_list(&a);
    free_list(&b);
  }
}

/* Returns a copy of `src` on the device with strided leaves. */
static tdict_tree *strided_there(const place *w, const tdict_tree *src) {
  tdict_tree *dst = like_tree(w, src, w->memory, true);
  const way v = {.o = tdict_transfer_options_default()};
  copy_tree(w, src, dst, &v);
  return dst;
}

DEVICE_CASE(transfer_into_from_host) {
  scoped_place w = open_place();
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    if (!w.gpu && (kind == TREE_PINNED || kind == TREE_MIXED)) continue;
    scoped_tree src = make_tree(&w, (tree_kind)kind);
    copy_everywhere(&w, src, w.memory);
  }
}
GPU_CASE(transfer_into_host_and_pinned) {
  scoped_place w = open_place();
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    scoped_tree src = make_tree(&w, (tree_kind)kind), there = strided_there(&w, src);
    copy_everywhere(&w, there, NULL);
    copy_everywhere(&w, there, w.pinned);
  }
}
GPU_CASE(transfer_into_within_device) {
  scoped_place w = open_place();
  for (int kind = 0; kind < NUM_TREE_KINDS; kind++) {
    scoped_tree src = make_tree(&w, (tree_kind)kind), there = strided_there(&w, src),
                plain = to_device(&w, src, w.device);
    copy_everywhere(&w, there, w.memory);
    copy_everywhere(&w, plain, w.memory);
  }
}

DEVICE_CASE(transfer_into_keeps_addresses) {
  scoped_place w = open_place();
  scoped_tree src = batch_tree(NULL), other = batch_tree(NULL), dst = like_tree(&w, src, w.memory, false);
  scoped_leaf_list before = list_entries(dst);
  void *addresses[16];
  for (size_t i = 0; i < before.count; i++) addresses[i] = before.tensors[i] ? before.tensors[i]->data : NULL;
  tdict_lock(dst); /* a lock allows changes of elements, but not of keys */
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  check_tree(&w, src, dst);
  td_ok(tdict_transfer_into(w.c, dst, other, NULL, err));
  check_tree(&w, other, dst);
  assert_true(tdict_is_locked(dst));
  scoped_leaf_list after = list_entries(dst);
  assert_int_equal(before.count, after.count);
  for (size_t i = 0; i < before.count; i++) {
    assert_ptr_equal(before.tensors[i], after.tensors[i]);
    if (after.tensors[i]) assert_ptr_equal(after.tensors[i]->data, addresses[i]);
  }
}

DEVICE_CASE(transfer_into_async) {
  scoped_place w = open_place();
  scoped_tree src = batch_tree(NULL), dst = like_tree(&w, src, w.memory, true);
  tdict_future *f = copy_async(&w, src, dst, NULL);
  tdict_tree *out = td_made(tree, tdict_future_wait(f, &made, err));
  assert_ptr_equal(out, dst);
  check_written(&w, src, dst);
  td_release(f, out);
  /* releases the destination while it is written */
  tdict_tree *late = like_tree(&w, src, w.memory, false);
  td_ok(tdict_transfer_into_async(w.c, late, src, NULL, &f, err));
  tdict_release(late);
  check_result(&w, src, f);
}

/* The order of keys may differ between the trees. */
DEVICE_CASE(transfer_into_matches_keys) {
  scoped_place w = open_place();
  scoped_tree src = td_tree("a:i32[70] b.c:u8[9] b.d:f64[33]"), dst = td_tree("gone:u8[1]");
  static const char *const paths[] = {"b.d", "a", "b.c"};
  for (int i = 0; i < 3; i++) td_put(dst, paths[i], like_tensor(&w, td_leaf(src, paths[i]), w.memory, PLAIN));
  td_ok(tdict_delete(dst, "gone", err));
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  for (int i = 0; i < 3; i++) check_leaf_once(&w, td_leaf(src, paths[i]), td_leaf(dst, paths[i]), paths[i]);
}

typedef struct refusal {
  tdict_status status;
  const char *path;
} refusal;

/* Checks that the call is refused and does not change any leaf of dst. */
static void check_refused(const place *w, const tdict_tree *src, tdict_tree *dst, refusal wanted) {
  spoil_tree(w, dst);
  tdict_future *f = NULL;
  td_fails_at(wanted.status, "", wanted.path, tdict_transfer_into(w->c, dst, src, NULL, err));
  td_fails_at(wanted.status, "", wanted.path, tdict_transfer_into_async(w->c, dst, src, NULL, &f, err));
  assert_null(f);
  scoped_leaf_list l = list_entries(dst);
  for (size_t i = 0; i < l.count; i++) {
    if (!l.tensors[i]) continue;
    scoped_bytes bytes = read_storage(w, l.tensors[i]);
    for (size_t k = 0; k < l.tensors[i]->storage->bytes; k++) assert_int_equal(bytes[k], POISON);
  }
}

static tdict_tensor *read_only(void) {
  static unsigned char bytes[400];
  const int64_t count = 100;
  tdict_tensor_desc v = desc_of(bytes, TDICT_F32, &count);
  v.flags = TDICT_DESC_READ_ONLY;
  tdict_tensor *t = td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err));
  return t;
}

DEVICE_CASE(transfer_into_checks_first) {
  scoped_place w = open_place();
  scoped_tree src = td_tree("first:f32[64] a.x:f32[100] a.b.y:f32[4,25]");
  const int64_t wrong[] = {100}, longer[] = {101}, one_more[] = {4, 25, 1};
  struct {
    refusal wanted;
    const char *path;     /* the path at which dst differs */
    tdict_tensor *tensor; /* owned; NULL: a tree is put at the path, or the key is deleted */
    bool deletes;
  } cases[] = {
      {{TDICT_ESHAPE, "a.b.y"}, "a.b.y", random_tensor(TDICT_F32, 1, wrong, NULL), false},
      {{TDICT_ESHAPE, "a.x"}, "a.x", random_tensor(TDICT_F32, 1, longer, NULL), false},
      {{TDICT_ESHAPE, "a.b.y"}, "a.b.y", random_tensor(TDICT_F32, 3, one_more, NULL), false},
      {{TDICT_EDTYPE, "a.x"}, "a.x", random_tensor(TDICT_I32, 1, wrong, NULL), false},
      {{TDICT_EREADONLY, "a.x"}, "a.x", read_only(), false},
      {{TDICT_ETYPE, "a.b"}, "a.b", random_tensor(TDICT_F32, 1, wrong, NULL), false},
      {{TDICT_ETYPE, "a.x"}, "a.x", NULL, false},
      {{TDICT_ENOTFOUND, "a.b.y"}, "a.b.y", NULL, true},
      {{TDICT_ENOTFOUND, "a.b"}, "a.b", NULL, true},
      {{TDICT_ENOTFOUND, "more"}, "more", random_tensor(TDICT_F32, 1, wrong, NULL), false},
      {{TDICT_ENOTFOUND, "a.b.more\\.too"}, "a.b.more\\.too", random_tensor(TDICT_F32, 1, wrong, NULL), false},
      {{TDICT_ENOTFOUND, "a.none"}, "a.none", NULL, false},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    scoped_tree dst = like_tree(&w, src, w.memory, false);
    if (cases[i].deletes)
      td_ok(tdict_delete(dst, cases[i].path, err));
    else if (cases[i].tensor)
      td_put(dst, cases[i].path, cases[i].tensor);
    else
      td_put_tree(dst, cases[i].path, new_tree());
    check_refused(&w, src, dst, cases[i].wanted);
  }
  scoped_tree empty = new_tree();
  td_fails(TDICT_EINVAL, "dst is NULL", tdict_transfer_into(w.c, NULL, src, NULL, err));
  td_fails(TDICT_EINVAL, "src is NULL", tdict_transfer_into(w.c, empty, NULL, NULL, err));
  td_fails(TDICT_ENOTFOUND, "", tdict_transfer_into(w.c, empty, src, NULL, err));
  td_ok(tdict_transfer_into(w.c, empty, empty, NULL, err));
}

/* Copies leaves that are parts of larger tensors. The bytes between the leaves must not be written. */
DEVICE_CASE(transfer_into_leaves_gaps_alone) {
  scoped_place w = open_place();
  tdict_memory *memories[] = {w.memory, NULL, w.pinned};
  for (int from = 0; from < 3; from++)
    for (int to = 0; to < 3; to++) {
      tdict_tree *src = new_tree(), *dst = new_tree(), *wholes[2];
      static const tdict_field field = {"whole", TDICT_U8, 1, {1024}};
      for (int side = 0; side < 2; side++) {
        td_ok(tdict_create_from(&field, 1, 0, NULL, memories[side ? to : from], &wholes[side], err));
        tdict_tensor *whole = td_leaf(wholes[side], "whole");
        unsigned char bytes[1024];
        td_fill_random(bytes, sizeof bytes, next_seed());
        if (side) memset(bytes, POISON, sizeof bytes);
        raw_write(raw_of(&w, whole), whole->data, bytes, sizeof bytes);
        for (int i = 0; i < 4; i++) {
          const char *const keys[] = {"a", "b", "c", "d"};
          td_put(side ? dst : src, keys[i],
                 sliced(tdict_tensor_retain(whole), (tdict_tensor_range){0, 256 * i, 100 + 20 * i, 1}));
        }
      }
      for (int i = 0; i < NUM_WAYS; i += 3) {
        const way v = way_at(i);
        copy_tree(&w, src, dst, &v);
        unsigned char *a = read_elements(&w, td_leaf(wholes[0], "whole")),
                      *b = read_elements(&w, td_leaf(wholes[1], "whole"));
        for (int k = 0; k < 1024; k++) assert_int_equal(b[k], k % 256 < 100 + 20 * (k / 256) ? a[k] : POISON);
        free(a);
        free(b);
        spoil_tree(&w, dst);
      }
      td_release(src, dst, wholes[0], wholes[1]);
    }
}

/* Copies from one storage into destinations with separate storages, which happen to have adjacent addresses. */
GPU_CASE(transfer_into_neighbouring_allocations) {
  scoped_place w = open_place();
  tdict_memory *memories[] = {w.memory, w.pinned};
  static const tdict_field fields[] = {
      {"a", TDICT_U8, 1, {4096}}, {"b", TDICT_U8, 1, {4096}}, {"c", TDICT_U8, 1, {4096}}};
  for (int from = 0; from < 2; from++)
    for (int to = 0; to < 2; to++) {
      scoped_tree src = NULL, dst = new_tree();
      td_ok(tdict_create_from(fields, 3, 0, NULL, memories[from], &src, err));
      unsigned char bytes[3 * 4096];
      td_fill_random(bytes, sizeof bytes, next_seed());
      raw_write(raw_of(&w, td_leaf(src, "a")), td_leaf(src, "a")->data, bytes, sizeof bytes);
      tdict_tensor *many[64]; /* the case uses three of these that are adjacent */
      for (int i = 0; i < 64; i++) many[i] = like_tensor(&w, td_leaf(src, "a"), memories[to], PLAIN);
      int found = 0;
      for (int i = 0; i < 64 && !found; i++)
        for (int k = 0; k < 64 && !found; k++)
          for (int m = 0; m < 64 && !found; m++)
            if ((char *)many[k]->data == (char *)many[i]->data + 4096 &&
                (char *)many[m]->data == (char *)many[k]->data + 4096) {
              td_ok(tdict_set(dst, "a", many[i], err));
              td_ok(tdict_set(dst, "b", many[k], err));
              td_ok(tdict_set(dst, "c", many[m], err));
              found = 1;
            }
      if (!found) print_message("no adjacent tensors from %d to %d\n", from, to);
      for (int i = 0; found && i < NUM_WAYS; i += 3) {
        const way v = way_at(i);
        copy_tree(&w, src, dst, &v);
        check_written(&w, src, dst);
        spoil_tree(&w, dst);
      }
      for (int i = 0; i < 64; i++) tdict_tensor_release(many[i]);
    }
}

/* Source and destination may overlap. Their common bytes are then unspecified, so this case checks only the status. */
DEVICE_CASE(transfer_into_overlapping_bytes_does_not_crash) {
  scoped_place w = open_place();
  scoped_tree src = new_tree(), dst = new_tree();
  scoped_tensor t = random_tensor(TDICT_U8, SHAPE(5000), NULL);
  td_put(src, "x", sliced(tdict_tensor_retain(t), (tdict_tensor_range){0, 0, 4000, 1}));
  td_put(dst, "x", sliced(tdict_tensor_retain(t), (tdict_tensor_range){0, 1000, 4000, 1}));
  for (int i = 0; i < NUM_WAYS; i++) {
    const way v = way_at(i);
    copy_tree(&w, src, dst, &v);
    copy_tree(&w, src, src, &v); /* a copy onto itself changes nothing */
  }
}
