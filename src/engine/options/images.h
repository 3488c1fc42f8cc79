/* Reads the images of a conversion, see tdict_image: checks the options, and finds the windows of a leaf. Thread rule:
 * one thread at a time. */
#ifndef TDICT_ENGINE_OPTIONS_IMAGES_H
#define TDICT_ENGINE_OPTIONS_IMAGES_H

#include "core/kernel/work.h"
#include "core/tree/cursor.h"
#include "engine/plan/image.h"
#include "tdict/wire.h"

/* Reads rule->image to *image, and lets rule->image point to *image. `what` names the conversion in messages. Returns
 * TDICT_EDTYPE if the result is not a float of 16 or 32 bits, TDICT_EINVAL if an option is wrong or contradicts
 * another, and the errors of tdict_options_read(). */
tdict_status tdict_images_read(tdict_conversion *rule, tdict_image *image, const char *what, tdict_error *err);
/* Finds the windows of the leaf `t` at the cursor, and adds them to the front of *list. If the windows are in a leaf
 * of the cursor's tree, waits for transfers that write this leaf, and reads it. `rule` was read by tdict_images_read(),
 * and `cast` has its scale and its offset.
 * Returns the errors that tdict/wire.h lists for tdict_image, TDICT_ENOTFOUND and TDICT_ETYPE if there is no tensor at
 * the path of the windows, the errors of tdict_tensor_refuse_lost() for this tensor, or TDICT_ENOMEM. If the windows
 * are the cause, err->path is their path. */
tdict_status tdict_images_find(const tdict_conversion *rule, const tdict_cast *cast, const tdict_cursor *cursor,
                               const tdict_tensor *t, tdict_images **list, tdict_error *err);

#endif
