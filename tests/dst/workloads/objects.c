/* Tests transfers of objects whose hooks start further transfers.
 *
 * The trees have objects of four types. The hooks of a crate move a tree that can contain another crate, so transfers
 * are nested. The hooks of a box use the functions of tdict/hook.h. A flat object has only the hooks flatten and
 * unflatten. A stone has no hooks and is never moved. Some crates cannot be moved. */
#include <stdatomic.h>
#include <stdlib.h>

#include "dst/workloads/model.h"
#include "support/take.h"
#include "tdict/clone.h"
#include "tdict/hook.h"
#include "tdict/sim.h"

enum { NUM_PLAYERS = 2, NUM_TREES = 3, ROWS = 3, WIDTH = 30, NUM_OBJECTS = 4, MOST_GENERATIONS = 32, RELEASED = -1 };

/* The struct of every object. It has a tree or a tensor. */
typedef struct thing {
  tdict_tree *tree;
  tdict_tensor *tensor;
  bool fails;         /* its hook `to_device` returns TDICT_EFORMAT */
  int64_t generation; /* for boxes; RELEASED: the box has been released */
} thing;
static _Atomic(int64_t) num_alive;
/* for each generation, how many functions the hooks of boxes have launched, and how many of them have run */
static _Atomic(int) num_launched[MOST_GENERATIONS], num_ran[MOST_GENERATIONS];

static void drop_thing(void *self) {
  thing *t = self;
  td_release(t->tree, t->tensor);
  t->generation = RELEASED;
  free(t);
  atomic_fetch_sub(&num_alive, 1);
}
/* Makes an object that owns the tree and the tensor. On failure, releases both. */
static tdict_status make_thing(const thing *made_of, void **out) {
  thing *t = malloc(sizeof *t);
  if (!t) {
    tdict_release(made_of->tree);
    tdict_tensor_release(made_of->tensor);
    return TDICT_ENOMEM;
  }
  *t = *made_of;
  atomic_fetch_add(&num_alive, 1);
  *out = t;
  return TDICT_OK;
}

static int32_t roll_threads(void) { return (int32_t)dst_roll(3) - 1; }

static tdict_status pin_crate(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  const thing *t = self;
  tdict_tree *pinned = NULL;
  tdict_pin_options o = td_with(tdict_pin_options, num_threads = roll_threads());
  tdict_status status = tdict_pin_memory(hook->context, t->tree, &o, &pinned, err);
  return status == TDICT_OK ? make_thing(&(thing){.tree = pinned, .fails = t->fails}, out) : status;
}
static tdict_status move_crate(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  const thing *t = self;
  tdict_transfer_options o = tdict_transfer_options_default();
  tdict_context *context = hook->context;
  tdict_tree *moved = NULL;
  tdict_future *f = NULL;
  if (t->fails) return tdict_error_set(err, TDICT_EFORMAT, NULL, "this crate cannot be moved");
  o.mode = (int32_t)dst_roll(4);
  o.num_threads = roll_threads();
  if (tdict_hook_cancelled(hook) && dst_roll(2)) return tdict_error_set(err, TDICT_ECANCELLED, NULL, "left early");
  if (dst_roll(2)) {
    tdict_status status = tdict_to_device(context, t->tree, hook->device, &o, &moved, err);
    return status == TDICT_OK ? make_thing(&(thing){.tree = moved}, out) : status;
  }
  tdict_status status = tdict_to_device_async(context, t->tree, hook->device, &o, &f, err);
  if (status != TDICT_OK) return status;
  status = tdict_future_wait(f, &moved, err);
  tdict_future_release(f);
  return status == TDICT_OK ? make_thing(&(thing){.tree = moved}, out) : status;
}
static const tdict_type crate = {.struct_size = sizeof crate,
                                 .name = "crate",
                                 .release = drop_thing,
                                 .pin_memory = pin_crate,
                                 .to_device = move_crate};

