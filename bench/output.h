/* Standard output that went nowhere is a failure of the program: output_watch() sees to it. Thread rule: main's alone. */
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
  bool bad = ferror(stdout) != 0; /* of an earlier write, whose errno is gone */
  errno = 0;
  if (fflush(stdout) == 0 && !bad) return;
  int reason = errno;
  fprintf(stderr, "%s: standard output cannot be written%s%s\n", (const char *)program, reason ? ": " : "",
          reason ? strerror(reason) : "");
  if (status == 0) _exit(1);
}

/* From here on the program ends with 1 instead of 0 when its text could not be written, however it ends: argp's --help
 * calls exit(). False after a complaint: standard output is closed, and another file might get its number. */
static inline bool output_watch(const char *program) {
  if (fcntl(STDOUT_FILENO, F_GETFD) < 0) {
    fprintf(stderr, "%s: standard output is closed\n", program);
    return false;
  }
  return on_exit(output_end, (void *)(uintptr_t)program) == 0;
}

#endif
