/* Tests transfers into sinks: storages that pass their bytes to a callback (tdict_storage_create_sink()). */
#include "support/unloaded.h"
#include "trees.h"

/* The bytes that a sink has received, and counts of its calls. */
typedef struct bin {
  pthread_mutex_t lock; /* guards: times, num_writes, num_inside, most_inside */
  size_t bytes;
  unsigned char *data, *times; /* the bytes, and how often each byte was written */
  int num_writes, num_inside, most_inside, fail_at;
  size_t most_bytes;
  bool is_silent, is_released;
} bin;

static tdict_status bin_write(void *user, size_t offset, const void *src, size_t bytes, tdict_error *err) {
  bin *b = user;
  pthread_mutex_lock(&b->lock);
  const int number = ++b->num_writes;
  if (bytes > b->most_bytes) b->most_bytes = bytes;
  if (++b->num_inside > b->most_inside) b->most_inside = b->num_inside;
  for (size_t i = 0; i < bytes; i++) b->times[offset + i]++;
  pthread_mutex_unlock(&b->lock);
  memcpy(b->data + offset, src, bytes);
  pthread_mutex_lock(&b->lock);
  b->num_inside--;
  pthread_mutex_unlock(&b->lock);
  if (number != b->fail_at) return TDICT_OK;
  return b->is_silent ? TDICT_EFORMAT : tdict_fail_native(err, TDICT_EIO, 28, "the bin is full");
}
static void bin_release(void *user) { ((bin *)user)->is_released = true; }
static void bin_clear(bin *b) {
  memset(b->data, 0xee, b->bytes);
  memset(b->times, 0, b->bytes);
  b->num_writes = b->fail_at = 0;
  b->most_bytes = 0;
}

/* Copies the elements of a host tensor in C order, one by one. */
static void copy_elements(const tdict_tensor *t, unsigned char *to) {
  const size_t width = tdict_dtype_bytes(t->dtype);
  const unsigned char *from = tdict_tensor_const_data(t);
  for (int64_t i = 0; i < t->numel; i++) {
    int64_t left = i, offset = 0;
    for (int d = t->ndim - 1; d >= 0; d--) {
      offset += left % t->dims[d] * tdict_tensor_dims_strides(t)[d];
      left /= t->dims[d];
    }
    memcpy(to + (size_t)i * width, from + offset * (int64_t)width, width);
  }
}

/* A tree of sinks with the keys of a host tree. The sinks write to ranges of one bin, with gaps between the ranges. */
typedef struct twin {
  bin b;
  tdict_tree *tree;
  unsigned char *want, *times; /* the `data` and `times` that the bin must have after a transfer */
} twin;
static twin *twin_create(const tdict_tree *tree) {
  twin *t = calloc(1, sizeof *t);
  scoped_storage s = NULL;
  scoped_leaf_list l = list_entries(tree);
  pthread_mutex_init(&t->b.lock, NULL);
  for (size_t i = 0; i < l.count; i++)
    if (l.tensors[i]) t->b.bytes += tdict_tensor_bytes(l.tensors[i]) + 13;
  t->b.data = malloc(t->b.bytes + 1);
  t->b.times = malloc(t->b.bytes + 1);
  t->want = malloc(t->b.bytes + 1);
  t->times = calloc(1, t->b.bytes + 1);
  bin_clear(&t->b);
  memcpy(t->want, t->b.data, t->b.bytes);
  td_ok(tdict_storage_create_sink(&(tdict_storage_writer){bin_write, bin_release, &t->b}, t->b.bytes, &s, err));
  td_ok(tdict_clone(tree, &t->tree, err));
  td_ok(tdict_set_device(t->tree, NULL, err));
  size_t at = 5;
  for (size_t i = 0; i < l.count; i++) {
    if (!l.tensors[i]) continue;
    const tdict_tensor_desc layout = {
        .dtype = l.tensors[i]->dtype, .ndim = l.tensors[i]->ndim, .shape = l.tensors[i]->dims};
    td_put(t->tree, l.paths[i], td_made(tensor, tdict_tensor_unloaded(s, &layout, at, &made, err)));
    copy_elements(l.tensors[i], t->want + at);
    memset(t->times + at, 1, tdict_tensor_bytes(l.tensors[i]));
    at += tdict_tensor_bytes(l.tensors[i]) + 13;
  }
  return t;
}
static void twin_release(twin *t) {
  tdict_release(t->tree);
  assert_true(t->b.is_released);
  pthread_mutex_destroy(&t->b.lock);
  free(t->b.data);
  free(t->b.times);
  free(t->want);
  free(t->times);
  free(t);
}

