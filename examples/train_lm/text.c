/* The dataset: three functions and a struct. The struct owns the text. */
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
  unsigned char *bytes;
  int64_t count, window;
  tdict_field fields[2];
} text;

static int64_t length(void *self) {
  const text *t = self;
  return t->count - t->window;
}

static tdict_status fetch(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch, int64_t row,
                          tdict_error *err) {
  const text *t = self;
  (void)info;
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

/* 0 or an errno. */
static int read_file(text *t, const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return errno;
  size_t room = 0, got = 1;
  int why = 0;
  while (got > 0 && why == 0) {
    if (room == (size_t)t->count) {
      room = room ? 2 * room : 1 << 16;
      unsigned char *bytes = realloc(t->bytes, room);
      if (!bytes) why = ENOMEM;
      if (bytes) t->bytes = bytes;
    }
    got = why ? 0 : fread(t->bytes + t->count, 1, room - (size_t)t->count, file);
    if (got == 0 && ferror(file)) why = errno;
    t->count += (int64_t)got;
  }
  fclose(file);
  return why;
}

static tdict_status refuse(text *t, int why, const char *path, tdict_error *err) {
  const tdict_status status = why == ENOMEM ? TDICT_ENOMEM : why ? TDICT_EIO : TDICT_EINVAL;
  if (why)
    tdict_error_set(err, status, path, "%s", strerror(why));
  else
    tdict_error_set(err, status, path, "%lld bytes, wanted at least %lld for a window of %lld", (long long)t->count,
                    (long long)t->window + 1, (long long)t->window);
  err->native = why;
  if (t) release(t);
  return status;
}

tdict_status text_dataset(const char *path, int64_t window, tdict_dataset **out, tdict_error *err) {
  text *t = calloc(1, sizeof *t);
  memset(err, 0, sizeof *err);
  if (!t) return refuse(t, ENOMEM, path, err);
  t->window = window;
  int why = read_file(t, path);
  if (why || t->count <= window) return refuse(t, why, path, err);
  t->fields[0] = (tdict_field){"tokens", TDICT_I64, 1, {window}};
  t->fields[1] = (tdict_field){"targets", TDICT_I64, 1, {window}};
  tdict_dataset_table table = tdict_dataset_table_default();
  table.name = "text";
  table.self = t;
  table.fields = t->fields;
  table.num_fields = 2;
  table.length = length;
  table.fetch = fetch;
  table.release = release;
  tdict_status status = tdict_dataset_create(&table, out, err);
  if (status != TDICT_OK) release(t);
  return status;
}
