/* Reads the conversions of a transfer. patterns.c reads their patterns. See conversions.h for ownership and threads. */
#include "engine/options/conversions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/base/options.h"
#include "core/kernel/work.h"
#include "core/tensor/convert.h"
#include "engine/kinds/leaf_bytes.h"
#include "engine/kinds/pack.h"
#include "engine/options/images.h"

struct tdict_conversions {
  tdict_patterns *patterns;
  size_t count;
  tdict_image *images; /* one for each rule */
  tdict_conversion rules[];
};

/* Rounds to nearest in any floating-point environment of the thread. */
static float to_float(double number) {
  const tdict_float_env saved = tdict_float_env_enter();
  float rounded;
  (void)tdict_convert_simple(TDICT_F32, &rounded, TDICT_F64, &number, 1); /* cannot fail: the dtype is a float */
  tdict_float_env_leave(&saved);
  return rounded;
}

/* Checks a conversion whose fields are known. */
static tdict_status check_rule(const char *what, const tdict_conversion *rule, size_t i, tdict_error *err) {
  tdict_status status = TDICT_OK;
  if (!rule->pattern) return tdict_fail(err, TDICT_EINVAL, "%s[%zu].pattern is NULL", what, i);
  if (!tdict_dtype_bytes(rule->dtype))
    status = tdict_fail(err, TDICT_EDTYPE, "%s[%zu]: dtype 0x%x is unknown", what, i, (unsigned)rule->dtype);
  else if (rule->wire_dtype && !tdict_dtype_bytes(rule->wire_dtype))
    status = tdict_fail(err, TDICT_EDTYPE, "%s[%zu]: wire_dtype 0x%x is unknown", what, i, (unsigned)rule->wire_dtype);
  else if (!isfinite(to_float(rule->scale)) || !isfinite(to_float(rule->offset)))
    status = tdict_fail(err, TDICT_EINVAL, "%s[%zu]: scale %g and offset %g, wanted finite float32 numbers", what, i,
                        rule->scale, rule->offset);
  return status == TDICT_OK ? status : tdict_error_at(err, status, rule->pattern);
}

/* Copies the conversions, whose structs may have the size of another version of the library. */
static tdict_status read_rules(const char *what, const tdict_conversion *given, tdict_conversions *made,
                               const char **patterns, tdict_error *err) {
  tdict_status status = TDICT_OK;
  char name[96];
  for (size_t i = 0; i < made->count && status == TDICT_OK; i++) {
    made->rules[i] = tdict_conversion_default();
    const void *at = (const char *)given + i * given->struct_size;
    snprintf(name, sizeof name, "%s[%zu]", what, i);
    status = tdict_options_read(&made->rules[i], sizeof made->rules[i], at, name, err);
    if (status == TDICT_OK && ((const tdict_conversion *)at)->struct_size != given->struct_size)
      status = tdict_fail(err, TDICT_EINVAL, "%s: struct_size is %zu, wanted %zu, as in the first conversion", name,
                          ((const tdict_conversion *)at)->struct_size, given->struct_size);
    if (status == TDICT_OK) status = check_rule(what, &made->rules[i], i, err);
    if (status == TDICT_OK && made->rules[i].image) {
      snprintf(name, sizeof name, "%s[%zu].image", what, i);
      status = tdict_images_read(&made->rules[i], &made->images[i], name, err);
      if (status != TDICT_OK) (void)tdict_error_at(err, status, made->rules[i].pattern);
    }
    patterns[i] = made->rules[i].pattern;
  }
  return status;
}

tdict_status tdict_conversions_create(const char *call, const tdict_conversion *given, size_t count,
                                      tdict_conversions **out, tdict_error *err) {
  char what[64];
  snprintf(what, sizeof what, "%s: options.conversions", call);
  if (!given) return tdict_fail(err, TDICT_EINVAL, "%s is NULL, wanted %zu conversions", what, count);
  tdict_conversions *made = NULL;
  tdict_image *images = NULL;
  const char **patterns = NULL;
  if (count < SIZE_MAX / sizeof *given - 1) {
    made = malloc(sizeof *made + count * sizeof made->rules[0]);
    images = malloc(count * sizeof *images);
    patterns = malloc(count * sizeof *patterns);
  }
  if (!made || !images || !patterns) {
    free(made);
    free(images);
    free(patterns);
    return tdict_fail_memory(err, what, NULL, "%zu conversions", count);
  }
  *made = (tdict_conversions){.count = count, .images = images};
  tdict_status status = read_rules(what, given, made, patterns, err);
  if (status == TDICT_OK) status = tdict_patterns_create(what, patterns, count, &made->patterns, err);
  free(patterns);
  return TDICT_HAND_OVER(status, made, out, tdict_conversions_destroy);
}

