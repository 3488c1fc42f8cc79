/* Declarations that the source files of the scheduler share. libtdict_dst.so replaces functions of libc. While the
 * scheduler is on, one thread of the program runs at a time: the thread that holds the token. At each replaced call the
 * scheduler chooses the thread that gets the token next. All state of the scheduler belongs to the thread with the
 * token, so the scheduler needs no locks. */
#ifndef TDICT_TESTS_DST_DST_H
#define TDICT_TESTS_DST_DST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#include "dst/workload.h"

#define DST_EXPORT __attribute__((visibility("default")))
#define DST_SITE __builtin_return_address(0)
enum { DST_MOST_THREADS = 512, DST_NUM_KINDS = DST_IO + 1 };
#define DST_FOREVER INT64_MAX

/* What a thread does. In the states DST_MUTEX to DST_BARRIER, the thread waits until dst_can_run() returns true. */
typedef enum dst_state {
  DST_READY,
  DST_MUTEX,     /* waits for a mutex */
  DST_CONDITION, /* waits for a condition, and then for its mutex */
  DST_READ,      /* waits for a read-write lock */
  DST_WRITE,
  DST_JOIN,
  DST_SLEEP,
  DST_FUTEX,
  DST_ONCE,
  DST_BARRIER,
  DST_REST, /* waits until no other thread can run */
  DST_DONE
} dst_state;

/* The state of a lock, stored in the pthread_mutex_t or pthread_rwlock_t. If all bytes are zero, the lock is free.
 * `kind` is at the offset of the glibc field that static initializers set. */
typedef struct dst_lock {
  int owner; /* 0: free, otherwise the number of the owning thread plus 1 */
  int depth, readers, unused;
  int kind;
} dst_lock;

typedef struct dst_thread {
  dst_state state;
  int token;       /* a futex: 1 means that the thread may run */
  void *object;    /* what the thread waits for */
  dst_lock *mutex; /* DST_CONDITION: the mutex to lock after the wait */
  int64_t deadline_ns;
  int target;     /* the thread to join */
  bool was_woken; /* woken by another thread, or spuriously */
  bool is_detached;
  bool is_free; /* a new thread may get this number */
  uint64_t priority;
  uint64_t num_choices; /* see dst_choose() */
  pthread_t real;
  void *start; /* the thread's function, for reports */
  void *site;  /* the return address of the thread's current call */
  const char *call;
  void *stack;
} dst_thread;

typedef struct dst_world {
  bool is_on;
  bool is_atomic; /* whether accesses to atomic variables are decisions */
  int num_threads, current;
  int64_t now_ns;
  uint64_t seed, hash, num_steps, num_switches, most_steps, stop_step;
  int num_cpus;
  dst_thread threads[DST_MOST_THREADS];
} dst_world;
extern dst_world dst_the;
extern __thread int dst_self; /* the number of this thread; -1: not a thread of the scheduler */
static inline bool dst_active(void) { return dst_the.is_on && dst_self >= 0; }
static inline dst_thread *dst_me(void) { return &dst_the.threads[dst_self]; }

/* ---- scheduler.c ---- */

/* Makes a decision: the scheduler chooses the next thread. Returns when this thread runs again. */
void dst_decide(const char *call, void *site);
/* Sets the current thread's state and makes a decision. Returns when the thread is chosen, in state DST_READY. */
void dst_wait(dst_state state, void *object, int64_t deadline_ns, const char *call, void *site);
/* dst_take_token() waits until this thread gets the token. dst_end_thread() makes the thread's last decision. */
void dst_take_token(int self);
void dst_end_thread(void);
/* Adds a runnable thread to the table. Returns its number. */
int dst_add_thread(void);
/* Makes another thread print its stack. */
enum { DST_TOKEN_TO_REPORT = 2 };
void dst_ask_for_stack(int thread);
bool dst_can_run(const dst_thread *t);
void dst_start_scheduler(uint64_t seed);

/* ---- choice.c ---- */

/* Derives the settings from the seed. Environment variables override them. */
void dst_choice_start(uint64_t seed);
/* Chooses a number below n: 0 with probability stay / 256, otherwise any number. 0 is the default choice. Shortening a
 * run replaces other choices with 0. */
uint64_t dst_choose(uint64_t n, unsigned stay);
/* Returns the index of the next thread in `threads`. All can run. If `can_stay`, threads[0] is the current thread. */
int dst_choose_thread(const int *threads, int count, bool can_stay);
/* Gives the thread the lowest priority. */
void dst_give_way(int thread);
uint64_t dst_new_priority(void);
/* Returns true if this misfortune should happen now. If it happens, the caller calls dst_misfortune_happened(). */
bool dst_misfortune(enum dst_misfortune kind);
void dst_misfortune_happened(enum dst_misfortune kind);
bool dst_call_fails(enum dst_misfortune kind); /* calls dst_misfortune() and dst_misfortune_happened() */
uint64_t dst_random_bits(void);
/* Returns how many of the bytes a read or write transfers: all, or fewer if an I/O misfortune happens. */
size_t dst_shorten(size_t bytes);
void dst_choice_report(void);
/* Writes the choices to the file that DST_RECORD names. */
void dst_choice_write(void);

/* ---- report.c ---- */

void dst_report_start(void);
void dst_record(int from, int next, const char *call, void *site);
/* Records the stack of a call that an injected fault makes fail. */
void dst_record_misfortune(const char *name);
/* Makes `stack` the alternate signal stack of this thread, so that a signal handler can print a report. */
enum { DST_SIGNAL_STACK_BYTES = 1 << 16 };
void dst_report_catch(void *stack);
void dst_report_stack(void);
/* Prints the message, the threads and the last decisions, and ends the process. */
_Noreturn void dst_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- the others ---- */

void *dst_real(const char *name); /* returns libc's own function of this name */
#define DST_REAL(name)                                      \
  __extension__({                                           \
    static __typeof__(&name) real_;                         \
    if (!real_) *(void **)(void *)&real_ = dst_real(#name); \
    real_;                                                  \
  })
int64_t dst_ns(const struct timespec *t);
/* Starts or ends a section in which misfortunes do not affect this thread's allocations. Calls may be nested. */
void dst_scheduler_spare(bool is_spared);
/* Allocates memory. No injected fault makes this call fail. */
void *dst_alloc(size_t bytes);
void dst_free(void *at);
void *dst_stack_take(size_t *bytes);
void dst_stack_give(void *stack);
long dst_futex(void *word, int op, uint32_t value, const struct timespec *timeout, void *site);
long dst_raw_open(const char *path, int flags, unsigned mode); /* opens a real file */
void dst_files_start(void);

#endif
