/* Prints a report of the run: the seed, the hash, the threads and the last decisions. Addresses are printed as
 * FILE+0xOFFSET; scripts/dst replaces them with functions and lines. */
#include "dst/dst.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { NUM_KEPT = 50, NUM_MISFORTUNES = 8, MOST_FRAMES = 12 };

typedef struct record {
  uint64_t step, repeats; /* repeats: number of further decisions at the same call site */
  int64_t now_ns;
  int from, next;
  const char *call;
  void *site, *start;
} record;
static record kept[NUM_KEPT];
static uint64_t num_records;
static bool is_dying;

void dst_record(int from, int next, const char *call, void *site) {
  record *last = &kept[(num_records + NUM_KEPT - 1) % NUM_KEPT];
  if (from == next && last->from == from && last->next == next && last->call == call && last->site == site) {
    last->repeats++;
    return;
  }
  kept[num_records++ % NUM_KEPT] =
      (record){dst_the.num_steps, 0, dst_the.now_ns, from, next, call, site, dst_the.threads[from].start};
}

/* A call that an injected fault made fail. The first frames of the stack belong to the scheduler. */
static struct misfortune {
  uint64_t step;
  int thread, num_frames;
  const char *name;
  void *frames[MOST_FRAMES];
} misfortunes[NUM_MISFORTUNES];
static uint64_t num_misfortunes;

void dst_record_misfortune(const char *name) {
  struct misfortune *m = &misfortunes[num_misfortunes++ % NUM_MISFORTUNES];
  *m = (struct misfortune){.step = dst_the.num_steps, .thread = dst_self, .name = name};
  m->num_frames = backtrace(m->frames, MOST_FRAMES);
}

/* Returns "FILE+0xOFFSET" for a code address, usually in the buffer `text`. */
static const char *place_of(const void *address, char *text, size_t bytes) {
  Dl_info info;
  if (!address || !dladdr(address, &info) || !info.dli_fname) return address ? "unknown" : "main";
  snprintf(text, bytes, "%s+0x%lx", info.dli_fname,
           (unsigned long)((const char *)address - (const char *)info.dli_fbase));
  return text;
}

/* Returns the place of the call instruction that precedes a return address. */
static const char *call_of(const void *address, char *text, size_t bytes) {
  return place_of(address ? (const char *)address - 1 : NULL, text, bytes);
}

static const char *describe(const dst_thread *t, char *text, size_t bytes) {
  static const char *const states[] = {"can run",
                                       "waits for a mutex",
                                       "waits for a condition",
                                       "waits to read",
                                       "waits to write",
                                       "waits for the end of a thread",
                                       "sleeps",
                                       "waits for a futex",
                                       "waits for pthread_once",
                                       "waits for a barrier",
                                       "waits until no other thread can run",
                                       "has ended"};
  const dst_lock *lock = t->state == DST_CONDITION ? t->mutex : t->object;
  int length = snprintf(text, bytes, "%s", states[t->state]);
  const bool has_lock = t->state >= DST_MUTEX && t->state <= DST_WRITE && lock;
  if (t->object && t->state != DST_JOIN) length += snprintf(text + length, bytes - (size_t)length, " %p", t->object);
  if (t->state == DST_JOIN) length += snprintf(text + length, bytes - (size_t)length, ": thread %d", t->target);
  if (has_lock && lock->owner)
    length += snprintf(text + length, bytes - (size_t)length, ", thread %d holds the lock", lock->owner - 1);
  if (t->state > DST_READY && t->state < DST_DONE && t->deadline_ns != DST_FOREVER && t->deadline_ns > 0)
    snprintf(text + length, bytes - (size_t)length, ", at most for %.6f s",
             (double)(t->deadline_ns - dst_the.now_ns) / 1e9);
  return text;
}

static void print_threads(void) {
  char text[4200], where[4200];
  for (int i = 0; i < dst_the.num_threads; i++) {
    const dst_thread *t = &dst_the.threads[i];
    if (t->state == DST_DONE) continue;
    fprintf(stderr, "dst: thread %d (%s) %s, after %s:\n", i, place_of(t->start, where, sizeof where),
            describe(t, text, sizeof text), t->call ? t->call : "no call");
    if (i == dst_self)
      dst_report_stack();
    else
      dst_ask_for_stack(i);
  }
}

