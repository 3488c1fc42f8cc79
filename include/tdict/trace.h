/* A timeline of what transfers do, as a JSON file for ui.perfetto.dev or chrome://tracing.
 *
 * While a recording is on, each thread that works on a transfer and each stream that carries one has a track: planning
 * (plan), copies on host threads (copy), queueing of copies (submit), waiting for slots and streams (wait), hooks of
 * objects (hook), and on streams the copies themselves (transfer). A loader's fetches have slices, too (fetch), and the
 * batches that it holds ready are a curve. Bytes stand beside each. Slices on streams are timed by events of the
 * device, two for a copy, or for several that are queued together, from the moment when the stream comes to them until
 * it has passed them: what a copy waits for the device's copy engine is in its slice. Their place beside the threads'
 * clock is known to some microseconds and moved so that no copy begins before it was queued.
 * Without a recording a transfer pays for one load. Thread rule: every call may be made from any thread. */
#ifndef TDICT_TRACE_H
#define TDICT_TRACE_H

#include "tdict/context.h"

TDICT_BEGIN_DECLS

typedef struct tdict_trace_options {
  size_t struct_size;
  int64_t max_events; /**< slices that are kept, 16 to 2^24; default 65536. Their memory, 64 bytes each, is taken at the
                           start; later ones are dropped and counted in the file */
} tdict_trace_options;
static inline tdict_trace_options tdict_trace_options_default(void) {
  tdict_trace_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.max_events = 65536;
  return o;
}

/** @brief Begins a recording; one that was stopped before is dropped. Transfers that are started from here on are
 *  recorded, those under way are not.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL, max_events out of range, or a recording is on; #TDICT_EFORKED;
 *          #TDICT_ENOMEM, and nothing is recorded. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_start(tdict_context *context, const tdict_trace_options *options,
                                                         tdict_error *err);
/** @brief Ends the recording; what was recorded stays until the next start. Nothing when none is on. */
TDICT_API void tdict_trace_stop(tdict_context *context);
/** @brief Writes what was recorded so far to a file, over one that is there. A recording that is on goes on. Copies
 *  that are not done are left out and counted.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL, or nothing was ever recorded; #TDICT_EIO the file cannot be written,
 *          err->native has errno, as for a directory; #TDICT_EFORMAT @p path is neither a regular file nor a character
 *          device; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_write(tdict_context *context, const char *path, tdict_error *err);
/** @brief As tdict_trace_write(), and hands the text to @p write piece by piece, in order, on this thread and with no
 *  lock held; a piece is not ended by a zero byte.
 *  @param[in] write  answers #TDICT_OK to go on; any other status ends the call.
 *  @return as tdict_trace_write(); what @p write answered. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_write_to(tdict_context *context,
                                                            tdict_status (*write)(void *user, const char *text,
                                                                                  size_t bytes),
                                                            void *user, tdict_error *err);

TDICT_END_DECLS
#endif
