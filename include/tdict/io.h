/* Declares functions that read trees from files and write trees to files. The formats are safetensors, NumPy's .npy and
 * .npz, and the three formats of TensorDict 0.15. The page docs/files.md says what each format holds, how the names in
 * a file become paths, and how files are replaced.
 *
 * Errors of all functions:
 * - #TDICT_EINVAL: NULL, a wrong option, a tensor on a device without a context, or a failed transfer into a tensor.
 * - #TDICT_EIO: a system call failed. err->native is the errno, and err->path is the file or the argument `path`.
 * - #TDICT_EFORMAT: a file to read is not regular, or breaks a rule of its format.
 * - #TDICT_ENOTSUP: a file has a pickle, a compressed entry, an unknown dtype or version, or exceeds docs/limits.md.
 * - #TDICT_ENOMEM; for tensors on a device, the errors of tdict_to_device().
 *
 * In errors of a file to read, err->path is the file, and the message has the position of the wrong byte, or the key.
 * Results are written on success only. The caller releases new trees and futures. NULL options are the defaults. Thread
 * rule: any thread may call any function. A tree to write is borrowed, and must not change during the call. */
#ifndef TDICT_IO_H
#define TDICT_IO_H

#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

/** Options of tdict_open(). The old path of an entry is its path without `strip_prefix` and `add_prefix`. */
typedef struct tdict_open_options {
  size_t struct_size;
  /** Old paths to select, with all entries below; of `flat` trees, names in the file. NULL (default): all entries. */
  const char *const *keys;
  size_t num_keys; /**< number of strings in `keys` */
  /** Moves entries below this path to the root. Other leaves stay, also a leaf at this path. NULL (default): none. If
   *  no entry of the file is at or below the path, the call fails with #TDICT_ENOTFOUND. Without a dot at the end. */
  const char *strip_prefix;
  const char *add_prefix; /**< added before all paths, with a dot, after `strip_prefix`; default NULL */
  bool flat; /**< true: one tree, batch size [], of tensors only, with their names as keys; default false: nested */
  /** true: opens shards, and the file `model.safetensors` of a folder, that are symbolic links, even out of the folder.
   *  false (default): refuses these links. The argument `path` may always be a link. */
  bool follows_links;
  /** true: reads a whole .npz or .tdz file and compares all checksums, even if `keys` selects a part. Default false. */
  bool check_crc;
  /** Receives a new tree, owned by the caller: the texts in the metadata of a safetensors file or an index. Leaves out
   *  `tensordict`, and numbers such as `total_size`. Written on success only: NULL for other formats. Default NULL. */
  tdict_tree **metadata;
} tdict_open_options;
static inline tdict_open_options tdict_open_options_default(void) {
  tdict_open_options o;
  tdict_init_struct_(o);
  return o;
}

/** @brief Opens a file, a directory, or the shards of an index, as a tree of read-only tensors.
 *
 *  The tensors are normally views of mapped files, so no elements are copied. If another program shortens or overwrites
 *  such a file, elements change, or reading an element ends the program with SIGBUS. Headers are checked wholly, but
 *  tensors of shards that the index does not name are left out. Cost: O(bytes of headers + entries * selected keys).
 *  @param[in]  path  Its contents decide the format, see docs/files.md. A folder or an index is allowed.
 *  @return #TDICT_OK; #TDICT_EFORMAT a wrong checksum; #TDICT_ENOTFOUND a selected key or `strip_prefix` is not in the
 *          file; #TDICT_EEXIST two entries get the same path; #TDICT_ETYPE a path leads through a tensor; #TDICT_ESHAPE
 *          a tensor or a tree does not begin with the batch size of its tree; #TDICT_EINVAL an invalid prefix;
 *          #TDICT_ENOMEM the process has too many mappings. */
TDICT_API TDICT_NODISCARD tdict_status tdict_open(const char *path, const tdict_open_options *options, tdict_tree **out,
                                                  tdict_error *err);

/** Options of tdict_load() and its variants. */
typedef struct tdict_load_options {
  size_t struct_size;
  const tdict_open_options *open; /**< selects and renames entries; borrowed for the call; NULL (default): all */
  /** Rows of dimension 0 to load, the same for all selected leaves. `num_rows` -1 (default): all rows from `first_row`,
   *  default 0. Leaves without batch dimensions, and single values, are loaded whole. */
  int64_t first_row, num_rows;
  /** Options of the transfer, such as `after`; borrowed for the call. `keep` and `check_sources` must not be set. */
  const tdict_transfer_options *transfer;
  /** Reports that @p done bytes of @p total bytes have been read. Reading threads make the calls, one at a time. The
   *  function must not wait for a transfer of the context. false: the load ends with #TDICT_ECANCELLED. NULL: none. */
  bool (*progress)(void *user, uint64_t done, uint64_t total);
  void *user; /**< passed to `progress`; must be valid until the load has ended */
} tdict_load_options;
static inline tdict_load_options tdict_load_options_default(void) {
  tdict_load_options o;
  tdict_init_struct_(o);
  o.num_rows = -1;
  return o;
}

