/* Cuts windows out of images and converts them, see tdict_image. Elements are numbered in the order of the source:
 * image, row, column, channel. Threads copy the elements of a piece to a slot in this order, and a kernel
 * converts them and writes them to their places in the result. Keeps no state; thread-safe. */
#ifndef TDICT_ENGINE_KINDS_WINDOWS_H
#define TDICT_ENGINE_KINDS_WINDOWS_H

#include "core/base/stream_copy.h"
#include "engine/plan/plan.h"

/* Copies the elements [first, first + count) of an item to `slot`, with stores of the given kind. `slot` must be a
 * multiple of 64. */
void tdict_windows_gather(const tdict_item *item, const tdict_images *images, size_t first, size_t count, char *slot,
                          tdict_stream_kind stores);
/* Converts the elements [first, first + count) of an item within host memory. */
void tdict_windows_convert(const tdict_item *item, const tdict_item_cast *cast, size_t first, size_t count);
/* The elements [first, first + count) of an item. */
typedef struct tdict_windows_range {
  size_t first, count;
  const void *cut; /* the address of element `first` in a slot. NULL: the kernel reads the images of the item */
} tdict_windows_range;
/* Adds the conversion of elements on a device to a work. Returns the errors of tdict_kernel_add_windows(). */
tdict_status tdict_windows_add(tdict_kernel_work *work, const tdict_item *item, const tdict_item_cast *cast,
                               const tdict_windows_range *range, tdict_error *err);

#endif
