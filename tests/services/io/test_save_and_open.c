/* Tests that tdict_open() opens what tdict_save() has written: random trees in all formats and with all options. */
#include "directory.h"
#include "random_tree.h"
#include "support/float_env.h"
#include "support/random.h"

/* Keys that formats reserve, that collide as file names, or that cannot be joined with dots. */
static const char *const hard_keys[] = {"a",           "a\\.b",        "\\.a",  "b\\.",
                                        "a\\.\\.b",    "\\.\\.",       "x",     "x\\.memmap",
                                        "meta\\.json", "__metadata__", "shape", "size",
                                        "values",      "<NJT>x",       "0",     "1",
                                        "%2E%2E",      "\\.memmap",    "é\n\"", "\\.meta\\.json\\.append\\.tmp",
                                        "cls",         "_type"};

typedef struct way {
  const char *name;
  int32_t format;
  uint64_t max_shard_bytes;
  bool is_plain; /* the file holds only names and tensors */
} way;
static const way ways[] = {{"x", TDICT_FORMAT_SAFETENSORS, 0, false},
                           {"x.json", TDICT_FORMAT_SAFETENSORS, 0, false},
                           {"x.safetensors.index.json", TDICT_FORMAT_SAFETENSORS, 0, false},
                           {"x.safetensors", TDICT_FORMAT_SAFETENSORS, 0, true},
                           {"y.safetensors.index.json", TDICT_FORMAT_SAFETENSORS, 64, false},
                           {"z.safetensors.index.json", TDICT_FORMAT_SAFETENSORS, 64, true},
                           {"m.json", TDICT_FORMAT_MEMMAP, 0, false},
                           {"t.json", TDICT_FORMAT_TDZ, 0, false},
                           {"c.json", TDICT_FORMAT_CONSOLIDATED, 0, false},
                           {"n.json", TDICT_FORMAT_NPY, 0, true},
                           {"n.npz", TDICT_FORMAT_AUTO, 0, true}};

/* The tensors of a tree and their names. A name has the keys of the path, joined with dots. */
typedef struct name_list {
  const tdict_tree *tree;
  char names[256][PATH_BYTES];
  tdict_tensor *tensors[256];
  int count;
} name_list;

static tdict_status add_name(void *user, const tdict_entry *entry, tdict_error *e) {
  name_list *all = user;
  char *to = all->names[all->count];
  if (entry->tree) return TDICT_OK;
  assert_true(all->count < 256);
  all->tensors[all->count] = (tdict_tensor *)(uintptr_t)entry->tensor;
  if (entry->type == tdict_unbatched_type())
    td_ok(tdict_get_unbatched(all->tree, entry->path, &all->tensors[all->count], e));
  assert_non_null(all->tensors[all->count++]);
  for (const char *at = entry->path; *at; at++) {
    if (*at == '\\' && at[1]) at++;
    *to++ = *at;
  }
  return TDICT_OK;
}

/* Checks that both trees have the same names, with the same tensors. */
static void same_names(const tdict_tree *a, const tdict_tree *b) {
  TD_FREED name_list *all = calloc(2, sizeof *all);
  all[0].tree = a;
  all[1].tree = b;
  td_ok(tdict_walk(a, add_name, &all[0], err));
  td_ok(tdict_walk(b, add_name, &all[1], err));
  assert_int_equal(all[0].count, all[1].count);
  for (int i = 0; i < all[0].count; i++) {
    int k = 0;
    while (k < all[1].count && strcmp(all[0].names[i], all[1].names[k]) != 0) k++;
    if (k == all[1].count) fail_msg("the name '%s' is missing", all[0].names[i]);
    same_tensors(all[0].tensors[i], all[1].tensors[k]);
  }
}

