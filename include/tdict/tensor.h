/* Declares tensors. A tensor has an element type, a shape and strides, which never change. The elements are in a
 * storage: a block of bytes with a reference count, which several tensors can share. Shapes and strides are in
 * elements, names with "bytes" in bytes. Strides may be zero or negative. A function that creates a tensor returns one
 * reference in @p out, written on success only; release it with tdict_tensor_release(). A `shape` of @p ndim sizes may
 * be NULL if @p ndim is 0. A @p memory of NULL is plain host memory, aligned to 256 bytes.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: NULL, or an invalid number, size or index; #TDICT_EDTYPE: an unknown dtype; #TDICT_ENOMEM;
 * - #TDICT_EOVERFLOW: bytes that do not fit 63 bits or the address space; #TDICT_ENOTSUP: an unknown field is set;
 * - in memory of a context: #TDICT_ENODEVICE, #TDICT_EDEVICE, #TDICT_ELOST and #TDICT_EFORKED.
 *
 * Thread rule: many threads may read a tensor at the same time. While a thread writes elements, no other thread may
 * read or write these elements. Retain and release are safe from any thread. */
#ifndef TDICT_TENSOR_H
#define TDICT_TENSOR_H

#include "tdict/values.h"

#ifdef __cplusplus
#include <initializer_list>
#endif

TDICT_BEGIN_DECLS

/** The maximum number of dimensions. */
#define TDICT_MAX_NDIM 32

/** Expands to two arguments: the number of dimensions, and an array of sizes that is valid during the call.
 *  Example: `tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(128, 17), NULL, &t, &err)`. In C++ each size must have the type
 *  int64_t or be a constant. For a scalar pass `0, NULL` instead. */
#ifdef __cplusplus
#define TDICT_SHAPE(...)                                                \
  static_cast<int>(std::initializer_list<int64_t>{__VA_ARGS__}.size()), \
      std::initializer_list<int64_t>{__VA_ARGS__}.begin()