/* Checks that the bin has the elements of the leaves, each byte written once. Then clears the bin. */
static void check_bin(twin *t) {
  assert_memory_equal(t->b.times, t->times, t->b.bytes);
  assert_memory_equal(t->b.data, t->want, t->b.bytes);
  bin_clear(&t->b);
}
/* Checks that sinks cannot be read, even after a transfer into them. */
static void check_unreadable(const place *w, const tdict_tree *sinks) {
  scoped_leaf_list l = list_entries(sinks);
  tdict_tree *out = NULL;
  for (size_t i = 0; i < l.count; i++) {
    if (!l.tensors[i]) continue;
    assert_null(tdict_tensor_const_data(l.tensors[i]));
    assert_null(tdict_tensor_data((tdict_tensor *)(uintptr_t)l.tensors[i]));
  }
  td_fails(TDICT_EINVAL, "lost", tdict_to_device(w->c, sinks, w->gpu ? w->device : tdict_cpu(), NULL, &out, err));
  td_fails(TDICT_EINVAL, "", tdict_clone_deep(sinks, NULL, &out, err));
}

static const tree_kind kinds[] = {TREE_BATCH, TREE_TINY, TREE_LARGE, TREE_STRIDED, TREE_ODD, TREE_SHARED};
enum { NUM_KINDS = sizeof kinds / sizeof *kinds };

static void send_all(const place *w) {
  for (int k = 0; k < NUM_KINDS; k++) {
    scoped_tree tree = make_tree(w, kinds[k]);
    twin *t = twin_create(tree);
    for (int i = 0; i < NUM_WAYS; i += 3) {
      const way v = way_at(i);
      scoped_tree there = move_tree(w, tree, w->device, &v);
      copy_tree(w, there, t->tree, &v);
      check_bin(t);
      copy_tree(w, tree, t->tree, &v);
      check_bin(t);
    }
    check_unreadable(w, t->tree);
    twin_release(t);
  }
}
DEVICE_CASE(sinks_receive_trees) {
  scoped_place w = open_place();
  send_all(&w);
}
/* With large slots, a slot holds several leaves. */
DEVICE_CASE(sinks_receive_trees_through_large_slots) {
  scoped_place w = place_sized(16 << 20, -1);
  send_all(&w);
}

/* Moves strided device tensors and unloaded leaves into sinks. */
DEVICE_CASE(sinks_receive_strided_and_unloaded_leaves) {
  scoped_place w = open_place();
  scoped_tree tree = td_tree("x:i32[70,300]"), there = NULL, turned = new_tree();
  td_ok(tdict_clone_deep(tree, TD_IN(w.gpu ? w.memory : NULL), &there, err));
  td_put(turned, "x", permuted(tdict_tensor_retain(td_leaf(tree, "x")), (const int[]){1, 0}));
  twin *t = twin_create(turned);
  scoped_tree source = new_tree();
  td_put(source, "x", permuted(tdict_tensor_retain(td_leaf(there, "x")), (const int[]){1, 0}));
  td_ok(tdict_transfer_into(w.c, t->tree, source, NULL, err));
  check_bin(t);
  disk d = disk_open();
  tdict_tree *file = disk_twin(&d, turned, 100, 1);
  td_ok(tdict_transfer_into(w.c, t->tree, file, NULL, err));
  check_bin(t);
  tdict_release(file);
  disk_reset(&d);
  twin_release(t);
}

