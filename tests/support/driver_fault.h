/* A driver that wraps another driver and makes chosen calls fail or stall, for tests. All other calls are forwarded, so
 * handles, addresses and codes come from the wrapped driver, tdict_driver.inner.
 *
 * A call that creates a resource or queues work fails before it reaches the wrapped driver. A call that waits, frees or
 * destroys is forwarded first and then returns the fault's code, because CUDA reports errors of earlier asynchronous
 * work in this way. Thread rule: safe from any thread. */
#ifndef TDICT_TESTS_SUPPORT_DRIVER_FAULT_H
#define TDICT_TESTS_SUPPORT_DRIVER_FAULT_H

#include "device/driver.h"

typedef enum tdict_fault_kind {
  TDICT_FAULT_DEVICE, /* device_count, device_name, device_attribute, device_can_reach */
  TDICT_FAULT_CTX_RETAIN,
  TDICT_FAULT_CTX_PUSH,
  TDICT_FAULT_CAPTURE, /* capture_mode, stream_capture_status */
  TDICT_FAULT_POOL,    /* pool_create, pool_trim, pool_set, pool_get, pool_allow_peer, ctx_allow_peer */
  TDICT_FAULT_DEVICE_ALLOC,
  TDICT_FAULT_HOST_ALLOC,
  TDICT_FAULT_HOST_REGISTER,
  TDICT_FAULT_POINTER,
  TDICT_FAULT_COPY_IN, /* host to device: contiguous, rectangular or batched */
  TDICT_FAULT_COPY_OUT,
  TDICT_FAULT_COPY_WITHIN, /* within a device or between two devices */
  TDICT_FAULT_FILL,
  TDICT_FAULT_MODULE, /* module_load, module_function */
  TDICT_FAULT_LAUNCH,
  TDICT_FAULT_STREAM_CREATE,
  TDICT_FAULT_STREAM_WAIT, /* stream_wait_event */
  TDICT_FAULT_STREAM_SYNC, /* forwarded first, except stream_query */
  TDICT_FAULT_EVENT_CREATE,
  TDICT_FAULT_EVENT_RECORD,
  TDICT_FAULT_EVENT_QUERY,
  TDICT_FAULT_EVENT_SYNC, /* forwarded first */
  TDICT_FAULT_END,        /* frees, destroys, ctx_release, ctx_pop: forwarded first */
  TDICT_NUM_FAULT_KINDS
} tdict_fault_kind;
#define TDICT_FAULT_BIT(kind) ((uint32_t)1 << (kind))
#define TDICT_FAULT_ALL (TDICT_FAULT_BIT(TDICT_NUM_FAULT_KINDS) - 1)

typedef struct tdict_fault {
  uint32_t kinds; /* a set of TDICT_FAULT_BIT(kind); calls of these kinds are counted together */
  int64_t n;      /* number of the call that fails, counted from 1 */
  tdict_cu code;  /* the code that the call returns; TDICT_CU_SUCCESS: the call only stalls */
  bool lasts;     /* all later calls of these kinds fail, too */
  bool stalls;    /* the call blocks until tdict_driver_fault_release() */
} tdict_fault;

/* Counts of resources that were created through this driver and not yet destroyed. Tests use them to find leaks. */
typedef struct tdict_fault_live {
  int64_t contexts, pools, device_blocks, host_blocks, registrations, streams, events, modules;
} tdict_fault_live;

/* Creates a driver that wraps and retains `inner`. The caller owns *out. The only error is TDICT_ENOMEM. */
tdict_status tdict_driver_fault_open(tdict_driver *inner, tdict_driver **out, tdict_error *err);
/* Arms a copy of the fault and resets the call counts. If `fault` is NULL, no call fails. Resumes a stalled call. */
void tdict_driver_fault_arm(tdict_driver *d, const tdict_fault *fault);
/* Returns whether a call has failed or stalled since the last tdict_driver_fault_arm(). */
bool tdict_driver_fault_fired(tdict_driver *d);
/* Returns the number of calls of a kind since the last tdict_driver_fault_arm(), including calls that failed. */
int64_t tdict_driver_fault_calls(tdict_driver *d, tdict_fault_kind kind);
/* Returns true while a call is stalled. */
bool tdict_driver_fault_is_stalled(tdict_driver *d);
/* Lets the stalled call continue. Later calls do not stall until the next tdict_driver_fault_arm(). */
void tdict_driver_fault_release(tdict_driver *d);
/* Writes the numbers of live resources to *out. */
void tdict_driver_fault_get_live(tdict_driver *d, tdict_fault_live *out);
/* Sets a function that is called with true before each call of the wrapped driver and with false after it, on the same
 * thread. It is not called for error_text and ctx_current. Call before other threads use the driver. */
void tdict_driver_fault_set_around(tdict_driver *d, void (*fn)(bool begins));
/* Sets a function that is called before each call that can fail. If the function returns true, the call returns
 * TDICT_CU_INVALID_HANDLE. Call before other threads use the driver. */
void tdict_driver_fault_set_chooser(tdict_driver *d, bool (*must_fail)(tdict_fault_kind kind));
/* Returns the name of a kind, such as "copy_in". */
const char *tdict_fault_kind_name(tdict_fault_kind kind);

#endif
