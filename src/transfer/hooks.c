/* Running hooks of objects. Each is a task that may wait, so a thread that waits inside a hook runs other tasks meanwhile.
 * See hooks.h for ownership and threads. */
#include "transfer/hooks.h"

#include <stdlib.h>

#include "base/error.h"
#include "transfer/finish.h"
#include "transfer/order.h"

/* The hooks that a thread is in, innermost first: the pool's note of the thread. */
typedef struct frame {
  const tdict_future *transfer;
  struct frame *outer;
} frame;

typedef struct hook_task {
  tdict_task task; /* first: the pool gives it back */
  tdict_future *transfer;
  tdict_object_step *step;
} hook_task;

typedef struct tdict_hooks {
  tdict_context *context;
  tdict_device device;
  tdict_gpu *gpu;
  _Atomic(uint32_t) left; /* acq_rel: the last one goes on */
  uint32_t count;
  hook_task tasks[];
} tdict_hooks;

bool tdict_hooks_is_inside(const tdict_future *transfer) {
  for (const frame *f = tdict_pool_thread_data(); f; f = f->outer)
    if (f->transfer == transfer) return true;
  return false;
}

static void run_task(tdict_task *task);

tdict_status tdict_hooks_prepare(tdict_future *t, tdict_context *context, tdict_device device, tdict_error *err) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < t->plan.num_objects; i++) count += t->plan.objects[i].action == TDICT_OBJECT_HOOK;
  if (!count) return TDICT_OK;
  tdict_hooks *h = calloc(1, sizeof *h + count * sizeof h->tasks[0]);
  if (!h) return tdict_fail(err, TDICT_ENOMEM, "transfer: no host memory for %u hooks", count);
  h->context = context;
  h->device = device;
  if (device.type != TDICT_DEVICE_CPU)
    (void)!tdict_devices_gpu(t->engine->config.devices, device, &h->gpu, NULL); /* it was found before */
  for (uint32_t i = 0; i < t->plan.num_objects; i++)
    if (t->plan.objects[i].action == TDICT_OBJECT_HOOK)
      h->tasks[h->count++] = (hook_task){
          .task = {.run = run_task, .may_wait = true, .owner = t}, .transfer = t, .step = &t->plan.objects[i]};
  atomic_init(&h->left, count);
  t->hooks = h;
  return TDICT_OK;
}

/* Calls one hook on `box`; what it gives comes in a box of its own. */
typedef tdict_status (*hook_fn)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
static tdict_status call(hook_fn fn, const char *name, const tdict_hook *hook, tdict_box **box, tdict_error *err) {
  void *given = NULL;
  tdict_error said = {0};
  const int64_t span = tdict_phase_begin(&hook->transfer->traced, TDICT_RANGE_HOOK);
  /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the step was planned for a hook that the type has */
  tdict_status status = fn((*box)->self, hook, &given, &said);
  (void)tdict_phase_end(&hook->transfer->traced, TDICT_RANGE_HOOK, span, 0);
  if (status == TDICT_OK && !given) status = (tdict_status)-1;
  if (status != TDICT_OK) {
    status = tdict_hook_failed((*box)->type, name, status, &said);
    if (err) *err = said;
    return status;
  }
  tdict_box *made;
  status = tdict_box_of(*box, given, &made, err);
  if (status == TDICT_OK) *box = made;
  return status;
}

/* What the hook queued itself is done before its argument is let go. */
static tdict_status end_stream(tdict_hook *hook, tdict_error *err) {
  tdict_gpu *gpu = hook->gpu;
  tdict_gpu_scope scope;
  if (!hook->stream) return TDICT_OK;
  tdict_status status = tdict_gpu_enter(gpu, &scope, err);
  if (status == TDICT_OK) status = tdict_gpu_sync_stream(gpu, hook->stream, err);
  tdict_gpu_leave(gpu, &scope);
  tdict_gpu_give_stream(gpu, hook->stream);
  hook->stream = NULL;
  return status;
}

static tdict_status run_step(tdict_future *t, tdict_object_step *step, tdict_error *err) {
  const tdict_type *type = step->box->type;
  tdict_hook hook = {t, t->hooks->context, tdict_cpu(), true, t->hooks->gpu, NULL};
  tdict_box *pinned = step->box, *moved;
  tdict_status status = TDICT_OK, ended;
  if (step->pin) {
    status = call(TDICT_HOOK_OF(type, pin_memory), "pin_memory", &hook, &pinned, err);
    if (status != TDICT_OK) pinned = NULL;
  }
  moved = pinned;
  if (status == TDICT_OK && step->pin && step->move && tdict_transfer_has_failed(t)) {
    status = tdict_fail(err, TDICT_ECANCELLED, "transfer: it has ended before this hook");
    moved = NULL;
  }
  if (status == TDICT_OK && step->move) {
    hook.device = t->hooks->device;
    hook.pins = false;
    status = call(TDICT_HOOK_OF(type, to_device), "to_device", &hook, &moved, err);
    if (status != TDICT_OK) moved = NULL;
  }
  ended = end_stream(&hook, status == TDICT_OK ? err : NULL);
  if (status == TDICT_OK) status = ended;
  if (step->pin && step->move) tdict_box_release(pinned); /* the argument of to_device */
  if (status == TDICT_OK)
    step->result = moved;
  else if (moved && moved != step->box)
    tdict_box_release(moved);
  return status;
}

/* Puts the results of the hooks into the tree. */
static void place_results(tdict_future *t) {
  for (uint32_t i = 0; i < t->plan.num_objects; i++) {
    tdict_object_step *step = &t->plan.objects[i];
    if (step->action != TDICT_OBJECT_HOOK || !step->result) continue;
    *step->place = tdict_leaf_of_box(step->result);
    step->result = NULL;
  }
}

bool tdict_hooks_begin_copies(tdict_future *t) {
  if (!tdict_transfer_has_failed(t)) {
    tdict_error err = {0};
    place_results(t);
    if (t->plan.num_items > 0 && tdict_transfer_begin(t, &err) == TDICT_OK) return true;
    if (err.status) tdict_transfer_fail(t, UINT32_MAX, &err);
  }
  tdict_transfer_finish(t);
  return false;
}

static void run_task(tdict_task *task) {
  hook_task *own = (hook_task *)task;
  tdict_future *t = own->transfer;
  if (!tdict_transfer_has_failed(t)) {
    frame here = {t, tdict_pool_thread_data()};
    tdict_error err = {0};
    tdict_pool_set_thread_data(&here);
    tdict_status status = run_step(t, own->step, &err);
    tdict_pool_set_thread_data(here.outer);
    if (status != TDICT_OK) tdict_transfer_fail_at(t, own->step->path, &err);
  }
  if (atomic_fetch_sub_explicit(&t->hooks->left, 1, memory_order_acq_rel) != 1) return;
  if (!t->on_caller) (void)tdict_hooks_begin_copies(t); /* else the caller does */
}

void tdict_hooks_run(tdict_future *t) {
  pthread_mutex_lock(&t->engine->lock);
  tdict_transfer_count_live(t);
  pthread_mutex_unlock(&t->engine->lock);
  tdict_hooks *h = t->hooks;
  uint32_t count = h->count;
  bool here = t->on_caller;
  tdict_pool *pool = t->engine->config.pool;
  for (uint32_t i = 0; i < count; i++) {
    if (here)
      run_task(&h->tasks[i].task);
    else
      tdict_pool_submit(pool, &h->tasks[i].task); /* from the last one on, h may be gone */
  }
}
