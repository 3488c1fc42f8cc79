/* Tests streams of Arrow arrays in both directions. */
#include <errno.h>

#include "services/interop/arrow/rig.h"

/* A stream written by hand: batches of one int32 field with increasing numbers. */
typedef struct hand_stream {
  struct ArrowArrayStream stream;
  int num_batches, next;
  int fail_schema, fail_at; /* fail_schema: errno of get_schema; fail_at: batch at which get_next fails, or -1 */
  bool names_error, nulls_in_last, is_malformed, is_released_schema;
  hand roots[8], fields[8];
  hand schema_root, schema_field;
  int num_releases;
} hand_stream;
static int32_t counted_numbers[64];
static const uint8_t last_valid[] = {0xfd};

static int hand_get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out) {
  hand_stream *h = stream->private_data;
  if (h->fail_schema) return h->fail_schema;
  hand_one(&h->schema_root, &h->schema_field, h->is_malformed ? "?" : "i", 0, NULL);
  *out = h->schema_root.schema;
  if (h->is_released_schema) out->release = NULL;
  return 0;
}
static int hand_get_next(struct ArrowArrayStream *stream, struct ArrowArray *out) {
  hand_stream *h = stream->private_data;
  const int i = h->next++;
  if (i == h->fail_at) return EBADF;
  memset(out, 0, sizeof *out);
  if (i >= h->num_batches) return 0;
  hand_one(&h->roots[i], &h->fields[i], "i", i + 1, counted_numbers + i * (i + 1) / 2);
  if (h->nulls_in_last && i == h->num_batches - 1) {
    h->fields[i].buffers[0] = last_valid;
    h->fields[i].array.null_count = 1;
  }
  *out = h->roots[i].array;
  return 0;
}
static const char *hand_last_error(struct ArrowArrayStream *stream) {
  return ((hand_stream *)stream->private_data)->names_error ? "the tape is torn" : NULL;
}
static void hand_release_stream(struct ArrowArrayStream *stream) {
  ((hand_stream *)stream->private_data)->num_releases++;
  stream->release = NULL;
}
static void open_hand(hand_stream *h, int num_batches) {
  memset(h, 0, sizeof *h);
  for (int i = 0; i < 64; i++) counted_numbers[i] = i;
  h->stream = (struct ArrowArrayStream){hand_get_schema, hand_get_next, hand_last_error, hand_release_stream, h};
  h->num_batches = num_batches;
  h->fail_at = -1;
  num_array_releases = num_schema_releases = 0;
}

CASE(arrow_stream_next_returns_each_array) {
  hand_stream h;
  tdict_tree *tree = NULL;
  open_hand(&h, 3);
  for (int i = 0; i < 3; i++) {
    td_ok(tdict_arrow_stream_next(&h.stream, NULL, &tree, err));
    has_shape(td_leaf(tree, "x"), 1, (const int64_t[]){i + 1});
    assert_ptr_equal(tdict_const_data(tree, "x"), counted_numbers + i * (i + 1) / 2); /* not copied */
    assert_int_equal(num_schema_releases, 2 * (i + 1));
    tdict_release(tree);
    assert_int_equal(num_array_releases, 2 * (i + 1));
  }
  for (int i = 0; i < 2; i++) {
    tree = (tdict_tree *)&h;
    td_ok(tdict_arrow_stream_next(&h.stream, NULL, &tree, err));
    assert_null(tree);
  }
  assert_int_equal(h.num_releases, 0); /* the stream is only borrowed */
}

CASE(arrow_import_stream_joins_all_arrays) {
  for (int batches = 0; batches <= 6; batches++) {
    hand_stream h;
    const int64_t rows = batches * (batches + 1) / 2;
    open_hand(&h, batches);
    tdict_tree *tree = td_made(tree, tdict_arrow_import_stream(&h.stream, NULL, &made, err));
    assert_int_equal(tdict_batch_size(tree)[0], rows);
    assert_int_equal(tdict_tensor_dtype(td_leaf(tree, "x")), TDICT_I32);
    has_shape(td_leaf(tree, "x"), 1, &rows);
    if (batches == 1) assert_ptr_equal(tdict_const_data(tree, "x"), counted_numbers); /* not copied */
    for (int64_t i = 0; i < rows; i++) assert_int_equal(((const int32_t *)tdict_const_data(tree, "x"))[i], i);
    assert_int_equal(num_array_releases, batches == 1 ? 0 : 2 * batches);
    tdict_release(tree);
    assert_int_equal(num_array_releases, 2 * batches);
    assert_int_equal(num_schema_releases, 2);
  }
}

