/* Tests option structs that are shorter or longer than the library's struct. */
#include "support/guarded.h"
#include "support/test.h"

#include "core/base/options.h"

/* The library's struct, and the versions of this struct in an older and a newer header. */
typedef struct known_options {
  size_t struct_size;
  int32_t first, second;
  size_t third;
} known_options;
typedef struct older_options {
  size_t struct_size;
  int32_t first, second;
} older_options;
typedef struct newer_options {
  known_options known;
  int64_t fourth, fifth;
} newer_options;

static const known_options defaults = {sizeof(known_options), -1, -2, 3};

CASE(options_null_keeps_defaults) {
  known_options known = defaults;
  td_ok(tdict_options_read(&known, sizeof known, NULL, "options", err));
  assert_memory_equal(&known, &defaults, sizeof known);
}

CASE(options_same_size_is_copied) {
  known_options known = defaults, given = {sizeof given, 10, 20, 30};
  td_ok(tdict_options_read(&known, sizeof known, &given, "options", err));
  assert_memory_equal(&known, &given, sizeof known);
}

CASE(options_shorter_keeps_later_defaults) {
  known_options known = defaults;
  older_options given = {sizeof given, 10, 20};
  td_ok(tdict_options_read(&known, sizeof known, &given, "options", err));
  assert_int_equal(known.struct_size, sizeof known);
  assert_int_equal(known.first, 10);
  assert_int_equal(known.second, 20);
  assert_int_equal(known.third, 3);
  given.struct_size = sizeof given.struct_size;
  known = defaults;
  td_ok(tdict_options_read(&known, sizeof known, &given, "options", err));
  assert_memory_equal(&known, &defaults, sizeof known);
}

CASE(options_longer_with_zeros_is_read) {
  known_options known = defaults;
  newer_options given = {{sizeof given, 10, 20, 30}, 0, 0};
  td_ok(tdict_options_read(&known, sizeof known, &given, "options", err));
  assert_int_equal(known.struct_size, sizeof known);
  assert_int_equal(known.first, 10);
  assert_int_equal(known.third, 30);
}

CASE(options_longer_and_used_is_refused) {
  known_options known = defaults;
  for (size_t i = sizeof known; i < sizeof(newer_options); i++) {
    newer_options given = {0};
    given.known = (known_options){sizeof given, 10, 20, 30};
    ((unsigned char *)&given)[i] = 1;
    td_fails(TDICT_ENOTSUP, "my_options", tdict_options_read(&known, sizeof known, &given, "my_options", err));
    assert_memory_equal(&known, &defaults, sizeof known);
  }
}

CASE(options_size_below_itself_is_refused) {
  for (size_t size = 0; size < sizeof size; size++) {
    known_options known = defaults, given = {size, 10, 20, 30};
    td_fails(TDICT_EINVAL, "struct_size", tdict_options_read(&known, sizeof known, &given, "options", err));
    assert_memory_equal(&known, &defaults, sizeof known);
  }
}

/* If struct_size of a saved struct is wrong, no other field is read. */
CASE(options_saved_need_their_size) {
  const known_options saved = {sizeof saved, 10, 20, 30};
  known_options known = defaults;
  size_t *wrong = before_a_wall(&saved, sizeof(size_t));
  for (size_t bit = 0; bit < 8 * sizeof *wrong; bit++) {
    *wrong = sizeof saved ^ ((size_t)1 << bit);
    td_fails(TDICT_EINVAL, "saved: struct_size is",
             tdict_options_read_saved(&known, sizeof known, wrong, "saved", err));
    assert_memory_equal(&known, &defaults, sizeof known);
  }
  td_ok(tdict_options_read_saved(&known, sizeof known, &saved, "saved", err));
  assert_memory_equal(&known, &saved, sizeof known);
}

/* A shorter struct is written up to its size. A longer struct gets only the known fields. Invalid sizes are refused. */
CASE(options_are_written_by_their_size) {
  static const size_t bad[] = {0, sizeof(size_t) - 1, 4097, SIZE_MAX};
  known_options full = {sizeof full, 10, 20, 30};
  for (size_t size = sizeof size; size <= sizeof full; size++) {
    guarded *g = guarded_of(size);
    td_ok(tdict_options_write(g, &full, sizeof full, "options", err));
    check_guarded(g, size, &full);
  }
  guarded *g = guarded_of(sizeof full + 8);
  td_ok(tdict_options_write(g, &full, sizeof full, "options", err));
  g->struct_size = sizeof full;
  check_guarded(g, sizeof full, &full);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    g = guarded_of(bad[i]);
    td_fails(TDICT_EINVAL, "struct_size", tdict_options_write(g, &full, sizeof full, "options", err));
    td_fails(TDICT_EINVAL, "struct_size", tdict_options_check_size(g, sizeof full, "options", err));
    check_untouched(g);
  }
}
