/* Converts ragged leaves from and to padded tensors. The caller owns the results. Thread rule: as in tdict/ragged.h. */
#include <string.h>

#include "core/base/checked.h"
#include "core/base/error.h"
#include "core/leaves/ragged.h"
#include "core/tensor/element.h"
#include "core/tensor/layout.h"

static const char from_padded[] = "ragged_from_padded", to_padded[] = "ragged_to_padded";

static bool is_mask(const tdict_tensor *lengths) { return lengths->dtype == TDICT_BOOL || lengths->dtype == TDICT_U8; }

static tdict_status check_padded(const tdict_tensor *padded, const tdict_tensor *lengths, tdict_error *err) {
  if (!is_mask(lengths) && lengths->dtype != TDICT_I64 && lengths->dtype != TDICT_I32)
    return tdict_fail(err, TDICT_EDTYPE, "%s: lengths is %s, wanted int64 or int32, or a mask of bool or uint8",
                      from_padded, TDICT_DTYPE_TEXT(lengths->dtype));
  if (padded->ndim < 2)
    return tdict_fail(err, TDICT_ESHAPE, "%s: padded has shape %s, wanted two or more dimensions", from_padded,
                      TDICT_SHAPE_TEXT(padded->ndim, padded->dims));
  const int ndim = is_mask(lengths) ? 2 : 1;
  if (tdict_shapes_equal(lengths->ndim, lengths->dims, ndim, padded->dims)) return TDICT_OK;
  return tdict_fail(err, TDICT_ESHAPE, "%s: the %s has shape %s, wanted %s", from_padded,
                    ndim == 2 ? "mask" : "tensor of lengths", TDICT_SHAPE_TEXT(lengths->ndim, lengths->dims),
                    TDICT_SHAPE_TEXT(ndim, padded->dims));
}

/* Counts the elements that are set at the start of each row of the mask. No later element of the row may be set. */
static tdict_status read_mask(const tdict_tensor *mask, int64_t *lengths, tdict_error *err) {
  tdict_tensor *host;
  tdict_status status = tdict_tensor_clone(mask, NULL, &host, err);
  if (status != TDICT_OK) return status;
  const int64_t width = host->dims[1];
  for (int64_t row = 0; row < host->dims[0] && status == TDICT_OK; row++) {
    const unsigned char *set = host->numel ? (const unsigned char *)host->data + row * width : NULL;
    int64_t length = 0, i;
    while (length < width && set[length]) length++;
    for (i = length; i < width && !set[i]; i++) continue;
    if (i < width)
      status = tdict_fail(err, TDICT_EINVAL, "%s: row %lld of the mask is set at %lld, but not at %lld", from_padded,
                          (long long)row, (long long)i, (long long)length);
    lengths[row] = length;
  }
  tdict_tensor_release(host);
  return status;
}

/* Checks the lengths in at[1], at[2] and so on, and replaces each by its sum with all earlier lengths. */
static tdict_status sum_lengths(tdict_ragged *r, int64_t longest, tdict_error *err) {
  for (int64_t i = 0; i < r->num_rows; i++) {
    const int64_t length = r->at[i + 1];
    if (length < 0 || length > longest)
      return tdict_fail(err, TDICT_EINVAL, "%s: lengths[%lld] is %lld, wanted 0 to %lld", from_padded, (long long)i,
                        (long long)length, (long long)longest);
    if (!tdict_add_i64(r->at[i], length, &r->at[i + 1]))
      return tdict_fail(err, TDICT_EOVERFLOW, "%s: the sum of the lengths does not fit in 63 bits", from_padded);
  }
  return TDICT_OK;
}

/* Makes a temporary view of the first `count` elements of a row of a padded tensor. */
static tdict_tensor *get_row_part(tdict_temp *temp, const tdict_tensor *padded, int64_t row, int64_t count) {
  const size_t item = tdict_dtype_bytes(padded->dtype);
  tdict_made part;
  tdict_made_of(padded, &part);
  tdict_made_select(&part, 0, row, item);
  tdict_made_narrow(&part, 0, 0, count, item);
  return tdict_temp_over(temp, padded, &part);
}

