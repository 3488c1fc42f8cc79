/* Tests indices with options: copies in a given memory, refused options, and failing allocations. */
#include "core/ops/rig.h"
#include "core/tensor/naive.h"
#include "support/things.h"

enum { ROUNDS = 300, MOST = 6 };

/* A random index into the sample tree, and the map that selects the same elements of the model. */
typedef struct choice {
  tdict_indices index;
  m_map map;
  int64_t positions[MOST];
} choice;

static void choose(naive_random *r, const m_tree *t, choice *c) {
  bool has_list = false;
  c->index = tdict_indices_none();
  c->map = m_map_whole(t->nb, t->bs);
  c->map.copies = true;
  for (int d = 0; d < t->nb; d++) {
    const int64_t n = t->bs[d], start = naive_below(r, n), kind = naive_below(r, has_list ? 3 : 4);
    if (kind == 0) {
      rig_cut(&c->map, d, start, 0, -1);
      tdict_indices_add(&c->index, TDICT_AT(naive_below(r, 2) ? start : start - n));
    } else if (kind == 1) {
      const int64_t step = 1 + naive_below(r, 3);
      rig_cut(&c->map, d, start, step, (n - start + step - 1) / step);
      tdict_indices_add(&c->index, TDICT_RANGE(start, TDICT_NONE, step));
    } else if (kind == 2) {
      rig_cut(&c->map, d, start, -1, start + 1);
      tdict_indices_add(&c->index, TDICT_RANGE(start, TDICT_NONE, -1));
    } else {
      const int64_t count = naive_below(r, MOST + 1);
      for (int64_t i = 0; i < count; i++) c->positions[i] = naive_below(r, n);
      c->map.list[d] = c->positions;
      c->map.shape[c->map.out[d]] = count;
      tdict_indices_add(&c->index, TDICT_LIST(c->positions, count));
      has_list = true;
    }
  }
}

static tdict_tree *get_with(const tdict_tree *td, const tdict_indices *index, tdict_memory *memory) {
  return td_made(tree, tdict_index_get(NULL, td, index, td_options(tdict_run, memory = memory), &made, err));
}

/* Checks that all tensors are contiguous, pinned and in one storage. */
static void check_places(const tdict_tree *td) {
  static const char *const paths[] = {"a", "n.b", "n.m.u"};
  for (int i = 0; i < 3; i++) {
    const tdict_tensor *t = td_leaf(td, paths[i]);
    assert_true(tdict_tensor_is_pinned(t));
    assert_true(tdict_tensor_is_contiguous(t));
    assert_true(tdict_tensor_shares_storage(t, td_leaf(td, "a")));
  }
}

SIM_CASE(index_with_copies_to_a_memory) {
  scoped_context context = td_context(NULL);
  tdict_memory *memory = tdict_pinned_memory(context);
  const rig host = {NULL, NULL};
  naive_random r = {81};
  for (int i = 0; i < ROUNDS; i++) {
    m_tree *t = SAMPLE(1 + naive_below(&r, 5), 1 + naive_below(&r, 5));
    tdict_tree *td = ops_tree(t);
    choice c;
    rig_check(&host, t, td);
    choose(&r, t, &c);
    if (i % 4 == 0) tdict_lock(td);
    tdict_tree *out = get_with(td, &c.index, memory);
    assert_false(tdict_is_locked(out));
    rig_check(&host, rig_mapped(t, &c.map), out);
    check_places(out);
    rig_shares(out, td, false);
    tdict_release(td);
    if (i % 10 == 0) m_check(rig_mapped(t, &c.map), out); /* the copies are valid after their source is released */
    tdict_release(out);
    m_reset();
  }
}

/* Without the option `memory`, the results are views, or copies in plain memory, as usual. */
SIM_CASE(index_with_defaults_is_index_get) {
  const int64_t rows[] = {2, 0};
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = ops_tree(t), out = NULL;
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(1, 3, 1)), NULL, &out, err));
  rig_shares(out, td, true);
  td_release(out);
  out = get_with(td, TDICT_INDEX(TDICT_RANGE(1, 3, 1)), NULL);
  rig_shares(out, td, true);
  td_release(out);
  out = get_with(td, TDICT_INDEX(TDICT_LIST(rows, 2)), NULL);
  rig_shares(out, td, false);
  assert_false(tdict_tensor_is_pinned(td_leaf(out, "n.b")));
}

/* A memory that counts its allocated and its live blocks. */
typedef struct counter {
  int allocated, live;
} counter;
static void *count_allocate(void *user, size_t bytes) {
  counter *c = user;
  void *data = aligned_alloc(256, (bytes + 255) / 256 * 256);
  if (data) c->allocated++, c->live++;
  return data;
}
static void count_release(void *user, void *data, size_t bytes) {
  (void)bytes;
  ((counter *)user)->live--;
  free(data);
}

