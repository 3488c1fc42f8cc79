/* Compares lazy stacks with TensorDict: repeats the operations that make_lazy_stack.py has recorded, and compares the
 * results or failures. Usage: PROGRAM FILE. Exits with 0 if all results agree, with 1 after printing the first 20
 * differences, or with 77 if FILE cannot be opened. Thread rule: one thread. */
#include "recorded.h"
#include "tdict/lazy_stack.h"
#include "tdict/view.h"

enum { MOST_KNOWN = 64, MOST_WORDS = 64, MOST_ITEMS = 16 };

static tdict_tree *known[MOST_KNOWN]; /* all items of the episode, retained */
static size_t num_known;
static tdict_lazy_stack *stack;
static int batch_ndim;
static int64_t batch_size[TDICT_MAX_BATCH_NDIM];

/* Appends a tensor to `text`, in the form of tensor() in make_lazy_stack.py. */
static void add_tensor(tdict_tensor *t) {
  scoped_tensor dense = NULL;
  must(tdict_tensor_contiguous(t, &dense, &error));
  add("(");
  add_numbers(tdict_tensor_ndim(dense), tdict_tensor_shape(dense));
  add(")");
  add_numbers(tdict_tensor_numel(dense), tdict_tensor_const_data(dense));
}

typedef struct paths {
  char path[32][32];
  size_t count;
} paths;
static int compare_paths(const void *a, const void *b) { return strcmp(a, b); }
static void note_path(paths *all, const char *path) {
  if (all->count == 32) exit(2);
  snprintf(all->path[all->count++], sizeof all->path[0], "%s", path);
}
static tdict_status note_leaf(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)err;
  if (entry->tensor) note_path(user, entry->path);
  return TDICT_OK;
}
static tdict_status note_common(void *user, const tdict_lazy_entry *entry, tdict_error *err) {
  (void)err;
  note_path(user, entry->path);
  return TDICT_OK;
}

static void add_leaves(const tdict_tree *td) {
  paths all = {.count = 0};
  must(tdict_walk(td, note_leaf, &all, &error));
  qsort(all.path, all.count, sizeof all.path[0], compare_paths);
  for (size_t i = 0; i < all.count; i++) {
    tdict_tensor *t = NULL;
    must(tdict_get(td, all.path[i], &t, &error));
    add("%s%s=", i ? " " : "", all.path[i]);
    add_tensor(t);
  }
}

static tdict_tree *item_at(const tdict_lazy_stack *s, size_t i) {
  tdict_tree *item = NULL;
  must(tdict_lazy_stack_get_item(s, (int64_t)i, &item, &error));
  return item;
}
static size_t count_of(const tdict_lazy_stack *s) { return (size_t)tdict_lazy_stack_get_batch_size(s, NULL)[0]; }
static void add_all_leaves(const tdict_lazy_stack *s) {
  for (size_t i = 0; i < count_of(s); i++) {
    add("%s", i ? " ; " : "");
    add_leaves(item_at(s, i));
  }
}
static void add_order(const tdict_lazy_stack *s) {
  for (size_t i = 0; i < count_of(s); i++) {
    int64_t k = 0;
    while (known[k] != item_at(s, i)) k++;
    add("%s%" PRId64, i ? "," : "", k);
  }
}

/* Makes an item from words such as n.x=5:2,3, and keeps a reference to it. */
static tdict_tree *new_item(int ndim, const int64_t *batch, char **words) {
  tdict_tree *item = NULL;
  if (num_known == MOST_KNOWN || tdict_create(ndim, batch, &item, NULL) != TDICT_OK) exit(2);
  for (; *words; words++) {
    char *value = strchr(*words, '='), *more = strchr(value, ':');
    int64_t shape[TDICT_MAX_NDIM];
    for (int d = 0; d < ndim; d++) shape[d] = batch[d];
    *value = 0;
    scoped_tensor t = new_tensor(strtoll(value + 1, NULL, 10), ndim + read_numbers(more + 1, shape + ndim), shape);
    must(tdict_set(item, *words, t, &error));
  }
  known[num_known++] = item;
  return item;
}

static void reset(void) {
  tdict_lazy_stack_release(stack);
  stack = NULL;
  while (num_known) tdict_release(known[--num_known]);
}

