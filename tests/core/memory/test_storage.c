/* Tests storages: where their bytes come from, when they are freed, and how uses are recorded. */
#include <sys/resource.h>
#include <sys/wait.h>

#include "core/memory/fakes.h"
#include "support/threads.h"

CASE(storage_plain_is_aligned_and_zeroed) {
  static const size_t sizes[] = {
      1, 63, 64, 65, 4096, 65535, 65536, 100003, (4 << 20) + 1, 9000001, (size_t)32 << 20, 40000003};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
    for (int again = 0; again < 3; again++) { /* from the second round on, malloc may return memory that is not zero */
      scoped_storage s = td_made(storage, tdict_storage_create(NULL, sizes[i], true, &made, err));
      assert_int_equal((uintptr_t)s->data % 256, 0);
      assert_int_equal(s->bytes, sizes[i]);
      assert_true(tdict_device_equal(s->device, tdict_cpu()));
      assert_int_equal(s->flags, 0);
      assert_true(td_all_bytes(s->data, sizes[i], 0));
      memset(s->data, 0xA5, sizes[i]);
    }
  tdict_storage_release(NULL);
}

/* Freed memory must be reused, because touching new pages costs as much as copying into them. */
CASE(storage_plain_pages_are_reused) {
#if SANITIZED
  skip(); /* sanitizers hold freed memory back to detect later accesses */
#endif
  static const size_t sizes[] = {65536, 300001, 2000000, 10948608, (size_t)31 << 20};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    struct rusage before, after;
    for (int again = 0; again < 4; again++) { /* after the first round, malloc takes such a block from the heap */
      scoped_storage s = NULL;
      void *small = malloc(300); /* real programs make small allocations too */
      assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
      td_ok(tdict_storage_create(NULL, sizes[i], false, &s, err));
      memset(s->data, 0xA5, sizes[i]);
      assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
      if (again == 3) assert_in_range(after.ru_minflt - before.ru_minflt, 0, 8);
      free(small);
    }
  }
}

CASE(storage_may_be_empty) {
  scoped_storage s = td_made(storage, tdict_storage_create(NULL, 0, true, &made, err));
  assert_int_equal(s->bytes, 0);
  assert_null(s->data);
}

CASE(storage_create_survives_enomem) {
  fake_memory memory;
  tdict_storage *s = NULL;
  fake_memory_init(&memory, false);
  for (int n = 0; n < 2; n++) { /* allocating the record fails, then allocating the bytes */
    td_fail_alloc(n, false);
    td_fails(TDICT_ENOMEM, "no host memory", tdict_storage_create(NULL, 100, true, &s, err));
    assert_true(td_fail_alloc_stop());
    assert_null(s);
  }
  td_fail_alloc(0, false);
  td_fails(TDICT_ENOMEM, "record", tdict_storage_create(&memory.memory, 100, true, &s, err));
  assert_true(td_fail_alloc_stop());
  assert_null(s);
  assert_int_equal(atomic_load(&memory.allocations), 0);
  assert_int_equal(atomic_load(&memory.refs), 1);
}

CASE(storage_gives_its_block_back_once) {
  fake_memory memory;
  tdict_storage *s = NULL;
  fake_memory_init(&memory, true);
  td_ok(tdict_storage_create(&memory.memory, 777, false, &s, err));
  assert_ptr_equal(s->data, memory.last_data);
  assert_int_equal(s->bytes, 777);
  assert_true(tdict_device_equal(s->device, tdict_sim(3)));
  assert_int_equal(atomic_load(&memory.refs), 2);
  assert_ptr_equal(tdict_storage_retain(s), s);
  tdict_storage_release(s);
  assert_int_equal(atomic_load(&memory.frees), 0);
  tdict_storage_release(s);
  assert_int_equal(atomic_load(&memory.frees), 1);
  assert_ptr_equal(memory.freed_data, memory.last_data);
  assert_true(memory.alive_when_freed);
  assert_int_equal(atomic_load(&memory.refs), 1);
}

CASE(storage_zeroes_by_the_memory_that_can) {
  fake_memory memory;
  fake_memory_init(&memory, true);
  scoped_storage s = td_made(storage, tdict_storage_create(&memory.memory, 500, true, &made, err));
  assert_ptr_equal(memory.filled, s->data);
  assert_int_equal(memory.filled_bytes, 500);
  assert_int_equal(memory.filled_byte, 0);
  assert_true(td_all_bytes(s->data, 500, 0xA5)); /* the memory's own fill was called, so the host wrote nothing */
  tdict_storage_release(s);
  fake_memory_init(&memory, false);
  td_ok(tdict_storage_create(&memory.memory, 500, true, &s, err));
  assert_true(td_all_bytes(s->data, 500, 0));
  assert_int_equal(((unsigned char *)s->data)[500], 0xA5);
}

