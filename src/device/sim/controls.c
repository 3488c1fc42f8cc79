/* Implements the public calls that hold, step and resume the simulated devices of a context. The functions own nothing.
 * Thread rule: safe from any thread. */
#include "core/base/error.h"
#include "device/devices.h"
#include "device/sim/driver.h"
#include "tdict/sim.h"

/* Finds the simulated driver of a context. Fails in a forked child, where the driver's threads do not exist. */
static tdict_status find_sim_driver(tdict_context *context, tdict_driver **out, tdict_error *err) {
  if (!context) return tdict_fail(err, TDICT_EINVAL, "sim: context is NULL");
  tdict_status status = tdict_devices_check_fork(tdict_context_devices(context), "sim", err);
  if (status != TDICT_OK) return status;
  *out = tdict_devices_sim(tdict_context_devices(context));
  if (!*out) return tdict_fail(err, TDICT_ENODEVICE, "sim: this context has no simulated devices");
  *out = tdict_driver_innermost(*out); /* a test may have wrapped the simulated driver */
  return TDICT_OK;
}

tdict_status tdict_sim_hold(tdict_context *context, tdict_error *err) {
  tdict_driver *sim;
  tdict_status status = find_sim_driver(context, &sim, err);
  if (status == TDICT_OK) tdict_driver_sim_hold(sim);
  return status;
}

tdict_status tdict_sim_step(tdict_context *context, int64_t count, tdict_error *err) {
  tdict_driver *sim;
  tdict_status status = find_sim_driver(context, &sim, err);
  return status == TDICT_OK ? tdict_driver_sim_step(sim, count, err) : status;
}

tdict_status tdict_sim_resume(tdict_context *context, tdict_error *err) {
  tdict_driver *sim;
  tdict_status status = find_sim_driver(context, &sim, err);
  if (status == TDICT_OK) tdict_driver_sim_resume(sim);
  return status;
}
