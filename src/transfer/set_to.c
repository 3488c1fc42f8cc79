/* Setting a tensor that lives elsewhere: it is moved to the tree's device first. The moved tensor is the tree's.
 * Thread rule: as tdict_set() and tdict_to_device(). */
#include "base/error.h"
#include "device/devices.h"
#include "tdict/transfer.h"
#include "tree/place.h"

static const char what[] = "set_to";

/* A tensor with the elements of `tensor` on `device`. */
static tdict_status move(tdict_context *c, tdict_tensor *tensor, tdict_device device, tdict_tensor **out,
                         tdict_error *err) {
  tdict_tree *one = NULL, *moved = NULL;
  tdict_status status = tdict_create(0, NULL, &one, err);
  if (status != TDICT_OK) return status;
  status = tdict_set(one, "tensor", tensor, err);
  if (status == TDICT_OK) status = tdict_to_device(c, one, device, NULL, &moved, err);
  if (status == TDICT_OK) status = tdict_get(moved, "tensor", out, err);
  if (status == TDICT_OK) *out = tdict_tensor_retain(*out);
  tdict_release(moved);
  tdict_release(one);
  return status;
}

tdict_status tdict_set_to(tdict_context *c, tdict_tree *td, const char *path, tdict_tensor *tensor, tdict_error *err) {
  tdict_place place;
  tdict_tensor *moved = NULL;
  if (!c || !td || !path || !tensor)
    return tdict_fail(err, TDICT_EINVAL, "%s: %s is NULL", what, !c ? "c" : !td ? "td" : !path ? "path" : "tensor");
  tdict_status status = tdict_place_find(&place, td, path, what, err);
  if (status != TDICT_OK) return status;
  const bool moves = place.node->has_device && (!tdict_device_equal(place.node->device, tdict_tensor_device(tensor)) ||
                                                !tdict_devices_own_storage(tdict_context_devices(c), tensor->storage));
  const tdict_device device = place.node->device;
  if (moves) status = tdict_place_check_lock(&place, err); /* before bytes travel in vain */
  tdict_place_reset(&place);
  if (status != TDICT_OK) return status;
  if (!moves) return tdict_set(td, path, tensor, err);
  status = move(c, tensor, device, &moved, err);
  if (status != TDICT_OK) return tdict_error_at(err, status, path);
  status = tdict_set(td, path, moved, err);
  tdict_tensor_release(moved);
  return status;
}
