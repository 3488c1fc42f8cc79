/* Names the operations of a communicator. Thread rule: pure function. */
#include "services/comm/header.h"

const char *tdict_comm_op_name(int32_t op) {
  static const char *const names[] = {"broadcast",        "broadcast_into", "scatter", "gather", "all_gather",
                                      "all_gather_stack", "all_reduce",     "send",    "receive"};
  const int32_t count = (int32_t)(sizeof names / sizeof *names);
  return op >= 1 && op <= count ? names[op - 1] : "an unknown operation";
}
