/* Declares the part of NCCL's API that the library uses, so that building needs no NCCL. The source is NVIDIA's manual
 * of NCCL. tests/services/comm/nccl/check_nccl_header.c compares every declaration with nccl.h.
 *
 * This file declares NCCL's enums as int, which has the size and the calling convention of an enum. If
 * TDICT_NCCL_HEADER_CHECK is defined, this file uses the types of nccl.h, so that the comparison of signatures is
 * exact. The including file must then include nccl.h first. Thread rule: none, because the file only contains
 * declarations. */
#ifndef TDICT_SERVICES_COMM_NCCL_NCCL_API_H
#define TDICT_SERVICES_COMM_NCCL_NCCL_API_H

#include <limits.h>
#include <stddef.h>

/* The oldest supported version, in the format of ncclGetVersion. NCCL 2.18 introduced ncclCommSplit, see watch.h. */
enum { TDICT_NCCL_OLDEST = 21800 };
/* The version that introduced reductions of 8-bit floats, and the compute capability that these reductions need. */
enum { TDICT_NCCL_FLOAT8 = 22400, TDICT_NCCL_FLOAT8_CAPABILITY = 9 };

typedef struct ncclComm *tdict_nccl_comm;
typedef struct CUstream_st *tdict_nccl_stream;
enum { TDICT_NCCL_ID_BYTES = 128 };

/* ncclConfig_t of version 2.18. Newer versions append fields, and do not read these fields if `version` is older. */
struct tdict_nccl_config {
  size_t size;
  unsigned magic;
  unsigned version;
  int blocking;
  int cga_cluster_size, min_ctas, max_ctas;
  const char *net_name; /* NULL: undefined */
  int split_share;      /* 1: a communicator that is split from this one shares its resources */
};
enum { TDICT_NCCL_CONFIG_VERSION = 21800, TDICT_NCCL_UNDEFINED = INT_MIN };
#define TDICT_NCCL_CONFIG_MAGIC 0xcafebeefU

#ifdef TDICT_NCCL_HEADER_CHECK
typedef ncclResult_t tdict_nccl_result;
typedef ncclDataType_t tdict_nccl_type;
typedef ncclRedOp_t tdict_nccl_op;
typedef ncclUniqueId tdict_nccl_unique_id;
typedef ncclConfig_t tdict_nccl_config_arg; /* the structs are compared member by member */
#else
typedef int tdict_nccl_result;
typedef int tdict_nccl_type;
typedef int tdict_nccl_op;
typedef struct tdict_nccl_unique_id {
  char internal[TDICT_NCCL_ID_BYTES];
} tdict_nccl_unique_id;
typedef struct tdict_nccl_config tdict_nccl_config_arg;
#endif

enum { TDICT_NCCL_SUCCESS = 0, TDICT_NCCL_REMOTE_ERROR = 6, TDICT_NCCL_IN_PROGRESS = 7 };    /* ncclResult_t */
enum { TDICT_NCCL_SUM = 0, TDICT_NCCL_MAX = 2, TDICT_NCCL_MIN = 3, TDICT_NCCL_AVERAGE = 4 }; /* ncclRedOp_t */
enum {                                                                                       /* ncclDataType_t */
       TDICT_NCCL_I8 = 0,
       TDICT_NCCL_U8 = 1,
       TDICT_NCCL_I32 = 2,
       TDICT_NCCL_U32 = 3,
       TDICT_NCCL_I64 = 4,
       TDICT_NCCL_U64 = 5,
       TDICT_NCCL_F16 = 6,
       TDICT_NCCL_F32 = 7,
       TDICT_NCCL_F64 = 8,
       TDICT_NCCL_BF16 = 9,
       TDICT_NCCL_F8E4M3 = 10,
       TDICT_NCCL_F8E5M2 = 11
};

/* Functions that return a result: X(field, symbol, parameters). clang-format would make the pointers products. */
/* clang-format off */
#define TDICT_NCCL_ENTRIES(X)                                                                                 \
  X(get_version, ncclGetVersion, (int *version))                                                              \
  X(get_id, ncclGetUniqueId, (tdict_nccl_unique_id *id))                                                      \
  X(init, ncclCommInitRankConfig,                                                                             \
    (tdict_nccl_comm *comm, int world, tdict_nccl_unique_id id, int rank, tdict_nccl_config_arg *config))     \
  X(split, ncclCommSplit,                                                                                     \
    (tdict_nccl_comm comm, int color, int key, tdict_nccl_comm *out, tdict_nccl_config_arg *config))          \
  X(finalize, ncclCommFinalize, (tdict_nccl_comm comm))                                                       \
  X(destroy, ncclCommDestroy, (tdict_nccl_comm comm))                                                         \
  X(abort, ncclCommAbort, (tdict_nccl_comm comm))                                                             \
  X(async_error, ncclCommGetAsyncError, (tdict_nccl_comm comm, tdict_nccl_result *result))                    \
  X(group_start, ncclGroupStart, (void))                                                                      \
  X(group_end, ncclGroupEnd, (void))                                                                          \
  X(broadcast, ncclBroadcast, (const void *src, void *dst, size_t count, tdict_nccl_type type, int root,      \
    tdict_nccl_comm comm, tdict_nccl_stream stream))                                                          \
  X(all_gather, ncclAllGather, (const void *src, void *dst, size_t count, tdict_nccl_type type,               \
    tdict_nccl_comm comm, tdict_nccl_stream stream))                                                          \
  X(all_reduce, ncclAllReduce, (const void *src, void *dst, size_t count, tdict_nccl_type type,               \
    tdict_nccl_op op, tdict_nccl_comm comm, tdict_nccl_stream stream))                                        \
  X(send, ncclSend, (const void *src, size_t count, tdict_nccl_type type, int peer, tdict_nccl_comm comm,     \
    tdict_nccl_stream stream))                                                                                \
  X(receive, ncclRecv, (void *dst, size_t count, tdict_nccl_type type, int peer, tdict_nccl_comm comm,        \
    tdict_nccl_stream stream))
/* clang-format on */
typedef const char *tdict_nccl_error_string_fn(tdict_nccl_result result); /* ncclGetErrorString */
typedef const char *tdict_nccl_last_error_fn(tdict_nccl_comm comm);       /* ncclGetLastError */

#define TDICT_NCCL_DECLARE_(field, symbol, parameters) typedef tdict_nccl_result tdict_nccl_##field##_fn parameters;
TDICT_NCCL_ENTRIES(TDICT_NCCL_DECLARE_)
#undef TDICT_NCCL_DECLARE_

/* NCCL's functions. Only last_error may be NULL. */
typedef struct tdict_nccl_api {
#define TDICT_NCCL_MEMBER_(field, symbol, parameters) tdict_nccl_##field##_fn *field;
  TDICT_NCCL_ENTRIES(TDICT_NCCL_MEMBER_)
#undef TDICT_NCCL_MEMBER_
  tdict_nccl_error_string_fn *error_string;
  tdict_nccl_last_error_fn *last_error;
  int version; /* as ncclGetVersion writes it */
} tdict_nccl_api;

#endif
