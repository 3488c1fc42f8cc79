/* Tests the built-in tuning table, and that invalid tables are refused. */

#include "engine/plan/tuning.h"
#include "support/test.h"

CASE(tuning_default_is_sound) {
  tdict_error err = {0};
  tdict_tuning t = tdict_tuning_default();
  assert_int_equal(tdict_tuning_check(&t, &err), TDICT_OK);
}

static void refused(const tdict_tuning *t, const char *words) {
  tdict_error err = {0};
  assert_int_equal(tdict_tuning_check(t, &err), TDICT_EINVAL);
  assert_non_null(strstr(err.message, words));
}

CASE(tuning_refuses_tables_that_do_not_serve) {
  const tdict_tuning good = tdict_tuning_default();
  tdict_tuning t = good;
  t.num_rows[TDICT_TUNING_OUT] = 0;
  refused(&t, "out has 0 rows");
  t.num_rows[TDICT_TUNING_OUT] = TDICT_TUNING_ROWS + 1;
  refused(&t, "out has 17 rows");
#define WRONG(row, field, value, words)       \
  t = good;                                   \
  t.rows[TDICT_TUNING_IN][row].field = value; \
  refused(&t, words)
  WRONG(1, up_to_bytes, good.rows[TDICT_TUNING_IN][0].up_to_bytes, "in row 1: up_to_bytes");
  WRONG(0, chunk_bytes, 0, "chunk_bytes is 0");
  WRONG(0, chunk_bytes, 300, "chunk_bytes is 300");
  WRONG(0, first_bytes, 0, "first_bytes is 0");
  WRONG(0, first_bytes, 300, "first_bytes is 300");
  WRONG(0, first_bytes, good.rows[TDICT_TUNING_IN][0].chunk_bytes + 256, "first_bytes");
  WRONG(0, workers, 0, "workers is 0");
  WRONG(0, workers, 257, "workers is 257");
  WRONG(0, slots, 0, "slots is 0");
  WRONG(0, streaming, 2, "streaming is 2");
  WRONG(0, caller, -1, "caller -1");
  WRONG(0, spin_us, -1, "spin_us is -1");
  WRONG(0, spin_us, 10001, "spin_us is 10001");
  WRONG(good.num_rows[TDICT_TUNING_IN] - 1, up_to_bytes, (size_t)1 << 40, "not for all sizes");
}
