/* Declares timelines of transfers and loaders, as JSON for ui.perfetto.dev or chrome://tracing. docs/tuning.md has the
 * tracks and slices, and docs/howto/timeline.md says how to read them. A slice is a named interval on a track.
 *
 * Errors of all functions: #TDICT_EINVAL an argument is NULL; #TDICT_EFORKED; #TDICT_ENOMEM.
 * Cost: without a recording, a transfer only checks one flag. Thread rule: any thread may call any function. */
#ifndef TDICT_TRACE_H
#define TDICT_TRACE_H

#include "tdict/context.h"

TDICT_BEGIN_DECLS

typedef struct tdict_trace_options {
  size_t struct_size;
  int64_t max_events; /**< most slices, 16 to 2^24, of 64 bytes each; default 65536. Later slices are only counted */
} tdict_trace_options;
static inline tdict_trace_options tdict_trace_options_default(void) {
  tdict_trace_options o;
  tdict_init_struct_(o);
  o.max_events = 65536;
  return o;
}

/** @brief Starts a recording, and deletes the previous one. Transfers that started before the call are not recorded.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_EINVAL `max_events` is out of range, or a recording is on. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_start(tdict_context *context, const tdict_trace_options *options,
                                                         tdict_error *err);
/** @brief Stops the recording, if one is on. The slices are kept until the next call of tdict_trace_start(). */
TDICT_API void tdict_trace_stop(tdict_context *context);
/** @brief Writes the slices that have ended so far to a file, which is replaced. A recording continues.
 *  @return #TDICT_EINVAL tdict_trace_start() was never called; #TDICT_EIO the file cannot be written, for example a
 *          directory, and err->native is errno; #TDICT_EFORMAT neither a regular file nor a character device. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_write(tdict_context *context, const char *path, tdict_error *err);
/** @brief Passes the text of tdict_trace_write() to @p write, piece by piece in order, on the calling thread.
 *  @param[in] write  Called without a lock of the library. Gets text without a final 0. A status other than #TDICT_OK
 *                    ends the call, and an invalid one is #TDICT_EHOOK.
 *  @return #TDICT_EINVAL tdict_trace_start() was never called. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_write_to(tdict_context *context,
                                                            tdict_status (*write)(void *user, const char *text,
                                                                                  size_t bytes),
                                                            void *user, tdict_error *err);

TDICT_END_DECLS
#endif
