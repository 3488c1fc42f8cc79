/* Small programs for check.py, which tests the scheduler. The environment variable DST_CASE selects the program. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "dst/workload.h"

enum { ALL_KINDS = (1 << (DST_IO + 1)) - 1, UPDATES = 100 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_t threads[4];

/* Starts a thread. Tries again if an injected fault makes pthread_create() fail. */
static void start(int number, void *(*run)(void *)) {
  int code;
  do code = pthread_create(&threads[number], NULL, run, NULL);
  while (code == EAGAIN);
  if (code) dst_fail("pthread_create: %d", code);
}
static void join(int number) { pthread_join(threads[number], NULL); }

/* ---- repeats: uses everything that could differ between two runs ---- */

static _Atomic(uint64_t) counter, mixed;

static void mix(uint64_t value) { atomic_store(&mixed, (atomic_load(&mixed) ^ value) * UINT64_C(1099511628211)); }

static void *use_everything(void *argument) {
  struct timespec now, nap = {0, 1000};
  uint64_t bits;
  (void)argument;
  mix((uint64_t)(uintptr_t)&now); /* the address of this stack */
  for (int i = 0; i < 50; i++) {
    void *block = malloc(1 + dst_roll(3000));
    mix((uint64_t)(uintptr_t)block);
    pthread_mutex_lock(&lock);
    atomic_fetch_add(&counter, 1);
    pthread_mutex_unlock(&lock);
    clock_gettime(CLOCK_REALTIME, &now);
    mix((uint64_t)now.tv_nsec + (uint64_t)now.tv_sec);
    if (getrandom(&bits, sizeof bits, 0) == (ssize_t)sizeof bits) mix(bits);
    nanosleep(&nap, NULL);
    free(block);
  }
  mix((uint64_t)getpid() + (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
  return NULL;
}

static void repeats(void) {
  for (int i = 0; i < 4; i++) start(i, use_everything);
  for (int i = 0; i < 4; i++) join(i);
  void *page = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mix((uint64_t)(uintptr_t)page);
  if (page != MAP_FAILED) munmap(page, 4096);
  printf("mixed %016llx\n", (unsigned long long)atomic_load(&mixed));
}

/* ---- planted errors ---- */

static bool is_ready;

/* Uses `if` instead of `while`, so a spurious wakeup ends the wait. */
static void *wait_once(void *argument) {
  (void)argument;
  pthread_mutex_lock(&lock);
  if (!is_ready) pthread_cond_wait(&changed, &lock);
  if (!is_ready) dst_fail("the wait ended too early");
  pthread_mutex_unlock(&lock);
  return NULL;
}
static void make_ready(void) {
  struct timespec nap = {0, 1000000};
  nanosleep(&nap, NULL);
  pthread_mutex_lock(&lock);
  is_ready = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}
static void spurious_wakeup(void) {
  for (int round = 0; round < 10; round++) {
    is_ready = false;
    start(0, wait_once);
    make_ready();
    join(0);
  }
}

/* A planted lost wakeup: the flag is set and signalled without the lock, maybe between the check and the wait. */
static atomic_bool flag;
static void *wait_for_flag(void *argument) {
  (void)argument;
  while (!atomic_load(&flag)) {
    pthread_mutex_lock(&other_lock); /* lets another thread run */
    pthread_mutex_unlock(&other_lock);
    pthread_mutex_lock(&lock);
    pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
  }
  return NULL;
}
static void lost_wakeup(void) {
  for (int round = 0; round < 20; round++) {
    atomic_store(&flag, false);
    start(0, wait_for_flag);
    sched_yield();
    atomic_store(&flag, true);
    pthread_cond_broadcast(&changed);
    join(0);
  }
}

/* Loses updates if another thread runs between the two atomic accesses. */
static void *add_in_two_steps(void *argument) {
  (void)argument;
  for (int i = 0; i < UPDATES; i++) atomic_store(&counter, atomic_load(&counter) + 1);
  return NULL;
}
static void lost_update(void) {
  start(0, add_in_two_steps);
  start(1, add_in_two_steps);
  join(0);
  join(1);
  if (atomic_load(&counter) != 2 * UPDATES) dst_fail("an update was lost");
}

static void *lock_both(void *argument) {
  (void)argument;
  pthread_mutex_lock(&other_lock);
  pthread_mutex_lock(&lock);
  pthread_mutex_unlock(&lock);
  pthread_mutex_unlock(&other_lock);
  return NULL;
}
static void deadlock(void) {
  pthread_mutex_lock(&lock);
  start(0, lock_both);
  sched_yield();
  sched_yield();
  pthread_mutex_lock(&other_lock);
  pthread_mutex_unlock(&other_lock);
  pthread_mutex_unlock(&lock);
  join(0);
}

static void sleeps_for_ever(void) {
  pthread_mutex_lock(&lock);
  while (!is_ready) pthread_cond_wait(&changed, &lock);
  pthread_mutex_unlock(&lock);
}

/* ---- misfortunes: prints how often each kind happened ---- */

static void *wait_a_while(void *argument) {
  struct timespec until;
  (void)argument;
  pthread_mutex_lock(&lock);
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += 1000000;
  if (until.tv_nsec >= 1000000000) until = (struct timespec){until.tv_sec + 1, until.tv_nsec - 1000000000};
  atomic_fetch_add(&counter, pthread_cond_timedwait(&changed, &lock, &until) == 0);
  pthread_mutex_unlock(&lock);
  return NULL;
}

static int count_short_reads(void) {
  char bytes[64] = {0};
  int count = 0;
  const int fd = open("/dst/file", O_RDWR | O_CREAT, 0600);
  if (fd < 0) dst_fail("open: %s", strerror(errno));
  while (ftruncate(fd, sizeof bytes) != 0) continue;
  for (int i = 0; i < 20; i++) count += pread(fd, bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes;
  for (int i = 0; i < 20; i++) count += pwrite(fd, bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes;
  close(fd);
  return count;
}

static void misfortunes(void) {
  int num_alloc = 0, num_thread = 0, num_driver = 0;
  dst_allow(ALL_KINDS, true);
  for (int i = 0; i < 50; i++) {
    void *block = malloc(10);
    num_alloc += block == NULL;
    free(block);
    num_driver += dst_is_unlucky(DST_DRIVER);
    if (pthread_create(&threads[0], NULL, wait_a_while, NULL) == 0)
      join(0);
    else
      num_thread++;
  }
  const int num_io = count_short_reads();
  printf("spurious %d alloc %d thread %d driver %d io %d faults %d\n", (int)atomic_load(&counter), num_alloc,
         num_thread, num_driver, num_io, (int)dst_num_faults());
}

/* ---- files ---- */

static void write_file(const char *path, const char *text, bool syncs) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, text, strlen(text)) < 0 || (syncs && fsync(fd) != 0))
    dst_fail("%s: %s", path, strerror(errno));
  close(fd);
}

/* Replaces /dst/file with rename(). If DST_SYNCS is set, flushes the new bytes first. */
static void replace_file(void *data) {
  const bool syncs = getenv("DST_SYNCS") != NULL;
  (void)data;
  write_file("/dst/new", "newnewnew", syncs);
  if (rename("/dst/new", "/dst/file") != 0) dst_fail("rename: %s", strerror(errno));
}

static void crash(void) {
  char text[32] = "";
  for (int i = 0; i < 30; i++) {
    write_file("/dst/file", "oldoldold", true);
    const int folder = open("/dst", O_RDONLY | O_DIRECTORY);
    if (folder < 0 || fsync(folder) != 0) dst_fail("fsync: %s", strerror(errno));
    close(folder);
    dst_crash(replace_file, NULL);
    const int fd = open("/dst/file", O_RDONLY);
    const ssize_t count = fd < 0 ? -1 : read(fd, text, sizeof text);
    close(fd);
    if (count != 9 || (memcmp(text, "oldoldold", 9) != 0 && memcmp(text, "newnewnew", 9) != 0))
      dst_fail("the file is neither old nor new");
  }
}

static void real_file(void) { (void)!open("/etc/hostname", O_RDONLY); }
static void other_process(void) { (void)!fork(); }

/* ---- thread exit ---- */

static pthread_key_t key;
static void use_lock(void *value) {
  (void)value;
  pthread_mutex_lock(&lock);
  pthread_mutex_unlock(&lock);
  free(value);
}
static void *set_key(void *argument) {
  (void)argument;
  pthread_setspecific(key, malloc(100));
  return NULL;
}
static void destructors(void) {
  pthread_key_create(&key, use_lock);
  for (int round = 0; round < 20; round++) {
    start(0, set_key);
    start(1, set_key);
    pthread_detach(threads[1]);
    join(0);
  }
}

void dst_workload(void) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"repeats", repeats},         {"spurious_wakeup", spurious_wakeup},
               {"lost_wakeup", lost_wakeup}, {"lost_update", lost_update},
               {"deadlock", deadlock},       {"sleeps_for_ever", sleeps_for_ever},
               {"misfortunes", misfortunes}, {"crash", crash},
               {"real_file", real_file},     {"other_process", other_process},
               {"destructors", destructors}};
  const char *name = getenv("DST_CASE");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    if (name && strcmp(cases[i].name, name) == 0) {
      cases[i].run();
      return;
    }
  dst_fail("DST_CASE names no case");
}
