/* Summarizes the elements of tensors, and prints a tree with the summaries. Thread rule: as in tdict/debug.h. */
#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/float_env.h"
#include "core/base/options.h"
#include "core/base/thread.h"
#include "core/tensor/element.h"
#include "core/tensor/layout.h"
#include "core/tree/print.h"
#include "tdict/debug.h"

/* The kinds of dtypes that have different summaries. */
typedef enum number_kind { KIND_INTEGER, KIND_FLOAT, KIND_BOOL, KIND_COMPLEX } number_kind;

/* long double holds every integer of 64 bits on common machines, where sums of float64 then do not overflow. */
typedef struct summary {
  tdict_dtype dtype; /* of one lane */
  number_kind kind;
  long double low, high, sum;
  int64_t num_numbers, num_nans; /* number of elements that are not NaN, and of elements that are NaN */
  int64_t num_true;
} summary;

static number_kind kind_of(tdict_dtype dtype) {
  if (dtype == TDICT_BOOL) return KIND_BOOL;
  if (dtype == TDICT_C64 || dtype == TDICT_C128) return KIND_COMPLEX;
  return tdict_dtype_is_integer(dtype) ? KIND_INTEGER : KIND_FLOAT;
}

static void add_element(summary *s, const void *element) {
  double real = 0, imaginary = 0;
  int64_t signed_number;
  uint64_t number;
  (void)tdict_element_read(s->dtype, element, &real, &imaginary);
  if (isnan(real) || isnan(imaginary)) {
    s->num_nans++;
    return;
  }
  long double value = real;
  /* tdict_element_read() rounds integers of 64 bits to double. */
  if (s->dtype == TDICT_I64) {
    memcpy(&signed_number, element, sizeof signed_number);
    value = (long double)signed_number;
  } else if (s->dtype == TDICT_U64) {
    memcpy(&number, element, sizeof number);
    value = (long double)number;
  }
  if (!s->num_numbers || value < s->low) s->low = value;
  if (!s->num_numbers || value > s->high) s->high = value;
  s->sum += value;
  s->num_true += value != 0;
  s->num_numbers++;
}

static tdict_status add_rect(void *user, const tdict_rect *rect, tdict_error *err) {
  summary *s = user;
  const size_t item = tdict_dtype_bytes(s->dtype);
  (void)err;
  for (size_t row = 0; row < rect->height; row++) {
    const uintptr_t begin = (uintptr_t)rect->src + row * (uintptr_t)rect->src_pitch;
    for (size_t at = 0; at < rect->width; at += item) add_element(s, (const void *)(begin + at));
  }
  return TDICT_OK;
}

/* Writes a number of a summary, and returns the text. */
static const char *format_number(number_kind kind, long double value, char text[32]) {
  if (isnan(value)) /* the mean of inf and -inf */
    snprintf(text, 32, "nan");
  else
    snprintf(text, 32, kind == KIND_INTEGER ? "%.0Lf" : "%.6Lg", value);
  return text;
}

TDICT_FLOAT_ENV_BODY static void format_summary(const summary *s, char text[TDICT_PRINT_ABOUT_BYTES]) {
  char low[32], high[32], mean[32], nans[32];
  const int64_t count = s->num_numbers + s->num_nans;
  snprintf(nans, sizeof nans, "nan=%lld", (long long)s->num_nans);
  if (s->kind == KIND_BOOL) {
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "true=%lld of %lld", (long long)s->num_true, (long long)count);
    return;
  }
  if (s->kind == KIND_COMPLEX || !s->num_numbers) {
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "%s of %lld", nans, (long long)count);
    return;
  }
  format_number(s->kind, s->low, low);
  format_number(s->kind, s->high, high);
  format_number(KIND_FLOAT, s->sum / (long double)s->num_numbers, mean);
  if (s->kind == KIND_INTEGER)
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "min=%-12s max=%-12s mean=%s", low, high, mean);
  else
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "min=%-12s max=%-12s mean=%-12s %s", low, high, mean, nans);
}

/* Summarizes a tensor whose elements can be read. */
TDICT_FLOAT_ENV_BODY static summary compute_summary(const tdict_tensor *t) {
  const tdict_dtype lane = (t->dtype & 0xffffu) | 1u << 16;
  const int64_t *strides = tdict_tensor_dims_strides(t);
  summary s = {.dtype = lane, .kind = kind_of(lane)};
  tdict_pair pair;
  tdict_pair_init(&pair, t->ndim, t->dims, strides, strides, tdict_dtype_bytes(t->dtype));
  const tdict_pair_span whole = {t->data, t->data, 0, tdict_tensor_nbytes(t)};
  (void)!tdict_pair_walk(&pair, &whole, add_rect, &s, NULL);
  return s;
}

static void summarize(const tdict_tensor *t, char text[TDICT_PRINT_ABOUT_BYTES]) {
  const tdict_float_env saved = tdict_float_env_enter();
  const summary s = compute_summary(t);
  format_summary(&s, text);
  tdict_float_env_leave(&saved);
}

