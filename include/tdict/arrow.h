/* Exchanges trees with Arrow libraries in the same process, such as pyarrow, nanoarrow, Polars and DuckDB.
 *
 * A tree with one batch dimension corresponds to a struct array. Each element of the batch is a row, and each key is a
 * field:
 *
 * - A child tree is a struct. An imported child has one batch dimension, even if the exported child had more.
 * - Integers of 8 to 64 bits, F16, F32 and F64 correspond to Arrow's integers and floats of the same size. An export
 *   shares contiguous tensors and copies other tensors. An import shares the elements if their buffer is aligned and no
 *   element is null.
 * - BOOL is Arrow's bool, which has one bit for each element. Exports and imports copy the elements.
 * - Each dimension of a tensor after the first is a fixed-size list. The outermost list is the second dimension.
 * - A ragged leaf is a list if its offsets are int32, and a large list if its offsets are int64. The values of the leaf
 *   follow the rules for tensors. An export shares contiguous offsets. An import shares the offsets if they are
 *   aligned, begin at 0 and are in host memory.
 * - A column of texts (tdict/nontensor.h) is utf8, or large utf8 if the texts have more than 2^31 - 1 bytes in all.
 *   Exports and imports copy the texts.
 *
 * Exports only:
 *
 * - JSON values are exported as texts. A column of integers becomes int64, a column of reals becomes float64, and a
 *   column of bools becomes bool. A column that mixes integers and reals becomes float64.
 * - A null value becomes a null of Arrow, in every column. A column that has only null values gets the null type.
 * - One value for the whole tree becomes a column that repeats the value in each row, as in TensorDict's to_arrow().
 *
 * Imports only:
 *
 * - The extension type arrow.fixed_shape_tensor becomes a tensor with the shape and permutation of the type. Other
 *   extension types are read as their storage types.
 * - A field of the null type becomes a column of null values. If the field has rows and the option `nulls` is REFUSE,
 *   the import returns #TDICT_EINVAL.
 * - If a null row of a list has elements, the import copies the list.
 *
 * Exports refuse BF16, 8-bit floats, complex numbers, dtypes with several lanes, unbatched tensors and objects of the
 * program. Exports also refuse a column of values that has several dimensions, and a tree with more than 64 levels. A
 * column of values may mix integers with reals, or texts with JSON, and may contain null values. Exports refuse any
 * other mix of kinds.
 *
 * Imports refuse dictionary-encoded arrays, binary, dates, times, timestamps, durations, intervals, decimals, views,
 * maps, unions and run-end encoded arrays. The elements of a list must be numbers, bools, or fixed-size lists that
 * hold numbers or bools at any depth. Imports refuse all other lists. Imports also refuse more than 64 nested levels
 * of structs and fixed-size lists, and tensors with more than 32 dimensions.
 *
 * If a call refuses a leaf or a type by these rules, the call returns #TDICT_ENOTSUP. The message gives the reason.
 *
 * Ownership of arrays follows Arrow's rules. The consumer calls `release` once, on any thread. The consumer may move a
 * child out of its parent and release the child later. An exported array retains the tensors, so the tree may be
 * released before the array. Arrow treats elements as constant: do not write to tensors while a consumer reads their
 * elements. If an imported tensor shares elements with an array, the tensor is read-only and tdict_tensor_data()
 * returns NULL. To get elements that may be written, call tdict_clone_deep().
 * Each imported tensor that shares elements retains the whole array. A transfer of such a tensor retains the array,
 * too. The library releases the array when the last reference is dropped, on the thread that drops this reference. If
 * no tensor shares elements, the import releases the array.
 *
 * Safety. An import checks the structure of an array: types, lengths, offsets, numbers of buffers and children, missing
 * buffers, list and text offsets, and UTF-8. The Arrow structs do not contain the sizes of buffers. The library
 * therefore cannot check that a buffer is as long as its array needs.
 * Thread rule: every function may be called from any thread. Two calls must not use the same Arrow struct at once. No
 * other thread may change a tree during its export. */
#ifndef TDICT_ARROW_H
#define TDICT_ARROW_H

#include "tdict/context.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/* The next three blocks declare Arrow's C data interface, C device data interface and C stream interface. Headers of
 * other Arrow libraries contain the same blocks with the same include guards. Such headers may be included before or
 * after this header. */
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
  const char *format;
  const char *name;
  const char *metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema **children;
  struct ArrowSchema *dictionary;
  void (*release)(struct ArrowSchema *);
  void *private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void **buffers;
  struct ArrowArray **children;
  struct ArrowArray *dictionary;
  void (*release)(struct ArrowArray *);
  void *private_data;
};
#endif

#ifndef ARROW_C_DEVICE_DATA_INTERFACE
#define ARROW_C_DEVICE_DATA_INTERFACE

