/* Checks for C++ test files. */
#ifndef TDICT_TESTS_HPP_CHECK_HPP
#define TDICT_TESTS_HPP_CHECK_HPP

#include <tdict/tdict.hpp>

#include "support/test.h"

#define CHECK(condition) assert_true((condition) ? 1 : 0)

#if TDICT_HPP_EXCEPTIONS
/* Checks that `function` throws an error with this status and path, and that the message contains `text`. */
template <class F> static void check_throws(tdict_status status, const char *path, const char *text, F function) {
  try {
    function();
  } catch (const tdict::error &e) {
    assert_int_equal(e.status(), status);
    assert_string_equal(e.path(), path);
    if (!strstr(e.message(), text)) fail_msg("the message '%s' does not contain '%s'", e.message(), text);
    CHECK(strstr(e.what(), tdict_status_name(status)) && strstr(e.what(), e.message()) && strstr(e.what(), path));
    return;
  }
  fail_msg("%s", "nothing was thrown");
}
#endif

#endif
