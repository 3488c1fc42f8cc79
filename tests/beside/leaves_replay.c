/* Holds leaves of values and unbatched tensors against what the real TensorDict did: does the operations of a file that
 * make_leaves.py wrote. usage: PROGRAM FILE; answers 0, 1 with each difference on a line, or 77 when there is no such
 * file. Thread rule: one thread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/index.h"
#include "tdict/io.h"
#include "tdict/nontensor.h"
#include "tdict/shape.h"
#include "tdict/tdict.h"
#include "tdict/unbatched.h"

enum { MOST_VALUES = 4096, MOST_TEXT = 1 << 16 };
static tdict_error error;
static char files[512]; /* the folder of TensorDict's files */

static void need(tdict_status status, const char *what) {
  if (status == TDICT_OK) return;
  printf("%s: %s: %s\n", what, tdict_status_name(status), error.message);
  exit(1);
}
#define NEED(call) need((call), #call)

static int read_numbers(const char *word, int64_t *out) {
  int count = 0;
  for (char *end; *word >= '0' && *word <= '9'; word = *end == ',' ? end + 1 : end)
    out[count++] = strtoll(word, &end, 10);
  return count;
}

static int64_t count_elements(const tdict_tree *td) {
  int64_t count = 1;
  for (int i = 0; i < tdict_batch_ndim(td); i++) count *= tdict_batch_size(td)[i];
  return count;
}

/* The tree that make() of make_leaves.py makes. */
static tdict_tree *make(int ndim, const int64_t *shape, int first) {
  static char texts[MOST_VALUES][16];
  const char *pointers[MOST_VALUES];
  const int64_t elements[] = {0, 1, 2, 3, 4}, five[] = {5};
  char whole[16];
  tdict_tree *td = NULL;
  tdict_tensor *x = NULL, *u = NULL;
  NEED(tdict_create(ndim, shape, &td, &error));
  const int64_t count = count_elements(td);
  for (int64_t i = 0; i < count && i < MOST_VALUES; i++) {
    snprintf(texts[i], sizeof texts[i], "%lld", (long long)(first + i));
    pointers[i] = texts[i];
  }
  snprintf(whole, sizeof whole, "w%d", first);
  NEED(tdict_tensor_empty(TDICT_F32, ndim, shape, NULL, &x, &error));
  NEED(tdict_tensor_from_array(TDICT_I64, 1, five, elements, &u, &error));
  NEED(tdict_set(td, "x", x, &error));
  NEED(tdict_set_texts(td, "s", pointers, (size_t)count, &error));
  NEED(tdict_set_text(td, "w", whole, &error));
  NEED(tdict_set_unbatched(td, "u", u, &error));
  tdict_tensor_release(x);
  tdict_tensor_release(u);
  return td;
}

/* Keeps tree `wanted` of several. */
static tdict_tree *keep_one(tdict_tree **trees, size_t count, int64_t wanted) {
  for (size_t i = 0; i < count; i++)
    if ((int64_t)i != wanted) tdict_release(trees[i]);
  return trees[wanted];
}

static tdict_tree *join(const tdict_tree *td, const tdict_tree *other, bool stacks, int dim) {
  const tdict_tree *both[] = {td, other};
  tdict_tree *out = NULL;
  tdict_join_options o = tdict_join_options_default();
  o.dim = dim;
  NEED(stacks ? tdict_stack(both, 2, &o, NULL, &out, &error) : tdict_cat(both, 2, &o, NULL, &out, &error));
  return out;
}

/* Saves and opens a tree. */
static tdict_tree *save(const tdict_tree *td, const char *format) {
  static const char *const formats[] = {"safetensors", "memmap", "td", "tdz"};
  static const int32_t values[] = {TDICT_FORMAT_SAFETENSORS, TDICT_FORMAT_MEMMAP, TDICT_FORMAT_CONSOLIDATED,
                                   TDICT_FORMAT_TDZ};
  char path[600];
  tdict_tree *out = NULL;
  tdict_save_options o = tdict_save_options_default();
  for (int i = 0; i < 4; i++)
    if (!strcmp(format, formats[i])) o.format = values[i];
  snprintf(path, sizeof path, "leaves.saved.%s", format); /* in the working directory */
  NEED(tdict_save(NULL, path, td, &o, &error));
  NEED(tdict_open(path, NULL, &out, &error));
  return out;
}

/* Opens a tree that TensorDict saved, which lacks the unbatched tensor. */
static tdict_tree *load(const tdict_tree *td, const char *name) {
  char path[600];
  tdict_tree *opened = NULL, *out = NULL;
  tdict_tensor *u = NULL;
  snprintf(path, sizeof path, "%s/%s", files, name);
  NEED(tdict_open(path, NULL, &opened, &error));
  NEED(tdict_clone(opened, &out, &error));
  NEED(tdict_get_unbatched(td, "u", &u, &error));
  NEED(tdict_set_unbatched(out, "u", u, &error));
  tdict_release(opened);
  return out;
}

