/* A tensor: an element type, a shape and strides over a counted storage.
 *
 * Shapes count elements, strides are in elements and may be zero or negative, bytes are named so. A tensor's dtype,
 * shape and strides never change; its elements may. Tensors are counted: makers give one reference, release it with
 * tdict_tensor_release(). Thread rule: a tensor is read by many threads or written by one; counting is safe
 * everywhere. */
#ifndef TDICT_TENSOR_H
#define TDICT_TENSOR_H

#include <string.h>

#include "tdict/memory.h"

#ifdef __cplusplus
#include <initializer_list>
#endif

TDICT_BEGIN_DECLS

/** The most dimensions a tensor may have. */
#define TDICT_MAX_NDIM 32

/** Expands to two arguments: the number of dimensions, and an array of their sizes that lives until the call returns.
 *  `tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(128, 17), NULL, &t, &err)` is an example. In C++ each size must be an
 *  int64_t or a constant. For a scalar pass `0, NULL`. */
#ifdef __cplusplus
#define TDICT_SHAPE(...)                                                \
  static_cast<int>(std::initializer_list<int64_t>{__VA_ARGS__}.size()), \
      std::initializer_list<int64_t>{__VA_ARGS__}.begin()
#else
#define TDICT_SHAPE(...) \
  (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }
#endif

typedef struct tdict_tensor tdict_tensor;

/** The bytes were page-locked by the program itself; a transfer asks the driver before it believes so. */
#define TDICT_VIEW_PINNED 1u
/** The bytes may not be written: tdict_tensor_data() gives NULL. */
#define TDICT_VIEW_READ_ONLY 2u

/** Somebody's memory, described. Also what tdict_tensor_get_view() gives. */
typedef struct tdict_tensor_view {
  size_t struct_size;
  void *data; /**< the first element (index 0 in every dimension), not the lowest address */
  tdict_device device;
  tdict_dtype dtype;
  int32_t ndim;
  const int64_t *shape;   /**< ndim counts; borrowed */
  const int64_t *strides; /**< ndim strides in elements; NULL is C order; borrowed */
  size_t storage_bytes;   /**< bytes that may be touched from `data` upwards; 0: as many as shape and strides need */
  uint32_t flags;         /**< TDICT_VIEW_ bits */
} tdict_tensor_view;
static inline tdict_tensor_view tdict_tensor_view_default(void) {
  tdict_tensor_view v;
  memset(&v, 0, sizeof v);
  v.struct_size = sizeof v;
  v.device.type = TDICT_DEVICE_CPU;
  return v;
}

/** Elements of one dimension: `count` of them, from `start` in steps of `step` (not 0, negative to go back). */
typedef struct tdict_tensor_range {
  int32_t dim;
  int64_t start, count, step;
} tdict_tensor_range;

/** @brief A new tensor in C order with unspecified elements.
 *  @param[in] shape   @p ndim counts of zero or more; may be NULL when @p ndim is 0 (one element).
 *  @param[in] memory  NULL for plain host memory, which is aligned to 256 bytes.
 *  @return #TDICT_OK; #TDICT_EINVAL @p ndim, or a negative count; #TDICT_EDTYPE an unknown dtype; #TDICT_EOVERFLOW the
 *          bytes do not fit; #TDICT_ENOMEM; #TDICT_ENODEVICE the memory's device is absent; #TDICT_EDEVICE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_empty(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                          tdict_memory *memory, tdict_tensor **out, tdict_error *err);
/** @brief As tdict_tensor_empty(), every byte zero. Errors as there. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_zeros(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                          tdict_memory *memory, tdict_tensor **out, tdict_error *err);
/** @brief In plain host memory, every element a copy of the one at @p element.
 *  Errors as tdict_tensor_empty(); #TDICT_EINVAL also when @p element is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_full(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                         const void *element, tdict_tensor **out, tdict_error *err);
/** @brief Copies an array of the program's into a new tensor in plain host memory.
 *  @param[in] data  Elements in C order, as many as @p shape needs, borrowed for the call. May be NULL if there are
 *                   none.
 *  Errors as tdict_tensor_empty(); #TDICT_EINVAL also when @p data is NULL and there are elements. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_from_array(tdict_dtype dtype, int ndim, const int64_t *shape,
                                                               const void *data, tdict_tensor **out, tdict_error *err);
/** @brief In plain host memory, one dimension of @p count elements: start, start + step, ... each computed as
 *  start + i * step in double and converted to @p dtype, integers by truncation.
 *  @return as tdict_tensor_empty(); #TDICT_ENOTSUP for bool, complex and 8-bit float types; #TDICT_EOVERFLOW a value
 *          that an integer type cannot hold. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_arange(tdict_dtype dtype, double start, double step, int64_t count,
                                                           tdict_tensor **out, tdict_error *err);
/** @brief A tensor over memory that the program owns; nothing is copied.
 *  @param[in] release  called once with @p user when the last tensor over it is released, on the thread that releases
 *                      it (a pool thread at times), with no lock held; may call release functions only; may be NULL.
 *                      Not called when this fails.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL where elements exist, a bad count, struct_size or flag; #TDICT_EDTYPE;
 *          #TDICT_EOVERFLOW; #TDICT_ESHAPE strides reach outside `storage_bytes`, or below `data` when storage_bytes is
 *          given; #TDICT_ENOTSUP the view is a longer struct with a field in use that this library does not know;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_from_data(const tdict_tensor_view *view,
                                                              void (*release)(void *user), void *user,
                                                              tdict_tensor **out, tdict_error *err);

/** @brief Adds a reference and returns @p t. */
TDICT_API tdict_tensor *tdict_tensor_retain(const tdict_tensor *t);
/** @brief Drops a reference; NULL is allowed. */
TDICT_API void tdict_tensor_release(tdict_tensor *t);

