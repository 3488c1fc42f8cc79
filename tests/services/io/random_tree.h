/* Makes random trees with every kind of leaf that a file can hold. Thread rule: one thread. */
#ifndef TDICT_TESTS_SERVICES_IO_RANDOM_TREE_H
#define TDICT_TESTS_SERVICES_IO_RANDOM_TREE_H

#include "files.h"

/* Each string is the escaped path of one key. */
static const char *const odd_keys[] = {"a\\.b",  "sp ace", "q\"uote", "back\\\\slash", "t\tab", "é漢", "/",
                                       "\\.\\.", "{",      "x"};
enum { NUM_ODD_KEYS = sizeof odd_keys / sizeof *odd_keys };
/* The keys of random_tree(). A test may choose other keys. */
static const char *const *tree_keys = odd_keys;
static size_t num_tree_keys = NUM_ODD_KEYS;
/* Keys that some formats refuse or reserve. */
static const char *const rare_keys[] = {
    "shape",
    "device",
    "_type",
    "meta\\.json",
    "x\\.memmap",
    "\\.meta\\.json\\.append\\.tmp",
    "cls",
    "leaves",
    "size",
    "non_tensors",
    "cls_metadata",
    "<NJT_VALUES>x",
    "<NJT>",
    "0",
    "1",
    "tensordict",
    "__metadata__",
    "\xff",
    "new\nline",
    "\\.hidden",
    "end\\.",
    "two\\.\\.dots",
    "\\.",
    "_tensordict",
    "td",
    "keys",
    "\xf0\x9f\xa6\x94",
    "%",
    "%41",
    "\x7f",
    "n23456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
    "n23456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
    "n2345678901234567890123456789012345678901234567"};
enum { NUM_RARE_KEYS = sizeof rare_keys / sizeof *rare_keys };
static bool uses_rare_keys; /* random_tree() sometimes uses a rare key */
static inline const char *random_key(dice *d) {
  if (uses_rare_keys && roll(d, 24) == 0) return rare_keys[roll(d, NUM_RARE_KEYS)];
  return tree_keys[roll(d, num_tree_keys)];
}

static inline void add_random_value(dice *d, tdict_tree *tree, const char *path) {
  static const double reals[] = {0.1, 1, -0.0, 1e300, 5e-324, 123456789.125};
  static const char *const texts[] = {"", "text", "é\"\\\n\x01", "null"};
  static const char *const jsons[] = {"[1,2.5,\"x\",null,[true]]", "{\"a\":{\"b\":[]},\"c\":-7}", "{}"};
  tdict_value v[12];
  int64_t count = 1;
  memset(v, 0, sizeof v);
  for (int i = 0; i < tdict_batch_ndim(tree); i++) count *= tdict_batch_size(tree)[i];
  const bool is_column = roll(d, 2) && count <= 12;
  for (int64_t i = 0; i < (is_column ? count : 1); i++) {
    v[i].kind = (int32_t)roll(d, 6);
    v[i].integer =
        v[i].kind == TDICT_VALUE_BOOL ? (int64_t)roll(d, 2) : (int64_t)(roll(d, 1u << 30) << 30) - (1ll << 58);
    if (v[i].kind != TDICT_VALUE_BOOL && v[i].kind != TDICT_VALUE_INTEGER) v[i].integer = 0;
    if (v[i].kind == TDICT_VALUE_REAL) v[i].real = reals[roll(d, 6)];
    if (v[i].kind == TDICT_VALUE_TEXT) v[i].text = texts[roll(d, 4)];
    if (v[i].kind == TDICT_VALUE_JSON) v[i].text = jsons[roll(d, 3)];
    if (v[i].text) v[i].length = strlen(v[i].text);
    if (v[i].kind == TDICT_VALUE_TEXT && roll(d, 4) == 0) v[i].length++; /* the final 0 byte is part of the text */
  }
  if (is_column)
    td_ok(tdict_set_values(tree, path, v, (size_t)count, err));
  else
    td_ok(tdict_set_values(tree, path, &v[0], TDICT_WHOLE_TREE, err));
}

static inline void add_random_ragged(dice *d, tdict_tree *tree, const char *path) {
  const int64_t rows = tdict_batch_ndim(tree) ? tdict_batch_size(tree)[0] : (int64_t)roll(d, 4);
  scoped_tensor values = NULL, offsets = NULL;
  int64_t at[16] = {0};
  if (tdict_batch_ndim(tree) > 1 || rows > 14) return;
  for (int64_t i = 0; i < rows; i++) at[i + 1] = at[i] + (int64_t)roll(d, 4);
  td_ok(tdict_tensor_from_array(TDICT_I64, TDICT_SHAPE(rows + 1), at, &offsets, err));
  values = random_tensor(d, TDICT_F32, 1, &at[rows]);
  scoped_ragged ragged = td_made(ragged, tdict_ragged_create(values, offsets, &made, err));
  td_ok(tdict_set_ragged(tree, path, ragged, err));
}

static inline tdict_tree *random_tree(dice *d, int batch_ndim, const int64_t *batch_size, int depth) {
  tdict_tree *tree = td_made(tree, tdict_create(batch_ndim, batch_size, &made, err));
  const int count = (int)roll(d, 8);
  for (int i = 0; i < count; i++) {
    const char *key = random_key(d);
    const uint64_t kind = roll(d, depth < 4 ? 8 : 6);
    if (kind < 4) {
      scoped_tensor t = random_tensor(d, file_dtypes[roll(d, NUM_FILE_DTYPES)], kind < 3 ? batch_ndim : 0, batch_size);
      td_ok(kind < 3 ? tdict_set(tree, key, t, err) : tdict_set_unbatched(tree, key, t, err));
    } else if (kind == 4) {
      add_random_value(d, tree, key);
    } else if (kind == 5) {
      add_random_ragged(d, tree, key);
    } else {
      int64_t sizes[4];
      int ndim = batch_ndim;
      if (batch_ndim) memcpy(sizes, batch_size, (size_t)batch_ndim * sizeof *sizes);
      if (ndim < 3 && roll(d, 2)) sizes[ndim++] = (int64_t)roll(d, 3);
      scoped_tree child = random_tree(d, ndim, sizes, depth + 1);
      td_ok(tdict_set_tree(tree, key, child, err));
    }
  }
  return tree;
}

#endif
