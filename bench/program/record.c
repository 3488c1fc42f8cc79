/* Writes the JSON record of a run: what ran, when, and on which machine. The caller owns the record. Thread rule: one
 * thread. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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

static bool write_to(const json_t *record, FILE *file, const char *path) {
  if (!file) {
    bench_print_error("%s: %s", path, strerror(errno));
    return false;
  }
  bool good = json_dumpf(record, file, JSON_INDENT(2)) == 0 && fputc('\n', file) != EOF;
  if (fclose(file) != 0) good = false;
  if (!good) bench_print_error("%s: cannot write the record: %s", path, strerror(errno));
  return good;
}

bool bench_record_write(const json_t *record, const char *path) { return write_to(record, fopen(path, "w"), path); }

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

bool bench_sink_open(bench_sink *sink, const char *path) {
  *sink = (bench_sink){path, -1};
  if (!path) return true;
  if (strcmp(path, "-") != 0) return bench_can_write(path);
  fflush(stdout);
  sink->fd = dup(STDOUT_FILENO);
  if (sink->fd >= 0 && freopen("/dev/null", "w", stdout)) return true;
  bench_print_error("cannot reserve standard output for the record: %s", strerror(errno));
  return false;
}

int bench_sink_end(const bench_sink *sink, int answer, json_t *record) {
  bool good = true;
  if (answer == BENCH_OK && sink->path)
    good = sink->fd < 0 ? bench_record_write(record, sink->path)
                        : write_to(record, fdopen(sink->fd, "w"), "standard output");
  json_decref(record);
  return good ? answer : BENCH_FAILED;
}