static tdict_status fill_from_padded(tdict_ragged *r, const tdict_tensor *padded, const tdict_tensor *lengths,
                                     const tdict_ragged_options *options, tdict_error *err) {
  tdict_temp to, from;
  tdict_status status =
      is_mask(lengths) ? read_mask(lengths, r->at + 1, err) : tdict_ragged_read_integers(lengths, r->at + 1, err);
  if (status == TDICT_OK) status = sum_lengths(r, padded->dims[1], err);
  if (status == TDICT_OK) status = tdict_ragged_allocate(r, from_padded, padded, 2, options, err);
  for (int64_t i = 0; i < r->num_rows && status == TDICT_OK; i++) {
    const int64_t length = tdict_ragged_length(r, i);
    status = tdict_tensor_copy(tdict_ragged_part(&to, r->values, r->at[i], length),
                               get_row_part(&from, padded, i, length), err);
  }
  return status;
}

tdict_status tdict_ragged_from_padded(const tdict_tensor *padded, const tdict_tensor *lengths,
                                      const tdict_ragged_options *options, tdict_ragged **out, tdict_error *err) {
  tdict_ragged_options o;
  tdict_ragged *r;
  if (!padded || !lengths || !out)
    return tdict_fail_null(err, from_padded, !padded ? "padded" : !lengths ? "lengths" : "out");
  tdict_status status = tdict_ragged_read_options(from_padded, options, &o, err);
  if (status == TDICT_OK) status = check_padded(padded, lengths, err);
  if (status == TDICT_OK) status = tdict_ragged_new(from_padded, padded->dims[0], &r, err);
  if (status != TDICT_OK) return status;
  status = fill_from_padded(r, padded, lengths, &o, err);
  return TDICT_HAND_OVER(status, r, out, tdict_ragged_release);
}

/* Makes the mask of a padded tensor whose rows have `width` elements. */
static tdict_status make_mask(const tdict_ragged *r, int64_t width, tdict_memory *memory, tdict_tensor **out,
                              tdict_error *err) {
  const bool on_device = memory && memory->device.type != TDICT_DEVICE_CPU;
  const int64_t shape[] = {r->num_rows, width};
  tdict_tensor *host;
  tdict_status status = tdict_tensor_empty(TDICT_BOOL, 2, shape, on_device ? NULL : memory, &host, err);
  if (status != TDICT_OK) return status;
  for (int64_t i = 0; i < r->num_rows && width > 0; i++) {
    unsigned char *row = (unsigned char *)host->data + i * width;
    const size_t length = (size_t)tdict_ragged_length(r, i);
    memset(row, 1, length);
    memset(row + length, 0, (size_t)width - length);
  }
  if (!on_device) {
    *out = host;
    return TDICT_OK;
  }
  status = tdict_tensor_clone(host, memory, out, err);
  tdict_tensor_release(host);
  return status;
}

/* Copies the rows of the leaf to the starts of the padded rows, and fills the rest with *element. */
static tdict_status fill_padded(const tdict_ragged *r, tdict_tensor *padded, const void *element, tdict_error *err) {
  tdict_temp to, from;
  tdict_status status = TDICT_OK;
  for (int64_t i = 0; i < r->num_rows && status == TDICT_OK; i++)
    status = tdict_element_pad(to_padded, get_row_part(&to, padded, i, padded->dims[1]),
                               tdict_ragged_part(&from, r->values, r->at[i], tdict_ragged_length(r, i)), element, err);
  return status;
}

tdict_status tdict_ragged_to_padded(const tdict_ragged *ragged, double value, tdict_memory *memory,
                                    tdict_tensor **padded, tdict_tensor **mask, tdict_error *err) {
  unsigned char element[TDICT_ELEMENT_ROOM];
  int64_t shape[TDICT_MAX_NDIM + 1];
  tdict_tensor *made = NULL, *made_mask = NULL;
  if (!ragged || !padded) return tdict_fail_null(err, to_padded, ragged ? "padded" : "ragged");
  const tdict_tensor *values = ragged->values;
  shape[0] = ragged->num_rows;
  shape[1] = tdict_ragged_max_length(ragged);
  for (int i = 1; i < values->ndim; i++) shape[i + 1] = values->dims[i];
  tdict_status status = tdict_element_from_double(to_padded, values->dtype, value, element, err);
  if (status == TDICT_OK) status = tdict_tensor_choose_memory(to_padded, values, memory, &memory, err);
  if (status == TDICT_OK) status = tdict_tensor_empty(values->dtype, values->ndim + 1, shape, memory, &made, err);
  if (status == TDICT_OK) status = fill_padded(ragged, made, element, err);
  if (status == TDICT_OK && mask) status = make_mask(ragged, shape[1], memory, &made_mask, err);
  if (status != TDICT_OK) {
    tdict_tensor_release(made);
    return status;
  }
  *padded = made;
  if (mask) *mask = made_mask;
  return TDICT_OK;
}
