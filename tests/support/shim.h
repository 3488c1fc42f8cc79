/* Replaces a driver's table with a copy that the test can change. Changed entries may call the originals in shim.real.
 * Install and remove it only while no transfer runs. */
#ifndef TDICT_TESTS_SUPPORT_SHIM_H
#define TDICT_TESTS_SUPPORT_SHIM_H

#include "device/driver.h"

typedef struct shim {
  tdict_driver_ops ops;
  const tdict_driver_ops *real;
} shim;
static inline void shim_begin(shim *s, tdict_driver *d) {
  s->ops = *d->ops;
  s->real = d->ops;
  d->ops = &s->ops;
}
static inline void shim_end(shim *s, tdict_driver *d) { d->ops = s->real; }

/* A stream_capture_status entry for which every stream is captured. */
static inline tdict_cu say_capturing(tdict_driver *d, tdict_cu_stream s, int *status) {
  (void)d, (void)s;
  *status = TDICT_CU_CAPTURE_STATUS_ACTIVE;
  return TDICT_CU_SUCCESS;
}
/* A module_load entry that fails as if the driver had no compiler for kernels. */
static inline tdict_cu refuse_module(tdict_driver *d, const char *image, tdict_cu_module *out) {
  return (void)d, (void)image, (void)out, TDICT_CU_JIT_COMPILER_NOT_FOUND;
}

#endif
