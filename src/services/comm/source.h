/* Declares the checks that a rank makes of its own tree before the headers are exchanged. Errors are noted in the call.
 * Thread rule: one thread at a time. */
#ifndef TDICT_SERVICES_COMM_SOURCE_H
#define TDICT_SERVICES_COMM_SOURCE_H

#include "services/comm/call.h"
#include "services/comm/message.h"

/* Checks a tree and finds or makes its schema. `use` is as in tdict_comm_check_tree(). If there is an error,
 * out->schema is NULL. */
void tdict_comm_check_source(tdict_comm_call *call, const tdict_tree *tree, int use, tdict_comm_source *out);
/* Makes the message of a tree that was checked. Does nothing after an error. */
void tdict_comm_prepare_message(tdict_comm_call *call, const tdict_comm_source *source, tdict_block_message *out);
/* Calls tdict_row_schemas_get() for the schemas of the communicator. */
tdict_status tdict_comm_get_rows(const tdict_comm_call *call, tdict_schema *schema, int dim, int64_t rows,
                                 tdict_schema **out, tdict_error *err);

#endif
