/* Declares how a tree is spread over several devices, and how trees of several devices are joined. The public call owns
 * the struct. Thread rule: only the thread of the public call uses the struct. */
#ifndef TDICT_SERVICES_MULTI_DEVICE_SPREAD_H
#define TDICT_SERVICES_MULTI_DEVICE_SPREAD_H

#include "engine/promise.h"
#include "tdict/devices.h"

/* The state of one tdict_to_devices_async() call. */
typedef struct tdict_spreading {
  const char *what;
  tdict_context *context;
  const tdict_tree *src;
  tdict_device devices[TDICT_MAX_DEVICES]; /* different devices */
  size_t num_devices;
  size_t pinned;                  /* the position of the cpu if its tree must be pinned, else SIZE_MAX */
  tdict_transfer_options options; /* all fields are set */
  bool is_distinct;               /* see tdict_start */
  tdict_promise *promise;
} tdict_spreading;

/* The most parts that tdict_replicate_start() starts for each device. */
enum { TDICT_REPLICATE_MAX_PARTS = 32 };

/* Starts the transfer of a tree, or of its rows if `rows` is not NULL, to the device at `position`, as a part of the
 * promise. Returns the errors of tdict_to_device_async(). */
static inline tdict_status tdict_spread_one(tdict_spreading *s, const tdict_tree *src, const tdict_source_rows *rows,
                                            size_t position, tdict_error *err) {
  tdict_start start = {.what = s->what,
                       .src = src,
                       .device = s->devices[position],
                       .options = s->options,
                       .is_distinct = s->is_distinct,
                       .rows = rows};
  if (s->pinned < s->num_devices) start.options.pinned_result = position == s->pinned;
  return tdict_promise_start(s->promise, s->context, &start, position, err);
}
/* Starts the parts of a replication to all devices. Returns the errors of tdict_to_device_async(). */
tdict_status tdict_replicate_start(tdict_spreading *s, tdict_error *err);

/* Joins trees as tdict_gather_devices_async() does, and waits; the calling thread may also copy. */
tdict_status tdict_gather_and_wait(tdict_context *context, const tdict_tree *const *trees, size_t count,
                                   const tdict_gather_devices_options *options, tdict_tree **out, tdict_error *err);

#endif
