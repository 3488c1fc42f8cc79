/* Implements the scheduler: the table of threads, the token, virtual time, and decisions. */
#include "dst/dst.h"

#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Timeouts longer than MOST_EARLY_NS never expire early, because they only detect hung threads. */
enum { STEP_NS = 50, MOST_EARLY_NS = 1000000000 };

dst_world dst_the;
__thread int dst_self = -1;

static int alive[DST_MOST_THREADS], num_alive; /* the threads that have not ended */

static long futex(int *word, int op, int value) {
  return DST_REAL(syscall)(SYS_futex, word, op | FUTEX_PRIVATE_FLAG, value, NULL, NULL, 0);
}

static void give_token(dst_thread *t) {
  __atomic_store_n(&t->token, 1, __ATOMIC_RELEASE);
  futex(&t->token, FUTEX_WAKE, 1);
}

void dst_take_token(int self) {
  dst_thread *t = &dst_the.threads[self];
  int found;
  while ((found = __atomic_load_n(&t->token, __ATOMIC_ACQUIRE)) != 1) {
    if (found == DST_TOKEN_TO_REPORT) {
      dst_report_stack();
      __atomic_store_n(&t->token, 0, __ATOMIC_RELEASE);
      futex(&t->token, FUTEX_WAKE, 1);
    } else {
      futex(&t->token, FUTEX_WAIT, 0);
    }
  }
  __atomic_store_n(&t->token, 0, __ATOMIC_RELAXED);
}

void dst_ask_for_stack(int thread) {
  dst_thread *t = &dst_the.threads[thread];
  const struct timespec soon = {1, 0};
  __atomic_store_n(&t->token, DST_TOKEN_TO_REPORT, __ATOMIC_RELEASE);
  futex(&t->token, FUTEX_WAKE, 1);
  while (__atomic_load_n(&t->token, __ATOMIC_ACQUIRE) == DST_TOKEN_TO_REPORT)
    if (DST_REAL(syscall)(SYS_futex, &t->token, FUTEX_WAIT_PRIVATE, DST_TOKEN_TO_REPORT, &soon, NULL, 0) != 0) break;
}

/* Returns true if the thread was woken or its deadline has passed. */
static bool is_due(const dst_thread *t) { return t->was_woken || dst_the.now_ns >= t->deadline_ns; }

bool dst_can_run(const dst_thread *t) {
  const dst_lock *lock = t->object;
  switch (t->state) {
  case DST_READY:
    return true;
  case DST_MUTEX:
    return !lock->owner;
  case DST_READ:
    return !lock->owner;
  case DST_WRITE:
    return !lock->owner && !lock->readers;
  case DST_CONDITION:
    return is_due(t) && !t->mutex->owner;
  case DST_JOIN:
    return dst_the.threads[t->target].state == DST_DONE;
  case DST_SLEEP:
  case DST_FUTEX:
    return is_due(t);
  case DST_ONCE:
  case DST_BARRIER:
    return t->was_woken;
  default:
    return false;
  }
}

static bool has_deadline(const dst_thread *t) {
  return (t->state == DST_CONDITION || t->state == DST_SLEEP || t->state == DST_FUTEX) && !t->was_woken &&
         t->deadline_ns > dst_the.now_ns && t->deadline_ns != DST_FOREVER;
}

/* Returns the earliest deadline of all threads, or DST_FOREVER. */
static int64_t next_deadline(void) {
  int64_t soonest = DST_FOREVER;
  for (int i = 0; i < num_alive; i++) {
    const dst_thread *t = &dst_the.threads[alive[i]];
    if (has_deadline(t) && t->deadline_ns < soonest) soonest = t->deadline_ns;
  }
  return soonest;
}

static void wake_without_reason(void) {
  int waiting[DST_MOST_THREADS], count = 0;
  if (!dst_misfortune(DST_SPURIOUS)) return;
  for (int i = 0; i < num_alive; i++) {
    const dst_thread *t = &dst_the.threads[alive[i]];
    if ((t->state == DST_CONDITION || t->state == DST_FUTEX) && !is_due(t)) waiting[count++] = alive[i];
  }
  if (!count) return;
  dst_the.threads[waiting[dst_choose((uint64_t)count, 0)]].was_woken = true;
  dst_misfortune_happened(DST_SPURIOUS);
}

static void pass_time(void) {
  dst_the.now_ns += STEP_NS;
  if (!dst_misfortune(DST_EARLY_TIMEOUT)) return;
  const int64_t soonest = next_deadline();
  if (soonest == DST_FOREVER || soonest - dst_the.now_ns > MOST_EARLY_NS) return;
  dst_the.now_ns = soonest;
  dst_misfortune_happened(DST_EARLY_TIMEOUT);
}

