/* Checks the trees of a rank. Thread rule: see source.h. */
#include "services/comm/source.h"

#include "core/base/error.h"

/* Finds the schema of a tree. Most programs send trees of few schemas again and again, and comparing a tree with a
 * schema takes less time than making a schema. */
static tdict_status find_schema(tdict_comm *comm, const tdict_tree *tree, tdict_schema **out, tdict_error *err) {
  tdict_schema *found = tdict_schema_cache_match(&comm->own_schemas, tree);
  if (found) *out = tdict_schema_retain(found);
  tdict_status status = found ? TDICT_OK : tdict_schema_from_tree(tree, out, err);
  if (status == TDICT_OK) tdict_schema_cache_use(&comm->own_schemas, *out);
  return status;
}

/* Fills in *out for a locked tree that was checked before, unless a check of all its tensors is needed. */
static bool use_facts(const tdict_comm_call *call, const tdict_tree *tree, int use, tdict_comm_source *out) {
  if (!tdict_tree_facts_read(call->facts, out)) return false;
  out->tree = tree;
  if (tdict_comm_check_common(call->comm, use, out)) return true;
  tdict_comm_source_reset(out);
  return false;
}

void tdict_comm_check_source(tdict_comm_call *call, const tdict_tree *tree, int use, tdict_comm_source *out) {
  const char *what = tdict_comm_what(call);
  tdict_error err;
  *out = (tdict_comm_source){0};
  if (!tree) {
    tdict_comm_note(call, tdict_fail(&err, TDICT_EINVAL, "%s: the tree is NULL", what), &err);
    return;
  }
  if (use_facts(call, tree, use, out)) return;
  tdict_status status = tdict_comm_check_tree(call->comm, what, tree, use, out, &err);
  if (status == TDICT_OK) status = find_schema(call->comm, tree, &out->schema, &err);
  if (status == TDICT_OK)
    tdict_tree_facts_write(call->facts, out);
  else
    out->schema = NULL;
  tdict_comm_note(call, status, &err);
}

void tdict_comm_prepare_message(tdict_comm_call *call, const tdict_comm_source *source, tdict_block_message *out) {
  tdict_error err;
  if (!tdict_comm_is_fine(call)) return;
  tdict_comm_note(call, tdict_message_prepare(call->comm, source, out, &err), &err);
}

tdict_status tdict_comm_get_rows(const tdict_comm_call *call, tdict_schema *schema, int dim, int64_t rows,
                                 tdict_schema **out, tdict_error *err) {
  const tdict_row_schema wanted = {.from = schema, .dim = dim, .rows = rows};
  return tdict_row_schemas_get(&call->comm->row_schemas, tdict_comm_what(call), &wanted, out, err);
}
