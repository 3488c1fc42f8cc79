/* Plain values: element types, devices, streams. Copied freely; nobody owns them. Every function here is
 * thread-safe. */
#ifndef TDICT_VALUES_H
#define TDICT_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tdict/status.h"

TDICT_BEGIN_DECLS

/** An element type: DLPack's type code, bits and lanes in one number, so that == and switch work on it.
 *  Source of the codes: DLPack's dlpack.h, DLDataTypeCode. */
typedef uint32_t tdict_dtype;
#define TDICT_DTYPE(code, bits, lanes) ((tdict_dtype)(code) | (tdict_dtype)(bits) << 8 | (tdict_dtype)(lanes) << 16)
#define TDICT_I8 TDICT_DTYPE(0, 8, 1)
#define TDICT_I16 TDICT_DTYPE(0, 16, 1)
#define TDICT_I32 TDICT_DTYPE(0, 32, 1)
#define TDICT_I64 TDICT_DTYPE(0, 64, 1)
#define TDICT_U8 TDICT_DTYPE(1, 8, 1)
#define TDICT_U16 TDICT_DTYPE(1, 16, 1)
#define TDICT_U32 TDICT_DTYPE(1, 32, 1)
#define TDICT_U64 TDICT_DTYPE(1, 64, 1)
#define TDICT_F16 TDICT_DTYPE(2, 16, 1)
#define TDICT_F32 TDICT_DTYPE(2, 32, 1)
#define TDICT_F64 TDICT_DTYPE(2, 64, 1)
#define TDICT_BF16 TDICT_DTYPE(4, 16, 1)
#define TDICT_C64 TDICT_DTYPE(5, 64, 1)
#define TDICT_C128 TDICT_DTYPE(5, 128, 1)
#define TDICT_BOOL TDICT_DTYPE(6, 8, 1)
#define TDICT_F8E4M3 TDICT_DTYPE(10, 8, 1) /* DLPack's float8_e4m3fn */
#define TDICT_F8E5M2 TDICT_DTYPE(12, 8, 1)

/** @brief Bytes of one element, lanes included; 0 for a type that is not one of the above. A type with more than one
 *  lane is known when its one-lane type is. */
TDICT_API size_t tdict_dtype_bytes(tdict_dtype dtype);
/** @brief A name such as "float32" or "bfloat16", without lanes; "unknown" for a type that is not one of the above. */
TDICT_API const char *tdict_dtype_name(tdict_dtype dtype);
/** Bytes that hold every text of tdict_dtype_format(). */
#define TDICT_DTYPE_TEXT_BYTES 32
/** @brief Writes "float32", or "float32 x 4" for a type of four lanes, cut to @p bytes and ended by 0.
 *  @return @p buffer. */
TDICT_API char *tdict_dtype_format(tdict_dtype dtype, char *buffer, size_t bytes);

/** Where memory is. `type` has DLPack's device codes (DLDeviceType), `index` counts devices of one type. */
typedef struct tdict_device {
  int32_t type, index;
} tdict_device;
#define TDICT_DEVICE_AUTO 0 /* not a place: the context chooses, see tdict_context_options */
#define TDICT_DEVICE_CPU 1
#define TDICT_DEVICE_CUDA 2
#define TDICT_DEVICE_SIM 12 /* DLPack's extension code: the simulated device of tdict/sim.h */

TDICT_API tdict_device tdict_cpu(void);
TDICT_API tdict_device tdict_cuda(int index);
TDICT_API tdict_device tdict_sim(int index);
/** @brief True when both name the same place. */
TDICT_API bool tdict_device_equal(tdict_device a, tdict_device b);
/** @brief Reads "cpu", "cuda", "cuda:1", "sim", "sim:1" or "auto"; a missing index is 0.
 *  @param[out] out  written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL any other text, or NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_device_parse(const char *text, tdict_device *out, tdict_error *err);
/** @brief Writes "cuda:1" and the like, cut to @p bytes and ended by 0, and returns @p buffer. */
TDICT_API char *tdict_device_format(tdict_device device, char *buffer, size_t bytes);

/** A stream of a device. For cuda, `handle` is a cudaStream_t or CUstream; 0 is the legacy default stream. */
typedef struct tdict_stream {
  tdict_device device;
  void *handle;
} tdict_stream;

TDICT_END_DECLS
#endif