static tdict_memory *counting_memory(tdict_context *context, counter *c) {
  const tdict_allocator allocator = {.struct_size = sizeof allocator,
                                     .device = tdict_cpu(),
                                     .allocate = count_allocate,
                                     .release = count_release,
                                     .user = c};
  return td_made(memory, tdict_memory_create(context, &allocator, &made, err));
}

SIM_CASE(index_with_allocates_one_block) {
  static const int64_t rows[] = {2, 0, 2};
  const tdict_indices *const picks[] = {TDICT_INDEX(TDICT_LIST(rows, 3)), TDICT_INDEX(TDICT_RANGE(0, 2, 1)),
                                        TDICT_INDEX(TDICT_AT(1), TDICT_LIST(rows, 3))};
  counter c = {0, 0};
  scoped_context context = td_context(NULL);
  scoped_memory memory = counting_memory(context, &c);
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = ops_tree(t);
  for (int i = 0; i < 3; i++) {
    c.allocated = 0;
    tdict_tree *out = get_with(td, picks[i], memory);
    assert_int_equal(c.allocated, 1);
    tdict_release(out);
    assert_int_equal(c.live, 0);
  }
}

GPU_CASE(index_with_reads_devices) {
  static const int64_t rows[] = {2, 0};
  scoped_rig r = rig_open();
  const rig host = {NULL, NULL};
  tdict_memory *pinned = tdict_pinned_memory(r.context);
  tdict_run o = tdict_run_default();
  tdict_device device;
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = rig_tree(&r, t), out = NULL;
  rig_check(&r, t, td);
  m_map map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 0, 2, -1, 3);
  map.copies = true;
  out = get_with(td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -1)), pinned);
  m_ignore_places = true;
  rig_check(&host, rig_mapped(t, &map), out);
  m_ignore_places = false;
  check_places(out);
  td_release(out);
  out = get_with(td, TDICT_INDEX(TDICT_LIST(rows, 2)), pinned);
  map = m_map_whole(t->nb, t->bs);
  rig_cut(&map, 0, 2, -2, 2);
  map.copies = true;
  m_ignore_places = true;
  rig_check(&host, rig_mapped(t, &map), out);
  m_ignore_places = false;
  check_places(out);
  td_release(out);
  device = td_device();
  td_ok(tdict_set_device(td, &device, err));
  out = get_with(td, TDICT_INDEX(TDICT_AT(1)), pinned);
  assert_true(tdict_get_device(out, &device) && device.type == TDICT_DEVICE_CPU);
  td_release(out);
  o.memory = r.memory;
  td_fails(TDICT_EWRONGDEVICE, "wanted host memory",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(0)), &o, &out, err));
  assert_null(out);
}

SIM_CASE(index_with_refuses) {
  static const int64_t rows[] = {2, 0}, outside[] = {3};
  const tdict_indices *index = TDICT_INDEX(TDICT_LIST(rows, 2));
  scoped_context context = td_context(NULL);
  m_tree *t = SAMPLE(3, 4);
  scoped_tree td = ops_tree(t), part = get_with(td, index, NULL), out = NULL;
  char *before = help_snapshot(td), *part_before = help_snapshot(part);
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_index_get(NULL, NULL, index, NULL, &out, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_index_get(NULL, td, index, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "position 3", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(outside, 1)), NULL, &out, err));
  td_fails(TDICT_EINVAL, "dst is NULL", tdict_index_into(NULL, NULL, td, index, NULL, err));
  td_fails(TDICT_EINVAL, "src is NULL", tdict_index_into(NULL, part, NULL, index, NULL, err));
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_index_set(NULL, NULL, index, part, NULL, err));
  td_fails(TDICT_EINVAL, "value is NULL", tdict_index_set(NULL, td, index, NULL, NULL, err));
  tdict_run o = td_with(tdict_run, num_threads = -2);
  td_fails(TDICT_EINVAL, "num_threads is -2", tdict_index_get(NULL, td, index, &o, &out, err));
  td_fails(TDICT_EINVAL, "num_threads is -2", tdict_index_into(NULL, part, td, index, &o, err));
  td_fails(TDICT_EINVAL, "num_threads is -2", tdict_index_set(NULL, td, index, part, &o, err));
  o.num_threads = -1;
  o.memory = tdict_device_memory(context, td_device());
  td_fails(TDICT_EWRONGDEVICE, "wanted host memory", tdict_index_get(NULL, td, index, &o, &out, err));
  td_fails(TDICT_EWRONGDEVICE, "wanted host memory",
           tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(0)), &o, &out, err));
  o.memory = tdict_pinned_memory(context);
  td_fails(TDICT_EINVAL, "memory is set", tdict_index_into(NULL, part, td, index, &o, err));
  td_fails(TDICT_EINVAL, "memory is set", tdict_index_set(NULL, td, index, part, &o, err));
  o.struct_size = 0;
  td_fails(TDICT_EINVAL, "run", tdict_index_get(NULL, td, index, &o, &out, err));
  assert_null(out);
  help_unchanged(td, before);
  help_unchanged(part, part_before);
}

