/* Operations on trees with an object. Each operation also runs on a tree that has a child in place of the object, and
 * the results are compared. The object holds a copy of a pool tree or of a child. See ops.h. */
#include <stdlib.h>
#include <string.h>

#include "tdict/clone.h"
#include "tdict/path.h"
#include "tdict/shape.h"
#include "tdict/visit.h"
#include "tdict/write.h"

#include "support/expressions.h"
#include "support/ops.h"

typedef struct holder {
  tdict_tree *tree; /* the tensors of the object */
} holder;
static int64_t alive;

/* Makes an object that owns the tree. Releases the tree if the allocation fails. */
static tdict_status hold(tdict_tree *tree, tdict_status status, void **out) {
  if (status != TDICT_OK) return status;
  holder *h = malloc(sizeof *h);
  if (!h) {
    tdict_release(tree);
    return TDICT_ENOMEM;
  }
  h->tree = tree;
  alive++;
  *out = h;
  return TDICT_OK;
}
static void end(void *self) {
  tdict_release(((holder *)self)->tree);
  free(self);
  alive--;
}
static tdict_status flatten(const void *self, tdict_tree **out, tdict_error *err) {
  (void)err;
  *out = tdict_retain(((const holder *)self)->tree);
  return TDICT_OK;
}
static tdict_status unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  tdict_tree *own = NULL;
  (void)self;
  tdict_status status = tdict_clone(tree, &own, err);
  return hold(own, status, out);
}
static tdict_status clone(const void *self, void **out, tdict_error *err) {
  tdict_tree *own = NULL;
  tdict_status status = tdict_clone_deep(((const holder *)self)->tree, NULL, &own, err);
  return hold(own, status, out);
}
static tdict_status at(const void *self, int64_t i, void **out, tdict_error *err) {
  tdict_tree *own = NULL;
  tdict_status status = tdict_index_get(NULL, ((const holder *)self)->tree, TDICT_INDEX(TDICT_AT(i)), NULL, &own, err);
  return hold(own, status, out);
}
static tdict_status stack(const void *const *items, size_t count, void **out, tdict_error *err) {
  const tdict_tree *trees[4] = {NULL};
  tdict_tree *own = NULL;
  if (count > 4) return TDICT_ENOTSUP;
  for (size_t i = 0; i < count; i++) trees[i] = ((const holder *)items[i])->tree;
  tdict_status status = tdict_stack(trees, count, NULL, NULL, &own, err);
  return hold(own, status, out);
}
static const tdict_type flat = TD_TYPE(.name = "flat", .release = end, .flatten = flatten, .unflatten = unflatten);
static const tdict_type full = TD_TYPE(.name = "full", .release = end, .flatten = flatten, .unflatten = unflatten,
                                       .clone = clone, .index = at, .stack = stack);
static const tdict_type bare = TD_TYPE(.name = "bare", .release = end);

/* The two trees of an operation: `td` has an object at `path`, and `plain` has a child there. The pool has neither. */
typedef struct both {
  tdict_tree *td, *plain;
  char path[2 * M_KEY];
  const tdict_type *type;
  int64_t before;
} both;

static void end_both(ops *o, both *b) {
  tdict_release(b->td);
  tdict_release(b->plain);
  if (alive != b->before) ops_complain(o, "objects were not released");
}

/* Returns whether each node's batch size begins with the root's. Hooks use the batch size of the object's tree. */
static bool is_regular(const m_tree *t, const m_tree *root) {
  if (t->nb < root->nb || (root->nb && memcmp(t->bs, root->bs, (size_t)root->nb * sizeof *t->bs) != 0)) return false;
  for (int i = 0; i < t->count; i++)
    if (t->entries[i].tree && !is_regular(t->entries[i].tree, root)) return false;
  return true;
}

/* Makes both trees from a tree of the pool. Returns false if that tree is empty, too large or irregular. */
static bool begin(ops *o, both *b) {
  const int s = ops_slot(o);
  const m_tree *t = o->model[s];
  const m_entry *e = NULL;
  for (int i = 0; i < t->count && !e; i++) e = t->entries[i].tree ? &t->entries[i] : NULL;
  const uint32_t which = ops_pick(o, 16);
  memset(b, 0, sizeof *b);
  b->type = which == 0 ? &bare : which & 1 ? &flat : &full;
  b->before = alive;
  if (!t->nb || ops_cells(t) > 200 || (tdict_num_leaves(o->td[s]) + tdict_num_objects(o->td[s]) == 0) || !m_fits(t) ||
      !is_regular(t, t) || (e && !is_regular(e->tree, e->tree)))
    return false;
  tdict_tree *source = NULL, *child = NULL;
  void *object = NULL;
  bool ok = tdict_clone_deep(o->td[s], NULL, &source, NULL) == TDICT_OK;
  if (ok && e) {
    tdict_path_escape(e->key, b->path, sizeof b->path);
    ok = tdict_clone(source, &b->td, NULL) == TDICT_OK && tdict_get_tree(b->td, b->path, &child, NULL) == TDICT_OK;
    if (ok) b->plain = tdict_retain(source);
    if (ok) ok = hold(tdict_retain(child), TDICT_OK, &object) == TDICT_OK;
  } else if (ok) { /* the tree becomes a child of a new tree */
    strcpy(b->path, "part");
    ok = tdict_create(t->nb, t->bs, &b->td, NULL) == TDICT_OK &&
         tdict_create(t->nb, t->bs, &b->plain, NULL) == TDICT_OK &&
         tdict_set_tree(b->plain, "part", source, NULL) == TDICT_OK &&
         hold(tdict_retain(source), TDICT_OK, &object) == TDICT_OK;
  }
  ok = ok && tdict_set_object(b->td, b->path, b->type, object, NULL) == TDICT_OK;
  tdict_release(source);
  if (!ok) abort();
  return true;
}

