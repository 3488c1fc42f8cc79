/* Exchanges trees with Arrow libraries in the same process, such as pyarrow, nanoarrow, Polars and DuckDB.
 *
 * A tree with one batch dimension is a struct array with one row for each element of the batch. Each key is a field:
 *
 * - A child tree is a struct. Batch dimensions of the child after the first become dimensions of its tensors.
 * - Integers of 8 to 64 bits, F16, F32 and F64 are the same types in Arrow. An export shares contiguous tensors and
 *   copies strided tensors. An import shares the elements.
 * - BOOL is Arrow's bool with one bit for each element. Both directions copy.
 * - Each dimension after the first is a fixed-size list, outermost first.
 * - A ragged leaf is a list if its offsets are int32, and a large list if they are int64. An export shares contiguous
 *   values and offsets. An import shares the values, and also the offsets if they begin at 0 and are in host memory.
 * - A column of texts (tdict/nontensor.h) is utf8, or large utf8 if the texts have more than 2^31 - 1 bytes. Both
 *   directions copy.
 *
 * Only exports: a column of JSON becomes utf8, of integers int64, of reals float64, of bools bool. Integers and reals
 * may be mixed. A column that has only null values becomes the null type. A null value is a null of Arrow. A value for
 * the whole tree becomes a column that repeats the value in each row, as in TensorDict's to_arrow().
 * Only imports: the extension type arrow.fixed_shape_tensor becomes a tensor of its shape and permutation. Other
 * extension types are read as their storage. The null type becomes a column of null values. Tensors with nulls are
 * copied, and so are ragged leaves that have elements in null rows.
 *
 * Refused leaves: BF16, 8-bit floats, complex numbers, several lanes, unbatched tensors, objects of the program, and
 * columns of values with several dimensions. Refused types: dictionary-encoded arrays, binary, dates, times,
 * timestamps, durations, intervals, decimals, views, maps, unions and run-end encoded arrays. Lists are refused if
 * their elements are not numbers, bools, or fixed-size lists of these. Structs and lists are refused if more than 64
 * are nested, or if a tensor would have more than 32 dimensions. In all these cases the call returns #TDICT_ENOTSUP,
 * and the message names the type.
 *
 * Ownership of arrays follows Arrow's rules. The consumer calls `release` once, on any thread. The consumer may move a
 * child out of its parent and release the child later. An exported array retains the tensors, so the tree may be
 * released first. Arrow treats elements as constant: do not write to tensors while a consumer reads their elements.
 * Imported elements that are not copied are read-only, so tdict_tensor_data() returns NULL for their tensors. To get
 * elements that may be written, call tdict_clone_deep().
 * All imported tensors that share elements hold the array together. The library releases the array with the last of
 * these tensors, on the thread that drops the last reference.
 *
 * Safety. An import checks the structure of an array: types, lengths, offsets, numbers of buffers and children, missing
 * buffers, list and text offsets, and UTF-8. The Arrow structs have no sizes of buffers, so the library cannot check
 * that a buffer is as long as its array needs.
 * Thread rule: every function may be called from any thread. The caller must not use a struct in two calls at once. */
#ifndef TDICT_ARROW_H
#define TDICT_ARROW_H

#include "tdict/context.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/* The next three blocks are the ABI of Arrow. Headers of other Arrow libraries contain the same blocks with the same
 * guards, and may be included before or after this header. */
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
 *  The call first waits for transfers that write the tree. Cost: O(keys), plus the copies that the top of this header
 *  names.
 *  @param[in]  tree    Borrowed. The batch size must have exactly one dimension; see tdict_reshape().
 *  @param[out] schema  Written on success only. The caller calls its `release`.
 *  @param[out] array   Written on success only. The caller calls its `release`.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, or a transfer into a leaf has failed; #TDICT_ESHAPE the batch
 *          size does not have one dimension, or a leaf does not begin with the batch size; #TDICT_EWRONGDEVICE a leaf
 *          is on a device; #TDICT_ENOTSUP the top of this header says when; #TDICT_EOVERFLOW a column has an integer
 *          that float64 cannot hold, between reals; #TDICT_ENOMEM. err->path names the leaf. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_export(const tdict_tree *tree, struct ArrowSchema *schema,
                                                          struct ArrowArray *array, tdict_error *err);
