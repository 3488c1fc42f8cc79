/* Verifies the results of stress, without the library. See stress.h for ownership and threads. */
#include "stress.h"

#include <string.h>

static int complain_difference(const stress_leaf *l, size_t at, unsigned sent, unsigned arrived) {
  bench_print_error("leaf \"%s\"%s (%zu bytes, layout %d, %s) differs first at byte %zu: sent 0x%02x, arrived 0x%02x",
                    l->path,
                    l->home == STRESS_TENSOR ? ""
                    : l->second              ? " second"
                                             : " first",
                    l->want_bytes, (int)l->layout, l->pinned ? "pinned" : "pageable", at, sent, arrived);
  return BENCH_DIFFERS;
}

static int check_bytes(const check_place *p, const stress_leaf *l, const unsigned char *address, bool on_host) {
  for (size_t at = 0; at < l->want_bytes;) {
    size_t bytes = l->want_bytes - at;
    if (!on_host && bytes > p->bounce_bytes) bytes = p->bounce_bytes;
    const unsigned char *found = on_host ? address + at : check_read(p, address + at, bytes);
    if (!found) return BENCH_FAILED;
    if (memcmp(found, l->want + at, bytes) != 0) {
      size_t i = 0;
      while (found[i] == l->want[at + i]) i++;
      return complain_difference(l, at + i, l->want[at + i], found[i]);
    }
    at += bytes;
  }
  return BENCH_OK;
}

static bool has_form(const stress_leaf *l, const tdict_tensor *t, tdict_device device) {
  bool good = tdict_tensor_dtype(t) == l->dtype && tdict_tensor_ndim(t) == l->ndim &&
              tdict_device_equal(tdict_tensor_device(t), device) && tdict_tensor_is_contiguous(t);
  for (int d = 0; d < l->ndim && good; d++) good = tdict_tensor_shape(t)[d] == l->shape[d];
  return good;
}

int stress_check(const check_place *p, const stress_tree *t, const tdict_tree *result, tdict_device device) {
  bool on_host = device.type == TDICT_DEVICE_CPU;
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
    int answer = check_bytes(p, l, address, on_host);
    if (answer != BENCH_OK) return answer;
  }
  return BENCH_OK;
}
