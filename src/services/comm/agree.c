/* Compares the headers of all ranks, and finds the first difference. Thread rule: see agree.h. */
#include "services/comm/agree.h"

#include <stdlib.h>
#include <string.h>

#include "services/comm/table.h"

void tdict_comm_write_header(const tdict_comm_call *call, tdict_comm_header *out) {
  const tdict_comm_offer *offer = &call->offer;
  *out = (tdict_comm_header){.magic = TDICT_COMM_MAGIC,
                             .version = TDICT_COMM_VERSION,
                             .op = (int32_t)call->op,
                             .root = call->has_root ? call->root : 0,
                             .dim = call->dim,
                             .reduce = call->reduce,
                             .status = call->local.status,
                             .rows = offer->rows,
                             .has_counts = offer->has_counts};
  if (!offer->schema) return;
  out->hash = tdict_schema_get_info(offer->schema).hash;
  out->blob_bytes = tdict_schema_write(offer->schema, NULL, 0);
}

tdict_status tdict_comm_send_all(const tdict_comm_call *call, void *bytes, size_t count, int32_t root,
                                 tdict_error *err) {
  const int32_t world = call->comm->table.world_size;
  const int32_t place = (call->comm->table.rank - root + world) % world; /* the root has place 0 */
  tdict_status status = TDICT_OK;
  int64_t step = 1;
  /* receive from the place without the lowest digit, then send to the places that add one lower digit */
  while (step < world && !(place & step)) step *= 2;
  if (place != 0) status = tdict_table_receive_host(call, bytes, count, (int32_t)((place - step + root) % world), err);
  for (step /= 2; step > 0 && status == TDICT_OK; step /= 2)
    if (place + step < world)
      status = tdict_table_send_host(call, bytes, count, (int32_t)((place + step + root) % world), err);
  return status;
}

static tdict_status compare_functions(const tdict_comm_call *call, int32_t r, tdict_error *err) {
  const tdict_comm_header *first = &call->comm->headers[0], *h = &call->comm->headers[r];
  const char *what = tdict_comm_what(call);
  if (h->magic != TDICT_COMM_MAGIC || h->version != TDICT_COMM_VERSION)
    return tdict_fail(err, TDICT_EFORMAT, "%s: rank %d uses version %d of the protocol, wanted %d", what, (int)r,
                      (int)(h->magic == TDICT_COMM_MAGIC ? h->version : -1), TDICT_COMM_VERSION);
  if (h->op == first->op) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: rank %d calls %s, but rank 0 calls %s", what, (int)r,
                    tdict_comm_op_name(h->op), tdict_comm_op_name(first->op));
}

static tdict_status compare_arguments(const tdict_comm_call *call, int32_t r, tdict_error *err) {
  static const char *const names[] = {"root", "dim", "op"};
  const tdict_comm_header *first = &call->comm->headers[0], *h = &call->comm->headers[r];
  const int32_t found[] = {h->root, h->dim, h->reduce}, wanted[] = {first->root, first->dim, first->reduce};
  for (int i = 0; i < 3; i++)
    if (found[i] != wanted[i])
      return tdict_fail(err, TDICT_EINVAL, "%s: rank %d has %s %d, but rank 0 has %d", tdict_comm_what(call), (int)r,
                        names[i], (int)found[i], (int)wanted[i]);
  return TDICT_OK;
}

/* Checks all ranks with `compare`. All ranks find the same difference, so the communicator stays usable. */
static tdict_status compare_all(tdict_comm_call *call,
                                tdict_status (*compare)(const tdict_comm_call *, int32_t, tdict_error *),
                                tdict_error *err) {
  tdict_status status = TDICT_OK;
  for (int32_t r = 0; r < call->comm->table.world_size && status == TDICT_OK; r++) status = compare(call, r, err);
  call->keeps_comm = status != TDICT_OK;
  return status;
}

tdict_status tdict_comm_return_error(tdict_comm_call *call, int32_t r, int32_t status, tdict_error *sent,
                                     tdict_error *err) {
  sent->path[sizeof sent->path - 1] = 0;
  sent->message[sizeof sent->message - 1] = 0;
  if (!tdict_status_is_known((tdict_status)status)) status = TDICT_EFORMAT;
  call->keeps_comm = true;
  tdict_fail_native(err, (tdict_status)status, sent->native, "rank %d: %.240s", (int)r, sent->message);
  return tdict_error_at(err, (tdict_status)status, sent->path);
}

/* Returns the error of rank `r` on all ranks. */
static tdict_status share_error(tdict_comm_call *call, int32_t r, tdict_error *err) {
  tdict_error shared = call->local;
  tdict_status status = tdict_comm_send_all(call, &shared, sizeof shared, r, err);
  if (status != TDICT_OK) return status;
  return tdict_comm_return_error(call, r, call->comm->headers[r].status, &shared, err);
}

