/* Saves and opens a tree with every kind of leaf, while each host allocation fails in turn. Thread rule: one thread. */
#ifndef TDICT_TESTS_SERVICES_IO_WITHOUT_MEMORY_H
#define TDICT_TESTS_SERVICES_IO_WITHOUT_MEMORY_H

#include "random_tree.h"

/* Makes a random tree with several tensors and objects. */
static inline tdict_tree *rich_tree(void) {
  const int64_t batch = 3;
  dice d;
  for (d.state = 1;; d.state += 17) {
    tdict_tree *tree = random_tree(&d, 1, &batch, 0);
    if (tdict_num_leaves(tree) > 4 && tdict_num_objects(tree) > 2) return tree;
    tdict_release(tree);
  }
}

/* Makes each allocation of a save fail, which must leave the folder empty, and then each allocation of an open. */
static inline void save_and_open_without_memory(const folder *f, const char *name, const tdict_save_options *options) {
  scoped_tree tree = rich_tree();
  TD_WITHOUT_MEMORY_THEN(tdict_save(NULL, in(f, name), tree, options, err), assert_int_equal(folder_count(f, NULL), 0));
  TD_SWEEP(s) {
    scoped_tree back = NULL;
    const bool failed = td_refused(s, tdict_open(in(f, name), NULL, &back, err));
    assert_true(!back == failed);
    if (back) same_trees(back, tree);
  }
}

#endif