typedef int32_t ArrowDeviceType;
#define ARROW_DEVICE_CPU 1
#define ARROW_DEVICE_CUDA 2
#define ARROW_DEVICE_CUDA_HOST 3
#define ARROW_DEVICE_OPENCL 4
#define ARROW_DEVICE_VULKAN 7
#define ARROW_DEVICE_METAL 8
#define ARROW_DEVICE_VPI 9
#define ARROW_DEVICE_ROCM 10
#define ARROW_DEVICE_ROCM_HOST 11
#define ARROW_DEVICE_EXT_DEV 12
#define ARROW_DEVICE_CUDA_MANAGED 13
#define ARROW_DEVICE_ONEAPI 14
#define ARROW_DEVICE_WEBGPU 15
#define ARROW_DEVICE_HEXAGON 16

struct ArrowDeviceArray {
  struct ArrowArray array;
  int64_t device_id;
  ArrowDeviceType device_type;
  void *sync_event;
  int64_t reserved[3];
};
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream *, struct ArrowSchema *out);
  int (*get_next)(struct ArrowArrayStream *, struct ArrowArray *out);
  const char *(*get_last_error)(struct ArrowArrayStream *);
  void (*release)(struct ArrowArrayStream *);
  void *private_data;
};
#endif

/** @brief Exports a tree in host memory as a struct array.
 *
 *  The call waits for transfers that write the tree. Cost: O(keys), plus the copies that the top of this header names.
 *  @param[in]  tree    Borrowed. The batch size must have exactly one dimension; see tdict_reshape().
 *  @param[out] schema  Written on success only. The caller, or a consumer that takes the struct, calls
 *                      `schema->release`.
 *  @param[out] array   Written on success only. The caller, or a consumer that takes the struct, calls
 *                      `array->release`.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or a transfer into a leaf has failed; #TDICT_ESHAPE the batch
 *          size does not have one dimension, or a leaf does not begin with the batch size; #TDICT_EWRONGDEVICE a leaf
 *          is on a device; #TDICT_ENOTSUP a leaf is refused, see the top of this header; #TDICT_EOVERFLOW a column of
 *          reals has an integer that float64 cannot hold exactly, or a size is too large for Arrow; #TDICT_ENOMEM. If
 *          a leaf is wrong, err->path names the leaf. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_export(const tdict_tree *tree, struct ArrowSchema *schema,
                                                          struct ArrowArray *array, tdict_error *err);
/** @brief Exports a tree on any device as a device array.
 *
 *  All tensors must be on one device. The type of the device array is #ARROW_DEVICE_CUDA for a cuda device and
 *  #ARROW_DEVICE_EXT_DEV for a simulated device. For a tree in host memory the type is #ARROW_DEVICE_CUDA_HOST if all
 *  buffers are in tdict_pinned_memory() of a context with a cuda device, else #ARROW_DEVICE_CPU.
 *  `sync_event` is NULL, because the call waits for transfers that write the tree. The call does not wait for work that
 *  the program has queued on streams: synchronize these streams before the call. The consumer may release the array
 *  only after the consumer's own work on the device is done.
 *  The library converts bools and columns of values in host memory. For a tree on a device, the library then copies
 *  the converted elements to the memory of the first tensor of the tree.
 *  @return The errors of tdict_arrow_export(); the errors of tdict_tensor_clone() for a tree on a device. Here,
 *          #TDICT_EWRONGDEVICE means that tensors are on different devices, or that a copy is needed and the device
 *          memory belongs to the program. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_export_device(const tdict_tree *tree, struct ArrowSchema *schema,
                                                                 struct ArrowDeviceArray *array, tdict_error *err);
/** @brief Exports several trees as a stream of struct arrays, one array for each tree.
 *
 *  The call exports all trees before it returns. The callbacks of the stream therefore return no error, except ENOMEM
 *  from `get_schema`.
 *  @param[in]  trees   @p count trees, at least one; borrowed. All trees must have the same keys in the same order, and
 *                      the same Arrow types. The batch sizes may differ.
 *  @param[out] stream  Written on success only. The caller, or a consumer that takes the struct, calls
 *                      `stream->release`. Arrays that the consumer has obtained stay valid after the release of the
 *                      stream.
 *  @return The errors of tdict_arrow_export(); #TDICT_EINVAL also if there are no trees; #TDICT_EDTYPE the keys or
 *          Arrow types of a tree differ from those of tree 0, and the message has the index of the tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_export_stream(const tdict_tree *const *trees, size_t count,
                                                                 struct ArrowArrayStream *stream, tdict_error *err);

/** Chooses how an import handles nulls. */
typedef enum tdict_arrow_nulls {
  TDICT_ARROW_NULLS_REFUSE, /**< a null is an error (default) */
  /** Null elements of a tensor, and all elements of its null rows, get the fill value. A null list becomes an empty
   *  row. A null text becomes a null value. A null struct makes each of its fields null. */
  TDICT_ARROW_NULLS_FILL,
  /** As FILL. If there are null rows, the result also has a tree of masks. For each leaf with null rows, the tree of
   *  masks has a bool tensor at the path of the leaf. Element i is true if row i is not null. Nulls inside the rows of
   *  a list get no mask. */
  TDICT_ARROW_NULLS_MASK
} tdict_arrow_nulls;

