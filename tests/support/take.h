/* Blocking forms of tdict_..._async() calls. Like other blocking calls, they write options->stats. */
#ifndef TDICT_TESTS_SUPPORT_TAKE_H
#define TDICT_TESTS_SUPPORT_TAKE_H

#include "tdict/devices.h"
#include "tdict/io.h"
#include "tdict/tdict.h"

/* Waits for the future of a call that returned `status`. */
static inline tdict_status td_take(tdict_status status, tdict_future *future, tdict_transfer_stats *stats,
                                   tdict_tree **out, tdict_error *err) {
  if (status != TDICT_OK) return status;
  status = tdict_future_wait(future, out, err);
  if (status == TDICT_OK && stats) status = tdict_future_get_stats(future, stats, err);
  tdict_future_release(future);
  return status;
}

/* Moves options->stats to *stats. Returns a copy of the options without it, or `options` if NULL or of another size. */
static inline const tdict_transfer_options *td_split_stats(const tdict_transfer_options *options,
                                                           tdict_transfer_options *copy, tdict_transfer_stats **stats) {
  *stats = NULL;
  if (!options || options->struct_size != sizeof *options) return options;
  *copy = *options;
  *stats = copy->stats;
  copy->stats = NULL;
  return copy;
}

static inline tdict_status td_load_into(tdict_context *context, tdict_tree *dst, const char *path,
                                        const tdict_load_options *options, tdict_error *err) {
  tdict_future *future = NULL;
  tdict_load_options load;
  tdict_transfer_options copy;
  tdict_transfer_stats *stats = NULL;
  if (options && options->struct_size == sizeof load) {
    load = *options;
    load.transfer = td_split_stats(options->transfer, &copy, &stats);
    options = &load;
  }
  const tdict_status status = tdict_load_into_async(context, dst, path, options, &future, err);
  return td_take(status, future, stats, NULL, err);
}

/* Writes the tree of each device to `trees`. */
static inline tdict_status td_to_devices(tdict_context *context, const tdict_tree *src, const tdict_spread *spread,
                                         const tdict_transfer_options *options, tdict_tree **trees, tdict_error *err) {
  tdict_future *future = NULL;
  tdict_tree *all = NULL;
  tdict_transfer_options copy;
  tdict_transfer_stats *stats;
  const tdict_transfer_options *o = td_split_stats(options, &copy, &stats);
  tdict_status status = tdict_to_devices_async(context, src, spread, o, &future, err);
  status = td_take(status, future, stats, &all, err);
  for (size_t i = 0; status == TDICT_OK && i < spread->num_devices; i++)
    trees[i] = tdict_retain(tdict_get_entry_at(all, i).tree);
  if (all) tdict_release(all);
  return status;
}

static inline tdict_status td_gather_devices(tdict_context *context, const tdict_tree *const *trees, size_t count,
                                             const tdict_gather_devices_options *options, tdict_tree **out,
                                             tdict_error *err) {
  tdict_future *future = NULL;
  const tdict_status status = tdict_gather_devices_async(context, trees, count, options, &future, err);
  return td_take(status, future, NULL, out, err);
}

#endif
