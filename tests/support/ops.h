/* Runs random operations, or operations that a fuzzer chooses, with the library and with the model, and compares the
 * results. The operations make and change a small pool of trees. Thread rule: one thread. */
#ifndef TDICT_TESTS_SUPPORT_OPS_H
#define TDICT_TESTS_SUPPORT_OPS_H

#include "tdict/lazy_stack.h"
#include "tdict/nontensor.h"
#include "tdict/visit.h"

#include "support/expressions.h"
#include "support/model.h"
#include "support/scoped.h"

enum { OPS_POOL = 5, OPS_KINDS = 96, OPS_MOST_CELLS = 600, OPS_MOST_DIMS = 5 };
typedef struct ops ops;
struct ops {
  uint32_t (*next)(ops *o); /* returns a number for the next choice */
  uint64_t state;
  const uint8_t *bytes; /* the fuzzer's input */
  size_t num_bytes;
  bool failing;   /* each operation is repeated, with each of its allocations refused in turn */
  int64_t refuse; /* number of the allocation to refuse in the current operation; -1: none */
  bool refused;
  int answered; /* status of the operation's call; -1: no call was made */
  tdict_tree *td[OPS_POOL];
  m_tree *model[OPS_POOL];
  tdict_error error, *err;                 /* err: &error, or NULL */
  const char *name;                        /* the current operation */
  char wrong[700];                         /* the first difference; "" if there is none */
  int64_t good[OPS_KINDS], bad[OPS_KINDS]; /* numbers of operations that succeeded, and that failed as expected */
  uint64_t step;
  int64_t refusals, cells; /* cells: sum of the cells in the pool over all operations */
};
const char *ops_kind_name(int kind); /* NULL: no such kind */
/* The functions that make allocations fail. NULL: the program cannot do this. */
typedef struct ops_refusal {
  void (*begin)(int64_t n, bool and_all_after);
  bool (*end)(void);
} ops_refusal;
extern ops_refusal ops_refuse;

uint32_t ops_random(ops *o);
uint32_t ops_from_bytes(ops *o);
/* Runs one operation. If a result is wrong, writes the difference to o->wrong and returns false. Compares each new tree
 * with its model, and the whole pool if `all` is true or an allocation was refused. */
bool ops_step(ops *o, bool all);
void ops_reset(ops *o); /* releases all trees and makes a new pool; counts and choices continue */
void ops_end(ops *o);   /* releases all trees of the pool and the context */

/* Functions for operations. ops_pick() returns a random number below `below`. */
uint32_t ops_pick(ops *o, uint32_t below);
/* ops_arm() and ops_disarm() are called before and after the main library call of an operation. They make allocation
 * number o->refuse fail. */
void ops_arm(ops *o);
tdict_status ops_disarm(ops *o, tdict_status status);
#define OPS_CALL(o, call) (ops_arm(o), ops_disarm(o, (call)))
/* Complains if `status` differs from `wanted`, the status that the model expects. Returns whether both are TDICT_OK. */
bool ops_judge(ops *o, tdict_status status, tdict_status wanted);
/* Compares a result with its model. Then puts it into the pool, or releases it if it is too large. */
void ops_keep(ops *o, tdict_tree *td, m_tree *model);
/* Returns the slot of a random tree in the pool. */
int ops_slot(ops *o);
int64_t ops_cells(const m_tree *t);
/* Returns a new tensor with the elements of an array. */
tdict_tensor *ops_tensor(const m_array *a);
/* Returns a tree of the library with the elements of a model, in new storages. No node has a device. */
tdict_tree *ops_tree(const m_tree *t);
/* Returns the status that adding `t` below `under` must return: TDICT_OK or TDICT_ESHAPE. */
tdict_status ops_agrees(const m_tree *t, const m_tree *under);
/* ops_grows() returns whether `t` must be copied before it is added below `under`. ops_grow() then changes the copy. */
bool ops_grows(const m_tree *t, const m_tree *under);
void ops_grow(m_tree *t, const m_tree *under);
void ops_complain(ops *o, const char *text);
/* Complain if a tensor differs from an array, or a tree from a model. Addresses are not compared. */
void ops_check_tensor(ops *o, const m_array *a, tdict_tensor *t);
void ops_check_tree(ops *o, const m_tree *model, const tdict_tree *td);
/* Returns the array at an escaped path, or NULL. */
m_array *ops_array_at(const m_tree *t, const char *path);
/* Returns the bits of a number as an element of type int32, bool or a dtype of the pool. */
uint64_t ops_number(tdict_dtype dtype, int value);
/* Returns an array that joins arrays along a dimension. If `stacks` is true, the dimension is new. */
m_array *ops_joined_array(const m_array *const *parts, int count, int dim, bool stacks);
/* Returns a tree that stacks trees with equal keys and shapes along a new first dimension. */
m_tree *ops_stacked(const m_tree *const *items, int count);
/* A function for m_tree_each(): copies the first *(int64_t *)user elements of the first dimension. */
m_array *ops_first_rows(const m_array *a, void *user);

