/* Option structs of other sizes than the library's. */
#include "support/test.h"

#include "base/options.h"

/* The library's struct, and those of an older and a newer header. */
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

CASE(options_shorter_keeps_the_rest) {
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
    newer_options given;
    memset(&given, 0, sizeof given);
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
