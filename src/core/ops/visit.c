/* Calls functions for tensors of trees, in order or on a pool. visit_job owns its lists. Threads: tdict/visit.h. */
#include "tdict/visit.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/memory/run.h"
#include "core/ops/align.h"
#include "core/ops/visit.h"
#include "core/tree/agree.h"

typedef struct visit_job {
  const char *what;
  const tdict_tree *const *trees;
  size_t count;
  /* true: skips objects of the program whose type has no `flatten`; false: such an object is an error */
  bool skips_bare;
  tdict_tree **opened;      /* copies of the trees with flattened objects; NULL if there are no objects */
  tdict_leaf_visitor visit; /* exactly one of visit and make is set */
  tdict_leaf_maker make;
  void *user;
  tdict_context *context; /* NULL: the calling thread makes all calls */
  tdict_aligned aligned;
  tdict_leaves *leaves;   /* one element for each tensor of get_first_tree(), in cursor order */
  tdict_tensor **tensors; /* the tensors that `leaves` points to, `count` per leaf */
  tdict_tensor **made;    /* the results of `make`, one result for each leaf */
  char *paths;
  size_t num_leaves;
  pthread_mutex_t lock; /* guards: status, error, and writes of failed_at */
  /* Index of the first failed leaf. Relaxed: an old value only causes a call whose result is not used */
  _Atomic(size_t) failed_at;
  tdict_status status;
  tdict_error error;
} visit_job;

/* The state of a walk through the first tree: counts leaves and path bytes, or fills job->leaves and paths. */
typedef struct lister {
  visit_job *job;
  size_t bytes, entry, leaf;
} lister;

/* Counts a leaf, or fills its list entry. A callback of tdict_walk(). */
static tdict_status list_entry(void *user, const tdict_entry *entry, tdict_error *err) {
  lister *l = user;
  visit_job *j = l->job;
  size_t at = l->entry++;
  (void)err;
  if (!entry->tensor) return TDICT_OK;
  /* Store only paths of tensors: in a deep tree the paths of the nodes would take much memory. */
  size_t length = strlen(entry->path) + 1;
  if (j->leaves) {
    tdict_tensor **tensors = j->tensors + l->leaf * j->count;
    for (size_t t = 0; t < j->count; t++) tensors[t] = tdict_leaf_tensor(j->aligned.leaves[at * j->count + t]);
    memcpy(j->paths + l->bytes, entry->path, length);
    j->leaves[l->leaf] = (tdict_leaves){j->paths + l->bytes, j->count, tensors};
  }
  l->leaf++;
  l->bytes += length;
  return TDICT_OK;
}

/* Returns the first tree, or its copy with flattened objects. */
static const tdict_tree *get_first_tree(const visit_job *j) { return j->opened ? j->opened[0] : j->trees[0]; }

/* Lists the leaves in two walks: the first walk counts the leaves, and the second walk fills the arrays. */
static tdict_status list_leaves(visit_job *j, tdict_error *err) {
  lister l = {j, 0, 0, 0};
  tdict_status status = tdict_walk(get_first_tree(j), list_entry, &l, err);
  if (status != TDICT_OK) return status;
  j->num_leaves = l.leaf;
  size_t leaves, tensors;
  if (!tdict_mul_size(l.leaf, sizeof *j->leaves, &leaves) || !tdict_mul_size(l.leaf, j->count, &tensors) ||
      !tdict_mul_size(tensors, sizeof *j->tensors, &tensors))
    return tdict_fail_memory(err, j->what, NULL, "the lists of leaves");
  j->paths = malloc(l.bytes ? l.bytes : 1);
  j->tensors = malloc(tensors ? tensors : 1);
  j->made = calloc(l.leaf ? l.leaf : 1, sizeof *j->made);
  j->leaves = j->paths && j->tensors && j->made ? malloc(leaves ? leaves : 1) : NULL;
  if (!j->leaves) return tdict_fail_memory(err, j->what, NULL, "the lists of leaves");
  l = (lister){j, 0, 0, 0};
  return tdict_walk(get_first_tree(j), list_entry, &l, err);
}

/* Records the failure of leaf `at`, unless a leaf with a lower number has already failed. */
static void note_first_failure(visit_job *j, size_t at, tdict_status status, const tdict_error *error) {
  pthread_mutex_lock(&j->lock);
  if (at < atomic_load_explicit(&j->failed_at, memory_order_relaxed)) {
    j->status = status;
    atomic_store_explicit(&j->failed_at, at, memory_order_relaxed);
    j->error = *error;
  }
  pthread_mutex_unlock(&j->lock);
}

