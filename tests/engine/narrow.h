/* Trees for tests of the option narrow: integers and bools that need few or many bytes. Thread rule: only the main
 * thread. */
#ifndef TDICT_TESTS_ENGINE_NARROW_H
#define TDICT_TESTS_ENGINE_NARROW_H

#include "engine/kinds/pack_values.h"
#include "trees.h"

static inline tdict_transfer_options narrow_options(tdict_transfer_stats *s) {
  return td_with(tdict_transfer_options, narrow = 1, stats = s);
}
/* Opens a place with slots of 1 MiB, which hold many blocks. */
static inline place large_world(void) { return place_sized(32 << 20, -1); }

static inline tdict_tensor *pv_tensor(tdict_dtype dtype, int ndim, const int64_t *shape, pv_kind kind,
                                      tdict_memory *memory) {
  rng r = {next_seed()};
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(dtype, ndim, shape, memory, &made, err));
  pv_fill(&r, dtype, tdict_tensor_data(t), (size_t)tdict_tensor_numel(t), kind);
  return t;
}
/* Makes a tree with large and small leaves of every dtype and range, and with leaves that are not packed. */
static inline tdict_tree *narrow_tree(tdict_memory *memory, bool strided) {
  tdict_tree *td = new_tree();
  for (int d = 0; d < PV_DTYPES; d++)
    for (int kind = 0; kind < PV_KINDS; kind++) {
      const int64_t rows = 3 + 5 * d + 11 * kind, columns = 301 + 40 * (kind % 3);
      tdict_tensor *t = pv_tensor(pv_dtypes[d], SHAPE(rows, columns), (pv_kind)kind, memory);
      if (strided && kind % 2) t = permuted(t, (const int[]){1, 0});
      if (strided && kind % 2 == 0) t = sliced(t, (tdict_tensor_range){1, columns - 2, columns / 2, -2});
      td_put(td, td_text("d%d.k%d", d, kind), t);
    }
  td_put(td, "others.bytes", random_tensor(TDICT_U8, SHAPE(70001), memory));
  td_put(td, "others.floats", random_tensor(TDICT_F32, SHAPE(20001), memory));
  td_put(td, "others.small", pv_tensor(TDICT_I64, SHAPE(9), PV_BYTE, memory));
  td_put(td, "others.none", pv_tensor(TDICT_I64, SHAPE(0, 9), PV_BYTE, memory));
  return td;
}

#endif
