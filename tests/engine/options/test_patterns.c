/* Tests patterns of the option keep: which paths they match, and which strings are not valid patterns. */
#include "engine/options/patterns.h"
#include "engine/trees.h"

/* Returns whether one of the patterns matches the path, in a tree whose only leaf has this path. */
static bool matches(const char *const *patterns, size_t count, const char *path) {
  scoped_tree td = new_tree();
  tdict_patterns *keep = NULL;
  tdict_cursor cursor;
  td_put(td, path, random_tensor(TDICT_U8, SHAPE(1), NULL));
  td_ok(tdict_patterns_create("to_device: options.keep", patterns, count, &keep, err));
  tdict_cursor_init(&cursor, td, false);
  bool found = false;
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(&cursor)) != 0;) {
    found = tdict_patterns_find(keep, &cursor) != TDICT_NO_PATTERN; /* the leaf comes last, so its result remains */
    if (tdict_leaf_tree(leaf)) assert_true(tdict_cursor_enter(&cursor, tdict_leaf_tree(leaf)));
  }
  tdict_cursor_reset(&cursor);
  tdict_patterns_destroy(keep);
  return found;
}

static const struct {
  const char *pattern, *path;
  bool wanted;
} matching[] = {{"a", "a", true},
                {"a", "b", false},
                {"a", "aa", false},
                {"aa", "a", false},
                {"a", "a.b", false},
                {"a.b", "a.b", true},
                {"a.b", "a", false},
                {"*", "any", true},
                {"*", "a.b", false},
                {"meta.*", "meta.x", true},
                {"meta.*", "meta.x.y", false},
                {"meta.*", "meta", false},
                {"*.x", "meta.x", true},
                {"*.x", "x", false},
                {"**", "a", true},
                {"**", "a.b.c", true},
                {"**.text", "text", true},
                {"**.text", "a.text", true},
                {"**.text", "a.b.c.text", true},
                {"**.text", "text.b", false},
                {"**.text", "a.texts", false},
                {"meta.**", "meta", true},
                {"meta.**", "meta.a.b", true},
                {"meta.**", "a.meta", false},
                {"a.**.b", "a.b", true},
                {"a.**.b", "a.b.b", true},
                {"a.**.b", "a.b.c", false},
                {"a.**.b.**.c", "a.b.x.b.y.c", true},
                {"**.a.*.b", "a.a.a.b", true},
                {"**.a.*.b", "a.x.a.b", false},
                {"**.**", "a", true},
                {"**.*.**.*", "a", false},
                {"**.*.**.*", "a.b", true},
                {"\\*", "*", true},
                {"\\*", "a", false},
                {"\\*\\*", "**", true},
                {"\\*\\*", "a", false},
                {"a\\*b", "a*b", true},
                {"a\\.b", "a\\.b", true},
                {"a\\.b", "a.b", false},
                {"a\\\\.*", "a\\\\.x", true},
                {"?a", "a", true},
                {"?a", "?a", false},
                {"\\?a", "?a", true},
                {"??a", "?a", true},
                {"a?", "a?", true},
                {"?meta.**", "meta.a.b", true}};

CASE(keep_patterns_match_paths) {
  for (size_t i = 0; i < sizeof matching / sizeof *matching; i++)
    if (matches(&matching[i].pattern, 1, matching[i].path) != matching[i].wanted)
      fail_msg("pattern %s, path %s", matching[i].pattern, matching[i].path);
  static const char *const three[] = {"x", "**.y", "z.*"};
  assert_true(matches(three, 3, "x") && matches(three, 3, "a.y") && matches(three, 3, "z.a"));
  assert_false(matches(three, 3, "a.x") || matches(three, 3, "z") || matches(three, 3, "y.z"));
  char longer[300]; /* contains a backslash, and is longer than the library's buffer for a key */
  memset(longer, 'k', sizeof longer);
  memcpy(longer, "\\*", 2);
  longer[299] = 0;
  assert_true(matches((const char *const[]){longer, "a"}, 2, longer + 0));
}