SIM_CASE(index_with_survives_enomem) {
  static const int64_t rows[] = {2, 0};
  tdict_context *context = td_context(NULL);
  counter c = {0, 0};
  tdict_tree *td = ops_tree(SAMPLE(3, 4)), *out = NULL;
  tdict_run o = td_with(tdict_run, memory = counting_memory(context, &c));
  RIG_WITHOUT_MEMORY(td, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(rows, 2)), &o, &out, err));
  tdict_release(out);
  RIG_WITHOUT_MEMORY(td, tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), &o, &out, err));
  tdict_release(out);
  assert_int_equal(c.live, 0);
  td_release(o.memory, td, context);
}

static int index_calls;
static tdict_status count_index(const void *self, int64_t i, void **out, tdict_error *err) {
  (void)self, (void)i, (void)out, (void)err;
  index_calls++;
  return TDICT_EHOOK;
}

/* The hook `index` cannot allocate from a given memory, so the tensors of the object are indexed instead. */
SIM_CASE(index_with_uses_tensors_of_objects) {
  tdict_type type = thing_flat;
  scoped_context context = td_context(NULL);
  tdict_tree *td = TREE(3), *out = NULL;
  void *self = NULL;
  type.index = count_index;
  tdict_tensor *a = TENSOR(3, 2), *b = TENSOR(3);
  td_ok(tdict_set_object(td, "object", &type, thing_create(a, b), err));
  td_put(td, "x", TENSOR(3, 5));
  td_fails(TDICT_EHOOK, "", tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(1)), NULL, &out, err));
  assert_int_equal(index_calls, 1);
  for (int whole = 0; whole < 2; whole++) {
    const int64_t at = whole ? 0 : 1;
    out = get_with(td, whole ? TDICT_INDEX(TDICT_ALL) : TDICT_INDEX(TDICT_AT(1)), tdict_pinned_memory(context));
    td_ok(tdict_get_object(out, "object", &type, &self, err));
    const thing *made = self;
    assert_true(tdict_tensor_is_pinned(made->a) && tdict_tensor_is_pinned(made->b));
    assert_true(tdict_tensor_shares_storage(made->a, td_leaf(out, "x")));
    assert_int_equal(tdict_tensor_bytes(made->a), whole ? 24 : 8);
    assert_memory_equal(tdict_tensor_const_data(made->a), (const float *)tdict_tensor_const_data(a) + 2 * at,
                        tdict_tensor_bytes(made->a));
    assert_memory_equal(tdict_tensor_const_data(made->b), (const float *)tdict_tensor_const_data(b) + at,
                        tdict_tensor_bytes(made->b));
    tdict_release(out);
  }
  assert_int_equal(index_calls, 1);
  tdict_release(td);
  assert_int_equal(thing_count(), 0);
}

/* Objects of built-in types are indexed alike with and without the option `memory`. */
SIM_CASE(index_with_indexes_built_in_objects) {
  static const int64_t rows[] = {2, 0, 2};
  const char *const texts[] = {"a", "bc", "def"};
  const tdict_indices *const picks[] = {TDICT_INDEX(TDICT_LIST(rows, 3)), TDICT_INDEX(TDICT_RANGE(1, 3, 1)),
                                        TDICT_INDEX(TDICT_AT(1)), TDICT_INDEX(TDICT_ALL)};
  scoped_context context = td_context(NULL);
  scoped_tree td = TREE(3);
  td_put(td, "x", naive_tensor(TDICT_I32, COUNTS(3, 5), 4));
  td_ok(tdict_set_texts(td, "texts", texts, 3, err));
  td_ok(tdict_set_text(td, "text", "one", err));
  tdict_tensor *items[] = {naive_tensor(TDICT_I32, COUNTS(2, 2), 1), naive_tensor(TDICT_I32, COUNTS(0, 2), 2),
                           naive_tensor(TDICT_I32, COUNTS(4, 2), 3)};
  scoped_ragged ragged = td_made(ragged, tdict_ragged_from_rows(items, 3, NULL, &made, err));
  td_ok(tdict_set_ragged(td, "ragged", ragged, err));
  for (int i = 0; i < 4; i++) {
    scoped_tree out = get_with(td, picks[i], tdict_pinned_memory(context)), wanted = NULL;
    td_ok(tdict_index_get(NULL, td, picks[i], NULL, &wanted, err));
    assert_true(tdict_equal(out, wanted));
    assert_true(tdict_tensor_is_pinned(td_leaf(out, "x")));
  }
  for (int i = 0; i < 3; i++) tdict_tensor_release(items[i]);
}
