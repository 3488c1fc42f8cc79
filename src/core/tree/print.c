/* Prints a tree in columns, with one line for each of the first 100 keys. Only the function `describe` of the rule and
 * the hooks of objects can read elements. Borrows the tree and changes nothing. Thread rule: as in tdict/tree.h. */
#include "core/tree/print.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/tensor/layout.h"
#include "core/tree/cursor.h"
#include "tdict/debug.h"

enum { MOST_LINES = 100, WIDEST_NAME = 48, WIDEST_SHAPE = 40 };
enum { SHAPE_BYTES = 128, DEVICE_BYTES = 40, OBJECT_BYTES = 256 }; /* sizes of text buffers */
enum { PLACE_BYTES = DEVICE_BYTES + 16 };                          /* "pinned" and "shared" follow the device */

/* The output: a buffer that can be too short, a file, or a descriptor. */
typedef struct text_output {
  char *buffer;
  size_t bytes, length;
  FILE *file;
  int fd; /* used if `is_fd` is true */
  bool is_fd;
  int error; /* errno of the first write that failed */
} text_output;

typedef struct printer {
  text_output *to; /* NULL in the first pass, since that pass only measures the columns */
  const tdict_print_rule *rule;
  size_t lines, left_out; /* number of keys printed, and number of keys beyond MOST_LINES */
  size_t name_width, dtype_width, shape_width, place_width;
  const tdict_tensor *tensors[MOST_LINES]; /* the tensors that are printed, in order */
  /* for each printed tensor: the number of tensors of the tree that overlap this tensor; includes the tensor itself */
  size_t overlaps[MOST_LINES];
  size_t num_tensors; /* number of tensors printed so far in this pass */
} printer;

/* Writes to the descriptor without stdio, whose locks a stopped thread can hold. */
static void emit_to_descriptor(text_output *to, const char *text, size_t length) {
  while (length && !to->error) {
    ssize_t written = write(to->fd, text, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      to->error = written < 0 ? errno : EIO;
      return;
    }
    text += written;
    length -= (size_t)written;
  }
}

static void emit(text_output *to, const char *text, size_t length) {
  if (to->is_fd) {
    emit_to_descriptor(to, text, length);
  } else if (to->file) {
    if (!to->error && fwrite(text, 1, length, to->file) != length) to->error = errno ? errno : EIO;
  } else if (to->length + 1 < to->bytes) {
    size_t room = to->bytes - 1 - to->length;
    memcpy(to->buffer + to->length, text, length < room ? length : room);
  }
  to->length += length;
}

static void emit_text(text_output *to, const char *text) { emit(to, text, strlen(text)); }

static void emit_spaces(text_output *to, size_t count) {
  static const char spaces[] = "                ";
  for (; count >= sizeof spaces - 1; count -= sizeof spaces - 1) emit(to, spaces, sizeof spaces - 1);
  emit(to, spaces, count);
}

/* Returns the size of a UTF-8 character, or 0 for control characters and invalid bytes, which are printed as hex. */
static size_t count_printable_bytes(const char *text) {
  const unsigned char *c = (const unsigned char *)text;
  if (c[0] < 0x80) return c[0] >= 0x20 && c[0] < 0x7f;
  size_t length = c[0] >= 0xf0 && c[0] < 0xf5   ? 4
                  : c[0] >= 0xe0 && c[0] < 0xf0 ? 3
                  : c[0] >= 0xc2 && c[0] < 0xe0 ? 2
                                                : 0;
  for (size_t i = 1; i < length; i++)
    if ((c[i] & 0xc0) != 0x80) return 0;
  /* Reject control characters, overlong forms, surrogates and values above U+10FFFF. */
  if (length == 2 && c[0] == 0xc2 && c[1] < 0xa0) return 0;
  if (length == 3 && ((c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xed && c[1] >= 0xa0))) return 0;
  if (length == 4 && ((c[0] == 0xf0 && c[1] < 0x90) || (c[0] == 0xf4 && c[1] >= 0x90))) return 0;
  return length;
}