/** @brief Exports a tree on any device as a device array.
 *
 *  All leaves must be on one device. The type of the device array is #ARROW_DEVICE_CUDA for a cuda device and
 *  #ARROW_DEVICE_EXT_DEV for a simulated device. For a tree in host memory the type is #ARROW_DEVICE_CUDA_HOST if all
 *  buffers are in tdict_pinned_memory() of a context with a cuda device, else #ARROW_DEVICE_CPU.
 *  `sync_event` is NULL, because the call waits for transfers that write the tree. The call does not wait for work that
 *  the program has queued on its streams: synchronize these streams first. A consumer must release the array after its
 *  own work on the device is done.
 *  Bools and columns of values need copies. On a device these copies go through host memory into the memory of the
 *  first tensor of the tree.
 *  @return The errors of tdict_arrow_export(); #TDICT_EWRONGDEVICE only if leaves are on different devices, or if a
 *          copy is needed and the device memory belongs to the program; #TDICT_EDEVICE. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_export_device(const tdict_tree *tree, struct ArrowSchema *schema,
                                                                 struct ArrowDeviceArray *array, tdict_error *err);
/** @brief Exports several trees as a stream of struct arrays, one array for each tree.
 *
 *  The call exports all trees at once, as tdict_arrow_export() does. The stream therefore never returns an error,
 *  except ENOMEM from `get_schema`.
 *  @param[in]  trees   @p count trees, at least one; borrowed. All must have the same keys in the same order, and the
 *                      same types. The batch sizes may differ.
 *  @param[out] stream  Written on success only. The caller calls its `release`. Arrays that the consumer has obtained
 *                      stay valid.
 *  @return The errors of tdict_arrow_export(); #TDICT_EINVAL also if there are no trees; #TDICT_EDTYPE if a tree has
 *          another Arrow type than tree 0. The message has the number of the tree. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_export_stream(const tdict_tree *const *trees, size_t count,
                                                                 struct ArrowArrayStream *stream, tdict_error *err);

/** Says how an import handles nulls. */
typedef enum tdict_arrow_nulls {
  TDICT_ARROW_NULLS_REFUSE, /**< a null is an error (default) */
  /** A null row gets the fill value in each element. A null list becomes an empty row. A null text becomes a null
   *  value. A null struct makes each of its fields null. */
  TDICT_ARROW_NULLS_FILL,
  /** As FILL. Also adds a bool tensor for each leaf that has null rows, which is true for rows that are not null. The
   *  tensor is at the path of the leaf in a tree of masks. Nulls inside the rows of a list get no mask. */
  TDICT_ARROW_NULLS_MASK
} tdict_arrow_nulls;

typedef struct tdict_arrow_import_options {
  size_t struct_size;
  int32_t nulls; /**< a tdict_arrow_nulls */
  bool mask_all; /**< With MASK: adds masks for all leaves, so that all batches of a stream have the same keys. */
  /** The value of null elements, converted as tdict_fill() does. NaN (default): NaN in float tensors, 0 in others. */
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
  o.fill_value = (double)nan;
  o.mask_path = "_mask";
  return o;
}

/** @brief Imports a struct array in host memory as a tree with one batch dimension.
 *
 *  The array may be a slice of another array. Cost: O(keys + offsets of lists and texts), plus the copies that the
 *  top of this header names. A buffer that is not aligned to its elements is copied.
 *  @param[in]     schema   Borrowed for the call. The caller still releases the schema.
 *  @param[in,out] array    Taken on success: its `release` is then NULL. Unchanged on failure.
 *  @param[in]     options  NULL for the defaults.
 *  @param[out]    out      New tree without a device; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL an argument is NULL, the schema or array is released, an option is invalid, a name
 *          is empty, a text is not UTF-8, or there are nulls and `nulls` is REFUSE; #TDICT_EFORMAT the array breaks the
 *          rules of Arrow; #TDICT_ETYPE the array is no struct array; #TDICT_ENOTSUP the top of this header says when;
 *          #TDICT_EEXIST two fields have the same name, or a field has the path of the masks; #TDICT_EOVERFLOW an
 *          integer tensor cannot hold `fill_value`, or a size is too large; #TDICT_ENOMEM. err->path names the
 *          field. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_import(const struct ArrowSchema *schema, struct ArrowArray *array,
                                                          const tdict_arrow_import_options *options, tdict_tree **out,
                                                          tdict_error *err);
/** @brief Imports a struct array on a device.
 *
 *  If the array has a `sync_event`, the host waits for the event first. All types of tdict_arrow_export_device() are
 *  accepted, and the tree of device memory gets the device. In device memory the library copies offsets of lists.
 *  Bools, texts and leaves with nulls are copied through host memory. Tensors over host memory of the type
 *  #ARROW_DEVICE_CUDA_HOST are marked as pinned.
 *  Device memory that is not copied is memory of the program, as for tdict_tensor_from_data(). Transfers accept these
 *  tensors, but tdict_tensor_copy() to the host returns #TDICT_EWRONGDEVICE.
 *  @param[in]     context  The context that has the device; used only during the call.
 *  @param[in,out] array    Taken on success, as in tdict_arrow_import().
 *  @return The errors of tdict_arrow_import(); #TDICT_ENODEVICE the context does not have the device; #TDICT_ENOTSUP
 *          another type of device; #TDICT_EDEVICE; #TDICT_ELOST; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_import_device(tdict_context *context,
                                                                 const struct ArrowSchema *schema,
                                                                 struct ArrowDeviceArray *array,
                                                                 const tdict_arrow_import_options *options,
                                                                 tdict_tree **out, tdict_error *err);
/** @brief Reads the next array of a stream and imports it as tdict_arrow_import() does.
 *  @param[in]  stream  Borrowed. The caller releases the stream, before or after the trees.
 *  @param[out] out     New tree, or NULL at the end of the stream. Written on success only.
 *  @return The errors of tdict_arrow_import(). #TDICT_EINVAL also if the stream is released. #TDICT_EIO the stream
 *          returned an error: the message has its text, and err->native its code. If the import fails, the array is
 *          released, and the next call reads the next array. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_stream_next(struct ArrowArrayStream *stream,
                                                               const tdict_arrow_import_options *options,
                                                               tdict_tree **out, tdict_error *err);
/** @brief Reads all remaining arrays of a stream into one tree.
 *
 *  The elements of one array are not copied, as in tdict_arrow_import(). The elements of several arrays are
 *  concatenated by tdict_cat(). Without arrays the tree has the keys of the schema and no rows. With MASK, a leaf has a
 *  mask if it has null rows in any array.
 *  @return The errors of tdict_arrow_stream_next() and tdict_cat(). Arrays that were read before a failure are
 *          lost. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_import_stream(struct ArrowArrayStream *stream,
                                                                 const tdict_arrow_import_options *options,
                                                                 tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
