/* Writes the JSON record of a run: what ran, when, and on which machine. The caller owns the record. Thread rule: one
 * thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"
#include "core/sched/cpus.h"

char *bench_read_field(const char *path, const char *key, char *buffer, size_t size) {
  char line[1024];
  bool is_found = false;
  FILE *file = fopen(path, "r");
  while (file && !is_found && fgets(line, sizeof line, file)) is_found = strncmp(line, key, strlen(key)) == 0;
  if (file) fclose(file);
  if (!is_found) return NULL;
  const char *value = line + strlen(key);
  value += strspn(value, " \t:");
  snprintf(buffer, size, "%.*s", (int)strcspn(value, "\n"), value);
  return buffer;
}

char *bench_cpu_model(char *buffer, size_t size) {
  if (!bench_read_field("/proc/cpuinfo", "model name", buffer, size)) snprintf(buffer, size, "unknown");
  return buffer;
}

int bench_cpu_count(void) { return tdict_cpus_count(); }

static json_t *machine_record(void) {
  char model[256];
  struct utsname name;
  json_t *machine =
      json_pack("{s:s, s:i, s:I}", "cpu", bench_cpu_model(model, sizeof model), "cores", bench_cpu_count(),
                "memory_bytes", (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE));
  if (uname(&name) == 0) json_object_set_new(machine, "kernel", json_sprintf("%s %s", name.sysname, name.release));
  return machine;
}

/* Returns an argument for the record. Removes the folders of a path, because they may contain private names. */
static json_t *argument_record(const char *text) {
  const char *slash = strrchr(text, '/'), *equals = strchr(text, '=');
  if (!slash) return json_string(text);
  return json_sprintf("%.*s%s", equals && equals < slash ? (int)(equals + 1 - text) : 0, text, slash + 1);
}

json_t *bench_record(const char *scenario, int argc, char **argv) {
  char date[32], version[32];
  time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  int v = tdict_version();
  snprintf(version, sizeof version, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
  json_t *command = json_array();
  for (int i = 0; i < argc; i++) json_array_append_new(command, argument_record(argv[i]));
  return json_pack("{s:i, s:s, s:s, s:s, s:o, s:o}", "format", 1, "scenario", scenario, "date", date, "library_version",
                   version, "command", command, "machine", machine_record());
}

/* Ends the output to a file. Prints an error if it is incomplete. */
static bool close_output(FILE *file, bool good, const char *path) {
  if (!file || fclose(file) != 0) good = false;
  if (!good) bench_print_error("%s: cannot be written: %s", path, strerror(errno));
  return good;
}

static bool write_record(const json_t *record, FILE *file, const char *path) {
  const bool good = file && json_dumpf(record, file, JSON_INDENT(2)) == 0 && fputc('\n', file) != EOF;
  return close_output(file, good, path);
}

bool bench_record_write(const json_t *record, const char *path) { return write_record(record, fopen(path, "w"), path); }

/* If the file does not exist, creates and removes it as a check. */
bool bench_can_write(const char *path) {
  struct stat there;
  int fd = -1;
  if (strcmp(path, "-") == 0) {
    bench_print_error("- is standard output for --json alone; a file of that name is ./-");
    return false;
  }
  bool good = stat(path, &there) == 0;
  if (good && S_ISDIR(there.st_mode)) {
    errno = EISDIR;
    good = false;
  } else if (good) {
    good = access(path, W_OK) == 0;
  } else if (errno == ENOENT && (fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) >= 0) {
    close(fd);
    good = unlink(path) == 0;
  }
  if (!good) bench_print_error("%s cannot be written: %s", path, strerror(errno));
  return good;
}

static bool is_standard(const char *path) { return path && strcmp(path, "-") == 0; }
static const char *name_of(const char *path) { return is_standard(path) ? "standard output" : path; }

bool bench_sink_open(bench_sink *sink, const bench_outputs *o) {
  const char *const paths[] = {o->json, o->csv, o->markdown};
  int standard = 0;
  *sink = (bench_sink){.outputs = *o, .fd = -1};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
    standard += is_standard(paths[i]);
    if (paths[i] && !is_standard(paths[i]) && !bench_can_write(paths[i])) return false;
  }
  if (standard > 1) {
    bench_print_error("only one of --json, --csv and --markdown can go to standard output; give the others a file");
    return false;
  }
  fflush(stdout);
  if (standard) sink->fd = dup(STDOUT_FILENO);
  if (standard && (sink->fd < 0 || !freopen("/dev/null", "w", stdout))) {
    bench_print_error("cannot reserve standard output: %s", strerror(errno));
    return false;
  }
  return true;
}

/* Opens an output for writing, which can be standard output. */
static FILE *open_output(const bench_sink *sink, const char *path) {
  return is_standard(path) ? fdopen(sink->fd, "w") : fopen(path, "w");
}

/* Writes the text of a table if `writes` is true and `path` is given. Frees the text. */
static bool end_text(const bench_sink *sink, bench_text *text, const char *path, bool writes) {
  bool good = text->file && fclose(text->file) == 0;
  if (path && writes) {
    FILE *file = open_output(sink, path);
    good = close_output(file, file && good && fwrite(text->text, 1, text->length, file) == text->length, name_of(path));
  }
  free(text->text);
  *text = (bench_text){NULL, NULL, 0};
  return good || !path || !writes;
}

int bench_sink_end(bench_sink *sink, int answer, json_t *record) {
  const bench_outputs *o = &sink->outputs;
  const bool writes = answer == BENCH_OK;
  bool good = !writes || !o->json || write_record(record, open_output(sink, o->json), name_of(o->json));
  good = end_text(sink, &sink->csv, o->csv, writes) && good;
  good = end_text(sink, &sink->markdown, o->markdown, writes) && good;
  json_decref(record);
  return good ? answer : BENCH_FAILED;
}
