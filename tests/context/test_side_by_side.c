/* Tests two contexts that use one device at the same time. Each has a thread that moves random trees to the device and
 * back. The option --seconds N of the program runs the case for N seconds. */
#include <stdatomic.h>

#include "core/base/clock.h"
#include "support/test.h"
#include "support/threads.h"

enum { NUM_CONTEXTS = 2, NUM_LEAVES = 5, MOST_BYTES = 1 << 20 };

typedef struct mover {
  pthread_t thread;
  tdict_context *context;
  int64_t until_ns;
  uint64_t seed;
  int64_t rounds;
  _Atomic(int) failures; /* cmocka asserts work on the main thread only, so it checks this number at the end */
} mover;

/* Makes a tree of random leaves, some of them pinned. */
static tdict_tree *make_tree(mover *m) {
  tdict_tree *tree = NULL;
  tdict_error err;
  m->failures += tdict_create(0, NULL, &tree, &err) != TDICT_OK;
  for (int i = 0; i < NUM_LEAVES && !m->failures; i++) {
    uint32_t number;
    scoped_tensor leaf = NULL;
    td_fill_random(&number, sizeof number, ++m->seed);
    const int64_t bytes = 1 + number % (number & 1 ? MOST_BYTES : 5000);
    tdict_memory *memory = number & 2 ? tdict_pinned_memory(m->context) : NULL;
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    m->failures += tdict_tensor_empty(TDICT_U8, 1, &bytes, memory, &leaf, &err) != TDICT_OK;
    if (m->failures) break;
    td_fill_random(tdict_tensor_data(leaf), (size_t)bytes, ++m->seed);
    m->failures += tdict_set(tree, key, leaf, &err) != TDICT_OK;
  }
  return tree;
}

static int count_differences(const tdict_tree *want, const tdict_tree *got) {
  int wrong = 0;
  for (int i = 0; i < NUM_LEAVES; i++) {
    const tdict_entry a = tdict_get_entry_at(want, (size_t)i), b = tdict_get_entry_at(got, (size_t)i);
    if (!a.tensor || !b.tensor) return 1;
    wrong +=
        memcmp(tdict_tensor_const_data(a.tensor), tdict_tensor_const_data(b.tensor), tdict_tensor_bytes(a.tensor)) != 0;
  }
  return wrong;
}

static void *move_trees(void *user) {
  mover *m = user;
  const tdict_device device = td_device();
  do { /* at least one round, even if the machine is slow */
    tdict_tree *src = make_tree(m), *there = NULL, *back = NULL;
    tdict_future *f = NULL;
    tdict_error err;
    bool good = tdict_to_device_async(m->context, src, device, NULL, &f, &err) == TDICT_OK &&
                tdict_future_wait(f, &there, &err) == TDICT_OK &&
                tdict_to_device(m->context, there, tdict_cpu(), NULL, &back, &err) == TDICT_OK;
    m->failures += !good;
    if (good) m->failures += count_differences(src, back);
    td_release(f, back, there, src);
    m->rounds++;
  } while (!m->failures && tdict_now_ns() < m->until_ns);
  return NULL;
}

GPU_CASE(contexts_side_by_side) {
  mover movers[NUM_CONTEXTS];
  const int64_t until_ns = tdict_now_ns() + td_number("--seconds", 1) * 1000000000;
  memset(movers, 0, sizeof movers);
  for (int i = 0; i < NUM_CONTEXTS; i++) {
    movers[i].context = td_context(NULL);
    movers[i].seed = (uint64_t)i << 32;
    movers[i].until_ns = until_ns;
  }
  for (int i = 0; i < NUM_CONTEXTS; i++) movers[i].thread = td_start(move_trees, &movers[i]);
  for (int i = 0; i < NUM_CONTEXTS; i++) {
    pthread_join(movers[i].thread, NULL);
    assert_int_equal(movers[i].failures, 0);
    assert_true(movers[i].rounds > 0);
    printf("context %d: %d round trips\n", i, (int)movers[i].rounds);
    tdict_context_destroy(movers[i].context);
  }
}
