/* Tests the options first_row and num_rows of tdict_load(): rows of plain files, of trees with every kind of leaf, and
 * refusals. */
#include "archive.h"
#include "files.h"
#include "random_tree.h"
#include "raw_file.h"

static tdict_load_options rows_of(int64_t first, int64_t count) {
  return td_with(tdict_load_options, first_row = first, num_rows = count);
}

DEVICE_CASE(load_selects_rows_of_plain_files) {
  scoped_folder home = folder_create();
  scoped_context c = td_context(NULL);
  dice d = {2};
  for (int round = 0; round < 30; round++) {
    const int64_t rows = (int64_t)roll(&d, 20);
    scoped_raw_file f = raw_file_create(&d, in(&home, "x"), rows);
    for (int i = 0; i < 4; i++) {
      const int64_t first = (int64_t)roll(&d, (uint64_t)rows + 1), left = rows - first;
      const int64_t count = i ? (int64_t)roll(&d, (uint64_t)left + 1) : -1;
      tdict_load_options o = rows_of(first, count);
      tdict_transfer_stats stats = tdict_transfer_stats_default();
      o.transfer = td_options(tdict_transfer_options, stats = &stats);
      scoped_tree tree = td_made(tree, tdict_load(c, f->path, td_device(), &o, &made, err));
      raw_check(c, f, tree, td_device(), first, count < 0 ? left : count);
      assert_int_equal(stats.total_bytes, tdict_bytes(tree)); /* other rows are not read */
      if (i == 1 && count) {                                  /* loads other rows into the same tree */
        td_ok(td_load_into(c, tree, f->path, (o.first_row = rows - count, o.transfer = NULL, &o), err));
        raw_check(c, f, tree, td_device(), rows - count, count);
      }
    }
  }
}

/* The arguments of the last progress call. */
typedef struct last_call {
  uint64_t done, total;
} last_call;
static bool see_progress(void *user, uint64_t done, uint64_t total) {
  *(last_call *)user = (last_call){done, total};
  return true;
}

/* Loads rows of columns, ragged leaves, nested trees and leaves without batch dimensions. */
DEVICE_CASE(load_selects_rows_of_trees) {
  scoped_folder home = folder_create();
  scoped_context c = td_context(NULL);
  int num_ragged = 0;
  for (int round = 0; round < 60; round++) {
    dice d = {(uint64_t)round + 100};
    const int64_t batch[] = {1 + (int64_t)roll(&d, 5), 2};
    const int64_t first = (int64_t)roll(&d, (uint64_t)batch[0]),
                  count = (int64_t)roll(&d, (uint64_t)(batch[0] - first) + 1);
    tdict_tree *tree = random_tree(&d, 1 + (int)roll(&d, 2), batch, 0), *part = NULL, *there = NULL, *back = NULL;
    if (tdict_batch_ndim(tree) == 1) add_random_ragged(&d, tree, "one more"), num_ragged++;
    const char *path = in(&home, round % 2 ? "x.safetensors.index.json" : "x");
    td_ok(tdict_save(NULL, path, tree, td_options(tdict_save_options, max_shard_bytes = round % 2 ? 40 : 0), err));
    tdict_load_options o = rows_of(first, count);
    last_call last = {1, 0};
    o.progress = see_progress;
    o.user = &last;
    td_ok(tdict_load(c, path, td_device(), &o, &there, err));
    assert_int_equal(last.done, last.total); /* progress does not include the offsets of ragged leaves */
    td_ok(tdict_to_device(c, there, tdict_cpu(), NULL, &back, err));
    td_ok(tdict_index_get(NULL, tree, TDICT_INDEX(TDICT_RANGE(first, first + count, 1)), NULL, &part, err));
    same_trees(back, part);
    td_release(part, back, there, tree);
    folder_empty(&home);
  }
  assert_true(num_ragged > 5);
}

