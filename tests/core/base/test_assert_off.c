/* Tests that debug assertions do not evaluate their condition in a release build. */
#define TDICT_ASSERTS 0
#include "core/base/assert.h"

#include "support/test.h"

static int calls;
static bool count_call(void) {
  calls++;
  return false;
}

CASE(assert_off_evaluates_nothing) {
  TDICT_ASSERT(count_call());
  assert_int_equal(calls, 0);
  assert_false(count_call());
}
