/* Tests tdict_run: options that a function does not use, and the number of threads. */
#include "support/test.h"

/* The options of a tdict_run, as bits of `uses`, and the calls that take a tdict_run. */
enum { THREADS = 1, STREAM = 2, MEMORY = 4 };
enum {
  GET,
  INTO,
  SET,
  CLONE,
  CONTIGUOUS,
  FILL,
  COPY,
  TO_DTYPE,
  TENSOR_TO_DTYPE,
  STACK,
  CAT,
  STACK_INTO,
  CAT_INTO,
  PAD,
  PACK,
  VISIT,
  APPLY,
  NUM_CALLS
};
static const struct {
  const char *name;
  unsigned uses;
} calls[NUM_CALLS] = {[GET] = {"index", THREADS | STREAM | MEMORY},
                      [INTO] = {"index_into", THREADS | STREAM},
                      [SET] = {"index_set", THREADS | STREAM},
                      [CLONE] = {"clone_deep", STREAM | MEMORY},
                      [CONTIGUOUS] = {"contiguous", STREAM},
                      [FILL] = {"fill", STREAM},
                      [COPY] = {"copy", STREAM},
                      [TO_DTYPE] = {"to_dtype", STREAM | MEMORY},
                      [TENSOR_TO_DTYPE] = {"to_dtype", STREAM | MEMORY},
                      [STACK] = {"stack", STREAM | MEMORY},
                      [CAT] = {"cat", STREAM | MEMORY},
                      [STACK_INTO] = {"stack_into", STREAM},
                      [CAT_INTO] = {"cat_into", STREAM},
                      [PAD] = {"pad_sequence", MEMORY},
                      [PACK] = {"pack_sequence", MEMORY},
                      [VISIT] = {"visit", THREADS},
                      [APPLY] = {"apply", THREADS}};

static tdict_status see(void *user, const tdict_leaves *at, tdict_error *err) {
  (void)user, (void)at, (void)err;
  return TDICT_OK;
}
static tdict_status share(void *user, const tdict_leaves *at, tdict_tensor **out, tdict_error *err) {
  (void)user, (void)err;
  *out = tdict_tensor_retain(at->tensors[0]);
  return TDICT_OK;
}

/* `td` and `other` have 4 rows of int32. `stacked` and `joined` have room for two such trees. */
typedef struct trees {
  tdict_tree *td, *other, *stacked, *joined;
} trees;
static tdict_tensor *tensor_of(const tdict_tree *td) {
  tdict_tensor *x = NULL;
  td_ok(tdict_get(td, "x", &x, err));
  return x;
}
static tdict_status call(const trees *t, int way, tdict_context *context, const tdict_run *run, void **out,
                         tdict_error *err) {
  const tdict_tree *const both[] = {t->td, t->td};
  tdict_tree **tree = (tdict_tree **)out;
  const tdict_indices *all = TDICT_INDEX(TDICT_REST);
  switch (way) {
  case GET:
    return tdict_index_get(context, t->td, all, run, tree, err);
  case INTO:
    return tdict_index_into(context, t->other, t->td, all, run, err);
  case SET:
    return tdict_index_set(context, t->other, all, t->td, run, err);
  case CLONE:
    return tdict_clone_deep(t->td, run, tree, err);
  case CONTIGUOUS:
    return tdict_contiguous(t->td, run, tree, err);
  case FILL:
    return tdict_fill(t->other, NULL, 3, run, err);
  case COPY:
    return tdict_copy(t->other, t->td, run, err);
  case TO_DTYPE:
    return tdict_to_dtype(t->td, TDICT_F64, NULL, run, tree, err);
  case TENSOR_TO_DTYPE:
    return tdict_tensor_to_dtype(tensor_of(t->td), TDICT_F64, run, (tdict_tensor **)out, err);
  case STACK:
    return tdict_stack(both, 2, NULL, run, tree, err);
  case CAT:
    return tdict_cat(both, 2, NULL, run, tree, err);
  case STACK_INTO:
    return tdict_stack_into(t->stacked, both, 2, NULL, run, err);
  case CAT_INTO:
    return tdict_cat_into(t->joined, both, 2, NULL, run, err);
  case PAD:
    return tdict_pad_sequence(both, 2, NULL, run, tree, err);
  case PACK:
    return tdict_pack_sequence(both, 2, NULL, run, tree, err);
  case VISIT:
    return tdict_visit(context, both, 2, see, NULL, run, err);
  default:
    return tdict_apply(context, both, 2, share, NULL, run, tree, err);
  }
}
static void release(int way, void *out) {
  if (way == TENSOR_TO_DTYPE)
    tdict_tensor_release(out);
  else
    tdict_release(out);
}

