/* Tests how trees are printed. */
#include <errno.h>

#include "help.h"

static char *text_of(const tdict_tree *td) {
  size_t length = tdict_format(td, NULL, 0);
  char *text = malloc(length + 1);
  assert_int_equal(tdict_format(td, text, length + 1), length);
  assert_int_equal(strlen(text), length);
  return text;
}

static void expect(const tdict_tree *td, const char *wanted) {
  scoped_chars text = text_of(td);
  assert_string_equal(text, wanted);
}

static const char sample_text[] = "tree batch=[32] device=cpu locked\n"
                                  "  obs                 float32 [32, 84, 84] cpu\n"
                                  "  next: tree batch=[32] device=cpu locked\n"
                                  "    reward            uint8   [32]         cpu pinned shared\n"
                                  "    \xe5\xad\x97\\x0a\\\\\\x1b.\\xff  uint8   [32]         cpu pinned shared\n"
                                  "  empty: tree batch=[32] device=cpu locked\n"
                                  "3 tensors, 903232 bytes (882.1 KiB)\n";

static tdict_tree *sample(void) {
  static unsigned char bytes[32];
  const int64_t shape[] = {32};
  const tdict_device cpu = tdict_cpu();
  tdict_tree *td = TREE(32);
  tdict_tensor_desc view =
      td_with(tdict_tensor_desc, data = bytes, dtype = TDICT_U8, ndim = 1, shape = shape, flags = TDICT_DESC_PINNED);
  tdict_tensor *t = td_made(tensor, tdict_tensor_from_data(&view, NULL, NULL, &made, err));
  td_put(td, "obs", TENSOR(32, 84, 84));
  td_ok(tdict_set(td, "next.reward", t, err));
  td_ok(tdict_set(td, "next.\xe5\xad\x97\n\\\\\x1b\\.\xff", t, err)); /* bytes that cannot be printed are escaped */
  td_put_tree(td, "empty", TREE(32));
  tdict_tensor_release(t);
  td_ok(tdict_set_device(td, &cpu, err));
  tdict_lock(td);
  return td;
}

CASE(tree_format) {
  scoped_tree td = sample(), empty = help_tree_without_batch();
  expect(td, sample_text);
  expect(empty, "tree batch=[]\n0 tensors, 0 bytes\n");
  char buffer[sizeof sample_text + 8];
  for (size_t bytes = 0; bytes <= sizeof buffer; bytes++) { /* truncated as by snprintf() */
    memset(buffer, 0xA5, sizeof buffer);
    assert_int_equal(tdict_format(td, buffer, bytes), sizeof sample_text - 1);
    size_t shown = bytes == 0 ? 0 : bytes < sizeof sample_text ? bytes - 1 : sizeof sample_text - 1;
    assert_memory_equal(buffer, sample_text, shown);
    if (bytes) assert_int_equal(buffer[shown], 0);
    for (size_t i = bytes; i < sizeof buffer; i++) assert_int_equal((unsigned char)buffer[i], 0xA5);
  }
}

CASE(tree_format_cuts_long_trees) {
  scoped_tree td = TREE(1);
  for (int i = 0; i < 250; i++) td_put(td, td_text("n%d.key%d", i / 50, i), TENSOR(1));
  scoped_chars text = text_of(td);
  size_t lines = 0;
  for (const char *c = text; *c; c++) lines += *c == '\n';
  assert_int_equal(lines, 1 + 100 + 1 + 1);
  assert_non_null(
      strstr(text, "\n  ... 155 more keys\n250 tensors, 1000 bytes\n")); /* 5 trees, 250 tensors, 100 shown */
  assert_non_null(strstr(text, "    key97  float32 [1] cpu\n  ..."));
}

/* A leaf is marked as shared if its bytes overlap those of another leaf of the tree, even if that leaf is not shown.
 * Leaves that share only the storage, but no bytes, are not marked. */