/* Calls the function for leaf i. Runs on the calling thread or on a thread of the pool. */
static void call_function(void *user, long i) {
  visit_job *j = user;
  const tdict_leaves *at = &j->leaves[i];
  tdict_error own_error = {0};
  /* The function is still called for leaves before the failed leaf, since the first failure in order is reported. */
  if ((size_t)i > atomic_load_explicit(&j->failed_at, memory_order_relaxed)) return;
  tdict_status status = j->visit ? j->visit(j->user, at, &own_error) : j->make(j->user, at, &j->made[i], &own_error);
  if (status == TDICT_OK) return;
  char what[32]; /* holds the name of each public call */
  snprintf(what, sizeof what, "%s: the function", j->what);
  status = tdict_callback_status(status, what, &own_error);
  if (!own_error.path[0]) tdict_error_at(&own_error, status, at->path);
  note_first_failure(j, (size_t)i, status, &own_error);
}

/* Matches the trees, lists their leaves, and calls the function for each leaf. */
static tdict_status call_for_all(visit_job *j, const tdict_run *given, tdict_error *err) {
  tdict_run run;
  tdict_pool *pool = j->context ? tdict_context_pool(j->context) : NULL;
  tdict_status status = tdict_run_read(&run, given, TDICT_USES_THREADS, j->what, err);
  if (status == TDICT_OK) status = tdict_run_check_threads(&run, j->context, pool, j->what, err);
  if (status == TDICT_OK) status = tdict_align_trees(j->what, j->trees, j->count, false, &j->aligned, err);
  if (status == TDICT_OK && j->aligned.has_objects) {
    const tdict_flatten_rule opening = {.what = j->what, .way = TDICT_OBJECT_ELEMENTS, .keeps_bare = j->skips_bare};
    status = tdict_aligned_open(&j->aligned, &opening, false, j->trees, &j->opened, err);
  }
  if (status == TDICT_OK) status = list_leaves(j, err);
  if (status != TDICT_OK) return status;
  const int helpers = !pool ? 0 : run.num_threads < 0 ? tdict_pool_size(pool) : run.num_threads;
  tdict_parallel_for(pool, helpers, (long)j->num_leaves, call_function, j);
  if (j->status != TDICT_OK && err) *err = j->error;
  return j->status;
}

static void init_job(visit_job *j) {
  pthread_mutex_init(&j->lock, NULL);
  atomic_init(&j->failed_at, SIZE_MAX);
}

static void reset_job(visit_job *j) {
  for (size_t i = 0; j->made && i < j->num_leaves; i++) tdict_tensor_release(j->made[i]);
  tdict_aligned_reset(&j->aligned);
  tdict_aligned_close(j->opened, j->count);
  free(j->leaves);
  free(j->tensors);
  free(j->made);
  free(j->paths);
  pthread_mutex_destroy(&j->lock);
}

static tdict_status run_visit(visit_job *j, const tdict_run *run, tdict_error *err) {
  init_job(j);
  tdict_status status = call_for_all(j, run, err);
  reset_job(j);
  return status;
}

tdict_status tdict_visit(tdict_context *context, const tdict_tree *const *trees, size_t count, tdict_leaf_visitor visit,
                         void *user, const tdict_run *run, tdict_error *err) {
  if (!visit) return tdict_fail_null(err, "visit", "the function");
  visit_job j = {.what = "visit", .trees = trees, .count = count, .visit = visit, .user = user, .context = context};
  return run_visit(&j, run, err);
}

tdict_status tdict_visit_in_order(const char *what, const tdict_tree *tree, tdict_leaf_visitor visit, void *user,
                                  tdict_error *err) {
  visit_job j = {.what = what, .trees = &tree, .count = 1, .skips_bare = true, .visit = visit, .user = user};
  return run_visit(&j, NULL, err);
}

/* Removes the keys without a leaf from a node that only this call holds. Returns false if out of memory. */
static bool remove_keys_without_leaf(tdict_tree *node) {
  bool has_empty_slot = false;
  for (uint32_t i = 0; i < node->keys->num_slots; i++)
    has_empty_slot = has_empty_slot || (node->keys->slots[i].name && !node->leaves[i]);
  if (!has_empty_slot) return true;
  if (!tdict_node_own(node)) return false;
  for (uint32_t i = 0; i < node->keys->num_slots; i++)
    if (node->keys->slots[i].name && !node->leaves[i]) tdict_keys_delete(node->keys, i);
  tdict_node_compact(node);
  return true;
}

/* Checks batch size and device of a leaf's result, and moves it, if there is any, into the new tree. */
static tdict_status put_made_tensor(const visit_job *j, const tdict_tree *node, size_t leaf, tdict_leaf *to,
                                    tdict_error *err) {
  tdict_tensor *t = j->made[leaf];
  if (!t) return TDICT_OK;
  const tdict_demand demand = tdict_demand_of(node, j->what, NULL);
  tdict_status status = tdict_agree_tensor(&demand, t, j->leaves[leaf].path, err);
  if (status != TDICT_OK) return status;
  *to = tdict_leaf_of_tensor(t);
  j->made[leaf] = NULL;
  return TDICT_OK;
}

