/* The simulated driver and what its users can do with it beyond the table. Thread rule: safe from any thread. */
#ifndef TDICT_SIM_DRIVER_H
#define TDICT_SIM_DRIVER_H

#include "device/driver.h"
#include "tdict/sim.h"

/* options are complete. Errors of tdict_driver_sim_check(); TDICT_ENOMEM. */
tdict_status tdict_driver_sim_open(const tdict_sim_options *options, tdict_driver **out, tdict_error *err);
/* TDICT_EINVAL: num_devices not in 1..8, memory_bytes below 1 MiB, a negative or not finite rate, a negative
 * latency. */
tdict_status tdict_driver_sim_check(const tdict_sim_options *options, tdict_error *err);
/* The three of tdict/sim.h, on all devices of the driver.
 * What a step counts are copies, fills and launched functions. Event records, waits, allocations and frees take no
 * step: they are done as soon as they are at the head of their stream, held or not. Steps go in the order in which the
 * operations were queued, as far as streams and engines allow (each device has an engine for copies in, one for copies
 * out, one for the rest). A hold returns once nothing is being copied. It does not wait for a launched function that
 * runs already: that one finishes by a step, which waits for its return, or after the resume. */
void tdict_driver_sim_hold(tdict_driver *base);
tdict_status tdict_driver_sim_step(tdict_driver *base, int64_t count, tdict_error *err);
void tdict_driver_sim_resume(tdict_driver *base);

/* What the driver itself sees of its use. */
typedef struct tdict_driver_sim_count {
  size_t pinned_bytes;             /* of the whole driver: registered and allocated host memory */
  int64_t num_pending;             /* of the whole driver: copies, fills and functions queued and not finished */
  int64_t num_finished;            /* of the whole driver, since it was opened */
  size_t device_bytes;             /* live allocations and pools' caches */
  int64_t num_allocations;         /* of device memory, until their free has run */
  int64_t num_streams, num_events; /* made and not destroyed */
} tdict_driver_sim_count;
/* The device must exist. */
void tdict_driver_sim_counts(tdict_driver *base, int ordinal, tdict_driver_sim_count *out);

#endif
