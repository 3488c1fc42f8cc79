/* Tests the import of arrays that break Arrow's rules, or that a tree cannot hold. The import must fail and leave them
 * to the caller. */
#include "services/interop/arrow/rig.h"

/* A valid array: a struct "n" with a list "l" of int32, a text "t" and a pair "w" of int8. */
typedef struct sample {
  hand root, n, l, l_item, t, w, w_item;
} sample;
static const int32_t numbers[] = {0, 1, 2, 3, 4, 5};
static int32_t list_offsets[4], text_offsets[4];

static void make_sample(sample *s) {
  static const int32_t good[4] = {0, 2, 2, 4};
  memcpy(list_offsets, good, sizeof good);
  memcpy(text_offsets, good, sizeof good);
  hand_make(&s->root, "+s", "", 3, 1);
  hand_make(&s->n, "+s", "n", 3, 1);
  hand_make(&s->l, "+l", "l", 3, 2);
  hand_buffers(&s->l, NULL, list_offsets, NULL);
  hand_make(&s->l_item, "i", "item", 4, 2);
  hand_buffers(&s->l_item, NULL, numbers, NULL);
  hand_make(&s->t, "u", "t", 3, 3);
  hand_buffers(&s->t, NULL, text_offsets, "abcd");
  hand_make(&s->w, "+w:2", "w", 3, 1);
  hand_make(&s->w_item, "c", "item", 6, 2);
  hand_buffers(&s->w_item, NULL, numbers, NULL);
  hand_add(&s->l, &s->l_item);
  hand_add(&s->w, &s->w_item);
  hand_add(&s->n, &s->l);
  hand_add(&s->n, &s->t);
  hand_add(&s->n, &s->w);
  hand_add(&s->root, &s->n);
}

/* Checks that the import of the sample fails with this status, path and text. Then makes a new sample. */
static void refuses(sample *s, tdict_status wanted, const char *path, const char *text) {
  tdict_tree *tree = NULL;
  num_array_releases = num_schema_releases = 0;
  const struct ArrowArray before = s->root.array;
  td_fails(wanted, text, tdict_arrow_import(&s->root.schema, &s->root.array, NULL, &tree, err));
  if (strcmp(td_last_error.path, path) != 0) fail_msg("path '%s', wanted '%s'", td_last_error.path, path);
  assert_null(tree);
  assert_int_equal(num_array_releases + num_schema_releases, 0);
  assert_memory_equal(&before, &s->root.array, sizeof before);
  make_sample(s);
}

