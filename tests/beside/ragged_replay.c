/* Compares ragged leaves with the jagged tensors of PyTorch, which make_ragged.py has recorded. Usage: ragged_replay
 * FILE. Exits with 1 at the first difference, and with 77 if the file cannot be read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/scoped.h"
#include "tdict/clone.h"
#include "tdict/index.h"
#include "tdict/ragged.h"
#include "tdict/tdict.h"
#include "tdict/view.h"

enum { MOST_ROWS = 16, MOST_NUMBERS = 512 };
static FILE *file;
static int num_cases;

static void must(bool ok, const char *what) {
  if (ok) return;
  fprintf(stderr, "ragged_replay: case %d: %s\n", num_cases, what);
  exit(1);
}
static int64_t read_number(void) {
  long long number = 0;
  must(fscanf(file, "%lld", &number) == 1, "a number is missing");
  return number;
}
static void read_word(const char *wanted) {
  char word[16];
  must(fscanf(file, "%15s", word) == 1 && strcmp(word, wanted) == 0, wanted);
}
/* Compares a float64 tensor with the next numbers in the file. */
static void compare(const tdict_tensor *given, const char *what) {
  scoped_tensor t = NULL;
  must(tdict_tensor_contiguous(given, &t, NULL) == TDICT_OK, what);
  const double *data = tdict_tensor_const_data(t);
  for (int64_t i = 0; i < tdict_tensor_numel(t); i++) must(data[i] == (double)read_number(), what);
}

static tdict_ragged *read_rows(int64_t count, int64_t width, const int64_t *lengths) {
  tdict_tensor *rows[MOST_ROWS];
  tdict_ragged *leaf = NULL;
  for (int64_t i = 0; i < count; i++) {
    double numbers[MOST_NUMBERS] = {0};
    read_word("given");
    for (int64_t k = 0; k < lengths[i] * width; k++) numbers[k] = (double)read_number();
    must(tdict_tensor_from_array(TDICT_F64, TDICT_SHAPE(lengths[i], width), numbers, &rows[i], NULL) == TDICT_OK,
         "a row");
  }
  must(tdict_ragged_from_rows(rows, (size_t)count, NULL, &leaf, NULL) == TDICT_OK, "from_rows");
  for (int64_t i = 0; i < count; i++) tdict_tensor_release(rows[i]);
  return leaf;
}

/* Compares the padded tensor, and checks that the leaf can be rebuilt from it and its mask. */
static void check_padded(const tdict_ragged *leaf) {
  scoped_tensor padded = NULL, mask = NULL;
  scoped_ragged again = NULL;
  scoped_tree a = NULL, b = NULL;
  read_word("padded");
  const double fill = (double)read_number();
  must(tdict_ragged_to_padded(leaf, fill, NULL, &padded, &mask, NULL) == TDICT_OK, "to_padded");
  must(tdict_tensor_shape(padded)[1] == read_number(), "the longest row");
  compare(padded, "the padded tensor");
  must(tdict_ragged_from_padded(padded, mask, NULL, &again, NULL) == TDICT_OK, "from_padded");
  must(tdict_create(0, NULL, &a, NULL) == TDICT_OK && tdict_create(0, NULL, &b, NULL) == TDICT_OK, "trees");
  must(tdict_set_ragged(a, "x", tdict_ragged_retain(leaf), NULL) == TDICT_OK &&
           tdict_set_ragged(b, "x", again, NULL) == TDICT_OK && tdict_equal(a, b),
       "the leaf rebuilt from the padded tensor");
  tdict_ragged_release((tdict_ragged *)(uintptr_t)leaf);
}

static void check_case(void) {
  int64_t lengths[MOST_ROWS];
  tdict_tensor *row = NULL;
  scoped_tree td = NULL, indexed = NULL;
  const int64_t count = read_number(), width = read_number();
  must(count <= MOST_ROWS, "too many rows");
  for (int64_t i = 0; i < count; i++) lengths[i] = read_number();
  scoped_ragged leaf = read_rows(count, width, lengths);
  read_word("values");
  must(tdict_tensor_shape(tdict_ragged_get_info(leaf).values)[0] == read_number(), "the number of elements");
  compare(tdict_ragged_get_info(leaf).values, "values");
  read_word("offsets");
  const int64_t *offsets = tdict_tensor_const_data(tdict_ragged_get_info(leaf).offsets);
  for (int64_t i = 0; i <= count; i++) must(offsets[i] == read_number(), "offsets");
  check_padded(leaf);
  must(tdict_create(1, &count, &td, NULL) == TDICT_OK && tdict_set_ragged(td, "x", leaf, NULL) == TDICT_OK, "a tree");
  for (int64_t i = 0; i < count; i++) {
    read_word("row");
    must(tdict_ragged_row_length(leaf, i) == read_number(), "the length of a row");
    must(tdict_ragged_get_row(leaf, i, &row, NULL) == TDICT_OK, "a row");
    compare(row, "a row");
    tdict_tensor_release(row);
  }
  read_word("index");
  must(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(read_number())), NULL, &indexed, NULL) == TDICT_OK &&
           tdict_get(indexed, "x", &row, NULL) == TDICT_OK && tdict_tensor_shape(row)[0] == read_number(),
       "an indexed row");
  compare(row, "an indexed row");
}

int main(int argc, char **argv) {
  char word[16];
  file = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (!file) return 77;
  must(fscanf(file, "#%*[^\n]") == 0, "the first line");
  while (fscanf(file, "%15s", word) == 1) {
    num_cases++;
    must(strcmp(word, "rows") == 0, "rows");
    check_case();
  }
  fclose(file);
  printf("%d cases are equal\n", num_cases);
  return num_cases ? 0 : 1;
}
