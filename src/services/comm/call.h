/* Defines the communicator, which the program owns, and its calls. A call is one operation with its arguments. Calls
 * are made one after another as started, by the communicator's thread or one that waits for the future of a call.
 * Thread rule: any thread may start a call, and then one at a time uses it. Any thread may use the communicator, but
 * only the call that is being made uses the table, the headers and the caches. */
#ifndef TDICT_SERVICES_COMM_CALL_H
#define TDICT_SERVICES_COMM_CALL_H

#include <pthread.h>

#include "device/devices.h"
#include "services/comm/block_runs.h"
#include "services/comm/schema_cache.h"
#include "tdict/comm.h"

typedef struct tdict_comm_queue tdict_comm_queue; /* calls, see async.c */

#define TDICT_COMM_MAGIC UINT64_C(0x746469637443314d)
enum { TDICT_COMM_VERSION = 1 };

/* The header that begins a call: what a rank calls, whether its arguments are valid, and the schema of its tree. All
 * ranks run on machines with the same byte order; another byte order changes the magic number. */
typedef struct tdict_comm_header {
  uint64_t magic;
  int32_t version;
  int32_t op;     /* a tdict_comm_op */
  int32_t root;   /* 0 if the call has no root; likewise for the next two */
  int32_t dim;    /* as the program passed it */
  int32_t reduce; /* a tdict_reduce_op */
  int32_t status; /* of the checks that the rank made alone */
  tdict_hash128 hash;
  uint64_t blob_bytes; /* of the schema; 0: the rank has no tree */
  int64_t rows;        /* size of dimension `dim` of the rank's tree */
  int64_t has_counts;  /* 1: the root of a scatter has a list of counts */
  uint64_t reserved[6];
} tdict_comm_header;

/* Schemas that were sent to one other rank and received from it. */
typedef struct tdict_comm_peer {
  tdict_schema_cache sent, received;
} tdict_comm_peer;

struct tdict_comm {
  tdict_context *context; /* borrowed */
  tdict_comm_table table;
  int64_t timeout_ns;
  tdict_gpu *gpu;                 /* borrowed from the context; NULL: the device is the cpu */
  tdict_stream stream;            /* on which the table queues its work; unused if the device is the cpu */
  tdict_comm_header *headers;     /* one for each rank, written by tdict_comm_agree() */
  tdict_schema_cache schemas;     /* that roots have sent to all ranks */
  tdict_schema_cache own_schemas; /* of the trees that this rank has passed; not known to other ranks */
  tdict_row_schemas row_schemas;  /* made of the schemas above */
  tdict_runs_cache runs;          /* of schemas whose trees were cut or joined */
  tdict_comm_peer *peers;         /* one for each rank */
  bool has_launched;              /* true: the kernel of copies is loaded, and was launched on the device */

  pthread_mutex_t lock;                 /* guards all fields below */
  tdict_error failure;                  /* the first failure; status 0: the communicator is usable */
  tdict_comm_queue *queue;              /* NULL before the first call; retained */
  void (*stop_queue)(tdict_comm *comm); /* waits for all calls and releases the queue; NULL: no queue */
};

/* If the communicator has failed, returns the first failure. `what` begins the message. */
tdict_status tdict_comm_check(tdict_comm *comm, const char *what, tdict_error *err);
/* Stores the failure and aborts the table. Returns false if the communicator has failed before. */
bool tdict_comm_fail(tdict_comm *comm, const tdict_error *failure);

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
  tdict_storage *held[2];      /* retained; NULL, or memory that queued work of the failed call may still use */

  tdict_error local; /* the first error of the checks that this rank makes alone; status 0: none */
  bool keeps_comm;   /* true: if the call fails now, all ranks know, and the communicator stays usable */
};

/* Returns the name of a public function, such as "broadcast"; "an unknown operation" for another number. */
const char *tdict_comm_op_name(int32_t op);
/* Returns the name of the public function of a call, for messages. */
static inline const char *tdict_comm_what(const tdict_comm_call *call) { return tdict_comm_op_name((int32_t)call->op); }
/* Returns true if there was no error so far. */
static inline bool tdict_comm_is_fine(const tdict_comm_call *call) { return call->local.status == TDICT_OK; }
/* Makes a step of this rank alone, unless one has failed. `step` returns a status, which other ranks will learn. */
#define TDICT_COMM_ALONE(call, step) ((void)(tdict_comm_is_fine(call) && ((call)->local.status = (int32_t)(step))))

/* Starts a call with copies of the struct and counts, and shallow copies of the trees. If the table needs the calling
 * thread, the future has ended on return. Returns TDICT_EINVAL for NULL, TDICT_ENOMEM, TDICT_EFORKED, and TDICT_EIO
 * without a thread. The call then does not take part. Other errors are the future's. Defined in async.c. */
tdict_status tdict_comm_start(const tdict_comm_call *call, const tdict_comm_options *options, tdict_future **out,
                              tdict_error *err);
/* Reads the options and checks the arguments of this rank. Errors are noted in the call. Returns an error only if the
 * call must not take part: TDICT_EFORKED. */
tdict_status tdict_comm_prepare(tdict_comm_call *call, const tdict_comm_options *options, tdict_error *err);
/* Waits for the work of the option `after`. Call after the headers agree, and before elements of a tree are used.
 * Returns TDICT_ETIMEDOUT. */
tdict_status tdict_comm_await_stream(tdict_comm_call *call, tdict_error *err);

#endif