/* Fills a new tree with the results. A frame's mark is the new node for the frame's node. */
static tdict_status fill_with_results(const visit_job *j, tdict_cursor *c, tdict_tree *made, tdict_error *err) {
  size_t next = 0;
  c->frames[0].mark = (size_t)made;
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(c)) != 0;) {
    const tdict_frame *top = &c->frames[c->depth - 1];
    tdict_tree *node = (tdict_tree *)top->mark, *from = tdict_leaf_tree(leaf), *below = NULL;
    tdict_leaf *to = &node->leaves[top->slot - 1];
    if (tdict_leaf_box(leaf)) { /* an object of a built-in type without elements */
      *to = tdict_leaf_retain(leaf);
      continue;
    }
    tdict_status status = from ? tdict_node_create_like(from, &below, err) : put_made_tensor(j, node, next++, to, err);
    if (status != TDICT_OK) return status;
    if (!from) continue;
    *to = tdict_leaf_of_tree(below);
    tdict_cursor_descend(c, from, (size_t)below);
  }
  return tdict_cursor_check(c, j->what, err);
}

static tdict_status remove_all_keys_without_leaf(const visit_job *j, tdict_cursor *c, tdict_tree *made,
                                                 tdict_error *err) {
  tdict_cursor_rewind(c, made);
  if (!remove_keys_without_leaf(made)) return tdict_fail_memory(err, j->what, NULL, "the tree");
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(c)) != 0;) {
    tdict_tree *node = tdict_leaf_tree(leaf);
    if (!node) continue;
    if (!remove_keys_without_leaf(node)) return tdict_fail_memory(err, j->what, NULL, "the tree");
    tdict_cursor_descend(c, node, 0);
  }
  return tdict_cursor_check(c, j->what, err);
}

static tdict_status make_result_tree(const visit_job *j, tdict_tree **out, tdict_error *err) {
  tdict_cursor cursor;
  tdict_tree *made;
  tdict_status status = tdict_node_create_like(get_first_tree(j), &made, err);
  if (status != TDICT_OK) return status;
  tdict_cursor_init(&cursor, get_first_tree(j), false);
  status = fill_with_results(j, &cursor, made, err);
  /* Make objects from their new tensors before the keys without a result are removed. */
  if (status == TDICT_OK && j->opened) status = tdict_objects_unflatten(j->what, j->trees[0], made, err);
  if (status == TDICT_OK) status = remove_all_keys_without_leaf(j, &cursor, made, err);
  tdict_cursor_reset(&cursor);
  return TDICT_HAND_OVER(status, made, out, tdict_release);
}

static tdict_status run_apply(visit_job *j, const tdict_run *run, tdict_tree **out, tdict_error *err) {
  init_job(j);
  tdict_status status = call_for_all(j, run, err);
  if (status == TDICT_OK) status = make_result_tree(j, out, err);
  reset_job(j);
  return status;
}

tdict_status tdict_apply(tdict_context *context, const tdict_tree *const *trees, size_t count, tdict_leaf_maker make,
                         void *user, const tdict_run *run, tdict_tree **out, tdict_error *err) {
  if (!make || !out) return tdict_fail_null(err, "apply", make ? "out" : "the function");
  visit_job j = {.what = "apply", .trees = trees, .count = count, .make = make, .user = user, .context = context};
  return run_apply(&j, run, out, err);
}

typedef struct filter {
  tdict_leaf_predicate keep;
  void *user;
} filter;

/* Shares the tensor if the predicate returns true. Otherwise leaves the key out. */
static tdict_status keep_or_drop(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  const filter *f = user;
  (void)err;
  if (f->keep(f->user, at)) *out = tdict_tensor_retain(at->tensors[0]);
  return TDICT_OK;
}

tdict_status tdict_filter(const tdict_tree *tree, tdict_leaf_predicate keep, void *user, tdict_tree **out,
                          tdict_error *err) {
  if (!tree || !keep || !out) return tdict_fail_null(err, "filter", !tree ? "tree" : !keep ? "the function" : "out");
  filter f = {keep, user};
  visit_job j = {.what = "filter", .trees = &tree, .count = 1, .make = keep_or_drop, .user = &f};
  return run_apply(&j, NULL, out, err);
}

/* Recurses only if memory for a deeper cursor is exhausted. */
int tdict_depth(const tdict_tree *tree) {
  tdict_cursor cursor;
  size_t deepest = 0;
  if (!tree) return 0;
  tdict_cursor_init(&cursor, tree, false);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *child = tdict_leaf_tree(leaf);
    size_t level = cursor.depth - 1; /* depth of a tensor or object; an empty child does not count */
    if (child && (tdict_cursor_enter(&cursor, child) || tdict_num_leaves(child) + tdict_num_objects(child) == 0))
      continue;
    if (child) level += 1 + (size_t)tdict_depth(child);
    if (level > deepest) deepest = level;
  }
  tdict_cursor_reset(&cursor);
  return (int)deepest;
}
