/* Declares functions that read trees from files and write trees to files. *
 * safetensors. A safetensors file holds named tensors. A dot in a name separates two keys, so the name "obs.pixels" is
 * the path obs.pixels. A name becomes one key if its path would have an empty key, or more than 128 keys. The same
 * holds if its path would lead through a tensor: the names "a" and "a.b" become the keys `a` and `a.b`. TensorDict 0.15
 * adds an entry `tensordict` to the metadata of the file. This entry holds the batch sizes, keys with dots, text,
 * numbers, and leaves without batch dimensions. tdict_save() writes the entry, and tdict_open() reads the entry. A
 * large model can consist of several safetensors files, called shards, and an index: a file
 * `model.safetensors.index.json` that names the shard of each tensor.
 *
 * Dtypes of safetensors. A file can hold all dtypes of tdict except complex128 and dtypes with several lanes. Some
 * files have dtypes that tdict does not have: F8_E8M0, F8_E4M3FNUZ, F8_E5M2FNUZ, F6_E2M3, F6_E3M2 and F4. These dtypes
 * are refused, and the message names the dtype.
 *
 * NumPy. A .npy file holds one array. The tree of the file has this array as the tensor `arr_0`. A .npz file is a zip
 * file of .npy files. The name of an entry without ".npy" is the name of a tensor, and dots in the name separate keys
 * as in safetensors. Functions that read files convert arrays that are big-endian or in Fortran order. These functions
 * refuse arrays with a structured, string, date or object dtype, and compressed entries. The message gives the reason.
 * NumPy's formats have no batch sizes. These formats hold all dtypes of tdict except bf16, 8-bit floats and dtypes with
 * several lanes. The function tdict_save() writes a checksum for each entry of a .npz file. The checksums are compared
 * only if the option `check_crc` is set.
 *
 * TensorDict. TensorDict 0.15 has three formats of its own: a directory with one file for each tensor (MEMMAP), an
 * archive of such a directory (TDZ), and a consolidated file. All three hold batch sizes, nested trees, text, numbers,
 * JSON and columns of values, and all dtypes of tdict except dtypes with several lanes. TensorDict cannot read 8-bit
 * floats in these formats. A key `a/b` has the file `a%2Fb.memmap`, and a tree at the key `..` has the folder `%2E%2E`,
 * so no key leads out of the directory. Symbolic links in a directory, pickles, and compressed entries of archives are
 * refused. Values that are NaN or infinity are refused, too.
 * docs/files.md says how each format holds text, values, columns and ragged leaves.
 *
 * Thread rule: any thread may call any function. A tree that is written must not change during the call. */
#ifndef TDICT_IO_H
#define TDICT_IO_H

#include "tdict/transfer.h"

TDICT_BEGIN_DECLS

/** Options of tdict_open(). In this comment, the old path of an entry is the path that the entry would have without
 *  `strip_prefix` and `add_prefix`. If `flat` is true, the old path is the name of the tensor in the file. */
