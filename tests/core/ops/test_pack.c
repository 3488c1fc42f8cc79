/* Tests tdict_pack_sequence(), which concatenates sequences of different lengths. Compares it with a plain loop. */
#include "rig.h"
#include "support/things.h"
#include "tdict/debug.h"

enum { MOST = 12, EMBED = 3, PAIR = 2 };

/* One sample: tokens [n], embed [n, EMBED] with swapped strides, deep.bytes [n, PAIR], label [], pair [PAIR]. */
typedef struct sample {
  int64_t length, tokens[64];
  float embed[64][EMBED];
  unsigned char bytes[64][PAIR];
  double label;
  float pair[PAIR];
} sample;

static tdict_tensor *tensor_of(tdict_dtype dtype, int ndim, const int64_t *shape, const void *bytes) {
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(dtype, ndim, shape, NULL, &made, err));
  if (tdict_tensor_bytes(t)) memcpy(tdict_tensor_data(t), bytes, tdict_tensor_bytes(t));
  return t;
}

static tdict_tree *tree_of(const sample *s) {
  tdict_tree *td = help_tree_without_batch();
  td_put(td, "tokens", tensor_of(TDICT_I64, COUNTS(s->length), s->tokens));
  float swapped[EMBED * 64]; /* transposed, so that the source is not contiguous */
  for (int64_t k = 0; k < s->length; k++)
    for (int e = 0; e < EMBED; e++) swapped[e * s->length + k] = s->embed[k][e];
  tdict_tensor *t = tensor_of(TDICT_F32, COUNTS(EMBED, s->length), swapped), *view = NULL;
  td_ok(tdict_tensor_permute(t, 2, (const int[]){1, 0}, &view, err));
  tdict_tensor_release(t);
  td_put(td, "embed", view);
  td_put(td, "deep.bytes", tensor_of(TDICT_U8, COUNTS(s->length, PAIR), s->bytes));
  td_put(td, "label", tensor_of(TDICT_F64, 0, NULL, &s->label));
  td_put(td, "pair", tensor_of(TDICT_F32, COUNTS(PAIR), s->pair));
  return td;
}

static uint64_t next_random(uint64_t *state) {
  return (*state = *state * 6364136223846793005u + 1442695040888963407u) >> 33;
}

static void random_sample(sample *s, uint64_t *state) {
  s->length = (int64_t)(next_random(state) % 40);
  if (next_random(state) % 5 == 0) s->length = 0;
  for (int64_t k = 0; k < s->length; k++) {
    s->tokens[k] = (int64_t)next_random(state);
    for (int e = 0; e < EMBED; e++) s->embed[k][e] = (float)next_random(state);
    for (int e = 0; e < PAIR; e++) s->bytes[k][e] = (unsigned char)next_random(state);
  }
  s->label = (double)next_random(state);
  for (int e = 0; e < PAIR; e++) s->pair[e] = (float)next_random(state);
}

static const void *elements_of(const tdict_tree *td, const char *path, tdict_dtype dtype, int ndim,
                               const int64_t *shape) {
  tdict_tensor *t = td_leaf(td, path);
  assert_true(tdict_tensor_dtype(t) == dtype);
  assert_int_equal(tdict_tensor_ndim(t), ndim);
  for (int i = 0; i < ndim; i++) assert_int_equal(tdict_tensor_shape(t)[i], shape[i]);
  assert_true(tdict_tensor_is_contiguous(t));
  return tdict_tensor_const_data(t);
}

