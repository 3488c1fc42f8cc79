/* Tests the log of a context. */
#include "core/base/log.h"

#include <stdatomic.h>
#include <unistd.h>

#include "support/test.h"
#include "support/threads.h"

typedef struct heard {
  atomic_int count;
  int32_t level;
  char text[2048];
} heard;
static void hear(void *user, int32_t level, const char *text) {
  heard *h = user;
  h->level = level;
  snprintf(h->text, sizeof h->text, "%s", text);
  atomic_fetch_add(&h->count, 1);
}

CASE(log_writes_to_the_programs_function) {
  heard h = {.count = 0};
  tdict_log *log = NULL;
  td_ok(tdict_log_create(hear, &h, &log, err));
  tdict_log_write(log, 2, "%s is %d, 100%%", "seven", 7);
  assert_int_equal(atomic_load(&h.count), 1);
  assert_int_equal(h.level, 2);
  assert_string_equal(h.text, "seven is 7, 100%");
  char longer[3000]; /* longer than the log's buffer, so it is truncated and terminated */
  memset(longer, 'x', sizeof longer - 1);
  longer[sizeof longer - 1] = 0;
  tdict_log_write(log, 1, "%s", longer);
  assert_int_equal(atomic_load(&h.count), 2);
  assert_true(strlen(h.text) >= 500 && strlen(h.text) < 1024);
  assert_memory_equal(h.text, longer, strlen(h.text));
  tdict_log_release(log);
}

CASE(log_without_function_is_silent) {
  tdict_log *log = NULL;
  td_ok(tdict_log_create(NULL, NULL, &log, err));
  tdict_log_write(log, 1, "nobody hears %d", 1);
  tdict_log_close(log);
  tdict_log_write(log, 1, "nobody hears %d", 2);
  tdict_log_release(log);
  tdict_log_release(NULL);
}

CASE(log_that_is_closed_is_silent) {
  heard h = {.count = 0};
  tdict_log *log = NULL;
  td_ok(tdict_log_create(hear, &h, &log, err));
  assert_ptr_equal(tdict_log_retain(log), log); /* a transfer retains the log, since it may outlive the context */
  tdict_log_close(log);
  tdict_log_release(log);
  tdict_log_write(log, 1, "too late");
  assert_int_equal(atomic_load(&h.count), 0);
  tdict_log_release(log);
}

CASE(log_without_memory) {
  tdict_log *log = NULL;
  tdict_error err = {0};
  td_fail_alloc(0, false);
  tdict_status status = tdict_log_create(hear, NULL, &log, &err);
  assert_true(td_fail_alloc_stop());
  assert_int_equal(status, TDICT_ENOMEM);
  assert_int_equal(err.status, TDICT_ENOMEM);
  assert_null(log);
}

/* Threads write while another thread closes the log. A call that begins after the close must not reach the program. */
typedef struct crowd {
  tdict_log *log;
  atomic_bool closed, stop;
  atomic_int attempts, writes, late;
} crowd;
static void hear_crowd(void *user, int32_t level, const char *text) {
  crowd *c = user;
  (void)text;
  if (level == 3) atomic_fetch_add(&c->late, 1); /* level 3: the writer had already seen `closed` */
  atomic_fetch_add(&c->writes, 1);
}
static void *write_often(void *user) {
  crowd *c = user;
  while (!atomic_load(&c->stop)) {
    tdict_log_write(c->log, atomic_load(&c->closed) ? 3 : 1, "%p", user);
    atomic_fetch_add(&c->attempts, 1);
  }
  return NULL;
}
CASE(log_is_safe_from_any_thread) {
  crowd c = {.stop = false};
  pthread_t threads[3];
  td_ok(tdict_log_create(hear_crowd, &c, &c.log, err));
  for (int i = 0; i < 3; i++) threads[i] = td_start(write_often, &c);
  while (atomic_load(&c.writes) < 100) usleep(100);
  tdict_log_close(c.log);
  atomic_store(&c.closed, true);
  const int enough = atomic_load(&c.attempts) + 100;
  while (atomic_load(&c.attempts) < enough) usleep(100);
  atomic_store(&c.stop, true);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&c.late), 0);
  tdict_log_release(c.log);
}

/* If the program's log function is running when another thread closes the log, the close waits until it returns. */
typedef struct slow {
  tdict_log *log;
  atomic_bool inside, closing;
} slow;
static void hear_slowly(void *user, int32_t level, const char *text) {
  slow *s = user;
  (void)level, (void)text;
  atomic_store(&s->inside, true);
  while (!atomic_load(&s->closing)) usleep(100);
  td_rest(); /* a close that does not wait would have returned by now */
  atomic_store(&s->inside, false);
}
static void *write_once(void *user) {
  slow *s = user;
  tdict_log_write(s->log, 1, "slowly");
  return NULL;
}
CASE(log_close_waits_for_a_running_call) {
  slow s = {.closing = false};
  td_ok(tdict_log_create(hear_slowly, &s, &s.log, err));
  pthread_t thread = td_start(write_once, &s);
  while (!atomic_load(&s.inside)) usleep(100);
  atomic_store(&s.closing, true);
  tdict_log_close(s.log);
  assert_false(atomic_load(&s.inside));
  pthread_join(thread, NULL);
  tdict_log_release(s.log);
}
