/* Objects on their way through an operation on trees: by a hook of their own that does just that, else as a tree of
 * their tensors, which their type shows (flatten) and takes back (unflatten); else they are refused, the hook that they
 * lack being named. Thread rule: as in tdict/tree.h; hooks run on the calling thread, with no lock held. */
#ifndef TDICT_TREE_OBJECTS_H
#define TDICT_TREE_OBJECTS_H

#include "tensor/affine.h"
#include "tree/cursor.h"

/* What an operation asks an object for before it asks for its tensors. */
typedef enum tdict_way {
  TDICT_WAY_TENSORS, /* nothing */
  TDICT_WAY_SAME,    /* nothing: all elements stay where they are, and the object with them */
  TDICT_WAY_CLONE,
  TDICT_WAY_INDEX,
  TDICT_WAY_STACK
} tdict_way;
/* One element of each of the first dimensions. */
typedef struct tdict_pick {
  int depth;
  int64_t at[TDICT_MAX_NDIM];
} tdict_pick;
/* The way of a map of all batch dimensions of `shape`: by picks, which are written, when it takes one element of each of
 * the first dimensions and leaves the others as they are. */
tdict_way tdict_way_of(const tdict_affine *a, const int64_t *shape, tdict_pick *pick);

/* What the hooks give, in a box with a reference of the caller's. Errors of the hook, TDICT_EHOOK, TDICT_ENOMEM. */
tdict_status tdict_box_clone(tdict_box *box, tdict_box **out, tdict_error *err);
tdict_status tdict_box_index(tdict_box *box, const tdict_pick *pick, tdict_box **out, tdict_error *err);
tdict_status tdict_box_stack(const tdict_leaf *boxes, size_t count, tdict_box **out, tdict_error *err);

/* How objects are shown as trees. Their tensors must begin with these batch dimensions. */
typedef struct tdict_opening {
  const char *what;
  tdict_way way;      /* objects that take it stay, */
  bool tensors_first; /* but for those that can show their tensors: hooks know no memory */
  int batch_ndim;
  const int64_t *batch_size;
  const char *above; /* the path of the tree, for messages; NULL: none */
} tdict_opening;
/* A tree of an object's tensors, which shares them. TDICT_ENOTSUP a type without flatten; TDICT_EHOOK an object in what
 * it gave; TDICT_ESHAPE other dimensions, err->path being `path` and below it; errors of the hook. */
tdict_status tdict_box_open(const tdict_opening *opening, const tdict_box *box, const char *path, tdict_tree **out,
                            tdict_error *err);
/* A copy of a tree's nodes, not locked, with its objects opened. The same; TDICT_ENOMEM. */
tdict_status tdict_objects_open(const tdict_opening *opening, const tdict_tree *td, tdict_tree **out, tdict_error *err);
/* The other way: `made` has nodes of its own with the slots of `like`; where that has an object and it a tree, the object
 * is made of the tree. One without any leaf of those that were there is left out (0), one that lacks some is
 * TDICT_EINVAL. */
tdict_status tdict_objects_close(const char *what, const tdict_tree *like, tdict_tree *made, tdict_error *err);

/* Pairs of objects of which one is written to the other: opened in a first way through, which looks, and used in the same
 * order in a second one. Owned by one call. */
typedef struct tdict_open_pair {
  tdict_tree *to, *from;
} tdict_open_pair;
typedef struct tdict_open_pairs {
  tdict_open_pair *items; /* to be all 0 at first */
  size_t count, cap, next;
} tdict_open_pairs;
/* Opens both. Errors of tdict_box_open(); TDICT_ETYPE two types; TDICT_ENOMEM. */
tdict_status tdict_open_pairs_add(tdict_open_pairs *pairs, const tdict_opening *to, const tdict_opening *from,
                                  const tdict_leaf boxes[2], const char *path, tdict_error *err);
/* The pair that was added last, or, in the second way through, the next one. */
tdict_open_pair tdict_open_pairs_take(tdict_open_pairs *pairs, bool last);
void tdict_open_pairs_reset(tdict_open_pairs *pairs);

/* TDICT_ETYPE when one of the boxes is of another type than the first. */
tdict_status tdict_objects_check_types(const char *what, const tdict_leaf *boxes, size_t count, tdict_error *err);

#endif
