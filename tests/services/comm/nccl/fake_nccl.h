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
  int version_result;     /* what ncclGetVersion returns */
  int id_result;          /* what ncclGetUniqueId returns */
  int init_result;        /* what ncclCommInitRankConfig returns, if not 0 */
  int call_result;        /* what an operation returns, if not 0 */
  int split_result;       /* what ncclCommSplit returns, if not 0 */
  bool blocks;            /* an operation waits inside the call, until the communicator is aborted or has an error */
  int polls;              /* an operation stays in progress for this many calls of ncclCommGetAsyncError */
  const char *last_error; /* what ncclGetLastError returns */
  void (*inject)(int rank, int result); /* makes the communicators of this rank report an asynchronous error */
  _Atomic(int) comms;                   /* communicators that are neither destroyed nor aborted */
  _Atomic(int) aborts, launches, operations, open_groups;
} fake_nccl_settings;

#endif
