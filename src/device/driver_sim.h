/* The simulated driver and what its users can do with it beyond the table. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_DRIVER_SIM_H
#define TDICT_DEVICE_DRIVER_SIM_H

#include "device/driver.h"
#include "tdict/sim.h"

/* options are complete and checked by tdict_driver_sim_check(). TDICT_ENOMEM. */
tdict_status tdict_driver_sim_open(const tdict_sim_options *options, tdict_driver **out, tdict_error *err);
/* TDICT_EINVAL: num_devices not in 1..8, memory_bytes below 1 MiB, a negative or not finite rate, a negative latency. */
tdict_status tdict_driver_sim_check(const tdict_sim_options *options, tdict_error *err);
/* The three of tdict/sim.h, on all devices of the driver. */
void tdict_driver_sim_hold(tdict_driver *d);
tdict_status tdict_driver_sim_step(tdict_driver *d, int64_t count, tdict_error *err);
void tdict_driver_sim_resume(tdict_driver *d);

#endif
