/* Shows on a terminal how far a command is. See progress.h. */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "bar.h"

int64_t tool_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

progress progress_start(const char *what, uint64_t total) {
  progress p = {what, total, tool_now_ns(), 0, isatty(STDERR_FILENO) != 0};
  progress_show(&p, 0);
  return p;
}

void progress_show(progress *p, uint64_t done) {
  const int64_t now = p->is_shown ? tool_now_ns() : 0;
  if (!p->is_shown || (p->last_ns && now - p->last_ns < 100000000)) return;
  p->last_ns = now;
  const double percent = p->total ? 100.0 * (double)done / (double)p->total : 100, megabytes = (double)p->total / 1e6;
  char bar[BAR_TEXT_BYTES];
  bar_format(bar, (double)done, (double)p->total, (double)(now - p->begin_ns) * 1e-9);
  if (bar[0])
    fprintf(stderr, "\r%s: %s, %.1f MB\033[K", p->what, bar, megabytes);
  else
    fprintf(stderr, "\r%s: %3.0f %% of %.1f MB\033[K", p->what, percent > 100 ? 100 : percent, megabytes);
  fflush(stderr);
}

void progress_end(progress *p) {
  if (p->is_shown) fprintf(stderr, "\r\033[K");
  fflush(stderr);
}