static void print_frames(void *const *frames, int count) {
  char where[4200];
  for (int i = 1; i < count; i++) {
    const char *place = call_of(frames[i], where, sizeof where);
    if (!strstr(place, "libtdict_dst") && !strstr(place, "libc.so")) fprintf(stderr, "dst:     %s\n", place);
  }
}

void dst_report_stack(void) {
  void *frames[MOST_FRAMES];
  print_frames(frames, backtrace(frames, MOST_FRAMES));
}

static void print_misfortunes(void) {
  const uint64_t count = num_misfortunes < NUM_MISFORTUNES ? num_misfortunes : NUM_MISFORTUNES;
  for (uint64_t i = num_misfortunes - count; i < num_misfortunes; i++) {
    const struct misfortune *m = &misfortunes[i % NUM_MISFORTUNES];
    fprintf(stderr, "dst: before decision %lu, a call of thread %d failed (%s):\n", m->step, m->thread, m->name);
    print_frames(m->frames, m->num_frames);
  }
}

static void print_decisions(void) {
  char site[4200], start[4200];
  fprintf(stderr, "dst: the last decisions: step, time, thread, call, call site, next thread\n");
  for (uint64_t i = 0; i < NUM_KEPT; i++) {
    const record *r = &kept[(num_records + i) % NUM_KEPT];
    if (!r->step) continue;
    fprintf(stderr, "dst: %8lu %.6f %2d (%s) %s at %s -> %d", r->step, (double)r->now_ns / 1e9, r->from,
            place_of(r->start, start, sizeof start), r->call, call_of(r->site, site, sizeof site), r->next);
    if (r->repeats) fprintf(stderr, ", and %lu times more", r->repeats);
    fputc('\n', stderr);
  }
}

static void print_summary(const char *why) {
  fprintf(stderr, "dst: %s seed %lu hash %016lx decisions %lu switches %lu threads %d seconds %.3f\n", why,
          dst_the.seed, dst_the.hash, dst_the.num_steps, dst_the.num_switches, dst_the.num_threads,
          (double)dst_the.now_ns / 1e9 - 1000);
  fprintf(stderr, "dst: ");
  dst_choice_report();
}

/* Prints the whole report, but only once. */
static void print_failure(void) {
  dst_world *w = &dst_the;
  if (is_dying || !w->is_on) return;
  is_dying = true;
  print_summary("failed");
  print_threads();
  print_misfortunes();
  print_decisions();
  dst_choice_write();
}

static void end_by_abort(void) {
  signal(SIGABRT, SIG_DFL);
  dst_the.is_on = false;
  DST_REAL(syscall)(SYS_tgkill, DST_REAL(getpid)(), (int)DST_REAL(syscall)(SYS_gettid), SIGABRT);
  _exit(99);
}

void dst_die(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fputs("dst: error: ", stderr);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  print_failure();
  end_by_abort();
  _exit(99);
}

/* ---- failures of the program ---- */

static const int caught[] = {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static void on_signal(int number) {
  signal(number, SIG_DFL);
  print_failure();
  raise(number);
}

static void print_end(void) {
  if (!dst_the.is_on || is_dying) return;
  dst_choice_write();
  if (getenv("DST_REPORT")) print_summary("passed");
  dst_the.is_on = false; /* from now on the C library needs real files, for example for coverage */
}

void dst_report_catch(void *stack) {
  const stack_t s = {.ss_sp = stack, .ss_size = DST_SIGNAL_STACK_BYTES};
  sigaltstack(&s, NULL);
}

void dst_report_start(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
  void *frame;
  backtrace(&frame, 1); /* loads the unwinder before a signal handler needs it */
  dst_report_catch(dst_alloc(DST_SIGNAL_STACK_BYTES));
  for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) sigaction(caught[i], &action, NULL);
  atexit(print_end);
}
