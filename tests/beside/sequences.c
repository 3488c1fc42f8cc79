/* beside_sequences: pads and packs the sequences of a file, and compares the results with PyTorch's.
 *
 *   beside_sequences FILE        FILE is from make_sequences.py
 *
 * Exits with 0 if all results are equal. */
#include <stdio.h>
#include <string.h>

#include <tdict/combine.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { MOST = 512, PAD = -5, LINES = 6 };
enum { LENGTHS, VALUES, OFFSETS, LONGEST, PADDED, MASK };

typedef struct numbers {
  int count;
  int64_t at[MOST];
} numbers;
static tdict_error err;

/* Reads a count, then that many numbers. */
static bool read_numbers(FILE *file, numbers *n) {
  if (fscanf(file, "%d", &n->count) != 1 || n->count < 0 || n->count > MOST) return false;
  for (int i = 0; i < n->count; i++) {
    long long x;
    if (fscanf(file, "%lld", &x) != 1) return false;
    n->at[i] = x;
  }
  return true;
}

/* Returns whether the elements of an int64, int32 or bool leaf are these numbers. */
static bool is_equal(const tdict_tree *tree, const char *path, const numbers *n) {
  tdict_tensor *t = NULL;
  if (tdict_get(tree, path, &t, &err) != TDICT_OK || tdict_tensor_numel(t) != n->count) return false;
  const void *data = tdict_tensor_const_data(t);
  tdict_dtype dtype = tdict_tensor_dtype(t);
  for (int i = 0; i < n->count; i++) {
    int64_t x = dtype == TDICT_I64   ? ((const int64_t *)data)[i]
                : dtype == TDICT_I32 ? ((const int32_t *)data)[i]
                                     : ((const unsigned char *)data)[i];
    if (x != n->at[i]) return false;
  }
  return true;
}

static bool check_record(const numbers *record) {
  tdict_tree *items[MOST] = {NULL}, *padded = NULL, *packed = NULL;
  tdict_pad_options o = tdict_pad_options_default();
  bool good = false;
  const int64_t *values = record[VALUES].at;
  o.value = PAD;
  o.masks = "masks";
  for (int i = 0; i < record[LENGTHS].count; i++) {
    const int64_t *length = &record[LENGTHS].at[i];
    tdict_tensor *t = NULL;
    TDICT_TRY(tdict_create(1, length, &items[i], &err));
    TDICT_TRY(tdict_tensor_empty(TDICT_I64, 1, length, NULL, &t, &err));
    memcpy(tdict_tensor_data(t), values, (size_t)*length * sizeof *values);
    values += *length;
    tdict_status status = tdict_set(items[i], "x", t, &err);
    tdict_tensor_release(t);
    TDICT_TRY(status);
  }
  const tdict_tree *const *trees = (const tdict_tree *const *)items;
  TDICT_TRY(tdict_pad_sequence(trees, (size_t)record[LENGTHS].count, &o, NULL, &padded, &err));
  TDICT_TRY(tdict_pack_sequence(trees, (size_t)record[LENGTHS].count, NULL, NULL, &packed, &err));
  good = is_equal(padded, "x", &record[PADDED]) && is_equal(padded, "masks.x", &record[MASK]) &&
         is_equal(packed, "x", &record[VALUES]) && is_equal(packed, "cu_seqlens", &record[OFFSETS]) &&
         is_equal(packed, "max_seqlen", &record[LONGEST]);

done:
  for (int i = 0; i < record[LENGTHS].count; i++) tdict_release(items[i]);
  tdict_release(padded);
  tdict_release(packed);
  return good;
}

int main(int argc, char **argv) {
  static numbers record[LINES];
  FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
  char comment[256];
  if (!file || !fgets(comment, sizeof comment, file)) {
    fprintf(stderr, "usage: beside_sequences FILE\n");
    return 2;
  }
  int records = 0, wrong = 0;
  while (read_numbers(file, &record[0])) {
    for (int i = 1; i < LINES; i++)
      if (!read_numbers(file, &record[i])) return 2;
    records++;
    if (check_record(record)) continue;
    fprintf(stderr, "beside_sequences: record %d differs\n", records);
    wrong++;
  }
  fclose(file);
  printf("%d records of %s: %d differ\n", records, argv[1], wrong);
  return records > 0 && wrong == 0 ? 0 : 1;
}
