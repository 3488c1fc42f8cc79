/* Counts the open file descriptors of the process, so that tests find files that are never closed. Thread rule: other
 * threads must not open or close descriptors during the count. */
#ifndef TDICT_TESTS_SUPPORT_DESCRIPTORS_H
#define TDICT_TESTS_SUPPORT_DESCRIPTORS_H

#include <dirent.h>

#include "support/test.h"

/* Returns the number of open descriptors plus a constant. */
static inline int td_count_descriptors(void) {
  DIR *dir = opendir("/proc/self/fd");
  int count = 0;
  assert_non_null(dir);
  while (readdir(dir)) count++;
  closedir(dir);
  return count;
}

#endif
