/* Makes trees and tensors that a string describes, and fills them: see make.h. */
#include <stdatomic.h>

#include "support/test.h"
#include "support/tree_text.h"

enum { TEXT_BYTES = 1024 };
typedef void (*filler)(tdict_tensor *tensor);

void td_fill_tensor(tdict_tensor *tensor) {
  static uint64_t seed;
  const size_t bytes = tdict_tensor_bytes(tensor);
  unsigned char *data = tdict_tensor_data(tensor);
  if (bytes) td_fill_random(data, bytes, ++seed);
  for (size_t i = 0; tdict_tensor_dtype(tensor) == TDICT_BOOL && i < bytes; i++) data[i] &= 1;
}

#define COUNT(type) \
  for (int64_t i = 0; i < count; i++) ((type *)data)[i] = (type)i
static void fill_counting(tdict_tensor *tensor) {
  const tdict_dtype dtype = tdict_tensor_dtype(tensor);
  const size_t item = tdict_dtype_bytes(dtype);
  const int64_t count = (int64_t)(tdict_tensor_bytes(tensor) / item);
  void *data = tdict_tensor_data(tensor);
  if (dtype == TDICT_F32)
    COUNT(float);
  else if (dtype == TDICT_F64)
    COUNT(double);
  else if (dtype == TDICT_I8 || dtype == TDICT_U8)
    COUNT(uint8_t);
  else if (dtype == TDICT_I16 || dtype == TDICT_U16)
    COUNT(uint16_t);
  else if (dtype == TDICT_I32 || dtype == TDICT_U32)
    COUNT(uint32_t);
  else if (dtype == TDICT_I64 || dtype == TDICT_U64)
    COUNT(int64_t);
  else
    fail_msg("cannot count in elements of dtype %s", tdict_dtype_name(dtype));
}

static tdict_status fill_entry(void *user, const tdict_entry *entry, tdict_error *err) {
  (void)err;
  if (entry->tensor) (*(const filler *)user)(entry->tensor);
  return TDICT_OK;
}
static bool is_on_host(tdict_memory *memory) { return !memory || tdict_memory_device(memory).type == TDICT_DEVICE_CPU; }
static tdict_tree *make_tree(tdict_memory *memory, filler fill, const char *format, va_list args) {
  char text[TEXT_BYTES];
  tdict_tree *host = NULL, *out = NULL;
  assert_in_range(vsnprintf(text, sizeof text, format, args), 0, TEXT_BYTES - 1);
  td_ok(tree_from_text(text, is_on_host(memory) ? memory : NULL, &host, err));
  td_ok(tdict_walk(host, fill_entry, &fill, err));
  if (is_on_host(memory)) return host;
  td_ok(tdict_clone_deep(host, TD_IN(memory), &out, err));
  tdict_release(host);
  return out;
}
static tdict_tensor *make_tensor(tdict_memory *memory, filler fill, const char *format, va_list args) {
  char text[TEXT_BYTES];
  tdict_tensor *host = NULL, *out = NULL;
  assert_in_range(vsnprintf(text, sizeof text, format, args), 0, TEXT_BYTES - 1);
  td_ok(tensor_from_text(text, is_on_host(memory) ? memory : NULL, &host, err));
  fill(host);
  if (is_on_host(memory)) return host;
  td_ok(tdict_tensor_clone(host, memory, &out, err));
  tdict_tensor_release(host);
  return out;
}

/* Passes the arguments after `text` to one of the functions above. */
#define MAKE(type, function, memory, fill)             \
  va_list args;                                        \
  va_start(args, text);                                \
  type *made = function((memory), (fill), text, args); \
  va_end(args);                                        \
  return made
tdict_tree *td_tree(const char *text, ...) { MAKE(tdict_tree, make_tree, NULL, td_fill_tensor); }
tdict_tensor *td_tensor(const char *text, ...) { MAKE(tdict_tensor, make_tensor, NULL, td_fill_tensor); }
tdict_tree *td_tree_in(tdict_memory *memory, const char *text, ...) {
  MAKE(tdict_tree, make_tree, memory, td_fill_tensor);
}
tdict_tensor *td_tensor_in(tdict_memory *memory, const char *text, ...) {
  MAKE(tdict_tensor, make_tensor, memory, td_fill_tensor);
}
tdict_tree *td_tree_counting(const char *text, ...) { MAKE(tdict_tree, make_tree, NULL, fill_counting); }
tdict_tensor *td_tensor_counting(const char *text, ...) { MAKE(tdict_tensor, make_tensor, NULL, fill_counting); }

tdict_tensor *td_put(tdict_tree *tree, const char *path, tdict_tensor *tensor) {
  td_ok(tdict_set(tree, path, tensor, err));
  tdict_tensor_release(tensor);
  return tensor;
}
tdict_tree *td_put_tree(tdict_tree *tree, const char *path, tdict_tree *child) {
  td_ok(tdict_set_tree(tree, path, child, err));
  tdict_release(child);
  return child;
}

tdict_tensor *td_leaf(const tdict_tree *tree, const char *path) {
  return td_made(tensor, tdict_get(tree, path, &made, err));
}
tdict_tree *td_child(const tdict_tree *tree, const char *path) {
  return td_made(tree, tdict_get_tree(tree, path, &made, err));
}

char *td_text(const char *format, ...) {
  static char texts[256][1024];
  static atomic_uint count;
  char *text = texts[atomic_fetch_add(&count, 1) % 256];
  va_list args;
  va_start(args, format);
  const int length = vsnprintf(text, sizeof *texts, format, args);
  va_end(args);
  if (length < 0 || (size_t)length >= sizeof *texts) abort();
  return text;
}

void *td_alloc(size_t bytes) {
  void *out = malloc(bytes);
  assert_non_null(out);
  return out;
}
void *td_zeros(size_t count, size_t bytes) {
  void *out = calloc(count, bytes);
  assert_non_null(out);
  return out;
}
