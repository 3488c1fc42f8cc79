/* Tests destinations that share bytes. If different sources would be written to the same bytes, tdict_transfer_into()
 * fails before it writes. Other overlaps are allowed. */
#include "engine/trees.h"

#define REFUSED(w, src, dst, path_, other)                                                      \
  do {                                                                                          \
    tdict_future *none = NULL;                                                                  \
    td_fails(TDICT_EINVAL, "sources differ", tdict_transfer_into((w)->c, dst, src, NULL, err)); \
    assert_string_equal(td_last_error.path, path_);                                             \
    assert_non_null(strstr(td_last_error.message, "'" other "'"));                              \
    td_fails(TDICT_EINVAL, "", tdict_transfer_into_async((w)->c, dst, src, NULL, &none, err));  \
    assert_null(none);                                                                          \
  } while (0)

static tdict_tensor *bytes(int64_t count, tdict_memory *memory) {
  const int64_t shape[] = {count};
  return td_made(tensor, tdict_tensor_zeros(TDICT_U8, 1, shape, memory, &made, err));
}
static tdict_tensor *rows_of(const tdict_tensor *t, int dim, int64_t first, int64_t count) {
  return sliced(tdict_tensor_retain(t), (tdict_tensor_range){dim, first, count, 1});
}
static tdict_tensor *matrix(tdict_memory *memory) {
  const int64_t shape[] = {12, 10};
  return td_made(tensor, tdict_tensor_zeros(TDICT_F32, 2, shape, memory, &made, err));
}
static bool is_zero(const place *w, const tdict_tensor *t) {
  scoped_bytes all = read_elements(w, t);
  bool zero = true;
  for (size_t i = 0; i < tdict_tensor_bytes(t); i++) zero = zero && all[i] == 0;
  return zero;
}

DEVICE_CASE(transfer_into_refuses_a_tensor_at_two_paths) {
  scoped_place w = open_place();
  scoped_tree src = new_tree(), dst = new_tree(), other = new_tree();
  scoped_tensor t = bytes(900, w.memory), from = random_tensor(TDICT_U8, SHAPE(900), NULL);
  td_put(src, "a", random_tensor(TDICT_U8, SHAPE(900), NULL));
  td_put(src, "n.b", random_tensor(TDICT_U8, SHAPE(5), NULL));
  td_put(src, "n.z", random_tensor(TDICT_U8, SHAPE(900), NULL));
  td_ok(tdict_set(dst, "a", t, err));
  td_put(dst, "n.b", bytes(5, w.memory));
  td_ok(tdict_set(dst, "n.z", t, err));
  REFUSED(&w, src, dst, "n.z", "a");
  assert_true(is_zero(&w, t) && is_zero(&w, td_leaf(dst, "n.b")));
  td_ok(tdict_set(other, "n.z", from, err)); /* the same source for both destinations is allowed */
  td_ok(tdict_set(other, "n.b", td_leaf(src, "n.b"), err));
  td_ok(tdict_set(other, "a", from, err));
  td_ok(tdict_transfer_into(w.c, dst, other, NULL, err));
  check_tensor(&w, from, t, "a");
}

/* A destination has the same child at two paths, so the destination has its tensor twice. */
DEVICE_CASE(transfer_into_refuses_a_tree_at_two_paths) {
  scoped_place w = open_place();
  tdict_tree *src = new_tree(), *dst = new_tree(), *child = new_tree(), *same = new_tree();
  td_put(child, "m.x", bytes(100, w.memory));
  td_put(src, "left.m.x", random_tensor(TDICT_U8, SHAPE(100), NULL));
  td_put(src, "right.m.x", random_tensor(TDICT_U8, SHAPE(100), NULL));
  td_ok(tdict_set_tree(dst, "left", child, err));
  td_put_tree(dst, "right", child);
  REFUSED(&w, src, dst, "right.m.x", "left.m.x");
  td_ok(tdict_set(same, "left.m.x", td_leaf(src, "left.m.x"), err));
  td_ok(tdict_set(same, "right.m.x", td_leaf(src, "left.m.x"), err));
  td_ok(tdict_transfer_into(w.c, dst, same, NULL, err));
  td_release(same, src, dst);
}

DEVICE_CASE(transfer_into_refuses_overlapping_leaves) {
  scoped_place w = open_place();
  static const struct {
    int dim;
    int64_t at[2], count[2];
    bool overlap;
  } parts[] = {{0, {0, 5}, {6, 7}, true},  {0, {5, 0}, {7, 6}, true},  {0, {0, 6}, {6, 6}, false},
               {0, {6, 0}, {6, 6}, false}, {1, {0, 4}, {5, 6}, true},  {1, {4, 0}, {6, 5}, true},
               {1, {0, 5}, {5, 5}, false}, {1, {5, 0}, {5, 5}, false}, {1, {0, 9}, {9, 1}, false}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    scoped_tensor whole = matrix(w.memory), from = matrix(NULL);
    scoped_tree src = new_tree(), dst = new_tree(), same = new_tree();
    td_fill_random(tdict_tensor_data(from), tdict_tensor_bytes(from), next_seed());
    for (int k = 0; k < 2; k++) {
      const char *key = k ? "b" : "a";
      tdict_tensor *view = rows_of(whole, parts[i].dim, parts[i].at[k], parts[i].count[k]);
      td_put(same, key, rows_of(from, parts[i].dim, parts[i].at[k], parts[i].count[k]));
      td_put(src, key, td_made(tensor, tdict_tensor_clone(td_leaf(same, key), NULL, &made, err)));
      td_put(dst, key, view);
    }
    if (parts[i].overlap)
      REFUSED(&w, src, dst, "b", "a");
    else
      td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
    assert_int_equal(is_zero(&w, whole), parts[i].overlap);
    td_ok(tdict_transfer_into(w.c, dst, same, NULL, err)); /* the sources overlap as the destinations do */
    for (int k = 0; k < 2; k++)
      check_tensor(&w, td_leaf(same, k ? "b" : "a"), td_leaf(dst, k ? "b" : "a"), k ? "b" : "a");
  }
}

