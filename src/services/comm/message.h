/* Makes, sends and receives the message of a call, which has this rank's checked tree. Thread rule: one at a time. */
#ifndef TDICT_SERVICES_COMM_MESSAGE_H
#define TDICT_SERVICES_COMM_MESSAGE_H

#include "core/tree/node.h"
#include "services/comm/call.h"

/* How a call uses the elements of a tree. */
enum { TDICT_COMM_READS = 1, TDICT_COMM_WRITES = 2 };
/* Checks the tensors of `tree`, and fills in *out except the schema. `use` is TDICT_COMM_READS, TDICT_COMM_WRITES or
 * both. Returns the errors that tdict/comm.h lists for one tree, with the path of the entry. */
tdict_status tdict_comm_check_tree(const tdict_comm *comm, const char *what, const tdict_tree *tree, int use,
                                   tdict_comm_source *out, tdict_error *err);
/* Checks a locked tree without a walk, if it was checked before: checks the common storage, and sets source->is_near.
 * Returns false if tdict_comm_check_tree() must check it, because bytes may be lost or there is an error. */
bool tdict_comm_check_common(const tdict_comm *comm, int use, tdict_comm_source *source);
void tdict_comm_source_reset(tdict_comm_source *source);
/* Finds the block of the checked tree: `packed` is NULL if there is none. Returns errors of tdict_schema_measure(). */
tdict_status tdict_message_find(tdict_comm_call *call, tdict_error *err);
/* Finds or allocates the block of the checked tree. Copies nothing. Returns errors of tdict_create_from_schema(). */
tdict_status tdict_message_prepare(tdict_comm_call *call, tdict_error *err);
/* Allocates the block of a tree that will be received. `memory` is NULL for the memory of the communicator's device. */
tdict_status tdict_message_allocate(tdict_comm_call *call, const tdict_schema *schema, tdict_memory *memory,
                                    tdict_error *err);
/* Waits until the tree may be read, and copies it if the block is a copy. Returns the errors of the copy. */
tdict_status tdict_message_fill(tdict_comm_call *call, tdict_error *err);
/* Waits until the bytes of the block may be written. */
void tdict_message_await(const tdict_block_message *message);
/* Waits for the option `after`, fills the block, sends it to rank call->root, or from this rank to all ranks, and waits
 * until it was sent. */
tdict_status tdict_comm_send_message(tdict_comm_call *call, tdict_error *err);
/* Waits for the option `after`, receives the block of rank call->root, and meanwhile makes its tree. */
tdict_status tdict_comm_receive_message(tdict_comm_call *call, const tdict_schema *schema, tdict_error *err);
/* Copies a tree on the communicator's device. `is_near`: all tensors of the source are in memory of this device. */
tdict_status tdict_comm_copy(const tdict_comm *comm, tdict_tree *dst, const tdict_tree *src, bool is_near,
                             tdict_error *err);
/* Drops the references. Call only after all work on the block has ended. */
void tdict_message_reset(tdict_block_message *message);

/* Marks the elements of all tensors of a tree as lost, or as valid. */
void tdict_comm_lose(const tdict_tree *tree);
void tdict_comm_regain(const tdict_comm_source *source);
/* Returns the memory in which the communicator allocates; NULL: plain host memory. */
tdict_memory *tdict_comm_memory(const tdict_comm *comm);

#endif
