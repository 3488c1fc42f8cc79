/* Makes read-only tensors over mapped files. Each tensor of a file holds a reference to the mapping of the file. The
 * last release unmaps the file. Thread-safe for different contents. */
#ifndef TDICT_SERVICES_IO_MAP_H
#define TDICT_SERVICES_IO_MAP_H

#include "services/io/contents.h"

/* Maps every file that has a tensor, and writes the tensor of item i to leaves[i], or NULL if the item has no tensor.
 * The caller owns one reference to each tensor. A tensor is read into host memory instead if its address would not be a
 * multiple of the size of its numbers, or if tdict_item_is_plain() is false. On failure, all leaves are NULL. Returns
 * TDICT_EIO if a file cannot be mapped or read, TDICT_ENOMEM, and the errors of tdict_contents_open_file(). */
tdict_status tdict_map_leaves(const tdict_contents *contents, tdict_tensor **leaves, tdict_error *err);

/* Returns true if the bytes of the file are the elements in C order and little-endian. */
static inline bool tdict_item_is_plain(const tdict_item *item) { return !item->is_swapped && !item->is_fortran; }
/* Reads the elements of a tensor into memory, in C order and little-endian. Returns TDICT_ENOMEM and the errors of
 * tdict_contents_read(). */
tdict_status tdict_item_read(const tdict_contents *contents, const tdict_item *item, void *to, tdict_error *err);

#endif