CASE(storage_create_fails_with_its_memory) {
  fake_memory memory;
  tdict_storage *s = NULL;
  fake_memory_init(&memory, true);
  memory.fail_allocate = true;
  td_fails(TDICT_EDEVICE, "no block", tdict_storage_create(&memory.memory, 10, false, &s, err));
  assert_int_equal(atomic_load(&memory.refs), 1);
  memory.fail_allocate = false;
  memory.fail_fill = true;
  td_fails(TDICT_EDEVICE, "no fill", tdict_storage_create(&memory.memory, 10, true, &s, err));
  assert_int_equal(atomic_load(&memory.frees), 1);
  assert_ptr_equal(memory.freed_data, memory.last_data);
  assert_int_equal(atomic_load(&memory.refs), 1);
  assert_null(s);
}

CASE(storage_of_pinned_memory_says_so) {
  fake_memory memory;
  scoped_storage s = NULL;
  fake_memory_init(&memory, false);
  memory.memory.pinned = true;
  td_ok(tdict_storage_create(&memory.memory, 10, false, &s, err));
  assert_int_equal(s->flags, TDICT_STORAGE_PINNED);
}

static void count_release(void *user) { ++*(int *)user; }

CASE(storage_wrap_calls_release_once) {
  tdict_storage *s = NULL;
  int calls = 0;
  char bytes[8] = "keep it";
  td_ok(tdict_storage_wrap(bytes, sizeof bytes, tdict_cuda(1), TDICT_STORAGE_CLAIMED, &s, err));
  assert_ptr_equal(s->data, bytes);
  assert_int_equal(s->bytes, sizeof bytes);
  assert_int_equal(s->flags, TDICT_STORAGE_CLAIMED | TDICT_STORAGE_FOREIGN);
  assert_true(tdict_device_equal(s->device, tdict_cuda(1)));
  s->release = count_release;
  s->user = &calls;
  tdict_storage_retain(s);
  tdict_storage_release(s);
  assert_int_equal(calls, 0);
  tdict_storage_release(s);
  assert_int_equal(calls, 1);
  td_ok(tdict_storage_wrap(bytes, sizeof bytes, tdict_cpu(), 0, &s, err));
  tdict_storage_release(s); /* without a release callback, nothing happens to the bytes */
  assert_string_equal(bytes, "keep it");
  td_fail_alloc(0, true);
  s = NULL;
  td_fails(TDICT_ENOMEM, "record", tdict_storage_wrap(bytes, sizeof bytes, tdict_cpu(), 0, &s, err));
  td_fail_alloc_stop();
  assert_null(s);
}

static tdict_fence_node mark(tdict_storage *s, fake_fence *f, bool writes) {
  return (tdict_fence_node){.storage = s, .fence = &f->fence, .writes = writes};
}
typedef struct gathered {
  int count;
  tdict_fence *fences[8];
} gathered;
static void gather(void *user, tdict_fence *fence) {
  gathered *g = user;
  g->fences[g->count++] = fence;
}
static int gather_all(tdict_storage *s, bool to_write, gathered *g) {
  g->count = 0;
  tdict_storage_each_before(s, to_write, gather, g);
  return g->count;
}
/* Returns true if an access must wait for `wanted` alone, or for no fence if `wanted` is NULL. Ignores `except`. */
static bool stands_in_the_way(tdict_storage *s, bool to_write, const fake_fence *except, const fake_fence *wanted) {
  gathered g;
  int num_wanted = 0, num_others = 0;
  gather_all(s, to_write, &g);
  for (int i = 0; i < g.count; i++) {
    if (except && g.fences[i] == &except->fence) continue;
    num_wanted += wanted && g.fences[i] == &wanted->fence;
    num_others += !wanted || g.fences[i] != &wanted->fence;
  }
  return num_wanted == (wanted ? 1 : 0) && num_others == 0;
}

