/* Compares tdict with TensorDict: repeats the operations that make_operations.py has recorded, and compares the results
 * or failures. Usage: PROGRAM FILE. Exits with 0 if all results agree, with 1 after printing the first 20 differences,
 * or with 77 if FILE cannot be opened. Thread rule: one thread. */
#include "recorded.h"
#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/keysets.h"
#include "tdict/nontensor.h"
#include "tdict/path.h"
#include "tdict/shape.h"
#include "tdict/visit.h"
#include "tdict/write.h"

enum { POOL = 4, MOST_WORDS = 64, MOST_MADE = 512, MOST_TEXTS = 4096 };

static tdict_tree *pool[POOL];
static tdict_tree *made[MOST_MADE]; /* the results of the operation; this array owns them */
static size_t num_made;

static void add_elements(const tdict_tensor *t) {
  const int64_t *strides = tdict_tensor_strides(t), *data = tdict_tensor_const_data(t);
  int64_t at[TDICT_MAX_NDIM] = {0};
  int ndim = tdict_tensor_ndim(t);
  for (int64_t i = 0; i < tdict_tensor_numel(t); i++) {
    int64_t offset = 0;
    for (int d = 0; d < ndim; d++) offset += at[d] * strides[d];
    add("%s%" PRId64, i ? "," : "", data[offset]);
    for (int d = ndim - 1; d >= 0 && ++at[d] == tdict_tensor_shape(t)[d]; d--) at[d] = 0;
  }
}

/* Appends the texts of a leaf to `text`. If all are equal, appends only one. */
static void add_texts(const tdict_tree *td, const char *path) {
  const char *first = NULL, *value = NULL;
  int64_t count = 0;
  bool equal = true;
  for (; tdict_get_text(td, path, count, &value, NULL, NULL) == TDICT_OK; count++) {
    if (!first) first = value;
    equal = equal && strcmp(first, value) == 0;
  }
  add("\"");
  for (int64_t i = 0; i < (equal && count ? 1 : count); i++) {
    must(tdict_get_text(td, path, i, &value, NULL, &error));
    add("%s%s", i ? "," : "", value);
  }
  add("\"");
}

/* Appends a tree to `text`, in the form of dump() in common.py. */
static void add_tree(const tdict_tree *td) {
  add("{[");
  add_numbers(tdict_batch_ndim(td), tdict_batch_size(td));
  add("]");
  for (size_t i = 0; i < tdict_num_keys(td); i++) {
    char path[128];
    tdict_tensor *t = NULL;
    tdict_tree *child = NULL;
    tdict_path_escape(tdict_get_entry_at(td, i).key, path, sizeof path);
    add("%s%s:", i ? ";" : "", tdict_get_entry_at(td, i).key);
    if (tdict_get_tree(td, path, &child, NULL) == TDICT_OK) {
      add_tree(child);
    } else if (tdict_get(td, path, &t, &error) == TDICT_OK) {
      add("(");
      add_numbers(tdict_tensor_ndim(t), tdict_tensor_shape(t));
      add(")");
      add_elements(t);
    } else {
      add_texts(td, path);
    }
  }
  add("}");
}

static tdict_status set_new(tdict_tree *td, const char *path, tdict_tensor *made_for_it) {
  scoped_tensor t = made_for_it;
  return tdict_set(td, path, t, &error);
}

/* Sets a column of the texts t<base>, t<base + 1> and so on. In a tree without batch dimensions, sets one text. */
static tdict_status set_column(tdict_tree *td, const char *path, int64_t base, int64_t count) {
  static char texts[MOST_TEXTS][24];
  const char *pointers[MOST_TEXTS];
  if (count > MOST_TEXTS) exit(2);
  for (int64_t i = 0; i < count; i++) {
    snprintf(texts[i], sizeof texts[i], "t%" PRId64, base + i);
    pointers[i] = texts[i];
  }
  return tdict_set_texts(td, path, pointers, (size_t)count, &error);
}