void tdict_conversions_destroy(tdict_conversions *conversions) {
  if (!conversions) return;
  tdict_patterns_destroy(conversions->patterns);
  free(conversions->images);
  free(conversions);
}

/* Returns true if elements can be converted to the dtype that the program named for the wire, and from this dtype to
 * the result. The scale belongs to the step that makes the result. */
static bool supports_wire(const tdict_conversion *rule, tdict_dtype from, bool is_scaled) {
  const tdict_dtype wire = rule->wire_dtype;
  if (!tdict_kernel_converts(wire, from) || !tdict_kernel_converts(rule->dtype, wire)) return false;
  return !is_scaled || tdict_cast_scales(rule->dtype, wire == rule->dtype ? from : wire);
}

tdict_patterns *tdict_conversions_patterns(tdict_conversions *conversions) { return conversions->patterns; }

/* Writes the conversion of images. */
static tdict_status find_images(const tdict_conversion *rule, const tdict_cursor *cursor, const tdict_tensor *t,
                                tdict_wire *wire, tdict_item_cast *out, tdict_error *err) {
  const tdict_cast cast = {rule->dtype, TDICT_U8, true, to_float(rule->scale), to_float(rule->offset)};
  tdict_status status = tdict_images_find(rule, &cast, cursor, t, &wire->images, err);
  if (status == TDICT_OK) *out = (tdict_item_cast){.wire = TDICT_U8, .cast = cast, .images = wire->images};
  return status;
}

tdict_status tdict_conversions_find(tdict_conversions *conversions, const tdict_cursor *cursor, const tdict_tensor *t,
                                    tdict_wire *wire, tdict_item_cast *out, tdict_error *err) {
  out->rule = 0;
  const size_t found = tdict_patterns_find(conversions->patterns, cursor);
  if (found == TDICT_NO_PATTERN) return TDICT_OK;
  const tdict_conversion *rule = &conversions->rules[found];
  if (rule->image) {
    tdict_status status = find_images(rule, cursor, t, wire, out, err);
    out->rule = status == TDICT_OK ? (uint32_t)found + 1 : 0;
    return status;
  }
  const bool is_scaled = rule->scale != 1 || rule->offset != 0;
  if (rule->dtype == t->dtype && !is_scaled && (!rule->wire_dtype || rule->wire_dtype == t->dtype)) return TDICT_OK;
  if (rule->wire_dtype && !supports_wire(rule, t->dtype, is_scaled))
    return tdict_fail(err, TDICT_ENOTSUP, "transfer: from %s to %s with the wire dtype %s is not supported",
                      TDICT_DTYPE_TEXT(t->dtype), TDICT_DTYPE_TEXT(rule->dtype), TDICT_DTYPE_TEXT(rule->wire_dtype));
  if (!tdict_kernel_converts(rule->dtype, t->dtype) || (is_scaled && !tdict_cast_scales(rule->dtype, t->dtype)))
    return tdict_fail(err, TDICT_ENOTSUP, "transfer: from %s to %s%s is not supported", TDICT_DTYPE_TEXT(t->dtype),
                      TDICT_DTYPE_TEXT(rule->dtype), is_scaled ? " with a scale or an offset" : "");
  *out = (tdict_item_cast){.rule = (uint32_t)found + 1,
                           .wire = rule->wire_dtype,
                           .cast = {rule->dtype, t->dtype, is_scaled, to_float(rule->scale), to_float(rule->offset)}};
  return TDICT_OK;
}

/* Loads the GPU's kernels, unless the plan's last call did. Errors: tdict_gpu_load_kernels(). */
static tdict_status load_kernels(tdict_plan *plan, tdict_gpu *gpu, tdict_error *err) {
  tdict_status status = plan->wire->runner == gpu ? TDICT_OK : tdict_gpu_load_kernels(gpu, err);
  if (status == TDICT_OK) plan->wire->runner = gpu;
  return status;
}

/* Returns true if a kernel can do the conversion. The leaf on the device must be in C order. The new dtype must be able
 * to hold every element, because a kernel reports an element out of range late. */
