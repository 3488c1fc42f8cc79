/* What sweeps over faults share: a driver that fails on demand over the device of the run, sources and destinations
 * that outlive the context in which faults occur, transfers in this context, and their bytes for comparison.
 *
 * The caller opens and closes one world per case. Thread rule: the main thread. A failure ends the case. */
#ifndef TDICT_TESTS_SUPPORT_FAULT_WORLD_H
#define TDICT_TESTS_SUPPORT_FAULT_WORLD_H

#include "device/sim/driver.h"
#include "support/driver_fault.h"
#include "support/raw.h"
#include "tdict/tdict.h"

typedef enum fw_op {
  FW_TO_DEVICE,       /* a tree with both kinds of objects */
  FW_TO_DEVICE_ASYNC, /* after a stream; then wait_on_stream and record_stream with it */
  FW_WIRE,            /* to the device, narrowed and with a conversion */
  FW_TO_HOST,
  FW_TO_HOST_ASYNC, /* into pinned memory */
  FW_INTO_DEVICE,   /* transfer_into */
  FW_INTO_HOST_ASYNC,
  FW_INTO_WITHIN, /* from the device to the device */
  FW_PIN_MEMORY,
  FW_TENSORS, /* single tensors: zeros, copy, clone */
  FW_CONTEXT, /* a context of its own: made, used, destroyed */
  FW_NUM_OPS
} fw_op;
const char *fw_op_name(fw_op op);

typedef struct fw_variant {
  const char *name;
  int32_t mode, num_threads;
} fw_variant;
enum { FW_NUM_VARIANTS = 7 };
extern const fw_variant fw_variants[FW_NUM_VARIANTS];

typedef struct fw_world {
  tdict_driver *inner, *driver; /* the device's, and the one that fails */
  tdict_device device;
  int32_t num_threads;  /* of the contexts that are made, 2 at first */
  tdict_context *maker; /* of everything below */
  raw_memory *raw;
  tdict_tree *host, *device_tree;      /* with all objects */
  tdict_tree *host_into, *device_into; /* without those that transfer_into refuses */
  tdict_tree *dst_host, *dst_device;   /* for transfer_into */
  tdict_tree *one;                     /* a single tensor */
  char *expected[4], *read;            /* bytes of host, host_into, one, host after FW_WIRE; and of what is compared */
  size_t expected_bytes[4], room;
} fw_world;
void fw_open(fw_world *w);
void fw_close(fw_world *w);
/* The same after the device was lost: what the driver still holds is not asked. */
void fw_abandon(fw_world *w);
/* A new context over the driver that fails. Not to be called with a fault armed. */
tdict_context *fw_context(fw_world *w);

/* One operation on a context; its result belongs to it until fw_let_go(). */
typedef struct fw_run {
  fw_op op;
  const fw_variant *variant;
  tdict_context *context;
  tdict_stream stream; /* of the context, for FW_TO_DEVICE_ASYNC */
  tdict_status status; /* the first that was not TDICT_OK */
  tdict_error err;
  bool begun;         /* it was a future that failed */
  bool done;          /* there are bytes to compare */
  tdict_tree *result; /* or NULL */
} fw_run;
/* Overwrites what may be written of a destination, so that old bytes are not taken for new ones. */
void fw_spoil(fw_world *w, tdict_tree *td);
/* Before a fault is armed: destinations get other bytes. */
void fw_prepare(fw_world *w, fw_run *run);
/* Runs it; no assertion, no allocation of its own. */
void fw_do(fw_world *w, fw_run *run);
/* The bytes of a run that is done are those of its source. */
void fw_check_bytes(fw_world *w, const fw_run *run);
/* The destination of a transfer_into that failed on its way gives no bytes. */
void fw_check_lost(fw_world *w, const fw_run *run);
/* The tree that a run's error paths are about. */
const tdict_tree *fw_source(const fw_world *w, fw_op op);
/* Pointers of the source are given out at once: no transfer holds them any more. */
void fw_check_source_free(fw_world *w, const fw_run *run);
void fw_let_go(fw_run *run);

/* Everything that the driver holds for the library. */
typedef struct fw_counts {
  tdict_fault_live live;
  tdict_driver_sim_count sim; /* all 0 on cuda */
  int64_t things;
} fw_counts;
void fw_count(fw_world *w, fw_counts *out);
void fw_check_counts(fw_world *w, const fw_counts *before, const char *what);

#endif
