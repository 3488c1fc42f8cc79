/* Tests transfers of locked trees that are later unlocked, changed and sent again.
 *
 * Two threads send one locked tree, whose plan the library keeps. A third thread sometimes unlocks the tree, changes it
 * and locks it again. Trees are blocks made by tdict_create_from(), consolidated trees, or trees with one storage for
 * each leaf. A tree must not change while a call reads it, so the workload changes the tree under a read-write lock. A
 * transfer must copy the state of the tree at the start of the transfer. */
#include <pthread.h>

#include "tdict/clone.h"
#include "tdict/memory.h"

#include "dst/workloads/model.h"
#include "support/take.h"

enum { NUM_SENDERS = 2, NUM_SENDS = 6, NUM_CHANGES = 4, ROWS = 3 };

typedef enum tree_kind { BLOCK, PINNED_BLOCK, CONSOLIDATED, LOOSE, NUM_TREE_KINDS } tree_kind;
typedef struct stage {
  model_world world;
  pthread_rwlock_t lock; /* guards: tree, generation, has_extra */
  tdict_tree *tree;
  tree_kind kind;
  int64_t generation, width;
  bool has_extra; /* the tree has another tensor at "extra" */
} stage;

static model_rows rows_of(const stage *s, int64_t generation) { return model_rows_of(generation, 0, ROWS, s->width); }
static bool is_pinned(const stage *s) { return s->kind == PINNED_BLOCK; }

/* Makes a tree of the stage's kind. The tree is locked only if it is consolidated. */
static tdict_tree *make_tree(stage *s, int64_t generation) {
  const model_rows rows = rows_of(s, generation);
  if (s->kind == BLOCK) return model_block(&rows, NULL);
  if (s->kind == PINNED_BLOCK) return model_block(&rows, tdict_pinned_memory(s->world.context));
  tdict_tree *td = model_tree(&rows), *joined = NULL;
  if (!td || s->kind == LOOSE) return td;
  const bool is_ok = model_ok(tdict_consolidate(td, NULL, &joined, model_error()));
  tdict_release(td);
  if (is_ok) model_true(tdict_is_consolidated(joined));
  return is_ok ? joined : NULL;
}

static void check_extra(const tdict_tree *td, int64_t generation) {
  const int64_t *extra = tdict_const_data(td, "extra");
  if (!extra || extra[0] != generation || extra[ROWS - 1] != generation) dst_fail("the added tensor has wrong bytes");
}

static model_look look_at(tdict_device device, bool has_extra) {
  model_look look = model_device_look(device);
  look.is_locked = true;
  look.num_extra = has_extra ? 1 : 0;
  look.is_pinned = -1;
  return look;
}

/* Checks a result on the device, including the added tensor. */
static void check_result(stage *s, const tdict_tree *there, int64_t generation, bool has_extra) {
  const model_rows rows = rows_of(s, generation);
  const model_look on_device = look_at(tdict_sim(0), has_extra);
  tdict_tree *back = NULL;
  model_check_device(&s->world, there, &rows, &on_device);
  if (!has_extra) return;
  model_calm(true);
  model_true(tdict_to_device(s->world.context, there, tdict_cpu(), NULL, &back, NULL) == TDICT_OK);
  check_extra(back, generation);
  tdict_release(back);
  model_calm(false);
}

static void send(int number, void *data) {
  stage *s = data;
  (void)number;
  for (int i = 0; i < NUM_SENDS; i++) {
    tdict_tree *there = NULL;
    tdict_future *f = NULL;
    tdict_transfer_options o =
        td_with(tdict_transfer_options, mode = (int32_t)dst_roll(4), num_threads = (int32_t)dst_roll(3) - 1);
    pthread_rwlock_rdlock(&s->lock);
    const int64_t generation = s->generation;
    const bool has_extra = s->has_extra;
    const bool has_started =
        model_ok(tdict_to_device_async(s->world.context, s->tree, tdict_sim(0), &o, &f, model_error()));
    pthread_rwlock_unlock(&s->lock);
    if (!has_started) continue;
    const bool is_cancelled = dst_roll(5) == 0;
    if (is_cancelled) tdict_future_cancel(f);
    if (model_may(is_cancelled ? 1u << TDICT_ECANCELLED : 0, tdict_future_wait(f, &there, model_error()))) {
      if (s->kind == CONSOLIDATED) model_true(tdict_is_consolidated(there) == tdict_is_locked(there));
      check_result(s, there, generation, has_extra);
    }
    td_release(f, there);
  }
}

