/* Runs the hooks of objects, as tasks of the pool or on the starting thread. A hook may wait for a transfer. Until that
 * transfer ends, a pool thread that runs the hook may run other tasks. See hooks.h for ownership and threads. */
#include "engine/options/hooks.h"

#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/thread.h"
#include "engine/finish.h"
#include "engine/order.h"
#include "engine/plan/flatten.h"

/* The hooks that a thread is running, innermost first. The pool has a pointer to it as the thread's data. */
typedef struct frame {
  const tdict_transfer *transfer;
  struct frame *outer;
} frame;

typedef struct hook_task {
  tdict_task task; /* first member, because the pool passes a pointer to the task to run_hook_task() */
  tdict_transfer *transfer;
  tdict_object_step *step;
} hook_task;

typedef struct tdict_hooks {
  tdict_context *context;
  tdict_device device;
  tdict_gpu *gpu;
  tdict_move_fn move;
  tdict_memory *memory;             /* of the transfer's result; NULL: the target is the cpu */
  _Atomic(uint32_t) num_unfinished; /* acq_rel: number of steps that have not ended; the last step begins the copies */
  uint32_t count;
  hook_task tasks[];
} tdict_hooks;

bool tdict_hooks_is_inside(const tdict_future *future) {
  for (const frame *f = tdict_pool_thread_data(); f; f = f->outer)
    if (&f->transfer->future == future) return true;
  return false;
}

static void run_hook_task(tdict_task *task);

tdict_status tdict_hooks_prepare(tdict_transfer *t, tdict_context *context, tdict_device device, tdict_memory *memory,
                                 tdict_move_fn move, tdict_error *err) {
  const tdict_objects *objects = t->plan.objects;
  const uint32_t count = objects->num_hooked;
  if (!count) return TDICT_OK;
  tdict_hooks *h = calloc(1, sizeof *h + count * sizeof h->tasks[0]);
  if (!h) return tdict_fail_memory(err, "transfer", NULL, "%u hooks", count);
  h->context = context;
  h->device = device;
  h->move = move;
  h->memory = device.type == TDICT_DEVICE_CPU ? NULL : memory;
  if (device.type != TDICT_DEVICE_CPU) /* cannot fail: the plan has already found the GPU */
    (void)!tdict_devices_gpu(t->future.engine->config.devices, device, &h->gpu, NULL);
  for (uint32_t i = 0; i < objects->count; i++)
    if (objects->steps[i].action == TDICT_OBJECT_HOOK)
      h->tasks[h->count++] = (hook_task){
          .task = {.run = run_hook_task, .may_wait = true, .owner = t}, .transfer = t, .step = &objects->steps[i]};
  atomic_init(&h->num_unfinished, count);
  t->hooks = h;
  return TDICT_OK;
}

/* Takes a stream for the hooks of a step to a GPU. end_hook_stream() gives the stream back. */
static tdict_status take_hook_stream(tdict_hook_call *call, tdict_error *err) {
  tdict_gpu_scope scope;
  if (call->stream || !call->gpu) return TDICT_OK;
  tdict_status status = tdict_gpu_enter(call->gpu, &scope, err);
  if (status != TDICT_OK) return status;
  status = tdict_gpu_take_stream(call->gpu, &call->stream, err);
  tdict_gpu_leave(call->gpu, &scope);
  return status;
}

/* Fills the argument of a hook. */
static tdict_hook hook_of(tdict_hook_call *call) {
  const tdict_hooks *h = call->transfer->hooks;
  tdict_devices *devices = call->transfer->future.engine->config.devices;
  tdict_hook hook = tdict_hook_default();
  hook.context = h->context;
  hook.call = call;
  hook.device = call->pins ? tdict_cpu() : h->device;
  hook.memory = call->pins ? tdict_devices_pinned(devices) : tdict_devices_memory(devices, hook.device);
  if (call->gpu) hook.stream = (tdict_stream){call->gpu->memory.device, call->stream};
  return hook;
}

typedef tdict_status (*hook_fn)(const void *self, const tdict_hook *hook, void **out, tdict_error *err);
/* Calls one hook and writes the box of the object that the hook returned to *out. The caller owns the box. */
static tdict_status call_hook(hook_fn fn, const char *name, tdict_hook_call *call, tdict_box *box, tdict_box **out,
                              tdict_error *err) {
  void *returned = NULL;
  tdict_error hook_error = {0};
  tdict_status status = take_hook_stream(call, err);
  if (status != TDICT_OK) return status;
  const tdict_hook hook = hook_of(call);
  const int64_t span = tdict_phase_begin(call->transfer, TDICT_RANGE_HOOK);
  /* NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): the step was planned for a hook that the type has */
  status = fn(box->self, &hook, &returned, &hook_error);
  (void)tdict_phase_end(call->transfer, TDICT_RANGE_HOOK, span, 0);
  status = tdict_hook_finish(box->type, name, status, returned, &hook_error, err);
  return status == TDICT_OK ? tdict_box_of(box, returned, out, err) : status;
}

/* Moves the tensors of an object without `to_device`. Queues all copies itself: hooks may occupy the pool. */
static tdict_status move_tensors(const tdict_hooks *hooks, tdict_box *box, tdict_box **out, tdict_error *err) {
  tdict_tree *flat, *moved = NULL;
  tdict_transfer_options o = tdict_transfer_options_default();
  o.num_threads = 0;
  o.memory = hooks->memory;
  tdict_status status = tdict_flatten_object(box, &flat, err);
  if (status != TDICT_OK) return status;
  status = hooks->move(hooks->context, flat, hooks->device, &o, &moved, err);
  if (status == TDICT_OK) status = tdict_unflatten_object(box, moved, out, err);
  tdict_release(moved);
  tdict_release(flat);
  return status;
}

