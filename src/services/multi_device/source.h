/* Declares the source of a replication whose devices copy parts from each other, and the results. The replication owns
 * these structs. Thread rule: only the thread of the public call uses the structs. */
#ifndef TDICT_SERVICES_MULTI_DEVICE_SOURCE_H
#define TDICT_SERVICES_MULTI_DEVICE_SOURCE_H

#include "core/ops/map.h"
#include "core/tree/node.h"
#include "device/devices.h"
#include "engine/plan/pair.h"

/* The leaves of the source, borrowed from the tree. */
typedef struct tdict_source {
  tdict_tensor **leaves; /* in tree order */
  uint32_t num_leaves;
  size_t cap_leaves;
  size_t bytes; /* of all leaves, without padding */
  bool
      is_suitable; /* true: some leaf is not empty, all leaves are in host memory, and the tree has no objects that must
                     * be moved */
} tdict_source;

/* Reads the leaves of a tree. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_source_read(tdict_source *source, const tdict_tree *tree, tdict_error *err);
void tdict_source_reset(tdict_source *source);

/* The `fill` of a tdict_map: leaves the elements uninitialized, because a transfer writes them. */
tdict_status tdict_leave_unset(const tdict_map *map, size_t entry, const tdict_tensor *from, tdict_tensor *made,
                               tdict_error *err);
/* Sets the device of all trees in a tree that the caller has created. Returns TDICT_ENOMEM. */
tdict_status tdict_set_all_devices(tdict_tree *tree, tdict_device device, tdict_error *err);

/* A result: a tree with the keys, shapes and locks of the source, whose leaves are in one new storage. */
typedef struct tdict_replica {
  tdict_tree *tree;
  tdict_tensor **leaves;  /* in tree order, borrowed from `tree` */
  tdict_storage *storage; /* borrowed from `tree` */
} tdict_replica;

/* Creates a result in the memory of a device, with uninitialized elements. The tree must have a tensor. All results of
 * one source have the same layout. Returns TDICT_ENOMEM, TDICT_EOVERFLOW, and the errors of device memory. */
tdict_status tdict_replica_create(tdict_replica *replica, const char *what, const tdict_tree *tree,
                                  tdict_memory *memory, tdict_error *err);
void tdict_replica_reset(tdict_replica *replica);
/* Returns the offset of a leaf in the storage. */
size_t tdict_replica_offset(const tdict_replica *replica, uint32_t leaf);
/* Makes a tensor of `bytes` bytes over a storage, beginning at the address `data`. The caller owns the reference.
 * Returns TDICT_ENOMEM. */
tdict_status tdict_bytes_view(tdict_storage *storage, const void *data, size_t bytes, tdict_tensor **out,
                              tdict_error *err);

#endif
