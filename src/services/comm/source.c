/* Checks the trees of a rank. Thread rule: see agree.h. */
#include "services/comm/agree.h"

#include <stdlib.h>

#include "core/base/error.h"

enum { FACTS_UNKNOWN, FACTS_WRITTEN, FACTS_KNOWN };
struct tdict_tree_facts {
  tdict_attachment attachment; /* first member, because detach() receives its address */
  _Atomic(int64_t) refs;       /* of the tree and of the calls */
  /* acq_rel. WRITTEN: a call writes `found`. A call that comes meanwhile checks the tree itself, and does not wait: in
   * a forked child, the state may stay for ever */
  _Atomic(int) state;
  tdict_comm_source found; /* valid and constant if the state is KNOWN; borrows the storage */
};

void tdict_tree_facts_release(tdict_tree_facts *facts) {
  if (!facts || atomic_fetch_sub_explicit(&facts->refs, 1, memory_order_acq_rel) != 1) return;
  tdict_comm_source_reset(&facts->found);
  free(facts);
}

static void detach_facts(tdict_attachment *attachment) { tdict_tree_facts_release((tdict_tree_facts *)attachment); }

static tdict_tree_facts *find_facts(const tdict_tree *tree) {
  tdict_tree_facts *facts = (tdict_tree_facts *)tdict_node_attachment(tree, TDICT_ATTACHED_FACTS);
  if (facts) atomic_fetch_add_explicit(&facts->refs, 1, memory_order_relaxed);
  return facts;
}

tdict_tree_facts *tdict_tree_facts_get(const tdict_tree *tree) {
  if (!tree || !tree->locked) return NULL;
  tdict_tree_facts *facts = find_facts(tree);
  if (facts) return facts;
  facts = calloc(1, sizeof *facts);
  if (!facts) return NULL;
  facts->attachment.detach = detach_facts;
  atomic_init(&facts->refs, 2); /* of the tree and of the caller */
  atomic_init(&facts->state, FACTS_UNKNOWN);
  if (tdict_node_attach(tree, TDICT_ATTACHED_FACTS, &facts->attachment)) return facts;
  free(facts);
  return find_facts(tree); /* which another thread has attached meanwhile */
}

/* Finds the schema of a tree. Programs send trees of few schemas, and comparing is faster than making one. */
static tdict_status find_schema(tdict_comm *comm, const tdict_tree *tree, tdict_schema **out, tdict_error *err) {
  tdict_schema *found = tdict_schema_cache_match(&comm->own_schemas, tree);
  if (found) *out = tdict_schema_retain(found);
  tdict_status status = found ? TDICT_OK : tdict_schema_from_tree(tree, out, err);
  if (status == TDICT_OK) tdict_schema_cache_use(&comm->own_schemas, *out);
  return status;
}

/* Fills in *out for a locked tree that was checked before, unless a check of all its tensors is needed. */
static bool use_facts(const tdict_comm_call *call, const tdict_tree *tree, int use, tdict_comm_source *out) {
  const tdict_tree_facts *facts = call->facts;
  if (!facts || atomic_load_explicit(&facts->state, memory_order_acquire) != FACTS_KNOWN) return false;
  *out = facts->found;
  out->schema = tdict_schema_retain(out->schema);
  out->tree = tree; /* the tree of the facts, or a copy */
  if (tdict_comm_check_common(call->comm, use, out)) return true;
  tdict_comm_source_reset(out);
  return false;
}

/* Stores what a check of the tree has found, if the tensors have a common storage and the facts are still unknown. */
static void write_facts(tdict_tree_facts *facts, const tdict_comm_source *found) {
  int unknown = FACTS_UNKNOWN;
  if (!facts || !found->common) return;
  if (!atomic_compare_exchange_strong_explicit(&facts->state, &unknown, FACTS_WRITTEN, memory_order_acq_rel,
                                               memory_order_acquire))
    return;
  facts->found = *found;
  facts->found.tree = NULL; /* a call may have a copy of the tree */
  facts->found.schema = tdict_schema_retain(found->schema);
  atomic_store_explicit(&facts->state, FACTS_KNOWN, memory_order_release);
}

void tdict_comm_check_source(tdict_comm_call *call, const tdict_tree *tree, int use) {
  const char *what = tdict_comm_what(call);
  tdict_comm_source *source = &call->source;
  tdict_error err;
  tdict_status status = tree ? TDICT_OK : tdict_fail(&err, TDICT_EINVAL, "%s: the tree is NULL", what);
  if (status == TDICT_OK && !use_facts(call, tree, use, source)) {
    status = tdict_comm_check_tree(call->comm, what, tree, use, source, &err);
    if (status == TDICT_OK) status = find_schema(call->comm, tree, &source->schema, &err);
    if (status == TDICT_OK) write_facts(call->facts, source);
  }
  call->offer.schema = source->schema;
  if (status != TDICT_OK && tdict_comm_is_fine(call)) call->local = err;
}

tdict_status tdict_comm_get_rows(const tdict_comm_call *call, tdict_schema *schema, int dim, int64_t rows,
                                 tdict_schema **out, tdict_error *err) {
  const tdict_row_schema wanted = {.from = schema, .dim = dim, .rows = rows};
  return tdict_row_schemas_get(&call->comm->row_schemas, tdict_comm_what(call), &wanted, out, err);
}
