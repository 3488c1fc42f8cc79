/* Sets and returns objects at paths. The tree owns a reference to each box. Thread rule: as in tdict/tree.h. */
#include "tdict/object.h"

#include <string.h>

#include "core/base/error.h"
#include "core/tree/agree.h"
#include "core/tree/objects.h"
#include "core/tree/place.h"
#include "core/tree/text.h"

typedef struct given_object {
  const tdict_type *type;
  void *self;
  bool is_held; /* true: the path already held the object, so no box has taken it over */
} given_object;

static tdict_status set_object_at_place(const char *what, tdict_place *place, given_object *given, tdict_error *err) {
  tdict_status status = tdict_place_check_lock(place, err);
  if (status != TDICT_OK) return status;
  const tdict_demand demand = tdict_demand_of(place->node, what, place->path.whole);
  tdict_box *box = tdict_leaf_box(tdict_place_leaf(place));
  given->is_held = box && box->self == given->self;
  if (given->is_held) { /* a second box of the same object would release the object twice */
    if (box->type == given->type) return TDICT_OK;
    return tdict_fail_at(err, TDICT_EINVAL, place->path.whole,
                         "%s: the object is already at the path, with another type, named %.60s", what,
                         box->type->name);
  }
  status = tdict_box_create(given->type, given->self, &box, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, place->path.whole);
  status = tdict_agree_leaf(&demand, tdict_leaf_of_box(box), place->path.whole, err);
  /* The tree adds a reference, so drop the reference of this call. On failure the program still owns the object. */
  if (status == TDICT_OK) status = tdict_place_set(place, tdict_leaf_of_box(box), err);
  if (status == TDICT_OK)
    tdict_box_release(box);
  else
    tdict_box_discard(box);
  return status;
}

static tdict_status set_object(const char *what, tdict_tree *tree, const char *path, given_object *given,
                               tdict_error *err) {
  if (!tree || !path || !given->type || !given->self)
    return tdict_fail_null_at(err, what, path, !tree ? "tree" : !path ? "path" : !given->type ? "type" : "self");
  tdict_place place;
  tdict_status status = tdict_type_check(what, given->type, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  status = tdict_place_find(&place, tree, path, what, err);
  if (status != TDICT_OK) return status;
  status = set_object_at_place(what, &place, given, err);
  tdict_place_reset(&place);
  return status;
}

tdict_status tdict_set_object(tdict_tree *tree, const char *path, const tdict_type *type, void *self,
                              tdict_error *err) {
  return set_object("set_object", tree, path, &(given_object){type, self, false}, err);
}

tdict_status tdict_object_set(const char *what, tdict_tree *tree, const char *path, const tdict_type *type, void *self,
                              tdict_error *err) {
  given_object given = {type, self, false};
  tdict_status status = set_object(what, tree, path, &given, err);
  if (status != TDICT_OK || given.is_held) type->release(self);
  return status;
}

static tdict_status fail_object_type(const char *what, tdict_leaf leaf, const tdict_type *wanted, const char *path,
                                     tdict_error *err) {
  const tdict_box *box = tdict_leaf_box(leaf);
  /* Two types can have the same name, because types are compared by address. */
  bool same_name = box && strcmp(box->type->name, wanted->name ? wanted->name : "") == 0;
  return tdict_fail_at(err, TDICT_ETYPE, path, "%s: found %s, wanted an object of %s %.60s", what,
                       TDICT_LEAF_TEXT(leaf), same_name ? "another type named" : "type",
                       wanted->name ? wanted->name : "without a name");
}

tdict_status tdict_object_get(const char *what, const tdict_tree *tree, const char *path, const tdict_type *type,
                              void **out, tdict_error *err) {
  if (!tree || !path || !type || !out)
    return tdict_fail_null(err, what, !tree ? "tree" : !path ? "path" : !type ? "type" : "out");
  tdict_place place;
  tdict_status status = tdict_place_get(&place, tree, path, what, err);
  if (status != TDICT_OK) return status;
  tdict_leaf leaf = tdict_place_leaf(&place);
  tdict_box *box = tdict_leaf_box(leaf);
  if (box && box->type == type)
    *out = box->self;
  else
    status = fail_object_type(what, leaf, type, path, err);
  tdict_place_reset(&place);
  return status;
}

tdict_status tdict_get_object(const tdict_tree *tree, const char *path, const tdict_type *type, void **out,
                              tdict_error *err) {
  return tdict_object_get("get_object", tree, path, type, out, err);
}

const tdict_type *tdict_object_type(const tdict_tree *tree, const char *path) {
  tdict_place place;
  if (!tree || !path || tdict_place_get(&place, tree, path, "object_type", NULL) != TDICT_OK) return NULL;
  const tdict_box *box = tdict_leaf_box(tdict_place_leaf(&place));
  tdict_place_reset(&place);
  return box ? box->type : NULL;
}