typedef struct tdict_arrow_import_options {
  size_t struct_size;
  int32_t nulls; /**< a tdict_arrow_nulls */
  bool mask_all; /**< true: all leaves get masks, so that all trees of a stream have the same keys; only with MASK */
  /** The value of null elements, converted as tdict_fill() does. NaN (default): null elements become NaN in float
   *  tensors, and 0 in other tensors. */
  double fill_value;
  const char *mask_path; /**< path of the tree of masks; borrowed for the call; default "_mask", as in TensorDict */
} tdict_arrow_import_options;
static inline tdict_arrow_import_options tdict_arrow_import_options_default(void) {
  const uint32_t quiet_nan = 0x7fc00000u;
  float nan;
  tdict_arrow_import_options o;
  memset(&o, 0, sizeof o);
  memcpy(&nan, &quiet_nan, sizeof nan);
  o.struct_size = sizeof o;
  o.nulls = TDICT_ARROW_NULLS_REFUSE;
  o.fill_value = tdict_cast_(double, nan);
  o.mask_path = "_mask";
  return o;
}

/** @brief Imports a struct array in host memory as a tree with one batch dimension.
 *
 *  The array may be a slice of another array. A buffer that is not aligned to the size of its elements is copied.
 *  Cost: O(keys), plus one read of the validity bits and of the offsets of lists and texts, plus the copies that the
 *  top of this header names.
 *  @param[in]     schema   Borrowed for the call.
 *  @param[in,out] array    On success, the library takes the array and sets `array->release` to NULL. Unchanged on
 *                          failure.
 *  @param[in]     options  NULL for the defaults.
 *  @param[out]    out      New tree without a device. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, the schema or array is released, an option is invalid, a name
 *          is empty, a text is not UTF-8, or there are nulls and `nulls` is REFUSE; #TDICT_EFORMAT the array breaks the
 *          rules of Arrow; #TDICT_ETYPE the array is not a struct array, or `mask_path` leads through a leaf;
 *          #TDICT_ENOTSUP a type is refused, see the top of this header; #TDICT_EEXIST two fields have the same name,
 *          or a field has the path of the masks; #TDICT_EOVERFLOW an integer tensor cannot hold `fill_value`, or a
 *          size is too large; #TDICT_ENOMEM. If a field is wrong, err->path names the field. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_import(const struct ArrowSchema *schema, struct ArrowArray *array,
                                                          const tdict_arrow_import_options *options, tdict_tree **out,
                                                          tdict_error *err);
/** @brief Imports a struct array on a device.
 *
 *  If the array has a `sync_event`, the call first waits for this event. The call accepts all device types that
 *  tdict_arrow_export_device() writes. If the array is in device memory, the tree has the device of the array. For
 *  arrays in device memory, the library always copies the offsets of lists. Bools and leaves with nulls are copied
 *  through host memory, and texts are copied to host memory. For the type #ARROW_DEVICE_CUDA_HOST, tensors that share
 *  elements are marked as pinned. Device memory that is not copied counts as memory of the program, as in
 *  tdict_tensor_from_data(). Transfers accept tensors in this memory, but tdict_tensor_copy() to the host returns
 *  #TDICT_EWRONGDEVICE.
 *  @param[in]     context  The context that has the device. Used only during the call.
 *  @param[in,out] array    On success, the library takes the array, as in tdict_arrow_import().
 *  @return The errors of tdict_arrow_import(); #TDICT_ENODEVICE the context does not have the device; #TDICT_ENOTSUP
 *          also for any other device type; #TDICT_EDEVICE; #TDICT_ELOST; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_import_device(tdict_context *context,
                                                                 const struct ArrowSchema *schema,
                                                                 struct ArrowDeviceArray *array,
                                                                 const tdict_arrow_import_options *options,
                                                                 tdict_tree **out, tdict_error *err);
/** @brief Reads the next array of a stream, and imports the array as tdict_arrow_import() does.
 *
 *  If the import of an array fails, the array is released, and the next call reads the next array.
 *  @param[in]  stream  Borrowed. The caller releases the stream, before or after the trees.
 *  @param[out] out     New tree, or NULL at the end of the stream. Written on success only.
 *  @return The errors of tdict_arrow_import(); #TDICT_EINVAL also if the stream is released; #TDICT_EIO a callback of
 *          the stream returned an error, the message has the stream's text, and err->native is the error code. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_stream_next(struct ArrowArrayStream *stream,
                                                               const tdict_arrow_import_options *options,
                                                               tdict_tree **out, tdict_error *err);
/** @brief Reads all remaining arrays of a stream into one tree.
 *
 *  If the stream has one array, the tree shares the elements of the array as tdict_arrow_import() does. If the stream
 *  has several arrays, tdict_cat() concatenates their elements. If the stream has no array, the tree has the keys of
 *  the schema and no rows. With MASK, a leaf gets a mask if any array has null rows in this leaf.
 *  @return The errors of tdict_arrow_stream_next() and tdict_cat(). After a failure, all arrays that the call has read
 *          are released. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_import_stream(struct ArrowArrayStream *stream,
                                                                 const tdict_arrow_import_options *options,
                                                                 tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
