/* Parses and writes tuning files. See tuning_file.h for ownership and threads. */
#include "engine/plan/tuning_file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/file.h"

enum { MAX_LINE = 512, FIELDS = 8, MAX_WORDS = 10 };
static const char blanks[] = " \t\r";

typedef struct reader {
  const char *path;
  int line;
  bool versioned;
  tdict_tuning table;
  char machine[TDICT_TUNING_MACHINE];
} reader;

static tdict_status fail_line(const reader *r, tdict_error *err, const char *format, ...) TDICT_PRINTF(3, 4);
static tdict_status fail_line(const reader *r, tdict_error *err, const char *format, ...) {
  char what[160];
  va_list list;
  va_start(list, format);
  vsnprintf(what, sizeof what, format, list);
  va_end(list);
  /* Keep the end of a long path, because the end names the file. */
  const char *name = strlen(r->path) > 80 ? r->path + strlen(r->path) - 80 : r->path;
  return tdict_fail(err, TDICT_EFORMAT, "%s:%d: %s", name, r->line, what);
}

static tdict_status read_number(const reader *r, const char *word, size_t most, size_t *out, tdict_error *err) {
  char *end;
  errno = 0;
  uintmax_t value = strtoumax(word, &end, 10);
  if (*word < '0' || *word > '9' || *end || errno || value > most)
    return fail_line(r, err, "wanted a whole number from 0 to %zu, found '%.40s'", most, word);
  *out = (size_t)value;
  return TDICT_OK;
}

static tdict_status add_row(reader *r, tdict_tuning_direction d, char **words, tdict_error *err) {
  size_t fields[FIELDS] = {0};
  int count = r->table.num_rows[d];
  tdict_status status = TDICT_OK;
  for (int i = 0; i < FIELDS && status == TDICT_OK; i++)
    if (i == 0 && strcmp(words[0], "max") == 0)
      fields[0] = SIZE_MAX;
    else
      status = read_number(r, words[i], i < 3 ? SIZE_MAX - 1 : INT32_MAX, &fields[i], err);
  if (status != TDICT_OK) return status;
  if (count == TDICT_TUNING_ROWS)
    return fail_line(r, err, "wanted at most %d rows of '%s', found one more", TDICT_TUNING_ROWS,
                     tdict_tuning_names[d]);
  tdict_tuning_row *row = &r->table.rows[d][count];
  if (count > 0 && fields[0] <= row[-1].up_to_bytes)
    return fail_line(r, err, "wanted a row of '%s' for more bytes than the one before, found '%.40s'",
                     tdict_tuning_names[d], words[0]);
  *row = (tdict_tuning_row){fields[0],          fields[1],          fields[2],          (int32_t)fields[3],
                            (int32_t)fields[4], (int32_t)fields[5], (int32_t)fields[6], (int32_t)fields[7]};
  tdict_error why;
  if (tdict_tuning_check_row(row, "", &why) != TDICT_OK) return fail_line(r, err, "%.150s", why.message);
  r->table.num_rows[d]++;
  return TDICT_OK;
}

static tdict_status read_version(reader *r, char **words, int count, tdict_error *err) {
  if (strcmp(words[0], "tdict-tuning") != 0)
    return fail_line(r, err, "wanted 'tdict-tuning %d' first, found '%.40s'", TDICT_TUNING_VERSION, words[0]);
  size_t version = 0;
  if (count != 2) return fail_line(r, err, "wanted a version after 'tdict-tuning', found %d words", count - 1);
  tdict_status status = read_number(r, words[1], INT32_MAX, &version, err);
  if (status != TDICT_OK) return status;
  if (version != TDICT_TUNING_VERSION)
    return fail_line(r, err, "wanted version %d, found %zu", TDICT_TUNING_VERSION, version);
  r->versioned = true;
  return TDICT_OK;
}

static tdict_status read_machine(reader *r, const char *line, tdict_error *err) {
  const char *name = line + strspn(line, blanks) + strlen("machine");
  name += strspn(name, blanks);
  size_t length = strlen(name);
  while (length && strchr(blanks, name[length - 1])) length--;
  if (length >= sizeof r->machine)
    return fail_line(r, err, "wanted a machine's name of at most %zu bytes, found %zu", sizeof r->machine - 1, length);
  memcpy(r->machine, name, length);
  r->machine[length] = 0;
  return TDICT_OK;
}

static tdict_status read_line(reader *r, char *line, tdict_error *err) {
  char copy[MAX_LINE], *words[MAX_WORDS], *save;
  int count = 0;
  snprintf(copy, sizeof copy, "%s", line);
  for (char *w = strtok_r(copy, blanks, &save); w && count < MAX_WORDS; w = strtok_r(NULL, blanks, &save))
    words[count++] = w;
  if (count == 0 || words[0][0] == '#') return TDICT_OK;
  if (!r->versioned) return read_version(r, words, count, err);
  if (strcmp(words[0], "machine") == 0) return read_machine(r, line, err);
  for (int d = 0; d < TDICT_TUNING_DIRECTIONS; d++) {
    if (strcmp(words[0], tdict_tuning_names[d]) != 0) continue;
    if (count == FIELDS + 1) return add_row(r, (tdict_tuning_direction)d, words + 1, err);
    return fail_line(r, err, "wanted %d numbers after '%s', found %s%d", FIELDS, tdict_tuning_names[d],
                     count == MAX_WORDS ? "at least " : "", count - 1);
  }
  return fail_line(r, err, "wanted 'in', 'out', 'out_new', 'host', 'machine' or a comment, found '%.40s'", words[0]);
}