CASE(storage_readers_and_writers_conflict) {
  fake_fence reader, writer;
  fake_fence_init(&reader);
  fake_fence_init(&writer);
  scoped_storage s = td_made(storage, tdict_storage_create(NULL, 16, false, &made, err));
  assert_true(stands_in_the_way(s, true, NULL, NULL));
  tdict_fence_node r = mark(s, &reader, false), w = mark(s, &writer, true);
  tdict_storage_attach(&r);
  assert_true(stands_in_the_way(s, false, NULL, NULL));
  assert_true(stands_in_the_way(s, true, NULL, &reader));
  assert_true(stands_in_the_way(s, true, &reader, NULL));
  tdict_storage_attach(&w);
  assert_true(stands_in_the_way(s, false, NULL, &writer));
  assert_true(stands_in_the_way(s, false, &writer, NULL));
  assert_true(stands_in_the_way(s, true, &writer, &reader));
  assert_true(stands_in_the_way(s, true, &reader, &writer));
  tdict_storage_detach(&r);
  assert_true(stands_in_the_way(s, true, NULL, &writer));
  assert_true(stands_in_the_way(s, false, NULL, &writer));
  tdict_storage_detach(&w);
  assert_true(stands_in_the_way(s, true, NULL, NULL));
  assert_true(tdict_storage_is_idle(s));
  assert_int_equal(atomic_load(&reader.refs), 1); /* the detached nodes hold no reference */
  assert_true(tdict_storage_attach_if_idle(&w) && !tdict_storage_attach_if_idle(&r));
  tdict_storage_attach(&r);
  assert_true(stands_in_the_way(s, false, NULL, &writer)); /* the writer is found, too */
  tdict_storage_detach(&w);
  assert_true(stands_in_the_way(s, false, NULL, NULL));
  tdict_storage_detach(&r);
  assert_true(tdict_storage_is_idle(s));
}

CASE(storage_each_before_calls_for_all_marks) {
  enum { COUNT = 5 };
  static const int order[COUNT] = {2, 0, 4, 1, 3};
  scoped_storage s = NULL;
  fake_fence fences[COUNT];
  tdict_fence_node nodes[COUNT];
  gathered g;
  td_ok(tdict_storage_create(NULL, 16, false, &s, err));
  assert_int_equal(gather_all(s, true, &g), 0);
  for (int i = 0; i < COUNT; i++) {
    fake_fence_init(&fences[i]);
    nodes[i] = mark(s, &fences[i], i % 2 == 1);
    tdict_storage_attach(&nodes[i]);
  }
  assert_int_equal(gather_all(s, false, &g), 2);
  for (int left = COUNT; left > 0; left--) {
    int seen[COUNT] = {0};
    assert_int_equal(gather_all(s, true, &g), left);
    for (int i = 0; i < left; i++) seen[(fake_fence *)g.fences[i] - fences]++;
    for (int i = 0; i < COUNT; i++) {
      bool gone = false;
      for (int k = 0; k < COUNT - left; k++) gone = gone || order[k] == i;
      assert_int_equal(seen[i], gone ? 0 : 1);
    }
    tdict_storage_detach(&nodes[order[COUNT - left]]);
  }
  assert_int_equal(gather_all(s, true, &g), 0);
}

typedef struct user_of_bytes {
  tdict_fence_node node;
  fake_fence fence;
  int64_t value;
} user_of_bytes;
static void *use_then_end(void *user) {
  user_of_bytes *u = user;
  fake_fence_await_waiter(&u->fence);
  *(int64_t *)u->node.storage->data = u->value; /* not atomic: the wait must order the test's read after this write */
  tdict_storage_detach(&u->node);
  fake_fence_end(&u->fence);
  return NULL;
}

CASE(storage_wait_waits_for_conflicting_fences) {
  user_of_bytes u = {.value = 4711};
  pthread_t thread;
  for (int round = 0; round < 2; round++) { /* 0: a reader waits for a writer; 1: a writer for a reader */
    scoped_storage s = td_made(storage, tdict_storage_create(NULL, sizeof(int64_t), true, &made, err));
    fake_fence_init(&u.fence);
    u.node = mark(s, &u.fence, round == 0);
    tdict_storage_attach(&u.node);
    assert_false(tdict_storage_wait(s, true, tdict_deadline_ns(1000)));
    atomic_store(&u.fence.waits, 0);
    if (round == 1) assert_true(tdict_storage_wait(s, false, INT64_MAX)); /* readers do not wait for each other */
    thread = td_start(use_then_end, &u);
    assert_true(tdict_storage_wait(s, round == 1, INT64_MAX));
    assert_int_equal(*(int64_t *)s->data, 4711);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&u.fence.refs), 1);
    assert_true(atomic_load(&u.fence.waits) >= 1);
  }
}

