/* Defines the header that begins a call: what a rank calls, whether its arguments are valid, and the schema of its
 * tree. All ranks run on machines with the same byte order; another byte order changes the magic number. Thread rule:
 * plain data. */
#ifndef TDICT_SERVICES_COMM_HEADER_H
#define TDICT_SERVICES_COMM_HEADER_H

#include "tdict/schema.h"

#define TDICT_COMM_MAGIC UINT64_C(0x746469637443314d)
enum { TDICT_COMM_VERSION = 1 };

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

/* Returns the name of the public function, such as "broadcast"; "an unknown operation" for another number. */
const char *tdict_comm_op_name(int32_t op);

#endif