/* Uses the built-in rows for directions that the file does not have. 'in' and 'out' are required. */
static void add_missing(reader *r) {
  const tdict_tuning known = tdict_tuning_default();
  for (int d = TDICT_TUNING_OUT_NEW; d < TDICT_TUNING_DIRECTIONS; d++) {
    if (r->table.num_rows[d] > 0) continue;
    memcpy(r->table.rows[d], known.rows[d], sizeof known.rows[d]);
    r->table.num_rows[d] = known.num_rows[d];
  }
}

static tdict_status read_end(reader *r, tdict_error *err) {
  r->line++; /* the errors below name the line after the last line */
  add_missing(r);
  if (!r->versioned) return fail_line(r, err, "wanted 'tdict-tuning %d', found the end", TDICT_TUNING_VERSION);
  for (int d = 0; d < TDICT_TUNING_DIRECTIONS; d++) {
    int count = r->table.num_rows[d];
    if (count == 0 || r->table.rows[d][count - 1].up_to_bytes != SIZE_MAX)
      return fail_line(r, err, "wanted a last row of '%s' for up to 'max' bytes, found the end", tdict_tuning_names[d]);
  }
  return TDICT_OK;
}

/* Reads the file line by line. Also returns an error for lines that are too long or contain zero bytes. */
static tdict_status read_lines(reader *r, FILE *file, tdict_error *err) {
  char line[MAX_LINE];
  tdict_status status = TDICT_OK;
  while (status == TDICT_OK) {
    int c, length = 0;
    bool zero = false;
    while ((c = getc(file)) != EOF && c != '\n' && length < MAX_LINE - 1) {
      zero |= c == 0;
      line[length++] = (char)c;
    }
    if (c == EOF && length == 0) break;
    line[length] = 0;
    r->line++;
    if (zero) return fail_line(r, err, "wanted text, found a zero byte");
    if (c != EOF && c != '\n')
      return fail_line(r, err, "wanted lines of less than %d bytes, found a longer one", MAX_LINE - 1);
    status = read_line(r, line, err);
  }
  return status;
}

static tdict_status fail_tuning_io(const char *path, const char *what, int code, tdict_error *err) {
  return tdict_fail_native(err, TDICT_EIO, code, "tuning file %.120s cannot be %s: %s", path, what, strerror(code));
}

tdict_status tdict_tuning_read(const char *path, tdict_tuning *out, char *machine, tdict_error *err) {
  reader r = {.path = path};
  FILE *file;
  tdict_status status = tdict_file_stream_to_read("tuning file", path, &file, err);
  if (status != TDICT_OK) return status;
  errno = 0;
  status = read_lines(&r, file, err);
  if (ferror(file)) status = fail_tuning_io(path, "read", errno ? errno : EIO, err);
  fclose(file);
  if (status == TDICT_OK) status = read_end(&r, err);
  if (status != TDICT_OK) return status;
  *out = r.table;
  if (machine) memcpy(machine, r.machine, sizeof r.machine);
  return TDICT_OK;
}

tdict_status tdict_tuning_write(const char *path, const tdict_tuning *tuning, const char *machine, tdict_error *err) {
  tdict_status status = tdict_tuning_check(tuning, err);
  if (status != TDICT_OK) return status;
  if (strlen(machine) >= TDICT_TUNING_MACHINE || strpbrk(machine, "\r\n"))
    return tdict_fail(err, TDICT_EINVAL, "tuning: the machine's name must be one line of less than %d bytes",
                      TDICT_TUNING_MACHINE);
  FILE *file;
  status = tdict_file_stream_to_write("tuning file", path, &file, err);
  if (status != TDICT_OK) return status;
  fprintf(file,
          "# Settings of tdict for each size of a transfer, for tdict_context_options.tuning_file.\n"
          "tdict-tuning %d\nmachine %s\n",
          TDICT_TUNING_VERSION, machine);
  fprintf(file, "# in: to a device; out, out_new: to the host, into existing or new memory; host: within the host; "
                "sizes in bytes\n"
                "# up_to chunk first workers slots streaming caller spin_us\n");
  for (int d = 0; d < TDICT_TUNING_DIRECTIONS; d++)
    for (int i = 0; i < tuning->num_rows[d]; i++) {
      const tdict_tuning_row *w = &tuning->rows[d][i];
      char up_to[32];
      if (w->up_to_bytes == SIZE_MAX)
        snprintf(up_to, sizeof up_to, "max");
      else
        snprintf(up_to, sizeof up_to, "%zu", w->up_to_bytes);
      fprintf(file, "%s %s %zu %zu %d %d %d %d %d\n", tdict_tuning_names[d], up_to, w->chunk_bytes, w->first_bytes,
              (int)w->workers, (int)w->slots, (int)w->streaming, (int)w->caller, (int)w->spin_us);
    }
  bool good = !ferror(file);
  int code = errno;
  /* The last bytes may be written only by fclose(). */
  if (fclose(file) != 0) good = false, code = errno;
  return good ? TDICT_OK : fail_tuning_io(path, "written", code, err);
}
