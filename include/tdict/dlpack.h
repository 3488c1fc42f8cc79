/* Exchanges tensors with other libraries through DLPack. Elements are copied only if the option `copy_read_only` is
 * set.
 *
 * A managed tensor of DLPack is a struct with the address, shape and dtype of a tensor, and a deleter, which the
 * consumer calls once, on any thread. To access the members, include DLPack's own dlpack.h, of any version. Exports
 * write version 1.3 of DLManagedTensorVersioned. DLManagedTensor is the older ("legacy") struct, without a version and
 * a read-only flag. docs/neighbours.md explains streams, devices and the traps of each library.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: a NULL pointer, a stream without a context, a wrong option, or lost bytes.
 * - #TDICT_EDTYPE: a dtype that tdict/values.h does not have, or one with several lanes.
 * - #TDICT_ENOTSUP: a kind of device that the library does not know.
 * - #TDICT_EWRONGDEVICE: the stream belongs to another device than the tensor, or to no GPU of the context, or the
 *   tensor is on a simulated device of another context.
 * - #TDICT_ECAPTURE: the stream is being captured.
 * - #TDICT_EFORKED, #TDICT_ELOST, #TDICT_EDEVICE, #TDICT_ENOMEM.
 *
 * Results are written on success only, and owned by the caller. After a failed import, the caller still owns the
 * managed tensor, except one of a newer major version: the import calls its deleter and returns #TDICT_EFORMAT.
 * Thread rule: every function may be called from any thread. A tree or tensor must not change during the call. */
#ifndef TDICT_DLPACK_H
#define TDICT_DLPACK_H

#include "tdict/context.h"
#include "tdict/tree.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

TDICT_BEGIN_DECLS

/** A stream handle that turns off the ordering of work on devices. DLPack's Python method `__dlpack__` uses the stream
 *  -1 for this purpose. With this handle, the program itself must order the work of the producer and the consumer. */
#ifdef __cplusplus
#define TDICT_DLPACK_UNORDERED reinterpret_cast<void *>(tdict_cast_(intptr_t, -1))
#else
#define TDICT_DLPACK_UNORDERED ((void *)(intptr_t)-1)
#endif