/* Uses the storage in a child process that was forked while a list of the storage was locked. The child must ignore the
 * lock, because no thread in the child can release it. */
static void live_in_fork(tdict_storage *s) {
  fake_fence own;
  alarm(10);
  bool good = tdict_storage_wait(s, true, INT64_MAX);
  fake_fence_init(&own);
  tdict_fence_node node = mark(s, &own, true);
  tdict_storage_attach(&node);
  good = stands_in_the_way(s, true, NULL, &own) && good;
  tdict_storage_detach(&node);
  fake_fence_end(&own);
  good = tdict_storage_add(s, &own.fence, TDICT_USE_READS, NULL) == TDICT_OK && good;
  _exit(good && s->num_uses == 1 ? 0 : 1);
}
typedef struct forking {
  tdict_storage *storage;
  int status;
} forking;
static void fork_once(void *user, tdict_fence *fence) {
  forking *f = user;
  (void)fence;
  if (f->status >= 0) return;
  pid_t child = fork();
  if (child == 0) live_in_fork(f->storage);
  if (child < 0 || waitpid(child, &f->status, 0) != child) f->status = 1;
}

CASE(storage_drops_lists_locked_by_a_forked_parent) {
  forking f = {.status = -1};
  fake_fence fences[2];
  tdict_fence_node nodes[2];
  td_ok(tdict_storage_create(NULL, 16, false, &f.storage, err));
  for (int i = 0; i < 2; i++) {
    fake_fence_init(&fences[i]);
    nodes[i] = mark(f.storage, &fences[i], true);
    tdict_storage_attach(&nodes[i]);
  }
  tdict_storage_each_before(f.storage, true, fork_once, &f);
  assert_int_equal(f.status, 0);
  assert_true(stands_in_the_way(f.storage, true, &fences[0], &fences[1])); /* the parent's list has not changed */
  for (int i = 0; i < 2; i++) tdict_storage_detach(&nodes[i]);
  f.status = -1;
  td_ok(tdict_storage_add(f.storage, &fences[0].fence, TDICT_USE_READS, err));
  tdict_storage_each_before(f.storage, true, fork_once, &f);
  assert_int_equal(f.status, 0);
  assert_int_equal(f.storage->num_uses, 1);
  fake_fence_end(&fences[0]);
  tdict_storage_release(f.storage);
  assert_int_equal(atomic_load(&fences[0].refs), 1);
}

enum { MARKERS = 4, MARKS = 500 };
typedef struct marker {
  tdict_storage *storage;
} marker;
static void retain_last(void *user, tdict_fence *fence) {
  tdict_fence **last = user;
  fence->ops->retain(fence);
  if (*last) (*last)->ops->release(*last);
  *last = fence;
}
static void *mark_often(void *user) {
  marker *m = user;
  fake_fence fence;
  fake_fence_init(&fence);
  for (int i = 0; i < MARKS; i++) {
    scoped_storage s = tdict_storage_retain(m->storage);
    tdict_fence_node node = mark(s, &fence, true);
    tdict_storage_attach(&node);
    tdict_fence *other = NULL;
    tdict_storage_each_before(s, false, retain_last, &other);
    other->ops->release(other);
    tdict_storage_detach(&node);
  }
  while (atomic_load(&fence.refs) > 1) usleep(100); /* another thread still retains this fence */
  return NULL;
}

CASE(storage_marks_from_many_threads) {
  marker m;
  td_ok(tdict_storage_create(NULL, 64, true, &m.storage, err));
  td_in_threads(MARKERS, mark_often, &m, 0);
  assert_true(tdict_storage_is_idle(m.storage));
  assert_int_equal(atomic_load(&m.storage->refs), 1);
  tdict_storage_release(m.storage);
}

CASE(storage_uses_are_handed_to_the_memory) {
  enum { COUNT = 11 };
  fake_memory memory;
  fake_fence fences[COUNT];
  fake_memory_init(&memory, false);
  tdict_storage *s = td_made(storage, tdict_storage_create(&memory.memory, 64, false, &made, err));
  for (int i = 0; i < COUNT; i++) {
    fake_fence_init(&fences[i]);
    td_ok(tdict_storage_add(s, &fences[i].fence, TDICT_USE_READS, err));
    assert_int_equal(atomic_load(&fences[i].refs), 2);
  }
  assert_int_equal(gather_all(s, false, &(gathered){0}), 0); /* readers do not wait for readers */
  tdict_storage_release(s);
  assert_int_equal(memory.freed_fences, COUNT);
  for (int i = 0; i < COUNT; i++) assert_int_equal(atomic_load(&fences[i].refs), 1);
}