/* Sets the text that `word` describes at a path: `~w5` is a text for the whole tree, and `~t5` a column. */
static tdict_status set_word(tdict_tree *td, const char *path, const char *word) {
  scoped_tree node = tdict_retain(td);
  tdict_tree *child = NULL;
  char above[128];
  if (word[1] == 'w') return tdict_set_text(td, path, word + 1, &error);
  for (size_t i = 0; path[i]; i++) { /* find the tree of the column, because its batch size gives the number of texts */
    if (path[i] == '\\') i++;
    if (path[i] != '.' || path[i - 1] == '\\') continue;
    snprintf(above, sizeof above, "%.*s", (int)i, path);
    if (tdict_get_tree(td, above, &child, NULL) != TDICT_OK) break;
    tdict_release(node);
    node = tdict_retain(child);
  }
  return set_column(td, path, strtoll(word + 2, NULL, 10), count_elements(node));
}

/* Replaces each text of a tree with a new column. */
static void renumber_texts(tdict_tree *td, int64_t *next) {
  for (size_t i = 0; i < tdict_num_keys(td); i++) {
    char path[128];
    tdict_tensor *t = NULL;
    tdict_tree *child = NULL;
    tdict_path_escape(tdict_get_entry_at(td, i).key, path, sizeof path);
    const int64_t count = count_elements(td);
    if (tdict_get_tree(td, path, &child, NULL) == TDICT_OK) {
      renumber_texts(child, next);
    } else if (tdict_get(td, path, &t, NULL) != TDICT_OK) {
      must(set_column(td, path, *next, count));
      *next += count ? count : 1;
    }
  }
}

static tdict_status number_leaf(void *user, const tdict_leaves *at, tdict_error *err) {
  int64_t *next = user, *data = tdict_tensor_data(at->tensors[0]);
  (void)err;
  for (int64_t i = 0; i < tdict_tensor_numel(at->tensors[0]); i++) data[i] = (*next)++;
  return TDICT_OK;
}
/* Returns a copy of a tree without some keys. Its elements are base, base + 1 and so on, in the order of a walk. */
static tdict_tree *renumbered(const tdict_tree *td, int64_t base, char *const *without, int count) {
  tdict_tree *copy = NULL;
  must(tdict_clone_deep(td, NULL, &copy, &error));
  for (int i = 0; i < count; i++) must(tdict_delete(copy, without[i], &error));
  must(tdict_visit(NULL, (const tdict_tree *const *)&copy, 1, number_leaf, &base, NULL, &error));
  return copy;
}

enum { MOST_LISTS = 16 };
static tdict_tensor *masks[MOST_LISTS];
static int64_t positions[MOST_LISTS][16];
static tdict_indices read_index(char **words, int count) {
  tdict_indices all = tdict_indices_none();
  for (int i = 0; i < count && i < MOST_LISTS; i++) {
    int64_t n[16];
    const char *word = words[i];
    if (*word == 'A') tdict_indices_add(&all, TDICT_AT(strtoll(word + 1, NULL, 10)));
    if (*word == 'N') tdict_indices_add(&all, TDICT_NEW_AXIS);
    if (*word == 'E') tdict_indices_add(&all, TDICT_REST);
    if (*word == 'R') {
      read_numbers(word + 1, n);
      tdict_indices_add(&all, TDICT_RANGE(n[0], n[1], n[2]));
    }
    if (*word == 'L') tdict_indices_add(&all, TDICT_LIST(positions[i], read_numbers(word + 1, positions[i])));
    if (*word == 'M') {
      const int64_t shape[1] = {(int64_t)strlen(word) - 1};
      must(tdict_tensor_zeros(TDICT_BOOL, 1, shape, NULL, &masks[i], &error));
      for (int64_t k = 0; k < shape[0]; k++) ((char *)tdict_tensor_data(masks[i]))[k] = word[1 + k] == '1';
      tdict_indices_add(&all, TDICT_MASK(masks[i]));
    }
  }
  return all;
}

static tdict_status do_new(char **w, int n) {
  int64_t shape[16];
  tdict_tree *td = NULL;
  int nb = read_numbers(w[2], shape);
  must(tdict_create(nb, shape, &td, &error));
  for (int i = 3; i < n; i++) {
    char *base = strrchr(w[i], '='), *more = strchr(base, ':');
    *base = 0;
    if (base[1] == '~') {
      must(set_word(td, w[i], base + 1));
      continue;
    }
    int ndim = nb + read_numbers(more + 1, shape + nb);
    must(set_new(td, w[i], new_tensor(strtoll(base + 1, NULL, 10), ndim, shape)));
  }
  made[num_made++] = td;
  return TDICT_OK;
}