/* Changes the tree, which is locked before and after. Call with the stage's lock held for writing. */
static void change_tree(stage *s) {
  const uint64_t way = dst_roll(s->kind == CONSOLIDATED ? 2 : 4);
  const model_rows rows = rows_of(s, s->generation + 1);
  const int64_t count = ROWS;
  tdict_tensor *t = NULL;
  if (way == 0 && !s->has_extra) { /* writes new bytes at the old addresses, after running transfers have ended */
    model_true(model_write(s->tree, &rows));
    s->generation++;
    return;
  }
  if (way == 1) { /* another tree */
    tdict_tree *td = make_tree(s, s->generation + 1);
    if (!td) return;
    tdict_lock(td);
    tdict_release(s->tree);
    s->tree = td;
    s->generation++;
    s->has_extra = false;
    return;
  }
  model_true(tdict_unlock(s->tree, NULL) == TDICT_OK);
  model_true(!tdict_is_locked(s->tree));
  if (s->has_extra) {
    if (model_ok(tdict_delete(s->tree, "extra", model_error()))) s->has_extra = false;
  } else if (model_ok(tdict_tensor_full(TDICT_I64, 1, &count, &s->generation, &t, model_error()))) {
    s->has_extra = model_ok(tdict_set(s->tree, "extra", t, model_error()));
    tdict_tensor_release(t);
  }
  tdict_lock(s->tree);
}

static void change(stage *s) {
  for (int i = 0; i < NUM_CHANGES; i++) {
    pthread_rwlock_wrlock(&s->lock);
    change_tree(s);
    pthread_rwlock_unlock(&s->lock);
    if (dst_roll(2)) tdict_context_trim(s->world.context, tdict_sim(0), 0);
  }
}

static void play(int number, void *data) {
  if (number == NUM_SENDERS)
    change(data);
  else
    send(number, data);
}

/* Writes a tree into a tree of equal layout on the device. If both are blocks, one copy suffices. */
static void write_block(stage *s) {
  const model_rows rows = rows_of(s, 70);
  scoped_tree src = make_tree(s, 70), dst = make_tree(s, 71), there = NULL;
  if (src && dst && model_ok(tdict_to_device(s->world.context, dst, tdict_sim(0), NULL, &there, model_error())) &&
      model_ok(tdict_transfer_into(s->world.context, there, src, NULL, model_error()))) {
    model_look look = model_device_look(tdict_sim(0));
    look.is_locked = tdict_is_locked(dst);
    look.is_pinned = -1;
    model_check_device(&s->world, there, &rows, &look);
  }
}

void dst_workload(void) {
  stage s = {.generation = 1, .kind = (tree_kind)dst_roll(NUM_TREE_KINDS), .width = dst_roll(3) ? 40 : 6000};
  model_settings settings = td_with(model_settings, num_threads = (int)(1 + dst_roll(3)));
  pthread_rwlock_init(&s.lock, NULL);
  model_begin();
  if (model_open(&s.world, &settings)) {
    if ((s.tree = make_tree(&s, s.generation))) {
      tdict_lock(s.tree);
      model_run(NUM_SENDERS + 1, play, &s);
      const model_rows rows = rows_of(&s, s.generation);
      model_look look = model_plain_look();
      look.is_locked = true;
      look.num_extra = s.has_extra ? 1 : 0;
      look.is_pinned = is_pinned(&s) ? -1 : 0;
      model_check(s.tree, &rows, &look);
      write_block(&s);
    }
    tdict_release(s.tree);
    model_next_transfer_works(&s.world);
    model_close(&s.world);
  }
  pthread_rwlock_destroy(&s.lock);
  model_end();
}
