/* Runs random operations on random trees on a device and on a plain model (plain.h), and compares statuses, paths,
 * shapes and elements. Each call is blocking or queued on one of two streams. Most results are compared only after
 * several more calls. `--ops N` sets the number of operations, and `--seed S` the first seed. */
#include "core/ops/device/model_index.h"

enum { EPISODE = 400, DEFAULT_OPS = 4000, MOST_ITEMS = 3, CHECK_ALL = 16 };

/* The expected result of a call. */
typedef struct wanted {
  tdict_status status;
  const char *text;        /* part of the message; NULL: any message */
  bool path[PLAIN_LEAVES]; /* the leaves that err->path may name; none: any path */
} wanted;

static struct {
  bool is_running;
  int64_t operation, seed, good, refused;
  const char *name;
} progress;
__attribute__((destructor)) static void report_failure(void) {
  if (progress.is_running)
    fprintf(stderr, "operation %lld (%s) of the episode with --seed %lld failed\n", (long long)progress.operation,
            progress.name, (long long)progress.seed);
}

static void check_status(const wanted *w, tdict_status found, const tdict_error *e) {
  bool names_path = false, has_path = false;
  if (found != w->status)
    fail_msg("status %s, wanted %s: %s at '%s'", tdict_status_name(found), tdict_status_name(w->status), e->message,
             e->path);
  if (found == TDICT_OK) progress.good++;
  if (found == TDICT_OK) return;
  progress.refused++;
  if (w->text && !strstr(e->message, w->text)) fail_msg("message '%s', wanted '%s'", e->message, w->text);
  for (int i = 0; i < PLAIN_LEAVES; i++) {
    names_path = names_path || w->path[i];
    has_path = has_path || (w->path[i] && strcmp(plain_paths[i], e->path) == 0);
  }
  if (names_path && !has_path) fail_msg("path '%s' with '%s'", e->path, e->message);
}

/* Returns the expected result of a copy. On a stream, a copy between the host and a device is refused. */
static wanted wanted_of_copy(const plain_tree *to, const plain_tree *from, const tdict_stream *s) {
  wanted w = {.status = TDICT_OK};
  for (int i = 0; i < PLAIN_LEAVES && s && w.status == TDICT_OK; i++) {
    if (!from->has[i] || to->leaf[i].on_host == from->leaf[i].on_host) continue;
    w.status = TDICT_ENOTSUP;
    w.text = "on a stream, both tensors must be in memory of one context's device";
    w.path[i] = true;
  }
  return w;
}

static slot *any_slot(model *m) {
  slot *s = &m->slots[pick(&m->r, 0, MODEL_SLOTS - 1)];
  if (!s->tree || pick(&m->r, 0, 15) == 0) {
    const plain_tree form = model_form(&m->r);
    slot_drop(s);
    *s = model_tree(m, &form, true);
  }
  return s;
}
static slot *slot_with_batch(model *m) {
  slot *s = any_slot(m);
  while (s->plain.nb == 0) {
    const plain_tree form = model_form(&m->r);
    slot_drop(s);
    *s = model_tree(m, &form, true);
  }
  return s;
}
/* Returns a slot whose tree can be written, because no two elements of a leaf have the same address. */
static slot *slot_to_write(model *m, bool has_batch) {
  slot *s = has_batch ? slot_with_batch(m) : any_slot(m);
  if (plain_repeats(&s->plain)) {
    slot made = model_tree(m, &s->plain, false);
    slot_drop(s);
    *s = made;
  }
  return s;
}

/* Returns the layout (keys, dtypes, shapes) of the tree that `plan` selects from `p`. The layout's arrays have no bytes
 * of their own. */
static plain_tree indexed_form(const plain_plan *plan, const plain_tree *p) {
  plain_tree form = {.nb = plan->ndim, .more = p->more};
  for (int d = 0; d < plan->ndim; d++) form.bs[d] = plan->dim[d].size;
  for (int i = 0; i < PLAIN_LEAVES; i++) {
    form.has[i] = p->has[i];
    if (!p->has[i]) continue;
    form.leaf[i] = p->leaf[i];
    form.leaf[i].ndim = plain_shape_of(plan, &p->leaf[i], form.leaf[i].shape);
  }
  return form;
}

