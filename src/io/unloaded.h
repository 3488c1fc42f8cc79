/* Makes tensors whose elements are read from files when a transfer copies them. The tensors of one file share one
 * unloaded storage (memory/storage.h). The storage owns the descriptor of the file. For a file of a directory, the
 * storage has no descriptor and opens the file for each read. Thread-safe for different contents. */
#ifndef TDICT_IO_UNLOADED_H
#define TDICT_IO_UNLOADED_H

#include "io/contents.h"

/* Counts and reports the bytes that were read from files. All storages of a load share one counter.
 * Reference-counted. */
typedef struct tdict_load_progress tdict_load_progress;
/* Creates the counter. The load calls `report` as tdict_load_options.progress describes. Returns TDICT_ENOMEM. */
tdict_status tdict_load_progress_create(const char *what, bool (*report)(void *user, uint64_t done, uint64_t total),
                                        void *user, tdict_load_progress **out, tdict_error *err);
/* Sets the number of bytes to read, and makes the first call of `report`. Call before the transfer starts. Returns
 * TDICT_ECANCELLED if `report` returns false. */
tdict_status tdict_load_progress_begin(tdict_load_progress *progress, uint64_t total, tdict_error *err);
void tdict_load_progress_release(tdict_load_progress *progress); /* NULL is allowed */

/* Returns true if tdict_unloaded_leaves() reads the tensor of the item into host memory: the offsets of ragged leaves,
 * and tensors that must be converted. */
bool tdict_item_is_read_early(const tdict_item *item);
/* Writes the tensor of item i to leaves[i]; NULL if the item has no tensor. The caller owns one reference to each
 * tensor. Tensors that are not read early are unloaded. If `has_row_range` is true, tdict_contents_select_rows() has
 * narrowed the offsets, so the first offset is subtracted from all offsets. Moves the descriptors of the files to the
 * storages. On failure, all leaves are NULL. `progress` may be NULL. Returns TDICT_EIO, TDICT_EOVERFLOW, TDICT_ENOMEM,
 * and the errors of tdict_item_read(). */
tdict_status tdict_unloaded_leaves(tdict_contents *contents, tdict_load_progress *progress, bool has_row_range,
                                   tdict_tensor **leaves, tdict_error *err);

#endif
