/* Reads paths key by key, escapes and joins keys. A reader owns at most one heap buffer. Threads: see path.h. */
#include "core/tree/path.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "tdict/path.h"

void tdict_path_init(tdict_path *path, const char *text, const char *what) {
  path->whole = path->begin = path->rest = text;
  path->end = text + strlen(text);
  path->what = what;
  path->last = false;
  path->heap = NULL;
}

void tdict_path_reset(tdict_path *path) {
  free(path->heap);
  path->heap = NULL;
}

static tdict_status fail_path(const tdict_path *path, const char *why, tdict_error *err) {
  return tdict_fail_at(err, TDICT_EINVAL, path->whole, "%s: %s", path->what, why);
}

/* Returns the dot or 0 after the key, and counts *escapes. Returns NULL if a last backslash escapes nothing. */
static const char *find_key_end(const char *text, size_t *escapes) {
  *escapes = 0;
  for (; *text && *text != '.'; text++)
    if (*text == '\\') {
      ++*escapes;
      if (!*++text) return NULL;
    }
  return text;
}

static const char *const empty_key = "the path has an empty key";
static const char *const bare_backslash = "the path ends with a backslash that escapes nothing";

/* Copies a key without its backslashes into the reader's buffer. A long key gets a buffer on the heap. */
static tdict_status unescape(tdict_path *path, const char *text, const char *end, tdict_error *err) {
  char *to = path->local;
  /* The key without backslashes is never longer than the escaped key. */
  if ((size_t)(end - text) > sizeof path->local) {
    free(path->heap);
    to = path->heap = malloc((size_t)(end - text));
    if (!to) return tdict_fail_at(err, TDICT_ENOMEM, path->whole, "%s: no memory to read the path", path->what);
  }
  const char *key = to;
  while (text < end) {
    if (*text == '\\') text++;
    *to++ = *text++;
  }
  path->name = tdict_name_of(key, (size_t)(to - key));
  return TDICT_OK;
}

tdict_status tdict_path_next(tdict_path *path, tdict_error *err) {
  const char *text = path->rest, *end;
  /* Most keys have no backslash and need no copy. */
  if (tdict_name_read(&path->name, text, path->end)) {
    end = text + path->name.length;
  } else {
    /* The key has a backslash or is empty, so read the key byte by byte. */
    size_t escapes;
    end = find_key_end(text, &escapes);
    if (!end) return fail_path(path, bare_backslash, err);
    if (end == text) return fail_path(path, empty_key, err);
    tdict_status status = unescape(path, text, end, err);
    if (status != TDICT_OK) return status;
  }
  path->begin = text;
  path->last = !*end;
  path->rest = path->last ? end : end + 1;
  return TDICT_OK;
}

tdict_status tdict_path_check_rest(const tdict_path *path, tdict_error *err) {
  if (path->last) return TDICT_OK;
  for (const char *text = path->rest;; text++) {
    size_t escapes;
    const char *end = find_key_end(text, &escapes);
    if (!end) return fail_path(path, bare_backslash, err);
    if (end == text) return fail_path(path, empty_key, err);
    if (!*end) return TDICT_OK;
    text = end;
  }
}

/* A writer to a buffer that can be too short. Counts the full length. */
typedef struct path_writer {
  char *buffer;
  size_t bytes, length;
} path_writer;

static void put_char(path_writer *w, char c) {
  if (w->length + 1 < w->bytes) w->buffer[w->length] = c;
  w->length++;
}

static size_t end_text(const path_writer *w) {
  if (w->bytes) w->buffer[w->length < w->bytes ? w->length : w->bytes - 1] = 0;
  return w->length;
}

static void put_escaped_key(path_writer *w, const char *key) {
  for (; *key; key++) {
    if (*key == '.' || *key == '\\') put_char(w, '\\');
    put_char(w, *key);
  }
}

size_t tdict_path_escape(const char *key, char *buffer, size_t bytes) {
  return tdict_path_join(&key, 1, buffer, bytes);
}

size_t tdict_path_join(const char *const *keys, size_t count, char *buffer, size_t bytes) {
  path_writer w;
  w.buffer = buffer;
  w.bytes = bytes;
  w.length = 0;
  for (size_t i = 0; i < count; i++) {
    if (i) put_char(&w, '.');
    put_escaped_key(&w, keys[i]);
  }
  return end_text(&w);
}
