/* The dataset: three functions and a struct. The struct owns the text. */
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
  unsigned char *bytes;
  int64_t count, window;
  tdict_field fields[2];
  tdict_schema schema;
} text;

static int64_t length(void *self) {
  const text *t = self;
  return t->count - t->window;
}

static const tdict_schema *schema(void *self) { return &((text *)self)->schema; }

static tdict_status fetch(void *self, int64_t index, tdict_tree *batch, int64_t row, tdict_error *err) {
  const text *t = self;
  (void)err;
  int64_t *tokens = (int64_t *)tdict_data(batch, "tokens") + row * t->window;
  int64_t *targets = (int64_t *)tdict_data(batch, "targets") + row * t->window;
  for (int64_t i = 0; i < t->window; i++) {
    tokens[i] = t->bytes[index + i];
    targets[i] = t->bytes[index + i + 1];
  }
  return TDICT_OK;
}

static void release(void *self) {
  text *t = self;
  free(t->bytes);
  free(t);
}

static bool read_file(text *t, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return false;
  bool good = fseek(file, 0, SEEK_END) == 0;
  t->count = good ? ftell(file) : -1;
  rewind(file);
  t->bytes = t->count > 0 ? malloc((size_t)t->count) : NULL;
  good = t->bytes && fread(t->bytes, 1, (size_t)t->count, file) == (size_t)t->count;
  fclose(file);
  return good;
}

tdict_status text_dataset(const char *path, int64_t window, tdict_dataset *out, tdict_error *err) {
  text *t = calloc(1, sizeof *t);
  memset(err, 0, sizeof *err);
  if (!t || !read_file(t, path) || t->count <= window) {
    if (t) release(t);
    err->status = TDICT_EIO;
    snprintf(err->message, sizeof err->message, "the text %.180s cannot be read, or is too short", path);
    return TDICT_EIO;
  }
  t->window = window;
  t->fields[0] = (tdict_field){"tokens", TDICT_I64, 1, {window}};
  t->fields[1] = (tdict_field){"targets", TDICT_I64, 1, {window}};
  t->schema = (tdict_schema){t->fields, 2};
  *out = tdict_dataset_default();
  out->name = "text";
  out->self = t;
  out->length = length;
  out->schema = schema;
  out->fetch = fetch;
  out->release = release;
  return TDICT_OK;
}