static void get_by_index(model *m) {
  slot *s = slot_with_batch(m), out = {NULL, {0}};
  scoped_model_index x = {.wants_bad = pick(&m->r, 0, 9) == 0};
  const tdict_stream *stream = model_stream(m);
  tdict_error e = {0};
  model_index_make(m, &s->plain, &x);
  const wanted w = {x.refusal[0] ? TDICT_EINVAL : TDICT_OK, x.refusal, {0}};
  check_status(&w, tdict_index_get(NULL, s->tree, &x.index, TD_ON_IF(stream), &out.tree, &e), &e);
  if (w.status == TDICT_OK) {
    out.plain = indexed_form(&x.plan, &s->plain);
    for (int i = 0; i < PLAIN_LEAVES; i++)
      if (s->plain.has[i]) out.plain.leaf[i] = plain_get(&x.plan, &s->plain.leaf[i]);
    model_keep(m, &out);
  }
  assert_null(out.tree);
}

static void get_into(model *m) {
  slot *s = slot_with_batch(m);
  scoped_model_index x = {.wants_bad = pick(&m->r, 0, 9) == 0};
  const tdict_stream *stream = model_stream(m);
  tdict_error e = {0};
  model_index_make(m, &s->plain, &x);
  plain_tree form = indexed_form(&x.plan, &s->plain);
  if (plain_total(&form) <= MODEL_MOST_ELEMENTS) {
    model_move_leaves(&m->r, &form);
    slot dst = model_tree(m, &form, false);
    wanted w = {TDICT_EINVAL, x.refusal, {0}};
    if (!x.refusal[0]) w = wanted_of_copy(&dst.plain, &s->plain, stream);
    check_status(&w, tdict_index_into(NULL, dst.tree, s->tree, &x.index, TD_ON_IF(stream), &e), &e);
    for (int i = 0; i < PLAIN_LEAVES && w.status == TDICT_OK; i++) {
      if (!s->plain.has[i]) continue;
      plain_array part = plain_get(&x.plan, &s->plain.leaf[i]);
      plain_copy(&dst.plain.leaf[i], &part);
      plain_drop(&part);
    }
    model_keep(m, &dst);
  }
}

/* Removes some leaves from a value's form, and some leading batch dimensions, along which a write repeats the value. */
static void shorten(model *m, plain_tree *form) {
  const int cut = pick(&m->r, 0, 3) ? 0 : (int)pick(&m->r, 0, form->nb);
  form->nb -= cut;
  memmove(form->bs, form->bs + cut, (size_t)form->nb * sizeof *form->bs);
  for (int i = 0; i < PLAIN_LEAVES; i++) {
    form->has[i] = form->has[i] && pick(&m->r, 0, 5);
    if (!form->has[i]) continue;
    form->leaf[i].ndim -= cut;
    memmove(form->leaf[i].shape, form->leaf[i].shape + cut, (size_t)form->leaf[i].ndim * sizeof(int64_t));
  }
}

static void set_by_index(model *m) {
  slot *s = slot_to_write(m, true);
  scoped_model_index x = {.wants_bad = pick(&m->r, 0, 9) == 0, .is_distinct = true};
  const tdict_stream *stream = model_stream(m);
  tdict_error e = {0};
  model_index_make(m, &s->plain, &x);
  plain_tree form = indexed_form(&x.plan, &s->plain);
  shorten(m, &form);
  model_move_leaves(&m->r, &form);
  scoped_slot value = model_tree(m, &form, true);
  wanted w = {TDICT_EINVAL, x.refusal, {0}};
  if (!x.refusal[0]) w = wanted_of_copy(&s->plain, &value.plain, stream);
  check_status(&w, tdict_index_set(NULL, s->tree, &x.index, value.tree, TD_ON_IF(stream), &e), &e);
  for (int i = 0; i < PLAIN_LEAVES && w.status == TDICT_OK; i++)
    if (value.plain.has[i]) plain_set(&x.plan, &s->plain.leaf[i], &value.plain.leaf[i]);
  if (w.status != TDICT_OK || pick(&m->r, 0, 1)) model_check(m, s);
}

