/* Implements the program's own small copies, see own_copy.h. */
#include "own_copy.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "tdict/memory.h"

enum { OWN_BYTES = 51200 };

bool own_copy_open(own_copy *c, bench_place *place) {
  raw_driver *raw = place->check.raw;
  const check_group group = {1, OWN_BYTES};
  *c = (own_copy){.place = place};
  if (raw)
    return check_driver(raw, "the driver",
                        raw_alloc(raw, OWN_BYTES, &c->device) && raw_host_alloc(raw, OWN_BYTES, &c->host));
  return check_source_make(&c->source, &group, 1, tdict_pinned_memory(place->context)) &&
         place_move(place, c->source.tree, NULL, "the program's own leaf", &c->target);
}

void own_copy_close(own_copy *c) {
  if (!c->place) return;
  raw_driver *raw = c->place->check.raw;
  if (c->host) (void)raw_host_free(raw, c->host);
  if (c->device) (void)raw_free(raw, c->device);
  tdict_release(c->target);
  check_source_free(&c->source);
  memset(c, 0, sizeof *c);
}

bool own_copy_once(const own_copy *c, double *seconds) {
  static const char what[] = "the program's own copy";
  raw_driver *raw = c->place->check.raw;
  const double begin = bench_now();
  const bool good =
      raw ? check_driver(raw, what, raw_copy_in_async(raw, c->device, c->host, OWN_BYTES) && raw_finish_own(raw))
          : bench_ok(what, tdict_transfer_into(c->place->context, c->target, c->source.tree, NULL, err));
  *seconds = bench_now() - begin;
  return good;
}

bool own_copy_meanwhile(const own_copy *c, const tdict_future *future, long pause_ns, bench_samples *times) {
  uint64_t state = (uint64_t)times->count;
  do {
    double seconds;
    const struct timespec pause = {0, pause_ns / 2 + (long)(bench_random(&state) % (uint64_t)pause_ns)};
    nanosleep(&pause, NULL);
    if (!own_copy_once(c, &seconds)) return false;
    bench_samples_add(times, seconds);
  } while (times->count < times->capacity && !(future && tdict_future_is_ready(future)));
  return true;
}

typedef struct beside {
  bool (*work)(void *user);
  void *user;
  double seconds;
  bool good;
  _Atomic(bool) done; /* the second thread stores it with release, the copying thread loads it with acquire */
} beside;

static void *do_work(void *user) {
  beside *b = user;
  const double begin = bench_now();
  b->good = b->work(b->user);
  b->seconds = bench_now() - begin;
  atomic_store_explicit(&b->done, true, memory_order_release);
  return NULL;
}

bool own_copy_beside(const own_copy *c, bool (*work)(void *user), void *user, double *seconds, double *longest) {
  beside b = {.work = work, .user = user};
  pthread_t thread;
  bool good;
  *longest = 0;
  if (pthread_create(&thread, NULL, do_work, &b) != 0) {
    bench_print_error("cannot start a thread");
    return false;
  }
  do {
    double one = 0;
    good = own_copy_once(c, &one);
    if (one > *longest) *longest = one;
  } while (good && !atomic_load_explicit(&b.done, memory_order_acquire));
  pthread_join(thread, NULL);
  *seconds = b.seconds;
  return good && b.good;
}