CASE(storage_add_survives_enomem) {
  fake_fence fences[5];
  tdict_storage *s = td_made(storage, tdict_storage_create(NULL, 64, false, &made, err));
  for (int i = 0; i < 5; i++) {
    fake_fence_init(&fences[i]); /* not complete, because completed uses would be dropped */
    if (i == 0 || i == 4) {      /* the first use allocates room for four */
      td_fail_alloc(0, true);
      td_fails(TDICT_ENOMEM, "use", tdict_storage_add(s, &fences[i].fence, TDICT_USE_READS, err));
      td_fail_alloc_stop();
      assert_int_equal(atomic_load(&fences[i].refs), 1);
      assert_int_equal(s->num_uses, i);
    }
    td_ok(tdict_storage_add(s, &fences[i].fence, TDICT_USE_READS, err));
  }
  for (int i = 0; i < 5; i++) fake_fence_end(&fences[i]);
  tdict_storage_release(s);
  for (int i = 0; i < 5; i++) assert_int_equal(atomic_load(&fences[i].refs), 1);
}

/* A use replaces the newest uses if all of them are in `after`. A use that reads does not replace the filler. */
CASE(storage_uses_replace_earlier_uses) {
  enum { OTHER, FILLER, READER, LAST, NUM };
  fake_fence fences[NUM];
  tdict_storage *s[2];
  tdict_fences after = {0}, before = {0};
  for (int i = 0; i < NUM; i++) fake_fence_init(&fences[i]);
  for (int i = 0; i < 2; i++) s[i] = td_made(storage, tdict_storage_create(NULL, 64, false, &made, err));
  td_ok(tdict_storage_add(s[0], &fences[OTHER].fence, TDICT_USE_READS, err));
  for (int i = 0; i < 2; i++) td_ok(tdict_storage_add(s[i], &fences[FILLER].fence, TDICT_USE_WRITES, err));
  for (int i = 0; i < 2; i++) tdict_storage_collect(s[i], false, &after);
  assert_true(after.count == 1 && tdict_fences_has(&after, &fences[FILLER].fence));
  td_ok(tdict_storage_add_all(s, 2, &fences[READER].fence, TDICT_USE_READS, &after, err));
  assert_true(s[0]->num_uses == 3 && s[1]->num_uses == 2 && s[0]->filler == &fences[FILLER].fence);
  tdict_storage_collect(s[1], true, &after);
  assert_int_equal(after.count, 2);
  td_ok(tdict_storage_add_all(s, 2, &fences[LAST].fence, TDICT_USE_WRITES, &after, err));
  assert_true(s[0]->num_uses == 2 && s[1]->num_uses == 1); /* OTHER is kept, because it is not in `after` */
  for (int i = 0; i < 2; i++) tdict_storage_collect(s[i], false, &before);
  assert_true(before.count == 1 && tdict_fences_has(&before, &fences[LAST].fence));
  for (int i = 0; i < NUM; i++) fake_fence_end(&fences[i]);
  tdict_fences_reset(&after);
  tdict_fences_reset(&before);
  for (int i = 0; i < 2; i++) tdict_storage_release(s[i]);
  for (int i = 0; i < NUM; i++) assert_int_equal(atomic_load(&fences[i].refs), 1);
}

static void note_done(void *user) {
  fake_fence *f = user;
  atomic_store(&f->waits, atomic_load(&f->done) ? 1000 : -1000);
}

static void count_fence(void *user, tdict_fence *fence) {
  (void)fence;
  ++*(int *)user;
}

/* The release callback for the program's bytes is called only after their last use is complete. */
CASE(storage_release_callback_follows_uses) {
  fake_fence fence;
  tdict_storage *s = NULL;
  char bytes[16];
  fake_fence_init(&fence);
  td_ok(tdict_storage_wrap(bytes, sizeof bytes, tdict_cpu(), 0, &s, err));
  s->release = note_done;
  s->user = &fence;
  td_ok(tdict_storage_add(s, &fence.fence, TDICT_USE_READS, err));
  pthread_t thread = td_start(fake_fence_end_later, &fence);
  tdict_storage_release(s);
  pthread_join(thread, NULL);
  assert_int_equal(atomic_load(&fence.waits), 1000);
  assert_int_equal(atomic_load(&fence.refs), 1);
}