/* A join of up to MOST_ITEMS trees. */
typedef struct join {
  bool is_stack, is_into;
  int dim, count;
  slot items[MOST_ITEMS]; /* items[0] is a shallow copy of a model slot, which still owns the tree */
} join;
static void make_items(model *m, join *j) {
  slot *s = any_slot(m);
  j->is_stack = s->plain.nb == 0 || pick(&m->r, 0, 1);
  j->is_into = pick(&m->r, 0, 1);
  j->dim = (int)pick(&m->r, 0, s->plain.nb - !j->is_stack);
  j->count = (int)pick(&m->r, 1, MOST_ITEMS);
  j->items[0] = *s;
  for (int k = 1; k < j->count; k++) {
    plain_tree form = s->plain;
    if (!j->is_stack && form.bs[j->dim] < 10) {
      form.bs[j->dim] = pick(&m->r, 0, 4);
      for (int i = 0; i < PLAIN_LEAVES; i++) form.leaf[i].shape[j->dim] = form.bs[j->dim];
    }
    j->items[k] = model_tree(m, &form, true);
  }
}
static plain_tree joined_form(const join *j) {
  plain_tree form = j->items[0].plain;
  int64_t size = j->is_stack ? j->count : 0;
  for (int k = 0; k < j->count && !j->is_stack; k++) size += j->items[k].plain.bs[j->dim];
  for (int d = form.nb; j->is_stack && d > j->dim; d--) form.bs[d] = form.bs[d - 1];
  form.nb += j->is_stack;
  form.bs[j->dim] = size;
  for (int i = 0; i < PLAIN_LEAVES; i++) {
    plain_array *a = &form.leaf[i];
    for (int d = a->ndim; form.has[i] && j->is_stack && d > j->dim; d--) a->shape[d] = a->shape[d - 1];
    a->ndim += j->is_stack;
    a->shape[j->dim] = size;
  }
  return form;
}
/* Copies leaf number `leaf` of all items to the result. */
static void join_leaf(const join *j, int leaf, plain_array *out) {
  int64_t at = 0;
  for (int k = 0; k < j->count; k++) {
    const plain_array *item = &j->items[k].plain.leaf[leaf];
    PLAIN_EACH(item->ndim, item->shape, from) {
      int64_t to[PLAIN_DIMS];
      for (int d = 0; d < item->ndim; d++) to[d + (j->is_stack && d >= j->dim)] = from[d];
      to[j->dim] = j->is_stack ? k : at + from[j->dim];
      plain_copy_element(out, to, item, from);
    }
    at += j->items[k].plain.bs[j->dim];
  }
}
static tdict_status call_join(const join *j, const tdict_join_options *o, const tdict_run *run, tdict_tree **out,
                              tdict_error *err) {
  const tdict_tree *items[MOST_ITEMS];
  const size_t count = (size_t)j->count;
  for (int k = 0; k < j->count; k++) items[k] = j->items[k].tree;
  if (j->is_into)
    return j->is_stack ? tdict_stack_into(*out, items, count, o, run, err)
                       : tdict_cat_into(*out, items, count, o, run, err);
  return j->is_stack ? tdict_stack(items, count, o, run, out, err) : tdict_cat(items, count, o, run, out, err);
}
static void join_trees(model *m) {
  join j = {.count = 0};
  slot out = {NULL, {0}};
  tdict_error e = {0};
  tdict_join_options o = tdict_join_options_default();
  make_items(m, &j);
  const plain_tree form = joined_form(&j);
  if (plain_total(&form) <= MODEL_MOST_ELEMENTS) {
    o.dim = j.dim;
    const tdict_stream *stream = model_stream(m);
    if (pick(&m->r, 0, 3) == 0) o.dim -= form.nb; /* a negative dimension counts from the end */
    if (j.is_into) out = model_tree(m, &form, false);
    check_status(&(wanted){.status = TDICT_OK}, call_join(&j, &o, TD_ON_IF(stream), &out.tree, &e), &e);
    if (!j.is_into) out.plain = form;
    for (int i = 0; i < PLAIN_LEAVES; i++) {
      if (!form.has[i]) continue;
      plain_array *a = &out.plain.leaf[i];
      if (!j.is_into) *a = plain_new(a->dtype, a->ndim, a->shape, a->on_host);
      join_leaf(&j, i, a);
    }
    for (int k = 1; k < j.count; k++) slot_drop(&j.items[k]);
    model_keep(m, &out);
  } else {
    for (int k = 1; k < j.count; k++) slot_drop(&j.items[k]);
  }
}

