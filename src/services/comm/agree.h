/* Declares the first steps of a call: a rank checks its own tree, and then all ranks exchange headers and compare them.
 * All ranks decide the same, because they see the same headers. Thread rule: only the call whose turn it is. */
#ifndef TDICT_SERVICES_COMM_AGREE_H
#define TDICT_SERVICES_COMM_AGREE_H

#include "services/comm/message.h"

/* Returns a new reference to what communicators have found about a locked tree, so that a later call need not read its
 * tensors again. Attaches empty facts if the tree has none. The root keeps them until the tree is unlocked or freed. A
 * call keeps its reference, because it may run after that, with a copy of the tree. Returns NULL if the tree is NULL,
 * if tdict_lock() has not locked its root, or if host memory is exhausted. Several calls may use the facts, but no
 * thread may unlock or free the tree meanwhile. This function and the next three are defined in source.c. */
tdict_tree_facts *tdict_tree_facts_get(const tdict_tree *tree);
/* Drops a reference. NULL is allowed. */
void tdict_tree_facts_release(tdict_tree_facts *facts);
/* Checks the tree of this rank, finds or makes its schema, and offers it. `use` is as in tdict_comm_check_tree(). An
 * error is noted in the call, and the schema is then NULL. */
void tdict_comm_check_source(tdict_comm_call *call, const tdict_tree *tree, int use);
/* Calls tdict_row_schemas_get() for the schemas of the communicator. */
tdict_status tdict_comm_get_rows(const tdict_comm_call *call, tdict_schema *schema, int dim, int64_t rows,
                                 tdict_schema **out, tdict_error *err);

/* Writes the header of a call, with its offer. */
void tdict_comm_write_header(const tdict_comm_call *call, tdict_comm_header *out);
/* Exchanges headers, and leaves those of all ranks in comm->headers. With `must_match`, all trees must have equal
 * schemas. In these cases all ranks return the same error, and call->keeps_comm is true: the checks of a rank have
 * failed (the error of the first such rank), the functions or arguments differ (TDICT_EINVAL), the versions differ
 * (TDICT_EFORMAT), or the trees differ (TDICT_ESHAPE, with the path). Also returns errors of the table, and
 * TDICT_ENOMEM. */
tdict_status tdict_comm_agree(tdict_comm_call *call, bool must_match, tdict_error *err);
/* Sends host bytes of rank `root` to all ranks, in as many steps as the number of ranks has binary digits. */
tdict_status tdict_comm_send_all(const tdict_comm_call *call, void *bytes, size_t count, int32_t root,
                                 tdict_error *err);
/* Gives all ranks the schema of rank `root`, which its header describes. Sends the blob only if the schema is not in
 * the cache. `mine` is the schema of the root on the root, else NULL. *out is borrowed from the cache. Returns
 * TDICT_EFORMAT for a blob that is malformed or does not have the hash, TDICT_ENOMEM, and errors of the table. */
tdict_status tdict_comm_share_schema(const tdict_comm_call *call, tdict_schema *mine, int32_t root, tdict_schema **out,
                                     tdict_error *err);
/* Allocates a blob of a schema, which the caller frees. Returns TDICT_ENOMEM also for more than INT32_MAX bytes. */
tdict_status tdict_comm_allocate_blob(const tdict_comm_call *call, uint64_t bytes, void **out, tdict_error *err);
/* Returns the error that rank `r` has sent, with the status of its header. The communicator stays usable. */
tdict_status tdict_comm_return_error(tdict_comm_call *call, int32_t r, int32_t status, tdict_error *sent,
                                     tdict_error *err);
/* Reads a blob that another rank has sent, and checks its hash. Writes *out on success only. */
tdict_status tdict_comm_read_schema(const tdict_comm_call *call, const void *blob, const tdict_comm_header *header,
                                    int32_t from, tdict_schema **out, tdict_error *err);

#endif