/* The items of a lazy stack: trees with equal batch sizes, and their models. */
enum { OPS_MOST_ITEMS = 4, OPS_VARY_KEYS = 1, OPS_VARY_SHAPES = 2, OPS_VARY_DTYPES = 4 };
typedef struct ops_pile {
  int count;
  m_tree *models[OPS_MOST_ITEMS];
  tdict_tree *trees[OPS_MOST_ITEMS]; /* the pile has a reference to each */
  tdict_lazy_stack *lazy;
} ops_pile;
/* Makes a pile from a tree of the pool and similar trees. `varies` says what may differ between them. Returns false if
 * the tree is unsuitable. */
bool ops_begin_pile(ops *o, ops_pile *p, int varies);
bool ops_begin_pile_with(ops *o, ops_pile *p, m_tree *model, tdict_tree *td, int varies); /* uses the given tree */
/* Returns an array that stacks the cells of all items at a path. */
m_array *ops_join_items(const ops_pile *p, const char *path);
/* Complains if an item differs from its model. Then releases the pile. */
void ops_end_pile(ops *o, ops_pile *p);

/* Returns the context with a simulated device. The first call creates the context. */
tdict_context *ops_context(void);
void ops_close_context(void);
/* Moves a tree to the simulated device and back. */
tdict_status ops_there_and_back(const tdict_tree *td, tdict_tree **out, tdict_error *err);

/* The random choices of an operation that makes a tree from a tree: which call, and numbers for its arguments. */
typedef struct ops_choice {
  uint32_t way; /* below OPS_INDICES, OPS_SHAPES or OPS_JOINS */
  int64_t n[4]; /* -1, 0 or 1 */
} ops_choice;
typedef tdict_status (*ops_maker)(const tdict_tree *td, const ops_choice *c, tdict_tree **out, tdict_error *err);
enum { OPS_INDICES = 6, OPS_SHAPES = 7, OPS_JOINS = 6 };
ops_choice ops_choose(ops *o, uint32_t ways);
tdict_status ops_index_of(const tdict_tree *td, const ops_choice *c, tdict_tree **out, tdict_error *err);
tdict_status ops_shape_of(const tdict_tree *td, const ops_choice *c, tdict_tree **out, tdict_error *err);
tdict_status ops_join_of(const tdict_tree *td, const ops_choice *c, tdict_tree **out, tdict_error *err);

/* Returns whether no cell occurs twice in an array of the tree. */
bool ops_all_distinct(const m_tree *t);
/* Copies a leaf, for tdict_apply(). */
tdict_status ops_copy_leaf(void *user, const tdict_leaves *leaves, tdict_tensor **out, tdict_error *err);

/* Leaves that are not tensors, and a tensor that identifies their elements. ops_put_values() adds to a tree: "ids", an
 * int64 tensor whose elements all differ; "s", a column with the values of ops_value() for these numbers; "w", the text
 * "whole"; "u", an unbatched tensor; and "kid", a child with one more batch dimension and its own ids, s and w. */
enum { OPS_VALUE_BYTES = 64 };
void ops_value(int64_t id, tdict_value *out, char text[OPS_VALUE_BYTES]);
bool ops_same_value(const tdict_value *a, const tdict_value *b);
void ops_put_values(tdict_tree *td);
/* Runs an operation on a tree with such leaves and on the same tree without them, and compares the results. */
void ops_make_with_values(ops *o, ops_maker fn, uint32_t ways);
/* Operations that keep the index of each element, or add a new first dimension. */
enum { OPS_WHOLE_WAYS = 4, OPS_WAYS_OF_ALL_LEAVES = 2 };
tdict_status ops_whole_of(const tdict_tree *td, const ops_choice *c, tdict_tree **out, tdict_error *err);
/* Checks such leaves after an operation. Returns NULL, or a string that says what is wrong. */
const char *ops_check_values(const tdict_tree *td);

typedef void (*ops_fn)(ops *o);
void ops_schema(ops *o);      /* listed in ops_more */
void ops_schema_pair(ops *o); /* listed in ops_sequences */
void ops_to_dtype(ops *o);    /* last in ops_children, so that other operations keep their numbers */
extern const ops_fn ops_shapes[], ops_writes[], ops_keys[], ops_more[], ops_objects[], ops_values[], ops_children[],
    ops_ragged[], ops_stacks[], ops_dense[], ops_sequences[], ops_transfers[];
extern const int ops_num_shapes, ops_num_writes, ops_num_keys, ops_num_more, ops_num_objects, ops_num_values,
    ops_num_children, ops_num_ragged, ops_num_stacks, ops_num_dense, ops_num_sequences, ops_num_transfers;
extern const char *const ops_shape_names[], *const ops_write_names[], *const ops_key_names[], *const ops_more_names[];
extern const char *const ops_object_names[], *const ops_child_names[], *const ops_value_names[],
                                                                           *const ops_ragged_names[];
extern const char *const ops_stack_names[], *const ops_dense_names[], *const ops_sequence_names[];
extern const char *const ops_transfer_names[];

#endif
