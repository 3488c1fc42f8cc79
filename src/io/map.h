/* Makes tensors that are read-only views of files. The tensors own a reference to their mapping, and the mapping ends
 * with the last tensor. Thread-safe for different contents. */
#ifndef TDICT_IO_MAP_H
#define TDICT_IO_MAP_H

#include "io/contents.h"

/* Maps every file that has a tensor, and writes the tensor of item i to leaves[i]; NULL if the item has no tensor. The
 * caller owns one reference to each tensor. A tensor whose address would not be a multiple of the size of its numbers is
 * read to host memory instead. On failure, all leaves are NULL. Returns TDICT_EIO if a file cannot be mapped or read,
 * and TDICT_ENOMEM. */
tdict_status tdict_map_leaves(const tdict_contents *contents, tdict_tensor **leaves, tdict_error *err);

#endif
