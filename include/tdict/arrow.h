/* Exchanges trees with Arrow libraries in the same process, such as pyarrow, nanoarrow, Polars and DuckDB. A tree with
 * one batch dimension is a struct array. Each element of the batch is a row, and each key is a field.
 * docs/neighbours.md lists the types of Arrow, and what is copied and refused.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: an argument is NULL, an option is invalid, or a transfer into a leaf has failed.
 * - #TDICT_ENOTSUP: a leaf or a type is refused. The message gives the reason.
 * - #TDICT_EOVERFLOW: a size is too large. #TDICT_ENOMEM.
 *
 * If a leaf or field is wrong, err->path names it. Results are written on success only. NULL options are the defaults.
 *
 * Ownership follows Arrow. The consumer calls `release` once, on any thread, and may move a child out of its parent. An
 * exported array retains the tensors. A tensor that shares elements with an imported array is read-only, and retains
 * the whole array until its last use. If no tensor shares elements, the import releases the array.
 *
 * Safety. An import checks types, lengths, offsets, numbers of buffers and children, and UTF-8. The structs do not
 * contain the sizes of buffers, so an import cannot check that a buffer is long enough.
 * Thread rule: every function may be called from any thread. Two calls must not use the same Arrow struct at once, and
 * no other thread may change a tree during its export. */
#ifndef TDICT_ARROW_H
#define TDICT_ARROW_H

#include "tdict/context.h"
#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/* The next three blocks declare Arrow's C data interface, C device data interface and C stream interface. Headers of
 * other Arrow libraries have the same blocks and include guards, and may be included before or after this one. */
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

/** @brief Exports a tree in host memory as a struct array. Waits for transfers that write the tree.
 *  The caller, or a consumer that takes the structs, calls `release`.
 *  @param[in] tree  Borrowed. The batch size must have exactly one dimension; see tdict_reshape().
 *  @return #TDICT_ESHAPE not one batch dimension, or a leaf does not begin with the batch size; #TDICT_EWRONGDEVICE a
 *          leaf is on a device; #TDICT_EOVERFLOW a column of reals has an integer that float64 cannot hold exactly. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_export(const tdict_tree *tree, struct ArrowSchema *schema,
                                                          struct ArrowArray *array, tdict_error *err);
/** @brief Exports a tree on any device as a device array.
 *
 *  All tensors must be on one device: cuda, simulated (#ARROW_DEVICE_EXT_DEV), or the host, which is
 *  #ARROW_DEVICE_CUDA_HOST if all buffers are pinned by a cuda context. `sync_event` is NULL, because the call waits
 *  for transfers that write the tree. Synchronize your own streams first. The consumer may release the array only after
 *  its own work on the device is done.
 *  @return Errors of tdict_arrow_export() and tdict_tensor_clone(); #TDICT_EWRONGDEVICE tensors are on different
 *          devices, or a copy is needed and the device memory belongs to the program. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_export_device(const tdict_tree *tree, struct ArrowSchema *schema,
                                                                 struct ArrowDeviceArray *array, tdict_error *err);
/** @brief Exports several trees as a stream of struct arrays, one for each tree. The call exports all trees before it
 *  returns, so the callbacks fail only with ENOMEM in `get_schema`. Arrays stay valid after the stream is released.
 *  @param[in] trees  @p count trees, at least one; borrowed. Keys, their order and Arrow types must be the same.
 *  @return Errors of tdict_arrow_export(); #TDICT_EDTYPE a tree (the message has its index) differs from tree 0. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_export_stream(const tdict_tree *const *trees, size_t count,
                                                                 struct ArrowArrayStream *stream, tdict_error *err);

/** Chooses how an import handles nulls. */
typedef enum tdict_arrow_nulls {
  TDICT_ARROW_NULLS_REFUSE, /**< a null is an error (default) */
  /** Null elements of a tensor, and all elements of its null rows, get the fill value. A null list becomes an empty
   *  row. A null text becomes a null value. A null struct makes each of its fields null. */
  TDICT_ARROW_NULLS_FILL,
  /** As FILL. The result also has a tree of masks: for each leaf with null rows a bool tensor, true where a row is not
   *  null. Nulls inside the rows of a list get no mask. */
  TDICT_ARROW_NULLS_MASK
} tdict_arrow_nulls;