/* Compares a packed tree of `tokens` tokens and `rows` rows with the samples. The rest must have the pad value. */
static void check_packed(const tdict_tree *out, const sample *s, int count, const tdict_pack_options *o, int64_t tokens,
                         int64_t rows) {
  const int32_t *offsets = elements_of(out, o->cu_seqlens, TDICT_I32, COUNTS(rows + 1));
  const int32_t *positions = o->position_ids ? elements_of(out, o->position_ids, TDICT_I32, COUNTS(tokens)) : NULL;
  const int64_t *ids = elements_of(out, "tokens", TDICT_I64, COUNTS(tokens));
  const float *embed = elements_of(out, "embed", TDICT_F32, COUNTS(tokens, EMBED));
  const unsigned char *bytes = elements_of(out, "deep.bytes", TDICT_U8, COUNTS(tokens, PAIR));
  const double *label = elements_of(out, "label", TDICT_F64, COUNTS(rows));
  const float *pair = elements_of(out, "pair", TDICT_F32, COUNTS(rows, PAIR));
  int64_t at = 0, longest = 0;
  for (int i = 0; i < count; i++) {
    assert_int_equal(offsets[i], at);
    for (int64_t k = 0; k < s[i].length; k++, at++) {
      assert_int_equal(ids[at], s[i].tokens[k]);
      if (positions) assert_int_equal(positions[at], k);
      assert_memory_equal(embed + at * EMBED, s[i].embed[k], sizeof s[i].embed[k]);
      assert_memory_equal(bytes + at * PAIR, s[i].bytes[k], sizeof s[i].bytes[k]);
    }
    assert_true(label[i] == s[i].label);
    assert_memory_equal(pair + i * PAIR, s[i].pair, sizeof s[i].pair);
    if (s[i].length > longest) longest = s[i].length;
  }
  for (int64_t i = count; i <= rows; i++) assert_int_equal(offsets[i], at);
  for (int64_t i = count; i < rows; i++) assert_true(label[i] == o->pad_value && pair[i * PAIR] == o->pad_value);
  for (; at < tokens; at++) {
    assert_true(ids[at] == (int64_t)o->pad_value && embed[at * EMBED + 2] == (float)o->pad_value);
    if (positions) assert_int_equal(positions[at], 0);
  }
  assert_int_equal(*(const int32_t *)elements_of(out, o->max_seqlen, TDICT_I32, 0, NULL), longest);
  assert_int_equal(tdict_batch_ndim(out), 0);
  assert_false(tdict_is_locked(out));
}

CASE(pack_sequence_matches_a_loop) {
  static const char *const stacked[] = {"pair"};
  uint64_t state = 5;
  for (int round = 0; round < 200; round++) {
    sample s[MOST];
    tdict_tree *td[MOST], *out = NULL;
    int count = 1 + (int)(next_random(&state) % MOST);
    int64_t total = 0;
    for (int i = 0; i < count; i++) {
      random_sample(&s[i], &state);
      total += s[i].length;
      td[i] = tree_of(&s[i]);
    }
    tdict_pack_options o = td_with(tdict_pack_options, stack_paths = stacked, num_stack_paths = 1);
    if (round % 2) o.position_ids = "deep.positions";
    if (round % 3 == 1) o.cu_seqlens = "attention.offsets", o.max_seqlen = "attention.longest";
    bool is_fixed = round % 4 >= 2;
    if (is_fixed) {
      o.num_tokens = total + (int64_t)(next_random(&state) % 30) + (total == 0);
      o.num_sequences = count + (int64_t)(next_random(&state) % 3);
      o.pad_value = 7;
    }
    td_ok(tdict_pack_sequence((const tdict_tree *const *)td, (size_t)count, &o, NULL, &out, err));
    check_packed(out, s, count, &o, is_fixed ? o.num_tokens : total, is_fixed ? o.num_sequences : count);
    tdict_release(out);
    for (int i = 0; i < count; i++) tdict_release(td[i]);
  }
}

/* The result has no batch dimensions, even if the samples have some. */
CASE(pack_sequence_ignores_batch_sizes) {
  tdict_tree *td[2] = {TREE(2), TREE(3)}, *out = NULL;
  for (int i = 0; i < 2; i++) td_put(td[i], "n.x", TENSOR(i + 2, 4));
  td_ok(tdict_pack_sequence((const tdict_tree *const *)td, 2, NULL, NULL, &out, err));
  assert_int_equal(tdict_batch_ndim(out), 0);
  assert_int_equal(tdict_batch_ndim(td_child(out, "n")), 0);
  const float *x = elements_of(out, "n.x", TDICT_F32, COUNTS(5, 4));
  assert_memory_equal(x, tdict_const_data(td[0], "n.x"), 8 * sizeof *x);
  assert_memory_equal(x + 8, tdict_const_data(td[1], "n.x"), 12 * sizeof *x);
  tdict_release(out);
  for (int i = 0; i < 2; i++) tdict_release(td[i]);
}