static tdict_status pin_box(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  tdict_tensor *pinned = NULL;
  const thing *t = self;
  tdict_status status = tdict_hook_pin(hook, t->tensor, &pinned, err);
  return status == TDICT_OK ? make_thing(&(thing){.tensor = pinned, .generation = t->generation}, out) : status;
}
/* Runs on the hook's stream. The hook's object must still exist at that time. */
static void count_run(void *user) {
  const int64_t generation = ((const thing *)user)->generation;
  if (generation < 0 || generation >= MOST_GENERATIONS)
    dst_fail("a hook's object was released before the work on the hook's stream");
  atomic_fetch_add(&num_ran[generation], 1);
}
/* Moves a box, and queues work on the hook's stream. The transfer must wait for this work. */
static tdict_status move_box(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  const tdict_stream stream = hook->stream;
  const thing *t = self;
  tdict_tensor *moved = NULL;
  if (stream.handle && tdict_tensor_device(t->tensor).type == TDICT_DEVICE_CPU) {
    atomic_fetch_add(&num_launched[t->generation], 1);
    tdict_status status = tdict_sim_launch(stream, count_run, (void *)(uintptr_t)self, err);
    if (status != TDICT_OK) atomic_fetch_sub(&num_launched[t->generation], 1);
    if (status != TDICT_OK) return status;
  }
  tdict_status status = tdict_hook_move(hook, t->tensor, &moved, err);
  return status == TDICT_OK ? make_thing(&(thing){.tensor = moved, .generation = t->generation}, out) : status;
}
static bool is_box_pinned(const void *self) { return tdict_tensor_is_pinned(((const thing *)self)->tensor); }
static size_t bytes_of_box(const void *self) { return tdict_tensor_bytes(((const thing *)self)->tensor); }
static const tdict_type box = {.struct_size = sizeof box,
                               .name = "box",
                               .release = drop_thing,
                               .pin_memory = pin_box,
                               .to_device = move_box,
                               .is_pinned = is_box_pinned,
                               .bytes = bytes_of_box};

static tdict_status flatten(const void *self, tdict_tree **out, tdict_error *err) {
  return tdict_clone(((const thing *)self)->tree, out, err);
}
static tdict_status unflatten(const void *self, const tdict_tree *tree, void **out, tdict_error *err) {
  tdict_tree *kept = NULL;
  (void)self;
  tdict_status status = tdict_clone(tree, &kept, err);
  return status == TDICT_OK ? make_thing(&(thing){.tree = kept}, out) : status;
}
static const tdict_type flat = {
    .struct_size = sizeof flat, .name = "flat", .release = drop_thing, .flatten = flatten, .unflatten = unflatten};
static const tdict_type stone = {.struct_size = sizeof stone, .name = "stone", .release = drop_thing};

/* Makes an object and adds it to a tree. Always consumes the references to the object's tree and tensor. */
static bool put(tdict_tree *td, const char *path, const tdict_type *type, const thing *made_of) {
  void *self = NULL;
  if (!made_of->tree && !made_of->tensor) return false;
  if (make_thing(made_of, &self) != TDICT_OK) {
    model_true(model_was_unlucky());
    return false;
  }
  if (model_ok(tdict_set_object(td, path, type, self, model_error()))) return true;
  drop_thing(self);
  return false;
}

static model_rows rows_of(int64_t generation) { return model_rows_of(generation, 0, ROWS, WIDTH); }
/* Returns the generation of a crate's tree. The tree with the crate has the given generation. */
static int64_t inner(int64_t generation) { return generation + 100; }

/* Makes a tree with nested crates, `depth` levels deep. Returns NULL after an injected fault. */
static tdict_tree *make_nest(int64_t generation, int depth, bool fails) {
  const model_rows rows = rows_of(generation);
  tdict_tree *td = model_tree(&rows);
  if (!td || depth == 0) return td;
  if (put(td, "crate", &crate, &(thing){.tree = make_nest(inner(generation), depth - 1, false), .fails = fails}))
    return td;
  tdict_release(td);
  return NULL;
}

static tdict_tree *make_tree(int64_t generation, bool fails, bool has_stone) {
  const model_rows rows = rows_of(generation);
  const int64_t count = ROWS;
  tdict_tree *td = make_nest(generation, 2, fails);
  tdict_tensor *t = NULL;
  bool is_ok = td && put(td, "flat", &flat, &(thing){.tree = model_tree(&rows)});
  is_ok = is_ok && model_ok(tdict_tensor_from_array(TDICT_I64, 1, &count, rows.stamps, &t, model_error())) &&
          put(td, "box", &box, &(thing){.tensor = t, .generation = generation});
  if (is_ok && has_stone) is_ok = put(td, "stone", &stone, &(thing){.tree = model_tree(&rows)});
  if (is_ok) return td;
  tdict_release(td);
  return NULL;
}

