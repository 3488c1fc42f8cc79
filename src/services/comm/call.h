/* Declares calls. A call is one operation of a communicator with its arguments. The calls are made one after another,
 * in the order in which they were started. A thread of the communicator makes the calls, or a thread that waits for the
 * future of a call. Thread rule: any thread may start a call; then one thread at a time uses it. */
#ifndef TDICT_SERVICES_COMM_CALL_H
#define TDICT_SERVICES_COMM_CALL_H

#include "services/comm/comm.h"

typedef enum tdict_comm_op {
  TDICT_COMM_BROADCAST = 1,
  TDICT_COMM_BROADCAST_INTO,
  TDICT_COMM_SCATTER,
  TDICT_COMM_GATHER,
  TDICT_COMM_ALL_GATHER,
  TDICT_COMM_ALL_GATHER_STACK,
  TDICT_COMM_ALL_REDUCE,
  TDICT_COMM_SEND,
  TDICT_COMM_RECEIVE
} tdict_comm_op;

/* A tree of this rank that was checked. The owner of the struct calls tdict_comm_source_reset(). */
typedef struct tdict_comm_source {
  const tdict_tree *tree;      /* borrowed */
  tdict_schema *schema;        /* retained; NULL: the tree was refused */
  const tdict_storage *common; /* borrowed; of all tensors; NULL: several storages, or there are no tensors */
  bool is_block;               /* the tensors lie in one storage, in the layout of tdict_create_from() */
  bool is_near;                /* all tensors are in memory of the communicator's device */
  bool gap_is_free;            /* the bytes after the last tensor up to the next multiple of 256 belong to no tensor */
  tdict_storage *storage;      /* borrowed; of the block; NULL: no tensor has elements */
  char *data;                  /* start of the block */
} tdict_comm_source;

/* A message is the block of bytes that holds all tensors of a tree, in the layout of tdict_create_from(). The block is
 * the storage of the tree itself if the tree has this layout, else a copy. */
typedef struct tdict_block_message {
  const tdict_tree *tree; /* the tree of the program, borrowed; NULL: a tree that is received */
  tdict_tree *packed;     /* retained; the tree over the block: `tree` itself, or a new tree; NULL: not yet made */
  tdict_storage *storage; /* retained; NULL if the tree has no tensors */
  char *data;             /* the block, on the device of the communicator */
  size_t bytes;           /* from the first tensor to the end of the last tensor */
  bool is_copy;           /* true: `packed` is not `tree` */
  bool has_padding;       /* true: the bytes from the end of the block to the next multiple of 256 may also be sent */
  bool needs_transfer;    /* true: a tensor of `tree` is on another device, or not in memory */
} tdict_block_message;

/* What a rank says about its tree. */
typedef struct tdict_comm_offer {
  const tdict_schema *schema; /* borrowed; NULL: this rank has no tree */
  int64_t rows;
  bool has_counts;
} tdict_comm_offer;

typedef struct tdict_tree_facts tdict_tree_facts; /* see agree.h */
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

  /* Set by tdict_comm_prepare(), and `facts` by tdict_comm_start() */
  int32_t dim;           /* as the program passed it; 0 if the call has none */
  const int64_t *counts; /* may be NULL */
  int64_t timeout_ns;
  tdict_memory *memory;
  tdict_tree_facts *facts; /* retained; of the tree that the program passed; NULL: the tree is checked at each call */
  tdict_fence *after;      /* retained; the work of the option `after`; NULL: none */

  /* Found by the steps of the call, zeros at first */
  tdict_comm_source source;    /* the tree of this rank */
  tdict_block_message message; /* the block of `source`, or of a tree that is received */
  tdict_comm_offer offer;      /* the schema of `source`, unless the call offers more */

  tdict_error local; /* the first error of the checks that this rank makes alone; status 0: none */
  bool keeps_comm;   /* true: if the call fails now, all ranks know, and the communicator stays usable */
};

/* Returns the name of a public function, such as "broadcast"; "an unknown operation" for another number. */
const char *tdict_comm_op_name(int32_t op);
/* Returns the name of the public function of a call, for messages. */
static inline const char *tdict_comm_what(const tdict_comm_call *call) { return tdict_comm_op_name((int32_t)call->op); }
/* Returns true if there was no error so far. */
static inline bool tdict_comm_is_fine(const tdict_comm_call *call) { return call->local.status == TDICT_OK; }
/* Makes a step that this rank makes alone, unless an earlier step has failed. `step` returns a status, and fills
 * call->local if it fails. The other ranks will learn the error. */
#define TDICT_COMM_ALONE(call, step) ((void)(tdict_comm_is_fine(call) && ((call)->local.status = (int32_t)(step))))

/* Starts a call. Copies the struct and the counts, and makes shallow copies of the trees. *out is a new future. If
 * the table needs the calling thread, the future has ended when the function returns. Returns TDICT_EINVAL for NULL,
 * TDICT_ENOMEM, TDICT_EFORKED, and TDICT_EIO if no thread can be started. After an error, the call does not take part.
 * All other errors are errors of the future. Defined in async.c. */
tdict_status tdict_comm_start(const tdict_comm_call *call, const tdict_comm_options *options, tdict_future **out,
                              tdict_error *err);
/* Reads the options, and checks the arguments that do not depend on other ranks. Errors are noted in the call. Returns
 * an error only if the call must not take part: TDICT_EFORKED. */
tdict_status tdict_comm_prepare(tdict_comm_call *call, const tdict_comm_options *options, tdict_error *err);
/* Waits for the work of the option `after`. Call this function after the headers agree, before the elements of a tree
 * are used. Returns TDICT_ETIMEDOUT. */
tdict_status tdict_comm_await_stream(tdict_comm_call *call, tdict_error *err);

#endif