/* Pins or moves an object, and writes the box of the new object to *out. The caller owns the box. */
static tdict_status run_one(tdict_hook_call *call, bool pins, tdict_box *box, tdict_box **out, tdict_error *err) {
  const hook_fn move = TDICT_HOOK_OF(box->type, to_device);
  call->pins = pins;
  if (pins) return call_hook(TDICT_HOOK_OF(box->type, pin_memory), "pin_memory", call, box, out, err);
  if (move) return call_hook(move, "to_device", call, box, out, err);
  return move_tensors(call->transfer->hooks, box, out, err);
}

/* Waits for the copies that the hooks queued on their stream, before the hook's argument is released. */
static tdict_status end_hook_stream(tdict_hook_call *call, tdict_error *err) {
  tdict_gpu *gpu = call->gpu;
  tdict_gpu_scope scope;
  if (!call->stream) return TDICT_OK;
  tdict_gpu_enter_for_cleanup(gpu, &scope);
  const tdict_status status = tdict_gpu_sync_stream(gpu, call->stream, err);
  tdict_gpu_leave(gpu, &scope);
  tdict_gpu_give_stream(gpu, call->stream);
  call->stream = NULL;
  return status;
}

/* Pins the object of a step, moves it, or both. On the way to a device it is pinned first, and for a pinned result on
 * the cpu it is moved first. After both, releases the first new object, also after a failure. */
static tdict_status run_step(tdict_transfer *t, tdict_object_step *step, tdict_error *err) {
  tdict_hook_call call = {.transfer = t, .gpu = t->hooks->gpu};
  tdict_box *boxes[3] = {step->box, NULL, NULL}; /* the object of the source, and the objects that the hooks made */
  const bool pins_first = step->pin && !(step->move && t->hooks->device.type == TDICT_DEVICE_CPU);
  const int num_calls = step->pin + step->move;
  tdict_status status = TDICT_OK, ended;
  for (int i = 0; i < num_calls && status == TDICT_OK; i++) {
    if (i > 0 && tdict_future_has_failed(&t->future))
      status = tdict_fail(err, TDICT_ECANCELLED, "transfer: failed or cancelled before this hook");
    else
      status = run_one(&call, (i == 0) == pins_first, boxes[i], &boxes[i + 1], err);
  }
  /* Wait for the copies that the hooks queued, even after a failure. */
  ended = end_hook_stream(&call, status == TDICT_OK ? err : NULL);
  if (status == TDICT_OK) status = ended;
  tdict_box *last = boxes[num_calls];
  if (num_calls == 2) tdict_box_release(boxes[1]);
  return TDICT_HAND_OVER(status, last, &step->result, tdict_box_release);
}

/* Puts the objects that the hooks returned into the result tree. */
static void place_results(tdict_transfer *t) {
  for (uint32_t i = 0; i < t->plan.objects->count; i++) {
    tdict_object_step *step = &t->plan.objects->steps[i];
    if (step->action != TDICT_OBJECT_HOOK || !step->result) continue;
    *step->place = tdict_leaf_of_box(step->result);
    step->result = NULL;
  }
}

bool tdict_hooks_begin_copies(tdict_transfer *t) {
  if (!tdict_future_has_failed(&t->future)) {
    tdict_error err = {0};
    place_results(t);
    if (t->plan.num_items > 0 && tdict_transfer_begin(t, &(tdict_beginning){0}, &err) == TDICT_OK) return true;
    if (err.status) tdict_transfer_fail(t, UINT32_MAX, &err);
  }
  tdict_transfer_finish(t);
  return false;
}

static void run_hook_task(tdict_task *task) {
  TDICT_UNCANCELLED;
  hook_task *own_task = (hook_task *)task;
  tdict_transfer *t = own_task->transfer;
  if (!tdict_future_has_failed(&t->future)) {
    frame here = {t, tdict_pool_thread_data()};
    tdict_error err = {0};
    tdict_pool_set_thread_data(&here);
    tdict_status status = run_step(t, own_task->step, &err);
    tdict_pool_set_thread_data(here.outer);
    if (status != TDICT_OK) tdict_future_fail(&t->future, UINT32_MAX, own_task->step->path, &err);
  }
  if (atomic_fetch_sub_explicit(&t->hooks->num_unfinished, 1, memory_order_acq_rel) != 1) return;
  if (!t->how.on_caller)
    (void)tdict_hooks_begin_copies(t); /* if on_caller is set, the starting thread begins the copies */
}

void tdict_hooks_run(tdict_transfer *t) {
  pthread_mutex_lock(&t->future.engine->lock);
  tdict_future_count_live(&t->future);
  pthread_mutex_unlock(&t->future.engine->lock);
  tdict_hooks *h = t->hooks;
  uint32_t count = h->count;
  bool here = t->how.on_caller;
  tdict_pool *pool = t->future.engine->config.pool;
  for (uint32_t i = 0; i < count; i++) {
    if (here)
      run_hook_task(&h->tasks[i].task);
    else
      tdict_pool_submit(pool, &h->tasks[i].task); /* the transfer must not be used after the last submit, because the
                                                   * transfer may be freed */
  }
}
