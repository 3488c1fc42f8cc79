/* Tests patterns of keep and conversions that match nothing, and the match counts in the statistics. */
#include "pair.h"

enum { MOST = 3 };
typedef struct refused {
  const char *keep[MOST], *convert[MOST]; /* NULL after the last */
  const char *path, *message;             /* NULL: the patterns are accepted */
  int64_t num_keep_matches, num_conversion_matches;
} refused;

/* The keys of the tree: a, n.b, n.m.c, d, and an object at n.o. */
static const refused cases[] = {
    {{"a"}, {NULL}, NULL, NULL, 1, 0},
    {{"x"}, {NULL}, "x", "options.keep[0] matches no entry; keys: a, ", 0, 0},
    {{"a", "n.x"}, {NULL}, "n.x", "options.keep[1] matches no entry; keys: ", 0, 0},
    {{"a", "?n.x"}, {NULL}, NULL, NULL, 1, 0},
    {{"**.x"}, {NULL}, "**.x", "options.keep[0] matches no entry; a leading ?", 0, 0},
    {{"a.b"}, {NULL}, "a.b", "options.keep[0] matches no entry", 0, 0},
    {{"n"}, {NULL}, NULL, NULL, 1, 0},          /* a kept tree counts once */
    {{"n", "n.b"}, {NULL}, NULL, NULL, 1, 0},   /* the second pattern matches, but the tree is already kept */
    {{"n", "n.m.c"}, {NULL}, NULL, NULL, 1, 0}, /* the second pattern matches below a kept tree */
    {{"n", "n.m.x"}, {NULL}, "n.m.x", "options.keep[1] matches no entry; keys: c", 0, 0},
    {{"**", "a"}, {NULL}, NULL, NULL, 3, 0}, /* a, n and d */
    {{"n.o"}, {NULL}, NULL, NULL, 1, 0},
    {{"n.o.inp"}, {NULL}, "n.o.inp", "options.keep[0] matches no entry", 0, 0},
    {{NULL}, {"a", "n.b"}, NULL, NULL, 0, 2},
    {{NULL}, {"**"}, NULL, NULL, 0, 4},
    {{NULL}, {"**", "a"}, NULL, NULL, 0, 4},
    {{NULL}, {"imgae"}, "imgae", "options.conversions[0] matches no tensor; keys: ", 0, 0},
    {{NULL}, {"?imgae"}, NULL, NULL, 0, 0},
    {{NULL}, {"a", "n"}, "n", "options.conversions[1] matches no tensor; a tree is there: append .**", 0, 0},
    {{NULL}, {"n.o"}, "n.o", "options.conversions[0] matches no tensor; an object is there", 0, 0},
    {{NULL}, {"n.o.inp"}, "n.o.inp", "options.conversions[0] matches no tensor", 0, 0},
    {{"a"}, {"a", "d"}, NULL, NULL, 1, 1}, /* "a" matches both options, so it is kept and not converted */
};
enum { NUM_CASES = sizeof cases / sizeof *cases };

static size_t count(const char *const *texts) {
  size_t n = 0;
  while (n < MOST && texts[n]) n++;
  return n;
}

/* All calls that accept patterns. */
enum { TO_DEVICE, ASYNC, INTO, TO_DEVICES, PIN, NUM_WAYS };
typedef struct trial {
  const place *w;
  const tdict_tree *src;
  int way;
  tdict_transfer_options o;
  tdict_transfer_stats stats;
  tdict_tree *dst, *out;
} trial;

static tdict_status call(trial *t, tdict_error *err) {
  tdict_future *f = NULL;
  tdict_pin_options p = tdict_pin_options_default();
  const tdict_spread spread = tdict_spread_replicate(&t->w->device, 1);
  tdict_status status;
  t->stats = tdict_transfer_stats_default();
  t->o.stats = t->way == ASYNC ? NULL : &t->stats;
  switch (t->way) {
  case TO_DEVICE:
    return tdict_to_device(t->w->c, t->src, t->w->device, &t->o, &t->out, err);
  case INTO:
    return tdict_transfer_into(t->w->c, t->dst, t->src, &t->o, err);
  case TO_DEVICES:
    return td_to_devices(t->w->c, t->src, &spread, &t->o, &t->out, err);
  case PIN:
    p.keep = t->o.keep;
    p.num_keep = t->o.num_keep;
    p.stats = &t->stats;
    return tdict_pin_memory(t->w->c, t->src, &p, &t->out, err);
  default:
    status = tdict_to_device_async(t->w->c, t->src, t->w->device, &t->o, &f, err);
    if (status == TDICT_OK) status = tdict_future_wait(f, &t->out, err);
    if (status == TDICT_OK) status = tdict_future_get_stats(f, &t->stats, err);
    tdict_future_release(f);
    return status;
  }
}

/* Writes the conversions of a case to `out`. If `marks` is not NULL, uses it for patterns with a leading `?`. */
static void write_conversions(const refused *r, tdict_conversion *out, char (*marks)[16]) {
  for (size_t i = 0; i < count(r->convert); i++) {
    out[i] = tdict_conversion_default();
    out[i].dtype = TDICT_F64;
    out[i].pattern = r->convert[i];
    if (!marks) continue;
    snprintf(marks[i], sizeof marks[i], "%s%s", r->convert[i][0] == '?' ? "" : "?", r->convert[i]);
    out[i].pattern = marks[i];
  }
}

static void run_case(const place *w, const tdict_tree *src, const refused *r, int way) {
  tdict_conversion conversions[MOST];
  char marks[MOST][16];
  trial t = {.w = w, .src = src, .way = way, .o = tdict_transfer_options_default()};
  t.o.conversions = conversions;
  t.o.num_conversions = count(r->convert);
  if (way == INTO) { /* a destination with the dtypes of the conversions */
    write_conversions(r, conversions, marks);
    td_ok(tdict_to_device(w->c, src, w->device, &t.o, &t.dst, err));
  }
  write_conversions(r, conversions, NULL);
  t.o.keep = r->keep;
  t.o.num_keep = count(r->keep);
  if (r->message) {
    td_fails_at(TDICT_ENOTFOUND, r->message, r->path, call(&t, err));
    assert_non_null(strstr(td_last_error.message, "a leading ? would allow this"));
    assert_null(t.out);
  } else {
    td_ok(call(&t, err));
    assert_int_equal(t.stats.num_keep_matches, r->num_keep_matches);
    assert_int_equal(t.stats.num_conversion_matches, r->num_conversion_matches);
  }
  td_release(t.out, t.dst);
}

GPU_CASE(patterns_without_a_match_are_refused) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  scoped_tree src = new_tree();
  static const char *const paths[] = {"a", "n.b", "n.m.c", "d"};
  for (int i = 0; i < 4; i++) td_put(src, paths[i], new_bytes(100 + i, NULL));
  put_pair(src, "n.o", &pair_flat, &p, 1);
  for (int i = 0; i < NUM_CASES; i++)
    for (int way = 0; way < NUM_WAYS; way++)
      if (way != PIN || count(cases[i].convert) == 0) run_case(&w, src, &cases[i], way);
}
