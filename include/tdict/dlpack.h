/* Exchanges tensors with other libraries through DLPack, without copies.
 *
 * A managed tensor of DLPack is a struct with the address, shape and dtype of a tensor, and with a deleter. The
 * producer makes the struct. The consumer uses the bytes and then calls the deleter once, on any thread. This header
 * only declares the two structs by name: include DLPack's own dlpack.h, of any version, before or after this header.
 *
 * Structs. DLManagedTensorVersioned is the struct of DLPack 1.0 and later. DLManagedTensor is the older ("legacy")
 * struct without a version and without a read-only flag. Exported structs say version 1.3.
 *
 * Dtypes. The calls accept all dtypes of tdict/values.h with one lane. Other dtypes are refused with #TDICT_EDTYPE.
 * Devices. The calls accept the cpu, cuda and the simulated device, which is DLPack's kDLExtDev. Pinned host memory is
 * kDLCUDAHost. An imported tensor in managed memory (kDLCUDAManaged) belongs to its cuda device. Other devices are
 * refused with #TDICT_ENOTSUP.
 *
 * Streams. DLPack does not define when the elements are valid. The options of these calls therefore name a stream. The
 * stream of an export is the consumer's stream. This stream waits for the work of the library that fills the tensor.
 * When the deleter runs, the work that is queued on this stream is recorded, as tdict_record_stream() does. The library
 * frees, reuses or overwrites the bytes after this work. Before the deleter runs, the program orders later transfers of
 * the same bytes. The stream of an import is the producer's stream. Transfers and other calls that read or write the
 * tensor run after the work that was queued on this stream before the import. The library does not order the program's
 * own streams after the producer's stream.
 *
 * Ownership. An import takes the managed tensor on success only, and sets the caller's pointer to NULL. A managed
 * tensor of a newer major version cannot be read. The import then calls its deleter, sets the pointer to NULL, and
 * returns #TDICT_EFORMAT. After any other failure the caller still owns the managed tensor.
 *
 * Thread rule: every call may be made from any thread. A tree or tensor must not change during the call. */
#ifndef TDICT_DLPACK_H
#define TDICT_DLPACK_H

#include "tdict/context.h"
#include "tdict/tree.h"

/* The tags of DLPack's structs. */
struct DLManagedTensor;
struct DLManagedTensorVersioned;

TDICT_BEGIN_DECLS

/** The handle of a stream for which the library orders nothing on a device. DLPack's `__dlpack__` passes such a stream
 *  as -1. The program then orders the work of both sides itself. */
#define TDICT_DLPACK_NO_STREAM ((void *)(intptr_t)-1)

