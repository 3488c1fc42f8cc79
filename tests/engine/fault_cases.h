/* The cases of the long fault sweep that scripts/sweep-faults runs. Each pair of an operation and a variant is its own
 * case, so that several can run in parallel. The including file defines `static void sweep(fw_op op, int first, int
 * num)`. */
#ifndef TDICT_TESTS_ENGINE_FAULT_CASES_H
#define TDICT_TESTS_ENGINE_FAULT_CASES_H

#include "support/fault_world.h"
#include "support/test.h"

#define FAULT_CASE(prefix, name, op, variant) \
  TD_CASE(prefix##_##name##_##variant) { sweep(op, variant, 1); }
#define FAULT_CASES(prefix, name, op) \
  FAULT_CASE(prefix, name, op, 0)     \
  FAULT_CASE(prefix, name, op, 1)     \
  FAULT_CASE(prefix, name, op, 2)     \
  FAULT_CASE(prefix, name, op, 3)     \
  FAULT_CASE(prefix, name, op, 4)     \
  FAULT_CASE(prefix, name, op, 5)     \
  FAULT_CASE(prefix, name, op, 6)
#define ALL_FAULT_CASES(prefix)                            \
  FAULT_CASES(prefix, to_device, FW_TO_DEVICE)             \
  FAULT_CASES(prefix, to_device_async, FW_TO_DEVICE_ASYNC) \
  FAULT_CASES(prefix, wire, FW_WIRE)                       \
  FAULT_CASES(prefix, to_host, FW_TO_HOST)                 \
  FAULT_CASES(prefix, to_host_async, FW_TO_HOST_ASYNC)     \
  FAULT_CASES(prefix, into_device, FW_INTO_DEVICE)         \
  FAULT_CASES(prefix, into_host_async, FW_INTO_HOST_ASYNC) \
  FAULT_CASES(prefix, into_within, FW_INTO_WITHIN)         \
  FAULT_CASES(prefix, pin_memory, FW_PIN_MEMORY)           \
  FAULT_CASE(prefix, tensors, FW_TENSORS, 0)               \
  FAULT_CASE(prefix, context, FW_CONTEXT, 0)

#endif
