/* Compares results of `tdict-bench stress` with bytes computed without the library. Ownership and threads: see
 * stress.h. */
#include "stress.h"

int stress_check_bytes(const check_place *p, const stress_leaf *l, const unsigned char *address) {
  size_t at = 0;
  unsigned char found = 0;
  const int answer = check_bytes(p, address, l->want_bytes, l->want, &at, &found);
  const char *const place = l->home == STRESS_TENSOR ? "" : l->second ? " second" : " first";
  if (answer == BENCH_DIFFERS)
    bench_print_error("leaf \"%s\"%s (%zu bytes, layout %d, %s) differs first at byte %zu: sent 0x%02x, arrived 0x%02x",
                      l->path, place, l->want_bytes, (int)l->layout, l->pinned ? "pinned" : "pageable", at, l->want[at],
                      found);
  return answer;
}

static bool has_form(const stress_leaf *l, const tdict_tensor *t, tdict_device device) {
  bool good = tdict_tensor_dtype(t) == l->dtype && tdict_tensor_ndim(t) == l->ndim &&
              tdict_device_equal(tdict_tensor_device(t), device) && tdict_tensor_is_contiguous(t);
  for (int d = 0; d < l->ndim && good; d++) good = tdict_tensor_shape(t)[d] == l->shape[d];
  return good;
}

int stress_check(const check_place *p, const stress_tree *t, const tdict_tree *result, tdict_device device) {
  check_place place = *p;
  place.device = device;
  for (int i = 0; i < t->count; i++) {
    const stress_leaf *l = &t->leaves[i];
    tdict_tensor *found;
    if (!stress_find(l, result, &found)) return BENCH_DIFFERS;
    if (!has_form(l, found, device)) {
      bench_print_error("leaf \"%s\" arrived on another device, or with another dtype, shape or layout", l->path);
      return BENCH_DIFFERS;
    }
    const unsigned char *address = tdict_tensor_const_data(found);
    if (!address && l->want_bytes) {
      bench_print_error("leaf \"%s\" arrived without data", l->path);
      return BENCH_DIFFERS;
    }
    int answer = stress_check_bytes(&place, l, address);
    if (answer != BENCH_OK) return answer;
  }
  return BENCH_OK;
}
