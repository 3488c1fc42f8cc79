/* Operations chosen by numbers - random ones, or a fuzzer's - done by the library and by the model beside it, on a few
 * trees that they make, change and take from each other. Thread rule: one thread. */
#ifndef TDICT_TESTS_SUPPORT_OPS_H
#define TDICT_TESTS_SUPPORT_OPS_H

#include "tdict/lazy_stack.h"
#include "tdict/nontensor.h"

#include "support/expressions.h"
#include "support/model.h"
#include "support/scoped.h"

enum { OPS_POOL = 5, OPS_KINDS = 96, OPS_MOST_CELLS = 600, OPS_MOST_DIMS = 5 };
typedef struct ops ops;
struct ops {
  uint32_t (*next)(ops *o); /* where choices come from */
  uint64_t state;
  const uint8_t *bytes; /* a fuzzer's */
  size_t num_bytes;
  bool failing;   /* each allocation of each operation is refused once before it may succeed */
  int64_t refuse; /* of the operation that is run: which allocation; -1: none */
  bool refused;
  int answered; /* by the operation's call; -1: none was made */
  tdict_tree *td[OPS_POOL];
  m_tree *model[OPS_POOL];
  tdict_error error, *err;                 /* err: error, or NULL */
  const char *name;                        /* of the operation that is run */
  char wrong[700];                         /* the first difference; "" if there is none */
  int64_t good[OPS_KINDS], bad[OPS_KINDS]; /* operations that succeeded, and operations that failed as the model said */
  uint64_t step;
  int64_t refusals, cells; /* sum over all operations of what the pool held */
};
const char *ops_kind_name(int kind); /* NULL: there are no more */
/* How allocations are refused; NULL where they cannot be. */
typedef struct ops_refusal {
  void (*begin)(int64_t n, bool and_all_after);
  bool (*end)(void);
} ops_refusal;
extern ops_refusal ops_refuse;

uint32_t ops_random(ops *o);
uint32_t ops_from_bytes(ops *o);
/* One operation; false when something was wrong, which o->wrong says. All trees are compared when `all` is set or after
 * a failure, else the ones that took part. */
bool ops_step(ops *o, bool all);
void ops_reset(ops *o); /* gives all trees back and begins anew; counts and choices go on */
void ops_end(ops *o);   /* gives all trees and the context back */

/* For the operations. */
uint32_t ops_pick(ops *o, uint32_t below);
/* Around the one call of the library that an operation is about. */
void ops_arm(ops *o);
tdict_status ops_disarm(ops *o, tdict_status status);
#define OPS_CALL(o, call) (ops_arm(o), ops_disarm(o, (call)))
/* Returns true if the call returned the model's status and this is TDICT_OK. The operation then continues. */
bool ops_judge(ops *o, tdict_status status, tdict_status wanted);
/* Puts a result (taken) into the pool; releases it when the operation failed. */
void ops_keep(ops *o, tdict_tree *td, m_tree *model);
/* A tree of the pool. */
int ops_slot(ops *o);
int64_t ops_cells(const m_tree *t);
/* A tensor with elements of an array's cells. */
tdict_tensor *ops_tensor(const m_array *a);
/* A library's tree of a model's, in new storage; no node has a device. */
tdict_tree *ops_tree(const m_tree *t);
/* What a tree demands of one that comes below it: OK or ESHAPE. */
tdict_status ops_agrees(const m_tree *t, const m_tree *under);
/* True when that one is not as demanded and is copied; and the change of the copy. */
bool ops_grows(const m_tree *t, const m_tree *under);
void ops_grow(m_tree *t, const m_tree *under);
void ops_complain(ops *o, const char *text);
/* Complains if a tensor has other elements than an array, wherever they are; or a tree than a model. */
void ops_check_tensor(ops *o, const m_array *a, tdict_tensor *t);
void ops_check_tree(ops *o, const m_tree *model, const tdict_tree *td);
/* The array at an escaped path, or NULL. */
m_array *ops_array_at(const m_tree *t, const char *path);
/* A number as an element of a dtype of the pool, or of int32 and bool. */
uint64_t ops_number(tdict_dtype dtype, int value);
/* The elements of arrays joined along a dimension, which is new if `stacks`. */
m_array *ops_joined_array(const m_array *const *parts, int count, int dim, bool stacks);
/* Trees of the same keys and shapes as one tree with a new first dimension. */
m_tree *ops_stacked(const m_tree *const *items, int count);
/* The first *(int64_t *)user elements of the first dimension, copied: for m_tree_each(). */
m_array *ops_first_rows(const m_array *a, void *user);

/* A list of trees with one batch size, as the items of a lazy stack. */
enum { OPS_MOST_ITEMS = 4, OPS_VARY_KEYS = 1, OPS_VARY_SHAPES = 2, OPS_VARY_DTYPES = 4 };
typedef struct ops_pile {
  int count;
  m_tree *models[OPS_MOST_ITEMS];
  tdict_tree *trees[OPS_MOST_ITEMS]; /* references of its own */
  tdict_lazy_stack *lazy;
} ops_pile;
/* Makes a pile of a tree of the pool, and of trees that are like it but for what `varies` names. False: no tree is
 * fit. */
bool ops_begin_pile(ops *o, ops_pile *p, int varies);
bool ops_begin_pile_with(ops *o, ops_pile *p, m_tree *model, tdict_tree *td, int varies); /* of this tree */
/* The cells of the arrays at a path, one item after the other. */
m_array *ops_join_items(const ops_pile *p, const char *path);
/* Complains if an item is not as its model, and gives the pile back. */
void ops_end_pile(ops *o, ops_pile *p);

/* A context with a simulated device, made when it is first asked for. */
tdict_context *ops_context(void);
void ops_close_context(void);
/* Moves a tree to the simulated device and back. */
tdict_status ops_there_and_back(const tdict_tree *td, tdict_tree **out, tdict_error *err);

/* Operations that make a tree of a tree, with small numbers for their arguments. */
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

/* Leaves that are not tensors, beside a tensor that moves with them. ops_put_values() sets in a tree: "ids", an int64
 * of the batch size whose elements differ; "s", the column of the values that ops_value() gives for these numbers; "w",
 * the text "whole"; "u", an unbatched tensor; and "kid", a child of one more batch dimension with its own ids, s and w.
 */
enum { OPS_VALUE_BYTES = 64 };
void ops_value(int64_t id, tdict_value *out, char text[OPS_VALUE_BYTES]);
bool ops_same_value(const tdict_value *a, const tdict_value *b);
void ops_put_values(tdict_tree *td);
/* An operation on a tree with such leaves, beside the same on the tree without them. */
void ops_make_with_values(ops *o, ops_maker fn, uint32_t ways);
/* Operations that leave every element at its index, or give a tree a new first dimension. */
enum { OPS_WHOLE_WAYS = 4, OPS_WAYS_OF_ALL_LEAVES = 2 };
tdict_status ops_whole_of(const tdict_tree *td, const ops_choice *c, tdict_tree **out, tdict_error *err);
/* What is wrong with such leaves after an operation, or NULL. */
const char *ops_check_values(const tdict_tree *td);

typedef void (*ops_fn)(ops *o);
void ops_schema(ops *o);      /* of ops_more */
void ops_schema_pair(ops *o); /* of ops_sequences */
void ops_to_dtype(ops *o);    /* the last of ops_children, so that the numbers of the others stay */
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
