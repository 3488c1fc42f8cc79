/* Declares the engines of the simulated driver, which are threads that do the work at the head of streams. See queue.h
 * for ownership. Thread rule: call every function with the driver's lock held, unless its comment says otherwise. */
#ifndef TDICT_DEVICE_SIM_ENGINE_H
#define TDICT_DEVICE_SIM_ENGINE_H

#include "device/sim/queue.h"

/* Starts the missing threads of the device's engines. Returns OUT_OF_MEMORY if a thread cannot be created. */
tdict_cu tdict_sim_engines_start(tdict_sim_device *device);
/* Stops and joins the threads of all engines. All work must be done. Call without the driver's lock. */
void tdict_sim_engines_stop(tdict_sim_driver *d);
/* Wakes the threads of all engines, so that they check the driver's flags again. */
void tdict_sim_engines_wake(tdict_sim_driver *d);

#endif
