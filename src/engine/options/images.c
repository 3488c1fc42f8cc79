/* Reads the images of a conversion. See images.h for ownership and threads. */
#include "engine/options/images.h"

#include <math.h>
#include <string.h>

#include "core/base/checked.h"
#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/options.h"
#include "core/tensor/convert_tensor.h"
#include "core/tensor/layout.h"
#include "core/tree/place.h"
#include "core/tree/text.h"

static bool are_finite(const float *values, size_t count) {
  bool are = true;
  for (size_t i = 0; i < count && values; i++) are = are && isfinite(values[i]);
  return are;
}

/* Checks the normalization by channel. */
static tdict_status check_scales(const tdict_conversion *rule, const char *what, tdict_error *err) {
  const tdict_image *image = rule->image;
  if (!image->scales && !image->offsets) return TDICT_OK;
  if (image->num_channels < 1 || image->num_channels > TDICT_WINDOW_CHANNELS)
    return tdict_fail(err, TDICT_EINVAL, "%s: num_channels is %zu, wanted 1 to %d", what, image->num_channels,
                      (int)TDICT_WINDOW_CHANNELS);
  if (!are_finite(image->scales, image->num_channels) || !are_finite(image->offsets, image->num_channels))
    return tdict_fail(err, TDICT_EINVAL, "%s: scales and offsets must be finite", what);
  if ((image->scales && rule->scale != 1) || (image->offsets && rule->offset != 0))
    return tdict_fail(err, TDICT_EINVAL, "%s: %s of the conversion is also set, wanted one of the two", what,
                      image->scales && rule->scale != 1 ? "scale" : "offset");
  return TDICT_OK;
}

tdict_status tdict_images_read(tdict_conversion *rule, tdict_image *image, const char *what, tdict_error *err) {
  *image = tdict_image_default();
  tdict_status status = tdict_options_read(image, sizeof *image, rule->image, what, err);
  if (status != TDICT_OK) return status;
  rule->image = image;
  if (rule->dtype != TDICT_F16 && rule->dtype != TDICT_BF16 && rule->dtype != TDICT_F32)
    return tdict_fail(err, TDICT_EDTYPE, "%s: images become %s, wanted float16, bfloat16 or float32", what,
                      TDICT_DTYPE_TEXT(rule->dtype));
  if (rule->wire_dtype && rule->wire_dtype != TDICT_U8)
    return tdict_fail(err, TDICT_EINVAL, "%s: wire_dtype is %s, wanted 0 or uint8 for images", what,
                      TDICT_DTYPE_TEXT(rule->wire_dtype));
  if (image->height < 0 || image->width < 0)
    return tdict_fail(err, TDICT_EINVAL,
                      "%s: windows of %lld x %lld, wanted sizes above 0, or 0 for those of the images", what,
                      (long long)image->height, (long long)image->width);
  if (image->windows && image->window_array)
    return tdict_fail(err, TDICT_EINVAL, "%s: windows and window_array are set, wanted one of the two", what);
  if (!image->window_array && image->num_windows)
    return tdict_fail(err, TDICT_EINVAL, "%s: window_array is NULL and num_windows is %zu", what, image->num_windows);
  return check_scales(rule, what, err);
}

/* Checks the leaf, and that windows of the wanted size fit. */
static tdict_status check_leaf(const tdict_image *image, const tdict_cursor *cursor, const tdict_tensor *t,
                               tdict_error *err) {
  const tdict_tree *node = cursor->frames[cursor->depth - 1].node;
  if (t->dtype != TDICT_U8)
    return tdict_fail(err, TDICT_EDTYPE, "transfer: images of %s, wanted uint8", TDICT_DTYPE_TEXT(t->dtype));
  if (t->ndim < 3 || t->ndim - 3 < node->batch_ndim)
    return tdict_fail(err, TDICT_ESHAPE, "transfer: images of shape %s, wanted %d batch dimensions, then [H, W, C]",
                      TDICT_SHAPE_TEXT(t->ndim, t->dims), node->batch_ndim);
  const int64_t *size = t->dims + t->ndim - 3;
  if (size[2] < 1 || size[2] > TDICT_WINDOW_CHANNELS)
    return tdict_fail(err, TDICT_ESHAPE, "transfer: images with %lld channels, wanted 1 to %d", (long long)size[2],
                      (int)TDICT_WINDOW_CHANNELS);
  if (image->num_channels && (size_t)size[2] != image->num_channels)
    return tdict_fail(err, TDICT_ESHAPE, "transfer: images with %lld channels, wanted %zu, the num_channels",
                      (long long)size[2], image->num_channels);
  if (size[0] > INT32_MAX || size[1] > INT32_MAX || image->height > size[0] || image->width > size[1])
    return tdict_fail(err, TDICT_ESHAPE, "transfer: windows of %lld x %lld in images of %lld x %lld",
                      (long long)image->height, (long long)image->width, (long long)size[0], (long long)size[1]);
  return TDICT_OK;
}