static const thing *object_of(const tdict_tree *td, const char *path, const tdict_type *type) {
  void *self = NULL;
  if (tdict_object_type(td, path) != type || tdict_get_object(td, path, type, &self, NULL) != TDICT_OK)
    dst_fail("the tree has no %s at '%s'", type->name, path);
  return self;
}

/* The expected tree and its device. */
typedef struct wanted {
  model_world *world;
  int64_t generation;
  tdict_device device;
  bool has_stone;
} wanted;

static void check_part(const wanted *w, const tdict_tree *td, int64_t generation, size_t num_objects) {
  const model_rows rows = rows_of(generation);
  model_look look = model_device_look(w->device);
  look.is_contiguous = false;
  look.num_extra = num_objects;
  look.is_pinned = -1;
  look.has_device = tdict_get_device(td, NULL);
  if (w->device.type == TDICT_DEVICE_CPU)
    model_check(td, &rows, &look);
  else
    model_check_shape(td, &rows, &look);
}
static void check_result(const wanted *w, const tdict_tree *td) {
  check_part(w, td, w->generation, w->has_stone ? NUM_OBJECTS : NUM_OBJECTS - 1);
  model_true(tdict_num_objects(td) == (w->has_stone ? NUM_OBJECTS : NUM_OBJECTS - 1));
  const thing *outer = object_of(td, "crate", &crate), *second = object_of(outer->tree, "crate", &crate);
  check_part(w, outer->tree, inner(w->generation), 1);
  check_part(w, second->tree, inner(inner(w->generation)), 0);
  check_part(w, object_of(td, "flat", &flat)->tree, w->generation, 0);
  const tdict_tensor *t = object_of(td, "box", &box)->tensor;
  const model_rows rows = rows_of(w->generation);
  model_true(tdict_device_equal(tdict_tensor_device(t), w->device) && tdict_tensor_numel(t) == ROWS);
  if (w->device.type == TDICT_DEVICE_CPU)
    model_true(memcmp(tdict_tensor_const_data(t), rows.stamps, ROWS * sizeof rows.stamps[0]) == 0);
  if (w->has_stone) { /* stays on the host, whatever the target */
    const wanted on_host = {w->world, w->generation, tdict_cpu(), false};
    check_part(&on_host, object_of(td, "stone", &stone)->tree, w->generation, 0);
  }
}

static void check_stats(const tdict_future *f, bool has_stone) {
  tdict_transfer_stats s = tdict_transfer_stats_default();
  model_true(tdict_future_get_stats(f, &s, NULL) == TDICT_OK);
  model_true(s.num_objects == (has_stone ? NUM_OBJECTS : NUM_OBJECTS - 1));
  model_true(s.num_objects_kept == (has_stone ? 1 : 0));
}

/* Sends a tree to the device and back, and checks the objects in both places. */
static void send_and_return(model_world *w, const tdict_tree *td, int64_t generation, bool has_stone) {
  const uint64_t way = dst_roll(4); /* 0: cancel, 1: release at once, otherwise: wait */
  tdict_tree *there = NULL, *back = NULL;
  tdict_future *f = NULL;
  tdict_transfer_options o = td_with(tdict_transfer_options, mode = (int32_t)dst_roll(4), num_threads = roll_threads(),
                                     keep_objects = has_stone);
  if (!model_ok(tdict_to_device_async(w->context, td, tdict_sim(0), &o, &f, model_error()))) return;
  if (way == 0) tdict_future_cancel(f);
  if (way == 1) {
    tdict_future_release(f);
    return;
  }
  const bool is_done = model_may(way == 0 ? 1u << TDICT_ECANCELLED : 0, tdict_future_wait(f, &there, model_error()));
  model_true(atomic_load(&num_launched[generation]) == atomic_load(&num_ran[generation]));
  if (is_done) {
    const wanted on_device = {w, generation, tdict_sim(0), has_stone};
    check_stats(f, has_stone);
    check_result(&on_device, there);
    model_true(atomic_load(&num_ran[generation]) > 0 || model_was_unlucky());
  }
  tdict_future_release(f);
  o.pinned_result = dst_roll(2);
  if (is_done && model_ok(tdict_to_device(w->context, there, tdict_cpu(), &o, &back, model_error()))) {
    const wanted on_host = {w, generation, tdict_cpu(), has_stone};
    check_result(&on_host, back);
  }
  td_release(there, back);
}

