/* Compares tdict's value leaves and unbatched tensors with TensorDict: repeats the operations that make_leaves.py has
 * recorded. Usage: PROGRAM FILE. Exits with 0 if all results agree, with 1 after printing the first 20 differences, or
 * with 77 if FILE cannot be opened. Thread rule: one thread. */
#include "recorded.h"
#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/index.h"
#include "tdict/nontensor.h"
#include "tdict/shape.h"
#include "tdict/unbatched.h"

enum { MOST_VALUES = 4096 };

/* Makes the same tree as make() in make_leaves.py. */
static tdict_tree *make(int ndim, const int64_t *shape, int first) {
  static char texts[MOST_VALUES][16];
  const char *pointers[MOST_VALUES];
  const int64_t elements[] = {0, 1, 2, 3, 4}, five[] = {5};
  char whole[16];
  tdict_tree *td = NULL;
  scoped_tensor x = NULL, u = NULL;
  must(tdict_create(ndim, shape, &td, &error));
  const int64_t count = count_elements(td);
  for (int64_t i = 0; i < count && i < MOST_VALUES; i++) {
    snprintf(texts[i], sizeof texts[i], "%lld", (long long)(first + i));
    pointers[i] = texts[i];
  }
  snprintf(whole, sizeof whole, "w%d", first);
  must(tdict_tensor_empty(TDICT_F32, ndim, shape, NULL, &x, &error));
  must(tdict_tensor_from_array(TDICT_I64, 1, five, elements, &u, &error));
  must(tdict_set(td, "x", x, &error));
  must(tdict_set_texts(td, "s", pointers, (size_t)count, &error));
  must(tdict_set_text(td, "w", whole, &error));
  must(tdict_set_unbatched(td, "u", u, &error));
  return td;
}

/* Returns tree `wanted` and releases the others. */
static tdict_tree *keep_one(tdict_tree **trees, size_t count, int64_t wanted) {
  for (size_t i = 0; i < count; i++)
    if ((int64_t)i != wanted) tdict_release(trees[i]);
  return trees[wanted];
}

static tdict_tree *join(const tdict_tree *td, const tdict_tree *other, bool stacks, int along) {
  const tdict_tree *both[] = {td, other};
  tdict_tree *out = NULL;
  const tdict_join_options o = td_with(tdict_join_options, dim = along);
  must(stacks ? tdict_stack(both, 2, &o, NULL, &out, &error) : tdict_cat(both, 2, &o, NULL, &out, &error));
  return out;
}

/* Opens a tree that TensorDict saved, and adds the unbatched tensor, which the file lacks. */
static tdict_tree *load(const tdict_tree *td, const char *name) {
  scoped_tree opened = NULL;
  tdict_tree *out = NULL;
  tdict_tensor *u = NULL;
  must(open_recorded(name, &opened));
  must(tdict_clone(opened, &out, &error));
  must(tdict_get_unbatched(td, "u", &u, &error));
  must(tdict_set_unbatched(out, "u", u, &error));
  return out;
}

static tdict_tree *run(const tdict_tree *td, const char *name, const int64_t n[4], const int64_t *list, int count) {
  tdict_tree *out = NULL, *pieces[64] = {NULL};
  size_t num_pieces = 64;
  int64_t shape[TDICT_MAX_BATCH_NDIM];
  int order[TDICT_MAX_BATCH_NDIM];
  tdict_indices index = tdict_indices_none();
  for (int i = 0; i < n[0] && strchr("arl", name[0]); i++)
    tdict_indices_add(&index, tdict_index_of(TDICT_INDEX_RANGE, TDICT_NONE, TDICT_NONE, 1, NULL));
  if (strcmp(name, "at") == 0) {
    tdict_indices_add(&index, TDICT_AT(n[1]));
    must(tdict_index_get(NULL, td, &index, NULL, &out, &error));
  } else if (strcmp(name, "range") == 0) {
    tdict_indices_add(&index, TDICT_RANGE(n[1], n[2], n[3]));
    must(tdict_index_get(NULL, td, &index, NULL, &out, &error));
  } else if (strcmp(name, "list") == 0) {
    tdict_indices_add(&index, TDICT_LIST(list, count));
    must(tdict_index_get(NULL, td, &index, NULL, &out, &error));
  } else if (strncmp(name, "stack", 5) == 0 || strncmp(name, "cat", 3) == 0) {
    const bool is_other = name[strlen(name) - 1] == '2';
    scoped_tree other = is_other ? make(tdict_batch_ndim(td), tdict_batch_size(td), 100) : tdict_retain(td);
    out = join(td, other, name[0] == 's', (int)n[0]);
  } else if (strcmp(name, "reshape") == 0) {
    must(tdict_reshape(td, count, list, &out, &error));
  } else if (strcmp(name, "permute") == 0) {
    for (int i = 0; i < count; i++) order[i] = (int)list[i];
    must(tdict_permute(td, count, order, &out, &error));
  } else if (strcmp(name, "unsqueeze") == 0) {
    must(tdict_unsqueeze(td, (int)n[0], &out, &error));
  } else if (strcmp(name, "squeeze") == 0) {
    must(tdict_squeeze(td, TDICT_EVERY_DIM, &out, &error));
  } else if (strcmp(name, "expand") == 0) {
    shape[0] = n[0];
    for (int i = 0; i < tdict_batch_ndim(td); i++) shape[i + 1] = -1;
    must(tdict_expand(td, tdict_batch_ndim(td) + 1, shape, &out, &error));
  } else if (strcmp(name, "unbind") == 0) {
    must(tdict_unbind(td, (int)n[0], pieces, &num_pieces, &error));
    out = keep_one(pieces, num_pieces, n[1]);
  } else if (strcmp(name, "split") == 0) {
    must(tdict_split_every(td, (int)n[0], n[1], pieces, &num_pieces, &error));
    out = keep_one(pieces, num_pieces, n[2]);
  } else {
    printf("unknown operation %s\n", name);
    exit(2);
  }
  return out;
}

/* Appends a tree to `text`, in the form of dump() in make_leaves.py. */
static void dump(const tdict_tree *td) {
  static const char *const keys[] = {"s", "w"};
  const char *value = NULL;
  tdict_tensor *u = NULL;
  add("%s", tdict_batch_ndim(td) ? "" : "-");
  add_numbers(tdict_batch_ndim(td), tdict_batch_size(td));
  for (int k = 0; k < 2; k++) {
    for (int64_t i = 0; i < count_elements(td); i++) {
      must(tdict_get_text(td, keys[k], i, &value, NULL, &error));
      add("%s%s", i ? "," : " ", value);
    }
  }
  must(tdict_get_unbatched(td, "u", &u, &error));
  add(" ");
  add_numbers(tdict_tensor_numel(u), tdict_tensor_const_data(u));
}

/* Runs the operations of a line, and returns the resulting tree. */
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
    const int count_of_list = read_numbers(words[strcmp(name, "list") == 0], list);
    tdict_tree *made = NULL;
    if (!strcmp(name, "save"))
      must(save_and_open("leaves", td, words[0], &made));
    else
      made = !strcmp(name, "load") ? load(td, words[0]) : run(td, name, n, list, count_of_list);
    tdict_release(td);
    td = made;
  }
  return td;
}

int main(int argc, char **argv) {
  char *wanted;
  open_record(argc, argv, "make_leaves.py");
  for (char *line; (line = next_line(&wanted));) {
    if (!wanted) continue;
    scoped_tree td = run_line(line);
    begin_result();
    dump(td);
    compare(wanted);
  }
  return close_record();
}