CASE(arrow_import_refuses_malformed_arrays) {
  sample s;
  make_sample(&s);
  tdict_release(td_made(tree, tdict_arrow_import(&s.root.schema, &s.root.array, NULL, &made, err)));
  make_sample(&s);
#define BREAK(change, path, text) (s.change, refuses(&s, TDICT_EFORMAT, path, text))
  BREAK(w_item.array.release = NULL, "n.w", "the array is released");
  BREAK(n.schema.release = NULL, "n", "the schema is released");
  BREAK(n.array.length = -1, "n", "length -1 and offset 0, wanted 0 or more");
  BREAK(l.array.offset = -2, "n.l", "length 3 and offset -2");
  BREAK(l.array.offset = INT64_MAX, "n.l", "offset 9223372036854775807");
  BREAK(l.array.null_count = 4, "n.l", "4 nulls in 3 elements");
  BREAK(l.array.null_count = -2, "n.l", "-2 nulls");
  BREAK(t.array.null_count = 1, "n.t", "1 nulls, but the buffer of validity is NULL");
  BREAK(t.array.n_buffers = 2, "n.t", "2 buffers, wanted 3");
  BREAK(w.array.n_buffers = -1, "n.w", "-1 buffers, wanted 1");
  BREAK(w_item.array.buffers = NULL, "n.w", "the array of buffers is NULL");
  BREAK(w_item.buffers[1] = NULL, "n.w", "the buffer of elements is NULL");
  BREAK(l.buffers[1] = NULL, "n.l", "the buffer of offsets is NULL");
  BREAK(t.buffers[1] = NULL, "n.t", "the buffer of offsets is NULL");
  BREAK(t.buffers[2] = NULL, "n.t", "the buffer of the text is NULL");
  BREAK(n.array.n_children = 2, "n", "3 children in the schema and 2 in the array, wanted 3");
  BREAK(n.schema.n_children = -1, "n", "-1 children in the schema");
  BREAK(l.schema.n_children = 0, "n.l", "0 children in the schema and 1 in the array, wanted 1");
  BREAK(t.schema.n_children = 1, "n.t", "1 children in the schema and 0 in the array, wanted 0");
  BREAK(n.array.children = NULL, "n", "a child is NULL");
  BREAK(n.schema.children = NULL, "n", "a child is NULL");
  BREAK(n.arrays[1] = NULL, "n", "a child is NULL");
  BREAK(n.schemas[2] = NULL, "n", "a child is NULL");
  BREAK(n.array.length = 2, "n", "the array has 2 elements, its parent needs 3");
  BREAK(root.array.offset = 1, "n", "the array has 3 elements, its parent needs 4");
  BREAK(w_item.array.length = 5, "n.w", "the array has 5 elements, its parent needs 6");
  BREAK(l_item.array.length = 3, "n.l", "the array has 3 elements, its parent needs 4");
  BREAK(t.array.dictionary = &s.n.array, "n.t", "only the array has a dictionary");
  BREAK(root.array.length = -5, "", "length -5");
  BREAK(root.array.n_buffers = 3, "", "3 buffers, wanted 1");
  for (int i = 0; i < 2; i++) {
    int32_t *offsets = i ? text_offsets : list_offsets;
    const char *path = i ? "n.t" : "n.l";
    offsets[0] = -1;
    refuses(&s, TDICT_EFORMAT, path, "offset 0 is -1, wanted at least 0");
    offsets[2] = 1;
    refuses(&s, TDICT_EFORMAT, path, "offset 2 is 1, wanted at least 2");
    offsets[3] = INT32_MIN;
    refuses(&s, TDICT_EFORMAT, path, "offset 3 is -2147483648");
  }
  list_offsets[3] = 5;
  refuses(&s, TDICT_EFORMAT, "n.l", "the array has 4 elements, its parent needs 5");
}

CASE(arrow_import_refuses_formats) {
  static const struct {
    const char *format, *text;
    tdict_status status;
  } tests[] = {
      {"z", "the Arrow type binary", TDICT_ENOTSUP},
      {"Z", "large binary", TDICT_ENOTSUP},
      {"vz", "binary view", TDICT_ENOTSUP},
      {"vu", "utf8 view", TDICT_ENOTSUP},
      {"d:19,10", "the Arrow type decimal (format 'd:19,10')", TDICT_ENOTSUP},
      {"w:42", "fixed-size binary", TDICT_ENOTSUP},
      {"tdD", "date", TDICT_ENOTSUP},
      {"ttm", "time", TDICT_ENOTSUP},
      {"tsu:UTC", "timestamp", TDICT_ENOTSUP},
      {"tDs", "duration", TDICT_ENOTSUP},
      {"tiM", "interval", TDICT_ENOTSUP},
      {"+vl", "list view", TDICT_ENOTSUP},
      {"+vL", "large list view", TDICT_ENOTSUP},
      {"+m", "map", TDICT_ENOTSUP},
      {"+ud:0,1", "dense union", TDICT_ENOTSUP},
      {"+us:0,1", "sparse union", TDICT_ENOTSUP},
      {"+r", "run-end encoded", TDICT_ENOTSUP},
      {"", "'' is not an Arrow format", TDICT_EFORMAT},
      {"?", "'?' is not an Arrow format", TDICT_EFORMAT},
      {"ii", "'ii' is not an Arrow format", TDICT_EFORMAT},
      {"+w:", "'+w:' is not an Arrow format", TDICT_EFORMAT},
      {"+w:-1", "'+w:-1' is not an Arrow format", TDICT_EFORMAT},
      {"+w:2x", "'+w:2x' is not an Arrow format", TDICT_EFORMAT},
      {"+w:2147483648", "'+w:2147483648' is not an Arrow format", TDICT_EFORMAT},
      {NULL, "the format of the schema is NULL", TDICT_EFORMAT},
  };
  sample s;
  make_sample(&s);
  for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
    s.t.schema.format = tests[i].format;
    refuses(&s, tests[i].status, "n.t", tests[i].text);
  }
  s.t.schema.dictionary = &s.n.schema;
  refuses(&s, TDICT_ENOTSUP, "n.t", "dictionary-encoded");
  s.root.schema.format = "i";
  refuses(&s, TDICT_EFORMAT, "", "1 buffers, wanted 2");
  s.root.schema.format = "+w:1";
  refuses(&s, TDICT_ETYPE, "", "the format of the array is '+w:1', wanted a struct '+s'");
  /* Lists are refused if their elements are not numbers. */
  s.l_item.schema.format = "u";
  s.l_item.array.n_buffers = 3;
  refuses(&s, TDICT_ENOTSUP, "n.l", "the elements of lists have the format 'u', wanted numbers or bools");
  s.w_item.schema.format = "+s";
  s.w_item.array.n_buffers = 1;
  refuses(&s, TDICT_ENOTSUP, "n.w", "the elements of lists have the format '+s'");
}

