/* Tests thread names. core/sched/test_pool.c tests signal masks, and test_float_env.c floating-point environments. */
#include "core/base/thread.h"

#include "support/test.h"

typedef struct named {
  const char *text;
  char name[32]; /* the name that the thread itself has read */
} named;
static void *take_name(void *user) {
  named *n = user;
  tdict_thread_set_name("%s-%d", n->text, 1023);
  pthread_getname_np(pthread_self(), n->name, sizeof n->name);
  return NULL;
}

/* The kernel refuses names of 16 bytes or more, so longer names are truncated. */
CASE(threads_have_names_of_15_bytes) {
  static const char *const wanted[][2] = {
      {"pool", "tdict-pool-1023"}, {"a", "tdict-a-1023"}, {"0123456789", "tdict-012345678"}};
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    named n = {.text = wanted[i][0]};
    pthread_t thread;
    assert_int_equal(tdict_thread_create(&thread, take_name, &n), 0);
    pthread_join(thread, NULL);
    assert_string_equal(n.name, wanted[i][1]);
  }
}