/* The whole result is in one storage, from the given memory. */
SIM_CASE(pack_sequence_writes_pinned_memory) {
  scoped_context c = td_context(NULL);
  tdict_tree *td[2] = {TREE(2), TREE(3)}, *out = NULL;
  size_t unique = 0;
  for (int i = 0; i < 2; i++) td_put(td[i], "x", TENSOR(i + 2));
  tdict_run o = td_with(tdict_run, memory = tdict_pinned_memory(c));
  td_ok(tdict_pack_sequence((const tdict_tree *const *)td, 2, NULL, &o, &out, err));
  assert_true(tdict_is_pinned(out));
  td_ok(tdict_unique_bytes(out, &unique, err));
  assert_true(unique <= 3 * 256);
  td_release(out);
  o.memory = tdict_device_memory(c, td_device());
  td_fails(TDICT_EWRONGDEVICE, "the memory is on",
           tdict_pack_sequence((const tdict_tree *const *)td, 2, NULL, &o, &out, err));
  tdict_tree *there = td_made(tree, tdict_clone_deep(td[1], TD_IN(o.memory), &made, err));
  o.memory = NULL;
  const tdict_tree *one[] = {there};
  td_fails_at(TDICT_EWRONGDEVICE, "the tensor is on", "x", tdict_pack_sequence(one, 1, NULL, &o, &out, err));
  assert_null(out);
  tdict_release(there);
  for (int i = 0; i < 2; i++) tdict_release(td[i]);
}

static tdict_pack_options wrong_options(int which) {
  static const char *const missing[] = {"nothing"}, *const null[] = {NULL}, *const twice[] = {"y", "x", "y"};
  tdict_pack_options o = tdict_pack_options_default();
  if (which == 0) o.num_tokens = 4;
  if (which == 1) o.num_sequences = 1;
  if (which == 2) o.num_tokens = -1;
  if (which == 3) o.cu_seqlens = "x";
  if (which == 4) o.max_seqlen = o.cu_seqlens;
  if (which == 5) o.cu_seqlens = NULL;
  if (which == 6) o.stack_paths = missing, o.num_stack_paths = 1;
  if (which == 7) o.stack_paths = null, o.num_stack_paths = 1;
  if (which == 8) o.num_stack_paths = 1;
  if (which == 9) o.position_ids = "";
  if (which == 10) o.num_tokens = INT64_C(1) << 31;
  if (which == 11) o.pad_value = 1e30;
  if (which == 12) o.max_seqlen = "x.most";
  if (which == 13) o.struct_size = 1;
  if (which == 14) o.stack_paths = twice, o.num_stack_paths = 3;
  return o;
}

CASE(pack_sequence_refuses_options) {
  static const struct {
    tdict_status status;
    const char *text;
  } wanted[] = {{TDICT_ESHAPE, "num_tokens is 4"},
                {TDICT_ESHAPE, "num_sequences is 1"},
                {TDICT_EINVAL, "num_tokens is -1"},
                {TDICT_EEXIST, "path of a new tensor"},
                {TDICT_EEXIST, "two fields"},
                {TDICT_EINVAL, "cu_seqlens is NULL"},
                {TDICT_ENOTFOUND, "stack_paths[0] names no tensor"},
                {TDICT_EINVAL, "stack_paths[0] is NULL"},
                {TDICT_EINVAL, "stack_paths is NULL"},
                {TDICT_EINVAL, ""},
                {TDICT_EOVERFLOW, "2147483648"},
                {TDICT_EOVERFLOW, "int64 does not hold"},
                {TDICT_ETYPE, ""},
                {TDICT_EINVAL, "struct_size"},
                {TDICT_EINVAL, "stack_paths[2] is the same path"}};
  tdict_tree *td[2] = {TREE(2), TREE(3)}, *out = NULL;
  for (int i = 0; i < 2; i++)
    td_put(td[i], "x", td_made(tensor, tdict_tensor_zeros(TDICT_I64, COUNTS(i + 2), NULL, &made, err)));
  for (int i = 0; i < (int)(sizeof wanted / sizeof *wanted); i++) {
    tdict_pack_options o = wrong_options(i);
    td_fails(wanted[i].status, wanted[i].text,
             tdict_pack_sequence((const tdict_tree *const *)td, 2, &o, NULL, &out, err));
    if (i == 6) assert_string_equal(td_last_error.path, "nothing");
    if (i == 14) assert_string_equal(td_last_error.path, "y");
    assert_null(out);
  }
  td_fails(TDICT_EINVAL, "out is NULL", tdict_pack_sequence((const tdict_tree *const *)td, 2, NULL, NULL, NULL, err));
  td_fails(TDICT_EINVAL, "no trees", tdict_pack_sequence((const tdict_tree *const *)td, 0, NULL, NULL, &out, err));
  for (int i = 0; i < 2; i++) tdict_release(td[i]);
}