static tdict_tree *run(const tdict_tree *td, const char *name, const int64_t n[4], const int64_t *list, int length) {
  tdict_tree *out = NULL, *pieces[64] = {NULL};
  size_t num_pieces = 64;
  int64_t shape[TDICT_MAX_BATCH_NDIM];
  int order[TDICT_MAX_BATCH_NDIM];
  tdict_indices index = tdict_indices_none();
  for (int i = 0; i < n[0] && strchr("arl", name[0]); i++)
    tdict_indices_add(&index, tdict_index_of(TDICT_INDEX_RANGE, TDICT_NONE, TDICT_NONE, 1, NULL));
  if (strcmp(name, "at") == 0) {
    tdict_indices_add(&index, TDICT_AT(n[1]));
    NEED(tdict_index_get(NULL, td, &index, NULL, &out, &error));
  } else if (strcmp(name, "range") == 0) {
    tdict_indices_add(&index, TDICT_RANGE(n[1], n[2], n[3]));
    NEED(tdict_index_get(NULL, td, &index, NULL, &out, &error));
  } else if (strcmp(name, "list") == 0) {
    tdict_indices_add(&index, TDICT_LIST(list, length));
    NEED(tdict_index_get(NULL, td, &index, NULL, &out, &error));
  } else if (strncmp(name, "stack", 5) == 0 || strncmp(name, "cat", 3) == 0) {
    const bool is_other = name[strlen(name) - 1] == '2';
    tdict_tree *other = is_other ? make(tdict_batch_ndim(td), tdict_batch_size(td), 100) : tdict_retain(td);
    out = join(td, other, name[0] == 's', (int)n[0]);
    tdict_release(other);
  } else if (strcmp(name, "reshape") == 0) {
    NEED(tdict_reshape(td, length, list, &out, &error));
  } else if (strcmp(name, "permute") == 0) {
    for (int i = 0; i < length; i++) order[i] = (int)list[i];
    NEED(tdict_permute(td, length, order, &out, &error));
  } else if (strcmp(name, "unsqueeze") == 0) {
    NEED(tdict_unsqueeze(td, (int)n[0], &out, &error));
  } else if (strcmp(name, "squeeze") == 0) {
    NEED(tdict_squeeze(td, TDICT_EVERY_DIM, &out, &error));
  } else if (strcmp(name, "expand") == 0) {
    shape[0] = n[0];
    for (int i = 0; i < tdict_batch_ndim(td); i++) shape[i + 1] = -1;
    NEED(tdict_expand(td, tdict_batch_ndim(td) + 1, shape, &out, &error));
  } else if (strcmp(name, "unbind") == 0) {
    NEED(tdict_unbind(td, (int)n[0], pieces, &num_pieces, &error));
    out = keep_one(pieces, num_pieces, n[1]);
  } else if (strcmp(name, "split") == 0) {
    NEED(tdict_split_every(td, (int)n[0], n[1], pieces, &num_pieces, &error));
    out = keep_one(pieces, num_pieces, n[2]);
  } else {
    printf("unknown operation %s\n", name);
    exit(2);
  }
  return out;
}

/* As dump() of make_leaves.py writes it. */
static void dump(const tdict_tree *td, char *text) {
  static const char *const keys[] = {"s", "w"};
  const char *value = NULL;
  tdict_tensor *u = NULL;
  text += sprintf(text, "%s", tdict_batch_ndim(td) ? "" : "-");
  for (int i = 0; i < tdict_batch_ndim(td); i++)
    text += sprintf(text, "%s%lld", i ? "," : "", (long long)tdict_batch_size(td)[i]);
  for (int k = 0; k < 2; k++) {
    for (int64_t i = 0; i < count_elements(td); i++) {
      NEED(tdict_get_text(td, keys[k], i, &value, NULL, &error));
      text += sprintf(text, "%s%s", i ? "," : " ", value);
    }
  }
  NEED(tdict_get_unbatched(td, "u", &u, &error));
  for (int64_t i = 0; i < tdict_tensor_numel(u); i++)
    text += sprintf(text, "%s%lld", i ? "," : " ", (long long)((const int64_t *)tdict_tensor_const_data(u))[i]);
}

/* Does the operations of a line. */
static tdict_tree *run_line(char *line) {
  int64_t shape[8];
  char *rest = NULL;
  char *part = strtok_r(line, ";", &rest);
  tdict_tree *td = make(read_numbers(part, shape), shape, 0);
  while ((part = strtok_r(NULL, ";", &rest)) != NULL) {
    char name[16] = "", words[4][64] = {"", "", "", ""};
    int64_t n[4] = {0}, list[16] = {0};
    int count = sscanf(part, " %15s %63s %63s %63s %63s", name, words[0], words[1], words[2], words[3]) - 1;
    for (int i = 0; i < count; i++) n[i] = strtoll(words[i], NULL, 10);
    const int length = read_numbers(words[strcmp(name, "list") == 0], list);
    tdict_tree *made = !strcmp(name, "save")   ? save(td, words[0])
                       : !strcmp(name, "load") ? load(td, words[0])
                                               : run(td, name, n, list, length);
    tdict_release(td);
    td = made;
  }
  return td;
}

int main(int argc, char **argv) {
  FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
  static char line[MOST_TEXT], copy[MOST_TEXT], text[MOST_TEXT];
  long lines = 0, differences = 0;
  if (file) snprintf(files, sizeof files, "%s.files", argv[1]);
  if (!file) return printf("skipped: no file of operations; tests/beside/make_leaves.py makes one\n"), 77;
  while (fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    char *bar = strstr(line, " | ");
    if (*line == '#' || !bar) continue;
    *bar = 0;
    memcpy(copy, line, sizeof copy);
    tdict_tree *td = run_line(line);
    dump(td, text);
    tdict_release(td);
    lines++;
    if (strcmp(text, bar + 3) == 0) continue;
    if (++differences <= 20) printf("%s\n  TensorDict: %.300s\n  tdict:      %.300s\n", copy, bar + 3, text);
  }
  fclose(file);
  printf("%ld chains, %ld differences\n", lines, differences);
  return differences != 0 || lines == 0;
}
