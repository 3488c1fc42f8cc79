/* The engines of the simulated driver: threads that do the work at the head of streams. See queue.h for owner and thread
 * rule. All below are called with the driver's lock held, unless they say otherwise. */
#ifndef TDICT_SIM_ENGINE_H
#define TDICT_SIM_ENGINE_H

#include "sim/queue.h"

/* Starts what engines of the device do not run yet; OUT_OF_MEMORY. */
tdict_cu tdict_sim_engines_start(tdict_sim_device *device);
/* Ends and joins them; everything must be done. Called without the lock. */
void tdict_sim_engines_stop(tdict_sim_driver *d);
void tdict_sim_engines_wake(tdict_sim_driver *d);

#endif
