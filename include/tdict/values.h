/* Declares plain values: element types, devices and streams. They own no memory. All functions are thread-safe. */
#ifndef TDICT_VALUES_H
#define TDICT_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tdict/status.h"

TDICT_BEGIN_DECLS

/** An element type: one number that contains the type code, bits and lanes of DLPack. Dtypes can be compared with ==
 *  and used in a switch. The type codes are the values of DLDataTypeCode in DLPack's dlpack.h. */
typedef uint32_t tdict_dtype;
/** Makes a dtype from DLPack's numbers. `lanes` is the number of values in one element. */
#define TDICT_DTYPE(code, bits, lanes) \
  (tdict_cast_(tdict_dtype, code) | tdict_cast_(tdict_dtype, bits) << 8 | tdict_cast_(tdict_dtype, lanes) << 16)
/* The comments name the type in C and the dtype in PyTorch. C11 has no type for 16-bit floats and 8-bit floats. */
#define TDICT_I8 TDICT_DTYPE(0, 8, 1)      /**< int8_t; torch.int8 */
#define TDICT_I16 TDICT_DTYPE(0, 16, 1)    /**< int16_t; torch.int16 */
#define TDICT_I32 TDICT_DTYPE(0, 32, 1)    /**< int32_t; torch.int32 */
#define TDICT_I64 TDICT_DTYPE(0, 64, 1)    /**< int64_t; torch.int64 */
#define TDICT_U8 TDICT_DTYPE(1, 8, 1)      /**< uint8_t; torch.uint8 */
#define TDICT_U16 TDICT_DTYPE(1, 16, 1)    /**< uint16_t; torch.uint16 */
#define TDICT_U32 TDICT_DTYPE(1, 32, 1)    /**< uint32_t; torch.uint32 */
#define TDICT_U64 TDICT_DTYPE(1, 64, 1)    /**< uint64_t; torch.uint64 */
#define TDICT_F16 TDICT_DTYPE(2, 16, 1)    /**< uint16_t; torch.float16 */
#define TDICT_F32 TDICT_DTYPE(2, 32, 1)    /**< float; torch.float32 */
#define TDICT_F64 TDICT_DTYPE(2, 64, 1)    /**< double; torch.float64 */
#define TDICT_BF16 TDICT_DTYPE(4, 16, 1)   /**< uint16_t; torch.bfloat16 */
#define TDICT_C64 TDICT_DTYPE(5, 64, 1)    /**< float _Complex; torch.complex64 */
#define TDICT_C128 TDICT_DTYPE(5, 128, 1)  /**< double _Complex; torch.complex128 */
#define TDICT_BOOL TDICT_DTYPE(6, 8, 1)    /**< bool; torch.bool */
#define TDICT_F8E4M3 TDICT_DTYPE(10, 8, 1) /**< uint8_t; torch.float8_e4m3fn */
#define TDICT_F8E5M2 TDICT_DTYPE(12, 8, 1) /**< uint8_t; torch.float8_e5m2 */

/** @brief Returns the number of bytes of one element, including all lanes.
 *  Returns 0 for an unknown type. A type with several lanes is known if its one-lane type is listed above. */
TDICT_API size_t tdict_dtype_bytes(tdict_dtype dtype);
/** @brief Returns a static name such as "float32" or "bfloat16", without lanes, or "unknown". */
TDICT_API const char *tdict_dtype_name(tdict_dtype dtype);
/** A buffer size that is sufficient for every text of tdict_dtype_format(). */
#define TDICT_DTYPE_TEXT_BYTES 32
/** @brief Writes "float32", or "float32 x 4" for 4 lanes, cut to @p bytes bytes with the final 0. Returns @p buffer. */
TDICT_API char *tdict_dtype_format(tdict_dtype dtype, char *buffer, size_t bytes);

/** A device. `type` is a DLPack device type (DLDeviceType), and `index` counts the devices of a type from 0. */
typedef struct tdict_device {
  int32_t type, index;
} tdict_device;
#define TDICT_DEVICE_AUTO 0 /**< not a device: the context chooses a device, see tdict_context_options */
#define TDICT_DEVICE_CPU 1  /**< host memory */
#define TDICT_DEVICE_CUDA 2 /**< an NVIDIA GPU */
#define TDICT_DEVICE_SIM 12 /**< the simulated device of tdict/sim.h; the number is DLPack's extension code */

/** @brief Returns the device of host memory. */
TDICT_API tdict_device tdict_cpu(void);
/** @brief Returns the CUDA device with index @p index. */
TDICT_API tdict_device tdict_cuda(int index);
/** @brief Returns the simulated device with index @p index. */
TDICT_API tdict_device tdict_sim(int index);
/** @brief Returns true if the devices have the same type and the same index. */
TDICT_API bool tdict_device_equal(tdict_device a, tdict_device b);
/** @brief Reads a device from a text: "cpu", "auto", "cuda" or "sim". In a text such as "cuda:1" or "sim:0", a colon
 *  and an index of up to 4 digits follow the type. If the text has no index, the index is 0.
 *  @param[out] out  Written only on success.
 *  @return #TDICT_OK; #TDICT_EINVAL for any other text, or if an argument is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_device_parse(const char *text, tdict_device *out, tdict_error *err);
/** @brief Writes a text such as "cuda:1", cut to @p bytes bytes with the final 0. Returns @p buffer. */
TDICT_API char *tdict_device_format(tdict_device device, char *buffer, size_t bytes);

/** The devices, memories and threads of a program; see tdict/context.h. */
typedef struct tdict_context tdict_context;
/** An allocator for the bytes of tensors: tdict_pinned_memory() and tdict_device_memory() of tdict/context.h, and
 *  tdict_memory_create() of tdict/memory.h. A context owns its allocators. A storage may outlive the context. */
typedef struct tdict_memory tdict_memory;

/** A stream of the program. For CUDA, `handle` is a cudaStream_t or CUstream; NULL is the legacy default stream. */
typedef struct tdict_stream {
  tdict_device device;
  void *handle;
} tdict_stream;
/** @brief Returns the stream that stands for "no stream": all its fields are zero.
 *  A device of type #TDICT_DEVICE_AUTO is no device, so no stream is equal to it. */
static inline tdict_stream tdict_no_stream(void) {
  tdict_stream none;
  none.device.type = TDICT_DEVICE_AUTO;
  none.device.index = 0;
  none.handle = NULL;
  return none;
}

TDICT_END_DECLS
#endif