/* Calls tdict_clone_deep(), or tdict_contiguous(), which copies only tensors that are not contiguous. */
static void clone_tree(model *m) {
  slot *s = any_slot(m), out = {NULL, s->plain};
  const tdict_stream *stream = model_stream(m);
  const bool is_clone = pick(&m->r, 0, 1);
  tdict_error e = {0};
  tdict_status status;
  if (is_clone)
    status = tdict_clone_deep(s->tree, TD_ON_IF(stream), &out.tree, &e);
  else
    status = tdict_contiguous(s->tree, TD_ON_IF(stream), &out.tree, &e);
  check_status(&(wanted){.status = TDICT_OK}, status, &e);
  for (int i = 0; i < PLAIN_LEAVES; i++) {
    if (!s->plain.has[i]) continue;
    const plain_array *a = &s->plain.leaf[i];
    out.plain.leaf[i] = !is_clone && plain_is_contiguous(a) ? plain_share(a) : plain_clone(a);
    assert_true(tdict_tensor_is_contiguous(td_leaf(out.tree, plain_paths[i])));
  }
  model_keep(m, &out);
}

static void copy_tree(model *m) {
  slot *s = slot_to_write(m, false);
  const tdict_stream *stream = model_stream(m);
  plain_tree form = s->plain;
  tdict_error e = {0};
  model_move_leaves(&m->r, &form);
  scoped_slot from = model_tree(m, &form, true);
  const wanted w = wanted_of_copy(&s->plain, &from.plain, stream);
  check_status(&w, tdict_copy(s->tree, from.tree, TD_ON_IF(stream), &e), &e);
  for (int i = 0; i < PLAIN_LEAVES && w.status == TDICT_OK; i++)
    if (s->plain.has[i]) plain_copy(&s->plain.leaf[i], &from.plain.leaf[i]);
  if (w.status != TDICT_OK || pick(&m->r, 0, 1)) model_check(m, s);
}

/* Converts a number to an element of a dtype. Returns the status that tdict_fill() must return. */
static tdict_status element_of(tdict_dtype dtype, double value, void *element) {
  memset(element, 0, PLAIN_ITEM);
  if (value == 0) return TDICT_OK;
  if (!plain_parts(dtype)) return TDICT_ENOTSUP; /* several lanes can only be filled with 0 */
  return plain_convert(dtype, element, TDICT_F64, &value) ? TDICT_OK : TDICT_EOVERFLOW;
}
static void fill_tree(model *m) {
  static const double values[] = {0, 0, 1, 77, -3, 300, 2.5, 40000};
  static const char *const paths[] = {NULL, "a", "n", "n.m", "d"};
  static const bool below[][PLAIN_LEAVES] = {{1, 1, 1, 1, 1}, {1}, {0, 1, 1}, {0, 0, 1}, {0, 0, 0, 1}};
  slot *s = any_slot(m);
  const int64_t at = pick(&m->r, 0, 4);
  const double value = values[pick(&m->r, 0, 7)];
  const tdict_stream *stream = model_stream(m);
  unsigned char element[PLAIN_LEAVES][PLAIN_ITEM];
  wanted w = {.status = TDICT_OK};
  tdict_error e = {0};
  for (int i = 0; i < PLAIN_LEAVES && w.status == TDICT_OK; i++) {
    if (!s->plain.has[i] || !below[at][i]) continue;
    w.status = element_of(s->plain.leaf[i].dtype, value, element[i]);
    if (w.status == TDICT_OK && stream && !s->plain.leaf[i].on_host && plain_item(s->plain.leaf[i].dtype) > 16)
      w.status = TDICT_ENOTSUP;
    w.path[i] = w.status != TDICT_OK;
  }
  if ((at == 1 && !s->plain.has[0]) || (at == 4 && !s->plain.has[3])) w.status = TDICT_ENOTFOUND;
  check_status(&w, tdict_fill(s->tree, paths[at], value, TD_ON_IF(stream), &e), &e);
  for (int i = 0; i < PLAIN_LEAVES && w.status == TDICT_OK; i++) {
    plain_array *a = &s->plain.leaf[i];
    if (!s->plain.has[i] || !below[at][i]) continue;
    PLAIN_EACH(a->ndim, a->shape, k) memcpy(plain_at(a, k), element[i], plain_item(a->dtype));
  }
  if (w.status != TDICT_OK || pick(&m->r, 0, 1)) model_check(m, s);
}

