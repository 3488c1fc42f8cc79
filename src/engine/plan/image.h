/* Declares what a plan keeps of a leaf whose elements are images, see tdict_image. The plan owns these structs, which
 * options/images.c creates. No thread changes a struct after the plan was made. */
#ifndef TDICT_ENGINE_PLAN_IMAGE_H
#define TDICT_ENGINE_PLAN_IMAGE_H

#include <stdlib.h>

#include "core/kernel/words.h"
#include "core/tensor/tensor.h"

typedef struct tdict_images tdict_images;
struct tdict_images {
  tdict_images *next;
  tdict_tensor like; /* has the shape and the number of elements of the result, and the dtype of the source */
  int64_t dims[TDICT_MAX_NDIM];
  uint64_t channels, height, width, image_height, image_width; /* height and width: of the windows */
  bool channels_first;
  uint64_t scales[TDICT_WINDOW_CHANNELS]; /* for each channel, see TDICT_CONVERT_SCALE */
  uint64_t places[];                      /* for each image the place of its window, see TDICT_PLACE_TOP */
};

/* Frees a list. NULL is allowed. */
static inline void tdict_images_free(tdict_images *list) {
  for (tdict_images *next; list; list = next) {
    next = list->next;
    free(list);
  }
}

#endif