typedef struct tdict_arrow_import_options {
  size_t struct_size;
  int32_t nulls; /**< a tdict_arrow_nulls */
  bool mask_all; /**< true: all leaves get masks, so that all trees of a stream have the same keys; only with MASK */
  /** The value of null elements, converted as by tdict_fill(). NaN (default): NaN in float tensors, 0 in others. */
  double fill_value;
  const char *mask_path; /**< path of the tree of masks; borrowed for the call; default "_mask", as in TensorDict */
} tdict_arrow_import_options;
static inline tdict_arrow_import_options tdict_arrow_import_options_default(void) {
  const uint32_t quiet_nan = 0x7fc00000u;
  float nan;
  tdict_arrow_import_options o;
  memcpy(&nan, &quiet_nan, sizeof nan);
  tdict_init_struct_(o);
  o.nulls = TDICT_ARROW_NULLS_REFUSE;
  o.fill_value = tdict_cast_(double, nan);
  o.mask_path = "_mask";
  return o;
}

/** @brief Imports a struct array in host memory as a tree with one batch dimension.
 *  The array may be a slice of another array. A buffer that is not aligned to the size of its elements is copied.
 *  @param[in]     schema   Borrowed for the call.
 *  @param[in,out] array    On success, the library takes the array and sets `array->release` to NULL.
 *  @param[out]    out      New tree without a device.
 *  @return #TDICT_OK; #TDICT_EINVAL the schema or array is released, a name is empty, a text is not UTF-8, or a null
 *          with REFUSE; #TDICT_EFORMAT the array breaks the rules of Arrow; #TDICT_ETYPE it is not a struct array,
 *          or `mask_path` leads through a leaf; #TDICT_EEXIST two fields, or a field and the masks, have the same
 *          name; #TDICT_EOVERFLOW an integer tensor cannot hold `fill_value`. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_import(const struct ArrowSchema *schema, struct ArrowArray *array,
                                                          const tdict_arrow_import_options *options, tdict_tree **out,
                                                          tdict_error *err);
/** @brief Imports a struct array on a device.
 *
 *  The call first waits for the `sync_event` of the array, if there is one. It accepts all device types that
 *  tdict_arrow_export_device() writes, and the tree has the device of the array. Device memory that is not copied
 *  counts as memory of the program: only transfers copy it to the host.
 *  @param[in] context  The context that has the device. Used only during the call.
 *  @return Errors of tdict_arrow_import(); #TDICT_ENODEVICE no device; #TDICT_EDEVICE; #TDICT_ELOST; #TDICT_EFORKED. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_import_device(tdict_context *context,
                                                                 const struct ArrowSchema *schema,
                                                                 struct ArrowDeviceArray *array,
                                                                 const tdict_arrow_import_options *options,
                                                                 tdict_tree **out, tdict_error *err);
/** @brief Reads the next array of a stream, and imports the array as tdict_arrow_import() does.
 *  If the import of an array fails, the array is released, and the next call reads the next array.
 *  @param[in]  stream  Borrowed. The caller releases the stream, before or after the trees.
 *  @param[out] out     New tree, or NULL at the end of the stream.
 *  @return Errors of tdict_arrow_import(); #TDICT_EINVAL the stream is released; #TDICT_EIO a callback failed (the
 *          message has its text, and err->native its error code). */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_stream_next(struct ArrowArrayStream *stream,
                                                               const tdict_arrow_import_options *options,
                                                               tdict_tree **out, tdict_error *err);
/** @brief Reads all remaining arrays of a stream into one tree.
 *
 *  The tree shares the elements of a single array. tdict_cat() joins several arrays. Without an array, the tree has the
 *  keys of the schema and no rows. With MASK, a leaf gets a mask if any array has null rows in this leaf.
 *  @return Errors of tdict_arrow_stream_next() and tdict_cat(). After a failure, it has released all arrays. */
TDICT_API TDICT_NODISCARD tdict_status tdict_arrow_import_stream(struct ArrowArrayStream *stream,
                                                                 const tdict_arrow_import_options *options,
                                                                 tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