/* Runs an operation that makes trees. `td` is the source; the arguments begin at w[3]. */
static tdict_status do_shape(const char *op, const tdict_tree *td, char **w, int n) {
  int64_t c[16];
  int order[16], a = n > 3 ? atoi(w[3]) : 0, b = n > 4 ? atoi(w[4]) : 0;
  tdict_tree **out = &made[0];
  size_t count = MOST_MADE;
  tdict_status status = TDICT_EINVAL;
  if (!strcmp(op, "index")) {
    const tdict_indices index = read_index(w + 3, n - 3);
    status = tdict_index_get(NULL, td, &index, NULL, out, &error);
  }
  if (!strcmp(op, "view")) status = tdict_reshape_view(td, read_numbers(w[3], c), c, out, &error);
  if (!strcmp(op, "reshape")) status = tdict_reshape(td, read_numbers(w[3], c), c, out, &error);
  if (!strcmp(op, "flatten")) status = tdict_merge_dims(td, a, b, out, &error);
  if (!strcmp(op, "unflatten")) status = tdict_split_dim(td, a, read_numbers(w[4], c), c, out, &error);
  if (!strcmp(op, "unsqueeze")) status = tdict_unsqueeze(td, a, out, &error);
  if (!strcmp(op, "squeeze")) status = tdict_squeeze(td, *w[3] == 'a' ? TDICT_EVERY_DIM : a, out, &error);
  if (!strcmp(op, "expand")) status = tdict_expand(td, read_numbers(w[3], c), c, out, &error);
  if (!strcmp(op, "transpose")) status = tdict_transpose(td, a, b, out, &error);
  if (!strcmp(op, "permute")) {
    int dims = read_numbers(w[3], c);
    for (int i = 0; i < dims; i++) order[i] = (int)c[i];
    status = tdict_permute(td, dims, order, out, &error);
  }
  if (!strcmp(op, "split"))
    status = tdict_split(td, a, c, out, &(size_t){count = (size_t)read_numbers(w[4], c)}, &error);
  if (!strcmp(op, "chunk") && a >= -tdict_batch_ndim(td) && a < tdict_batch_ndim(td)) {
    const int64_t rows = tdict_batch_size(td)[a < 0 ? a + tdict_batch_ndim(td) : a];
    status = tdict_split_every(td, a, (rows + b - 1) / b, out, &count, &error);
  }
  if (!strcmp(op, "every")) status = tdict_split_every(td, a, b, out, &count, &error);
  if (!strcmp(op, "unbind")) status = tdict_unbind(td, a, out, &count, &error);
  num_made = status != TDICT_OK ? 0 : count == MOST_MADE ? 1 : count;
  return status;
}

/* Keeps the first `rows` rows of a tensor, unless it is a scalar. */
static tdict_status keep_rows(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  const int64_t *rows = user;
  tdict_tensor *t = at->tensors[0];
  scoped_tree whole = NULL, part = NULL;
  tdict_status status = tdict_create(tdict_tensor_ndim(t) > 0, tdict_tensor_shape(t), &whole, err);
  if (status == TDICT_OK) status = tdict_set(whole, "t", t, err);
  if (status == TDICT_OK && tdict_tensor_ndim(t) > 0)
    status = tdict_index_get(NULL, whole, TDICT_INDEX(TDICT_RANGE(0, *rows, 1)), NULL, &part, err);
  if (status == TDICT_OK) status = tdict_get(part ? part : whole, "t", out, err);
  if (status == TDICT_OK) (void)tdict_tensor_retain(*out);
  return status;
}

static tdict_status do_pad(const tdict_tree *td, int64_t count, tdict_tree **out) {
  scoped_tree rows = NULL;
  tdict_status status = tdict_batch_ndim(td)
                            ? tdict_index_get(NULL, td, TDICT_INDEX(TDICT_RANGE(0, count, 1)), NULL, &rows, &error)
                            : tdict_apply(NULL, &td, 1, keep_rows, &count, NULL, &rows, &error);
  const tdict_tree *both[] = {td, rows};
  return status == TDICT_OK ? tdict_pad_sequence(both, 2, NULL, NULL, out, &error) : status;
}