/* Matches a path against a pattern recursively: the reference for random patterns and paths. */
static bool naive(const char *const *parts, int num_parts, const char *const *keys, int num_keys) {
  if (!num_parts) return num_keys == 0;
  if (strcmp(parts[0], "**") == 0)
    return naive(parts + 1, num_parts - 1, keys, num_keys) ||
           (num_keys && naive(parts, num_parts, keys + 1, num_keys - 1));
  return num_keys && (strcmp(parts[0], "*") == 0 || strcmp(parts[0], keys[0]) == 0) &&
         naive(parts + 1, num_parts - 1, keys + 1, num_keys - 1);
}
CASE(keep_patterns_match_as_recursion_does) {
  static const char *const words[] = {"a", "b", "*", "**"};
  unsigned char random[16];
  int64_t found = 0;
  enum { COUNT = 20000, MOST = 6 };
  for (int n = 0; n < COUNT; n++) {
    const char *parts[MOST], *keys[MOST];
    char pattern[64] = "", path[64] = "";
    td_fill_random(random, sizeof random, next_seed());
    const int num_parts = 1 + random[0] % MOST, num_keys = 1 + random[1] % MOST;
    for (int i = 0; i < num_parts; i++) {
      parts[i] = words[random[2 + i] % 4];
      sprintf(pattern + strlen(pattern), "%s%s", i ? "." : "", parts[i]);
    }
    for (int i = 0; i < num_keys; i++) {
      keys[i] = words[random[8 + i] % 2];
      sprintf(path + strlen(path), "%s%s", i ? "." : "", keys[i]);
    }
    const bool wanted = naive(parts, num_parts, keys, num_keys);
    if (matches((const char *const[]){pattern}, 1, path) != wanted) fail_msg("pattern %s, path %s", pattern, path);
    found += wanted;
  }
  assert_true(found > COUNT / 10 && found < COUNT * 9 / 10);
}

CASE(keep_refuses_malformed_patterns) {
  static const struct {
    const char *pattern, *error;
  } cases[] = {{"", "options.keep[1]: the path has an empty key"},
               {"a..b", "options.keep[1]: the path has an empty key"},
               {".a", "options.keep[1]: the path has an empty key"},
               {"a.", "options.keep[1]: the path has an empty key"},
               {"a\\", "options.keep[1]: the path ends with a backslash"},
               {"a*", "options.keep[1]: a star is a part of a key"},
               {"x.*a.y", "options.keep[1]: a star is a part of a key"},
               {"***", "options.keep[1]: a star is a part of a key"},
               {"*\\*", "options.keep[1]: a star is a part of a key"},
               {"**.a\\\\*", "options.keep[1]: a star is a part of a key"}};
  tdict_patterns *keep = NULL;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const char *const patterns[] = {"fine.*", cases[i].pattern, "fine"};
    td_fails(TDICT_EINVAL, cases[i].error, tdict_patterns_create("to_device: options.keep", patterns, 3, &keep, err));
    assert_string_equal(td_last_error.path, cases[i].pattern);
  }
  const char *const missing[] = {"fine", NULL};
  td_fails(TDICT_EINVAL, "options.keep[1] is NULL",
           tdict_patterns_create("to_device: options.keep", missing, 2, &keep, err));
  td_fails(TDICT_EINVAL, "options.keep is NULL, wanted 2 patterns",
           tdict_patterns_create("to_device: options.keep", NULL, 2, &keep, err));
  assert_null(keep);
}

CASE(keep_survives_enomem) {
  char longer[300];
  memset(longer, 'k', sizeof longer);
  memcpy(longer, "\\*", 2);
  longer[299] = 0;
  const char *const patterns[] = {"a", longer};
  tdict_patterns *keep = NULL;
  int64_t n = 0;
  for (tdict_status status = TDICT_ENOMEM; status != TDICT_OK; n++) {
    td_fail_alloc(n, false);
    status = tdict_patterns_create("to_device: options.keep", patterns, 2, &keep, NULL);
    (void)td_fail_alloc_stop();
    assert_true(status == TDICT_OK ? keep != NULL : status == TDICT_ENOMEM && !keep);
  }
  assert_int_equal(n, 3); /* the call makes two allocations: for the patterns and for the long key */
  tdict_patterns_destroy(keep);
  tdict_patterns_destroy(NULL);
}