CASE(arrow_import_stream_makes_masks_of_all_rows) {
  for (int nulls = 0; nulls < 2; nulls++)
    for (int all = 0; all < 2; all++) {
      hand_stream h;
      scoped_tree tree = NULL;
      tdict_arrow_import_options o =
          td_with(tdict_arrow_import_options, nulls = TDICT_ARROW_NULLS_MASK, mask_all = all);
      open_hand(&h, 3);
      h.nulls_in_last = nulls;
      td_ok(tdict_arrow_import_stream(&h.stream, &o, &tree, err));
      assert_int_equal(tdict_has(tree, "_mask"), nulls || all);
      const uint8_t mask[] = {1, 1, 1, 1, !nulls, 1};
      if (nulls || all) assert_memory_equal(tdict_const_data(tree, "_mask.x"), mask, 6);
      assert_int_equal(((const int32_t *)tdict_const_data(tree, "x"))[4], nulls ? 0 : 4);
    }
}

CASE(arrow_stream_errors_are_reported) {
  hand_stream h;
  tdict_tree *tree = NULL;
  open_hand(&h, 3);
  td_fails(TDICT_EINVAL, "stream is NULL", tdict_arrow_stream_next(NULL, NULL, &tree, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_arrow_stream_next(&h.stream, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "stream is NULL", tdict_arrow_import_stream(NULL, NULL, &tree, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_arrow_import_stream(&h.stream, NULL, NULL, err));
  tdict_arrow_import_options o = td_with(tdict_arrow_import_options, nulls = -1);
  td_fails(TDICT_EINVAL, "nulls is -1", tdict_arrow_import_stream(&h.stream, &o, &tree, err));
  h.fail_schema = EPERM;
  td_fails(TDICT_EIO, "get_schema of the stream failed", tdict_arrow_stream_next(&h.stream, NULL, &tree, err));
  assert_int_equal(td_last_error.native, EPERM);
  h.fail_schema = 0;
  h.is_released_schema = true;
  td_fails(TDICT_EFORMAT, "schema is released", tdict_arrow_stream_next(&h.stream, NULL, &tree, err));
  h.is_released_schema = false;
  /* The third array fails: the first two are released. */
  h.fail_at = 2;
  h.names_error = true;
  num_array_releases = num_schema_releases = 0;
  td_fails(TDICT_EIO, "get_next of the stream failed: the tape is torn",
           tdict_arrow_import_stream(&h.stream, NULL, &tree, err));
  assert_int_equal(td_last_error.native, EBADF);
  assert_int_equal(num_array_releases, 4);
  assert_int_equal(num_schema_releases, 2);
  /* An array that cannot be imported is released, and the next call reads the next array. */
  open_hand(&h, 3);
  h.is_malformed = true;
  td_fails_at(TDICT_EFORMAT, "not an Arrow format", "x", tdict_arrow_stream_next(&h.stream, NULL, &tree, err));
  assert_int_equal(num_array_releases, 2);
  h.is_malformed = false;
  td_ok(tdict_arrow_stream_next(&h.stream, NULL, &tree, err));
  assert_int_equal(tdict_batch_size(tree)[0], 2);
  tdict_release(tree);
  h.stream.release(&h.stream);
  td_fails(TDICT_EINVAL, "the stream is released", tdict_arrow_stream_next(&h.stream, NULL, &tree, err));
  assert_int_equal(h.num_releases, 1);
}

CASE(arrow_export_stream_returns_each_tree) {
  tdict_tree *trees[3] = {sample_tree(4, 1), sample_tree(0, 1), sample_tree(7, 1)};
  struct ArrowArrayStream stream;
  /* With 0 rows, the type of the column "texts" cannot be inferred, so the schemas of the trees would differ. */
  for (int i = 0; i < 3; i++) td_ok(tdict_delete(trees[i], "texts", err));
  td_ok(tdict_arrow_export_stream((const tdict_tree *const *)trees, 3, &stream, err));
  struct ArrowSchema a, b;
  assert_int_equal(stream.get_schema(&stream, &a), 0);
  assert_int_equal(stream.get_schema(&stream, &b), 0);
  assert_string_equal(a.children[0]->children[0]->name, b.children[0]->children[0]->name);
  assert_ptr_not_equal(a.children[0], b.children[0]);
  a.release(&a);
  assert_string_equal(b.children[0]->name, "odd.");
  struct ArrowArray kept, end;
  assert_int_equal(stream.get_next(&stream, &kept), 0);
  assert_int_equal(kept.length, 4);
  assert_null(stream.get_last_error(&stream));
  struct ArrowArrayStream moved = stream;
  memset(&stream, 0, sizeof stream);
  tdict_tree *back = td_made(tree, tdict_arrow_stream_next(&moved, NULL, &made, err));
  equal_trees(trees[1], back);
  tdict_release(back);
  td_ok(tdict_arrow_stream_next(&moved, NULL, &back, err));
  equal_trees(trees[2], back);
  tdict_release(back);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(moved.get_next(&moved, &end), 0);
    assert_null(end.release);
  }
  moved.release(&moved);
  assert_null(moved.release);
  td_ok(tdict_arrow_import(&b, &kept, NULL, &back, err)); /* the array outlives the stream */
  equal_trees(trees[0], back);
  tdict_release(back);
  b.release(&b);
  /* A stream that is released before it is read releases its arrays. */
  td_ok(tdict_arrow_export_stream((const tdict_tree *const *)trees, 3, &stream, err));
  stream.release(&stream);
  for (int i = 0; i < 3; i++) tdict_release(trees[i]);
}

CASE(arrow_export_stream_refuses) {
  const int64_t two = 2;
  scoped_tree a = new_tree(2), b = new_tree(2);
  const tdict_tree *trees[] = {a, b}, *missing[] = {a, NULL};
  struct ArrowArrayStream stream = {0};
  td_put(a, "n.x", random_tensor(TDICT_I32, 1, &two, 1));
  td_put(a, "y", random_tensor(TDICT_I32, 1, &two, 1));
  td_fails(TDICT_EINVAL, "no trees", tdict_arrow_export_stream(NULL, 2, &stream, err));
  td_fails(TDICT_EINVAL, "no trees", tdict_arrow_export_stream(trees, 0, &stream, err));
  td_fails(TDICT_EINVAL, "stream is NULL", tdict_arrow_export_stream(trees, 2, NULL, err));
  td_fails(TDICT_EINVAL, "tree 1 is NULL", tdict_arrow_export_stream(missing, 2, &stream, err));
  td_fails_at(TDICT_EDTYPE, "tree 1 has the type '+s' of 0 fields, tree 0 has '+s' of 2", "",
              tdict_arrow_export_stream(trees, 2, &stream, err));
  td_put(b, "n.x", random_tensor(TDICT_I64, 1, &two, 1));
  td_put(b, "y", random_tensor(TDICT_I32, 1, &two, 1));
  td_fails_at(TDICT_EDTYPE, "tree 1 has the type 'l' of 0 fields, tree 0 has 'i'", "n.x",
              tdict_arrow_export_stream(trees, 2, &stream, err));
  td_ok(tdict_delete(b, "n", err));
  td_put(b, "n.x", random_tensor(TDICT_I32, 1, &two, 1));
  td_fails(TDICT_EDTYPE, "key 0 of tree 1 is 'y', of tree 0 'n'", tdict_arrow_export_stream(trees, 2, &stream, err));
  td_put(b, "y", random_tensor(TDICT_BF16, 1, &two, 1));
  td_fails_at(TDICT_ENOTSUP, "bfloat16", "y", tdict_arrow_export_stream(trees, 2, &stream, err));
  assert_null(stream.release);
}

CASE(arrow_streams_survive_enomem) {
  tdict_tree *trees[2] = {sample_tree(3, 2), sample_tree(5, 2)};
  const tdict_tree *const *list = (const tdict_tree *const *)trees;
  tdict_tree *wanted = td_made(tree, tdict_cat(list, 2, NULL, NULL, &made, err));
  bool done = false;
  int export_failures = 0, import_failures = 0;
  TD_SWEEP(s) {
    struct ArrowArrayStream stream = {0};
    const tdict_status status = td_sweep_call(s, tdict_arrow_export_stream(list, 2, &stream, err));
    assert_int_equal(stream.release != NULL, status == TDICT_OK);
    export_failures += status != TDICT_OK;
    if (status == TDICT_OK) stream.release(&stream);
  }
  for (int64_t n = 0; !done; n++) {
    struct ArrowArrayStream stream;
    tdict_tree *back = NULL;
    tdict_error error = {0};
    tdict_arrow_import_options o = td_with(tdict_arrow_import_options, nulls = TDICT_ARROW_NULLS_MASK);
    td_ok(tdict_arrow_export_stream(list, 2, &stream, err));
    td_fail_alloc(n, false);
    const tdict_status status = tdict_arrow_import_stream(&stream, &o, &back, &error);
    done = !td_fail_alloc_stop();
    if (status == TDICT_OK) {
      equal_trees(wanted, back);
      tdict_release(back);
    } else {
      /* The status is TDICT_EIO if the stream had no memory for its schema. */
      assert_true(status == TDICT_ENOMEM || (status == TDICT_EIO && error.native == ENOMEM));
      assert_null(back);
      import_failures++;
    }
    stream.release(&stream);
  }
  assert_true(export_failures > 40 && import_failures > 100);
  tdict_release(wanted);
  for (int i = 0; i < 2; i++) tdict_release(trees[i]);
}
