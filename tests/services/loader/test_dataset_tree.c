/* Tests datasets of a tree: contiguous, strided and nested rows, and errors. */
#include "numbers.h"
#include "support/things.h"
#include "support/unloaded.h"

static tdict_tree *many(int64_t count, bool turned) {
  static const tdict_field fields[] = {{"obs.pixels", TDICT_U8, 2, {6, 5}},
                                       {"reward", TDICT_F64, 0, {0}},
                                       {"empty", TDICT_F32, 1, {0}},
                                       {"a\\.b", TDICT_I16, 1, {3}}};
  tdict_tree *td = td_made(tree, tdict_create_from(fields, 4, 1, &count, NULL, &made, err));
  td_fill_random(tdict_data(td, "obs.pixels"), (size_t)count * 30, 1);
  td_fill_random(tdict_data(td, "reward"), (size_t)count * 8, 2);
  td_fill_random(tdict_data(td, "a\\.b"), (size_t)count * 6, 3);
  if (!turned) return td;
  int64_t shape[] = {5, 6, count}, order_count = count;
  int order[] = {2, 1, 0};
  (void)order_count;
  scoped_tensor t = td_made(tensor, tdict_tensor_empty(TDICT_U8, 3, shape, NULL, &made, err)), view = NULL;
  td_fill_random(tdict_tensor_data(t), (size_t)count * 30, 4);
  td_ok(tdict_tensor_permute(t, 3, order, &view, err));
  td_ok(tdict_set(td, "obs.pixels", view, err));
  return td;
}

/* Returns byte (i, j, k) of "obs.pixels". */
static unsigned char pixel(const tdict_tree *td, int64_t i, int64_t j, int64_t k) {
  tdict_tensor *t = td_made(tensor, tdict_get(td, "obs.pixels", &made, err));
  const int64_t *s = tdict_tensor_strides(t);
  return ((const unsigned char *)tdict_tensor_const_data(t))[i * s[0] + j * s[1] + k * s[2]];
}

DEVICE_CASE(dataset_tree_rows) {
  scoped_yard y = open_yard();
  for (int turned = 0; turned < 2; turned++) {
    for (int stacked = 0; stacked < 2; stacked++) {
      enum { COUNT = 37, BATCH = 5 };
      scoped_tree td = many(COUNT, turned);
      scoped_dataset d = td_made(dataset, tdict_dataset_from_tree(td, &made, err));
      tdict_dataset_table by_tree = *tdict_dataset_get_table(d);
      by_tree.fields = NULL; /* without fields, each sample is fetched as a tree */
      by_tree.num_fields = 0;
      by_tree.release = NULL;
      tdict_loader_options o =
          td_with(tdict_loader_options, batch_size = BATCH, shuffle = true, seed = 3, num_workers = 3);
      scoped_loader l = stacked ? open_loader(&y, &by_tree, &o) : open_loader_on(&y, tdict_dataset_retain(d), &o);
      tdict_sampler_options so = td_with(tdict_sampler_options, kind = TDICT_SAMPLER_SHUFFLED, seed = 3);
      scoped_sampler sampler = td_made(sampler, tdict_sampler_create(COUNT, &so, &made, err));
      const double *reward = tdict_const_data(td, "reward");
      const int16_t *ab = tdict_const_data(td, "a\\.b");
      for (int64_t at = 0; at < COUNT; at += BATCH) {
        scoped_tree batch = NULL;
        unsigned char pixels[BATCH * 30];
        double rewards[BATCH];
        int16_t abs[BATCH * 3];
        td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
        int64_t rows = COUNT - at < BATCH ? COUNT - at : BATCH;
        assert_int_equal(read_leaf(&y, batch, "obs.pixels", pixels, sizeof pixels), (size_t)rows * 30);
        assert_int_equal(read_leaf(&y, batch, "reward", rewards, sizeof rewards), (size_t)rows * 8);
        assert_int_equal(read_leaf(&y, batch, "a\\.b", abs, sizeof abs), (size_t)rows * 6);
        assert_true(tdict_has(batch, "empty"));
        for (int64_t r = 0; r < rows; r++) {
          int64_t i = tdict_sampler_get(sampler, 0, at + r);
          for (int64_t j = 0; j < 6; j++)
            for (int64_t k = 0; k < 5; k++) assert_int_equal(pixels[r * 30 + j * 5 + k], pixel(td, i, j, k));
          assert_memory_equal(&rewards[r], &reward[i], 8);
          assert_memory_equal(&abs[3 * r], &ab[3 * i], 6);
        }
      }
    }
  }
}