#else
#define TDICT_SHAPE(...) \
  (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#endif

typedef struct tdict_tensor tdict_tensor;

/** The program has page-locked the bytes. A transfer uses them as pinned memory only if the driver confirms it. */
#define TDICT_DESC_PINNED 1u
/** The bytes must not be written. For such a tensor, tdict_tensor_data() returns NULL. */
#define TDICT_DESC_READ_ONLY 2u

/** Describes memory of the program or, written by tdict_tensor_get_desc(), any tensor. */
typedef struct tdict_tensor_desc {
  size_t struct_size;
  void *data; /**< address of the element whose indices are all 0; negative strides put others at lower addresses */
  tdict_device device;
  tdict_dtype dtype;
  int32_t ndim;
  const int64_t *shape;   /**< ndim sizes; borrowed */
  const int64_t *strides; /**< ndim strides in elements; NULL means C order; borrowed */
  size_t storage_bytes;   /**< accessible bytes from `data` upwards; 0: as many as shape and strides need */
  uint32_t flags;         /**< TDICT_DESC_ bits */
} tdict_tensor_desc;
static inline tdict_tensor_desc tdict_tensor_desc_default(void) {
  tdict_tensor_desc v;
  tdict_init_struct_(v);
  v.device.type = TDICT_DEVICE_CPU;
  return v;
}

/** @brief Creates a tensor in C order with unspecified elements. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_empty(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                          tdict_memory *memory, tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor in C order whose bytes are all zero. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_zeros(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                          tdict_memory *memory, tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor in plain host memory. Every element is a copy of the element at the address @p element. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_full(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                         const void *element, tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor in plain host memory from an array of the program.
 *  @param[in] data  All elements in C order, borrowed for the call. May be NULL if there are none. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_from_array(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                               const void *data, tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor of @p count values in plain host memory: value i is start + i * step, computed as a double.
 *  For integer types it is truncated toward zero.
 *  @return #TDICT_ENOTSUP also for bool, complex and several lanes; #TDICT_EOVERFLOW also for a value out of range. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_arange(tdict_dtype dtype, double start, double step, int64_t count,
                                                           tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor over memory of the program. Copies nothing.
 *  @param[in] release  Called once with @p user after the last reference to the memory is dropped, on that thread and
 *                      without a lock of the library. Tensors and running transfers hold references. It may call only
 *                      release functions of this library. NULL, or if this function fails: nothing is called.
 *  @return #TDICT_ESHAPE also if the strides reach outside `storage_bytes`. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_from_data(const tdict_tensor_desc *view,
                                                              void (*release)(void *user), void *user,
                                                              tdict_tensor **out, tdict_error *err);

/** @brief Adds a reference and returns @p tensor. */
TDICT_API tdict_tensor *tdict_tensor_retain(const tdict_tensor *tensor);
/** @brief Releases a reference. NULL is allowed. */
TDICT_API void tdict_tensor_release(tdict_tensor *tensor);

/** @brief Returns the element type. */
TDICT_API tdict_dtype tdict_tensor_dtype(const tdict_tensor *tensor);
/** @brief Returns the device of the storage. */
TDICT_API tdict_device tdict_tensor_device(const tdict_tensor *tensor);
/** @brief Returns the number of dimensions. */
TDICT_API int tdict_tensor_ndim(const tdict_tensor *tensor);
/** @brief Returns the ndim sizes, borrowed from the tensor. */
TDICT_API const int64_t *tdict_tensor_shape(const tdict_tensor *tensor);
/** @brief Returns the ndim strides in elements, borrowed from the tensor. */
TDICT_API const int64_t *tdict_tensor_strides(const tdict_tensor *tensor);
/** @brief Returns the number of elements. */
TDICT_API int64_t tdict_tensor_numel(const tdict_tensor *tensor);
/** @brief Returns the number of elements times the bytes of one element. The result does not depend on the strides. */
TDICT_API size_t tdict_tensor_bytes(const tdict_tensor *tensor);
/** @brief Returns true if the elements are in C order without gaps.
 *  The strides of dimensions of size 1 are ignored. A tensor without elements is contiguous. */
TDICT_API bool tdict_tensor_is_contiguous(const tdict_tensor *tensor);
/** @brief Returns true if the tensor is in page-locked host memory. This is memory of tdict_pinned_memory() or
 *  of a pinned tdict_allocator, with #TDICT_DESC_PINNED, or in a slot of a ring after tdict_share_ring_pin(). */
TDICT_API bool tdict_tensor_is_pinned(const tdict_tensor *tensor);
/** @brief Returns the address of the element whose indices are all 0, for writing.
 *
 *  For host memory, waits until no transfer and no work of tdict_record_stream() uses the storage. Never waits for a
 *  device, or for threads of a parent process. Returns NULL if the storage is read-only, or if a transfer into the
 *  elements failed or was cancelled. Without elements there may be no address, which is NULL too. */
TDICT_API void *tdict_tensor_data(tdict_tensor *tensor);
/** @brief Returns the same address for reading, also of read-only storages. Waits only for transfers that write. */
TDICT_API const void *tdict_tensor_const_data(const tdict_tensor *tensor);
/** @brief Describes @p tensor in @p out without waiting. Shape and strides are borrowed. `storage_bytes` are the bytes
 *  from `data` to the end of the storage. Without an address, `data` and `storage_bytes` are 0.
 *  @param[in,out] out  Initialized by tdict_tensor_desc_default(). At most out->struct_size bytes are written. */
TDICT_API void tdict_tensor_get_desc(const tdict_tensor *tensor, tdict_tensor_desc *out);

/** @brief Copies all elements of @p src to @p dst, which have the same dtype and shape, and returns when done.
 *
 *  Strides may differ. Two device tensors must be on one device. If the tensors overlap, the result is unspecified.
 *  Waits for transfers that write @p src or use @p dst, and for recorded work on @p dst (tdict_record_stream()).
 *  @return #TDICT_ESHAPE, #TDICT_EDTYPE: they differ; #TDICT_EREADONLY; #TDICT_EWRONGDEVICE: two devices, or device
 *          memory without a context; #TDICT_EINVAL also if a transfer into @p src failed. After #TDICT_EDEVICE and
 *          #TDICT_ELOST the elements of @p dst are unspecified. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_copy(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);
/** @brief Creates a copy of @p tensor in C order in @p memory.
 *  @return The errors of tdict_tensor_copy(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_clone(const tdict_tensor *tensor, tdict_memory *memory,
                                                          tdict_tensor **out, tdict_error *err);

TDICT_END_DECLS
#endif