/* If the elements cannot be read, writes the reason and returns true. */
static bool explain_unreadable(const tdict_tensor *t, char text[TDICT_PRINT_ABOUT_BYTES]) {
  if (!t->numel)
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "empty");
  else if (t->storage->device.type != TDICT_DEVICE_CPU)
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "not read: on %s", TDICT_DEVICE_TEXT(t->storage->device));
  else if (tdict_storage_is_unloaded(t->storage))
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "not read: in a file");
  else
    return false;
  return true;
}

static void describe_after_transfers(const tdict_tensor *t, char text[TDICT_PRINT_ABOUT_BYTES]) {
  if (explain_unreadable(t, text)) return;
  if (!tdict_tensor_const_data(t))
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "not read: a transfer into the tensor has failed");
  else
    summarize(t, text);
}

/* Describes a tensor without waiting. Takes no lock, which a thread that a debugger has stopped can hold. */
static void describe_at_once(const tdict_tensor *t, char text[TDICT_PRINT_ABOUT_BYTES]) {
  if (explain_unreadable(t, text)) return;
  if (atomic_load_explicit(&t->storage->marks, memory_order_acquire))
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "not read: in transfer");
  else if (atomic_load_explicit(&t->storage->busy_uses, memory_order_acquire))
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "not read: in use by a stream");
  else if (tdict_storage_has_lost(t->storage))
    snprintf(text, TDICT_PRINT_ABOUT_BYTES, "not read: a transfer into the storage has failed");
  else
    summarize(t, text);
}

static const tdict_print_rule waiting = {describe_after_transfers, false};
static const tdict_print_rule at_once = {describe_at_once, true};

/* Describes a tree for a debugger. */
static void describe_on_stderr(const tdict_tree *tree) {
  TDICT_UNCANCELLED;
  static const char none[] = "tree: NULL\n";
  const int kept = errno;
  if (tree)
    tdict_print_to_descriptor(tree, &at_once, STDERR_FILENO);
  else if (write(STDERR_FILENO, none, sizeof none - 1) < 0)
    (void)errno; /* a debugger needs no report of the error */
  errno = kept;
}

tdict_status tdict_describe(const tdict_tree *tree, FILE *file, tdict_error *err) {
  if (file) return tdict_print_to_file("describe", tree, &waiting, file, err);
  describe_on_stderr(tree);
  return TDICT_OK;
}

/* Checks that the elements can be read. In host memory, first waits for transfers that write the tensor. */
static tdict_status check_readable(const tdict_tensor *t, tdict_error *err) {
  if (t->storage->device.type != TDICT_DEVICE_CPU)
    return tdict_fail(err, TDICT_EWRONGDEVICE, "summary: the tensor is on %s, wanted host memory",
                      TDICT_DEVICE_TEXT(t->storage->device));
  if (tdict_storage_is_unloaded(t->storage))
    return tdict_fail(err, TDICT_ENOTSUP, "summary: the elements are not loaded from a file yet");
  if (t->numel && !tdict_tensor_const_data(t))
    return tdict_fail(err, TDICT_EINVAL, "summary: a transfer into the tensor has failed");
  return TDICT_OK;
}

/* Sets the minimum, maximum and mean of a summary of numbers. */
TDICT_FLOAT_ENV_BODY static void set_range(const summary *s, tdict_tensor_summary *out) {
  out->min = (double)s->low;
  out->max = (double)s->high;
  out->mean = (double)(s->sum / (long double)s->num_numbers);
  if (s->kind != KIND_INTEGER) return;
  /* A negative long double has no uint64_t value, and a large uint64_t has no int64_t value. */
  out->min_integer = s->low < 0 ? (int64_t)s->low : (int64_t)(uint64_t)s->low;
  out->max_integer = s->high < 0 ? (int64_t)s->high : (int64_t)(uint64_t)s->high;
}

tdict_status tdict_tensor_get_summary(const tdict_tensor *tensor, tdict_tensor_summary *out, tdict_error *err) {
  if (!tensor || !out) return tdict_fail_null(err, "summary", tensor ? "out" : "tensor");
  tdict_tensor_summary found = tdict_tensor_summary_default();
  tdict_status status = tdict_options_check_size(out, sizeof found, "summary", err);
  if (status == TDICT_OK) status = check_readable(tensor, err);
  if (status != TDICT_OK) return status;
  if (tensor->numel) {
    const tdict_float_env saved = tdict_float_env_enter();
    const summary s = compute_summary(tensor);
    found.num_elements = s.num_numbers + s.num_nans;
    found.num_nans = s.num_nans;
    if (s.kind == KIND_BOOL) found.num_true = s.num_true;
    if (s.num_numbers && (s.kind == KIND_INTEGER || s.kind == KIND_FLOAT)) set_range(&s, &found);
    tdict_float_env_leave(&saved);
  }
  return tdict_options_write(out, &found, sizeof found, "summary", err);
}