GPU_CASE(dataset_tree_refuses) {
  scoped_yard y = open_yard();
  tdict_dataset *d = NULL;
  scoped_tree td = NULL, dev = NULL;
  td_fails(TDICT_EINVAL, "the tree is NULL", tdict_dataset_from_tree(NULL, &d, err));
  td_ok(tdict_create(0, NULL, &td, err));
  td_fails(TDICT_EINVAL, "no batch dimension", tdict_dataset_from_tree(td, &d, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_dataset_from_tree(td, NULL, err));
  tdict_release(td);
  td = many(4, false);
  td_ok(tdict_to_device(y.c, td, y.device, NULL, &dev, err));
  td_fails_at(TDICT_EWRONGDEVICE, "wanted host memory", "obs.pixels", tdict_dataset_from_tree(dev, &d, err));
  scoped_tensor a = NULL;
  int64_t shape[8] = {4, 1, 1, 1, 1, 1, 1, 1};
  td_ok(tdict_tensor_empty(TDICT_U8, 8, shape, NULL, &a, err));
  td_ok(tdict_set(td, "deep", a, err));
  td_fails_at(TDICT_ENOTSUP, "7 dimensions", "deep", tdict_dataset_from_tree(td, &d, err));
  td_ok(tdict_delete(td, "deep", err));
  thing *object = thing_create(tdict_tensor_retain(a), tdict_tensor_retain(a));
  td_ok(tdict_set_object(td, "what", &thing_hooked, object, err));
  td_fails_at(TDICT_ENOTSUP, "an object of type", "what", tdict_dataset_from_tree(td, &d, err));
}

CASE(dataset_tree_refuses_changed_children) {
  const int64_t bs[2] = {3, 2};
  tdict_tree *td = NULL, *n = NULL;
  scoped_tensor a = NULL, y = NULL;
  tdict_dataset *d = NULL;
  td_ok(tdict_create(2, bs, &td, err));
  td_ok(tdict_tensor_zeros(TDICT_F32, 2, bs, NULL, &a, err));
  td_ok(tdict_tensor_zeros(TDICT_F32, 0, NULL, NULL, &y, err));
  td_ok(tdict_set(td, "n.a", a, err));
  td_ok(tdict_get_tree(td, "n", &n, err));
  td_ok(tdict_set_batch_size(n, 0, NULL, err));
  td_ok(tdict_set(n, "y", y, err));
  td_fails_at(TDICT_ESHAPE, "batch size is [3, 2], tensor has shape []", "n.y", tdict_dataset_from_tree(td, &d, err));
  tdict_release(td);
}

/* The dataset still reads the old tensor if the program replaces it in the tree with one that has shorter rows. */
CASE(dataset_tree_keeps_its_keys) {
  const int64_t length[] = {4}, indices[] = {3, 0};
  scoped_tree td = NULL, batch = NULL;
  scoped_tensor x = NULL, shorter = NULL;
  td_ok(tdict_create(1, length, &td, err));
  td_ok(tdict_tensor_zeros(TDICT_I64, 1, length, NULL, &x, err));
  td_ok(tdict_tensor_zeros(TDICT_U8, 1, length, NULL, &shorter, err));
  td_ok(tdict_set(td, "n.x", x, err));
  scoped_dataset d = td_made(dataset, tdict_dataset_from_tree(td, &made, err));
  td_ok(tdict_set(td, "n.x", shorter, err));
  ((int64_t *)tdict_tensor_data(x))[3] = 33; /* the dataset shares the elements */
  const tdict_dataset_table *t = tdict_dataset_get_table(d);
  td_ok(tdict_create_from(t->fields, t->num_fields, 1, (const int64_t[]){2}, NULL, &batch, err));
  td_ok(t->fetch_batch(t->self, NULL, indices, 2, batch, err));
  const int64_t *rows = tdict_const_data(batch, "n.x");
  assert_int_equal(rows[0], 33);
  assert_int_equal(rows[1], 0);
}

enum { TEXTS = 11, ROW_TEXT = 24 };

/* Makes rows with "id", one text per row at "n.text", one text for all rows at "all", and the unbatched tensor "u". */
static tdict_tree *texts(void) {
  static const int64_t count = TEXTS, u_shape = 3;
  static const int16_t u_values[] = {7, 8, 9};
  char rows[TEXTS][ROW_TEXT];
  const char *list[TEXTS];
  tdict_tree *td = NULL;
  scoped_tensor id = NULL, u = NULL;
  for (int i = 0; i < TEXTS; i++) {
    snprintf(rows[i], sizeof rows[i], "row %d", i);
    list[i] = rows[i];
  }
  td_ok(tdict_create(1, &count, &td, err));
  td_ok(tdict_tensor_arange(TDICT_I64, 0, 1, count, &id, err));
  td_ok(tdict_tensor_from_array(TDICT_I16, 1, &u_shape, u_values, &u, err));
  td_ok(tdict_set(td, "id", id, err));
  td_ok(tdict_set_texts(td, "n.text", list, TEXTS, err));
  td_ok(tdict_set_text(td, "all", "every row", err));
  td_ok(tdict_set_unbatched(td, "u", u, err));
  return td;
}

/* Batches have the texts of their rows as columns. */
DEVICE_CASE(dataset_tree_takes_text) {
  scoped_yard y = open_yard();
  scoped_tree td = texts(), batch = NULL;
  tdict_dataset *d = td_made(dataset, tdict_dataset_from_tree(td, &made, err));
  const tdict_dataset_table *t = tdict_dataset_get_table(d);
  assert_true(!t->fields && !t->fetch && !t->fetch_batch);
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = 4, shuffle = true, num_workers = 2);
  scoped_loader l = open_loader_on(&y, d, &o);
  int64_t seen = 0, ids[4];
  for (;;) {
    td_ok(tdict_loader_next(l, tdict_no_stream(), &batch, err));
    if (!batch) break;
    const int64_t count = (int64_t)(read_leaf(&y, batch, "id", ids, sizeof ids) / sizeof *ids);
    for (int64_t i = 0; i < count; i++) {
      const char *text = NULL;
      const char *wanted = td_text("row %d", (int)ids[i]);
      td_ok(tdict_get_text(batch, "n.text", i, &text, NULL, err));
      assert_string_equal(text, wanted);
      td_ok(tdict_get_text(batch, "all", i, &text, NULL, err));
      assert_string_equal(text, "every row");
      seen += INT64_C(1) << ids[i];
    }
    tdict_tensor *u = NULL;
    int16_t three[3];
    td_ok(tdict_get_unbatched(batch, "u", &u, err));
    tdict_tensor_desc desc = tdict_tensor_desc_default();
    tdict_tensor_get_desc(u, &desc);
    raw_read(y.raw, three, desc.data, sizeof three);
    assert_true(three[0] == 7 && three[1] == 8 && three[2] == 9);
    td_release(batch);
  }
  assert_int_equal(seen, (1 << TEXTS) - 1);
}