/* Two tensors wrap overlapping memory of the program. */
CASE(transfer_into_refuses_memory_wrapped_twice) {
  scoped_place w = open_place();
  unsigned char memory[200] = {0};
  const int64_t count = 100;
  for (int at = 0; at <= 100; at += 50) {
    scoped_tree src = new_tree(), dst = new_tree();
    for (int k = 0; k < 2; k++) {
      tdict_tensor_desc v = desc_of(memory + k * at, TDICT_U8, &count);
      td_put(dst, k ? "b" : "a", td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err)));
      td_put(src, k ? "b" : "a", random_tensor(TDICT_U8, SHAPE(100), NULL));
    }
    if (at < 100)
      REFUSED(&w, src, dst, "b", "a");
    else
      td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  }
}

/* Two tensors wrap interleaved columns of the program's memory. They share no bytes, so the call succeeds. */
CASE(transfer_into_takes_columns_of_two_storages) {
  scoped_place w = open_place();
  unsigned char memory[200];
  const int64_t count = 100, stride = 2;
  scoped_tree src = new_tree(), dst = new_tree();
  for (int k = 0; k < 2; k++) {
    tdict_tensor_desc v = desc_of(memory + k, TDICT_U8, &count);
    v.strides = &stride;
    td_put(dst, k ? "b" : "a", td_made(tensor, tdict_tensor_from_data(&v, NULL, NULL, &made, err)));
    td_put(src, k ? "b" : "a", random_tensor(TDICT_U8, SHAPE(100), NULL));
  }
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  for (int i = 0; i < 200; i++)
    assert_int_equal(memory[i], ((const unsigned char *)tdict_const_data(src, i % 2 ? "b" : "a"))[i / 2]);
}

/* Finds two overlapping leaves among many, whatever the order of addresses. The leaves of `dst` are in one storage. */
CASE(transfer_into_finds_two_among_many) {
  enum { MANY = 2000 };
  scoped_place w = open_place();
  char path[16];
  for (int round = 0; round < 20; round++) {
    tdict_tensor *t = NULL, *all = bytes(MANY * 10, NULL);
    scoped_tree src = new_tree(), dst = new_tree();
    int order[MANY];
    for (int i = 0; i < MANY; i++) order[i] = i;
    for (int i = MANY - 1; i > 0 && round % 2; i--) {
      uint64_t x = 0;
      td_fill_random(&x, sizeof x, next_seed());
      const int k = (int)(x % (uint64_t)(i + 1)), was = order[i];
      order[i] = order[k];
      order[k] = was;
    }
    for (int i = 0; i < MANY; i++) {
      snprintf(path, sizeof path, "k%d", i);
      td_put(dst, path, rows_of(all, 0, 10 * order[i], 10));
      td_put(src, path, bytes(10, NULL));
    }
    td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
    const int first = 97 * round, second = MANY - 1 - 3 * round;
    snprintf(path, sizeof path, "k%d", second);
    t = rows_of(all, 0, 10 * order[first] + (order[first] ? -9 : 9),
                10); /* overlaps one byte of one leaf and nine bytes of the next */
    td_put(dst, path, t);
    td_fails(TDICT_EINVAL, "shares bytes with", tdict_transfer_into(w.c, dst, src, NULL, err));
    tdict_tensor_release(all);
  }
}

/* The small leaves lie inside "long", and their sources inside its source. Then "k39" gets a conflicting source. "wide"
 * has a gap: it begins before the other leaves and ends after them. */
CASE(transfer_into_finds_leaves_far_apart) {
  enum { SMALL = 40 };
  scoped_place w = open_place();
  scoped_tensor all = bytes(4000, NULL), from = random_tensor(TDICT_U8, SHAPE(500), NULL);
  scoped_tree src = new_tree(), dst = new_tree();
  char path[16];
  td_put(dst, "wide", restrided(tdict_tensor_retain(all), 0, SHAPE(2, 1), (const int64_t[]){3999, 1}));
  td_put(src, "wide", random_tensor(TDICT_U8, SHAPE(2, 1), NULL));
  td_put(dst, "long", rows_of(all, 0, 900, 500));
  td_ok(tdict_set(src, "long", from, err));
  for (int i = 0; i < SMALL; i++) { /* 2 bytes every 10 bytes; their sources lie inside the source of "long" */
    snprintf(path, sizeof path, "k%d", i);
    td_put(dst, path, rows_of(all, 0, 1000 + 10 * i, 2));
    td_put(src, path, rows_of(from, 0, 100 + 10 * i, 2));
  }
  td_ok(tdict_transfer_into(w.c, dst, src, NULL, err));
  td_put(src, "k39", random_tensor(TDICT_U8, SHAPE(2), NULL));
  REFUSED(&w, src, dst, "k39", "long");
}
