/* Declares the steps that make, send and receive the message of a call. The call has the checked tree of this rank and
 * the message. Thread rule: one thread at a time. */
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
/* Checks a tree that was checked before and has not changed, without a walk: checks the common storage, and sets
 * source->is_near. Returns false if tdict_comm_check_tree() must check the tree: the tree may have lost bytes, or there
 * is an error. */
bool tdict_comm_check_common(const tdict_comm *comm, int use, tdict_comm_source *source);
void tdict_comm_source_reset(tdict_comm_source *source);
/* Finds the block of the checked tree. If the tree is not a block, `packed` of the message is NULL. Returns the errors
 * of tdict_schema_measure(). */
tdict_status tdict_message_find(tdict_comm_call *call, tdict_error *err);
/* Finds the block of the checked tree, or allocates memory and a tree for the block. Copies nothing. Returns
 * TDICT_ENOMEM and errors of tdict_create_from_schema(). */
tdict_status tdict_message_prepare(tdict_comm_call *call, tdict_error *err);
/* Allocates the block of a tree that will be received. `memory` is NULL for the memory of the communicator's device. */
tdict_status tdict_message_allocate(tdict_comm_call *call, const tdict_schema *schema, tdict_memory *memory,
                                    tdict_error *err);
/* Waits until the bytes of the tree may be read. If the block is a copy, copies the elements into it. Returns the
 * errors of tdict_copy() and tdict_transfer_into_async(). */
tdict_status tdict_message_fill(tdict_comm_call *call, tdict_error *err);
/* Waits until the bytes of the block may be written. */
void tdict_message_await(const tdict_block_message *message);
/* Waits for the option `after`, fills the block of this rank and sends it to rank call->root, or from this rank to all
 * ranks. Waits until the block was sent. */
tdict_status tdict_comm_send_message(tdict_comm_call *call, tdict_error *err);
/* Waits for the option `after`, receives the allocated block from rank call->root, and makes its tree while the
 * elements are on their way. */
tdict_status tdict_comm_receive_message(tdict_comm_call *call, const tdict_schema *schema, tdict_error *err);
/* Copies the elements of one tree to another on the device of the communicator. `is_near` is true if all tensors of
 * the source are in memory of this device. */
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
