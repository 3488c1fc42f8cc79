/* Makes the same random changes to a tree and to a plain model, in which each node is an array of entries. Compares the
 * status of each step, and the whole trees after every 16 steps. */
#include "help.h"
#include "tdict/path.h"

enum { OPERATIONS = 20000, KEYS = 9, MOST_ENTRIES = KEYS, MOST_DEPTH = 4 };

typedef struct model model;
typedef struct entry {
  int key;
  tdict_tensor *tensor; /* borrowed from `tensors` */
  model *child;
  help_thing *object; /* owned by the tree */
} entry;
struct model {
  entry entries[MOST_ENTRIES];
  int count;
};

static const char *const keys[KEYS] = {"a", "b", "h\\.0", "long key number one", "\\\\", "e", "f", "g", "i"};
static tdict_tensor *tensors[16];
static int made, ended; /* numbers of objects */
static const tdict_type type = TD_TYPE(.name = "thing", .release = help_end_thing);
static uint64_t state = 20240607;

static unsigned pick(unsigned below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return (unsigned)(state >> 33) % below;
}

static entry *find(model *m, int key) {
  for (int i = 0; i < m->count; i++)
    if (m->entries[i].key == key) return &m->entries[i];
  return NULL;
}

static void free_model(model *m) {
  if (!m) return;
  for (int i = 0; i < m->count; i++) free_model(m->entries[i].child);
  free(m);
}

static void drop(model *m, entry *e) {
  int at = (int)(e - m->entries);
  memmove(e, e + 1, (size_t)(m->count - at - 1) * sizeof *e);
  m->count--;
}

typedef struct way {
  int keys[MOST_DEPTH], count;
  char path[128];
} way;

static way pick_way(void) {
  way w = {.count = 1 + (int)pick(MOST_DEPTH)};
  for (int i = 0; i < w.count; i++) {
    w.keys[i] = (int)pick(KEYS);
    snprintf(w.path + strlen(w.path), sizeof w.path - strlen(w.path), "%s%s", i ? "." : "", keys[w.keys[i]]);
  }
  return w;
}

/* Follows a path. Returns TDICT_OK, TDICT_ENOTFOUND, or TDICT_ETYPE if the path leads through a tensor or an object.
 * Sets *at to the last node, and *used and *found to the index and the entry of the last key that was looked up. */
static tdict_status follow(model *root, const way *w, model **at, entry **found, int *used) {
  *at = root;
  for (int i = 0; i < w->count; i++) {
    entry *e = find(*at, w->keys[i]);
    *used = i;
    *found = e;
    if (!e) return TDICT_ENOTFOUND;
    if (i == w->count - 1) return TDICT_OK;
    if (!e->child) return TDICT_ETYPE;
    *at = e->child;
  }
  return TDICT_OK;
}

/* Sets an entry of the model. The key of `what` is ignored. */
static tdict_status put(model *root, const way *w, entry what) {
  model *at;
  entry *found;
  int used;
  tdict_status status = follow(root, w, &at, &found, &used);
  if (status == TDICT_ETYPE) return status;
  if (status == TDICT_OK) {
    free_model(found->child);
    what.key = found->key;
    *found = what;
    return TDICT_OK;
  }
  for (int i = used; i < w->count; i++) {
    bool last = i == w->count - 1;
    entry *e = &at->entries[at->count++];
    *e = last ? what : (entry){.child = calloc(1, sizeof *e->child)};
    e->key = w->keys[i];
    at = e->child;
  }
  return TDICT_OK;
}

static tdict_status rename_entry(model *root, const way *from, const way *to, bool safe) {
  model *source, *target;
  entry *moved, *there;
  int used;
  tdict_status status = follow(root, from, &source, &moved, &used);
  if (status != TDICT_OK) return status;
  if (to->count > from->count && memcmp(to->keys, from->keys, (size_t)from->count * sizeof *to->keys) == 0)
    return TDICT_EINVAL;
  status = follow(root, to, &target, &there, &used);
  if (status == TDICT_ETYPE) return status;
  if (status == TDICT_OK && there == moved) return TDICT_OK;
  if (status == TDICT_OK && safe) return TDICT_EEXIST;
  if (source == target && used == to->count - 1) {
    moved->key = to->keys[to->count - 1];
    if (status == TDICT_OK) {
      free_model(there->child);
      drop(target, there);
    }
    return TDICT_OK;
  }
  entry taken = *moved;
  drop(source, moved);
  return put(root, to, taken);
}

