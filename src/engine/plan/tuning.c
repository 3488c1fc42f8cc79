/* Defines the built-in tuning table and checks tables. The table was measured with an H200 GPU, PCIe 5 and 16 CPU
 * cores. See tuning.h for ownership and threads. */
#include "engine/plan/tuning.h"

#include <stdio.h>

#include "core/base/error.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)

/* columns: up_to, chunk, first, workers, slots, streaming, caller, spin_us */
static const tdict_tuning built_in =
    {.rows[TDICT_TUNING_IN] =
         {
             {KIB(384), KIB(256), KIB(256), 1, 4, 1, 1, 300},
             {MIB(2), KIB(384), KIB(384), 6, 4, 1, 1, 300},
             {MIB(24), MIB(1), MIB(1), 6, 4, 1, 1, 300},
             {MIB(80), MIB(2), MIB(2), 8, 2, 1, 1, 300},
             {MIB(256), MIB(2), MIB(2), 8, 2, 0, 1, 50},
             {MIB(800), MIB(2), KIB(512), 10, 3, 0, 1, 50},
             {SIZE_MAX, MIB(2), MIB(2), 8, 4, 0, 1, 50},
         },
     .rows[TDICT_TUNING_OUT] =
         {
             {KIB(192), KIB(192), KIB(192), 1, 4, 0, 1, 300},
             {KIB(768), KIB(128), KIB(128), 2, 4, 1, 1, 300},
             {MIB(3), KIB(256), KIB(256), 3, 4, 1, 1, 300},
             {MIB(10), KIB(256), KIB(256), 6, 2, 1, 1, 300},
             {MIB(24), KIB(512), KIB(512), 4, 4, 1, 1, 300},
             {MIB(48), MIB(1), MIB(1), 4, 4, 1, 1, 300},
             {MIB(160), MIB(2), MIB(2), 4, 4, 1, 1, 300},
             {SIZE_MAX, MIB(2), MIB(2), 8, 4, 1, 1, 50},
         },
     .rows[TDICT_TUNING_OUT_NEW] =
         {
             {KIB(512), KIB(512), KIB(512), 1, 4, 0, 1, 300},
             {MIB(3), KIB(256), KIB(256), 4, 4, 1, 1, 300},
             {MIB(16), KIB(768), KIB(768), 5, 4, 1, 1, 300},
             {MIB(32), MIB(1), MIB(1), 8, 2, 1, 1, 300},
             {SIZE_MAX, MIB(2), MIB(2), 16, 1, 0, 1, 50},
         },
     .rows[TDICT_TUNING_HOST] =
         {
             {KIB(512), KIB(512), KIB(512), 1, 1, 0, 1, 300},
             {MIB(2), KIB(128), KIB(128), 4, 1, 1, 1, 300},
             {MIB(6), KIB(256), KIB(256), 8, 1, 1, 1, 300},
             {MIB(80), KIB(512), KIB(512), 12, 1, 1, 1, 300},
             {MIB(256), MIB(1), MIB(1), 16, 1, 1, 1, 300},
             {SIZE_MAX, MIB(4), MIB(4), 16, 1, 1, 1, 50},
         },
     .num_rows = {[TDICT_TUNING_IN] = 7, [TDICT_TUNING_OUT] = 8, [TDICT_TUNING_OUT_NEW] = 5, [TDICT_TUNING_HOST] = 6}};

tdict_tuning tdict_tuning_default(void) { return built_in; }

const char *const tdict_tuning_names[] = {[TDICT_TUNING_IN] = "in",
                                          [TDICT_TUNING_OUT] = "out",
                                          [TDICT_TUNING_OUT_NEW] = "out_new",
                                          [TDICT_TUNING_HOST] = "host"};

tdict_status tdict_tuning_check_row(const tdict_tuning_row *r, const char *what, tdict_error *err) {
  if (r->chunk_bytes == 0 || r->chunk_bytes % 256 != 0)
    return tdict_fail(err, TDICT_EINVAL, "%schunk_bytes is %zu, wanted a multiple of 256", what, r->chunk_bytes);
  if (r->first_bytes == 0 || r->first_bytes % 256 != 0 || r->first_bytes > r->chunk_bytes)
    return tdict_fail(err, TDICT_EINVAL, "%sfirst_bytes is %zu, wanted a multiple of 256 up to %zu", what,
                      r->first_bytes, r->chunk_bytes);
  if (r->workers < 1 || r->workers > TDICT_TUNING_MAX_WORKERS)
    return tdict_fail(err, TDICT_EINVAL, "%sworkers is %d, wanted 1 to %d", what, (int)r->workers,
                      TDICT_TUNING_MAX_WORKERS);
  if (r->slots < 1) return tdict_fail(err, TDICT_EINVAL, "%sslots is %d, wanted at least 1", what, (int)r->slots);
  if (r->streaming < 0 || r->streaming > 1 || r->caller < 0 || r->caller > 1)
    return tdict_fail(err, TDICT_EINVAL, "%sstreaming is %d and caller %d, wanted 0 or 1", what, (int)r->streaming,
                      (int)r->caller);
  if (r->spin_us < 0 || r->spin_us > TDICT_TUNING_MAX_SPIN_US)
    return tdict_fail(err, TDICT_EINVAL, "%sspin_us is %d, wanted 0 to %d", what, (int)r->spin_us,
                      TDICT_TUNING_MAX_SPIN_US);
  return TDICT_OK;
}

tdict_status tdict_tuning_check(const tdict_tuning *tuning, tdict_error *err) {
  for (int d = 0; d < TDICT_TUNING_DIRECTIONS; d++) {
    const char *name = tdict_tuning_names[d];
    int count = tuning->num_rows[d];
    if (count < 1 || count > TDICT_TUNING_ROWS)
      return tdict_fail(err, TDICT_EINVAL, "tuning: %s has %d rows, wanted 1 to %d", name, count, TDICT_TUNING_ROWS);
    for (int i = 0; i < count; i++) {
      const tdict_tuning_row *row = &tuning->rows[d][i];
      char what[48];
      /* tdict_choose_row() returns the first row that fits, so the rows must be in rising order. */
      if (i > 0 && row->up_to_bytes <= row[-1].up_to_bytes)
        return tdict_fail(err, TDICT_EINVAL, "tuning: %s row %d: up_to_bytes is %zu, not above the row before", name, i,
                          row->up_to_bytes);
      snprintf(what, sizeof what, "tuning: %s row %d: ", name, i);
      tdict_status status = tdict_tuning_check_row(row, what, err);
      if (status != TDICT_OK) return status;
    }
    if (tuning->rows[d][count - 1].up_to_bytes != SIZE_MAX)
      return tdict_fail(err, TDICT_EINVAL, "tuning: the last %s row is not for all sizes", name);
  }
  return TDICT_OK;
}
