/* Reads lists of images, and gray images: PNG if the build found libpng, and PGM. A decoder keeps its buffer for the
 * next file. Thread rule: one thread at a time for each decoder. */
#ifndef TRAIN_IMAGES_FILES_H
#define TRAIN_IMAGES_FILES_H

#include <tdict/status.h>

/* A list in one piece of memory, which free() releases. */
typedef struct image_list {
  int64_t count;
  struct image_name {
    char path[252];
    int32_t digit;
  } images[];
} image_list;
/* Reads lines with the name of a file in `folder` and a digit. Errors: TDICT_EIO; TDICT_EFORMAT; TDICT_ENOMEM. */
tdict_status read_list(const char *folder, const char *name, image_list **out, tdict_error *err);

typedef struct decoder decoder;
/* The functions open_worker and close_worker of a dataset. `self` is not used. */
tdict_status open_decoder(void *self, int32_t worker, void **out, tdict_error *err);
void close_decoder(void *self, void *decoder);
/* Writes side * side pixels. Errors, with the path: TDICT_EIO; TDICT_EFORMAT the file is damaged; TDICT_ESHAPE the
 * image has another size; TDICT_ENOTSUP a PNG file and no libpng; TDICT_ENOMEM. */
tdict_status read_image(decoder *d, const char *path, int side, uint8_t *pixels, tdict_error *err);

#endif
