/* Tests concurrent transfers of overlapping trees in both directions and in all modes, with futures that are released
 * early. All bytes of a tree are equal, and transfers move whole trees. So whatever the order of the transfers, every
 * read must find equal bytes. */
#include <stdatomic.h>

#include "core/base/clock.h"
#include "support/threads.h"
#include "trees.h"

enum { NUM_THREADS = 4, NUM_TREES = 3, NUM_LEAVES = 12 };
#define STRESS_NS ((int64_t)2500 * 1000000)

typedef struct stress {
  place w;
  tdict_tree *host[NUM_TREES], *there[NUM_TREES];
  int64_t deadline_ns;
  _Atomic(int) failures; /* threads count failures, and the main thread checks the count */
  _Atomic(int) rounds, torn;
} stress;
typedef struct stressor {
  stress *s;
  pthread_t thread;
  naive_random random;
} stressor;

static tdict_tree *uniform_tree(tdict_memory *memory, unsigned char byte) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < NUM_LEAVES; i++) {
    char path[16];
    snprintf(path, sizeof path, "u%d.x", i);
    tdict_tensor *t = random_tensor(TDICT_U8, SHAPE(1 + 3001 * (int64_t)i * (i % 3)), i % 2 ? memory : NULL);
    memset(tdict_tensor_data(t), byte, tdict_tensor_bytes(t));
    td_put(td, path, t);
  }
  return td;
}

/* Returns true if all bytes of the tree are equal. Runs on any thread, so it has no asserts. */
static bool is_uniform(const tdict_tree *td) {
  int byte = -1;
  for (int i = 0; i < NUM_LEAVES; i++) {
    char path[16];
    snprintf(path, sizeof path, "u%d.x", i);
    tdict_tensor *t = NULL;
    if (tdict_get(td, path, &t, NULL) != TDICT_OK) return false;
    const unsigned char *p = tdict_tensor_const_data(t);
    if (byte < 0) byte = p[0];
    for (size_t k = 0; k < tdict_tensor_bytes(t); k++)
      if (p[k] != byte) return false;
  }
  return true;
}

static void note(stress *s, tdict_status status) {
  if (status != TDICT_OK) atomic_fetch_add(&s->failures, 1);
}

/* Waits for a future, polls it, or only releases it. If `look` is true, checks the result. */
static void treat(stressor *r, tdict_status started, tdict_future *const *future, bool look) {
  scoped_tree out = NULL;
  note(r->s, started);
  if (started != TDICT_OK) return;
  tdict_future *f = *future;
  switch (naive_below(&r->random, 4)) {
  case 0:
    break;
  case 1:
    (void)!tdict_future_wait_for(f, 100000, NULL, NULL);
    (void)tdict_future_is_ready(f);
    break;
  default:
    note(r->s, tdict_future_wait(f, &out, NULL));
  }
  tdict_future_release(f);
  if (out && look && !is_uniform(out)) atomic_fetch_add(&r->s->torn, 1);
}

static void one_round(stressor *r) {
  stress *s = r->s;
  naive_random *n = &r->random;
  tdict_tree *host = s->host[naive_below(n, NUM_TREES)], *there = s->there[naive_below(n, NUM_TREES)];
  tdict_tree *other = s->there[naive_below(n, NUM_TREES)], *out = NULL;
  const way v = way_at((int)naive_below(n, NUM_WAYS));
  tdict_transfer_options o = v.o;
  tdict_future *f = NULL;
  switch (naive_below(n, 6)) {
  case 0:
    treat(r, tdict_transfer_into_async(s->w.c, there, host, &o, &f, NULL), &f, false);
    break;
  case 1:
    treat(r, tdict_transfer_into_async(s->w.c, host, there, &o, &f, NULL), &f, false);
    break;
  case 2:
    if (there != other) treat(r, tdict_transfer_into_async(s->w.c, other, there, &o, &f, NULL), &f, false);
    break;
  case 3:
    o.pinned_result = s->w.gpu && naive_below(n, 2);
    treat(r, tdict_to_device_async(s->w.c, there, tdict_cpu(), &o, &f, NULL), &f, true);
    break;
  case 4: /* to the device and back: the second transfer reads the result of the first */
    note(s, tdict_to_device(s->w.c, host, s->w.device, &o, &out, NULL));
    if (!out) break;
    treat(r, tdict_to_device_async(s->w.c, out, tdict_cpu(), &o, &f, NULL), &f, true);
    tdict_release(out);
    break;
  default:
    treat(r, tdict_to_device_async(s->w.c, host, s->w.device, &o, &f, NULL), &f, false);
  }
  atomic_fetch_add(&s->rounds, 1);
}

static void *run(void *argument) {
  stressor *r = argument;
  for (int n = 0; n < 2 || tdict_now_ns() < r->s->deadline_ns; n++) one_round(r); /* at least twice */
  return NULL;
}

static void run_stress(bool destroys) {
  stress s = {.w = open_place()};
  stressor threads[NUM_THREADS];
  for (int i = 0; i < NUM_TREES; i++) {
    s.host[i] = uniform_tree(s.w.pinned, (unsigned char)(1 + i));
    scoped_tree like = uniform_tree(NULL, (unsigned char)(101 + i));
    s.there[i] = to_device(&s.w, like, s.w.device);
  }
  s.deadline_ns = tdict_now_ns() + (destroys ? STRESS_NS / 5 : STRESS_NS);
  for (int i = 0; i < NUM_THREADS; i++) {
    threads[i].s = &s;
    threads[i].random.state = 1000 * (uint64_t)i + (destroys ? 77 : 0);
    threads[i].thread = td_start(run, &threads[i]);
  }
  for (int i = 0; i < NUM_THREADS; i++) pthread_join(threads[i].thread, NULL);
  assert_int_equal(atomic_load(&s.failures), 0);
  assert_int_equal(atomic_load(&s.torn), 0);
  assert_true(atomic_load(&s.rounds) > NUM_THREADS);
  if (destroys) { /* while transfers with released futures run */
    raw_close(s.w.raw);
    raw_close(s.w.host);
    tdict_context_destroy(s.w.c);
    for (int i = 0; i < NUM_TREES; i++) assert_true(is_uniform(s.host[i]));
  }
  for (int i = 0; i < NUM_TREES && !destroys; i++) {
    scoped_tree back = to_device(&s.w, s.there[i], tdict_cpu());
    assert_true(is_uniform(s.host[i]));
    assert_true(is_uniform(back));
  }
  for (int i = 0; i < NUM_TREES; i++) td_release(s.host[i], s.there[i]);
  if (!destroys) place_close(&s.w);
}

GPU_CASE(stress_many_threads) { run_stress(false); }
GPU_CASE(stress_context_destroyed_under_way) {
  for (int i = 0; i < 3; i++) run_stress(true);
}

/* A transfer that waits for others is launched when the last of them ends, even if its future is released. */
SIM_CASE(stress_chains_released_early) {
  scoped_place w = open_place();
  scoped_tree host = uniform_tree(NULL, 1), a = to_device(&w, host, w.device), b = to_device(&w, host, w.device);
  tdict_transfer_options o = tdict_transfer_options_default();
  const int64_t deadline = tdict_now_ns() + STRESS_NS / 3;
  for (int i = 0; tdict_now_ns() < deadline; i++) {
    o.num_threads = 1 + i % 8;
    scoped_future f = copy_async(&w, i % 2 ? a : b, i % 2 ? b : a, &o);
  }
  scoped_tree back = to_device(&w, a, tdict_cpu());
  assert_true(is_uniform(back));
}
