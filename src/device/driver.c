/* Counts the references of drivers. The last release closes the driver. Thread rule: safe from any thread. */
#include "device/driver.h"

tdict_driver *tdict_driver_retain(tdict_driver *d) {
  /* Relaxed: the caller holds a reference, so the count cannot reach 0 here. */
  atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
  return d;
}

void tdict_driver_release(tdict_driver *d) {
  if (!d) return;
  if (atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) d->ops->close(d);
}