static bool suits_kernel(const tdict_cast *c, const tdict_item *item, bool in) {
  return (in ? item->dst_plain : item->src_plain) && tdict_kernel_converts(c->to, c->from) &&
         !tdict_kernel_cast_can_fail(c);
}

static tdict_status fail_kernel(const tdict_item_cast *c, const char *where, tdict_error *err) {
  return tdict_fail(
      err, TDICT_ENOTSUP,
      "transfer: from %s to %s needs a kernel %s: wanted contiguous tensors, and elements that always fit",
      TDICT_DTYPE_TEXT(c->cast.from), TDICT_DTYPE_TEXT(c->cast.to), where);
}

/* Lets host threads do the whole conversion. */
static void convert_on_host(tdict_item_cast *c, tdict_dtype wire) {
  c->wire = wire;
  c->by_host = true;
  c->by_device = false;
  c->host = c->cast;
}

/* Divides a conversion on the way to a device (`in`) or to the host. The wire has the dtype that the program named,
 * else the narrower one. If the narrower one needs a kernel that cannot run, host threads convert, and the wire has the
 * other dtype. If a named dtype needs a kernel that cannot run, returns the error of tdict_gpu_load_kernels(), such as
 * TDICT_ENOTSUP. */
static tdict_status split_on_wire(tdict_plan *plan, tdict_item_cast *c, const tdict_item *item, bool in,
                                  tdict_error *err) {
  const tdict_dtype from = c->cast.from, to = c->cast.to, named = c->wire, host_wire = in ? to : from;
  const size_t from_bytes = tdict_dtype_bytes(from), to_bytes = tdict_dtype_bytes(to);
  const tdict_dtype narrower = from_bytes == to_bytes ? host_wire : from_bytes < to_bytes ? from : to;
  const tdict_dtype wire = named ? named : narrower;
  tdict_cast first = {.to = wire, .from = from}, second = {.to = to, .from = wire};
  *(wire == to ? &first : &second) =
      (tdict_cast){to, wire == to ? from : wire, c->cast.is_scaled, c->cast.scale, c->cast.offset};
  if (wire == to) second = (tdict_cast){.to = to, .from = to};
  convert_on_host(c, host_wire);
  if (wire == host_wire) return TDICT_OK;
  if (!suits_kernel(in ? &second : &first, item, in))
    return named ? fail_kernel(c, "for the wire dtype", err) : TDICT_OK;
  tdict_status status = load_kernels(plan, item->gpu, named ? err : NULL);
  if (status != TDICT_OK) return named ? status : TDICT_OK;
  c->wire = wire;
  c->by_device = true;
  c->device = in ? second : first;
  c->host = in ? first : second;
  c->by_host = c->host.to != c->host.from || c->host.is_scaled;
  return TDICT_OK;
}

static tdict_status split_cast(tdict_plan *plan, tdict_item_cast *c, const tdict_item *item, tdict_error *err) {
  const bool between = item->way == TDICT_WAY_DIRECT;
  if (tdict_item_uses_slot(item)) return split_on_wire(plan, c, item, item->way == TDICT_WAY_STAGE_IN, err);
  if (!tdict_item_cast_changes(c)) { /* there is no wire */
    c->rule = 0;
    return TDICT_OK;
  }
  convert_on_host(c, c->cast.to);
  if (!between) return TDICT_OK;
  c->by_host = false;
  c->by_device = true;
  c->device = c->cast;
  const bool same = tdict_device_equal(item->src->storage->device, item->gpu->memory.device);
  if (!same || !item->dst_plain || !suits_kernel(&c->cast, item, false)) return fail_kernel(c, "on one device", err);
  return load_kernels(plan, item->gpu, err);
}

static tdict_status fail_layout(const char *side, const tdict_tensor *t, tdict_error *err) {
  return tdict_fail(err, TDICT_ENOTSUP,
                    "transfer: images %s a device tensor of shape %s with strides %s, wanted a contiguous one", side,
                    TDICT_SHAPE_TEXT(t->ndim, t->dims), TDICT_SHAPE_TEXT(t->ndim, tdict_tensor_dims_strides(t)));
}

/* Divides the conversion of images. Host threads cut windows, and a kernel converts them. Within the host, threads do
 * both, and on one device a kernel does. */
