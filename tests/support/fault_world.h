/* Code shared by sweeps over faults: a driver whose calls fail on demand, operations in a context over this driver,
 * source and destination trees that outlive the context, and the expected bytes.
 *
 * A case opens one world and closes it. Thread rule: the main thread, because a failure ends the case. */
#ifndef TDICT_TESTS_SUPPORT_FAULT_WORLD_H
#define TDICT_TESTS_SUPPORT_FAULT_WORLD_H

#include "device/sim/driver.h"
#include "support/driver_fault.h"
#include "support/raw.h"
#include "tdict/tdict.h"

typedef enum fw_op {
  FW_TO_DEVICE,       /* a tree with hooked and flat objects */
  FW_TO_DEVICE_ASYNC, /* starts after the stream, which then waits for the result; also calls tdict_record_stream() */
  FW_WIRE,            /* to the device, with narrow and a conversion */
  FW_TO_HOST,
  FW_TO_HOST_ASYNC, /* into pinned memory */
  FW_INTO_DEVICE,   /* tdict_transfer_into() */
  FW_INTO_HOST_ASYNC,
  FW_INTO_WITHIN, /* between two trees on the device */
  FW_PIN_MEMORY,
  FW_TENSORS, /* single tensors: zeros, copy, clone */
  FW_CONTEXT, /* creates, uses and destroys a context */
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
  tdict_driver *inner, *driver; /* the device's driver, and the fault driver that wraps it */
  tdict_device device;
  int32_t num_threads;  /* for new contexts; 2 by default */
  tdict_context *maker; /* the context that makes all trees of the world */
  raw_memory *raw;
  tdict_tree *host, *device_tree;      /* with all kinds of objects */
  tdict_tree *host_into, *device_into; /* without the objects that transfer_into() refuses */
  tdict_tree *dst_host, *dst_device;   /* destinations of transfer_into() */
  tdict_tree *one;                     /* a single tensor */
  char *expected[4], *read;            /* expected: bytes of host, host_into, one, and the FW_WIRE result */
  size_t expected_bytes[4], room;
} fw_world;
void fw_open(fw_world *w);
void fw_close(fw_world *w);
/* Closes a world whose device was lost. Does not check for leaked driver resources. */
void fw_abandon(fw_world *w);
/* Creates a context over the failing driver. Call while no fault is armed. */
tdict_context *fw_context(fw_world *w);

/* One run of an operation. fw_let_go() releases its result. */
typedef struct fw_run {
  fw_op op;
  const fw_variant *variant;
  tdict_context *context;
  tdict_stream stream; /* a stream of the context, for FW_TO_DEVICE_ASYNC */
  tdict_status status; /* the first failure, or TDICT_OK */
  tdict_error err;
  bool begun;         /* the transfer had started when it failed */
  bool done;          /* the result can be compared */
  tdict_tree *result; /* NULL: none */
} fw_run;
/* Overwrites the writable leaves of a destination, so that old bytes cannot be mistaken for copied bytes. */
void fw_spoil(fw_world *w, tdict_tree *td);
/* Prepares a run: resets its results and overwrites its destination. Call before a fault is armed. */
void fw_prepare(fw_world *w, fw_run *run);
/* Runs the operation. Asserts nothing and allocates nothing itself. */
void fw_do(fw_world *w, fw_run *run);
/* Checks that the result has the expected bytes. */
void fw_check_bytes(fw_world *w, const fw_run *run);
/* Checks after a failed transfer_into() that the destination's accessors return NULL. */
void fw_check_lost(fw_world *w, const fw_run *run);
/* Returns the source of an operation. Errors name paths of this tree. */
const tdict_tree *fw_source(const fw_world *w, fw_op op);
/* Checks that no transfer still reads the source: its accessors return addresses, not NULL. */
void fw_check_source_free(fw_world *w, const fw_run *run);
void fw_let_go(fw_run *run);

/* The numbers of live driver resources and of live things (support/things.h). */
typedef struct fw_counts {
  tdict_fault_live live;
  tdict_driver_sim_count sim; /* all 0 on cuda */
  int64_t things;
} fw_counts;
void fw_count(fw_world *w, fw_counts *out);
void fw_check_counts(fw_world *w, const fw_counts *before, const char *what);

#endif