/* Sends a tree with a crate whose hook fails. The error must have the hook's message and the crate's path. */
static void send_failing(model_world *w, int64_t generation) {
  tdict_tree *td = make_tree(generation, true, false), *there = NULL;
  tdict_error *err = model_error();
  if (!td) return;
  const bool is_done = model_may(1u << TDICT_EFORMAT, tdict_to_device(w->context, td, tdict_sim(0), NULL, &there, err));
  model_true(!is_done && !there);
  if (model_status() == TDICT_EFORMAT)
    model_true(strcmp(err->path, "crate") == 0 && strstr(err->message, "cannot be moved"));
  tdict_release(td);
}

static void pin_objects(model_world *w, const tdict_tree *td, int64_t generation) {
  const wanted on_host = {w, generation, tdict_cpu(), false};
  tdict_tree *pinned = NULL;
  tdict_pin_options o = td_with(tdict_pin_options, num_threads = roll_threads());
  if (!model_ok(tdict_pin_memory(w->context, td, &o, &pinned, model_error()))) return;
  check_result(&on_host, pinned);
  model_true(tdict_is_pinned(pinned));
  tdict_release(pinned);
}

/* Writes a tree with a flat object into a tree on the device. */
static void write_into(model_world *w, int64_t generation) {
  const model_rows rows = rows_of(generation), old = rows_of(generation + 1);
  scoped_tree td = model_tree(&rows), dst = model_tree(&old), there = NULL, back = NULL;
  if (td && dst && put(td, "flat", &flat, &(thing){.tree = model_tree(&rows)}) &&
      put(dst, "flat", &flat, &(thing){.tree = model_tree(&old)}) &&
      model_ok(tdict_to_device(w->context, dst, tdict_sim(0), NULL, &there, model_error())) &&
      model_ok(tdict_transfer_into(w->context, there, td, NULL, model_error())) &&
      model_ok(tdict_to_device(w->context, there, tdict_cpu(), NULL, &back, model_error()))) {
    const wanted on_host = {w, generation, tdict_cpu(), false};
    check_part(&on_host, back, generation, 1);
    check_part(&on_host, object_of(back, "flat", &flat)->tree, generation, 0);
  }
}

static void play(int number, void *data) {
  model_world *w = data;
  for (int i = 0; i < NUM_TREES; i++) {
    const int64_t generation = number * 10 + i + 1;
    const bool has_stone = dst_roll(3) == 0;
    tdict_tree *td = make_tree(generation, false, has_stone);
    if (td) {
      send_and_return(w, td, generation, has_stone);
      if (!has_stone && dst_roll(2)) pin_objects(w, td, generation);
    }
    tdict_release(td);
    if (dst_roll(3) == 0) send_failing(w, generation);
    if (dst_roll(3) == 0) write_into(w, generation);
  }
}

void dst_workload(void) {
  model_world w;
  model_settings settings = td_with(model_settings, num_threads = (int)(1 + dst_roll(2)));
  for (int i = 0; i < MOST_GENERATIONS; i++) atomic_store(&num_launched[i], 0), atomic_store(&num_ran[i], 0);
  model_begin();
  if (model_open(&w, &settings)) {
    model_run(NUM_PLAYERS, play, &w);
    model_next_transfer_works(&w);
    model_close(&w);
    for (int i = 0; i < MOST_GENERATIONS; i++) model_true(atomic_load(&num_launched[i]) == atomic_load(&num_ran[i]));
  }
  if (atomic_load(&num_alive)) dst_fail("%lld objects have not been released", (long long)atomic_load(&num_alive));
  model_end();
}