typedef struct tdict_dlpack_export_options {
  size_t struct_size;
  /** The stream on which the consumer uses the tensor; borrowed for the call. The stream itself must exist until the
   *  deleter has run. If the stream is CUDA's per-thread stream, the deleter must run on the thread of this call.
   *  NULL (default): the call waits until the bytes are there, and nothing is recorded when the deleter runs. The host
   *  always waits for host memory, as tdict_tensor_data() does. */
  const tdict_stream *stream;
  /** true: the consumer only reads. The versioned struct has the read-only flag. The consumer is not ordered after
   *  transfers that read the tensor. */
  bool read_only;
  bool pinned_as_cpu; /**< true: pinned host memory is kDLCPU, for consumers that refuse kDLCUDAHost, such as PyTorch */
  bool legacy;        /**< for tdict_dlpack_export_tree(): makes legacy structs */
} tdict_dlpack_export_options;
static inline tdict_dlpack_export_options tdict_dlpack_export_options_default(void) {
  tdict_dlpack_export_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

typedef struct tdict_dlpack_import_options {
  size_t struct_size;
  /** The stream on which the producer fills the tensor; borrowed for the call. NULL (default): the bytes are there. The
   *  call waits for the stream if the tensor is in host memory. */
  const tdict_stream *stream;
  /** true: a read-only tensor is copied, and its deleter is called. The copy may be written. The copy is in plain host
   *  memory, or in the memory of the tensor's device. false (default): tdict_tensor_data() of a read-only tensor
   *  returns NULL. */
  bool copy_read_only;
} tdict_dlpack_import_options;
static inline tdict_dlpack_import_options tdict_dlpack_import_options_default(void) {
  tdict_dlpack_import_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Makes a managed tensor over the bytes of @p tensor. Nothing is copied.
 *
 *  The managed tensor holds a reference to the bytes until its deleter is called. @p tensor and @p context may be gone
 *  by then. The strides are always written, the byte offset is 0, and the data of a tensor without elements is NULL.
 *  If the deleter is the last use of memory of the program, the deleter waits for the recorded work.
 *  @param[in]  context  May be NULL if the options have no stream.
 *  @param[in]  tensor   Borrowed.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      Owned by the caller; written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or the bytes are lost because a transfer into them failed;
 *          #TDICT_EDTYPE several lanes; #TDICT_ENOTSUP a device that DLPack or this header does not know;
 *          #TDICT_EWRONGDEVICE the stream belongs to another device than the tensor, or to no GPU of the context;
 *          #TDICT_ECAPTURE the stream is being captured; #TDICT_EFORKED; #TDICT_ELOST; #TDICT_EDEVICE; #TDICT_ENOMEM.
 *  @note If a transfer that fills the tensor fails after the call has returned, the consumer reads unspecified
 *          bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_export(tdict_context *context, const tdict_tensor *tensor,
                                                           const tdict_dlpack_export_options *options,
                                                           struct DLManagedTensorVersioned **out, tdict_error *err);
/** @brief Makes a managed tensor as tdict_dlpack_export() does, in the legacy struct.
 *  @return The same errors; also #TDICT_EREADONLY if the tensor is read-only and the option `read_only` is not set,
 *          because the legacy struct has no read-only flag. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_export_legacy(tdict_context *context, const tdict_tensor *tensor,
                                                                  const tdict_dlpack_export_options *options,
                                                                  struct DLManagedTensor **out, tdict_error *err);

/** @brief Makes a tensor over the bytes of a managed tensor.
 *
 *  NULL strides mean C order. The byte offset is added to the address. The deleter is called when the last reference to
 *  the bytes is dropped, on the thread that drops this reference. Transfers hold references, so this can be a pool
 *  thread. tdict_record_stream() does not know imported memory: wait for your own streams before you release the
 *  tensor.
 *  @param[in]     context  May be NULL if the options have no stream and nothing is copied to a device.
 *  @param[in,out] managed  The managed tensor. Set to NULL if the call has taken the managed tensor, see the top of
 *                          this header.
 *  @param[in]     options  NULL for the defaults.
 *  @param[out]    out      A new reference; written on success only.
 *  @return #TDICT_OK; #TDICT_EFORMAT another major version than 1; #TDICT_EDTYPE a dtype that the library does not
 *          know, or several lanes; #TDICT_ENOTSUP another device; #TDICT_EINVAL a NULL pointer, a context that is
 *          missing, or an invalid size or byte offset; the errors of tdict_tensor_from_data(); #TDICT_EWRONGDEVICE the
 *          stream belongs to another device than the tensor, or to no GPU of the context; #TDICT_ECAPTURE the stream is
 *          being captured; the errors of tdict_tensor_clone() for a copy; #TDICT_EFORKED; #TDICT_ELOST; #TDICT_EDEVICE;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_import(tdict_context *context,
                                                           struct DLManagedTensorVersioned **managed,
                                                           const tdict_dlpack_import_options *options,
                                                           tdict_tensor **out, tdict_error *err);
/** @brief Makes a tensor over a legacy managed tensor, as tdict_dlpack_import() does. The tensor is not read-only.
 *  @return The same errors, except #TDICT_EFORMAT. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_import_legacy(tdict_context *context,
                                                                  struct DLManagedTensor **managed,
                                                                  const tdict_dlpack_import_options *options,
                                                                  tdict_tensor **out, tdict_error *err);

/** A tensor of a tree. Exactly one of the last two members is not NULL. If the program takes the managed tensor, the
 *  program sets the member to NULL. */
typedef struct tdict_dlpack_entry {
  const char *name; /**< the path of the tensor, escaped as in tdict/tree.h */
  struct DLManagedTensorVersioned *versioned;
  struct DLManagedTensor *legacy;
} tdict_dlpack_entry;

/** @brief Makes a managed tensor for each tensor of a tree, in insertion order, in one call.
 *
 *  All managed tensors share one block of memory and one set of references to the bytes. Their deleters may run in any
 *  order, on any threads. The last deleter drops the references, and records the consumer's stream.
 *  An object of a type with `flatten` gives the tensors that `flatten` returns, with paths below the path of the
 *  object. A ragged leaf "text" gives "text.values" and "text.offsets". Batch sizes and trees without tensors are not
 *  exported.
 *  @param[in]  context  May be NULL if the options have no stream.
 *  @param[in]  tree     Borrowed. Later changes of the tree do not affect the result.
 *  @param[out] entries  New array. Release it with tdict_dlpack_release_entries(). Written on success only.
 *  @param[out] count    Number of entries. Written on success only.
 *  @return The errors of tdict_dlpack_export() and, for legacy structs, tdict_dlpack_export_legacy(). #TDICT_ENOTSUP
 *          also for an object without `flatten`, and the errors of that hook. err->path names the leaf.
 *  @note Cost: O(keys). One allocation holds all managed tensors, another one the names. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_export_tree(tdict_context *context, const tdict_tree *tree,
                                                                const tdict_dlpack_export_options *options,
                                                                tdict_dlpack_entry **entries, size_t *count,
                                                                tdict_error *err);
/** @brief Releases the array and the names of tdict_dlpack_export_tree(). Calls the deleters of managed tensors that
 *  are still in the array. NULL is allowed. */
TDICT_API void tdict_dlpack_release_entries(tdict_dlpack_entry *entries, size_t count);
/** @brief Makes a tree of tensors over managed tensors, in one call.
 *
 *  The tree has the entries in their order, an empty batch size and no device. tdict_set_batch_size() sets the batch
 *  size. Each leaf holds its own managed tensor.
 *  @param[in]     context  As in tdict_dlpack_import().
 *  @param[in,out] entries  @p count entries. On success, all managed tensors are set to NULL. On failure, only those of
 *                          a newer major version are, and the caller still owns the others. Names are borrowed.
 *  @param[out]    out      A new reference; written on success only.
 *  @return The errors of tdict_dlpack_import(); the errors of tdict_set(); #TDICT_EEXIST two entries have the same
 *          name; #TDICT_ETYPE also if the name of another entry is the beginning of the path; #TDICT_EINVAL also for a
 *          NULL name, or if not exactly one managed tensor of an entry is set. err->path is the name of the entry.
 *  @note Cost: O(keys). */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_import_tree(tdict_context *context, tdict_dlpack_entry *entries,
                                                                size_t count,
                                                                const tdict_dlpack_import_options *options,
                                                                tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
