/* Declares calls. A call is one operation of a communicator with its arguments. The functions of this header make the
 * steps that all calls share. Thread rule: one thread at a time may use a call. */
#ifndef TDICT_SERVICES_COMM_CALL_H
#define TDICT_SERVICES_COMM_CALL_H

#include "services/comm/comm.h"
#include "services/comm/tree_facts.h"

typedef struct tdict_comm_call tdict_comm_call;
struct tdict_comm_call {
  tdict_comm *comm;
  tdict_comm_op op;
  /* Makes the call. Returns a new reference in *out, or NULL if the call has no result. */
  tdict_status (*run)(tdict_comm_call *call, tdict_tree **out, tdict_error *err);

  /* Arguments */
  const tdict_tree *given; /* the source as the program passed it; NULL: `src` is this tree */
  const tdict_tree *src;   /* the source, or NULL */
  tdict_tree *tree;        /* the tree to write in place, or NULL */
  bool has_root, has_dim;
  int32_t root;   /* or the other rank of a send or receive */
  int32_t reduce; /* a tdict_reduce_op; 0 if the call has none */

  /* Set by tdict_comm_prepare() */
  int32_t dim;           /* as the program passed it; 0 if the call has none */
  const int64_t *counts; /* may be NULL */
  int64_t timeout_ns;
  tdict_memory *memory;
  tdict_tree_facts *facts; /* retained; of the tree that the program passed; NULL: the tree is checked at each call */
  tdict_fence *after;      /* retained; the work of the option `after`; NULL: none */

  tdict_error local; /* the first error of the checks that this rank makes alone; status 0: none */
  bool keeps_comm;   /* true: if the call fails now, all ranks know, and the communicator stays usable */
};

/* Returns the name of the public function, for messages. */
static inline const char *tdict_comm_what(const tdict_comm_call *call) { return tdict_comm_op_name((int32_t)call->op); }
/* Stores an error of this rank's own checks. The other ranks will learn the error. Does nothing if `status` is
 * TDICT_OK, or if there is an earlier error. */
void tdict_comm_note(tdict_comm_call *call, tdict_status status, const tdict_error *err);
/* Returns true if there was no error so far. */
static inline bool tdict_comm_is_fine(const tdict_comm_call *call) { return call->local.status == TDICT_OK; }

/* Reads the options, and checks the arguments that do not depend on other ranks. Errors are noted in the call. Returns
 * an error only if the call must not take part: TDICT_EFORKED. */
tdict_status tdict_comm_prepare(tdict_comm_call *call, const tdict_comm_options *options, tdict_error *err);
/* Makes the call. No other call of the communicator may be made meanwhile. If the call fails, aborts the communicator
 * unless all ranks know the error. On failure *out is unchanged. */
tdict_status tdict_comm_perform(tdict_comm_call *call, tdict_tree **out, tdict_error *err);
/* Releases what tdict_comm_prepare() has made. */
void tdict_comm_reset(tdict_comm_call *call);

/* Waits for the work of the option `after`. Call this function after the headers agree, before the elements of a tree
 * are used. Returns TDICT_ETIMEDOUT. */
tdict_status tdict_comm_await_stream(tdict_comm_call *call, tdict_error *err);

#endif
