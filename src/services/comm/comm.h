/* Defines the communicator: its table, its stream, and its first failure. The program owns the
 * communicator. Thread rule: any thread, except that only the call that is being made uses the table, the headers and
 * the caches. */
#ifndef TDICT_SERVICES_COMM_COMM_H
#define TDICT_SERVICES_COMM_COMM_H

#include <pthread.h>

#include "device/devices.h"
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
  tdict_comm_peer *peers;         /* one for each rank */

  pthread_mutex_t lock;                 /* guards all fields below */
  tdict_error failure;                  /* the first failure; status 0: the communicator is usable */
  tdict_comm_queue *queue;              /* NULL before the first call; retained */
  void (*stop_queue)(tdict_comm *comm); /* waits for all calls and releases the queue; NULL: no queue */
};

/* If the communicator has failed, fills *err with the first failure and returns its status. `what` begins the
 * message. */
tdict_status tdict_comm_check(tdict_comm *comm, const char *what, tdict_error *err);
/* Stores the failure and aborts the table, unless the communicator has failed before. Returns true if this failure is
 * the first. */
bool tdict_comm_fail(tdict_comm *comm, const tdict_error *failure);

#endif
