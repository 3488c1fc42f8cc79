/* Makes small trees for tests. The caller releases what these functions return. */
#ifndef TDICT_TESTS_CORE_TREE_HELP_H
#define TDICT_TESTS_CORE_TREE_HELP_H

#include "support/test.h"

#define COUNTS(...) \
  (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
/* Makes a float32 tensor of this shape in host memory. Its elements are random and differ in each call. */
#define TENSOR(...) help_tensor(COUNTS(__VA_ARGS__))
/* Makes an empty tree of this batch size. */
#define TREE(...) help_tree(COUNTS(__VA_ARGS__))

static inline tdict_tensor *help_tensor(int ndim, const int64_t *shape) {
  static uint64_t seed;
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(TDICT_F32, ndim, shape, NULL, &made, err));
  if (tdict_tensor_bytes(t)) td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), ++seed);
  return t;
}

static inline tdict_tree *help_tree(int ndim, const int64_t *batch_size) {
  return td_made(tree, tdict_create(ndim, batch_size, &made, err));
}
static inline tdict_tree *help_tree_without_batch(void) { return help_tree(0, NULL); }
/* Makes a tree of batch size [2] with `levels` nested trees "d". A cursor needs memory for many levels. */
static inline tdict_tree *help_deep_tree(int levels) {
  const int64_t two = 2;
  tdict_tree *td = help_tree(1, &two), *at = td;
  for (int i = 0; i < levels; i++) at = td_put_tree(at, "d", help_tree(1, &two));
  return td;
}

/* Makes a tensor that claims to be on the given device. Nothing may access its elements. */
static inline tdict_tensor *help_tensor_on(tdict_device device, int ndim, const int64_t *shape) {
  static char place[4096];
  tdict_tensor *t = NULL;
  tdict_tensor_desc view =
      td_with(tdict_tensor_desc, data = place, device = device, dtype = TDICT_U8, ndim = ndim, shape = shape);
  td_ok(tdict_tensor_from_data(&view, NULL, NULL, &t, err));
  return t;
}

/* A test object. Its release hook increments `*ends`, and other hooks report `bytes` and print `text`. */
typedef struct help_thing {
  int *ends;
  size_t bytes;
  const char *text;
} help_thing;
static inline help_thing *help_make_thing(int *ends, size_t bytes, const char *text) {
  help_thing *thing = td_alloc(sizeof *thing);
  *thing = (help_thing){ends, bytes, text};
  return thing;
}
static inline void help_end_thing(void *self) {
  help_thing *thing = self;
  ++*thing->ends;
  free(thing);
}
static inline size_t help_thing_bytes(const void *self) { return ((const help_thing *)self)->bytes; }
static inline size_t help_thing_print(const void *self, char *buffer, size_t bytes) {
  const char *text = ((const help_thing *)self)->text;
  return (size_t)snprintf(buffer, bytes, "%s", text ? text : "");
}

typedef struct help_text {
  char *text;
  size_t length, cap;
  bool pointers;
} help_text;

static inline void help_add(help_text *to, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void help_add(help_text *to, const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(line, sizeof line, format, args);
  va_end(args);
  assert_true(n >= 0 && (size_t)n < sizeof line);
  if (to->length + (size_t)n + 1 > to->cap) {
    to->cap = (to->length + (size_t)n + 1) * 2;
    to->text = realloc(to->text, to->cap);
    assert_non_null(to->text);
  }
  memcpy(to->text + to->length, line, (size_t)n + 1);
  to->length += (size_t)n;
}

static inline void help_add_node(help_text *to, const tdict_tree *td) {
  tdict_device device;
  help_add(to, " %s", tdict_is_locked(td) ? "locked" : "open");
  for (int i = 0; i < tdict_batch_ndim(td); i++) help_add(to, "/%lld", (long long)tdict_batch_size(td)[i]);
  if (tdict_get_device(td, &device)) help_add(to, " on %d:%d", (int)device.type, (int)device.index);
  for (size_t i = 0; tdict_get_entry_at(td, i).key; i++) help_add(to, " (%.100s)", tdict_get_entry_at(td, i).key);
}

static inline tdict_status help_visit(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)err;
  help_text *to = user;
  if (!to->pointers) {
    help_add(to, "%s%.500s", to->length ? " " : "", entry->path);
    return TDICT_OK;
  }
  help_add(to, "%.500s %p", entry->path,
           entry->tree     ? (void *)entry->tree
           : entry->object ? entry->object
                           : (void *)entry->tensor);
  if (entry->tree) help_add_node(to, entry->tree);
  help_add(to, "\n");
  return TDICT_OK;
}

/* Returns a string with all properties of a tree except its elements, to be compared later. The caller frees it. */
static inline char *help_snapshot(const tdict_tree *td) {
  help_text all = {NULL, 0, 0, true};
  help_add_node(&all, td);
  help_add(&all, "\n");
  td_ok(tdict_walk(td, help_visit, &all, err));
  return all.text;
}
static inline void help_is(const tdict_tree *td, const char *before) {
  scoped_chars now = help_snapshot(td);
  assert_string_equal(now, before);
}
static inline void help_unchanged(const tdict_tree *td, char *before) {
  help_is(td, before);
  free(before);
}
/* Checks the paths of a tree. `wanted` lists them in the order of a walk, separated by spaces. */
static inline void help_paths(const tdict_tree *td, const char *wanted) {
  help_text all = {NULL, 0, 0, false};
  td_ok(tdict_walk(td, help_visit, &all, err));
  assert_string_equal(all.text ? all.text : "", wanted);
  free(all.text);
}

#endif
