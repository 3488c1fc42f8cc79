/* Shows on a terminal how far a command is. Prints nothing if the standard error output is not a terminal. Thread rule:
 * one thread at a time. */
#ifndef TDICT_TOOLS_PROGRESS_H
#define TDICT_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
  const char *what; /* for example "verify" */
  uint64_t total;   /* bytes */
  int64_t begin_ns; /* time of progress_start() */
  int64_t last_ns;  /* time of the last line */
  bool is_shown;
} progress;

/* Prepares the output. `what` is borrowed. */
progress progress_start(const char *what, uint64_t total);
/* Shows the part that is done, at most ten times per second. After two seconds, adds a bar and the time left. */
void progress_show(progress *p, uint64_t done);
/* Removes the line. */
void progress_end(progress *p);

/* Returns the time of a clock that never goes back, in nanoseconds. */
int64_t tool_now_ns(void);

#endif