/* Readers also wait for a TDICT_USE_FILLS use, but the return of the bytes to the program does not. */
CASE(storage_fillers_hold_readers) {
  fake_fence filler, use;
  char bytes[16];
  fake_fence_init(&filler);
  fake_fence_init(&use);
  tdict_storage *s = td_made(storage, tdict_storage_wrap(bytes, sizeof bytes, tdict_cpu(), 0, &made, err));
  td_fail_alloc(0, true);
  td_fails(TDICT_ENOMEM, "use", tdict_storage_add(s, &filler.fence, TDICT_USE_FILLS, err));
  td_fail_alloc_stop();
  assert_true(tdict_storage_is_idle(s));
  td_ok(tdict_storage_add(s, &filler.fence, TDICT_USE_FILLS, err));
  td_ok(tdict_storage_add(s, &use.fence, TDICT_USE_READS, err));
  assert_false(tdict_storage_is_idle(s));
  int seen = 0;
  tdict_storage_each_before(s, false, count_fence, &seen);
  assert_int_equal(seen, 1);
  tdict_storage_each_before(s, true, count_fence, &seen);
  assert_int_equal(seen, 3);
  pthread_t thread = td_start(fake_fence_end_later, &filler);
  assert_true(tdict_storage_wait(s, false, INT64_MAX));
  pthread_join(thread, NULL);
  assert_true(atomic_load(&filler.done));
  assert_int_equal(atomic_load(&use.waits), 0);         /* readers do not wait for readers */
  assert_true(tdict_storage_wait(s, false, INT64_MAX)); /* the filler is complete */
  assert_int_equal(atomic_load(&filler.refs), 1);
  fake_fence_end(&use);
  tdict_storage_release(s);
  assert_int_equal(atomic_load(&use.refs), 1);
  /* release the storage while the work still runs */
  fake_fence_init(&filler);
  td_ok(tdict_storage_wrap(bytes, sizeof bytes, tdict_cpu(), 0, &s, err));
  td_ok(tdict_storage_add(s, &filler.fence, TDICT_USE_FILLS, err));
  tdict_storage_release(s);
  assert_int_equal(atomic_load(&filler.waits), 0);
  assert_int_equal(atomic_load(&filler.refs), 1);
}

/* Readers wait for a TDICT_USE_WRITES use, and so does the return of the bytes to the program. */
CASE(storage_writers_hold_readers_and_the_end) {
  fake_fence filler, writer;
  tdict_storage *s = NULL;
  pthread_t thread;
  char bytes[16];
  for (int reads = 0; reads < 2; reads++) {
    fake_fence_init(&filler);
    fake_fence_init(&writer);
    td_ok(tdict_storage_wrap(bytes, sizeof bytes, tdict_cpu(), 0, &s, err));
    td_ok(tdict_storage_add(s, &filler.fence, TDICT_USE_FILLS, err));
    td_ok(tdict_storage_add(s, &writer.fence, TDICT_USE_WRITES, err));
    int seen = 0;
    tdict_storage_each_before(s, false, count_fence, &seen);
    assert_int_equal(seen, 1);
    fake_fence_end(&filler);
    thread = td_start(fake_fence_end_later, &writer);
    if (reads) assert_true(tdict_storage_wait(s, false, INT64_MAX));
    tdict_storage_release(s);
    assert_true(atomic_load(&writer.done));
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&writer.refs), 1);
    assert_int_equal(atomic_load(&filler.refs), 1);
  }
}

static void *retain_often(void *user) {
  for (int i = 0; i < 2000; i++) tdict_storage_release(tdict_storage_retain(user));
  tdict_storage_release(user);
  return NULL;
}

CASE(storage_counts_from_many_threads) {
  fake_memory memory;
  pthread_t threads[4];
  fake_memory_init(&memory, false);
  tdict_storage *s = td_made(storage, tdict_storage_create(&memory.memory, 64, false, &made, err));
  for (int i = 0; i < 4; i++) threads[i] = td_start(retain_often, tdict_storage_retain(s));
  tdict_storage_release(s);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&memory.frees), 1);
  assert_int_equal(atomic_load(&memory.refs), 1);
}