/* Writes a text: unprintable bytes as \xNN, backslashes doubled if `escaped`. Returns the number of characters. If `to`
 * is NULL, only counts them. */
static size_t emit_printable(text_output *to, const char *key, bool escaped) {
  size_t width = 0;
  while (*key) {
    size_t length = count_printable_bytes(key);
    char text[8];
    if (length && !(escaped && *key == '\\')) {
      if (to) emit(to, key, length);
      width++;
      key += length;
      continue;
    }
    int n = *key == '\\' ? snprintf(text, sizeof text, "\\\\")
                         : snprintf(text, sizeof text, "\\x%02x", (unsigned)(unsigned char)*key);
    if (to) emit(to, text, (size_t)n);
    width += (size_t)n;
    key++;
  }
  return width;
}

static size_t emit_key(text_output *to, const char *key) { return emit_printable(to, key, true); }

static void emit_node(text_output *to, const tdict_tree *td) {
  char text[SHAPE_BYTES];
  emit_text(to, "tree batch=");
  emit_text(to, tdict_text_shape(td->batch_ndim, td->batch_size, text, sizeof text));
  if (td->has_device) {
    emit_text(to, " device=");
    emit_text(to, tdict_device_format(td->device, text, sizeof text));
  }
  if (tdict_node_is_locked(td)) emit_text(to, " locked");
  emit_text(to, "\n");
}

static void widen_column(size_t *width, size_t wanted, size_t most) {
  if (wanted > most) wanted = most;
  if (wanted > *width) *width = wanted;
}

static void emit_column(text_output *to, const char *text, size_t width) {
  size_t length = strlen(text);
  emit_text(to, text);
  emit_spaces(to, (length < width ? width - length : 0) + 1);
}

/* Writes the device of the i-th printed tensor, and the words "pinned" and "shared". Returns the text. */
static const char *format_place(const printer *p, size_t i, char text[PLACE_BYTES]) {
  const tdict_tensor *t = p->tensors[i];
  snprintf(text, PLACE_BYTES, "%s%s%s", TDICT_DEVICE_TEXT(tdict_tensor_device(t)),
           tdict_tensor_is_pinned(t) ? " pinned" : "", p->overlaps[i] > 1 ? " shared" : "");
  return text;
}

static void print_tensor(printer *p, const tdict_tensor *t, size_t name_width) {
  char dtype[DEVICE_BYTES], shape[SHAPE_BYTES], place[PLACE_BYTES], about[TDICT_PRINT_ABOUT_BYTES];
  size_t dtype_width = strlen(tdict_dtype_format(t->dtype, dtype, sizeof dtype));
  tdict_text_shape(t->ndim, t->dims, shape, sizeof shape);
  /* First pass: measure the columns and note the tensor. */
  if (!p->to) {
    widen_column(&p->name_width, name_width, WIDEST_NAME);
    widen_column(&p->dtype_width, dtype_width, DEVICE_BYTES);
    widen_column(&p->shape_width, strlen(shape), WIDEST_SHAPE);
    p->tensors[p->num_tensors++] = t;
    return;
  }
  /* Second pass: print. */
  emit_spaces(p->to, (name_width < p->name_width ? p->name_width - name_width : 0) + 2);
  emit_column(p->to, dtype, p->dtype_width);
  emit_column(p->to, shape, p->shape_width);
  format_place(p, p->num_tensors++, place);
  if (p->rule->describe) {
    emit_column(p->to, place, p->place_width);
    p->rule->describe(t, about);
    emit_text(p->to, about);
  } else {
    emit_text(p->to, place);
  }
  emit_text(p->to, "\n");
}