/** @brief Loads the tensors of files to a device, and waits until all elements are loaded.
 *
 *  Opens the files like tdict_open(), but maps none. The threads of a transfer read the elements, for a device into the
 *  staging ring. If a file is overwritten meanwhile, the elements are unspecified. The result is in one new storage,
 *  except tensors that the call itself reads first: docs/files.md. Cost: tdict_open(), and one read of the elements.
 *  @param[in]  path    As in tdict_open().
 *  @param[in]  device  As in tdict_to_device().
 *  @return #TDICT_OK; errors of tdict_open() and tdict_to_device(); #TDICT_EINVAL the rows are not inside the tree;
 *          #TDICT_ESHAPE the selected leaves have different numbers of rows, a tensor has no dimensions, or no leaf has
 *          rows; #TDICT_ENOTSUP rows of a tensor in Fortran order; #TDICT_ECANCELLED `progress` returned false;
 *          #TDICT_EIO elements cannot be read. err->path is then the leaf, or the file if the call itself reads the
 *          tensor. The message names the file and the byte. err->native is 0 if the file was shortened. */
TDICT_API TDICT_NODISCARD tdict_status tdict_load(tdict_context *context, const char *path, tdict_device device,
                                                  const tdict_load_options *options, tdict_tree **out,
                                                  tdict_error *err);
/** @brief Starts tdict_load(), and returns a future. Headers are read before the call returns.
 *  @param[out] out  A new future, which keeps the files open. tdict_future_cancel() cancels the load.
 *  @return Errors before the transfer starts. tdict_future_wait() returns all later errors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_load_async(tdict_context *context, const char *path, tdict_device device,
                                                        const tdict_load_options *options, tdict_future **out,
                                                        tdict_error *err);
/** @brief Loads the tensors of files into the tensors of @p dst, which becomes the result of the future.
 *
 *  @p dst needs the keys, shapes and dtypes of the selected part. Its tensors may be strided, and on any device of the
 *  context. Text, numbers and offsets of ragged leaves are not written. After an error before the first element is
 *  read, the elements of @p dst are unchanged. After a later error, its bytes are lost until a call writes them.
 *  @return Errors of tdict_load_async() and tdict_transfer_into(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_load_into_async(tdict_context *context, tdict_tree *dst, const char *path,
                                                             const tdict_load_options *options, tdict_future **out,
                                                             tdict_error *err);

/** A format of files. */
typedef enum tdict_file_format {
  /** Default. By the end of the path: ".npy", ".npz", ".tdz", a slash for MEMMAP; any other end: SAFETENSORS. */
  TDICT_FORMAT_AUTO,
  TDICT_FORMAT_SAFETENSORS,
  TDICT_FORMAT_MEMMAP,       /**< TensorDict's directory of memory-mapped files */
  TDICT_FORMAT_CONSOLIDATED, /**< TensorDict's consolidated file */
  TDICT_FORMAT_TDZ,          /**< TensorDict's archive: a zip file of a MEMMAP directory */
  TDICT_FORMAT_NPY,          /**< NumPy's file of one array */
  TDICT_FORMAT_NPZ           /**< NumPy's zip file of arrays, without compression */
} tdict_file_format;

/** Where tdict_save_async() keeps the copy of a tree, the snapshot. */
typedef enum tdict_snapshot {
  TDICT_SNAPSHOT_AUTO,   /**< default: on the device of all tensors if it has room, else in host memory */
  TDICT_SNAPSHOT_DEVICE, /**< on the device; without room, the call returns #TDICT_ENOMEM */
  TDICT_SNAPSHOT_HOST    /**< in pinned host memory of the context */
} tdict_snapshot;

/** Options of tdict_save() and tdict_save_async(). */
typedef struct tdict_save_options {
  size_t struct_size;
  /** Most bytes of elements in a shard; a larger tensor has its own shard. 0 (default): one file. SAFETENSORS only. */
  uint64_t max_shard_bytes;
  /** true: leaves out TensorDict's entry, so the file has only names and tensors. Then text, numbers, ragged leaves and
   *  empty trees are refused. SAFETENSORS only. false (default): writes the entry. */
  bool without_structure;
  int32_t format; /**< a tdict_file_format; default TDICT_FORMAT_AUTO */
  /** For MEMMAP on some file systems: allows a moment without a directory, see docs/files.md. false: #TDICT_ENOTSUP */
  bool allows_gap;
  tdict_stream after; /**< as in tdict_transfer_options; none (default) */
  int32_t snapshot;   /**< a tdict_snapshot, for tdict_save_async() only, default TDICT_SNAPSHOT_AUTO */
  /** Metadata of a safetensors file, or of each shard and the index: a tree of texts, borrowed for the call. Reserved
   *  keys: `tensordict`, and for shards `total_size`. Other formats need an empty tree. NULL (default): "format" with
   *  the text "pt", or no entry if `without_structure` is true. */
  const tdict_tree *metadata;
  /** As in tdict_load_options, for bytes written. One more call comes before the new file gets its name. If it returns
   *  false, the old file stays, and the save fails with #TDICT_ECANCELLED. NULL (default): no calls. */
  bool (*progress)(void *user, uint64_t done, uint64_t total);
  void *user; /**< passed to `progress`; must be valid until the save has ended */
  /** As in tdict_transfer_options: the rate at which tensors are read and written, but not of the snapshot. */
  int64_t max_bytes_per_second;
} tdict_save_options;
static inline tdict_save_options tdict_save_options_default(void) {
  tdict_save_options o;
  tdict_init_struct_(o);
  return o;
}