/* Replaces the object in a copy of `got` with its tree, and compares the copy with `wanted`. */
static void compare(ops *o, const both *b, const tdict_tree *got, const tdict_tree *wanted) {
  scoped_tree copy = NULL;
  void *object = NULL;
  tdict_difference found;
  tdict_difference_options options = td_with(tdict_difference_options, nan_equal = true);
  if (tdict_clone(got, &copy, NULL) != TDICT_OK) abort();
  if (tdict_get_object(copy, b->path, b->type, &object, NULL) != TDICT_OK) {
    ops_complain(o, "no object");
  } else {
    scoped_tree tree = tdict_retain(((holder *)object)->tree);
    tdict_status status = tdict_set_tree(copy, b->path, tree, &o->error);
    if (status != TDICT_OK) ops_complain(o, o->error.message);
    if (status == TDICT_OK && tdict_get_difference(copy, wanted, &options, &found, NULL) != TDICT_OK) abort();
    if (status == TDICT_OK && found.differs) ops_complain(o, found.message);
  }
}

/* Judges a call that made `got`. The same call on the plain tree made `wanted`. If the object has type `bare`, which
 * has no hooks, the call may also return TDICT_ENOTSUP. */
static void finish(ops *o, both *b, tdict_status status, tdict_tree *got, tdict_tree *wanted, tdict_status answer) {
  if (!o->refused && b->type == &bare && answer == TDICT_OK) {
    if (status != TDICT_OK && status != TDICT_ENOTSUP) ops_complain(o, tdict_status_name(status));
    o->answered = (int)status;
  } else if (ops_judge(o, status, answer)) {
    compare(o, b, got, wanted);
  }
  tdict_release(got);
  tdict_release(wanted);
  end_both(o, b);
}

typedef ops_choice choice;
typedef ops_maker maker;

ops_choice ops_choose(ops *o, uint32_t ways) {
  ops_choice c = {ops_pick(o, ways), {0}};
  for (int i = 0; i < 4; i++) c.n[i] = (int64_t)ops_pick(o, 3) - 1; /* usually valid indices */
  return c;
}

static void make(ops *o, maker fn, uint32_t ways) {
  both b;
  if (!begin(o, &b)) return;
  const choice c = ops_choose(o, ways);
  tdict_tree *got = NULL, *wanted = NULL;
  tdict_status status = OPS_CALL(o, fn(b.td, &c, &got, o->err));
  tdict_status answer = o->refused ? TDICT_OK : fn(b.plain, &c, &wanted, NULL);
  finish(o, &b, status, got, wanted, answer);
}

tdict_status ops_index_of(const tdict_tree *td, const choice *c, tdict_tree **out, tdict_error *err) {
  const int64_t *n = c->n;
  switch (c->way) {
  case 0:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(n[0])), NULL, out, err);
  case 1:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_AT(n[0]), TDICT_AT(n[1])), NULL, out, err);
  case 2:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_REST, TDICT_RANGE(n[0], n[1], n[2] | 1)), NULL, out, err);
  case 3:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(n, 3)), NULL, out, err);
  case 4:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(n, 2), TDICT_NEW_AXIS, TDICT_LIST(n + 2, 2)), NULL, out,
                           err);
  default:
    return tdict_index_get(NULL, td, TDICT_INDEX(TDICT_NEW_AXIS, TDICT_AT(n[0])), NULL, out, err);
  }
}

static tdict_tree *last_of(tdict_tree **made, size_t count) {
  for (size_t i = 0; i + 1 < count; i++) tdict_release(made[i]);
  return count ? made[count - 1] : NULL;
}

