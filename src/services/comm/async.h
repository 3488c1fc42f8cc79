/* Declares the start of calls. The calls of a communicator are made one after another, in the order in which they were
 * started. A thread of the communicator makes the calls, or a thread that waits for the future of a call. Thread rule:
 * any thread. */
#ifndef TDICT_SERVICES_COMM_ASYNC_H
#define TDICT_SERVICES_COMM_ASYNC_H

#include "services/comm/call.h"

/* Starts a call. Copies the struct and the counts, and makes shallow copies of the trees. *out is a new future. If
 * the table needs the calling thread, the future has ended when the function returns. Returns TDICT_EINVAL for NULL,
 * TDICT_ENOMEM, TDICT_EFORKED, and TDICT_EIO if no thread can be started. After an error, the call does not take part.
 * All other errors are errors of the future. */
tdict_status tdict_comm_start(const tdict_comm_call *call, const tdict_comm_options *options, tdict_future **out,
                              tdict_error *err);

#endif
