/* Included by each test file: macros that define cases, the device of the run, asserts, and random data.
 *
 * CMake finds each case by the name of its macro at the start of a line:
 *   CASE(name)         runs once
 *   DEVICE_CASE(name)  runs on host, sim and cuda
 *   GPU_CASE(name)     runs on sim and cuda
 *   SIM_CASE(name)     runs on sim
 *   CUDA_CASE(name)    runs on cuda
 *   MPI_CASE(name)     runs under mpirun of Open MPI and of MPICH; in tests/services/mpi only
 * The program is called as `test_x NAME DEVICE [--OPTION VALUE]...`. It exits with 0 if the case passed, with 77 if the
 * case was skipped (and prints the reason), otherwise with a different status.
 *
 * cmocka's asserts work only on the main thread. Other threads count failures, and the main thread checks the count. */
#ifndef TDICT_TESTS_SUPPORT_TEST_H
#define TDICT_TESTS_SUPPORT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/expressions.h"
#include "support/fail_alloc.h"
#include "support/make.h"
#include "support/rest.h"
#include "support/run.h"
#include "support/sanitized.h"
#include "support/scoped.h"
#include "support/take.h"
#include "tdict/arrow.h"
#include "tdict/clone.h"
#include "tdict/combine.h"
#include "tdict/comm.h"
#include "tdict/comm_nccl.h"
#include "tdict/comm_table.h"
#include "tdict/convert.h"
#include "tdict/debug.h"
#include "tdict/devices.h"
#include "tdict/dlpack.h"
#include "tdict/hook.h"
#include "tdict/index.h"
#include "tdict/keysets.h"
#include "tdict/lazy_stack.h"
#include "tdict/memory.h"
#include "tdict/nontensor.h"
#include "tdict/ragged.h"
#include "tdict/records.h"
#include "tdict/replay.h"
#include "tdict/run.h"
#include "tdict/sampler.h"
#include "tdict/schema.h"
#include "tdict/shape.h"
#include "tdict/share.h"
#include "tdict/sim.h"
#include "tdict/tdict.h"
#include "tdict/tokens.h"
#include "tdict/trace.h"
#include "tdict/unbatched.h"
#include "tdict/view.h"
#include "tdict/visit.h"
#include "tdict/write.h"

TDICT_BEGIN_DECLS
#include <cmocka.h> /* here, because C++ needs it in extern "C" */

void td_register(const char *name, void (*run)(void));
#define TD_CASE(name)                                                                             \
  static void name(void);                                                                         \
  __attribute__((constructor)) static void td_register_##name(void) { td_register(#name, name); } \
  static void name(void)
#define CASE(name) TD_CASE(name)
#define DEVICE_CASE(name) TD_CASE(name)
#define GPU_CASE(name) TD_CASE(name)
#define SIM_CASE(name) TD_CASE(name)
#define CUDA_CASE(name) TD_CASE(name)
#define MPI_CASE(name) TD_CASE(name)

/* Ends the case and reports it as skipped. */
void td_skip(const char *reason) __attribute__((noreturn));
/* Returns the device of this run: tdict_cpu(), tdict_sim(0) or tdict_cuda(0). */
tdict_device td_device(void);
/* Creates a context for the device of this run, or skips the case if there is no such device. `options` may be NULL;
 * its device is ignored. */
tdict_context *td_context(const tdict_context_options *options);

/* Registers a function that runs after the case if the case passes, for example to release shared objects. */
void td_at_end(void (*run)(void));

/* Returns the value of a command-line option, such as td_option("--ops"), or NULL. */
const char *td_option(const char *name);
/* Returns the value of an option as a number, or `otherwise` if the option is missing. */
int64_t td_number(const char *name, int64_t otherwise);

/* Fills bytes with a random sequence. Different seeds make different sequences. */
void td_fill_random(void *bytes, size_t count, uint64_t seed);
/* Returns true if all bytes have this value. */
static inline bool td_all_bytes(const void *p, size_t bytes, unsigned char value) {
  return bytes == 0 || (*(const unsigned char *)p == value && memcmp(p, (const char *)p + 1, bytes - 1) == 0);
}

enum { TD_UNWRITTEN = -1 };
/* Makes a call, which must succeed and must not write to its error. The call may use `err`. */
#define td_ok(call)                                                                                            \
  do {                                                                                                         \
    tdict_error td_error_;                                                                                     \
    memset(&td_error_, 0, sizeof td_error_);                                                                   \
    td_error_.status = TD_UNWRITTEN;                                                                           \
    tdict_error *err = &td_error_;                                                                             \
    tdict_status td_status_ = (call);                                                                          \
    if (td_status_ != TDICT_OK)                                                                                \
      fail_msg("%s: %s at '%s': %s", #call, tdict_status_name(td_status_), err->path, err->message);           \
    if (err->status != TD_UNWRITTEN) fail_msg("%s: succeeded, and wrote the error '%s'", #call, err->message); \
  } while (0)
extern tdict_error td_last_error;
/* Makes a call, which must fail with this status and a message that contains `text`. The call may use `err`, which is
 * td_last_error. */
#define td_fails(wanted, text, call)                                                                        \
  do {                                                                                                      \
    memset(&td_last_error, 0, sizeof td_last_error);                                                        \
    tdict_error *err = &td_last_error;                                                                      \
    tdict_status td_status_ = (call);                                                                       \
    if (td_status_ != (wanted) || err->status != (int32_t)(wanted))                                         \
      fail_msg("%s: returned %s (the error has %s, '%s'), wanted %s", #call, tdict_status_name(td_status_), \
               tdict_status_name((tdict_status)err->status), err->message, #wanted);                        \
    if (!strstr(err->message, (text)))                                                                      \
      fail_msg("%s: the message '%s' does not contain '%s'", #call, err->message, (text));                  \
  } while (0)
/* Like td_fails(), but the error must also have the path `where`. */
#define td_fails_at(wanted, text, where, call)      \
  do {                                              \
    td_fails(wanted, text, call);                   \
    assert_string_equal(td_last_error.path, where); \
  } while (0)

/* Return the current counts of a memory or a device. */
static inline tdict_memory_counts td_memory_counts(const tdict_memory *memory) {
  tdict_memory_counts counts;
  tdict_memory_get_counts(memory, &counts);
  return counts;
}
static inline tdict_device_counts td_device_counts(tdict_context *context, tdict_device device) {
  tdict_device_counts counts;
  td_ok(tdict_context_get_counts(context, device, &counts, err));
  return counts;
}

TDICT_END_DECLS
#endif
