/* Declares the first step of a collective call: all ranks exchange headers and compare them. All ranks decide the same,
 * because they see the same headers. Thread rule: only the call whose turn it is. */
#ifndef TDICT_SERVICES_COMM_AGREE_H
#define TDICT_SERVICES_COMM_AGREE_H

#include "services/comm/call.h"

/* What a rank says about its tree. */
typedef struct tdict_comm_offer {
  const tdict_schema *schema; /* borrowed; NULL: this rank has no tree */
  int64_t rows;
  bool has_counts;
} tdict_comm_offer;

/* Writes the header of a call. */
void tdict_comm_write_header(const tdict_comm_call *call, const tdict_comm_offer *offer, tdict_comm_header *out);
/* Exchanges headers, and leaves the headers of all ranks in comm->headers. If `must_match` is true, all ranks must have
 * trees with equal schemas. In the following cases, all ranks return the same error, and call->keeps_comm is true:
 * TDICT_EINVAL if the ranks call different functions or pass different arguments; TDICT_EFORMAT for another version;
 * TDICT_ESHAPE, with the path, if the trees differ. If the checks of a rank have failed, all ranks return the error of
 * the first such rank. Also returns errors of the table, and TDICT_ENOMEM. */
tdict_status tdict_comm_agree(tdict_comm_call *call, const tdict_comm_offer *offer, bool must_match, tdict_error *err);
/* Sends host bytes of rank `root` to all ranks, in as many steps as the number of ranks has binary digits. */
tdict_status tdict_comm_send_all(const tdict_comm_call *call, void *bytes, size_t count, int32_t root,
                                 tdict_error *err);
/* Gives all ranks the schema of rank `root`, which its header describes. Sends the blob only if the schema is not in
 * the cache. `mine` is the schema of the root on the root, else NULL. *out is borrowed from the cache. Returns
 * TDICT_EFORMAT for a blob that is malformed or does not have the hash, TDICT_ENOMEM, and errors of the table. */
tdict_status tdict_comm_share_schema(const tdict_comm_call *call, tdict_schema *mine, int32_t root, tdict_schema **out,
                                     tdict_error *err);
/* Reads a blob that another rank has sent, and checks its hash. Writes *out on success only. */
tdict_status tdict_comm_read_schema(const tdict_comm_call *call, const void *blob, const tdict_comm_header *header,
                                    int32_t from, tdict_schema **out, tdict_error *err);

#endif