/* Adds the place of window `i`. `path` is that of the windows, or NULL. */
static tdict_status add_place(tdict_images *m, size_t i, const tdict_window *w, const char *path, tdict_error *err) {
  const int64_t most_top = (int64_t)(m->image_height - m->height), most_left = (int64_t)(m->image_width - m->width);
  if (w->top < 0 || w->left < 0 || w->top > most_top || w->left > most_left) {
    tdict_status status = tdict_fail(
        err, TDICT_EINVAL,
        "transfer: window %zu of %llu x %llu is at row %lld, column %lld, wanted rows 0 to %lld, columns 0 to "
        "%lld in images of %llu x %llu",
        i, (unsigned long long)m->height, (unsigned long long)m->width, (long long)w->top, (long long)w->left,
        (long long)most_top, (long long)most_left, (unsigned long long)m->image_height,
        (unsigned long long)m->image_width);
    return path ? tdict_error_at(err, status, path) : status;
  }
  m->places[i] = (uint64_t)w->top << TDICT_PLACE_TOP | (uint64_t)w->left << TDICT_PLACE_LEFT | w->flip;
  return TDICT_OK;
}

/* Finds the tensor of the windows, and checks that it has integers in host memory, one row for each image. */
static tdict_status find_windows(const tdict_tree *tree, const char *path, const tdict_tensor *t, tdict_tensor **out,
                                 tdict_error *err) {
  static const char what[] = "transfer: the windows of images";
  const int outer = t->ndim - 3;
  tdict_place place;
  tdict_status status = tdict_place_get(&place, tree, path, what, err);
  if (status != TDICT_OK) return status;
  const tdict_leaf leaf = tdict_place_leaf(&place);
  tdict_place_reset(&place);
  status = tdict_leaf_check(leaf, TDICT_LEAF_TENSOR, what, path, err);
  if (status != TDICT_OK) return status;
  tdict_tensor *found = *out = tdict_leaf_tensor(leaf);
  const bool has_rows = found->ndim == outer + 1 && tdict_sizes_equal(found->dims, t->dims, outer);
  if (!tdict_dtype_is_integer(found->dtype))
    return tdict_fail(err, TDICT_EDTYPE, "%s are %s, wanted integers", what, TDICT_DTYPE_TEXT(found->dtype));
  if (!has_rows || found->dims[outer] < 2 || found->dims[outer] > 3)
    return tdict_fail(err, TDICT_ESHAPE, "%s have shape %s, wanted %s, then [2] or [3]", what,
                      TDICT_SHAPE_TEXT(found->ndim, found->dims), TDICT_SHAPE_TEXT(outer, t->dims));
  if (found->storage->device.type != TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "%s are on %s, wanted host memory", what,
                      TDICT_DEVICE_TEXT(found->storage->device));
  return TDICT_OK;
}

/* Reads the windows of a leaf. The conversion to int64 waits for transfers and refuses lost bytes. */
static tdict_status read_windows(tdict_images *m, size_t count, const tdict_tree *tree, const char *path,
                                 const tdict_tensor *t, tdict_error *err) {
  tdict_tensor *found = NULL, *numbers = NULL;
  tdict_status status = find_windows(tree, path, t, &found, err);
  if (status == TDICT_OK) status = tdict_tensor_empty(TDICT_I64, found->ndim, found->dims, NULL, &numbers, err);
  if (status == TDICT_OK) status = tdict_convert_tensor("transfer: the windows of images", numbers, found, err);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) {
    const size_t columns = (size_t)found->dims[found->ndim - 1];
    const int64_t *row = (const int64_t *)numbers->data + i * columns;
    status = add_place(m, i, &(tdict_window){row[0], row[1], columns > 2 && row[2] != 0}, NULL, err);
  }
  tdict_tensor_release(numbers);
  return status == TDICT_OK ? status : tdict_error_at(err, status, path);
}