/* Saves a tree and checks what tdict_open() returns. Returns false if the save refuses the tree. */
static bool survives(const folder *f, const way *w, const tdict_tree *tree) {
  tdict_error why;
  tdict_save_options o = td_with(tdict_save_options, format = w->format, max_shard_bytes = w->max_shard_bytes,
                                 without_structure = w->is_plain && w->format == TDICT_FORMAT_SAFETENSORS);
  tdict_open_options flat = td_with(tdict_open_options, flat = true);
  const tdict_status status = tdict_save(NULL, in(f, w->name), tree, &o, &why);
  if (status != TDICT_OK) {
    assert_true(status == TDICT_ENOTSUP || status == TDICT_EEXIST);
    assert_true(why.path[0]);
    assert_int_equal(folder_count(f, NULL), 0);
    return false;
  }
  tdict_tree *back = td_made(tree, tdict_open(in(f, w->name), NULL, &made, err));
  ignores_order = w->format == TDICT_FORMAT_CONSOLIDATED;
  if (!w->is_plain) same_trees(back, tree);
  ignores_order = false;
  if (w->is_plain && w->format != TDICT_FORMAT_NPY) {
    same_names(back, tree);
    tdict_release(back);
    td_ok(tdict_open(in(f, w->name), &flat, &back, err));
    same_names(back, tree);
  }
  tdict_release(back);
  remove_all(f->path);
  assert_int_equal(mkdir(f->path, 0700), 0);
  return true;
}

CASE(save_and_open_random_trees_in_all_formats) {
  enum { NUM_WAYS = sizeof ways / sizeof *ways, TREES = 150 };
  scoped_folder f = folder_create();
  dice d = {61};
  int accepted[NUM_WAYS] = {0};
  tree_keys = hard_keys;
  num_tree_keys = sizeof hard_keys / sizeof *hard_keys;
  for (int i = 0; i < TREES; i++) {
    const int64_t batch[] = {(int64_t)roll(&d, 4), (int64_t)roll(&d, 3)};
    scoped_tree tree = random_tree(&d, (int)roll(&d, 3), batch, 3);
    for (int k = 0; k < NUM_WAYS; k++) accepted[k] += survives(&f, &ways[k], tree);
  }
  /* Each format must accept some of the trees, or this case would not test the format. */
  for (int k = 0; k < NUM_WAYS; k++) assert_true(accepted[k] >= TREES / 50);
}

/* A column keeps its shape when its tree loses batch dimensions, even in a file. */
CASE(save_and_open_columns_of_more_dimensions) {
  static const char *const texts[] = {"a", "b", "c", "d", "e", "f"};
  scoped_folder f = folder_create();
  const int64_t sizes[] = {2, 3};
  for (int ndim = 0; ndim <= 2; ndim++) {
    scoped_tree tree = td_made(tree, tdict_create(2, sizes, &made, err)), opened = NULL;
    td_ok(tdict_set_texts(tree, "c", texts, 6, err));
    td_ok(tdict_set_texts(tree, "n.c", texts, 6, err));
    td_ok(tdict_set_batch_size(tree, ndim, sizes, err));
    td_ok(tdict_save(NULL, in(&f, "x.safetensors"), tree, NULL, err));
    td_ok(tdict_open(in(&f, "x.safetensors"), NULL, &opened, err));
    assert_int_equal(tdict_batch_ndim(opened), ndim);
    td_ok(tdict_set_batch_size(opened, 2, sizes, err));
    for (int64_t i = 0; i < 6; i++) {
      const char *text = NULL;
      td_ok(tdict_get_text(opened, i % 2 ? "c" : "n.c", i, &text, NULL, err));
      assert_string_equal(text, texts[i]);
    }
    td_ok(tdict_set_batch_size(tree, 2, sizes, err));
    assert_true(tdict_equal(tree, opened));
  }
}

