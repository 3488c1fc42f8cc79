/* Declares tensors. A tensor has an element type, a shape and strides. The elements are in a storage: a block of bytes
 * with a reference count, which several tensors can share.
 *
 * Shapes and strides are in elements. Strides may be zero or negative. A name of a parameter, member or function that
 * contains "bytes" means a size in bytes. The dtype, shape and strides of a tensor never change; the elements may
 * change. A function that creates a tensor returns one reference. Release the reference with tdict_tensor_release().
 * Thread rule: many threads may read a tensor at the same time. While a thread writes elements, no other thread may
 * read or write these elements. Retain and release are safe from any thread. */
#ifndef TDICT_TENSOR_H
#define TDICT_TENSOR_H

#include <string.h>

#include "tdict/memory.h"

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

/** Says that the program has page-locked the bytes. A transfer uses the bytes as pinned memory only if the driver
 *  confirms the claim. */
#define TDICT_DESC_PINNED 1u
/** Says that the bytes must not be written. For such a tensor, tdict_tensor_data() returns NULL. */
#define TDICT_DESC_READ_ONLY 2u

/** Describes memory that the program owns. tdict_tensor_get_desc() writes the description of any tensor to this
 *  struct. */
typedef struct tdict_tensor_desc {
  size_t struct_size;
  void *data; /**< address of the element whose indices are all 0; with negative strides, other elements have lower
                   addresses */
  tdict_device device;
  tdict_dtype dtype;
  int32_t ndim;
  const int64_t *shape;   /**< ndim sizes; borrowed */
  const int64_t *strides; /**< ndim strides in elements; NULL means C order; borrowed */
  size_t storage_bytes;   /**< number of accessible bytes from `data` upwards; 0: as many bytes as shape and strides
                               need */
  uint32_t flags;         /**< TDICT_DESC_ bits */
} tdict_tensor_desc;
static inline tdict_tensor_desc tdict_tensor_desc_default(void) {
  tdict_tensor_desc v;
  memset(&v, 0, sizeof v);
  v.struct_size = sizeof v;
  v.device.type = TDICT_DEVICE_CPU;
  return v;
}

/** Selects `count` elements of dimension `dim`: the indices start, start + step, start + 2 * step, and so on. The step
 *  may be negative, but not 0. */
typedef struct tdict_tensor_range {
  int32_t dim;
  int64_t start, count, step;
} tdict_tensor_range;

/** @brief Creates a tensor in C order with unspecified elements.
 *  @param[in] shape  @p ndim sizes of zero or more. May be NULL if @p ndim is 0; the tensor then has one element.
 *  @param[in] memory  Borrowed. NULL for plain host memory, aligned to 256 bytes.
 *  @return #TDICT_OK; #TDICT_EINVAL for an invalid @p ndim or a negative size, or if @p out is NULL, or @p shape is
 *          NULL although @p ndim is not 0; #TDICT_EDTYPE for an unknown dtype; #TDICT_EOVERFLOW if the bytes do not fit
 *          63 bits; #TDICT_ENOMEM; for memory of a context also #TDICT_ENODEVICE if the device is not present,
 *          #TDICT_EDEVICE, #TDICT_ELOST and #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_empty(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                          tdict_memory *memory, tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor like tdict_tensor_empty(), and sets every byte to zero. Returns the same errors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_zeros(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                          tdict_memory *memory, tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor in plain host memory. Every element is a copy of the element at the address @p element.
 *  @return The same errors as tdict_tensor_empty(); also #TDICT_EINVAL if @p element is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_full(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                         const void *element, tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor in plain host memory from an array of the program.
 *  @param[in] data  All elements in C order, borrowed for the call. May be NULL if the tensor has no elements.
 *  @return The same errors as tdict_tensor_empty(); also #TDICT_EINVAL if @p data is NULL and there are elements. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_from_array(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                               const void *data, tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor of one dimension with @p count values in plain host memory. Value i is start + i * step.
 *  Each value is computed as a double and converted to @p dtype. If @p dtype is an integer type, the value is truncated
 *  toward zero.
 *  @return The same errors as tdict_tensor_empty(); #TDICT_ENOTSUP for bool and complex types, and for types with
 *          several lanes; #TDICT_EOVERFLOW if an integer type cannot hold a value. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_arange(tdict_dtype dtype, double start, double step, int64_t count,
                                                           tdict_tensor **out, tdict_error *err);
/** @brief Creates a tensor over memory of the program. Copies nothing.
 *  @param[in] release  Called once with @p user after the last reference to the memory is dropped. NULL: nothing is
 *          called. Tensors and running transfers hold references. The callback runs on the thread that drops the last
 *          reference, which may be a pool thread. The library holds no lock during the call. The callback may call only
 *          release functions of this library. If tdict_tensor_from_data() fails, @p release is not called.
 *  @return #TDICT_OK; #TDICT_EINVAL if @p view or @p out is NULL, `data` is NULL although there are elements, or a
 *          device, ndim, size, struct_size or flag is invalid; #TDICT_EDTYPE for an unknown dtype; #TDICT_EOVERFLOW if
 *          the bytes do not fit 63 bits or the address space; #TDICT_ESHAPE if `storage_bytes` is not 0 and the strides
 *          reach outside these bytes; #TDICT_ENOTSUP if @p view sets a field that this library does not know;
 *          #TDICT_ENOMEM. */
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
/** @brief Returns true if the elements are in C order without gaps. The strides of dimensions of size 1 are ignored. A
 *  tensor without elements is contiguous. */