/** @brief Writes a tree to a file, to shards with an index, or to a directory, and replaces the old one as a whole.
 *
 *  tdict_open() then reads the same tree, but of a file without structure (NumPy's too) only names and tensors.
 *  CONSOLIDATED files may have another order of keys. What a format cannot hold is refused before the first byte is
 *  written. If the call fails before the new file gets its name, the call removes what it wrote. Waits for transfers
 *  that write the tensors. Cost: one write of all elements, and O(files in the folder of @p path).
 *  @param[in] context  Its threads write safetensors and CONSOLIDATED in parallel. NULL: the calling thread writes, and
 *                      all tensors must be in host memory.
 *  @param[in] path     Replaced if it is a symbolic link. Of shards, must end with ".safetensors.index.json".
 *  @return #TDICT_OK; #TDICT_ENOTSUP the format cannot hold a leaf or a key, and err->path names the entry;
 *          #TDICT_EEXIST two tensors get the same name, such as the key `a.b` and the path a.b; #TDICT_EFORMAT @p path
 *          is not replaced: a device, a folder for one file, or a file for a directory; #TDICT_EINVAL a path without a
 *          name; #TDICT_EIO and the new file is in place: its folder could not be flushed, or the old directory not
 *          removed; #TDICT_ECANCELLED `progress` returned false. */
TDICT_API TDICT_NODISCARD tdict_status tdict_save(tdict_context *context, const char *path, const tdict_tree *tree,
                                                  const tdict_save_options *options, tdict_error *err);

/** @brief Starts to copy the tensors to a snapshot, which a thread of the library then writes like tdict_save().
 *
 *  The program may change and release @p tree after the call, but not write elements before the snapshot is complete.
 *  For this, it calls tdict_future_wait_source(), or tdict_future_wait_on_stream() for tensors on a device. Accessors
 *  of host tensors and later transfers wait by themselves. The call tdict_future_wait() waits until the tree is in the
 *  file. Cancelled saves keep the old file, unless the new file is already in place. A context writes one save after
 *  another, and tdict_context_destroy() waits for them. If the program exits before, the old file stays. Cost: O(keys).
 *  @param[in]  context  Makes the snapshot. Must not be NULL.
 *  @param[out] out      New future, whose result is NULL. It has the statistics of the snapshot, and `total_seconds` of
 *                       the whole save.
 *  @return #TDICT_EINVAL TDICT_SNAPSHOT_DEVICE for tensors that are not all on one device, or without tensors; errors
 *          of tdict_to_device_async(). tdict_future_wait() returns all other errors of tdict_save(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_save_async(tdict_context *context, const char *path,
                                                        const tdict_tree *tree, const tdict_save_options *options,
                                                        tdict_future **out, tdict_error *err);

/** Options of tdict_append(). */
typedef struct tdict_append_options {
  size_t struct_size;
  bool without_flush; /**< true: skips flushes, so a power failure can damage the directory; default false */
} tdict_append_options;
static inline tdict_append_options tdict_append_options_default(void) {
  tdict_append_options o;
  tdict_init_struct_(o);
  return o;
}

/** @brief Appends rows to a memory-mapped directory of TensorDict, along the first batch dimension.
 *
 *  The rows need the keys, dtypes and shapes of the saved tree, except for the first batch dimension. Values for the
 *  whole tree must be equal. All rows are checked before the first row is written. Trees that were opened before stay
 *  valid, with their number of rows. Repairs an interrupted append first: docs/files.md. Waits for transfers that write
 *  the tensors. Cost: reads each meta.json, writes the rows, and flushes each file.
 *  @param[in] context  Needed if a tensor of @p rows is on a device: the rows are then copied to host memory first.
 *  @param[in] path     The directory. #TDICT_EIO with EWOULDBLOCK while another append or tdict_save() writes it.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND @p rows and the saved tree have different keys; #TDICT_ETYPE, #TDICT_EDTYPE or
 *          #TDICT_ESHAPE an entry has another kind, dtype or shape; #TDICT_EINVAL a value differs; #TDICT_ENOTSUP a
 *          saved entry cannot grow; #TDICT_EOVERFLOW too many rows; errors of tdict_open(). In errors of the rows,
 *          err->path is the entry. The old rows stay, unless the message says that numbers of rows may differ. */
TDICT_API TDICT_NODISCARD tdict_status tdict_append(tdict_context *context, const char *path, const tdict_tree *rows,
                                                    const tdict_append_options *options, tdict_error *err);

TDICT_END_DECLS
#endif
