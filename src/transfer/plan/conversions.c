/* Reads the conversions of a transfer. The patterns are read by patterns.c. See conversions.h for ownership and
 * threads. */
#include "transfer/plan/conversions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/options.h"
#include "tensor/convert_simple.h"

struct tdict_conversions {
  tdict_patterns *patterns;
  size_t count;
  tdict_conversion rules[]; /* the patterns of the rules must not be read: the program may have freed them */
};

/* Checks a conversion whose fields are known. */
static tdict_status check_rule(const char *what, const tdict_conversion *rule, size_t i, tdict_error *err) {
  tdict_status status = TDICT_OK;
  if (!rule->pattern) return tdict_fail(err, TDICT_EINVAL, "%s[%zu].pattern is NULL", what, i);
  if (!tdict_dtype_bytes(rule->dtype))
    status = tdict_fail(err, TDICT_EDTYPE, "%s[%zu]: dtype 0x%x is unknown", what, i, (unsigned)rule->dtype);
  else if (!isfinite((float)rule->scale) || !isfinite((float)rule->offset))
    status = tdict_fail(err, TDICT_EINVAL, "%s[%zu]: scale %g and offset %g, wanted finite float32 numbers", what, i,
                        rule->scale, rule->offset);
  return status == TDICT_OK ? status : tdict_error_at(err, status, rule->pattern);
}

/* Copies the conversions, whose size may be that of another version of the library. */
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
  const char **patterns = NULL;
  if (count < SIZE_MAX / sizeof *given - 1) {
    made = malloc(sizeof *made + count * sizeof made->rules[0]);
    patterns = malloc(count * sizeof *patterns);
  }
  if (!made || !patterns) {
    free(made);
    free(patterns);
    return tdict_fail(err, TDICT_ENOMEM, "%s: no host memory for %zu conversions", what, count);
  }
  *made = (tdict_conversions){.count = count};
  tdict_status status = read_rules(what, given, made, patterns, err);
  if (status == TDICT_OK) status = tdict_patterns_create(what, patterns, count, &made->patterns, err);
  free(patterns);
  if (status == TDICT_OK)
    *out = made;
  else
    free(made);
  return status;
}

void tdict_conversions_destroy(tdict_conversions *conversions) {
  if (conversions) tdict_patterns_destroy(conversions->patterns);
  free(conversions);
}

tdict_status tdict_conversions_find(const tdict_conversions *conversions, const tdict_cursor *cursor,
                                    const tdict_tensor *t, tdict_item_cast *out, tdict_error *err) {
  char from[TDICT_DTYPE_TEXT_BYTES], to[TDICT_DTYPE_TEXT_BYTES];
  out->rule = 0;
  const size_t found = tdict_patterns_find(conversions->patterns, cursor);
  if (found == TDICT_NO_PATTERN) return TDICT_OK;
  const tdict_conversion *rule = &conversions->rules[found];
  const bool is_scaled = rule->scale != 1 || rule->offset != 0;
  if (rule->dtype == t->dtype && !is_scaled) return TDICT_OK;
  if (!tdict_convert_supports(rule->dtype, t->dtype) || (is_scaled && !tdict_cast_scales(rule->dtype, t->dtype)))
    return tdict_fail(err, TDICT_ENOTSUP, "transfer: from %s to %s%s is not supported",
                      tdict_dtype_format(t->dtype, from, sizeof from), tdict_dtype_format(rule->dtype, to, sizeof to),
                      is_scaled ? " with a scale or an offset" : "");
  *out = (tdict_item_cast){.rule = (uint32_t)found + 1,
                           .cast = {rule->dtype, t->dtype, is_scaled, (float)rule->scale, (float)rule->offset}};
  return TDICT_OK;
}