CASE(dataset_tree_packs_ragged_rows) {
  scoped_yard y = open_yard();
  static const int64_t count = 5, lengths[] = {3, 0, 2, 4, 1}, total = 10;
  scoped_tensor values = NULL, offsets = NULL;
  scoped_ragged leaf = NULL;
  scoped_tree td = NULL;
  tdict_dataset *d = NULL;
  td_ok(tdict_tensor_arange(TDICT_I32, 100, 1, total, &values, err));
  td_ok(
      tdict_tensor_from_array(TDICT_I64, 1, (const int64_t[]){6}, (const int64_t[]){0, 3, 3, 5, 9, 10}, &offsets, err));
  td_ok(tdict_ragged_create(values, offsets, &leaf, err));
  td_ok(tdict_create(1, &count, &td, err));
  td_ok(tdict_set_ragged(td, "tokens", leaf, err));
  td_ok(tdict_dataset_from_tree(td, &d, err));
  tdict_pack_options pack = tdict_pack_options_default();
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = 2, num_workers = 0, pack = &pack);
  scoped_loader l = open_loader_on(&y, d, &o);
  for (int64_t i = 0, at = 0; i < count; i += 2) {
    const int64_t sum = lengths[i] + (i + 1 < count ? lengths[i + 1] : 0);
    scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    assert_int_equal(tdict_tensor_shape(td_leaf(batch, "tokens"))[0], sum);
    assert_int_equal(((const int32_t *)tdict_const_data(batch, "cu_seqlens"))[1], lengths[i]);
    assert_memory_equal(tdict_const_data(batch, "tokens"), (const int32_t *)tdict_tensor_const_data(values) + at,
                        (size_t)sum * sizeof(int32_t));
    at += sum;
  }
  /* a child that was changed through its handle has a leaf with a different number of rows */
  scoped_tree child = td_made(tree, tdict_create(1, &count, &made, err));
  td_ok(tdict_set_tree(td, "n", child, err));
  td_ok(tdict_set_batch_size(child, 0, NULL, err));
  scoped_tensor fewer = NULL;
  scoped_ragged other = NULL;
  td_ok(tdict_tensor_from_array(TDICT_I64, 1, (const int64_t[]){2}, (const int64_t[]){0, 10}, &fewer, err));
  td_ok(tdict_ragged_create(values, fewer, &other, err));
  td_ok(tdict_set_ragged(child, "x", other, err));
  td_fails_at(TDICT_ESHAPE, "the object has [1]", "n.x", tdict_dataset_from_tree(td, &d, err));
}

/* A fetch of rows that are still in a file fails, and the error names the leaf. */
CASE(dataset_of_unloaded_tree) {
  scoped_tree td = many(8, false), batch = NULL;
  disk files = disk_open();
  tdict_tree *twin = disk_twin(&files, td, 100, 1);
  tdict_dataset *d = NULL;
  const int64_t indices[] = {5, 0};
  td_ok(tdict_dataset_from_tree(twin, &d, err));
  const tdict_dataset_table *t = tdict_dataset_get_table(d);
  td_ok(tdict_create_from(t->fields, t->num_fields, 1, (const int64_t[]){2}, NULL, &batch, err));
  td_fails_at(TDICT_EINVAL, "the elements are in a file; load the tree first", "obs.pixels",
              t->fetch_batch(t->self, NULL, indices, 2, batch, err));
  td_release(d, batch, twin);
  disk_reset(&files);
}