static int find_resting(void) {
  for (int i = 0; i < num_alive; i++)
    if (dst_the.threads[alive[i]].state == DST_REST) return alive[i];
  return -1;
}

/* Chooses the thread that runs next. Advances the time if no thread can run and none waits in td_rest(). */
static int pick(void) {
  int list[DST_MOST_THREADS];
  for (;;) {
    int count = 0;
    const bool can_stay = dst_can_run(&dst_the.threads[dst_the.current]);
    if (can_stay) list[count++] = dst_the.current;
    for (int i = 0; i < num_alive; i++)
      if (alive[i] != dst_the.current && dst_can_run(&dst_the.threads[alive[i]])) list[count++] = alive[i];
    if (count) return list[dst_choose_thread(list, count, can_stay)];
    const int resting = find_resting();
    if (resting >= 0) return resting;
    const int64_t soonest = next_deadline();
    if (soonest == DST_FOREVER) dst_die("all threads sleep for ever");
    dst_the.now_ns = soonest;
  }
}

static uint64_t mix(uint64_t hash, uint64_t value) { return (hash ^ value) * UINT64_C(1099511628211); }

void dst_decide(const char *call, void *site) {
  const int self = dst_self;
  dst_thread *me = dst_me();
  me->call = call;
  me->site = site;
  dst_the.num_steps++;
  if (dst_the.num_steps > dst_the.most_steps)
    dst_die("more than %llu decisions", (unsigned long long)dst_the.most_steps);
  if (dst_the.num_steps == dst_the.stop_step) raise(SIGTRAP);
  wake_without_reason();
  pass_time();
  const int next = pick();
  dst_the.hash = mix(mix(dst_the.hash, (uint64_t)next), (uint64_t)me->state);
  dst_record(self, next, call, site);
  dst_the.current = next;
  if (next == self) return;
  dst_the.num_switches++;
  const bool ends = me->state == DST_DONE;
  give_token(&dst_the.threads[next]);
  if (!ends) dst_take_token(self);
}

void dst_wait(dst_state state, void *object, int64_t deadline_ns, const char *call, void *site) {
  dst_thread *me = dst_me();
  me->state = state;
  me->object = object;
  me->deadline_ns = deadline_ns;
  me->was_woken = false;
  dst_decide(call, site);
  me->state = DST_READY;
  me->object = NULL;
}

/* Implements td_rest(): waits until no other thread can run. Returns false if the scheduler is off. */
DST_EXPORT bool dst_scheduler_rest(void);
bool dst_scheduler_rest(void) {
  if (!dst_active()) return false;
  dst_wait(DST_REST, NULL, DST_FOREVER, "td_rest", DST_SITE);
  return true;
}

int dst_add_thread(void) {
  int number = 0;
  while (number < dst_the.num_threads && !dst_the.threads[number].is_free) number++;
  if (number == DST_MOST_THREADS) dst_die("more than %d threads", DST_MOST_THREADS);
  if (number == dst_the.num_threads) dst_the.num_threads++;
  dst_thread *t = &dst_the.threads[number];
  *t = (dst_thread){.num_choices = t->num_choices, .priority = dst_new_priority()};
  alive[num_alive++] = number;
  return number;
}

void dst_end_thread(void) {
  int at = 0;
  while (alive[at] != dst_self) at++;
  alive[at] = alive[--num_alive];
  dst_me()->state = DST_DONE;
  dst_decide("end of the thread", dst_me()->start);
  dst_self = -1;
}

/* Keeps the process on one processor. Only one thread runs at a time, and switching between processors is slower. */
static void stay_on_processor(void) {
  cpu_set_t set;
  unsigned cpu = 0;
  if (DST_REAL(syscall)(SYS_getcpu, &cpu, NULL, NULL) != 0 || cpu >= CPU_SETSIZE) return;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  DST_REAL(syscall)(SYS_sched_setaffinity, 0, sizeof set, &set);
}

void dst_start_scheduler(uint64_t seed) {
  static const int64_t first_ns = INT64_C(1000000000000);
  if (dst_the.is_on) return;
  dst_the.seed = seed;
  dst_the.hash = UINT64_C(14695981039346656037);
  dst_the.now_ns = first_ns;
  dst_choice_start(seed);
  dst_report_start();
  dst_files_start();
  stay_on_processor();
  dst_self = dst_add_thread();
  dst_me()->real = pthread_self();
  dst_the.is_on = true;
}
