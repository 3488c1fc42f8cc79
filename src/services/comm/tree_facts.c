/* Implements the facts about locked trees. Thread rule: see tree_facts.h. */
#include "services/comm/tree_facts.h"

#include <stdlib.h>

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

/* Returns a new reference to the attached facts, or NULL. */
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

bool tdict_tree_facts_read(const tdict_tree_facts *facts, tdict_comm_source *out) {
  if (!facts || atomic_load_explicit(&facts->state, memory_order_acquire) != FACTS_KNOWN) return false;
  *out = facts->found;
  out->schema = tdict_schema_retain(out->schema);
  return true;
}

void tdict_tree_facts_write(tdict_tree_facts *facts, const tdict_comm_source *found) {
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