/* Stores the tensor of each item at `path` in `list`. */
static tdict_status list_tensors(const char *path, tdict_tensor *list[MOST_ITEMS]) {
  tdict_status status = count_of(stack) <= MOST_ITEMS ? TDICT_OK : TDICT_EINVAL;
  for (size_t i = 0; i < count_of(stack) && status == TDICT_OK; i++)
    status = tdict_get(item_at(stack, i), path, &list[i], &error);
  return status;
}

/* Appends the common shape of the items' tensors at a path to `text`. A size that differs becomes -1. */
static tdict_status run_shape(const char *path) {
  tdict_tensor *list[MOST_ITEMS];
  int64_t shape[TDICT_MAX_NDIM + 1] = {(int64_t)count_of(stack)};
  tdict_status status = list_tensors(path, list);
  if (status != TDICT_OK) return status;
  const int ndim = tdict_tensor_ndim(list[0]);
  for (int d = 0; d < ndim; d++) shape[d + 1] = tdict_tensor_shape(list[0])[d];
  for (size_t i = 1; i < count_of(stack); i++) {
    if (tdict_tensor_ndim(list[i]) != ndim) return TDICT_ESHAPE;
    for (int d = 0; d < ndim; d++)
      if (tdict_tensor_shape(list[i])[d] != tdict_tensor_shape(list[0])[d]) shape[d + 1] = -1;
  }
  add_numbers(ndim + 1, shape);
  return TDICT_OK;
}

static tdict_status run_list(const char *path) {
  tdict_tensor *list[MOST_ITEMS];
  tdict_status status = list_tensors(path, list);
  for (size_t i = 0; status == TDICT_OK && i < count_of(stack); i++) {
    add("%s", i ? " " : "");
    add_tensor(list[i]);
  }
  return status;
}

/* Makes a stack of the items at `places`, and appends their order to `text`. */
static tdict_status run_pick(const int64_t *places, size_t count) {
  tdict_tree *items[MOST_WORDS];
  scoped_lazy_stack some = NULL;
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++)
    status = tdict_lazy_stack_get_item(stack, places[i], &items[i], &error);
  if (status == TDICT_OK) status = tdict_lazy_stack_create(items, count, &some, &error);
  if (status == TDICT_OK) add_order(some);
  return status;
}

/* Converts a bound of a Python slice to a position from 0 to the number of items. "-" means `otherwise`. */
static int64_t bound_of(const char *word, int64_t otherwise) {
  const int64_t count = (int64_t)count_of(stack);
  int64_t place = strcmp(word, "-") != 0 ? strtoll(word, NULL, 10) : otherwise;
  if (place < 0) place += count;
  return place < 0 ? 0 : place > count ? count : place;
}

static tdict_status run_range(char **words) {
  int64_t places[MOST_WORDS];
  const int64_t end = bound_of(words[1], (int64_t)count_of(stack));
  size_t count = 0;
  for (int64_t i = bound_of(words[0], 0); i < end && count < MOST_WORDS; i++) places[count++] = i;
  return run_pick(places, count);
}

static tdict_status run_set(char **words) {
  int64_t shape[TDICT_MAX_NDIM];
  scoped_tensor t = new_tensor(strtoll(words[2], NULL, 10), read_numbers(words[3], shape), shape);
  tdict_status status = tdict_lazy_stack_set(stack, words[1], t, &error);
  if (status == TDICT_OK) add_all_leaves(stack);
  return status;
}

static tdict_status run_add(char **words, const char *place) {
  int64_t batch[TDICT_MAX_BATCH_NDIM];
  tdict_tree *item = new_item(read_numbers(words[0], batch), batch, words + 1);
  const int64_t at = place ? strtoll(place, NULL, 10) : (int64_t)count_of(stack);
  tdict_status status = tdict_lazy_stack_insert(stack, at, item, &error);
  if (status == TDICT_OK)
    add_order(stack);
  else
    tdict_release(known[--num_known]);
  return status;
}

/* Pads the tensors at a path. Uses a stack of only these tensors, so that other keys cannot make the call fail. */
static tdict_status run_pad(const char *path, double padding) {
  tdict_tensor *list[MOST_ITEMS], *t = NULL;
  tdict_tree *items[MOST_ITEMS];
  scoped_tree padded = NULL;
  scoped_lazy_stack alone = NULL;
  const size_t count = count_of(stack);
  tdict_status status = list_tensors(path, list);
  if (status != TDICT_OK) return status;
  for (size_t i = 0; i < count; i++) {
    must(tdict_create(batch_ndim, batch_size, &items[i], &error));
    must(tdict_set(items[i], "t", list[i], &error));
  }
  must(tdict_lazy_stack_create(items, count, &alone, &error));
  const tdict_lazy_pad_options o = td_with(tdict_lazy_pad_options, value = padding);
  status = tdict_lazy_stack_pad(alone, &o, &padded, &error);
  if (status == TDICT_OK) status = tdict_get(padded, "t", &t, &error);
  if (status == TDICT_OK) add_tensor(t);
  for (size_t i = 0; i < count; i++) tdict_release(items[i]);
  return status;
}

