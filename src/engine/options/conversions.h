/* Reads the option `conversions`, and finds the conversion of a leaf. The caller owns the tdict_conversions. Thread
 * rule: one thread at a time. */
#ifndef TDICT_ENGINE_OPTIONS_CONVERSIONS_H
#define TDICT_ENGINE_OPTIONS_CONVERSIONS_H

#include "engine/options/patterns.h"
#include "engine/plan/plan.h"

typedef struct tdict_conversions tdict_conversions;

/* Reads `count` conversions. Borrows their patterns until tdict_conversions_destroy(). Returns TDICT_EINVAL if the
 * array or a pattern is NULL, a pattern is malformed, the sizes of two structs differ, or a scale or an offset is not
 * finite as a float32. Returns TDICT_EDTYPE if a dtype is unknown, TDICT_ENOMEM, and the errors of
 * tdict_options_read(). If a pattern is known, err->path is the pattern. `call` is the name of the public call. */
tdict_status tdict_conversions_create(const char *call, const tdict_conversion *given, size_t count,
                                      tdict_conversions **out, tdict_error *err);
/* Frees the conversions. NULL is allowed. */
void tdict_conversions_destroy(tdict_conversions *conversions);
/* Writes how `t`, the current leaf of the cursor, is converted. Sets out->rule to 0 if the leaf is copied without a
 * conversion. If the elements are images, adds their windows to `wire`. Returns TDICT_ENOTSUP if the elements cannot be
 * converted, and for images the errors of tdict_images_find(). */
tdict_status tdict_conversions_find(tdict_conversions *conversions, const tdict_cursor *cursor, const tdict_tensor *t,
                                    tdict_wire *wire, tdict_item_cast *out, tdict_error *err);
/* Returns the patterns of the conversions. */
tdict_patterns *tdict_conversions_patterns(tdict_conversions *conversions);
/* Returns true if the conversion changes the elements, and not only the dtype of the wire. */
static inline bool tdict_item_cast_changes(const tdict_item_cast *cast) {
  return cast->rule && (cast->cast.to != cast->cast.from || cast->cast.is_scaled);
}
/* Returns true if an item from the host to a device can be packed. It needs TDICT_PACK_MIN_BYTES or more, a dtype of
 * tdict_pack_supports(), and a destination in C order. Loads the device's kernels, and returns false if that fails. */
bool tdict_item_can_pack(tdict_plan *plan, const tdict_item *item);
/* Divides the conversion of an item, whose way is chosen, into the parts that host threads and a kernel do. Appends the
 * conversion to the plan. If `narrow` is true and the item has the way TDICT_WAY_STAGE_IN and no conversion, the item
 * is packed if possible. If the source is pinned, and small or images, and a kernel does the whole conversion, the way
 * becomes TDICT_WAY_DIRECT: the kernel reads the source. `pinned` is true if the device can read the source. Also sets
 * item->is_cast and item->is_whole. The caller then appends the item. Returns TDICT_ENOTSUP if the conversion needs a
 * kernel that cannot run, other errors of tdict_gpu_load_kernels(), or TDICT_ENOMEM. On failure, the plan is
 * unchanged. */
tdict_status tdict_plan_append_cast(tdict_plan *plan, const tdict_item_cast *cast, tdict_item *item, bool narrow,
                                    bool pinned, tdict_error *err);

#endif