TDICT_API tdict_dtype tdict_tensor_dtype(const tdict_tensor *t);
TDICT_API tdict_device tdict_tensor_device(const tdict_tensor *t);
TDICT_API int tdict_tensor_ndim(const tdict_tensor *t);
/** @brief ndim counts, borrowed from the tensor. */
TDICT_API const int64_t *tdict_tensor_shape(const tdict_tensor *t);
/** @brief ndim strides in elements, borrowed from the tensor. */
TDICT_API const int64_t *tdict_tensor_strides(const tdict_tensor *t);
/** @brief The number of elements. */
TDICT_API int64_t tdict_tensor_numel(const tdict_tensor *t);
/** @brief Bytes of the elements, numel times the element's bytes, whatever the strides. */
TDICT_API size_t tdict_tensor_bytes(const tdict_tensor *t);
/** @brief True when the elements lie in C order without gaps; dimensions of size 1 and empty tensors do not disturb
 *  it. */
TDICT_API bool tdict_tensor_is_contiguous(const tdict_tensor *t);
/** @brief True for host memory that is page-locked: from tdict_pinned_memory() or marked so by its view. */
TDICT_API bool tdict_tensor_is_pinned(const tdict_tensor *t);
/** @brief True when both lie over one storage. */
TDICT_API bool tdict_tensor_shares_storage(const tdict_tensor *a, const tdict_tensor *b);
/** @brief The address of the first element, to be written; NULL for read-only storage and for a tensor without
 *  elements' memory. For host memory it first waits until no transfer reads or writes the storage; a device address is
 *  given at once. */
TDICT_API void *tdict_tensor_data(tdict_tensor *t);
/** @brief The address of the first element, to be read. For host memory it first waits until no transfer writes the
 *  storage. In a fork neither of the two waits for what the parent's threads do. */
TDICT_API const void *tdict_tensor_const_data(const tdict_tensor *t);
/** @brief Describes @p t; shape and strides stay the tensor's, `data` is unfenced and `storage_bytes` reaches to the
 *  end of the storage.
 *  @param[in,out] out  from tdict_tensor_view_default(). At most its struct_size bytes are written; nothing is written
 *                      if no default function wrote that size. */
TDICT_API void tdict_tensor_get_view(const tdict_tensor *t, tdict_tensor_view *out);

/** @brief A view with any shape and strides over the same storage, with the dtype of @p t.
 *  @param[in] layout  its ndim, shape and strides are used, nothing else of it.
 *  @param[in] offset  of the first element from the first element of @p t, in elements, may be negative.
 *  @return #TDICT_OK; #TDICT_EINVAL; #TDICT_EOVERFLOW; #TDICT_ESHAPE it would reach outside the storage; #TDICT_ENOMEM.
 *          The storage is shared. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_as_strided(const tdict_tensor *t, const tdict_tensor_view *layout,
                                                               int64_t offset, tdict_tensor **out, tdict_error *err);
/** @brief A view of the elements of @p range, all other dimensions whole.
 *  @return #TDICT_OK; #TDICT_EINVAL no such dimension, step 0, or an element outside it; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_slice(const tdict_tensor *t, const tdict_tensor_range *range,
                                                          tdict_tensor **out, tdict_error *err);
/** @brief Makes a view whose dimension i is dimension @p order[i] of @p t.
 *  @param[in] order  @p ndim dimensions, which must be as many as @p t has; may be NULL when @p ndim is 0.
 *  @return #TDICT_OK; #TDICT_EINVAL @p ndim is not the tensor's, or @p order is not a permutation; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_permute(const tdict_tensor *t, int ndim, const int *order,
                                                            tdict_tensor **out, tdict_error *err);

/** @brief Returns the elements of @p t, in C order, in another shape. One size may be -1: the library computes it.
 *  The result is a view if the strides allow one, else a copy in C order. The copy is in the memory of @p t. For memory
 *  of the program's own it is in plain host memory.
 *  @return #TDICT_OK; #TDICT_ESHAPE another number of elements; #TDICT_EINVAL a NULL or a count that cannot be;
 *          #TDICT_EOVERFLOW counts that no tensor can have; of a copy also errors of tdict_tensor_clone();
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_reshape(const tdict_tensor *t, int ndim, const int64_t *shape,
                                                            tdict_tensor **out, tdict_error *err);

/** @brief Copies elements from @p src to @p dst, which have one dtype and one shape and any strides; waits until it is
 *  done. Both on the host, or one on a device, or both on one device. Where they overlap the result is unspecified.
 *  First waits for transfers that write @p src or use @p dst, on devices too, and for what tdict_record_stream() noted
 *  of @p dst.
 *  @return #TDICT_OK; #TDICT_ESHAPE, #TDICT_EDTYPE they differ; #TDICT_EREADONLY; #TDICT_EWRONGDEVICE two devices, or
 *          one of which nothing is known; #TDICT_EINVAL the source's bytes never came, since a transfer into them
 *          failed; #TDICT_EDEVICE, after which the elements of @p dst are unspecified. */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_copy(tdict_tensor *dst, const tdict_tensor *src, tdict_error *err);
/** @brief A new tensor in C order with the same elements, in @p memory (NULL: plain host memory). Errors of
 *  tdict_tensor_empty() and tdict_tensor_copy(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_clone(const tdict_tensor *t, tdict_memory *memory,
                                                          tdict_tensor **out, tdict_error *err);
/** @brief @p t itself with a reference more when it is contiguous, else a clone of it in the memory that it lies in,
 *  plain host memory for memory of the program's own. Errors of tdict_tensor_clone(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_tensor_contiguous(const tdict_tensor *t, tdict_tensor **out,
                                                               tdict_error *err);

TDICT_END_DECLS
#endif
