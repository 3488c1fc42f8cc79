/* Exchanges tensors with other libraries through DLPack. Elements are copied only if the option `copy_read_only` is
 * set.
 *
 * A managed tensor of DLPack is a struct that contains the address, shape and dtype of a tensor, and a deleter. The
 * producer creates the struct. The consumer uses the bytes, and then calls the deleter once, on any thread. This header
 * declares the names of DLPack's structs, but not their members. To access the members, include DLPack's own dlpack.h,
 * of any version, before or after this header.
 *
 * Structs. DLManagedTensorVersioned is the struct of DLPack 1.0 and later. DLManagedTensor is the older ("legacy")
 * struct, which has no version and no read-only flag. The library writes version 1.3 to the structs that it exports as
 * DLManagedTensorVersioned.
 *
 * Dtypes. The functions accept all dtypes of tdict/values.h with one lane. For any other dtype, the functions return
 * #TDICT_EDTYPE.
 * Devices. The functions accept tensors in host memory, on cuda devices and on simulated devices. Pinned host memory is
 * DLPack's kDLCUDAHost. A simulated device is kDLExtDev. A tensor in CUDA managed memory (kDLCUDAManaged) can only be
 * imported. The imported tensor gets the device of the stream in the options. If the options have no stream or
 * #TDICT_DLPACK_UNORDERED, the tensor gets the cuda device that the struct names. For any other device, the functions
 * return #TDICT_ENOTSUP.
 *
 * Streams. DLPack does not say when the elements are valid. The options of an export or import therefore name a stream
 * of the other library:
 *
 * - Export: the consumer's stream. The export makes this stream wait for the library's work on the tensor, such as
 *   transfers that write the tensor. The deleter records the work that is queued on this stream, as
 *   tdict_record_stream() does. The library waits for the recorded work before it frees, reuses or overwrites the
 *   bytes. Before the deleter runs, the library does not know the consumer's work. If the program starts a transfer of
 *   the same bytes before the deleter runs, the program itself must order the transfer after the consumer's work.
 * - Import: the producer's stream. Later transfers and other calls that use the tensor run after the work that was
 *   queued on this stream before the import. The library does not order the program's own streams after the producer's
 *   stream.
 *
 * Ownership. If an import succeeds, the library owns the managed tensor and sets the caller's pointer to NULL. The
 * library cannot read a managed tensor of a newer major version. For such a managed tensor, the import calls the
 * deleter, sets the pointer to NULL, and returns #TDICT_EFORMAT. After any other failure the caller still owns the
 * managed tensor.
 *
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
  /** The stream on which the consumer uses the tensor. The stream must exist until the deleter has run. If the stream
   *  is CUDA's per-thread stream, the deleter must run on the thread of the export. Default: tdict_no_stream(). The
   *  call then waits for the library's work on the tensor, and the deleter records no work. For host memory the call
   *  always waits, as tdict_tensor_data() does. */
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
  /** true: the import copies a read-only tensor and calls the deleter. The copy may be written. The copy is in plain
   *  host memory, or in the memory of the tensor's device. false (default): a read-only tensor is not copied, and
   *  tdict_tensor_data() returns NULL for the tensor. */
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
 *  The managed tensor holds a reference to the bytes until its deleter is called. The program may release @p tensor and
 *  destroy @p context before the deleter is called. The strides are always written, and the byte offset is 0. If the
 *  tensor has no elements, the data pointer is NULL. If the program owns the memory and the deleter drops the last
 *  reference, the deleter waits for the recorded work.
 *  @param[in]  context  May be NULL if the options have no stream.
 *  @param[in]  tensor   Borrowed.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      The managed tensor, owned by the caller. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, a missing context, or a transfer into the tensor has failed;
 *          #TDICT_EREADONLY the tensor is read-only, and of the options `legacy` is set and `read_only` is not (the
 *          legacy struct has no read-only flag); #TDICT_EDTYPE the dtype has several lanes; #TDICT_ENOTSUP the library
 *          does not know the kind of device; #TDICT_EWRONGDEVICE the stream belongs to another device than the tensor,
 *          or to no GPU of the context, or the tensor is on a simulated device of another context; #TDICT_ECAPTURE the
 *          stream is being captured; #TDICT_EFORKED; #TDICT_ELOST; #TDICT_EDEVICE; #TDICT_ENOMEM.
 *  @note If a transfer into the tensor fails after the call has returned, the consumer reads unspecified bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_export(tdict_context *context, const tdict_tensor *tensor,
                                                           const tdict_dlpack_export_options *options,
                                                           tdict_dlpack_entry *out, tdict_error *err);