/* Converts a leaf. Returns false if an element does not fit. */
static bool convert_leaf(tdict_dtype dtype, const plain_array *a, plain_array *out) {
  bool fits = true;
  *out = plain_new(dtype, a->ndim, a->shape, a->on_host);
  out->bytes->has_loose_nans = true;
  PLAIN_EACH(a->ndim, a->shape, k) fits = fits && plain_convert(dtype, plain_at(out, k), a->dtype, plain_at(a, k));
  return fits;
}
/* Converts all leaves. Returns the expected result of the conversion. Leaves on the host and on the device are
 * converted separately, so the error may name the first bad leaf on the host or on the device. */
static wanted convert_all(const plain_tree *p, tdict_dtype dtype, bool floats_only, plain_tree *out) {
  wanted w = {.status = TDICT_OK};
  bool on_host[2] = {false, false};
  *out = *p;
  memset(out->has, 0, sizeof out->has);
  for (int i = 0; i < PLAIN_LEAVES && w.status == TDICT_OK; i++) {
    if (!p->has[i] || p->leaf[i].dtype == dtype || (floats_only && !plain_is_float(p->leaf[i].dtype))) continue;
    if (plain_converts(dtype, p->leaf[i].dtype)) continue;
    w.status = TDICT_ENOTSUP;
    w.path[i] = true;
  }
  const bool supported = w.status == TDICT_OK;
  for (int i = 0; i < PLAIN_LEAVES && supported; i++) {
    const plain_array *a = &p->leaf[i];
    if (!p->has[i]) continue;
    out->has[i] = true;
    if (a->dtype == dtype || (floats_only && !plain_is_float(a->dtype))) {
      out->leaf[i] = plain_share(a);
    } else if (!convert_leaf(dtype, a, &out->leaf[i])) {
      w.status = TDICT_EOVERFLOW;
      w.path[i] = !on_host[a->on_host]; /* may be named only if it is the first bad leaf on its side */
      on_host[a->on_host] = true;
    }
  }
  return w;
}
static void convert_tree(model *m) {
  static const tdict_dtype dtypes[] = {TDICT_F16, TDICT_BF16, TDICT_F8E4M3, TDICT_F8E5M2, TDICT_F32, TDICT_F64,
                                       TDICT_C64, TDICT_C128, TDICT_BOOL,   TDICT_I8,     TDICT_I16, TDICT_I32,
                                       TDICT_I64, TDICT_U8,   TDICT_U16,    TDICT_U32,    TDICT_U64};
  slot *s = any_slot(m), out = {NULL, {0}};
  const tdict_dtype dtype = dtypes[pick(&m->r, 0, m->delayed ? 8 : 16)]; /* a conversion to an integer dtype waits */
  tdict_error e = {0};
  tdict_dtype_options o = td_with(tdict_dtype_options, floats_only = pick(&m->r, 0, 3) == 0);
  const tdict_stream *stream = model_stream(m);
  const wanted w = convert_all(&s->plain, dtype, o.floats_only, &out.plain);
  check_status(&w, tdict_to_dtype(s->tree, dtype, &o, TD_ON_IF(stream), &out.tree, &e), &e);
  if (w.status == TDICT_OK)
    model_keep(m, &out);
  else
    slot_drop(&out);
}