tdict_status tdict_comm_allocate_blob(const tdict_comm_call *call, uint64_t bytes, void **out, tdict_error *err) {
  *out = bytes <= INT32_MAX ? malloc(bytes + 1) : NULL;
  if (*out) return TDICT_OK;
  return tdict_fail_memory(err, tdict_comm_what(call), NULL, "a schema of %llu bytes", (unsigned long long)bytes);
}

tdict_status tdict_comm_read_schema(const tdict_comm_call *call, const void *blob, const tdict_comm_header *header,
                                    int32_t from, tdict_schema **out, tdict_error *err) {
  tdict_schema *found = NULL;
  tdict_status status = tdict_schema_read(blob, header->blob_bytes, &found, err);
  if (status != TDICT_OK) return status;
  const tdict_hash128 hash = tdict_schema_get_info(found).hash;
  if (hash.lo != header->hash.lo || hash.hi != header->hash.hi)
    status = tdict_fail(err, TDICT_EFORMAT, "%s: the schema from rank %d does not have the announced hash",
                        tdict_comm_what(call), (int)from);
  return TDICT_HAND_OVER(status, found, out, tdict_schema_release);
}

/* Sends the schema of rank `root` to all ranks. The caller owns *out. */
static tdict_status send_schema(const tdict_comm_call *call, const tdict_schema *mine, int32_t root, tdict_schema **out,
                                tdict_error *err) {
  const tdict_comm_header *h = &call->comm->headers[root];
  const bool is_root = call->comm->table.rank == root;
  void *blob;
  tdict_status status = tdict_comm_allocate_blob(call, h->blob_bytes, &blob, err);
  if (status != TDICT_OK) return status;
  if (is_root) tdict_schema_write(mine, blob, h->blob_bytes);
  status = tdict_comm_send_all(call, blob, h->blob_bytes, root, err);
  if (status == TDICT_OK && is_root) *out = tdict_schema_retain(mine);
  if (status == TDICT_OK && !is_root) status = tdict_comm_read_schema(call, blob, h, root, out, err);
  free(blob);
  return status;
}

/* Finds the first difference between the trees of two ranks, whose schemas differ. */
static tdict_status explain(tdict_comm_call *call, int32_t first, int32_t second, tdict_error *err) {
  const tdict_schema *mine = call->offer.schema;
  tdict_schema *a = NULL, *b = NULL;
  tdict_schema_difference difference;
  tdict_status status = send_schema(call, mine, first, &a, err);
  if (status == TDICT_OK) status = send_schema(call, mine, second, &b, err);
  if (status == TDICT_OK) {
    (void)tdict_schema_equal(a, b, &difference);
    call->keeps_comm = true;
    status = tdict_fail_at(err, TDICT_ESHAPE, difference.path,
                           "%s: the trees of rank %d (first) and rank %d (second) differ: %.160s",
                           tdict_comm_what(call), (int)first, (int)second, difference.message);
  }
  tdict_schema_release(a);
  tdict_schema_release(b);
  return status;
}

static bool schemas_match(const tdict_comm_header *a, const tdict_comm_header *b) {
  return a->hash.lo == b->hash.lo && a->hash.hi == b->hash.hi && a->blob_bytes == b->blob_bytes;
}

tdict_status tdict_comm_agree(tdict_comm_call *call, bool must_match, tdict_error *err) {
  tdict_comm *c = call->comm;
  tdict_comm_header mine;
  tdict_comm_write_header(call, &mine);
  tdict_status status = tdict_table_exchange(call, &mine, c->headers, sizeof mine, err);
  if (status != TDICT_OK) return status;
  /* the steps below rely on what this rank has said itself */
  if (memcmp(&c->headers[c->table.rank], &mine, sizeof mine) != 0)
    return tdict_fail(err, TDICT_EFORMAT, "%s: the table returned another header for rank %d than this rank has sent",
                      tdict_comm_what(call), (int)c->table.rank);
  status = compare_all(call, compare_functions, err);
  if (status != TDICT_OK) return status;
  for (int32_t r = 0; r < c->table.world_size; r++)
    if (c->headers[r].status != TDICT_OK) return share_error(call, r, err);
  status = compare_all(call, compare_arguments, err);
  if (status != TDICT_OK) return status;
  const int32_t first = call->has_root ? call->root : 0;
  for (int32_t r = 0; r < c->table.world_size && must_match; r++)
    if (!schemas_match(&c->headers[r], &c->headers[first])) return explain(call, first, r, err);
  return TDICT_OK;
}

tdict_status tdict_comm_share_schema(const tdict_comm_call *call, tdict_schema *mine, int32_t root, tdict_schema **out,
                                     tdict_error *err) {
  tdict_comm *c = call->comm;
  const tdict_comm_header *h = &c->headers[root];
  tdict_schema *found = tdict_schema_cache_find(&c->schemas, h->hash, h->blob_bytes);
  tdict_schema *sent = NULL;
  tdict_status status = found ? TDICT_OK : send_schema(call, mine, root, &sent, err);
  if (status != TDICT_OK) return status;
  *out = found ? found : sent;
  tdict_schema_cache_use(&c->schemas, *out); /* retains a new schema */
  tdict_schema_release(sent);
  return TDICT_OK;
}