static trees make_trees(void) {
  trees t = {.td = NULL};
  const int64_t rows = 4;
  td_ok(tdict_create(1, &rows, &t.td, err));
  tdict_tensor *x = td_made(tensor, tdict_tensor_arange(TDICT_I32, 1, 1, rows, &made, err));
  td_put(t.td, "x", x);
  td_ok(tdict_clone_deep(t.td, NULL, &t.other, err));
  td_ok(tdict_fill(t.other, NULL, 0, NULL, err));
  const tdict_tree *const both[] = {t.other, t.other};
  td_ok(tdict_stack(both, 2, NULL, NULL, &t.stacked, err));
  td_ok(tdict_cat(both, 2, NULL, NULL, &t.joined, err));
  return t;
}
static void release_trees(trees *t) { td_release(t->td, t->other, t->stacked, t->joined); }
static bool is_zero(const tdict_tree *td) {
  const int32_t *x = tdict_const_data(td, "x");
  int64_t count = tdict_tensor_numel(tensor_of(td)), nonzero = 0;
  for (int64_t i = 0; i < count; i++) nonzero += x[i] != 0;
  return nonzero == 0;
}

/* A call with an option that the function does not use fails. The message names the option, and nothing is written. */
CASE(run_names_unused_options) {
  static const char *const names[] = {"num_threads", "stream", "memory"};
  scoped_context context = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_sim(0)), &context, err));
  tdict_run runs[] = {tdict_run_default(), tdict_run_default(), tdict_run_default()};
  runs[0].num_threads = 0;
  td_ok(tdict_stream_create(context, tdict_sim(0), &runs[1].stream, err));
  runs[2].memory = tdict_pinned_memory(context);
  trees t = make_trees();
  for (int way = 0; way < NUM_CALLS; way++) {
    void *out = NULL;
    for (int i = 0; i < 3; i++) {
      char message[100];
      if (calls[way].uses & 1u << i) continue;
      snprintf(message, sizeof message, "%s: the option %s is set, but this function does not use it", calls[way].name,
               names[i]);
      td_fails(TDICT_EINVAL, message, call(&t, way, context, &runs[i], &out, err));
    }
    tdict_run lost = tdict_run_default(), shorter = tdict_run_default();
    lost.stream.handle = &lost;
    td_fails(TDICT_EINVAL, "the stream has a handle but no device", call(&t, way, context, &lost, &out, err));
    shorter.struct_size = 0;
    td_fails(TDICT_EINVAL, "run", call(&t, way, context, &shorter, &out, err));
    assert_null(out);
  }
  assert_true(is_zero(t.other) && is_zero(t.stacked) && is_zero(t.joined));
  /* Each call accepts the options that it uses. */
  for (int way = 0; way < NUM_CALLS; way++)
    for (int i = 0; i < 3; i++) {
      void *out = NULL;
      if (calls[way].uses & 1u << i) td_ok(call(&t, way, context, &runs[i], &out, err));
      release(way, out);
    }
  release_trees(&t);
  tdict_stream_destroy(context, runs[1].stream);
}

CASE(run_checks_threads) {
  static const int ways[] = {GET, INTO, SET, VISIT, APPLY};
  scoped_context context = NULL;
  td_ok(tdict_context_create(td_options(tdict_context_options, device = tdict_cpu(), num_threads = 3), &context, err));
  trees t = make_trees();
  for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
    for (int count = -3; count < 6; count++) {
      void *out = NULL;
      char message[100];
      tdict_run run = td_with(tdict_run, num_threads = count);
      snprintf(message, sizeof message, "%s: num_threads is %d, wanted -1 to 3, the threads of the context's pool",
               calls[ways[w]].name, count);
      if (count < -1 || count > 3)
        td_fails(TDICT_EINVAL, message, call(&t, ways[w], context, &run, &out, err));
      else
        td_ok(call(&t, ways[w], context, &run, &out, err));
      tdict_release(out);
      out = NULL;
      snprintf(message, sizeof message, "%s: num_threads is %d, but context is NULL", calls[ways[w]].name, count);
      if (count < -1 || count > 0)
        td_fails(TDICT_EINVAL, message, call(&t, ways[w], NULL, &run, &out, err));
      else
        td_ok(call(&t, ways[w], NULL, &run, &out, err));
      tdict_release(out);
    }
  release_trees(&t);
}