static tdict_status split_images(tdict_plan *plan, tdict_item_cast *c, const tdict_item *item, tdict_error *err) {
  if (item->way == TDICT_WAY_STAGE_OUT)
    return tdict_fail(
        err, TDICT_ENOTSUP,
        "transfer: images are converted on the way to a device, on one device or on the host, but not from "
        "a device to the host");
  if (tdict_storage_is_unloaded(item->src->storage) || tdict_leaf_goes_to_sink(item))
    return tdict_fail(err, TDICT_ENOTSUP, "transfer: images in files are not converted: load them first");
  if (item->way == TDICT_WAY_HOST) {
    convert_on_host(c, c->cast.to);
    return TDICT_OK;
  }
  const bool between = item->way == TDICT_WAY_DIRECT;
  const tdict_device from = item->src->storage->device, to = item->gpu->memory.device;
  if (between && !tdict_device_equal(from, to))
    return tdict_fail(err, TDICT_ENOTSUP,
                      "transfer: images on %s are converted on this device, but the result is on %s",
                      TDICT_DEVICE_TEXT(from), TDICT_DEVICE_TEXT(to));
  if (between && !item->src_plain) return fail_layout("in", item->src, err);
  if (!item->dst_plain) return fail_layout("become", item->dst, err);
  c->by_device = true;
  return load_kernels(plan, item->gpu, err);
}

static tdict_status split(tdict_plan *plan, tdict_item_cast *c, const tdict_item *item, tdict_error *err) {
  if (!c->rule) return TDICT_OK;
  return c->images ? split_images(plan, c, item, err) : split_cast(plan, c, item, err);
}

bool tdict_item_can_pack(tdict_plan *plan, const tdict_item *item) {
  return item->dst_plain && item->bytes >= TDICT_PACK_MIN_BYTES && tdict_pack_supports(item->src->dtype) &&
         load_kernels(plan, item->gpu, NULL) == TDICT_OK;
}

static tdict_item_cast make_packed(tdict_dtype dtype) {
  const tdict_cast unchanged = {.to = dtype, .from = dtype};
  return (tdict_item_cast){.cast = unchanged, .wire = dtype, .by_device = true, .device = unchanged, .is_packed = true};
}

/* Returns true if a kernel should read the source itself. Then neither a thread nor the driver copies it. A kernel
 * needs aligned elements. Images of any size are read, because few blocks read them and only the windows travel. */
static bool is_read_by_kernel(const tdict_plan *plan, const tdict_item_cast *c, const tdict_item *item) {
  const size_t from_bytes = tdict_dtype_bytes(c->cast.from), count = item->bytes / tdict_dtype_bytes(c->cast.to);
  return c->rule && item->way == TDICT_WAY_STAGE_IN && c->by_device && !c->by_host && item->src_plain &&
         (uintptr_t)item->src_data % from_bytes == 0 &&
         (c->images || (plan->wire->pinned_bytes < TDICT_READ_PINNED_BYTES &&
                        count <= (TDICT_READ_PINNED_BYTES - plan->wire->pinned_bytes) / from_bytes));
}

tdict_status tdict_plan_append_cast(tdict_plan *plan, const tdict_item_cast *cast, tdict_item *item, bool narrow,
                                    bool pinned, tdict_error *err) {
  tdict_item_cast c = *cast;
  tdict_status status = split(plan, &c, item, err);
  if (status != TDICT_OK) return status;
  c.is_packed = false;
  if (narrow && !cast->rule && item->way == TDICT_WAY_STAGE_IN && tdict_item_can_pack(plan, item))
    c = make_packed(item->src->dtype);
  tdict_wire *wire = plan->wire;
  if (!TDICT_RESERVE(wire->casts, wire->cap_casts, (size_t)plan->num_items + 1))
    return tdict_fail_memory(err, "transfer", NULL, "%u conversions", plan->num_items + 1);
  wire->casts[plan->num_items] = c;
  wire->packs |= c.is_packed;
  item->is_cast = c.rule || c.is_packed;
  if (pinned && is_read_by_kernel(plan, &c, item)) {
    item->way = TDICT_WAY_DIRECT;
    if (!c.images) wire->pinned_bytes += item->bytes / tdict_dtype_bytes(c.cast.to) * tdict_dtype_bytes(c.cast.from);
  }
  /* one launch converts all images of a leaf, because each launch ends with idle blocks */
  item->is_whole = c.rule && c.images && item->way == TDICT_WAY_DIRECT;
  if (!tdict_item_uses_slot(item)) return TDICT_OK;
  wire->slot_bytes += tdict_plan_slot_bytes(item->is_cast ? &c : NULL, item->bytes);
  wire->slots_differ |= item->is_cast && c.by_device;
  return TDICT_OK;
}
