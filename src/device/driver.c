/* References to a driver. The driver belongs to its references and is closed after the last. Thread rule: safe from any
 * thread. */
#include "device/driver.h"

tdict_driver *tdict_driver_retain(tdict_driver *d) {
  atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed); /* the caller has one, so none is lost meanwhile */
  return d;
}

void tdict_driver_release(tdict_driver *d) {
  if (!d) return;
  if (atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) d->ops->close(d);
}