/* Loads rows and a tensor beyond 4 GB from a sparse file. */
DEVICE_CASE(load_reads_sparse_files) {
  static const char header[] = "{\"x\":{\"dtype\":\"U8\",\"shape\":[1000000,5000],\"data_offsets\":[0,5000000000]},"
                               "\"y\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[5000000000,5000000003]}}";
  static const char *const keys[] = {"x", "y"};
  const off_t data = 8 + sizeof header - 1;
  scoped_folder home = folder_create();
  scoped_context c = td_context(NULL);
  tdict_open_options open = tdict_open_options_default();
  write_safetensors(in(&home, "f"), header, sizeof header - 1, 0);
  FILE *file = fopen(in(&home, "f"), "r+b");
  assert_non_null(file);
  if (fseeko(file, data + 5000000000 - 5000, SEEK_SET) != 0 || fwrite("last row", 1, 8, file) != 8 ||
      fseeko(file, data + 5000000000, SEEK_SET) != 0 || fwrite("abc", 1, 3, file) != 3 || fclose(file) != 0)
    td_skip("this file system has no sparse files");
  for (int i = 0; i < 2; i++) {
    tdict_load_options o = rows_of(i ? 1 : 999999, -1);
    scoped_tree there = NULL, back = NULL;
    open.keys = &keys[i];
    open.num_keys = 1;
    o.open = &open;
    td_ok(tdict_load(c, in(&home, "f"), td_device(), &o, &there, err));
    td_ok(tdict_to_device(c, there, tdict_cpu(), NULL, &back, err));
    assert_int_equal(tdict_bytes(back), i ? 2 : 5000);
    assert_memory_equal(tdict_const_data(back, keys[i]), i ? "bc" : "last row\0", i ? 2 : 9);
  }
}

static void refuse(tdict_context *c, const char *path, tdict_load_options o, tdict_status status, const char *text) {
  tdict_tree *tree = NULL;
  tdict_future *future = NULL;
  td_fails(status, text, tdict_load(c, path, td_device(), &o, &tree, err));
  td_fails(status, text, tdict_load_async(c, path, td_device(), &o, &future, err));
  assert_true(!tree && !future);
}

CASE(load_refuses_wrong_rows) {
  static const char other[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                              "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]}}",
                    scalar[] = "{\"s\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}";
  static const char *const keys[] = {"b"};
  scoped_folder home = folder_create();
  scoped_context c = td_context(NULL);
  tdict_load_options o;
  write_safetensors(in(&home, "x"), other, sizeof other - 1, 5);
  refuse(c, in(&home, "x"), rows_of(1, 1), TDICT_ESHAPE, "rows cannot be selected: key 'b' has 2 rows, key 'a' has 3");
  refuse(c, in(&home, "x"), rows_of(-1, 1), TDICT_EINVAL, "first_row is -1 and num_rows is 1");
  refuse(c, in(&home, "x"), rows_of(0, -2), TDICT_EINVAL, "num_rows is -2");
  write_safetensors(in(&home, "y"), scalar, sizeof scalar - 1, 3);
  refuse(c, in(&home, "y"), rows_of(0, 1), TDICT_ESHAPE, "key 's' is a tensor without dimensions");
  o = rows_of(1, 2);
  tdict_open_options open = td_with(tdict_open_options, keys = keys, num_keys = 1);
  o.open = &open;
  refuse(c, in(&home, "y"), o, TDICT_EINVAL, "first_row is 1 and num_rows is 2, but there are 2 rows");
  assert_string_equal(td_last_error.path, in(&home, "y"));
  o.first_row = 3;
  o.num_rows = -1;
  refuse(c, in(&home, "y"), o, TDICT_EINVAL, "first_row is 3");
  o.first_row = INT64_MAX;
  o.num_rows = INT64_MAX;
  refuse(c, in(&home, "y"), o, TDICT_EINVAL, "there are 2 rows");
  o = rows_of(1, 1);
  o.open = &open;
  tdict_tree *tree = td_made(tree, tdict_load(c, in(&home, "y"), td_device(), &o, &made, err));
  assert_int_equal(*(const unsigned char *)tdict_const_data(tree, "b"), 2);
  tdict_release(tree);
  open.num_keys = 0;
  refuse(c, in(&home, "y"), o, TDICT_ESHAPE, "no selected leaf has rows");
}

/* The tree has no batch dimensions and a ragged leaf of three rows, so the selected rows are rows of the leaf. */
CASE(load_checks_offsets) {
  static const int64_t good[] = {0, 2, 3, 5};
  static const struct {
    int64_t at[4];
    const char *text; /* NULL: the load returns rows 1 and 2 */
  } cases[] = {{{0, 2, 3, 5}, NULL},
               {{1, 2, 3, 5}, "are wrong"},
               {{0, 2, 3, 4}, "are wrong"},
               {{0, 4, 3, 5}, "less than its predecessor"},
               {{0, 3, 4, 2}, "are wrong"},
               {{0, -1, 3, 5}, "are wrong"},
               {{0, INT64_MIN, 3, 5}, "are wrong"},
               {{0, 2, INT64_MAX, 5}, "is "}};
  scoped_folder home = folder_create();
  scoped_context c = td_context(NULL);
  scoped_tree tree = NULL;
  scoped_tensor values = NULL, offsets = NULL;
  tdict_tensor *got = NULL;
  scoped_ragged ragged = NULL;
  size_t size;
  td_ok(tdict_create(0, NULL, &tree, err));
  td_ok(tdict_tensor_arange(TDICT_U8, 0, 1, 5, &values, err));
  td_ok(tdict_tensor_from_array(TDICT_I64, TDICT_SHAPE(4), good, &offsets, err));
  td_ok(tdict_ragged_create(values, offsets, &ragged, err));
  td_ok(tdict_set_ragged(tree, "r", ragged, err));
  td_ok(tdict_save(NULL, in(&home, "x"), tree, NULL, err));
  scoped_bytes bytes = read_bytes(in(&home, "x"), &size);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    tdict_load_options o = rows_of(1, 2);
    memcpy(bytes + size - 5 - sizeof good, cases[i].at, sizeof good); /* the file ends with the 5 bytes of values */
    write_bytes(in(&home, "y"), bytes, size);
    if (cases[i].text) {
      refuse(c, in(&home, "y"), o, TDICT_EFORMAT, cases[i].text);
      assert_non_null(strstr(td_last_error.message, "key 'r'"));
      continue;
    }
    scoped_tree part = td_made(tree, tdict_load(c, in(&home, "y"), td_device(), &o, &made, err));
    tdict_entry entry;
    td_ok(tdict_get_entry(part, "r", &entry, err));
    got = tdict_ragged_get_info(entry.object).values;
    assert_int_equal(tdict_tensor_bytes(got), 3);
    assert_memory_equal(tdict_tensor_const_data(got), "\2\3\4", 3);
    const int64_t *at = tdict_tensor_const_data(tdict_ragged_get_info(entry.object).offsets);
    assert_true(at[0] == 0 && at[1] == 1 && at[2] == 3);
  }
}

