/* Opens the simulated driver, and declares calls on it that are not in its table. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_SIM_DRIVER_H
#define TDICT_DEVICE_SIM_DRIVER_H

#include "device/driver.h"
#include "tdict/sim.h"

/* Opens a simulated driver. Copies `options`. The caller sets all fields, because no defaults are filled in. *out holds
 * one reference. Returns the errors of tdict_driver_sim_check(), or TDICT_ENOMEM. */
tdict_status tdict_driver_sim_open(const tdict_sim_options *options, tdict_driver **out, tdict_error *err);
/* Returns TDICT_EINVAL unless there are 1 to 8 devices of 1 MiB or more, and finite rates and latency of 0 or more. */
tdict_status tdict_driver_sim_check(const tdict_sim_options *options, tdict_error *err);
/* Holds, steps or resumes the queues of all devices of the driver, as tdict/sim.h describes. A step counts copies,
 * fills and launched functions. Event records, waits and frees need no step, even while the queues are stopped. A
 * record or free finishes when it reaches the head of its stream. A wait at the head finishes when its event is done.
 * An allocation is not queued. Among the operations that can run now, a step runs the operation that was queued first.
 * Each device has one engine for copies to the device, one for copies to the host, and one for all other work. A hold
 * returns when no bytes are being copied. A hold does not wait for a launched function that is running. The function
 * continues to run, but the operation that called the function ends only at the next step or resume. The step waits
 * until the function has returned. */
void tdict_driver_sim_hold(tdict_driver *base);
tdict_status tdict_driver_sim_step(tdict_driver *base, int64_t count, tdict_error *err);
void tdict_driver_sim_resume(tdict_driver *base);

/* Numbers that the simulated driver counts, independently of counted.h. */
typedef struct tdict_driver_sim_count {
  size_t pinned_bytes;             /* in the whole driver: bytes of registered and allocated host memory */
  int64_t num_pending;             /* in the whole driver: number of copies, fills and functions that are not
                                    * finished */
  int64_t num_finished;            /* in the whole driver: number of copies, fills and functions that finished since the
                                    * driver was opened */
  size_t device_bytes;             /* bytes of live allocations and of the pools' caches */
  int64_t num_allocations;         /* number of device allocations whose free has not run */
  int64_t num_streams, num_events; /* numbers of streams and events that were created and not destroyed */
} tdict_driver_sim_count;
/* Reads the counts. `ordinal` must be the ordinal of one of the driver's devices. */
void tdict_driver_sim_counts(tdict_driver *base, int ordinal, tdict_driver_sim_count *out);

#endif