tdict_status ops_shape_of(const tdict_tree *td, const choice *c, tdict_tree **out, tdict_error *err) {
  const int nb = tdict_batch_ndim(td);
  int order[M_DIMS];
  int64_t shape[M_DIMS + 1];
  tdict_tree *made[32] = {NULL};
  size_t count = 32;
  tdict_status status;
  switch (c->way) {
  case 0:
    return tdict_reshape(td, 1, (const int64_t[]){-1}, out, err);
  case 1:
    return tdict_unsqueeze(td, (int)c->n[0], out, err);
  case 2:
    return tdict_squeeze(td, TDICT_EVERY_DIM, out, err);
  case 3:
    for (int i = 0; i < nb; i++) order[i] = (i + (int)c->n[0] + 1) % nb;
    return tdict_permute(td, nb, order, out, err);
  case 4:
    shape[0] = c->n[0] + 1;
    for (int i = 0; i < nb; i++) shape[i + 1] = -1;
    return tdict_expand(td, nb + 1, shape, out, err);
  case 5:
    status = tdict_unbind(td, (int)c->n[0], made, &count, err);
    break;
  default:
    status = tdict_split_every(td, 0, c->n[0] + 1, made, &count, err);
  }
  if (status == TDICT_OK) *out = last_of(made, count);
  return status == TDICT_OK && !*out ? TDICT_ENOTFOUND : status; /* the call returned no pieces */
}

tdict_status ops_copy_leaf(void *user, const tdict_leaves *leaves, tdict_tensor **out, tdict_error *err) {
  (void)user;
  return tdict_tensor_clone(leaves->tensors[0], NULL, out, err);
}

tdict_status ops_join_of(const tdict_tree *td, const choice *c, tdict_tree **out, tdict_error *err) {
  const tdict_tree *items[] = {td, td, td};
  tdict_join_options options = td_with(tdict_join_options, dim = (int32_t)c->n[0]);
  switch (c->way) {
  case 0:
    return tdict_stack(items, 3, NULL, NULL, out, err);
  case 1:
    return tdict_stack(items, 2, &options, NULL, out, err);
  case 2:
    return tdict_cat(items, 2, &options, NULL, out, err);
  case 3:
    return tdict_pad_sequence(items, 2, NULL, NULL, out, err);
  case 4:
    return tdict_clone_deep(td, NULL, out, err);
  default:
    return tdict_apply(NULL, items, 2, ops_copy_leaf, NULL, NULL, out, err);
  }
}

static void op_object_index(ops *o) { make(o, ops_index_of, OPS_INDICES); }
static void op_object_shape(ops *o) { make(o, ops_shape_of, OPS_SHAPES); }
static void op_object_join(ops *o) { make(o, ops_join_of, OPS_JOINS); }

/* Writes to `td` the elements of `from`, the elements of the first row of `from`, or one number. */
static tdict_status write(tdict_tree *td, const tdict_tree *from, const choice *c, tdict_error *err) {
  const int64_t rows = tdict_batch_size(td)[0];
  switch (c->way) {
  case 0:
    return tdict_copy(td, from, NULL, err);
  case 1:
    return tdict_update_in_place(td, from, NULL, 0, err);
  case 2:
    return tdict_fill(td, NULL, (double)c->n[0] + 1, NULL, err);
  case 3:
    return tdict_write_rows(td, 0, from, err);
  case 4:
    return tdict_index_set(NULL, td, TDICT_INDEX(TDICT_RANGE(TDICT_NONE, TDICT_NONE, -1)), from, NULL, err);
  default: {
    scoped_tree row = NULL;
    tdict_status status = tdict_index_get(NULL, from, TDICT_INDEX(TDICT_AT(0)), NULL, &row, err);
    if (status == TDICT_OK) status = tdict_write_rows(td, rows - 1, row, err);
    return status;
  }
  }
}

static void op_object_write(ops *o) {
  both b;
  if (!begin(o, &b)) return;
  const choice c = {ops_pick(o, 6), {ops_pick(o, 3)}};
  tdict_tree *got = NULL, *wanted = NULL, *from = NULL, *plain_from = NULL;
  const bool copies = b.type != &bare;
  bool ok = (copies ? tdict_clone_deep(b.td, NULL, &got, NULL) : tdict_clone(b.td, &got, NULL)) == TDICT_OK &&
            tdict_clone_deep(b.plain, NULL, &wanted, NULL) == TDICT_OK;
  if (!ok) abort();
  from = tdict_retain(b.td);
  plain_from = tdict_retain(b.plain);
  tdict_status status = OPS_CALL(o, write(got, from, &c, o->err));
  tdict_status answer = o->refused ? TDICT_OK : write(wanted, plain_from, &c, NULL);
  tdict_release(from);
  tdict_release(plain_from);
  finish(o, &b, status, got, wanted, answer);
}

const ops_fn ops_objects[] = {op_object_index, op_object_shape, op_object_join, op_object_write};
const char *const ops_object_names[] = {"object_index", "object_shape", "object_join", "object_write"};
const int ops_num_objects = sizeof ops_objects / sizeof *ops_objects;