/* A large leaf that is not in C order is written in large pieces by several threads. */
CASE(sink_gets_large_pieces) {
  scoped_place w = place_around(td_context(NULL));
  scoped_tree tree = new_tree();
  td_put(tree, "x", permuted(random_tensor(TDICT_U8, SHAPE(3000, 4000), NULL), (const int[]){1, 0}));
  twin *t = twin_create(tree);
  tdict_transfer_options o = threads(4);
  td_ok(tdict_transfer_into(w.c, t->tree, tree, &o, err));
  assert_true(t->b.num_writes >= 12 && t->b.num_writes <= 100);
  assert_true(t->b.most_bytes <= 1 << 20);
  check_bin(t);
  twin_release(t);
}

static tdict_tree *three_leaves(void) {
  tdict_tree *td = td_tree("a:f32[30011]");
  td_put(td, "n.columns", permuted(random_tensor(TDICT_U8, SHAPE(90, 900), NULL), (const int[]){1, 0}));
  td_put(td, "z", random_tensor(TDICT_F64, SHAPE(20000), NULL));
  return td;
}

/* Makes each write fail in turn. The error must have the write's status, errno and message, and the leaf's path. */
DEVICE_CASE(sink_write_that_fails) {
  scoped_place w = open_place();
  scoped_tree tree = three_leaves();
  twin *t = twin_create(tree);
  for (int i = 0; i < NUM_WAYS; i += 1 + 2 * WAYS_STEP) {
    const way v = way_at(i);
    scoped_tree there = move_tree(&w, tree, w.device, &v);
    bin_clear(&t->b);
    copy_tree(&w, there, t->tree, &v);
    const int writes = t->b.num_writes;
    assert_true(writes >= 3);
    for (int n = 1; n <= writes; n++) {
      bin_clear(&t->b);
      t->b.fail_at = n;
      t->b.is_silent = n % 4 == 3;
      td_fails(t->b.is_silent ? TDICT_EFORMAT : TDICT_EIO, t->b.is_silent ? "without a message" : "the bin is full",
               tdict_transfer_into(w.c, t->tree, there, &v.o, err));
      assert_int_equal(td_last_error.native, t->b.is_silent ? 0 : 28);
      assert_true(tdict_has(tree, td_last_error.path));
      assert_true(td_last_error.path[0] != 0);
      assert_int_equal(t->b.num_inside, 0);
    }
    bin_clear(&t->b);
    copy_tree(&w, there, t->tree, &v);
    check_bin(t);
  }
  twin_release(t);
}

/* Makes each allocation fail in turn. */
DEVICE_CASE(sinks_without_memory) {
  scoped_place w = open_place();
  scoped_tree tree = three_leaves(), there = to_device(&w, tree, w.device);
  twin *t = twin_create(tree);
  tdict_transfer_options o = threads(0);
  tdict_storage *made = NULL;
  td_fail_alloc(0, false);
  td_fails(TDICT_ENOMEM, "memory",
           tdict_storage_create_sink(&(tdict_storage_writer){bin_write, NULL, NULL}, 3, &made, err));
  assert_true(td_fail_alloc_stop());
  td_fails(TDICT_EOVERFLOW, "63 bits",
           tdict_storage_create_sink(&(tdict_storage_writer){bin_write, NULL, NULL}, SIZE_MAX, &made, err));
  assert_null(made);
  td_ok(tdict_transfer_into(w.c, t->tree, there, &o, err));
  TD_SWEEP(s) {
    bin_clear(&t->b);
    if (td_sweep_call(s, tdict_transfer_into(w.c, t->tree, there, &o, err)) == TDICT_OK) check_bin(t);
  }
  twin_release(t);
}
