/* Reads the quota of processors from the files of cgroups. /proc/self/mountinfo names the folder of a hierarchy, and
 * /proc/self/cgroup the process's cgroup in it. See cpus.h for the thread rule. */
#include "core/sched/cpus.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 1024, LINE_BYTES = 2048, NUMBER_BYTES = 64 };

/* A hierarchy of cgroups that may have quotas. */
typedef struct hierarchy {
  bool is_v2;
  char top[PATH_BYTES];   /* the cgroup whose folder is at `mount` */
  char mount[PATH_BYTES]; /* without `root` */
} hierarchy;

/* Returns true if a comma-separated list has the word. */
static bool has_word(const char *list, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = list; at; at = strchr(at, ',')) {
    at += *at == ',';
    if (strncmp(at, word, length) == 0 && (at[length] == ',' || !at[length])) return true;
  }
  return false;
}

/* Opens a file below the root. Returns NULL if there is no such file, or if the path is too long. */
static FILE *open_below(const char *root, const char *folder, const char *name) {
  char path[PATH_BYTES];
  const int length = snprintf(path, sizeof path, "%s%s/%s", root, folder, name);
  return length > 0 && length < PATH_BYTES ? fopen(path, "re") : NULL;
}

/* Reads the first line of a file, without the line break. */
static bool read_line(const char *root, const char *folder, const char *name, char line[NUMBER_BYTES]) {
  FILE *file = open_below(root, folder, name);
  if (!file) return false;
  const bool is_read = fgets(line, NUMBER_BYTES, file) != NULL;
  fclose(file);
  if (is_read) line[strcspn(line, "\n")] = 0;
  return is_read;
}

/* Reads a positive number that ends at `end`. Returns 0 for any other text. */
static int64_t parse_number(const char *text, char end) {
  char *after;
  if (*text < '0' || *text > '9') return 0;
  const long long number = strtoll(text, &after, 10);
  return *after == end && number < LLONG_MAX ? number : 0;
}

/* Returns the quota of one cgroup, rounded up; INT_MAX if there is none. */
static int read_quota(const char *root, const char *folder, bool is_v2) {
  char quota_text[NUMBER_BYTES], period_text[NUMBER_BYTES];
  int64_t quota = 0, period = 0;
  if (is_v2 && read_line(root, folder, "cpu.max", quota_text)) {
    const char *space = strchr(quota_text, ' ');
    quota = parse_number(quota_text, ' ');
    period = space ? parse_number(space + 1, 0) : 0;
  } else if (!is_v2 && read_line(root, folder, "cpu.cfs_quota_us", quota_text) &&
             read_line(root, folder, "cpu.cfs_period_us", period_text)) {
    quota = parse_number(quota_text, 0);
    period = parse_number(period_text, 0);
  }
  if (quota <= 0 || period <= 0) return INT_MAX;
  const int64_t cpus = quota / period + (quota % period != 0);
  return cpus < INT_MAX ? (int)cpus : INT_MAX;
}

/* Returns the minimum of the quotas of a cgroup and of the cgroups above it. */
static int read_branch(const char *root, const hierarchy *h, const char *group) {
  char folder[2 * PATH_BYTES];
  const size_t top = strlen(h->top), mount = strlen(h->mount);
  /* a container can see its own part of the hierarchy only; its own cgroup is then at the mount, or not below it */
  const bool is_below =
      strcmp(h->top, "/") == 0 || (strncmp(group, h->top, top) == 0 && (group[top] == '/' || !group[top]));
  const char *below = !is_below ? "" : strcmp(h->top, "/") == 0 ? group : group + top;
  int least = INT_MAX;
  snprintf(folder, sizeof folder, "%s%s", h->mount, below);
  for (;;) {
    const int quota = read_quota(root, folder, h->is_v2);
    if (quota < least) least = quota;
    char *slash = strrchr(folder, '/');
    if (strlen(folder) <= mount || !slash) return least;
    *slash = 0;
  }
}

/* Finds the cgroup of the process in the hierarchy, and its quota. */
static int read_hierarchy(const char *root, const hierarchy *h) {
  char line[LINE_BYTES];
  int least = INT_MAX;
  FILE *file = open_below(root, "/proc/self", "cgroup");
  while (file && fgets(line, sizeof line, file)) { /* "0::/path", or "4:cpu,cpuacct:/path" */
    char *controllers = strchr(line, ':'), *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) continue;
    *group++ = 0;
    controllers++;
    group[strcspn(group, "\n")] = 0;
    if (h->is_v2 ? *controllers : !has_word(controllers, "cpu")) continue;
    const int quota = read_branch(root, h, group);
    if (quota < least) least = quota;
  }
  if (file) fclose(file);
  return least;
}

/* Reads a mount such as "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", if it may have quotas. */
static bool parse_mount(char *line, hierarchy *out) {
  char type[NUMBER_BYTES], options[PATH_BYTES];
  const char *rest = strstr(line, " - ");
  if (!rest || sscanf(line, "%*s %*s %*s %1023s %1023s", out->top, out->mount) != 2) return false;
  if (sscanf(rest, " - %63s %*s %1023s", type, options) != 2) return false;
  out->is_v2 = strcmp(type, "cgroup2") == 0;
  return out->is_v2 || (strcmp(type, "cgroup") == 0 && has_word(options, "cpu"));
}

int tdict_quota_cpus(const char *root) {
  char line[LINE_BYTES];
  hierarchy h;
  int least = INT_MAX;
  FILE *file = open_below(root, "/proc/self", "mountinfo");
  while (file && fgets(line, sizeof line, file)) {
    if (!parse_mount(line, &h)) continue;
    const int quota = read_hierarchy(root, &h);
    if (quota < least) least = quota;
  }
  if (file) fclose(file);
  return least == INT_MAX ? 0 : least;
}
