/* Declares the facts that communicators have found about a locked tree. The keys, shapes and places of the tensors of a
 * locked tree do not change, so a later call with the tree need not read the tensors again. The facts are attached to
 * the root of the tree until the tree is unlocked or freed. They do not depend on a communicator. Each call holds a
 * reference, because an asynchronous call may run after the tree was unlocked, with a copy of the tree. Thread rule:
 * several calls may use the facts at the same time. No thread may unlock or free the tree during tdict_tree_facts_get()
 * and tdict_comm_prepare(). */
#ifndef TDICT_SERVICES_COMM_TREE_FACTS_H
#define TDICT_SERVICES_COMM_TREE_FACTS_H

#include "services/comm/message.h"

typedef struct tdict_tree_facts tdict_tree_facts;

/* Returns a new reference to the facts of a tree. Attaches facts that are still unknown if the tree has none. Returns
 * NULL if the tree is NULL, if tdict_lock() has not locked its root, or if host memory is exhausted. */
tdict_tree_facts *tdict_tree_facts_get(const tdict_tree *tree);
/* If the facts are known, fills in *out except `tree` and `is_near`, and returns true. The caller must have the tree,
 * or a copy of the tree, because *out borrows the storage. `facts` may be NULL. */
bool tdict_tree_facts_read(const tdict_tree_facts *facts, tdict_comm_source *out);
/* Stores what a check of the tree has found, if the tensors have a common storage and the facts are still unknown.
 * Retains the schema. `facts` may be NULL. */
void tdict_tree_facts_write(tdict_tree_facts *facts, const tdict_comm_source *found);
/* Drops a reference. NULL is allowed. */
void tdict_tree_facts_release(tdict_tree_facts *facts);

#endif
