/* Declares functions that record a timeline of transfers and write the timeline as JSON for ui.perfetto.dev or
 * chrome://tracing.
 *
 * The timeline has a track for each thread that works on a transfer, and a track for each stream. Slices on threads
 * show planning (plan), copies (copy), queueing of copies (submit), waits for slots and streams (wait), and hooks of
 * objects (hook). Slices on streams show the copies (transfer). Slices on threads also show the fetches of a loader
 * (fetch). A curve shows the number of batches that the loader holds ready. Each slice of a transfer shows the number
 * of bytes.
 * Two events of the device measure the time of each slice on a stream. Copies that are queued together share one slice.
 * A slice begins when the stream reaches the copy and ends when the copy is done. The slice therefore includes the wait
 * for the device's copy engine. Device times are converted to the host's clock with an error of some microseconds. If a
 * copy would then begin before the copy was queued, all slices of the device are shifted to a later time.
 * Cost: if no recording is on, a transfer only checks one flag. Thread rule: every call may be made from any thread. */
#ifndef TDICT_TRACE_H
#define TDICT_TRACE_H

#include "tdict/context.h"

TDICT_BEGIN_DECLS

typedef struct tdict_trace_options {
  size_t struct_size;
  int64_t max_events; /**< maximum number of slices to keep, 16 to 2^24; default 65536. tdict_trace_start() allocates 64
                           bytes for each slice. All further slices are dropped. The file contains the number of dropped
                           slices */
} tdict_trace_options;
static inline tdict_trace_options tdict_trace_options_default(void) {
  tdict_trace_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.max_events = 65536;
  return o;
}

/** @brief Starts a recording, and drops the previous recording. Transfers that started before this call are not
 *  recorded.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, max_events is out of range, or a recording is already on;
 *          #TDICT_EFORKED; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_start(tdict_context *context, const tdict_trace_options *options,
                                                         tdict_error *err);
/** @brief Stops the recording. The recorded slices are kept until the next start. Does nothing if no recording is
 *  on. */
TDICT_API void tdict_trace_stop(tdict_context *context);
/** @brief Writes the slices that are recorded so far to a file, and replaces an existing file. A running recording
 *  continues.
 *
 *  The file does not contain unfinished copies, but contains their number.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or tdict_trace_start() was never called; #TDICT_EIO the file
 *          cannot be written (err->native is errno), for example because @p path is a directory; #TDICT_EFORMAT @p path
 *          is another kind of file than a regular file or a character device; #TDICT_ENOMEM; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_write(tdict_context *context, const char *path, tdict_error *err);
/** @brief Passes the text of tdict_trace_write() to @p write, piece by piece and in order.
 *
 *  The function @p write is called on the calling thread, with no lock held.
 *  @param[in] write  Receives a piece of text, which has no terminating 0. Returns #TDICT_OK to continue. Any other
 *                    status ends the call; an invalid status becomes #TDICT_EHOOK.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or tdict_trace_start() was never called; #TDICT_ENOMEM;
 *          #TDICT_EFORKED; the status that @p write returned. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_write_to(tdict_context *context,
                                                            tdict_status (*write)(void *user, const char *text,
                                                                                  size_t bytes),
                                                            void *user, tdict_error *err);

TDICT_END_DECLS
#endif
