/* Lists and decoders. See files.h. */
#include "files.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef TRAIN_IMAGES_PNG
#include <png.h>
#endif

struct decoder {
  char *bytes; /* of the file, with a zero byte at the end */
  size_t room, size;
};

tdict_status open_decoder(void *self, int32_t worker, void **out, tdict_error *err) {
  (void)self, (void)worker;
  *out = calloc(1, sizeof(decoder));
  return *out ? TDICT_OK : tdict_error_set(err, TDICT_ENOMEM, NULL, "no memory for a decoder");
}

void close_decoder(void *self, void *state) {
  decoder *d = state;
  (void)self;
  free(d->bytes);
  free(d);
}

static tdict_status read_file(decoder *d, const char *path, tdict_error *err) {
  FILE *file = fopen(path, "rb");
  tdict_status status = TDICT_OK;
  if (!file) return tdict_error_set(err, TDICT_EIO, path, "%s", strerror(errno));
  d->size = 0;
  for (size_t got = 1; got > 0 && status == TDICT_OK; d->size += got) {
    if (d->size + 1 >= d->room) {
      char *bytes = realloc(d->bytes, 2 * d->room + 4096);
      if (!bytes) {
        status = tdict_error_set(err, TDICT_ENOMEM, path, "no memory for the file");
        break;
      }
      d->bytes = bytes;
      d->room = 2 * d->room + 4096;
    }
    got = fread(d->bytes + d->size, 1, d->room - d->size - 1, file);
  }
  if (status == TDICT_OK && ferror(file)) status = tdict_error_set(err, TDICT_EIO, path, "%s", strerror(errno));
  fclose(file);
  if (status == TDICT_OK) d->bytes[d->size] = 0;
  return status;
}

static tdict_status check_size(const char *path, long width, long height, int side, tdict_error *err) {
  if (width == side && height == side) return TDICT_OK;
  return tdict_error_set(err, TDICT_ESHAPE, path, "%ld x %ld pixels, wanted %d x %d", width, height, side, side);
}

#ifdef TRAIN_IMAGES_PNG
static tdict_status read_png(const decoder *d, const char *path, int side, uint8_t *pixels, tdict_error *err) {
  png_image image = {.version = PNG_IMAGE_VERSION};
  if (!png_image_begin_read_from_memory(&image, d->bytes, d->size))
    return tdict_error_set(err, TDICT_EFORMAT, path, "libpng: %s", image.message);
  tdict_status status = check_size(path, (long)image.width, (long)image.height, side, err);
  image.format = PNG_FORMAT_GRAY;
  if (status == TDICT_OK && !png_image_finish_read(&image, NULL, pixels, 0, NULL))
    status = tdict_error_set(err, TDICT_EFORMAT, path, "libpng: %s", image.message);
  png_image_free(&image);
  return status;
}
#else
static tdict_status read_png(const decoder *d, const char *path, int side, uint8_t *pixels, tdict_error *err) {
  (void)d, (void)side, (void)pixels;
  return tdict_error_set(err, TDICT_ENOTSUP, path, "a PNG file, but this program was built without libpng");
}
#endif

static tdict_status read_pgm(const decoder *d, const char *path, int side, uint8_t *pixels, tdict_error *err) {
  int width = 0, height = 0, begin = 0;
  const size_t count = (size_t)side * (size_t)side;
  if (sscanf(d->bytes, "P5 %9d %9d 255%n", &width, &height, &begin) < 2 || begin == 0)
    return tdict_error_set(err, TDICT_EFORMAT, path, "neither a PNG file nor a PGM file of 8 bits");
  tdict_status status = check_size(path, width, height, side, err);
  if (status != TDICT_OK) return status;
  if (d->size != (size_t)begin + 1 + count)
    return tdict_error_set(err, TDICT_EFORMAT, path, "%zu bytes, wanted %zu", d->size, (size_t)begin + 1 + count);
  memcpy(pixels, d->bytes + begin + 1, count);
  return TDICT_OK;
}

tdict_status read_image(decoder *d, const char *path, int side, uint8_t *pixels, tdict_error *err) {
  tdict_status status = read_file(d, path, err);
  if (status != TDICT_OK) return status;
  const bool is_png = d->size >= 4 && memcmp(d->bytes, "\x89PNG", 4) == 0;
  return (is_png ? read_png : read_pgm)(d, path, side, pixels, err);
}

/* Returns TDICT_EFORMAT without a message if the line is not a name and a digit. */
static tdict_status add_line(image_list **list, const char *folder, const char *line) {
  char name[128];
  int digit;
  const int64_t count = (*list)->count;
  if (sscanf(line, "%127s %d", name, &digit) != 2 || digit < 0 || digit > 9) return TDICT_EFORMAT;
  image_list *more = realloc(*list, sizeof *more + (size_t)(count + 1) * sizeof more->images[0]);
  if (!more) return TDICT_ENOMEM;
  *list = more;
  more->count++;
  more->images[count].digit = digit;
  const int length = snprintf(more->images[count].path, sizeof more->images[count].path, "%s/%s", folder, name);
  return length < (int)sizeof more->images[count].path ? TDICT_OK : TDICT_EFORMAT;
}

tdict_status read_list(const char *folder, const char *name, image_list **out, tdict_error *err) {
  char path[512], line[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "r");
  if (!file) return tdict_error_set(err, TDICT_EIO, path, "%s", strerror(errno));
  image_list *list = calloc(1, sizeof *list);
  tdict_status status = list ? TDICT_OK : TDICT_ENOMEM;
  int64_t number = 0;
  for (; status == TDICT_OK && fgets(line, sizeof line, file); number++) status = add_line(&list, folder, line);
  fclose(file);
  if (status == TDICT_OK) {
    *out = list;
    return TDICT_OK;
  }
  free(list);
  if (status == TDICT_ENOMEM) return tdict_error_set(err, status, path, "no memory for the list");
  return tdict_error_set(err, status, path, "line %lld: wanted the name of a file and a digit", (long long)number);
}
