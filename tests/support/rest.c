/* Implements rest.h with /proc/self/task. Owns no data. Thread rule: safe from any thread. */
#include "support/rest.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/base/clock.h"

enum { MAX_THREADS = 256, POLLS = 100 };
static const int64_t PATIENCE_NS = 60 * INT64_C(1000000000);

/* The last known state of a thread, with the kernel's counts of its sleeps and preemptions. */
typedef struct thread {
  long id;
  bool exists, asleep;
  int64_t sleeps, preemptions, first_sleeps;
} thread;
typedef struct thread_list {
  int count;
  thread threads[MAX_THREADS];
} thread_list;

static void give_up(const char *why) {
  fprintf(stderr, "td_rest: %s\n", why);
  abort(); /* asserts work on the main thread only */
}

static void read_thread(thread *t) {
  char path[64], line[128], state;
  long long number;
  t->exists = t->asleep = false;
  snprintf(path, sizeof path, "/proc/self/task/%ld/status", t->id);
  FILE *file = fopen(path, "r");
  if (!file) return; /* the thread has ended */
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "State: %c", &state) == 1) {
      t->exists = state != 'Z' && state != 'X';
      t->asleep = state == 'S';
    }
    if (sscanf(line, "voluntary_ctxt_switches: %lld", &number) == 1) t->sleeps = number;
    if (sscanf(line, "nonvoluntary_ctxt_switches: %lld", &number) == 1) t->preemptions = number;
  }
  fclose(file);
}

/* Reads the state of a thread. Returns true if the thread slept at the previous call, sleeps now and did not run in
 * between. Also returns true if the thread polls or has ended. */
static bool look_at(thread *t) {
  const thread before = *t;
  read_thread(t);
  if (t->exists != before.exists) return false;
  if (!t->exists || t->sleeps - t->first_sleeps >= POLLS) return true;
  return before.asleep && t->asleep && t->sleeps == before.sleeps && t->preemptions == before.preemptions;
}

/* Adds new threads to the list. Returns whether it found any. */
static bool find_new(thread_list *l) {
  const long own = syscall(SYS_gettid);
  const int before = l->count;
  DIR *tasks = opendir("/proc/self/task");
  if (!tasks) give_up("/proc/self/task cannot be read");
  for (struct dirent *e; (e = readdir(tasks));) {
    thread t = {.id = strtol(e->d_name, NULL, 10)};
    bool known = t.id == 0 || t.id == own;
    for (int i = 0; i < l->count && !known; i++) known = l->threads[i].id == t.id;
    if (known) continue;
    read_thread(&t);
    t.first_sleeps = t.sleeps;
    if (l->count == MAX_THREADS) give_up("too many threads");
    l->threads[l->count++] = t;
  }
  closedir(tasks);
  return l->count > before;
}

/* Defined only in programs that run under the scheduler of tests/dst/, which needs no /proc. */
__attribute__((weak)) bool dst_scheduler_rest(void);

/* Looks at all threads in rounds. A thread that sleeps in two successive rounds and has not run in between has slept
 * the whole time. If this is true of all threads, all of them were asleep at the end of the first round. */
void td_rest(void) {
  if (dst_scheduler_rest && dst_scheduler_rest()) return;
  const int64_t until = tdict_now_ns() + PATIENCE_NS;
  thread_list l;
  l.count = 0;
  for (bool rest = false; !rest;) {
    if (tdict_now_ns() > until) give_up("threads still run after a minute");
    rest = !find_new(&l);
    for (int i = 0; i < l.count; i++) rest = look_at(&l.threads[i]) && rest;
    if (!rest) usleep(100);
  }
}
