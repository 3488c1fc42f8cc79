/* Reads the names of this process's threads from the kernel, as debuggers do. Main thread only. */
#ifndef TDICT_TESTS_SUPPORT_THREAD_NAME_H
#define TDICT_TESTS_SUPPORT_THREAD_NAME_H

#include <dirent.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"

/* Returns the number of threads whose name matches a pattern of fnmatch(). */
static inline int td_threads_named(const char *pattern) {
  DIR *tasks = opendir("/proc/self/task");
  int count = 0;
  assert_non_null(tasks);
  for (const struct dirent *e; (e = readdir(tasks)) != NULL;) {
    char path[300], name[32] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
    FILE *file = e->d_name[0] == '.' ? NULL : fopen(path, "r");
    if (!file) continue; /* the thread has ended */
    if (fgets(name, sizeof name, file)) name[strcspn(name, "\n")] = 0;
    fclose(file);
    count += fnmatch(pattern, name, 0) == 0;
  }
  closedir(tasks);
  return count;
}

#endif