/* Loads NumPy arrays in both byte orders, each in C order and in Fortran order. */
DEVICE_CASE(load_converts_arrays_of_numpy) {
  scoped_folder home = folder_create();
  scoped_context c = td_context(NULL);
  unsigned char file[512], data[48];
  for (int i = 0; i < 8; i++) {
    const bool swapped = i & 1, fortran = i & 2, has_rows = i & 4;
    int16_t wanted[4][6];
    char literal[128];
    for (int16_t row = 0; row < 4; row++)
      for (int16_t column = 0; column < 6; column++) {
        const size_t at = 2 * (size_t)(fortran ? column * 4 + row : row * 6 + column);
        wanted[row][column] = (int16_t)(1000 * row - 77 * column);
        const uint16_t bits = (uint16_t)wanted[row][column];
        data[at + swapped] = (unsigned char)bits;
        data[at + !swapped] = (unsigned char)(bits >> 8);
      }
    snprintf(literal, sizeof literal, "{'descr': '%ci2', 'fortran_order': %s, 'shape': (4, 6), }", swapped ? '>' : '<',
             fortran ? "True" : "False");
    write_bytes(in(&home, "x.npy"), file, make_npy(file, literal, data, sizeof data));
    tdict_load_options o = has_rows ? rows_of(1, 2) : rows_of(0, -1);
    last_call last = {1, 0};
    scoped_tree there = NULL, back = NULL;
    o.progress = see_progress;
    o.user = &last;
    if (fortran && has_rows) {
      refuse(c, in(&home, "x.npy"), o, TDICT_ENOTSUP, "key 'arr_0' is in Fortran order");
      continue;
    }
    td_ok(tdict_load(c, in(&home, "x.npy"), td_device(), &o, &there, err));
    td_ok(tdict_to_device(c, there, tdict_cpu(), NULL, &back, err));
    assert_int_equal(last.done, last.total);
    assert_int_equal(tdict_bytes(back), has_rows ? 24 : 48);
    assert_memory_equal(tdict_const_data(back, "arr_0"), wanted[has_rows], has_rows ? 24 : 48);
  }
}