/* Makes a view: permutes the batch dimensions, or expands dimensions, sometimes after adding a leading one. */
static void view_tree(model *m) {
  slot *s = any_slot(m), out = {NULL, s->plain};
  plain_tree *p = &out.plain;
  const int nb = p->nb, lead = pick(&m->r, 0, 1) ? (int)pick(&m->r, 0, 1) : -1;
  int order[PLAIN_DIMS];
  for (int d = 0; d < nb; d++) {
    const int j = (int)pick(&m->r, 0, d);
    order[d] = order[j];
    order[j] = d;
  }
  if (lead < 0) {
    for (int d = 0; d < nb; d++) p->bs[d] = s->plain.bs[order[d]];
    td_ok(tdict_permute(s->tree, nb, order, &out.tree, err));
  } else {
    memmove(p->bs + lead, s->plain.bs, (size_t)nb * sizeof *p->bs);
    if (lead) p->bs[0] = pick(&m->r, 0, 3);
    for (int d = lead; d < nb + lead; d++)
      if (p->bs[d] == 1) p->bs[d] = pick(&m->r, 0, 3);
    p->nb += lead;
    td_ok(tdict_expand(s->tree, p->nb, p->bs, &out.tree, err));
  }
  for (int i = 0; i < PLAIN_LEAVES; i++) {
    if (!p->has[i]) continue;
    plain_array *a = &p->leaf[i];
    const plain_array old = plain_share(a);
    for (int d = 0; d < nb && lead < 0; d++) {
      a->shape[d] = old.shape[order[d]];
      a->strides[d] = old.strides[order[d]];
    }
    if (lead < 0) continue;
    a->ndim += lead;
    a->strides[0] = 0;
    memcpy(a->shape + lead, old.shape, (size_t)old.ndim * sizeof *old.shape);
    memcpy(a->strides + lead, old.strides, (size_t)old.ndim * sizeof *old.strides);
    for (int d = 0; d < p->nb; d++) {
      if (d < lead || a->shape[d] != p->bs[d]) a->strides[d] = 0;
      a->shape[d] = p->bs[d];
    }
  }
  model_keep(m, &out);
}

static const struct {
  const char *name;
  void (*run)(model *m);
} operations[] = {{"index_get", get_by_index}, {"index_into", get_into},    {"index_set", set_by_index},
                  {"index_get", get_by_index}, {"index_set", set_by_index}, {"stack or cat", join_trees},
                  {"clone", clone_tree},       {"copy", copy_tree},         {"fill", fill_tree},
                  {"to_dtype", convert_tree},  {"view", view_tree}};
enum { NUM_OPERATIONS = sizeof operations / sizeof *operations };

static void run_episode(model *m, int64_t seed, int64_t count, int64_t *done) {
  m->r.state = (uint64_t)seed * 0x9e3779b97f4a7c15u;
  progress.seed = seed;
  for (int i = 0; i < MODEL_SLOTS; i++) slot_drop(&m->slots[i]);
  for (progress.operation = 0; progress.operation < count; progress.operation++) {
    const int64_t op = pick(&m->r, 0, NUM_OPERATIONS - 1);
    if (!m->delayed && pick(&m->r, 0, 15) == 0) model_delay(m, (int)pick(&m->r, 2, 6));
    progress.name = operations[op].name;
    operations[op].run(m);
    done[op]++;
    m->delayed -= m->delayed > 0;
    if (progress.operation % CHECK_ALL == 0)
      for (int i = 0; i < MODEL_SLOTS; i++) model_check(m, &m->slots[i]);
  }
  m->delayed = 0;
  for (int i = 0; i < MODEL_SLOTS; i++) model_check(m, &m->slots[i]);
}

GPU_CASE(device_random_operations) {
  const int64_t seed = td_number("--seed", 20261124), count = td_number("--ops", DEFAULT_OPS);
  int64_t done[NUM_OPERATIONS] = {0};
  model *m = model_open();
  progress.is_running = true;
  for (int64_t at = 0; at < count; at += EPISODE)
    run_episode(m, seed + at / EPISODE, count - at < EPISODE ? count - at : EPISODE, done);
  progress.is_running = false;
  for (int i = 0; i < NUM_OPERATIONS; i++) printf("%-12s %9lld\n", operations[i].name, (long long)done[i]);
  printf("%lld calls succeeded, and %lld were refused as the model requires\n", (long long)progress.good,
         (long long)progress.refused);
  if (count >= DEFAULT_OPS) assert_true(progress.refused > count / 50 && progress.good > count / 2);
  model_close(m);
}
