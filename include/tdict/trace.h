/* Declares functions that record a timeline of transfers and write the timeline as JSON for ui.perfetto.dev or
 * chrome://tracing.
 *
 * The timeline has a track for each thread that works on a transfer or for a loader, and a track for each stream. A
 * slice is a named interval on a track. These are the slices on threads:
 *
 * - `plan`: planning of a transfer
 * - `copy`: copying by the thread
 * - `submit`: queueing of copies
 * - `wait`: waiting for slots of the staging ring and for streams
 * - `hook`: a hook of an object
 * - `fetch`: a fetch of a loader
 *
 * The slices on streams are the queued copies, named `transfer`. An interval `transfer` in the group `host threads`
 * shows each whole transfer. Slices other than `wait` and `hook` contain a number of bytes. A curve shows the number of
 * batches that the loader holds ready.
 *
 * Two events of the device measure the time of each slice on a stream. Copies that are queued together share one slice.
 * A slice begins when the stream reaches the copy and ends when the copy is done. The slice therefore includes the wait
 * for the device's copy engine. Device times are converted to the host's clock with an error of some microseconds. If a
 * converted slice would begin before its copy was queued, all slices of the device are shifted to later times.
 *
 * Cost: if no recording is on, a transfer only checks one flag.
 * Thread rule: any thread may call any function of this header. */
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

/** @brief Starts a recording, and deletes the slices of the previous recording. Transfers that started before this call
 *  are not recorded.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, max_events is out of range, or a recording is already on;
 *          #TDICT_EFORKED; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_start(tdict_context *context, const tdict_trace_options *options,
                                                         tdict_error *err);
/** @brief Stops the recording. The recorded slices are kept until the next call of tdict_trace_start(). If no recording
 *  is on, the call does nothing. */
TDICT_API void tdict_trace_stop(tdict_context *context);
/** @brief Writes the slices that have been recorded so far to a file, and replaces an existing file. If a recording is
 *  on, the recording continues.
 *
 *  Slices that have not ended are not written. The file contains the number of these slices.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or tdict_trace_start() was never called; #TDICT_EIO the file
 *          cannot be written (err->native is errno), for example because @p path is a directory; #TDICT_EFORMAT @p path
 *          is another kind of file than a regular file or a character device; #TDICT_ENOMEM; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_trace_write(tdict_context *context, const char *path, tdict_error *err);
/** @brief Passes the text that tdict_trace_write() would write to the function @p write, piece by piece and in order.
 *
 *  The library calls @p write on the calling thread, and holds no lock during this call.
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