/* Sets the places of all windows. `count` is the number of images. */
static tdict_status set_places(tdict_images *m, size_t count, const tdict_image *image, const tdict_tree *tree,
                               const tdict_tensor *t, tdict_error *err) {
  if (image->windows) return read_windows(m, count, tree, image->windows, t, err);
  if (image->window_array && image->num_windows != count)
    return tdict_fail(err, TDICT_ESHAPE, "transfer: num_windows is %zu, wanted %zu, the number of images",
                      image->num_windows, count);
  const tdict_window middle = {(int64_t)(m->image_height - m->height) / 2, (int64_t)(m->image_width - m->width) / 2,
                               false};
  tdict_status status = TDICT_OK;
  for (size_t i = 0; i < count && status == TDICT_OK; i++)
    status = add_place(m, i, image->window_array ? &image->window_array[i] : &middle, NULL, err);
  return status;
}

/* Sets the scale and the offset of each channel. */
static void set_scales(tdict_images *m, const tdict_image *image, const tdict_cast *cast) {
  for (size_t c = 0; c < m->channels; c++) {
    const float scale = image->scales ? image->scales[c] : cast->scale;
    const float offset = image->offsets ? image->offsets[c] : cast->offset;
    uint32_t scale_bits, offset_bits;
    memcpy(&scale_bits, &scale, sizeof scale);
    memcpy(&offset_bits, &offset, sizeof offset);
    m->scales[c] = scale_bits | (uint64_t)offset_bits << 32;
  }
}

/* Sets the sizes and the shape of the result. */
static void set_sizes(tdict_images *m, const tdict_image *image, const tdict_tensor *t) {
  const int outer = t->ndim - 3;
  const int64_t *size = t->dims + outer;
  m->image_height = (uint64_t)size[0];
  m->image_width = (uint64_t)size[1];
  m->channels = (uint64_t)size[2];
  m->height = (uint64_t)(image->height ? image->height : size[0]);
  m->width = (uint64_t)(image->width ? image->width : size[1]);
  m->channels_first = image->channels_first;
  const int64_t shape[] = {(int64_t)m->channels, (int64_t)m->height, (int64_t)m->width, (int64_t)m->channels};
  memcpy(m->dims, t->dims, (size_t)outer * sizeof *m->dims);
  memcpy(m->dims + outer, m->channels_first ? shape : shape + 1, 3 * sizeof *m->dims);
  m->like = (tdict_tensor){.dtype = t->dtype, .ndim = t->ndim, .numel = t->numel > 0, .dims = m->dims};
  for (int i = 0; i < t->ndim; i++) m->like.numel *= m->dims[i];
}

tdict_status tdict_images_find(const tdict_conversion *rule, const tdict_cast *cast, const tdict_cursor *cursor,
                               const tdict_tensor *t, tdict_images **list, tdict_error *err) {
  const tdict_image *image = rule->image;
  tdict_status status = check_leaf(image, cursor, t, err);
  if (status != TDICT_OK) return status;
  size_t count = 1, bytes;
  for (int i = 0; i < t->ndim - 3; i++)
    if (!tdict_mul_size(count, (size_t)t->dims[i], &count)) count = SIZE_MAX;
  tdict_images *m = NULL;
  if (tdict_mul_size(count, sizeof m->places[0], &bytes) && tdict_add_size(bytes, sizeof *m, &bytes))
    m = calloc(1, bytes);
  if (!m) return tdict_fail_memory(err, "transfer", NULL, "%zu windows of images", count);
  set_sizes(m, image, t);
  set_scales(m, image, cast);
  status = set_places(m, count, image, cursor->frames[0].node, t, err);
  if (status != TDICT_OK) {
    free(m);
    return status;
  }
  m->next = *list;
  *list = m;
  return TDICT_OK;
}
