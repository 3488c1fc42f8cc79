/* Tests the part of an error message that suggests keys if a key is missing. */
#include "help.h"

#include "core/tree/suggest.h"

/* Returns the suggestion for a key that is missing in a tree with these keys. */
static const char *suggest(const char *const *names, size_t count, const char *asked, size_t bytes) {
  static char text[400];
  tdict_keys *keys = tdict_keys_create();
  assert_non_null(keys);
  for (size_t i = 0; i < count; i++) {
    const tdict_name name = tdict_name_of(names[i], strlen(names[i]));
    assert_true(tdict_keys_append(keys, &name) >= 0);
  }
  const tdict_name name = tdict_name_of(asked, strlen(asked));
  memset(text, 'x', sizeof text);
  assert_ptr_equal(tdict_suggest(keys, &name, text, bytes), text);
  assert_true(strlen(text) < bytes);
  tdict_keys_release(keys);
  return text;
}

CASE(suggest_nearest_first) {
  static const char *const names[] = {"reward", "pixels", "state", "Stats", "done", "action", "next"};
  assert_string_equal(suggest(names, 3, "stat", 160), "; keys: state, reward, pixels");
  assert_string_equal(suggest(names, 5, "stat", 160), "; keys: state, Stats, done, reward, pixels");
  assert_string_equal(suggest(names, 7, "rewrad", 160), "; keys: reward, next, pixels, state, Stats, ... (2 more)");
  assert_string_equal(suggest(NULL, 0, "stat", 160), "; the tree has no keys");
}

CASE(suggest_dots_instead_of_slashes) {
  static const char *const names[] = {"obs"};
  assert_string_equal(suggest(names, 1, "obs/state", 160), "; paths use dots, not slashes; keys: obs");
}

CASE(suggest_fits_the_buffer) {
  static const char *const names[] = {"a_key_of_more_than_thirty_two_bytes_in_all", "b", "c", "d", "e", "f", "g"};
  assert_string_equal(suggest(names, 1, "x", 160), "; keys: a_key_of_more_than_thirty_two...");
  for (size_t bytes = 1; bytes < 160; bytes++) (void)suggest(names, 7, "a/key", bytes);
  scoped_tree td = help_tree_without_batch();
  tdict_tensor *t = NULL;
  for (int i = 0; i < 1000; i++) td_put(td, td_text("key%d", i), TENSOR(1));
  td_fails(TDICT_ENOTFOUND, "get: 'kye7' is not a key of the tree; keys: key7, ", tdict_get(td, "kye7", &t, err));
  td_fails(TDICT_ENOTFOUND, "... (995 more)", tdict_get(td, "kye7", &t, err));
  td_ok(tdict_delete(td, "key7", err)); /* a deleted key is not suggested */
  td_fails(TDICT_ENOTFOUND, "... (994 more)", tdict_get(td, "key7", &t, err));
  assert_null(strstr(td_last_error.message, "keys: key7,"));
}