/* Makes a small tree with a tensor and a child tree, and its model. */
static tdict_tree *make_child(model **out) {
  tdict_tree *child = TREE(2);
  model *m = calloc(1, sizeof *m), *below = calloc(1, sizeof *below);
  tdict_tensor *t = tensors[pick(16)];
  td_ok(tdict_set(child, keys[1], t, err));
  td_ok(tdict_set(child, "e.f", t, err));
  m->entries[m->count++] = (entry){.key = 1, .tensor = t};
  m->entries[m->count++] = (entry){.key = 5, .child = below};
  below->entries[below->count++] = (entry){.key = 6, .tensor = t};
  *out = m;
  return child;
}

static void append(help_text *all, const model *m, const char *above) {
  for (int i = 0; i < m->count; i++) {
    char path[256];
    const entry *e = &m->entries[i];
    int length = snprintf(path, sizeof path, "%s%s%s", above, *above ? "." : "", keys[e->key]);
    assert_in_range(length, 1, sizeof path - 1);
    help_add(all, "%s%s", all->length ? " " : "", path);
    if (e->child) append(all, e->child, path);
  }
}

static void compare_leaf(const tdict_tree *td, const char *key, const entry *e) {
  void *object = NULL;
  if (!e->object) {
    assert_ptr_equal(td_leaf(td, key), e->tensor);
    return;
  }
  td_ok(tdict_get_object(td, key, &type, &object, err));
  assert_ptr_equal(object, e->object);
}

static void compare(const tdict_tree *td, const model *m) {
  assert_int_equal(tdict_num_keys(td), m->count);
  for (int i = 0; i < m->count; i++) {
    char escaped[64];
    tdict_path_escape(tdict_get_entry_at(td, (size_t)i).key, escaped, sizeof escaped);
    assert_string_equal(escaped, keys[m->entries[i].key]);
    if (m->entries[i].child)
      compare(td_child(td, escaped), m->entries[i].child);
    else
      compare_leaf(td, escaped, &m->entries[i]);
  }
  assert_null(tdict_get_entry_at(td, (size_t)m->count).key);
}

typedef struct pair {
  tdict_tree *td;
  model *root;
  bool locked;
} pair;

static int count_objects(const model *m) {
  int count = 0;
  for (int i = 0; i < m->count; i++)
    count += m->entries[i].child ? count_objects(m->entries[i].child) : m->entries[i].object != NULL;
  return count;
}

static tdict_status set_object(pair *p, const way *w, tdict_status there, tdict_status *wanted) {
  help_thing *object = help_make_thing(&ended, 0, NULL);
  made++;
  *wanted = there == TDICT_ETYPE ? there : p->locked ? TDICT_ELOCKED : put(p->root, w, (entry){.object = object});
  tdict_status status = tdict_set_object(p->td, w->path, &type, object, NULL);
  if (status != TDICT_OK) help_end_thing(object); /* after a failure, the caller still owns the object */
  return status;
}