CASE(tree_format_marks_shared) {
  scoped_tree td = td_tree("[4] alone:f32[4]"), rows = NULL;
  tdict_tensor *twice = td_put(td, "twice", TENSOR(4, 2));
  td_ok(tdict_set(td, "n.again", twice, err));
  expect(td, "tree batch=[4]\n"
             "  alone    float32 [4]    cpu\n"
             "  twice    float32 [4, 2] cpu shared\n"
             "  n: tree batch=[4]\n"
             "    again  float32 [4, 2] cpu shared\n"
             "3 tensors, 80 bytes\n");
  td_ok(tdict_delete(td, "n", err));
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(1, 3, 1)), NULL, &rows, err));
  expect(rows, "tree batch=[2]\n"
               "  alone  float32 [2]    cpu\n"
               "  twice  float32 [2, 2] cpu\n"
               "2 tensors, 24 bytes\n");
  static const tdict_field fields[] = {{"a", TDICT_U8, 0, {0}}, {"b", TDICT_U8, 0, {0}}};
  tdict_tree *apart = NULL, *first = NULL;
  td_ok(tdict_create_from(fields, 2, 1, (const int64_t[]){4}, NULL, &apart, err));
  expect(apart, "tree batch=[4]\n  a  uint8 [4] cpu\n  b  uint8 [4] cpu\n2 tensors, 8 bytes\n");
  td_ok(tdict_index_get(NULL, apart, TDICT_INDEX(TDICT_RANGE(3, 0, -1)), NULL, &first, err));
  td_ok(tdict_set_batch_size(apart, 0, NULL, err));
  td_ok(tdict_set(apart, "c", td_leaf(first, "a"), err)); /* the last three elements of a, in reverse order */
  expect(apart, "tree batch=[]\n  a  uint8 [4] cpu shared\n  b  uint8 [4] cpu\n  c  uint8 [3] cpu shared\n"
                "3 tensors, 11 bytes\n");
  td_release(first, apart);
  for (int i = 0; i < 150; i++) td_put(td, td_text("k%d", i), TENSOR(4));
  td_ok(tdict_set(td, "last", td_leaf(td, "alone"), err)); /* comes after the last line that is shown */
  scoped_chars text = text_of(td);
  assert_non_null(strstr(text, "  alone  float32 [4]    cpu shared\n"));
  assert_non_null(strstr(text, "  twice  float32 [4, 2] cpu\n"));
}

/* A long key or shape does not widen the columns. Only the line of that leaf is not aligned. */
CASE(tree_format_keeps_columns_narrow) {
  scoped_tree td = help_tree_without_batch();
  char name[101];
  memset(name, 'k', 100);
  name[100] = 0;
  td_put(td, "short", TENSOR(1));
  td_put(td, name,
         TENSOR(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1));
  scoped_chars text = text_of(td);
  const char *line = strstr(text, "short"), *end = strchr(line, '\n');
  assert_in_range(end - line, 60, 110);
  assert_non_null(strstr(text, name));
}

CASE(tree_print) {
  scoped_tree td = sample();
  FILE *file = tmpfile();
  char read[sizeof sample_text + 8] = {0};
  td_ok(tdict_print(td, file, err));
  rewind(file);
  assert_int_equal(fread(read, 1, sizeof read, file), sizeof sample_text - 1);
  assert_string_equal(read, sample_text);
  fclose(file);
  file = fopen("/dev/full", "w");
  assert_non_null(file);
  td_fails(TDICT_EIO, "could not be written", tdict_print(td, file, err));
  assert_int_equal(td_last_error.native, ENOSPC);
  fclose(file);
  file = fopen("/dev/null", "r");
  td_fails(TDICT_EIO, "could not be written", tdict_print(td, file, err));
  assert_int_equal(td_last_error.native, EBADF);
  fclose(file);
  td_fails(TDICT_EINVAL, "tree is NULL", tdict_print(NULL, stdout, err));
  td_fails(TDICT_EINVAL, "file is NULL", tdict_print(td, NULL, err));
}
