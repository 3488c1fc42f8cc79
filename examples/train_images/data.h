/* The data path of the trainer: from a list of files to normalized images on the device. */
#ifndef TRAIN_IMAGES_DATA_H
#define TRAIN_IMAGES_DATA_H

#include <tdict/tdict.h>

/* Makes a loader of the images that `list` in `folder` names. A batch has "image", f32 [rows, 1, 10, 10], and "label",
 * i32 [rows]. An image is the middle of a file, or a random window if `options.shuffle` is true. */
tdict_status open_images(tdict_context *context, const char *folder, const char *list, tdict_loader_options options,
                         tdict_loader **out, tdict_error *err);

#endif