static tdict_status change(pair *p, unsigned what, tdict_status *wanted) {
  way w = pick_way(), to = pick_way();
  model *at, *m = NULL;
  entry *found;
  int used;
  tdict_tensor *t = tensors[pick(16)], *popped = NULL;
  tdict_status there = follow(p->root, &w, &at, &found, &used), status;
  bool tensor = there == TDICT_OK && found->tensor;
  if (what < 3) return set_object(p, &w, there, wanted);
  if (what < 8) {
    *wanted = there == TDICT_ETYPE ? there : p->locked ? TDICT_ELOCKED : put(p->root, &w, (entry){.tensor = t});
    return tdict_set(p->td, w.path, t, NULL);
  }
  if (what < 9 && w.count < 3) {
    scoped_tree child = make_child(&m);
    *wanted = there == TDICT_ETYPE ? there : p->locked ? TDICT_ELOCKED : put(p->root, &w, (entry){.child = m});
    status = tdict_set_tree(p->td, w.path, child, NULL);
    if (*wanted != TDICT_OK) free_model(m);
    return status;
  }
  if (what < 14) {
    bool safe = pick(2) == 1;
    if (w.count + to.count > MOST_DEPTH + 1) to.count = 1, snprintf(to.path, sizeof to.path, "%s", keys[to.keys[0]]);
    if (p->locked) { /* the call may report the lock or another error */
      status = tdict_rename(p->td, w.path, to.path, safe, NULL);
      *wanted = status == TDICT_OK ? TDICT_ELOCKED : status;
      return status;
    }
    *wanted = rename_entry(p->root, &w, &to, safe);
    return tdict_rename(p->td, w.path, to.path, safe, NULL);
  }
  bool pop = what < 17;
  *wanted = there != TDICT_OK ? there : pop && !tensor ? TDICT_ETYPE : p->locked ? TDICT_ELOCKED : TDICT_OK;
  status = pop ? tdict_pop(p->td, w.path, &popped, NULL) : tdict_delete(p->td, w.path, NULL);
  if (*wanted == TDICT_OK) {
    if (pop) assert_ptr_equal(popped, found->tensor);
    free_model(found->child);
    drop(at, found);
  }
  tdict_tensor_release(popped);
  return status;
}

static void look(const pair *p) {
  way w = pick_way();
  model *at;
  entry *found;
  int used;
  tdict_tensor *t = NULL;
  tdict_status there = follow(p->root, &w, &at, &found, &used);
  assert_true(tdict_has(p->td, w.path) == (there == TDICT_OK));
  tdict_status status = tdict_get(p->td, w.path, &t, NULL);
  assert_int_equal(status, there == TDICT_OK && !found->tensor ? TDICT_ETYPE : there);
  if (status == TDICT_OK) assert_ptr_equal(t, found->tensor);
  bool object = there == TDICT_OK && found->object;
  assert_ptr_equal(tdict_object_type(p->td, w.path), object ? &type : NULL);
}

CASE(tree_random_changes_match_a_model) {
  pair p = {TREE(2), calloc(1, sizeof(model)), false};
  int counts[25] = {0};
  for (int i = 0; i < 16; i++) tensors[i] = TENSOR(2, i + 1);
  for (int i = 0; i < OPERATIONS; i++) {
    tdict_status wanted = TDICT_OK, status = TDICT_OK;
    unsigned what = pick(24);
    if (what < 20) {
      status = change(&p, what, &wanted);
    } else if (what < 23) {
      look(&p);
    } else if (pick(3) != 0 || p.locked) {
      if (p.locked)
        td_ok(tdict_unlock(p.td, err));
      else
        tdict_lock(p.td);
      p.locked = !p.locked;
    }
    if (status != wanted)
      fail_msg("step %d, kind %u: returned %s, wanted %s", i, what, tdict_status_name(status),
               tdict_status_name(wanted));
    counts[status]++;
    if (i % 16) continue;
    compare(p.td, p.root);
    assert_int_equal(count_objects(p.root), made - ended); /* each removed object has been released exactly once */
    assert_int_equal(count_objects(p.root), tdict_num_objects(p.td));
    help_text all = {NULL, 0, 0, false};
    append(&all, p.root, "");
    help_paths(p.td, all.text ? all.text : "");
    free(all.text);
  }
  /* Each of these statuses occurred often enough. */
  static const int met[] = {TDICT_OK, TDICT_ENOTFOUND, TDICT_ETYPE, TDICT_EINVAL, TDICT_EEXIST, TDICT_ELOCKED};
  for (size_t i = 0; i < sizeof met / sizeof *met; i++) assert_true(counts[met[i]] > 20);
  tdict_release(p.td);
  free_model(p.root);
  assert_true(made > 1000);
  assert_int_equal(made, ended);
  for (int i = 0; i < 16; i++) tdict_tensor_release(tensors[i]);
}