TDICT_API bool tdict_tensor_is_contiguous(const tdict_tensor *tensor);
/** @brief Returns true if the tensor is in page-locked host memory. The allocator of tdict_pinned_memory() and a
 *  tdict_allocator with `pinned` set provide such memory. The call also returns true for memory of the program with the
 *  flag #TDICT_DESC_PINNED, and for the slots of a ring after tdict_share_ring_pin(). */
TDICT_API bool tdict_tensor_is_pinned(const tdict_tensor *tensor);
/** @brief Returns true if both tensors use the same storage. */
TDICT_API bool tdict_tensor_shares_storage(const tdict_tensor *a, const tdict_tensor *b);
/** @brief Returns the address of the element whose indices are all 0, for writing. Returns NULL if the storage is
 *  read-only, if the address is NULL (possible only without elements), or if a transfer into the elements failed or was
 *  cancelled.
 *  If the tensor is in host memory, the call first waits until no transfer and no work recorded by
 *  tdict_record_stream() uses the storage. If the tensor is on a device, the call does not wait. In a forked process,
 *  the call does not wait for threads of the parent process. */
TDICT_API void *tdict_tensor_data(tdict_tensor *tensor);
/** @brief Returns the address of the element whose indices are all 0, for reading. Returns NULL if the address is NULL
 *  (possible only without elements), or if a transfer into the elements failed or was cancelled.
 *  If the tensor is in host memory, the call first waits until no transfer writes the storage. In a forked process, the
 *  call does not wait for threads of the parent process. */
TDICT_API const void *tdict_tensor_const_data(const tdict_tensor *tensor);
/** @brief Describes @p tensor in @p out. Shape and strides are borrowed from the tensor. `storage_bytes` is the number
 *  of bytes from `data` to the end of the storage. If the tensor has no address, `data` is NULL and `storage_bytes` is
 *  0. The function does not wait for transfers.
 *  @param[in,out] out  Initialized by tdict_tensor_desc_default(). At most out->struct_size bytes are written. If
 *          out->struct_size is invalid, nothing is written. */
TDICT_API void tdict_tensor_get_desc(const tdict_tensor *tensor, tdict_tensor_desc *out);

