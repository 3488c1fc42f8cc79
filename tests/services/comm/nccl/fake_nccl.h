/* The variable `fake_nccl` of fake_nccl.so, with which a test controls the loaded library and reads its counters. */
#ifndef TDICT_TESTS_SERVICES_COMM_NCCL_FAKE_NCCL_H
#define TDICT_TESTS_SERVICES_COMM_NCCL_FAKE_NCCL_H

#include <stdatomic.h>
#include <stdbool.h>

#include "tdict/sim.h"

typedef struct fake_nccl_settings {
  /* The fake is not linked with tdict, so the test passes functions of tdict to it. `device` returns the ordinal of the
   * simulated device whose context is current on the calling thread, or -1. */
  tdict_status (*launch)(tdict_stream stream, void (*fn)(void *user), void *user, tdict_error *err);
  void *(*host_pointer)(tdict_stream stream, const void *device_address);
  int (*device)(void);
  int version;            /* the version code that ncclGetVersion writes */
  int version_result;     /* the return value of ncclGetVersion */
  int id_result;          /* the return value of ncclGetUniqueId */
  int init_result;        /* the return value of ncclCommInitRankConfig, if not 0 */
  int call_result;        /* the return value of each operation, if not 0 */
  int split_result;       /* the return value of ncclCommSplit, if not 0 */
  bool blocks;            /* an operation waits inside the call, until the communicator is aborted or has an error */
  int polls;              /* an operation stays in progress for this many calls of ncclCommGetAsyncError */
  const char *last_error; /* the return value of ncclGetLastError */
  void (*inject)(int rank, int result); /* makes the communicators of this rank report an asynchronous error */
  _Atomic(int) comms;                   /* communicators that are neither destroyed nor aborted */
  _Atomic(int) aborts, launches, operations, open_groups;
} fake_nccl_settings;

#endif
