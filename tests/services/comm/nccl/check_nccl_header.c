/* Compares each declaration of services/comm/nccl/nccl_api.h with nccl.h. This file is only compiled (gcc
 * -fsyntax-only), which fails if a signature, a layout or a constant is wrong. tests/gates/nccl_header.py also compares
 * the magic number. */
#include <nccl.h>

#define TDICT_NCCL_HEADER_CHECK 1
#include "services/comm/nccl/nccl_api.h"

#define SAME_TYPE(a, b) __builtin_types_compatible_p(a, b)
#define CHECK(condition, text) _Static_assert(condition, text)

#define CHECK_ENTRY(field, symbol, parameters) \
  CHECK(SAME_TYPE(tdict_nccl_##field##_fn *, __typeof__(&symbol)), #symbol ": another signature");
/* In nccl.h, ncclGroupStart() and ncclGroupEnd() have no prototype, which is compatible with (void). */
TDICT_NCCL_ENTRIES(CHECK_ENTRY)
CHECK(SAME_TYPE(tdict_nccl_error_string_fn *, __typeof__(&ncclGetErrorString)), "ncclGetErrorString");
CHECK(SAME_TYPE(tdict_nccl_last_error_fn *, __typeof__(&ncclGetLastError)), "ncclGetLastError");

/* In other files, nccl_api.h declares these enums as int. Callers see no difference if size and alignment are equal. */
#define CHECK_INT(type) CHECK(sizeof(type) == sizeof(int) && _Alignof(type) == _Alignof(int), #type " is no int")
CHECK_INT(ncclResult_t);
CHECK_INT(ncclDataType_t);
CHECK_INT(ncclRedOp_t);

CHECK(SAME_TYPE(tdict_nccl_comm, ncclComm_t), "ncclComm_t");
CHECK(SAME_TYPE(tdict_nccl_stream, cudaStream_t), "cudaStream_t");
CHECK(sizeof(ncclUniqueId) == TDICT_NCCL_ID_BYTES && TDICT_NCCL_ID_BYTES == NCCL_UNIQUE_ID_BYTES, "ncclUniqueId");
CHECK(_Alignof(ncclUniqueId) == 1 && offsetof(ncclUniqueId, internal) == 0, "ncclUniqueId: another layout");

#define CHECK_MEMBER(ours, theirs)                                                                                 \
  CHECK(offsetof(struct tdict_nccl_config, ours) == offsetof(ncclConfig_t, theirs) &&                              \
            SAME_TYPE(__typeof__(((struct tdict_nccl_config *)0)->ours), __typeof__(((ncclConfig_t *)0)->theirs)), \
        "ncclConfig_t." #theirs)
CHECK_MEMBER(size, size);
CHECK_MEMBER(magic, magic);
CHECK_MEMBER(version, version);
CHECK_MEMBER(blocking, blocking);
CHECK_MEMBER(cga_cluster_size, cgaClusterSize);
CHECK_MEMBER(min_ctas, minCTAs);
CHECK_MEMBER(max_ctas, maxCTAs);
CHECK_MEMBER(net_name, netName);
CHECK_MEMBER(split_share, splitShare);
CHECK(sizeof(struct tdict_nccl_config) <= sizeof(ncclConfig_t), "ncclConfig_t is smaller");
CHECK(NCCL_VERSION(2, 18, 0) == TDICT_NCCL_OLDEST && NCCL_VERSION(2, 18, 0) == TDICT_NCCL_CONFIG_VERSION, "2.18");
CHECK(NCCL_VERSION(2, 24, 0) == TDICT_NCCL_FLOAT8, "2.24");
CHECK(TDICT_NCCL_UNDEFINED == NCCL_CONFIG_UNDEF_INT, "NCCL_CONFIG_UNDEF_INT");
#define CHECK_NUMBER(ours, theirs) CHECK((int)ours == (int)theirs, #theirs ": another number")
CHECK_NUMBER(TDICT_NCCL_SUCCESS, ncclSuccess);
CHECK_NUMBER(TDICT_NCCL_REMOTE_ERROR, ncclRemoteError);
CHECK_NUMBER(TDICT_NCCL_IN_PROGRESS, ncclInProgress);
CHECK_NUMBER(TDICT_NCCL_SUM, ncclSum);
CHECK_NUMBER(TDICT_NCCL_MAX, ncclMax);
CHECK_NUMBER(TDICT_NCCL_MIN, ncclMin);
CHECK_NUMBER(TDICT_NCCL_AVERAGE, ncclAvg);
CHECK_NUMBER(TDICT_NCCL_I8, ncclInt8);
CHECK_NUMBER(TDICT_NCCL_U8, ncclUint8);
CHECK_NUMBER(TDICT_NCCL_I32, ncclInt32);
CHECK_NUMBER(TDICT_NCCL_U32, ncclUint32);
CHECK_NUMBER(TDICT_NCCL_I64, ncclInt64);
CHECK_NUMBER(TDICT_NCCL_U64, ncclUint64);
CHECK_NUMBER(TDICT_NCCL_F16, ncclFloat16);
CHECK_NUMBER(TDICT_NCCL_F32, ncclFloat32);
CHECK_NUMBER(TDICT_NCCL_F64, ncclFloat64);
CHECK_NUMBER(TDICT_NCCL_BF16, ncclBfloat16);
#if NCCL_VERSION_CODE >= 22400
CHECK_NUMBER(TDICT_NCCL_F8E4M3, ncclFloat8e4m3);
CHECK_NUMBER(TDICT_NCCL_F8E5M2, ncclFloat8e5m2);
#endif