/** @brief Creates a view with any shape and strides over the storage of @p tensor, with the same dtype.
 *  @param[in] layout  Only its ndim, shape and strides are used. Borrowed for the call.
 *  @param[in] offset  Distance in elements from element 0, 0, ... of @p tensor to element 0, 0, ... of the view; may be
 *          negative.
 *  @return #TDICT_OK; #TDICT_EINVAL for NULL, or for an invalid ndim, size or struct_size; #TDICT_EOVERFLOW if the
 *          layout does not fit 63 bits; #TDICT_ENOTSUP if @p layout sets a field that this library does not know;
 *          #TDICT_ESHAPE if the view would reach outside the storage; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_as_strided(const tdict_tensor *tensor,
                                                               const tdict_tensor_desc *layout, int64_t offset,
                                                               tdict_tensor **out, tdict_error *err);
/** @brief Creates a view of the elements that @p range selects. All other dimensions are unchanged.
 *  @return #TDICT_OK; #TDICT_EINVAL for NULL, a dimension that does not exist, a step of 0, a negative count, or an
 *          index outside the dimension; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_slice(const tdict_tensor *tensor, const tdict_tensor_range *range,
                                                          tdict_tensor **out, tdict_error *err);
/** @brief Creates a view whose dimension i is dimension @p order[i] of @p tensor.
 *  @param[in] order  @p ndim dimensions, each exactly once; may be NULL if @p ndim is 0.
 *  @return #TDICT_OK; #TDICT_EINVAL if a required pointer is NULL, @p tensor does not have @p ndim dimensions, or @p
 *          order is not a permutation; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_permute(const tdict_tensor *tensor, int ndim, const int *order,
                                                            tdict_tensor **out, tdict_error *err);

/** @brief Returns a tensor with the elements of @p tensor, in C order, in another shape. At most one size may be -1.
 *  That size is then computed from the number of elements and the other sizes.
 *  If strides can describe the new shape, the result is a view. Otherwise the result is a copy in C order. The copy is
 *  in the memory of @p tensor. If a host tensor is in memory of the program or of a mapped file, the copy is in plain
 *  host memory.
 *  @return #TDICT_OK; #TDICT_ESHAPE if the new shape cannot have the number of elements of @p tensor; #TDICT_EINVAL for
 *          NULL, an invalid @p ndim or an invalid size; #TDICT_EOVERFLOW for sizes that no tensor can have; errors of
 *          tdict_tensor_clone() if the call copies; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_reshape(const tdict_tensor *tensor, int ndim, const int64_t *shape,
                                                            tdict_tensor **out, tdict_error *err);

/** @brief Copies all elements of @p src to @p dst, and returns after the copy is done. Both tensors must have the same
 *  dtype and shape; their strides may differ. Two device tensors must be on the same device. If the tensors overlap,
 *  the result is unspecified. The call first waits for transfers that write @p src or use @p dst. The call also waits
 *  for work that tdict_record_stream() has recorded for @p dst.
 *  @return #TDICT_OK; #TDICT_ESHAPE or #TDICT_EDTYPE if the shapes or dtypes differ; #TDICT_EREADONLY if @p dst is
 *          read-only; #TDICT_EWRONGDEVICE if the tensors are on two different devices other than the cpu;
 *          #TDICT_EWRONGDEVICE also if a tensor is on a device, but neither tensor is in device memory of a context;
 *          #TDICT_EINVAL for NULL, or if a transfer into @p src failed or was cancelled. For a tensor on a device, the
 *          call can also return #TDICT_EDEVICE, #TDICT_ELOST, #TDICT_EFORKED and #TDICT_ENOMEM. After #TDICT_EDEVICE
 *          and #TDICT_ELOST, the elements of @p dst are unspecified. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_copy(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);
/** @brief Creates a copy of @p tensor in C order in @p memory; NULL is plain host memory.
 *  @return The errors of tdict_tensor_empty() and tdict_tensor_copy(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_clone(const tdict_tensor *tensor, tdict_memory *memory,
                                                          tdict_tensor **out, tdict_error *err);
/** @brief Returns a contiguous tensor with the same elements. If @p tensor is contiguous, returns @p tensor with a new
 *  reference. Otherwise returns a clone. The clone is in the memory of @p tensor. If a host tensor is in memory of the
 *  program or of a mapped file, the clone is in plain host memory.
 *  @return The errors of tdict_tensor_clone(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_contiguous(const tdict_tensor *tensor, tdict_tensor **out,
                                                               tdict_error *err);

TDICT_END_DECLS
#endif