static tdict_status do_keys(const char *op, const tdict_tree *td, char **w, int n) {
  tdict_tree **out = &made[0];
  const char *const *paths = (const char *const *)w;
  tdict_status status = TDICT_EINVAL;
  if (!strcmp(op, "select")) status = tdict_select(td, paths + 4, (size_t)(n - 4), *w[3] == '1', out, &error);
  if (!strcmp(op, "exclude")) status = tdict_exclude(td, paths + 3, (size_t)(n - 3), out, &error);
  if (!strcmp(op, "flatten_keys")) status = tdict_flatten_keys(td, w[3], out, &error);
  if (!strcmp(op, "unflatten_keys")) status = tdict_unflatten_keys(td, w[3], out, &error);
  if (!strcmp(op, "clone"))
    status = *w[3] == '1' ? tdict_clone_deep(td, NULL, out, &error) : tdict_clone(td, out, &error);
  if (!strcmp(op, "join")) {
    const tdict_join_options o = td_with(tdict_join_options, dim = atoi(w[4]));
    scoped_tree other = renumbered(td, strtoll(w[5], NULL, 10), w + 6, strcmp(w[6], "-") != 0);
    int64_t texts = strtoll(w[7], NULL, 10);
    if (strcmp(w[7], "-") != 0) renumber_texts(other, &texts);
    const tdict_tree *both[] = {td, other};
    status = *w[3] == 's' ? tdict_stack(both, 2, &o, NULL, out, &error) : tdict_cat(both, 2, &o, NULL, out, &error);
  }
  if (!strcmp(op, "handle")) {
    status = tdict_get_tree(td, w[3], out, &error);
    if (status == TDICT_OK) (void)tdict_retain(*out);
  }
  if (!strcmp(op, "split_keys")) {
    const size_t cut = (size_t)atoi(w[3]);
    const tdict_key_set sets[] = {{paths + 4, cut}, {paths + 4 + cut, (size_t)(n - 4) - cut}};
    status = tdict_split_keys(td, sets, 2, out, &(size_t){3}, &error);
    num_made = status == TDICT_OK ? 3 : 0;
    return status;
  }
  if (!strcmp(op, "pad")) status = do_pad(td, atoi(w[3]), out);
  if (!strcmp(op, "consolidate")) status = tdict_consolidate(td, NULL, out, &error);
  if (!strcmp(op, "save")) status = save_and_open("operations", td, w[3], out);
  if (!strcmp(op, "load")) status = open_recorded(w[3], out);
  num_made = status == TDICT_OK;
  return status;
}

enum { MOST_CHILDREN = 16 };

/* Returns the path of key number `i` of `wanted` if both trees have a child there, else NULL. */
static const char *path_of_both(const tdict_tree *wanted, const tdict_tree *td, size_t i) {
  static char path[64];
  tdict_tree *child;
  const char *key = tdict_get_entry_at(wanted, i).key;
  tdict_path_join(&key, 1, path, sizeof path);
  return tdict_get_tree(wanted, path, &child, NULL) == TDICT_OK && tdict_get_tree(td, path, &child, NULL) == TDICT_OK
             ? path
             : NULL;
}

/* Returns whether two trees have the same keys in the same order, and the same tensors. */
static bool has_same_entries(const tdict_tree *td, const tdict_tree *wanted) {
  tdict_entry a, b;
  if (tdict_num_keys(td) != tdict_num_keys(wanted)) return false;
  for (size_t i = 0; i < tdict_num_keys(td); i++) {
    a = tdict_get_entry_at(td, i), b = tdict_get_entry_at(wanted, i);
    if (!a.key || !b.key) exit(2);
    if (strcmp(a.key, b.key) != 0 || a.tensor != b.tensor || a.object != b.object || !a.tree != !b.tree) return false;
  }
  return true;
}

/* Changes the keys of a tree in place as TensorDict does: children that stay keep their nodes and are changed in place,
 * too. If `dry` is true, only returns whether a lock forbids the change. */
