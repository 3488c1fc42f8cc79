/* Makes tensors whose elements are read from files when a transfer copies them. The tensors of one file share one
 * unloaded storage (core/memory/storage.h). The storage owns the descriptor of the file. For a file of a directory, the
 * storage has no descriptor and opens the file for each read. Thread-safe for different contents. */
#ifndef TDICT_SERVICES_IO_UNLOADED_H
#define TDICT_SERVICES_IO_UNLOADED_H

#include "services/io/contents.h"
#include "services/io/progress.h"

/* Returns true if tdict_unloaded_leaves() reads the tensor of the item into host memory: the offsets of ragged leaves,
 * and tensors that must be converted. */
bool tdict_item_is_read_early(const tdict_item *item);
/* Writes the tensor of item i to leaves[i]; NULL if the item has no tensor. The caller owns one reference to each
 * tensor. Tensors that are not read early are unloaded. If `has_row_range` is true, tdict_contents_select_rows() has
 * narrowed the offsets, so the first offset is subtracted from all offsets. Moves the descriptors of the files to the
 * storages. On failure, all leaves are NULL. `progress` may be NULL. Returns TDICT_EIO, TDICT_EOVERFLOW, TDICT_ENOMEM,
 * and the errors of tdict_item_read(). */
tdict_status tdict_unloaded_leaves(tdict_contents *contents, tdict_io_progress *progress, bool has_row_range,
                                   tdict_tensor **leaves, tdict_error *err);

#endif