/** @brief Makes a tensor over the bytes of a managed tensor.
 *
 *  A legacy tensor is never read-only. NULL strides mean C order. The byte offset is added to the address. The library
 *  calls the deleter when the last reference to the bytes is dropped, on the thread that drops this reference.
 *  Transfers hold references, so this thread can belong to the pool of a context. tdict_record_stream() returns
 *  #TDICT_EWRONGDEVICE for a tree that has only imported tensors. Wait for your own streams before you release such a
 *  tree. If the tree also has a tensor in memory of a context, tdict_record_stream() records the work for the imported
 *  tensors, too.
 *  @param[in]     context  May be NULL if the options have no stream and no tensor on a device is copied.
 *  @param[in,out] entry    The managed tensor, of either struct. The name is not used. The member is set to NULL on
 *                          success, and if the managed tensor has a newer major version.
 *  @param[in]     options  NULL for the defaults.
 *  @param[out]    out      New tensor, owned by the caller. Written on success only.
 *  @return #TDICT_OK; #TDICT_EFORMAT the major version is not 1; #TDICT_EDTYPE the library does not know the dtype, or
 *          the dtype has several lanes; #TDICT_ENOTSUP the library does not know the kind of device; #TDICT_EINVAL a
 *          NULL pointer, a missing context, an entry without exactly one managed tensor, or an invalid size or byte
 *          offset; the errors of tdict_tensor_from_data(); #TDICT_EWRONGDEVICE the stream belongs to another device
 *          than the tensor, or to no GPU of the context, or the tensor is on a simulated device of another context;
 *          #TDICT_ECAPTURE the stream is being captured; the errors of tdict_tensor_clone() for a copy; #TDICT_EFORKED;
 *          #TDICT_ELOST; #TDICT_EDEVICE; #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_import(tdict_context *context, tdict_dlpack_entry *entry,
                                                           const tdict_dlpack_import_options *options,
                                                           tdict_tensor **out, tdict_error *err);

/** @brief Makes a managed tensor for each tensor of a tree, in insertion order.
 *
 *  All managed tensors share one block of memory and one set of references to the bytes. Their deleters may run in any
 *  order, on any threads. After all deleters and tdict_dlpack_release_entries() have run, the library records the work
 *  on the consumer's stream. Then the library drops the references. The stream must exist until the references are
 *  dropped.
 *
 *  An object whose type has `flatten` becomes the tensors that `flatten` returns. Their paths begin with the path of
 *  the object. For example, a ragged leaf "text" becomes "text.values" and "text.offsets". Batch sizes and trees
 *  without tensors are not exported.
 *  @param[in]  context  May be NULL if the options have no stream.
 *  @param[in]  tree     Borrowed. Later changes of the tree do not affect the result.
 *  @param[out] entries  New array, released with tdict_dlpack_release_entries(). Written on success only.
 *  @param[out] count    Number of entries. Written on success only.
 *  @return The errors of tdict_dlpack_export(); #TDICT_ENOTSUP also for an object without `flatten`; the errors of
 *  `flatten`. err->path names the leaf.
 *  @note Cost: O(keys). In the result, one allocation holds all managed tensors, and another allocation holds the
 *        names. */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_export_tree(tdict_context *context, const tdict_tree *tree,
                                                                const tdict_dlpack_export_options *options,
                                                                tdict_dlpack_entry **entries, size_t *count,
                                                                tdict_error *err);
/** @brief Releases the array and the names of tdict_dlpack_export_tree(). Calls the deleters of the managed tensors
 *  that are still in the array. NULL is allowed. */
TDICT_API void tdict_dlpack_release_entries(tdict_dlpack_entry *entries, size_t count);
/** @brief Makes a tree of tensors over managed tensors.
 *
 *  The keys of the tree have the order of the entries. The tree has an empty batch size and no device. The program can
 *  set the batch size with tdict_set_batch_size(). Each leaf that is not a copy owns one managed tensor.
 *  @param[in]     context  As in tdict_dlpack_import().
 *  @param[in,out] entries  @p count entries. The names are borrowed for the call. On success, the call sets all
 *                          pointers to managed tensors to NULL. On failure, the call calls the deleters of managed
 *                          tensors of a newer major version, and sets the pointers to these managed tensors to NULL.
 *                          The caller still owns the other managed tensors.
 *  @param[in]     options  NULL for the defaults.
 *  @param[out]    out      New tree, owned by the caller. Written on success only.
 *  @return The errors of tdict_dlpack_import(); the errors of tdict_set(); #TDICT_EEXIST two entries have the same
 *          name; #TDICT_ETYPE also if one entry has the name of a parent of another entry, such as "a" and "a.b";
 *          #TDICT_EINVAL also if a name is NULL. err->path is the name of the entry.
 *  @note Cost: O(keys). */
TDICT_API TDICT_NODISCARD tdict_status tdict_dlpack_import_tree(tdict_context *context, tdict_dlpack_entry *entries,
                                                                size_t count,
                                                                const tdict_dlpack_import_options *options,
                                                                tdict_tree **out, tdict_error *err);

TDICT_END_DECLS
#endif