/* Checks that a tree with x [2] and y [2, 3] cannot be packed together with a second tree that has this `y`. */
static void refuse_second(tdict_status status, const char *text, const char *path, tdict_tensor *y) {
  scoped_tree a = help_tree_without_batch(), b = help_tree_without_batch();
  tdict_tree *out = NULL;
  td_put(a, "x", TENSOR(2));
  td_put(a, "y", TENSOR(2, 3));
  td_put(b, "x", TENSOR(4));
  if (y) td_put(b, "y", y);
  const tdict_tree *both[] = {a, b};
  td_fails_at(status, text, path, tdict_pack_sequence(both, 2, NULL, NULL, &out, err));
  assert_null(out);
}

CASE(pack_sequence_refuses_trees) {
  tdict_tensor *numbers = td_made(tensor, tdict_tensor_zeros(TDICT_I64, COUNTS(4, 3), NULL, &made, err)), *deep = NULL;
  refuse_second(TDICT_ESHAPE, "has length 5 in tree 1, but an earlier one has 4", "y", TENSOR(5, 3));
  refuse_second(TDICT_ESHAPE, "in tree 1", "y", TENSOR(4, 2));
  refuse_second(TDICT_ESHAPE, "in tree 1", "y", TENSOR(4));
  refuse_second(TDICT_EDTYPE, "in tree 1", "y", numbers);
  refuse_second(TDICT_ENOTFOUND, "tree 1 lacks", "y", NULL);
  scoped_tree td = help_tree_without_batch(), out = NULL;
  const tdict_tree *one[] = {td};
  td_fails(TDICT_EINVAL, "has a dimension to join", tdict_pack_sequence(one, 1, NULL, NULL, &out, err));
  td_ok(tdict_tensor_zeros(TDICT_U8, COUNTS(1, 1, 1, 1, 1, 1, 1), NULL, &deep, err));
  td_put(td, "deep", deep);
  td_fails_at(TDICT_EINVAL, "7 dimensions", "deep", tdict_pack_sequence(one, 1, NULL, NULL, &out, err));
  assert_null(out);
}

CASE(pack_sequence_refuses_objects) {
  tdict_tree *td = TREE(2), *out = NULL;
  const tdict_tree *one[] = {td};
  td_put(td, "x", TENSOR(2));
  td_ok(tdict_set_object(td, "thing", &thing_flat, thing_create(TENSOR(2), TENSOR(2)), err));
  td_fails_at(TDICT_ENOTSUP, "an object", "thing", tdict_pack_sequence(one, 1, NULL, NULL, &out, err));
  assert_null(out);
  tdict_release(td);
  assert_int_equal(thing_count(), 0);
}

/* Each allocation fails once. Sanitizers report what a failed call does not free. */
CASE(pack_sequence_needs_memory) {
  tdict_tree *td[2] = {TREE(2), TREE(3)};
  for (int i = 0; i < 2; i++) td_put(td[i], "deep.x", TENSOR(i + 2));
  int64_t rounds = 0;
  TD_SWEEP(s) {
    scoped_tree out = NULL;
    const bool refused = td_refused(s, tdict_pack_sequence((const tdict_tree *const *)td, 2, NULL, NULL, &out, err));
    assert_int_equal(refused, !out);
    rounds++;
  }
  assert_true(rounds > 5);
  for (int i = 0; i < 2; i++) tdict_release(td[i]);
}
