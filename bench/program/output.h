/* Makes a program fail if its standard output could not be written. Owns no data. Thread rule: main thread only. */
#ifndef TDICT_BENCH_OUTPUT_H
#define TDICT_BENCH_OUTPUT_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void output_end(int status, void *program) {
  bool bad = ferror(stdout) != 0; /* true: an earlier write failed, and its errno is lost */
  errno = 0;
  if (fflush(stdout) == 0 && !bad) return;
  int reason = errno;
  fprintf(stderr, "%s: standard output cannot be written%s%s\n", (const char *)program, reason ? ": " : "",
          reason ? strerror(reason) : "");
  if (status == 0) _exit(1);
}

/* Makes the program exit with 1 instead of 0 if its output could not be written. Uses on_exit(), because argp calls
 * exit() after --help. If standard output is closed, prints an error and returns false, because a file that is opened
 * later could get its descriptor. */
static inline bool output_watch(const char *program) {
  if (fcntl(STDOUT_FILENO, F_GETFD) < 0) {
    fprintf(stderr, "%s: standard output is closed\n", program);
    return false;
  }
  return on_exit(output_end, (void *)(uintptr_t)program) == 0;
}

#endif
