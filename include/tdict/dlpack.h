/* Exchanges tensors with other libraries through DLPack. Elements are copied only with the option `copy_read_only`.
 *
 * A managed tensor of DLPack is a struct with an address, shape, dtype and deleter. The consumer calls the deleter
 * once, on any thread. Exports write version 1.3 of DLManagedTensorVersioned. DLManagedTensor is the older ("legacy")
 * struct, without a version and a read-only flag. docs/neighbours.md explains streams, devices, trees and traps.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: a NULL pointer, a stream without a context, a wrong option, or lost bytes.
 * - #TDICT_EDTYPE: a dtype that tdict/values.h does not have, or one with several lanes.
 * - #TDICT_ENOTSUP: a kind of device that the library does not know.
 * - #TDICT_EWRONGDEVICE: the stream belongs to another device than the tensor, or to no GPU of the context.
 * - #TDICT_EWRONGDEVICE: the tensor is on a simulated device of another context.
 * - #TDICT_ECAPTURE: the stream is being captured. #TDICT_EFORKED, #TDICT_ELOST, #TDICT_EDEVICE, #TDICT_ENOMEM.
 *
 * NULL options are the defaults. Results are written on success only, and owned by the caller. After a failed import,
 * the caller still owns the managed tensor, unless it has a newer major version: its deleter is then called.
 * Thread rule: every function may be called from any thread. A tree or tensor must not change during the call. */
#ifndef TDICT_DLPACK_H
#define TDICT_DLPACK_H

#include "tdict/context.h"
#include "tdict/tree.h"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

TDICT_BEGIN_DECLS

/** As the handle of a stream: the program itself orders the work of producer and consumer, as with -1 in Python. */
#ifdef __cplusplus
#define TDICT_DLPACK_UNORDERED reinterpret_cast<void *>(tdict_cast_(intptr_t, -1))
#else
#define TDICT_DLPACK_UNORDERED ((void *)(intptr_t)-1)
#endif

typedef struct tdict_dlpack_export_options {
  size_t struct_size;
  /** The consumer's stream, which must exist until the deleter has run. Default: tdict_no_stream(). The call then waits
   *  for the library's work, as always for host memory, and the deleter records no work. */
  tdict_stream stream;
  /** true: the consumer only reads, and does not wait for transfers that read. Sets the flag of versioned structs. */
  bool read_only;
  bool pinned_as_cpu; /**< true: pinned memory is kDLCPU, for consumers that refuse kDLCUDAHost, such as PyTorch */
  bool legacy;        /**< true: makes legacy structs. false (default): makes versioned structs */
} tdict_dlpack_export_options;
static inline tdict_dlpack_export_options tdict_dlpack_export_options_default(void) {
  tdict_dlpack_export_options o;
  tdict_init_struct_(o);
  return o;
}

typedef struct tdict_dlpack_import_options {
  size_t struct_size;
  /** The producer's stream. If the tensor is in host memory, the call waits for it. Default: tdict_no_stream(), for
   *  elements that are valid already. */
  tdict_stream stream;
  /** true: copies a read-only tensor, to plain host memory or on its device. false (default): keeps it read-only. */
  bool copy_read_only;
} tdict_dlpack_import_options;
static inline tdict_dlpack_import_options tdict_dlpack_import_options_default(void) {
  tdict_dlpack_import_options o;
  tdict_init_struct_(o);
  return o;
}

/** A managed tensor: exactly one of `versioned` and `legacy` is not NULL. Set it to NULL to take the managed tensor. */
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
 *  The managed tensor holds a reference to the bytes until its deleter runs. Release @p tensor at any time.
 *  @param[in]  context  May be NULL if the options have no stream.
 *  @param[in]  tensor   Borrowed.
 *  @return The errors at the top; #TDICT_EREADONLY a read-only tensor with `legacy` and without `read_only`.
 *  @note If a transfer into the tensor fails after the call has returned, the consumer reads unspecified bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_export(tdict_context *context, const tdict_tensor *tensor,
                                                           const tdict_dlpack_export_options *options,
                                                           tdict_dlpack_entry *out, tdict_error *err);

/** @brief Makes a tensor over the bytes of a managed tensor.
 *
 *  The deleter runs on the thread that drops the last reference, which can be a thread of a context. Wait for your own
 *  streams before you release imported tensors, because tdict_record_stream() alone records no work for them.
 *  @param[in]     context  May be NULL if the options have no stream and no tensor on a device is copied.
 *  @param[in,out] entry    Its member is set to NULL on success, and for a newer major version. No name is needed.
 *  @return The errors at the top; #TDICT_EFORMAT the major version is not 1; #TDICT_EINVAL not exactly one managed
 *          tensor, or an invalid size or byte offset; errors of tdict_tensor_from_data() and tdict_tensor_clone(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_import(tdict_context *context, tdict_dlpack_entry *entry,
                                                           const tdict_dlpack_import_options *options,
                                                           tdict_tensor **out, tdict_error *err);

/** @brief Makes a managed tensor for each tensor of a tree, in insertion order, and of its objects with `flatten`.
 *
 *  All managed tensors share one set of references to the bytes. The consumer's stream must exist until the last of
 *  their deleters and tdict_dlpack_release_entries() has run. The deleters may run in any order, on any threads.
 *  @param[in]  context  May be NULL if the options have no stream.
 *  @param[in]  tree     Borrowed. Later changes of the tree do not affect the result.
 *  @param[out] entries  New array of @p count entries, released with tdict_dlpack_release_entries().
 *  @return Errors of tdict_dlpack_export() and `flatten`, with the leaf in err->path; #TDICT_ENOTSUP no `flatten`. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_export_tree(tdict_context *context, const tdict_tree *tree,
                                                                const tdict_dlpack_export_options *options,
                                                                tdict_dlpack_entry **entries, size_t *count,
                                                                tdict_error *err);
/** @brief Releases the array and its names, and calls the deleters of the managed tensors in it. NULL is allowed. */
TDICT_API void tdict_dlpack_release_entries(tdict_dlpack_entry *entries, size_t count);
/** @brief Makes a tree of tensors over managed tensors, in their order, with an empty batch size and no device.
 *  @param[in]     context  As in tdict_dlpack_import().
 *  @param[in,out] entries  @p count entries, with names that are borrowed. All managed tensors are set to NULL on
 *                          success. On failure, only those of a newer major version are deleted and set to NULL.
 *  @return Errors of tdict_dlpack_import() and tdict_set(), with the name in err->path; #TDICT_EEXIST two entries have
 *          one name; #TDICT_ETYPE a name is a parent of another name; #TDICT_EINVAL a name is NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_import_tree(tdict_context *context, tdict_dlpack_entry *entries,
                                                                size_t count,
                                                                const tdict_dlpack_import_options *options,
                                                                tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
