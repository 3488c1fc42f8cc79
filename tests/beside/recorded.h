/* Code shared by the programs that repeat recorded operations: reads the lines of a record, collects the text of a
 * result, and makes tensors of consecutive numbers. Thread rule: one thread. */
#ifndef TDICT_TESTS_BESIDE_RECORDED_H
#define TDICT_TESTS_BESIDE_RECORDED_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/expressions.h"
#include "support/scoped.h"
#include "tdict/io.h"
#include "tdict/tdict.h"

static tdict_error error;
/* The text of the current result. */
static char text[1 << 20];
static size_t length;
/* The file of the record, and the folder with the files that TensorDict has saved. */
static FILE *record;
static char files[512], shown[1 << 18];
static long num_lines, num_operations, num_differences;

/* Ends the program with status 2 if a call that must succeed has failed. */
static inline void must(tdict_status status) {
  if (status == TDICT_OK) return;
  fprintf(stderr, "line %ld: %s: %s\n%s\n", num_lines, tdict_status_name(status), error.message, shown);
  exit(2);
}

/* Appends to `text`, with the format of printf(). */
static inline void add(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void add(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int added = vsnprintf(text + length, sizeof text - length, format, arguments);
  va_end(arguments);
  if (added < 0 || (length += (size_t)added) >= sizeof text) exit(2);
}
static inline void add_numbers(int64_t count, const int64_t *numbers) {
  for (int64_t i = 0; i < count; i++) add("%s%" PRId64, i ? "," : "", numbers[i]);
}
static inline void begin_result(void) { text[length = 0] = 0; }

/* Reads numbers that are separated by commas. Returns their count, which is 0 for "-" and "". */
static inline int read_numbers(const char *word, int64_t *out) {
  int count = 0;
  if (*word == '-' && !word[1]) return 0;
  for (char *end; *word && *word != ' '; word = *end ? end + 1 : end) out[count++] = strtoll(word, &end, 10);
  return count;
}
/* Makes an int64 tensor with the elements first, first + 1 and so on. */
static inline tdict_tensor *new_tensor(int64_t first, int ndim, const int64_t *shape) {
  tdict_tensor *t = NULL;
  must(tdict_tensor_empty(TDICT_I64, ndim, shape, NULL, &t, &error));
  int64_t *data = tdict_tensor_data(t);
  for (int64_t i = 0; i < tdict_tensor_numel(t); i++) data[i] = first + i;
  return t;
}
static inline int64_t count_elements(const tdict_tree *td) {
  int64_t count = 1;
  for (int i = 0; i < tdict_batch_ndim(td); i++) count *= tdict_batch_size(td)[i];
  return count;
}
/* Saves a tree in the working directory and opens the file. `format` is the extension of the file. */
static inline tdict_status save_and_open(const char *program, const tdict_tree *td, const char *format,
                                         tdict_tree **out) {
  static const char *const formats[] = {"safetensors", "memmap", "td", "tdz"};
  static const int32_t values[] = {TDICT_FORMAT_SAFETENSORS, TDICT_FORMAT_MEMMAP, TDICT_FORMAT_CONSOLIDATED,
                                   TDICT_FORMAT_TDZ};
  char path[600];
  tdict_save_options o = tdict_save_options_default();
  for (int i = 0; i < 4; i++)
    if (!strcmp(format, formats[i])) o.format = values[i];
  snprintf(path, sizeof path, "%s.saved.%s", program, format);
  const tdict_status status = tdict_save(NULL, path, td, &o, &error);
  return status == TDICT_OK ? tdict_open(path, NULL, out, &error) : status;
}
/* Opens a file that TensorDict has saved. */
static inline tdict_status open_recorded(const char *name, tdict_tree **out) {
  char path[600];
  snprintf(path, sizeof path, "%s/%s", files, name);
  return tdict_open(path, NULL, out, &error);
}

/* Opens the record that the command line names. If this fails, ends the program with status 77. */
static inline void open_record(int argc, char **argv, const char *maker) {
  record = argc == 2 ? fopen(argv[1], "r") : NULL;
  if (record) {
    snprintf(files, sizeof files, "%s.files", argv[1]);
    return;
  }
  printf("skipped: the file of operations cannot be opened; tests/beside/%s makes one\n", maker);
  exit(77);
}
/* Returns the next line that is not a comment, or NULL at the end of the record. *wanted is the recorded result, which
 * follows "| ", or NULL. */
static inline char *next_line(char **wanted) {
  static char line[1 << 18];
  do {
    num_lines++;
    if (!fgets(line, sizeof line, record)) return NULL;
  } while (*line == '#');
  line[strcspn(line, "\n")] = 0;
  *wanted = strstr(line, "| ");
  if (*wanted) {
    **wanted = 0;
    *wanted += 2;
  }
  memcpy(shown, line, sizeof shown);
  return line;
}
/* Compares the text of the result with the recorded result. Prints the first 20 differences. */
static inline void compare(const char *wanted) {
  num_operations++;
  if (strcmp(text, wanted) == 0 || ++num_differences > 20) return;
  printf("line %ld: %s\n  TensorDict: %.300s\n  tdict:      %.300s\n  %s\n", num_lines, shown, wanted, text,
         strcmp(text, "fails") ? "" : error.message);
}
/* Prints the totals. Returns the program's exit status. */
static inline int close_record(void) {
  fclose(record);
  printf("%ld operations, %ld differences\n", num_operations, num_differences);
  return num_differences != 0 || num_operations == 0;
}

#endif