static void print_object(printer *p, const tdict_box *box, size_t name_width) {
  if (!p->to) {
    widen_column(&p->name_width, name_width, WIDEST_NAME);
    return;
  }
  emit_spaces(p->to, (name_width < p->name_width ? p->name_width - name_width : 0) + 2);
  /* The text of a built-in type already describes the object, so the type name is left out. */
  const bool is_builtin = tdict_builtin_of(box->type) != NULL;
  if (!is_builtin) emit_text(p->to, "object ");
  if (!is_builtin) emit_printable(p->to, box->type->name, false);
  size_t (*print)(const void *self, char *buffer, size_t bytes) = TDICT_HOOK_OF(box->type, print);
  if (print && (is_builtin || !p->rule->skips_hooks)) {
    char text[OBJECT_BYTES];
    text[0] = 0;
    size_t length = print(box->self, text, sizeof text);
    /* The hook might not have written the terminating 0. */
    text[sizeof text - 1] = 0;
    if (text[0] && !is_builtin) emit_text(p->to, "  ");
    emit_printable(p->to, text, false);
    if (length >= sizeof text) emit_text(p->to, "...");
  }
  emit_text(p->to, "\n");
}

/* Prints or measures a key and its entry. Not inlined: its buffers would enlarge the many frames of print_below(). */
static __attribute__((noinline)) void print_entry(printer *p, const char *key, tdict_leaf leaf, size_t level) {
  tdict_tree *tree = tdict_leaf_tree(leaf);
  p->lines++;
  if (p->to) emit_spaces(p->to, 2 * level);
  size_t width = 2 * level + emit_key(p->to, key);
  if (tree && p->to) {
    emit_text(p->to, ": ");
    emit_node(p->to, tree);
  }
  if (tdict_leaf_tensor(leaf)) print_tensor(p, tdict_leaf_tensor(leaf), width);
  if (tdict_leaf_box(leaf)) print_object(p, tdict_leaf_box(leaf), width);
}

/* Prints or measures everything below a node at `depth`. Recurses only if memory for a deeper cursor is exhausted. */
static void print_below(printer *p, const tdict_tree *td, size_t depth) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, td, false);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(&cursor)) != 0;) {
    tdict_tree *tree = tdict_leaf_tree(leaf);
    size_t level = depth + cursor.depth - 1;
    if (p->lines == MOST_LINES)
      p->left_out++;
    else
      print_entry(p, tdict_cursor_key(&cursor)->name, leaf, level);
    /* Go deeper. The first pass can stop at the limit. The second pass also counts the keys left out. */
    if (!tree || (p->lines == MOST_LINES && !p->to)) continue;
    if (!tdict_cursor_enter(&cursor, tree)) print_below(p, tree, level + 1);
  }
  tdict_cursor_reset(&cursor);
}

/* Returns true if two tensors use the same storage and their byte ranges overlap. */
static bool tensors_overlap(const tdict_tensor *a, const tdict_tensor *b) {
  int64_t low_a, end_a, low_b, end_b;
  if (a->storage != b->storage || !a->numel || !b->numel) return false;
  const size_t item_a = tdict_dtype_bytes(a->dtype), item_b = tdict_dtype_bytes(b->dtype);
  if (!tdict_layout_extent(a->ndim, a->dims, tdict_tensor_dims_strides(a), item_a, &low_a, &end_a)) return false;
  if (!tdict_layout_extent(b->ndim, b->dims, tdict_tensor_dims_strides(b), item_b, &low_b, &end_b)) return false;
  /* Compare the byte ranges relative to the data of `a`. */
  const int64_t apart = (int64_t)((uintptr_t)b->data - (uintptr_t)a->data);
  return low_a < apart + end_b && apart + low_b < end_a;
}

/* Counts for each printed tensor the tensors that overlap it. Recurses only when print_below() does. */
static void count_overlaps(printer *p, const tdict_tree *td) {
  tdict_cursor cursor;
  tdict_cursor_init(&cursor, td, false);
  for (tdict_leaf leaf; (leaf = tdict_cursor_next(&cursor)) != 0;) {
    const tdict_tensor *tensor = tdict_leaf_tensor(leaf);
    tdict_tree *tree = tdict_leaf_tree(leaf);
    for (size_t i = 0; tensor && i < p->num_tensors; i++)
      p->overlaps[i] += p->tensors[i] == tensor || tensors_overlap(p->tensors[i], tensor);
    if (tree && !tdict_cursor_enter(&cursor, tree)) count_overlaps(p, tree);
  }
  tdict_cursor_reset(&cursor);
}