static tdict_status assign_nested(tdict_tree *td, const tdict_tree *wanted, bool dry) {
  tdict_tree *mine[MOST_CHILDREN] = {NULL}, *theirs;
  const bool changes = !has_same_entries(td, wanted);
  const size_t keys = tdict_num_keys(wanted);
  tdict_status status = changes && tdict_is_locked(td) ? TDICT_ELOCKED : TDICT_OK;
  if (keys > MOST_CHILDREN) exit(2);
  for (size_t i = 0; i < keys; i++) {
    const char *path = path_of_both(wanted, td, i);
    if (path && tdict_get_tree(td, path, &mine[i], NULL) == TDICT_OK) (void)tdict_retain(mine[i]);
  }
  if (!dry && changes && status == TDICT_OK) status = tdict_assign(td, wanted, &error);
  for (size_t i = 0; i < keys; i++) {
    if (!mine[i]) continue;
    const char *path = path_of_both(wanted, wanted, i);
    if (status == TDICT_OK && !dry && changes) status = tdict_set_tree(td, path, mine[i], &error);
    if (status == TDICT_OK) status = tdict_get_tree(wanted, path, &theirs, &error);
    if (status == TDICT_OK) status = assign_nested(mine[i], theirs, dry);
    tdict_release(mine[i]);
  }
  return status;
}

static tdict_status do_assign(const char *op, tdict_tree *td, char **w, int n) {
  scoped_tree wanted = NULL;
  tdict_status status;
  if (!strcmp(op, "select_")) {
    const char *const *paths = (const char *const *)w + 3;
    status = tdict_select(td, paths, (size_t)(n - 3), *w[2] == '1', &wanted, &error);
  } else {
    status =
        op[0] == 'f' ? tdict_flatten_keys(td, w[2], &wanted, &error) : tdict_unflatten_keys(td, w[2], &wanted, &error);
  }
  if (status == TDICT_OK && op[0] == 'f') status = tdict_assign(td, wanted, &error);
  if (status == TDICT_OK && op[0] != 'f') status = assign_nested(td, wanted, true);
  if (status == TDICT_OK && op[0] != 'f') status = assign_nested(td, wanted, false);
  return status;
}

/* Runs an operation that changes keys in place, or that puts entries of another tree into `td`. */
static tdict_status do_change_keys(const char *op, tdict_tree *td, char **w, int n) {
  tdict_tree *child = NULL;
  tdict_tensor *tensor = NULL;
  tdict_status status = TDICT_OK;
  if (!strcmp(op, "exclude_")) {
    for (int i = 2; i < n && status == TDICT_OK; i++)
      if (tdict_has(td, w[i])) status = tdict_delete(td, w[i], &error);
    return status;
  }
  if (strchr(op, '_')) return do_assign(op, td, w, n);
  if (!strcmp(op, "stray")) {
    status = tdict_get_tree(td, w[2], &child, &error);
    if (status == TDICT_OK) status = tdict_set_batch_size(child, 0, NULL, &error);
    return status == TDICT_OK ? set_new(child, w[4], new_tensor(strtoll(w[3], NULL, 10), 1, (const int64_t[]){5}))
                              : status;
  }
  tdict_tree *from = pool[atoi(w[3])];
  if (!strcmp(op, "share")) {
    status = tdict_get(from, w[4], &tensor, &error);
    return status == TDICT_OK ? tdict_set(td, w[2], tensor, &error) : status;
  }
  if (!strcmp(w[4], "-")) return tdict_set_tree(td, w[2], from, &error);
  status = tdict_get_tree(from, w[4], &child, &error);
  return status == TDICT_OK ? tdict_set_tree(td, w[2], child, &error) : status;
}