typedef struct tdict_dlpack_export_options {
  size_t struct_size;
  /** The stream on which the consumer uses the tensor. It must exist until the deleter has run, which for CUDA's
   *  per-thread stream must happen on the thread of the export. Default: tdict_no_stream(). The call then waits for the
   *  library's work, and the deleter records no work. For host memory the call always waits. */
  tdict_stream stream;
  /** true: the consumer only reads the tensor. The versioned struct then has the read-only flag, and the consumer's
   *  stream does not wait for transfers that read the tensor. */
  bool read_only;
  /** true: exports pinned host memory as kDLCPU, for consumers that refuse kDLCUDAHost, such as PyTorch */
  bool pinned_as_cpu;
  bool legacy; /**< true: makes legacy structs. false (default): makes versioned structs */
} tdict_dlpack_export_options;
static inline tdict_dlpack_export_options tdict_dlpack_export_options_default(void) {
  tdict_dlpack_export_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

typedef struct tdict_dlpack_import_options {
  size_t struct_size;
  /** The stream on which the producer fills the tensor. Default: tdict_no_stream(), if the elements are valid already.
   *  If the tensor is in host memory, the call waits for the stream. */
  tdict_stream stream;
  /** true: copies a read-only tensor, to plain host memory or on its device, and calls the deleter. false (default):
   *  does not copy it, and tdict_tensor_data() returns NULL for it. */
  bool copy_read_only;
} tdict_dlpack_import_options;
static inline tdict_dlpack_import_options tdict_dlpack_import_options_default(void) {
  tdict_dlpack_import_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** A managed tensor, of either struct. Exactly one of the members `versioned` and `legacy` is not NULL. A program that
 *  takes the managed tensor must set the member to NULL. */
typedef struct tdict_dlpack_entry {
  const char *name; /**< of a tensor of a tree: the path, escaped as in tdict/tree.h; else "" */
  struct DLManagedTensorVersioned *versioned;
  struct DLManagedTensor *legacy;
} tdict_dlpack_entry;
static inline tdict_dlpack_entry tdict_dlpack_entry_default(void) {
  tdict_dlpack_entry e;
  memset(&e, 0, sizeof e);
  return e;
}

/** @brief Makes a managed tensor over the bytes of @p tensor. Copies no element.
 *
 *  The managed tensor holds a reference to the bytes until its deleter is called, also after the program has released
 *  @p tensor and @p context. The strides are always written, and the byte offset is 0. The data pointer of a tensor
 *  without elements is NULL. If the program owns the memory, the last deleter waits for the recorded work.
 *  @param[in]  context  May be NULL if the options have no stream.
 *  @param[in]  tensor   Borrowed.
 *  @param[in]  options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EREADONLY the tensor is read-only, `legacy` is set and `read_only` is not, because the
 *          legacy struct has no such flag.
 *  @note If a transfer into the tensor fails after the call has returned, the consumer reads unspecified bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_export(tdict_context *context, const tdict_tensor *tensor,
                                                           const tdict_dlpack_export_options *options,
                                                           tdict_dlpack_entry *out, tdict_error *err);

/** @brief Makes a tensor over the bytes of a managed tensor.
 *
 *  A legacy tensor is never read-only. NULL strides mean C order. The deleter runs on the thread that drops the last
 *  reference to the bytes. This can be a thread of a context. tdict_record_stream() records no work for a tree of
 *  imported tensors alone. Wait for your own streams before you release such a tree.
 *  @param[in]     context  May be NULL if the options have no stream and no tensor on a device is copied.
 *  @param[in,out] entry    The managed tensor, of either struct. The name is not used. The member is set to NULL on
 *                          success, and if the managed tensor has a newer major version.
 *  @param[in]     options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EFORMAT the major version is not 1; #TDICT_EINVAL the entry does not have exactly one
 *          managed tensor, or a size or byte offset is invalid; errors of tdict_tensor_from_data(), and of
 *          tdict_tensor_clone() for a copy. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_import(tdict_context *context, tdict_dlpack_entry *entry,
                                                           const tdict_dlpack_import_options *options,
                                                           tdict_tensor **out, tdict_error *err);

/** @brief Makes a managed tensor for each tensor of a tree, in insertion order.
 *
 *  All managed tensors share one set of references to the bytes. Their deleters may run in any order, on any threads.
 *  The last of them and tdict_dlpack_release_entries() records the work on the consumer's stream, which must exist
 *  until then. An object whose type has `flatten` becomes the tensors that `flatten` returns: a ragged leaf "text"
 *  becomes "text.values" and "text.offsets". Batch sizes and trees without tensors are not exported.
 *  @param[in]  context  May be NULL if the options have no stream.
 *  @param[in]  tree     Borrowed. Later changes of the tree do not affect the result.
 *  @param[out] entries  New array of @p count entries, released with tdict_dlpack_release_entries().
 *  @return Errors of tdict_dlpack_export() and of `flatten`; #TDICT_ENOTSUP an object without `flatten`. err->path
 *          names the leaf. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_export_tree(tdict_context *context, const tdict_tree *tree,
                                                                const tdict_dlpack_export_options *options,
                                                                tdict_dlpack_entry **entries, size_t *count,
                                                                tdict_error *err);
/** @brief Releases the array and the names of tdict_dlpack_export_tree(). Calls the deleters of the managed tensors
 *  that are still in the array. NULL is allowed. */
TDICT_API void tdict_dlpack_release_entries(tdict_dlpack_entry *entries, size_t count);
/** @brief Makes a tree of tensors over managed tensors.
 *
 *  The keys have the order of the entries. The tree has an empty batch size, see tdict_set_batch_size(), and no device.
 *  Each leaf that is not a copy owns one managed tensor.
 *  @param[in]     context  As in tdict_dlpack_import().
 *  @param[in,out] entries  @p count entries. The names are borrowed for the call. All managed tensors are set to NULL
 *                          on success. On failure, only those of a newer major version are deleted and set to NULL.
 *  @param[in]     options  NULL for the defaults.
 *  @return Errors of tdict_dlpack_import() and tdict_set(); #TDICT_EEXIST two entries have one name; #TDICT_ETYPE a
 *          name is a parent of another name; #TDICT_EINVAL a name is NULL. err->path is the name of the entry. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_import_tree(tdict_context *context, tdict_dlpack_entry *entries,
                                                                size_t count,
                                                                const tdict_dlpack_import_options *options,
                                                                tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