static void emit_totals(text_output *to, const tdict_tree *td, bool skips_hooks) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  char text[96];
  size_t leaves = tdict_num_leaves(td), objects = tdict_num_objects(td);
  snprintf(text, sizeof text, "%zu tensor%s", leaves, leaves == 1 ? "" : "s");
  emit_text(to, text);
  if (objects) {
    snprintf(text, sizeof text, ", %zu object%s", objects, objects == 1 ? "" : "s");
    emit_text(to, text);
  }
  /* The sizes of objects come from hooks, so leave out the number of bytes. */
  if (objects && skips_hooks) {
    emit_text(to, "\n");
    return;
  }
  const size_t bytes = tdict_bytes(td);
  snprintf(text, sizeof text, ", %zu bytes", bytes);
  emit_text(to, text);
  if (bytes >= 1024) {
    size_t unit = 0;
    double size = (double)bytes / 1024;
    for (; size >= 1024 && unit < sizeof units / sizeof *units - 1; unit++) size /= 1024;
    snprintf(text, sizeof text, " (%.1f %s)", size, units[unit]);
    emit_text(to, text);
  }
  emit_text(to, "\n");
}

/* Measures the columns in a first pass and prints in a second pass, because the widths depend on all lines. */
static void print_tree(text_output *to, const tdict_tree *td, const tdict_print_rule *rule) {
  /* Measure. */
  char place[PLACE_BYTES];
  printer p = {.to = NULL, .rule = rule};
  print_below(&p, td, 1);
  count_overlaps(&p, td);
  for (size_t i = 0; i < p.num_tensors; i++)
    widen_column(&p.place_width, strlen(format_place(&p, i, place)), PLACE_BYTES);
  /* Print. */
  p.to = to;
  p.lines = p.left_out = p.num_tensors = 0;
  emit_node(to, td);
  print_below(&p, td, 1);
  if (p.left_out) {
    char text[64];
    snprintf(text, sizeof text, "  ... %zu more key%s\n", p.left_out, p.left_out == 1 ? "" : "s");
    emit_text(to, text);
  }
  emit_totals(to, td, rule->skips_hooks);
}

tdict_status tdict_print_to_file(const char *what, const tdict_tree *td, const tdict_print_rule *rule, FILE *file,
                                 tdict_error *err) {
  TDICT_UNCANCELLED;
  if (!td || !file) return tdict_fail_null(err, what, td ? "file" : "tree");
  text_output to = {.file = file};
  print_tree(&to, td, rule);
  /* Flush the file, because stdio reports a full disk only when stdio writes its buffer. */
  if (!to.error && fflush(file) != 0) to.error = errno ? errno : EIO;
  if (!to.error) return TDICT_OK;
  return tdict_fail_native(err, TDICT_EIO, to.error, "%s: the file could not be written (errno %d)", what, to.error);
}

void tdict_print_to_descriptor(const tdict_tree *td, const tdict_print_rule *rule, int fd) {
  text_output to = {.fd = fd, .is_fd = true};
  print_tree(&to, td, rule);
}

static const tdict_print_rule without_elements = {NULL, false};

size_t tdict_format(const tdict_tree *tree, char *buffer, size_t bytes) {
  text_output to = {.buffer = buffer, .bytes = bytes};
  print_tree(&to, tree, &without_elements);
  if (bytes) buffer[to.length < bytes ? to.length : bytes - 1] = 0;
  return to.length;
}

tdict_status tdict_print(const tdict_tree *tree, FILE *file, tdict_error *err) {
  TDICT_UNCANCELLED;
  return tdict_print_to_file("print", tree, &without_elements, file, err);
}