CASE(arrow_import_refuses_names_and_texts) {
  sample s;
  make_sample(&s);
  s.t.schema.name = NULL;
  refuses(&s, TDICT_EINVAL, "n.", "the name of field 1 is empty");
  s.n.schema.name = "";
  refuses(&s, TDICT_EINVAL, "", "the name of field 0 is empty");
  s.w.schema.name = "l";
  refuses(&s, TDICT_EEXIST, "n.l", "two fields have the same name");
  s.t.buffers[2] = "ab\xff"
                   "d";
  refuses(&s, TDICT_EINVAL, "n.t", "UTF-8");
}

CASE(arrow_import_refuses_arguments) {
  sample s;
  tdict_tree *tree = NULL;
  make_sample(&s);
  struct ArrowSchema *schema = &s.root.schema;
  struct ArrowArray *array = &s.root.array;
  td_fails(TDICT_EINVAL, "schema is NULL", tdict_arrow_import(NULL, array, NULL, &tree, err));
  td_fails(TDICT_EINVAL, "array is NULL", tdict_arrow_import(schema, NULL, NULL, &tree, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_arrow_import(schema, array, NULL, NULL, err));
  tdict_arrow_import_options o = td_with(tdict_arrow_import_options, nulls = 3);
  td_fails(TDICT_EINVAL, "nulls is 3", tdict_arrow_import(schema, array, &o, &tree, err));
  o.nulls = TDICT_ARROW_NULLS_FILL;
  o.mask_all = true;
  td_fails(TDICT_EINVAL, "mask_all", tdict_arrow_import(schema, array, &o, &tree, err));
  o.nulls = TDICT_ARROW_NULLS_MASK;
  o.mask_path = "";
  td_fails(TDICT_EINVAL, "mask_path is empty", tdict_arrow_import(schema, array, &o, &tree, err));
  o.mask_path = NULL;
  td_fails(TDICT_EINVAL, "mask_path is NULL", tdict_arrow_import(schema, array, &o, &tree, err));
  o.mask_path = "n.t";
  td_fails_at(TDICT_EEXIST, "at the path of the masks", "n.t", tdict_arrow_import(schema, array, &o, &tree, err));
  o.mask_path = "n.t.x";
  td_fails(TDICT_ETYPE, "", tdict_arrow_import(schema, array, &o, &tree, err));
  o.struct_size = 1;
  td_fails(TDICT_EINVAL, "struct_size", tdict_arrow_import(schema, array, &o, &tree, err));
  /* A fill value that the dtype cannot hold is refused. */
  static const uint8_t valid[] = {1};
  o = tdict_arrow_import_options_default();
  o.nulls = TDICT_ARROW_NULLS_FILL;
  o.fill_value = 1000;
  s.w.buffers[0] = valid;
  s.w.array.null_count = 2;
  td_fails_at(TDICT_EOVERFLOW, "1000", "n.w", tdict_arrow_import(schema, array, &o, &tree, err));
  s.root.array.release = NULL;
  td_fails(TDICT_EINVAL, "the array is released", tdict_arrow_import(schema, array, NULL, &tree, err));
  s.root.schema.release = NULL;
  td_fails(TDICT_EINVAL, "the schema is released", tdict_arrow_import(schema, array, NULL, &tree, err));
  assert_null(tree);
}

/* Imports 64 to 66 nested levels of structs, or of lists in a struct. Only 64 structs are accepted. */
CASE(arrow_import_refuses_deep_arrays) {
  static hand levels[66];
  for (int depth = 64; depth <= 66; depth++)
    for (int lists = 0; lists < 2; lists++) {
      tdict_tree *tree = NULL;
      for (int i = 0; i < depth; i++) {
        hand_make(&levels[i], i == 0 || !lists ? "+s" : "+w:1", "k", 1, 1);
        if (i) hand_add(&levels[i - 1], &levels[i]);
      }
      hand *last = &levels[depth - 1];
      if (lists) hand_make(last, "i", "k", 1, 2);
      hand_buffers(last, NULL, lists ? numbers : NULL, NULL);
      tdict_error error = {0};
      num_array_releases = 0;
      const tdict_status status = tdict_arrow_import(&levels[0].schema, &levels[0].array, NULL, &tree, &error);
      if (depth == 64 && !lists) {
        assert_int_equal(status, TDICT_OK);
        tdict_release(tree);
      } else {
        assert_int_equal(status, TDICT_ENOTSUP);
        assert_non_null(strstr(error.message, lists && depth < 66 ? "dimensions" : "64 levels"));
        assert_int_equal(num_array_releases, 0);
      }
    }
}

/* Imports arrays with random changes. The import must return, and must take ownership of the array only if it succeeds.
 * Text offsets stay inside the buffer, because Arrow's structs do not contain the size of the buffer. */
CASE(arrow_import_survives_random_changes) {
  uint64_t random[4];
  int refused = 0;
  for (uint64_t seed = 0; seed < 20000; seed++) {
    sample s;
    make_sample(&s);
    hand *const fields[] = {&s.root, &s.n, &s.l, &s.l_item, &s.t, &s.w, &s.w_item};
    td_fill_random(random, sizeof random, seed);
    hand *h = fields[random[0] % 7];
    const int64_t small = (int64_t)(random[1] % 9) - 3, value = random[1] % 5 ? small : (int64_t)random[2];
    switch (random[3] % 8) {
    case 0:
      h->array.length = small > 3 ? 3 : small;
      break;
    case 1:
      h->array.null_count = value;
      break;
    case 2:
      h->array.n_buffers = value;
      break;
    case 3:
      h->array.n_children = value;
      break;
    case 4:
      h->schema.n_children = value;
      break;
    case 5:
      h->buffers[random[2] % 3] = NULL;
      break;
    case 6:
      list_offsets[random[2] % 4] = (int32_t)value;
      break;
    default:
      text_offsets[random[2] % 4] = value > 4 ? 4 : value < -4 ? -4 : (int32_t)value;
      break;
    }
    const bool agree = h->array.n_children == h->schema.n_children;
    tdict_tree *tree = NULL;
    const tdict_status status = tdict_arrow_import(&s.root.schema, &s.root.array, NULL, &tree, NULL);
    if (status != TDICT_OK) {
      refused++;
      assert_non_null(s.root.array.release);
      assert_null(tree);
    } else {
      assert_true(agree);
      assert_null(s.root.array.release);
      tdict_release(tree);
    }
  }
  assert_in_range(refused, 2000, 19000);
}
