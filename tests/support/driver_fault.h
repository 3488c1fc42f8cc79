/* A driver that stands before another one and makes its calls fail or wait when a test says so. It answers for the other
 * in everything else: handles, addresses and codes are the other's.
 *
 * Calls that make something or queue work are not passed on when they are to fail. Calls that wait, free or end something
 * are passed on first and then answer the code, as the real driver's do when they report an error of earlier work.
 * The other driver is its `inner`. Thread rule: safe from any thread. */
#ifndef TDICT_TESTS_SUPPORT_DRIVER_FAULT_H
#define TDICT_TESTS_SUPPORT_DRIVER_FAULT_H

#include "device/driver.h"

typedef enum tdict_fault_kind {
  TDICT_FAULT_DEVICE, /* questions about devices */
  TDICT_FAULT_CTX_RETAIN,
  TDICT_FAULT_CTX_PUSH,
  TDICT_FAULT_CAPTURE, /* capture_mode, stream_capture_status */
  TDICT_FAULT_POOL,    /* pool_create, pool_trim, pool_set, pool_get, pool_allow_peer */
  TDICT_FAULT_DEVICE_ALLOC,
  TDICT_FAULT_HOST_ALLOC,
  TDICT_FAULT_HOST_REGISTER,
  TDICT_FAULT_POINTER,
  TDICT_FAULT_COPY_IN, /* to the device, as a line or a rectangle */
  TDICT_FAULT_COPY_OUT,
  TDICT_FAULT_COPY_WITHIN, /* within a device, or between two */
  TDICT_FAULT_FILL,
  TDICT_FAULT_STREAM_CREATE,
  TDICT_FAULT_STREAM_WAIT, /* stream_wait_event */
  TDICT_FAULT_STREAM_SYNC, /* passed on first; stream_query is not */
  TDICT_FAULT_EVENT_CREATE,
  TDICT_FAULT_EVENT_RECORD,
  TDICT_FAULT_EVENT_QUERY,
  TDICT_FAULT_EVENT_SYNC, /* passed on first */
  TDICT_FAULT_END,        /* frees, destroys, ctx_release, ctx_pop: passed on first */
  TDICT_NUM_FAULT_KINDS
} tdict_fault_kind;
#define TDICT_FAULT_BIT(kind) ((uint32_t)1 << (kind))
#define TDICT_FAULT_ALL (TDICT_FAULT_BIT(TDICT_NUM_FAULT_KINDS) - 1)

typedef struct tdict_fault {
  uint32_t kinds; /* bits of the kinds whose calls are counted, together */
  int64_t n;      /* the call that fails, from 1 */
  tdict_cu code;  /* its answer; TDICT_CU_SUCCESS: it only stalls */
  bool lasts;     /* so do all later ones */
  bool stalls;    /* it begins only after tdict_driver_fault_release() */
} tdict_fault;

/* What was made through the table and not ended again: for tests that look for leaks, on any driver. */
typedef struct tdict_fault_live {
  int64_t contexts, pools, device_blocks, host_blocks, registrations, streams, events;
} tdict_fault_live;

/* Retains `inner`, which stays what device_type says. TDICT_ENOMEM. */
tdict_status tdict_driver_fault_open(tdict_driver *inner, tdict_driver **out, tdict_error *err);
/* Calls are counted from here on; `fault` is copied, NULL: none of them fails. A call that stalls goes on. */
void tdict_driver_fault_arm(tdict_driver *d, const tdict_fault *fault);
/* True once a call has met the fault that was armed last. */
bool tdict_driver_fault_fired(tdict_driver *d);
/* Calls of the kind since the last arm, those that failed too. */
int64_t tdict_driver_fault_calls(tdict_driver *d, tdict_fault_kind kind);
/* True while a call stalls. */
bool tdict_driver_fault_is_stalled(tdict_driver *d);
/* Lets the call that stalls, or will, go on. */
void tdict_driver_fault_release(tdict_driver *d);
void tdict_driver_fault_get_live(tdict_driver *d, tdict_fault_live *out);
/* Calls fn(true) before and fn(false) after each call of the other driver, on the calling thread. Set before use. */
void tdict_driver_fault_set_around(tdict_driver *d, void (*fn)(bool begins));
const char *tdict_fault_kind_name(tdict_fault_kind kind);

#endif