typedef struct tdict_open_options {
  size_t struct_size;
  /** Selects entries: each string is the old path of an entry. All entries below a selected entry are selected, too.
   *  NULL (default): all entries. */
  const char *const *keys;
  size_t num_keys; /**< number of strings in `keys` */
  /** Removes this path and the dot after the path from the start of old paths. The entries below this path therefore
   *  move to the root. All other leaves keep their paths. A leaf at this path itself also keeps its path. NULL
   *  (default): removes nothing. */
  const char *strip_prefix;
  /** Adds this path and a dot before all paths, after the removal of `strip_prefix`. NULL (default): adds nothing. */
  const char *add_prefix;
  /** true: the tree has no child trees, and the keys are the names of the tensors in the file. The batch size is [],
   *  and text and numbers are left out. false (default): nested trees. */
  bool flat;
  /** true: shards that are symbolic links are opened, for example in the cache of huggingface_hub, and so is the file
   *  `model.safetensors` of a folder. Such links can lead out of the folder. false (default): links are refused. The
   *  argument `path` of tdict_open() itself may always be a link. */
  bool follows_links;
  /** true: reads all bytes of a .npz or .tdz file, and compares the checksum (CRC-32) of each entry. The call reads the
   *  whole file, even if `keys` selects a part. Other formats have no checksums and ignore the option. false (default):
   *  checksums are not compared. */
  bool check_crc;
  /** Receives the metadata of a safetensors file: a new tree with a text for each entry of `__metadata__`, other than
   *  TensorDict's entry. The caller releases the tree. Written on success only. Of shards, the tree has the texts of
   *  the index's metadata, and the entries of all shards. If several files have a key, the first entry counts. An entry
   *  with an empty key is left out. For files without any entry, the tree is empty. For other formats, the call writes
   *  NULL. NULL (default): the metadata is not wanted. */
  tdict_tree **metadata;
} tdict_open_options;
static inline tdict_open_options tdict_open_options_default(void) {
  tdict_open_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Opens a file, a directory, or the shards of an index, as a tree of read-only tensors.
 *
 *  The files are mapped read-only. Each tensor is normally a view of the mapping of its file, so no elements are
 *  copied. The mapping of a file ends when the last tensor that uses the mapping is released. The call reads an array
 *  of NumPy to host memory instead if the array is big-endian or in Fortran order. The call also reads a tensor if its
 *  position in the file is not a multiple of the size of its numbers. Keys are in the order of TensorDict's entry, else
 *  in the order of the file's header or of the index.
 *
 *  A mapping has a risk. If another program shortens or overwrites the file, the elements change, or reading an element
 *  ends the program with SIGBUS. The function tdict_save() never shortens or overwrites a file, because it replaces the
 *  file as a whole. A file is closed as soon as it is mapped, so a directory and an index can have more files than a
 *  process may have open. The system limits the number of mappings of a process, usually to about 65,000. If
 *  tdict_save() replaces a directory during the call, the result is the old or the new tree.
 *  @param[in]  path     A safetensors file, a .npy or .npz file, a .tdz archive, a consolidated file, an index or a
 *                       folder. The contents of a file decide its format: a complete header of safetensors or NumPy at
 *                       the start that fits the size of the file, then the end of the file. If no other format
 *                       fits, a file whose name ends with ".json" is an index. A folder must have
 *                       one of the files `model.safetensors.index.json`, `meta.json` (MEMMAP) and `model.safetensors`.
 *                       Shards must lie in the folder of the index.
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New tree with one reference, written on success only.
 *  @return #TDICT_OK; #TDICT_EIO a file cannot be opened, read or mapped, and err->native is the errno; #TDICT_EFORMAT
 *          a file is no regular file, or breaks a rule of its format, or has a wrong checksum (option `check_crc`);
 *          #TDICT_ENOTSUP a pickle, a compressed entry, a dtype or a version of a format that this library does not
 *          know, or a header of more than 100,000,000 bytes; #TDICT_ENOTFOUND a selected key is not in the file;
 *          #TDICT_EEXIST two entries get the same path; #TDICT_ETYPE a path leads through a tensor; #TDICT_ESHAPE a
 *          tensor or a tree does not begin with the batch size of its tree; #TDICT_EINVAL a NULL pointer, an invalid
 *          prefix or a wrong option; #TDICT_ENOMEM memory is exhausted, or the process has too many mappings. In errors
 *          of a file, err->path is the file. The message has the position of the wrong byte, or the key of the wrong
 *          entry.
 *  @note Cost: O(bytes of the headers), and O(entries * selected keys). Headers are checked completely. Elements that
 *        are mapped are not read, except with `check_crc`. The result can be the source of a dataset (tdict/dataset.h).
 *        */
TDICT_API TDICT_NODISCARD tdict_status tdict_open(const char *path, const tdict_open_options *options, tdict_tree **out,
                                                  tdict_error *err);

/** Options of tdict_load() and its variants. */
typedef struct tdict_load_options {
  size_t struct_size;
  /** Selects and renames entries as in tdict_open(). Borrowed for the call. NULL (default): all entries, with their
   *  names. */
  const tdict_open_options *open;
  /** The first row that is loaded, and the number of rows. `num_rows` -1 (default): all rows from `first_row`. Default
   *  of `first_row`: 0. With both defaults, all leaves are loaded whole. With any other value, rows are selected from
   *  dimension 0 of all selected tensors, columns of values and ragged leaves. All these leaves must have the same
   *  number of rows. Only the selected rows are read. The batch sizes of the result have the number of selected rows.
   *  Leaves without batch dimensions, and single values, are loaded whole. */
  int64_t first_row, num_rows;
  /** Options of the transfer, for example the number of threads, `after`, `memory`, `conversions` or `stats`. Borrowed
   *  for the call. `keep` and `check_sources` must not be set. NULL (default): the defaults. */
  const tdict_transfer_options *transfer;
  /** Reports that @p done bytes of @p total bytes have been read from the files. Tensors that tdict_load() reads before
   *  the transfer do not count. NULL (default): no calls.
   *  The calling thread makes the first call, with @p done 0, before the transfer reads an element. Threads that read
   *  files make the later calls, at most about 1000. A call begins after the previous call has returned, and @p done
   *  grows from call to call. If the load succeeds, @p done equals @p total in the last call. The last copies to the
   *  device may still run at that time. No call begins after the load has ended.
   *  The function must not wait for a transfer of the context. If the function returns false, the load ends with
   *  #TDICT_ECANCELLED, and no further calls are made. */
  bool (*progress)(void *user, uint64_t done, uint64_t total);
  void *user; /**< passed to `progress`; must be valid until the load has ended */
} tdict_load_options;
static inline tdict_load_options tdict_load_options_default(void) {
  tdict_load_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  o.num_rows = -1;
  return o;
}

/** @brief Loads the tensors of files to a device, and waits until all elements are loaded.
 *
 *  The call opens the files like tdict_open(). Then the threads of a transfer read the elements with pread(), and the
 *  transfer copies the elements like tdict_to_device(). For a device, the threads read into the staging ring of the
 *  context. For the cpu, the threads read into the memory of the result. The call does not map the files, and needs no
 *  host memory for the elements, other than the staging ring and a result on the cpu. The elements may begin at any
 *  byte of the file. Before the transfer, the call itself reads some tensors to new host memory: the offsets of ragged
 *  leaves, and arrays of NumPy that are big-endian or in Fortran order. If the result is in ordinary host memory, the
 *  result shares this memory. All other tensors of the result are in one new storage.
 *
 *  If another program shortens a file during the call, the call returns #TDICT_EIO. If another program overwrites a
 *  file, the elements are unspecified.
 *  @param[in]  path     As in tdict_open().
 *  @param[in]  device   As in tdict_to_device().
 *  @param[in]  options  NULL for the defaults.
 *  @param[out] out      New tree with one reference, written on success only.
 *  @return #TDICT_OK; errors of tdict_open(); errors of tdict_to_device(); #TDICT_EINVAL the rows are not inside the
 *          tree, or an option must not be set; #TDICT_ESHAPE the selected leaves have different numbers of rows, a
 *          tensor has no dimensions, or no leaf has rows; #TDICT_ENOTSUP rows of a tensor in Fortran order;
 *          #TDICT_ECANCELLED the function `progress` returned false; #TDICT_EIO elements cannot be read. If elements
 *          cannot be read, err->path is the path of the leaf in the tree, and the message has the file and the byte.
 *          The field err->native is the errno, or 0 if the file was shortened. For tensors that the call reads before
 *          the transfer, err->path is the file.
 *  @note Cost: as tdict_open(), plus one read of the selected elements. */
TDICT_API TDICT_NODISCARD tdict_status tdict_load(tdict_context *context, const char *path, tdict_device device,
                                                  const tdict_load_options *options, tdict_tree **out,
                                                  tdict_error *err);
/** @brief Starts tdict_load(), and returns a future, as tdict_to_device_async() does. Before the call returns, the call
 *  reads the headers of the files, and the tensors that tdict_load() reads before the transfer. To cancel the load,
 *  call tdict_future_cancel().
 *  @param[out] out  A new future, released with tdict_future_release(). The future keeps the files open until the load
 *                   has ended.
 *  @return Errors of tdict_load() that occur before the call returns. tdict_future_wait() returns all later errors. */
TDICT_API TDICT_NODISCARD tdict_status tdict_load_async(tdict_context *context, const char *path, tdict_device device,
                                                        const tdict_load_options *options, tdict_future **out,
                                                        tdict_error *err);
/** @brief Loads the tensors of files into the tensors of @p dst, and returns a future, as tdict_load_async() does.
 *
 *  The result of the future is @p dst. @p dst must have the keys, shapes and dtypes of the selected part of the files.
 *  @p dst may be on any device of the context, and may be strided. Text, numbers and the offsets of ragged leaves are
 *  not written.
 *  @return Errors of tdict_load_async() and tdict_transfer_into_async(). If an error occurs before the transfer reads
 *          the first element, the elements of @p dst are unchanged. After any later error, the bytes of @p dst are lost
 *          until another call writes these bytes. */
TDICT_API TDICT_NODISCARD tdict_status tdict_load_into_async(tdict_context *context, tdict_tree *dst, const char *path,
                                                             const tdict_load_options *options, tdict_future **out,
                                                             tdict_error *err);

/** A format of files. */
typedef enum tdict_file_format {
  /** Default. Chooses the format by the end of the path: NPY for ".npy", NPZ for ".npz", TDZ for ".tdz", MEMMAP for a
   *  slash, and SAFETENSORS for any other end. */
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
  /** On the device if all tensors are on one device and the device has room, else in host memory (default). */
  TDICT_SNAPSHOT_AUTO,
  /** On the device. If the device has no room, the call returns #TDICT_ENOMEM. */
  TDICT_SNAPSHOT_DEVICE,
  TDICT_SNAPSHOT_HOST /**< in pinned host memory of the context */
} tdict_snapshot;

/** Options of tdict_save() and tdict_save_async(). */
typedef struct tdict_save_options {
  size_t struct_size;
  /** Writes shards of at most this number of bytes of elements, and an index. A tensor with more bytes has a shard of
   *  its own. For formats other than SAFETENSORS, the call returns #TDICT_EINVAL. 0 (default): writes one file. */
  uint64_t max_shard_bytes;
  /** true: leaves out TensorDict's entry. A file without the entry holds no batch sizes, and the call refuses text,
   *  numbers, ragged leaves and empty trees. Leaves without batch dimensions become ordinary tensors, and dots in keys
   *  separate keys when the file is opened. Must be false for other formats. false (default): writes the entry. */
  bool without_structure;
  int32_t format; /**< a tdict_file_format; default TDICT_FORMAT_AUTO */
  /** For MEMMAP only: concerns a directory that replaces a directory. Some file systems cannot exchange two names in
   *  one step. true: on such a file system, the call first renames the old directory, and then gives the new directory
   *  its name. For a moment, no directory has the name. If the process is killed in this moment, the old directory
   *  stays as `.NAME.<16 hexadecimal digits>.old`. The next save first gives the old directory its name again. false
   *  (default): on such a file system, the call returns #TDICT_ENOTSUP. */
  bool allows_gap;
  tdict_stream after; /**< as in tdict_transfer_options; none (default) */
  int32_t snapshot;   /**< a tdict_snapshot, for tdict_save_async() only, default TDICT_SNAPSHOT_AUTO */
  /** The metadata of a safetensors file: a tree whose entries are texts, for example the tree that tdict_open() wrote.
   *  Borrowed for the call. Each shard gets the entries, and the index, too. The key `tensordict` is reserved, and for
   *  shards also `total_size`. For other formats, the tree must be empty. NULL (default): the entry "format" with the
   *  text "pt", which transformers 4 needs, or no entry if `without_structure` is true. */
  const tdict_tree *metadata;
  /** As in tdict_load_options, for the bytes of elements that were written. When all bytes are on the disk, one more
   *  call comes before the new file gets its name. If the function returns false, the call leaves the old file and
   *  returns #TDICT_ECANCELLED. NULL (default): no calls. */
  bool (*progress)(void *user, uint64_t done, uint64_t total);
  void *user; /**< passed to `progress`; must be valid until the save has ended */
} tdict_save_options;
static inline tdict_save_options tdict_save_options_default(void) {
  tdict_save_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Writes a tree to a file, to shards with an index, or to a directory.
 *
 *  With the default options, tdict_open() reads the same tree from the file, bit by bit. What a format cannot hold is
 *  refused before the first byte is written. Exceptions: the file holds only names and tensors (`without_structure`,
 *  NumPy), or the keys are in another order (CONSOLIDATED).
 *
 *  The same tree always gives the same bytes, except for the names of shards in an index. In a safetensors file,
 *  tensors are in the order of the package safetensors 0.8: by dtype, the largest elements first, then by name. The
 *  first element has an offset that is a multiple of 8. Tensors that are not in C order are converted piece by piece,
 *  in buffers of 1 MiB.
 *
 *  One file. The call writes a new file, `.NAME.<16 hexadecimal digits>.tmp`, in the same folder. Then the call flushes
 *  the file to the disk, renames the file to @p path, and flushes the folder. A reader sees the old file or the new
 *  file, also after a power failure. If the call fails before the rename, the call removes the new file. If @p path is
 *  a symbolic link, the link is replaced.
 *
 *  Shards. @p path must end with ".safetensors.index.json". The shards are beside the index, and their names begin with
 *  the name of the index without this ending, or with its first 200 bytes. Each save uses new names. Shards have names
 *  with a dot at the start and ".tmp" at the end until all shards are whole. The index is replaced last. Shards of an
 *  earlier save stay, so that trees and readers that use these shards still work. If the call fails before it replaces
 *  the index, the call removes the new shards.
 *
 *  Permissions. A new file that replaces a file has the permissions and the group of the old file, and is never more
 *  open during the call. If the file cannot get the group, group and others get only the permissions that both had. In
 *  a directory, this concerns each file and each directory that the old directory has under the same name. A process of
 *  root also keeps the owner. Other files have the permissions of the process's umask.
 *
 *  Killed processes. A process that is killed before the rename leaves its temporary file or directory, or its shards.
 *  The next save to the same path removes them. To know that the process is gone, each save holds a lock, flock(), on
 *  its temporary file. Several processes can therefore save to one path at the same time. Nothing is removed on file
 *  systems that other machines can share, such as NFS, and nothing that this user may not remove.
 *
 *  Directory (MEMMAP). The call writes a new directory beside @p path. If there is an old directory, the call then
 *  exchanges the names of both directories by one system call, and removes the old directory. The call replaces an old
 *  directory only if the old directory is empty or has a file meta.json. Trees that were opened from the old directory
 *  stay valid. If the old directory cannot be removed, the call returns #TDICT_EIO although the new directory is in
 *  place, and the message says so. The rest of the old directory has a temporary name then, and the next save removes
 *  it if possible.
 *
 *  A directory reserves the keys `shape`, `device` and `_type`, and the names `meta.json` and `.meta.json.append.tmp`
 *  of folders. A tree cannot have the key `x.memmap` beside a tensor `x`. A consolidated file reserves the keys `cls`,
 *  `non_tensors`, `leaves`, `cls_metadata` and `size` of trees and columns, and keys of other leaves that begin with
 *  "<NJT".
 *  @param[in] context  Needed if a tensor is on a device. For safetensors, threads of the context write the tensors in
 *                      parallel, and the bytes of device tensors go through the staging ring. For other formats,
 *                      the calling thread writes, and tensors on a device are first copied to host memory. NULL is
 *                      allowed for trees in host memory. If @p context is NULL, the calling thread writes.
 *  @param[in] tree     Borrowed for the call. The call waits for transfers that write the tensors.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_EIO a system call failed, err->path is @p path and err->native is the errno (for example
 *          ENOSPC if the disk is full); #TDICT_ENOTSUP the format cannot hold a leaf or a key, and err->path names the
 *          entry. This concerns objects of the program, dtypes that the format lacks, keys that are not UTF-8, and more
 *          than 128 nested trees; #TDICT_ENOTSUP also a header or an index of more than 100,000,000 bytes, and more
 *          than 99,999 shards; #TDICT_ENOTSUP also a consolidated file that begins with a complete file of safetensors
 *          or NumPy, and a file system that cannot exchange two names (see `allows_gap`); #TDICT_EEXIST two tensors get
 *          the same name, for example the key `a.b` and the path a.b; #TDICT_EFORMAT @p path names something that is
 *          not replaced, such as a device, a folder for the format of one file, or a file for a directory;
 *          #TDICT_EINVAL a NULL pointer, a wrong option, a path without a name, no context although a tensor is on a
 *          device, or a transfer into a tensor failed; the errors of tdict_to_device(); #TDICT_ENOMEM;
 *          #TDICT_ECANCELLED the function `progress` returned false. If the folder of a file could not be flushed after
 *          the rename, the call returns #TDICT_EIO and the new file is in place.
 *  @note Cost: one write of all elements, and O(files in the folder of @p path). */
TDICT_API TDICT_NODISCARD tdict_status tdict_save(tdict_context *context, const char *path, const tdict_tree *tree,
                                                  const tdict_save_options *options, tdict_error *err);

/** @brief Starts tdict_save(), and returns a future. A thread of the library writes the file.
 *
 *  The call first starts to copy the tensors to other memory, the snapshot. The thread then writes the snapshot. After
 *  the call, the program may change and release @p tree, but not the elements of its tensors. Before it writes these
 *  elements, the program calls tdict_future_wait_source(), or tdict_future_wait_on_stream() for tensors on a device.
 *  Both wait for the snapshot only. Accessors of host tensors and later transfers wait for the snapshot by themselves.
 *  tdict_future_wait() waits until the tree is in the file. The result of the future is NULL.
 *  The saves of a context write one after another, in the order of their calls. tdict_context_destroy() waits for them.
 *  A program that exits without waiting stops the save, and the old file stays.
 *  tdict_future_cancel() ends the save with #TDICT_ECANCELLED, and the old file stays. If the new file is in place
 *  already, the save succeeds. tdict_future_get_stats() returns the statistics of the snapshot. Only `total_seconds` is
 *  the time of the whole save.
 *  @param[in]  context  Makes the snapshot. Must not be NULL.
 *  @param[out] out      New future, released with tdict_future_release(). Written on success only.
 *  @return #TDICT_EINVAL a NULL pointer, a wrong option, or TDICT_SNAPSHOT_DEVICE for a tree without tensors, or with
 *          tensors that are not all on one device; errors of tdict_to_device_async(). tdict_future_wait()
 *          returns all other errors of tdict_save().
 *  @note Cost: O(keys), plus the memory of the snapshot. If the system cannot start a thread, the call saves the tree
 *        before it returns. */
TDICT_API TDICT_NODISCARD tdict_status tdict_save_async(tdict_context *context, const char *path,
                                                        const tdict_tree *tree, const tdict_save_options *options,
                                                        tdict_future **out, tdict_error *err);

/** Options of tdict_append(). */
typedef struct tdict_append_options {
  size_t struct_size;
  /** true: the call flushes no file, and does not wait until the rows are on the disk. Small appends are then faster,
   *  but after a power failure the directory can be damaged. false (default): waits. */
  bool without_flush;
} tdict_append_options;
static inline tdict_append_options tdict_append_options_default(void) {
  tdict_append_options o;
  memset(&o, 0, sizeof o);
  o.struct_size = sizeof o;
  return o;
}

/** @brief Appends rows to a memory-mapped directory of TensorDict, along the first batch dimension.
 *
 *  The rows must have the keys, dtypes and shapes of the saved tree. Only the first batch dimension may differ. A value
 *  for the whole tree does not change, and @p rows must have the same value. Columns of values, ragged leaves, leaves
 *  without batch dimensions, lazy stacks and tensorclasses cannot grow. The call checks all rows before it writes the
 *  first row.
 *
 *  The call works like append_memmap() of TensorDict 0.15. Rows are written after the saved elements of each file. Then
 *  each folder, beginning with the root, gets a file `.meta.json.append.tmp` with the new number of rows. Then these
 *  files replace the files `meta.json`, beginning with the root. Trees that were opened before the call keep their
 *  number of rows, and stay valid.
 *
 *  Interrupted appends. A process that is killed can leave files `.meta.json.append.tmp`. The next call for the
 *  directory repairs the directory first, with TensorDict's rule. If the root has such a file, no meta.json was
 *  replaced, and the repair removes all such files. Otherwise the repair renames each such file to `meta.json`, which
 *  ends the append. Until the repair, tdict_open() can return #TDICT_ESHAPE, because trees have different numbers of
 *  rows.
 *  If a file has more elements than the shape of its leaf, the additional elements are ignored.
 *  @param[in] context  Needed if a tensor of @p rows is on a device. In this case, the call first copies @p rows to
 *                      host memory.
 *  @param[in] path     The directory. Only one call may append at a time. A second call of tdict_append() at the same
 *                      time returns #TDICT_EIO, with EWOULDBLOCK in err->native. The same happens at the moment when
 *                      tdict_save() replaces the directory.
 *  @param[in] rows     Borrowed for the call. The call waits for transfers that write the tensors.
 *  @param[in] options  NULL for the defaults.
 *  @return #TDICT_OK; #TDICT_ENOTFOUND @p rows and the saved tree have different keys; #TDICT_ETYPE, #TDICT_EDTYPE or
 *          #TDICT_ESHAPE an entry has another kind, dtype or shape than the saved entry; #TDICT_EINVAL a value differs;
 *          #TDICT_ENOTSUP a saved entry cannot grow; #TDICT_EOVERFLOW too many rows; the errors of tdict_open() for the
 *          directory; #TDICT_EIO a system call failed; #TDICT_EINVAL also for a NULL pointer, a wrong option, or no
 *          context although a tensor is on a device; #TDICT_EINVAL also if a transfer into a tensor has failed; the
 *          errors of tdict_to_device(); #TDICT_ENOMEM. After an error, the directory has its old rows, unless the call
 *          could not restore each meta.json. The message then says that numbers of rows may differ. In errors of the
 *          rows, err->path is the path of the entry. In other errors, err->path is a file or the directory.
 *  @note Cost: reads each meta.json, writes the rows, and flushes each file unless `without_flush` is true. */
TDICT_API TDICT_NODISCARD tdict_status tdict_append(tdict_context *context, const char *path, const tdict_tree *rows,
                                                    const tdict_append_options *options, tdict_error *err);

TDICT_END_DECLS
#endif