/* Files keep all bits of reals, whatever the rounding mode of the calling thread. */
CASE(save_and_open_reals_in_every_float_environment) {
  enum { COUNT = 500 };
  static tdict_value values[COUNT];
  scoped_folder f = folder_create();
  rng random = {61};
  scoped_tree tree = td_made(tree, tdict_create(1, (const int64_t[]){COUNT}, &made, err));
  for (int i = 0; i < COUNT; i++) {
    uint64_t bits = next_random(&random);
    if (i % 10 == 0) bits &= UINT64_C(0x800fffffffffffff); /* subnormal */
    if ((bits >> 52 & 0x7ff) == 0x7ff) bits ^= UINT64_C(1) << 62;
    values[i].kind = TDICT_VALUE_REAL;
    memcpy(&values[i].real, &bits, sizeof bits);
  }
  td_ok(tdict_set_values(tree, "c", values, COUNT, err));
  for (int env = -1; env < 2 * TD_FLOAT_ENVS; env++) { /* sets the environment for the save, then for the open */
    scoped_tree opened = NULL;
    if (env >= 0 && env < TD_FLOAT_ENVS) td_float_env_set(env);
    const tdict_status saved = tdict_save(NULL, in(&f, "x.safetensors"), tree, NULL, NULL);
    td_float_env_reset();
    assert_int_equal(saved, TDICT_OK);
    if (env >= TD_FLOAT_ENVS) td_float_env_set(env - TD_FLOAT_ENVS);
    const tdict_status status = tdict_open(in(&f, "x.safetensors"), NULL, &opened, NULL);
    td_float_env_reset();
    assert_int_equal(status, TDICT_OK);
    for (int64_t i = 0; i < COUNT; i++) {
      tdict_value value;
      td_ok(tdict_get_value(opened, "c", i, &value, err));
      assert_int_equal(value.kind, TDICT_VALUE_REAL);
      assert_memory_equal(&value.real, &values[i].real, sizeof value.real);
    }
  }
}

CASE(open_makes_one_key_of_names_that_are_no_path) {
  static const char *const names[] = {"a.b", "a.b.c", "a.b-c", "a.b.c.d", ".a", "b.", "c..d", "b.e", "b..e"};
  static const char *const paths[] = {"a.b",  "a\\.b\\.c", "a.b-c", "a\\.b\\.c\\.d", "\\.a",
                                      "b\\.", "c\\.\\.d",  "b.e",   "b\\.\\.e"};
  enum { COUNT = sizeof names / sizeof *names };
  scoped_folder f = folder_create();
  dice d = {63};
  for (int round = 0; round < 20; round++) {
    char header[1024] = "{";
    int order[COUNT];
    scoped_tree tree = NULL;
    for (int i = 0; i < COUNT; i++) order[i] = i;
    for (int i = COUNT - 1; i > 0; i--) {
      const int k = (int)roll(&d, (uint64_t)i + 1), kept = order[i];
      order[i] = order[k];
      order[k] = kept;
    }
    for (int i = 0; i < COUNT; i++)
      snprintf(header + strlen(header), sizeof header - strlen(header),
               "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}", i ? "," : "", names[order[i]], i,
               i + 1);
    strcat(header, "}");
    write_safetensors(in(&f, "x"), header, strlen(header), COUNT);
    td_ok(tdict_open(in(&f, "x"), NULL, &tree, err));
    assert_int_equal(tdict_num_leaves(tree), COUNT);
    for (int i = 0; i < COUNT; i++) {
      const unsigned char *data = tdict_const_data(tree, paths[order[i]]);
      assert_non_null(data);
      assert_int_equal(*data, i);
    }
  }
}

/* The size limit of an index is checked before a shard is written. */
CASE(save_refuses_an_index_that_is_too_long) {
  enum { BYTES = 100000000 };
  scoped_folder f = folder_create();
  scoped_tensor t = NULL;
  scoped_chars text = malloc(BYTES);
  memset(text, 'x', BYTES);
  tdict_save_options o = td_with(tdict_save_options, max_shard_bytes = 1);
  const tdict_value value = {.kind = TDICT_VALUE_TEXT, .text = text, .length = BYTES};
  scoped_tree tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_ok(tdict_set_values(tree, "text", &value, TDICT_WHOLE_TREE, err));
  td_ok(tdict_tensor_zeros(TDICT_U8, 0, NULL, NULL, &t, err));
  td_ok(tdict_set(tree, "x", t, err));
  td_fails(TDICT_ENOTSUP, "the index has 1", tdict_save(NULL, in(&f, "a.safetensors.index.json"), tree, &o, err));
  assert_string_equal(td_last_error.path, in(&f, "a.safetensors.index.json"));
  assert_int_equal(folder_count(&f, NULL), 0);
}