static tdict_status do_change(const char *op, tdict_tree *td, char **w, int n) {
  int64_t shape[16], base = n > 3 ? strtoll(w[3], NULL, 10) : 0;
  if (!strcmp(op, "set")) return set_new(td, w[2], new_tensor(base, read_numbers(w[4], shape), shape));
  if (!strcmp(op, "text")) return set_word(td, w[2], w[3]);
  if (!strcmp(op, "delete")) return tdict_delete(td, w[2], &error);
  if (!strcmp(op, "rename")) return tdict_rename(td, w[2], w[3], *w[4] == '1', &error);
  if (!strcmp(op, "update")) return tdict_update(td, pool[atoi(w[2])], NULL, 0, &error);
  if (!strcmp(op, "fill")) return tdict_fill(td, w[2], (double)base, NULL, &error);
  if (!strcmp(op, "zero")) return tdict_fill(td, NULL, 0, NULL, &error);
  if (!strcmp(op, "batch")) {
    const int ndim = read_numbers(w[2], shape);
    return tdict_set_batch_size(td, ndim, shape, &error);
  }
  if (!strcmp(op, "lock")) {
    if (*w[2] == '1') tdict_lock(td);
    return *w[2] == '1' ? TDICT_OK : tdict_unlock(td, &error);
  }
  tdict_status status = TDICT_EINVAL;
  if (!strcmp(op, "write")) {
    scoped_tensor value = new_tensor(base, read_numbers(w[4], shape), shape);
    status = tdict_write(td, w[2], NULL, value, &error);
  }
  if (!strcmp(op, "update_")) {
    scoped_tree other = renumbered(td, strtoll(w[2], NULL, 10), w + 3, n - 3);
    status = tdict_update_in_place(td, other, NULL, 0, &error);
  }
  if (!strcmp(op, "setindex")) {
    const tdict_indices index = read_index(w + 3, n - 3);
    scoped_tree part = NULL;
    status = tdict_index_get(NULL, td, &index, NULL, &part, &error);
    scoped_tree value = status == TDICT_OK ? renumbered(part, strtoll(w[2], NULL, 10), NULL, 0) : NULL;
    if (value) status = tdict_index_set(NULL, td, &index, value, NULL, &error);
  }
  return status;
}

static bool is_one_of(const char *op, const char *list) {
  const char *found = strstr(list, op);
  size_t bytes = strlen(op);
  return found && (found == list || found[-1] == ' ') && (found[bytes] == ' ' || !found[bytes]);
}

/* Runs the operation of a line. Writes the trees that it made or changed, or "fails", to `text`. */
static void run(char *line, bool kept) {
  char *w[MOST_WORDS];
  int n = 0;
  for (char *word = strtok(line, " "); word && n < MOST_WORDS; word = strtok(NULL, " ")) w[n++] = word;
  tdict_tree **slot = &pool[atoi(w[1])];
  tdict_status status;
  const bool shows = is_one_of(w[0], "show depth");
  const bool changes_keys = is_one_of(w[0], "select_ exclude_ flatten_keys_ unflatten_keys_ adopt share stray");
  const bool makes = !shows && !changes_keys &&
                     !is_one_of(w[0], "set text delete rename update fill zero lock write update_ setindex batch");
  num_made = 0;
  begin_result();
  if (!strcmp(w[0], "new"))
    status = do_new(w, n);
  else if (shows)
    status = TDICT_OK;
  else if (changes_keys)
    status = do_change_keys(w[0], *slot, w, n);
  else if (!makes)
    status = do_change(w[0], *slot, w, n);
  else if (is_one_of(
               w[0],
               "select exclude split_keys flatten_keys unflatten_keys clone join pad handle consolidate save load"))
    status = do_keys(w[0], *slot, w, n);
  else
    status = do_shape(w[0], *slot, w, n);
  if (status != TDICT_OK) add("fails");
  if (status == TDICT_OK && !strcmp(w[0], "depth"))
    add("%" PRId64, (int64_t)tdict_depth(*slot));
  else if (status == TDICT_OK && !makes)
    add_tree(*slot);
  for (size_t i = 0; i < num_made; i++) {
    add("%s", i ? " " : "");
    add_tree(made[i]);
  }
  if (num_made && kept) {
    slot = strcmp(w[0], "new") ? &pool[atoi(w[2])] : slot;
    tdict_release(*slot);
    if (is_one_of(w[0], "save load")) { /* trees of opened files are read-only */
      must(tdict_clone_deep(made[0], NULL, slot, &error));
    } else {
      *slot = tdict_retain(made[num_made - 1]);
    }
  }
  for (size_t i = 0; i < num_made; i++) tdict_release(made[i]);
  for (int i = 0; i < MOST_LISTS; i++) td_release(masks[i]);
}

int main(int argc, char **argv) {
  char *wanted;
  open_record(argc, argv, "make_operations.py");
  for (char *line; (line = next_line(&wanted));) {
    if (!strcmp(line, "reset")) continue;
    if (!wanted) return printf("line %ld: no result\n", num_lines), 2;
    char *end = line + strlen(line);
    const bool is_kept = end == line || end[-1] != '~';
    if (!is_kept) end[-1] = 0;
    run(line, is_kept || strcmp(wanted, "fails") == 0);
    compare(wanted);
  }
  for (int i = 0; i < POOL; i++) tdict_release(pool[i]);
  return close_record();
}