static tdict_status run_whole(char **words) {
  tdict_status status;
  if (strcmp(words[0], "keys") == 0) {
    paths all = {.count = 0};
    status = tdict_lazy_stack_walk(stack, note_common, &all, &error);
    qsort(all.path, all.count, sizeof all.path[0], compare_paths);
    for (size_t i = 0; i < all.count; i++) {
      add("%s%s", i ? " " : "", all.path[i]);
    }
  } else if (strcmp(words[0], "dense") == 0) {
    scoped_tree dense = NULL;
    status = tdict_lazy_stack_densify(stack, NULL, NULL, &dense, &error);
    if (status == TDICT_OK) add_leaves(dense);
  } else {
    scoped_lazy_stack nested = NULL;
    status = tdict_lazy_stack_get_tree(stack, words[1], &nested, &error);
    if (status == TDICT_OK) add_all_leaves(nested);
  }
  return status;
}

static tdict_status run_get(const char *path) {
  scoped_tensor t = NULL;
  tdict_status status = tdict_lazy_stack_get(stack, path, NULL, &t, &error);
  if (status == TDICT_OK) add_tensor(t);
  return status;
}

static tdict_status run_lock(const char *place) {
  tdict_tree *item;
  for (size_t i = 0; i < count_of(stack); i++) {
    tdict_status status =
        tdict_lazy_stack_get_item(stack, place ? strtoll(place, NULL, 10) : (int64_t)i, &item, &error);
    if (status == TDICT_OK && place) tdict_lock(item);
    if (status == TDICT_OK && !place) status = tdict_unlock(item, &error);
    if (status != TDICT_OK) return status;
  }
  return TDICT_OK;
}

static tdict_status run(char **words) {
  const char *name = words[0];
  int64_t numbers[MOST_WORDS];
  if (strcmp(name, "shape") == 0) return run_shape(words[1]);
  if (strcmp(name, "get") == 0) return run_get(words[1]);
  if (strcmp(name, "list") == 0) return run_list(words[1]);
  if (strcmp(name, "range") == 0) return run_range(words + 1);
  if (strcmp(name, "pick") == 0) return run_pick(numbers, (size_t)read_numbers(words[1], numbers));
  if (strcmp(name, "set") == 0) return run_set(words);
  if (strcmp(name, "append") == 0) return run_add(words + 1, NULL);
  if (strcmp(name, "insert") == 0) return run_add(words + 2, words[1]);
  if (strcmp(name, "lock") == 0) return run_lock(words[1]);
  if (strcmp(name, "unlock") == 0) return run_lock(NULL);
  if (strcmp(name, "pad") == 0) return run_pad(words[1], strtod(words[2], NULL));
  return run_whole(words);
}

/* Begins an episode or adds one of its first items. Returns false for other lines. */
static bool prepare(char **words) {
  if (strcmp(words[0], "reset") == 0) {
    reset();
    batch_ndim = read_numbers(words[1], batch_size);
    return true;
  }
  if (strcmp(words[0], "item") != 0) return false;
  tdict_tree *item = new_item(batch_ndim, batch_size, words + 1);
  tdict_status status = stack ? tdict_lazy_stack_insert(stack, (int64_t)count_of(stack), item, &error)
                              : tdict_lazy_stack_create(&item, 1, &stack, &error);
  if (status != TDICT_OK) exit(2);
  return true;
}

int main(int argc, char **argv) {
  char *wanted;
  open_record(argc, argv, "make_lazy_stack.py");
  for (char *line; (line = next_line(&wanted));) {
    char *words[MOST_WORDS];
    int count = 0;
    for (char *word = strtok(line, " "); word && count < MOST_WORDS - 1; word = strtok(NULL, " "))
      words[count++] = word;
    words[count] = NULL;
    if (count == 0 || prepare(words)) continue;
    begin_result();
    if (run(words) != TDICT_OK) snprintf(text, sizeof text, "fails");
    compare(wanted ? wanted : text);
  }
  reset();
  return close_record();
}
