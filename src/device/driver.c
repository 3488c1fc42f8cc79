/* Counts the references of drivers, and checks to which driver a stream belongs. The last release closes the driver.
 * Thread-safe. */
#include "device/driver.h"

enum { LAST_SPECIAL_HANDLE = 2 }; /* CU_STREAM_PER_THREAD. Handles up to this value are valid on every device. */

tdict_driver *tdict_driver_retain(tdict_driver *d) {
  /* Relaxed: the caller holds a reference, so the count cannot reach 0 here. */
  atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
  return d;
}

void tdict_driver_release(tdict_driver *d) {
  if (!d) return;
  if (atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) d->ops->close(d);
}

bool tdict_driver_owns_stream(const tdict_driver *driver, tdict_stream_owner owner, tdict_stream s) {
  if (s.device.type != TDICT_DEVICE_SIM || !owner || (uintptr_t)s.handle <= LAST_SPECIAL_HANDLE) return true;
  int32_t ordinal;
  return owner(s.handle, &ordinal) == driver && ordinal == s.device.index;
}
