/* Makes trees and tensors that a string describes: see tree_text.h. */
#include "support/tree_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The current position in the string `all`. Error messages quote the whole string and its unread part. */
typedef struct reader {
  const char *at, *all;
  tdict_error *err;
} reader;

static tdict_status refuse(const reader *r, const char *cause) {
  if (r->err) {
    memset(r->err, 0, sizeof *r->err);
    r->err->status = TDICT_EINVAL;
    snprintf(r->err->message, sizeof r->err->message, "%s at '%.40s' in '%.120s'", cause, r->at, r->all);
  }
  return TDICT_EINVAL;
}

static const struct {
  const char *name;
  tdict_dtype dtype;
} dtypes[] = {{"bool", TDICT_BOOL}, {"i8", TDICT_I8},         {"i16", TDICT_I16},       {"i32", TDICT_I32},
              {"i64", TDICT_I64},   {"u8", TDICT_U8},         {"u16", TDICT_U16},       {"u32", TDICT_U32},
              {"u64", TDICT_U64},   {"f16", TDICT_F16},       {"bf16", TDICT_BF16},     {"f32", TDICT_F32},
              {"f64", TDICT_F64},   {"f8e4m3", TDICT_F8E4M3}, {"f8e5m2", TDICT_F8E5M2}, {"c64", TDICT_C64},
              {"c128", TDICT_C128}};

static tdict_status read_dtype(reader *r, tdict_dtype *dtype) {
  const size_t length = strcspn(r->at, "x[ ");
  size_t i = 0;
  for (; i < sizeof dtypes / sizeof *dtypes; i++)
    if (strlen(dtypes[i].name) == length && strncmp(dtypes[i].name, r->at, length) == 0) break;
  if (i == sizeof dtypes / sizeof *dtypes) return refuse(r, "wanted a dtype such as f32");
  *dtype = dtypes[i].dtype;
  r->at += length;
  if (*r->at != 'x') return TDICT_OK;
  r->at++;
  char *end = NULL;
  const long lanes = *r->at >= '0' && *r->at <= '9' ? strtol(r->at, &end, 10) : 0;
  if (lanes < 1 || lanes > 65535) return refuse(r, "wanted 1 to 65535 lanes");
  r->at = end;
  *dtype = (*dtype & 0xffff) | (tdict_dtype)lanes << 16;
  return TDICT_OK;
}

/* Reads sizes in brackets, if there are any. */
static tdict_status read_sizes(reader *r, int most, int *ndim, int64_t *sizes) {
  *ndim = 0;
  if (*r->at != '[') return TDICT_OK;
  if (*++r->at == ']') return r->at++, TDICT_OK;
  for (;;) {
    char *end = NULL;
    if (*r->at < '0' || *r->at > '9') return refuse(r, "wanted a size");
    if (*ndim == most) return refuse(r, "too many sizes");
    sizes[(*ndim)++] = strtoll(r->at, &end, 10);
    r->at = end;
    if (*r->at == ']') return r->at++, TDICT_OK;
    if (*r->at++ != ',') return r->at--, refuse(r, "wanted ',' or ']'");
  }
}

static tdict_status read_tensor(reader *r, tdict_memory *memory, tdict_tensor **out) {
  tdict_dtype dtype;
  int ndim;
  int64_t shape[TDICT_MAX_NDIM];
  tdict_status status = read_dtype(r, &dtype);
  if (status == TDICT_OK) status = read_sizes(r, TDICT_MAX_NDIM, &ndim, shape);
  if (status == TDICT_OK && *r->at && *r->at != ' ') status = refuse(r, "wanted the end of the field");
  if (status != TDICT_OK) return status;
  return tdict_tensor_empty(dtype, ndim, shape, memory, out, r->err);
}

static tdict_status read_field(reader *r, tdict_memory *memory, tdict_tree *tree) {
  const size_t length = strcspn(r->at, ": ");
  if (length == 0 || r->at[length] != ':') return refuse(r, "wanted path:dtype[sizes]");
  char *path = malloc(length + 1);
  if (!path) return TDICT_ENOMEM;
  memcpy(path, r->at, length);
  path[length] = 0;
  r->at += length + 1;
  tdict_tensor *leaf = NULL;
  tdict_status status = read_tensor(r, memory, &leaf);
  if (status == TDICT_OK && tdict_has(tree, path)) status = refuse(r, "the path is repeated before the text");
  if (status == TDICT_OK) status = tdict_set(tree, path, leaf, r->err);
  tdict_tensor_release(leaf);
  free(path);
  return status;
}

static void skip_spaces(reader *r) { r->at += strspn(r->at, " "); }

tdict_status tree_from_text(const char *text, tdict_memory *memory, tdict_tree **out, tdict_error *err) {
  reader r = {text, text, err};
  int ndim;
  int64_t batch_size[TDICT_MAX_BATCH_NDIM];
  tdict_tree *tree = NULL;
  skip_spaces(&r);
  tdict_status status = read_sizes(&r, TDICT_MAX_BATCH_NDIM, &ndim, batch_size);
  if (status == TDICT_OK && ndim && *r.at && *r.at != ' ') status = refuse(&r, "wanted a space after the batch size");
  if (status == TDICT_OK) status = tdict_create(ndim, batch_size, &tree, err);
  for (skip_spaces(&r); status == TDICT_OK && *r.at; skip_spaces(&r)) status = read_field(&r, memory, tree);
  if (status == TDICT_OK)
    *out = tree;
  else
    tdict_release(tree);
  return status;
}

tdict_status tensor_from_text(const char *text, tdict_memory *memory, tdict_tensor **out, tdict_error *err) {
  reader r = {text, text, err};
  tdict_tensor *made = NULL;
  tdict_status status = read_tensor(&r, memory, &made);
  if (status == TDICT_OK && *r.at) status = refuse(&r, "wanted one tensor");
  if (status == TDICT_OK)
    *out = made;
  else
    tdict_tensor_release(made);
  return status;
}
