/* Tests transfers with failing host allocations: the first allocation fails, then the second and so on, until none
 * fails. One sweep makes allocations of the calling thread fail, another those of the only pool thread. Allocations by
 * the driver never fail here, because test_faults.c makes them fail. */
#include "core/sched/latch.h"
#include "core/sched/pool.h"
#include "engine/engine.h"
#include "fault_cases.h"
#include "support/test.h"

enum { MOST_FAULTS = 2000 };

/* The allocation fault of one thread. Unlike the faults of fail_alloc.h, it can be suspended and resumed. */
typedef struct plan {
  bool set, active, hit, lasts;
  int64_t n; /* the allocation that fails, from 1 */
  int64_t seen;
} plan;
static _Thread_local plan own;

static void set_aside(void) {
  if (!own.active) return;
  own.seen += td_allocs_seen();
  own.hit |= td_fail_alloc_stop();
  own.active = false;
}
static void take_up(void) {
  if (!own.set || own.active || (own.hit && !own.lasts)) return;
  own.active = true;
  td_fail_alloc(own.hit ? 0 : own.n - 1 - own.seen, own.lasts);
}
static void around(bool begins) {
  if (begins)
    set_aside();
  else
    take_up();
}

static void begin_here(int64_t n, bool lasts) {
  own = (plan){.set = true, .n = n, .lasts = lasts};
  take_up();
}
static bool end_here(void) {
  set_aside();
  own.set = false;
  return own.hit;
}

/* A task for the only thread of a context's pool: starts or ends a fault on this thread. */
typedef struct order {
  tdict_task task; /* first: the pool passes it to obey() */
  tdict_latch done;
  int64_t n; /* 0: ends the fault */
  bool lasts, hit;
} order;
static void obey(tdict_task *task) {
  order *o = (order *)task;
  if (o->n)
    begin_here(o->n, o->lasts);
  else
    o->hit = end_here();
  tdict_latch_down(&o->done);
}
static bool tell_pool(tdict_context *context, int64_t n, bool lasts) {
  order o = {.task = {.run = obey}, .n = n, .lasts = lasts};
  tdict_latch_init(&o.done, 1);
  tdict_pool_submit(tdict_context_engine(context)->config.pool, &o.task);
  tdict_latch_wait(&o.done, INT64_MAX);
  tdict_latch_destroy(&o.done);
  return o.hit;
}

/* Which allocations a sweep makes fail, and how. */
typedef struct sweep_of {
  bool pool; /* true: allocations of the pool thread; false: of the caller */
  bool lasts;
  const fw_variant *variant;
} sweep_of;

static void judge(const fw_world *w, const fw_run *run, const char *where) {
  const tdict_error *e = &run->err;
  if (run->status == TDICT_OK) {
    if (!run->done) fail_msg("%s: no error, and no result", where);
    return;
  }
  if (run->status != TDICT_ENOMEM || e->status != TDICT_ENOMEM)
    fail_msg("%s: returned %s, the error has %s: %s", where, tdict_status_name(run->status),
             tdict_status_name((tdict_status)e->status), e->message);
  if (strlen(e->message) < 10) fail_msg("%s: the message is '%s'", where, e->message);
  char path[sizeof e->path];
  memcpy(path, e->path, sizeof path);
  char *below = strstr(path, "m.flat."); /* paths inside an object do not exist in the tree */
  if (below) below[strlen("m.flat")] = 0;
  if (path[0] && !tdict_has(fw_source(w, run->op), path)) fail_msg("%s: there is no '%s'", where, e->path);
}

static bool run_one(fw_world *w, fw_op op, const sweep_of *s, int64_t n, int64_t *failed) {
  char where[128];
  fw_counts before;
  snprintf(where, sizeof where, "%s/%s, allocation %lld of the %s%s", fw_op_name(op), s->variant->name, (long long)n,
           s->pool ? "pool" : "caller", s->lasts ? " and all after" : "");
  fw_count(w, &before);
  fw_run run = {.op = op, .variant = s->variant};
  if (op != FW_CONTEXT) run.context = fw_context(w);
  fw_prepare(w, &run);
  if (s->pool)
    tell_pool(run.context, n, s->lasts);
  else
    begin_here(n, s->lasts);
  fw_do(w, &run);
  set_aside();
  if (run.done) fw_check_bytes(w, &run);
  take_up();
  fw_let_go(&run);
  bool met = s->pool ? tell_pool(run.context, 0, false) : end_here();
  judge(w, &run, where);
  if (!met && run.status != TDICT_OK) fail_msg("%s: an error without a fault: %s", where, run.err.message);
  *failed += run.status != TDICT_OK;
  if (run.begun) fw_check_lost(w, &run);
  fw_check_source_free(w, &run);
  fw_prepare(w, &run);
  fw_do(w, &run);
  if (run.status != TDICT_OK)
    fail_msg("%s: the next transfer: %s: %s", where, tdict_status_name(run.status), run.err.message);
  fw_check_bytes(w, &run);
  fw_let_go(&run);
  if (run.stream.handle) tdict_stream_destroy(run.context, run.stream);
  tdict_context_destroy(run.context);
  fw_check_counts(w, &before, where);
  return met;
}

static void sweep_one(fw_world *w, fw_op op, const sweep_of *s) {
  const int64_t first = 1 + sanitized_first((int)(s->variant - fw_variants));
  int64_t n = first, failed = 0;
  while (run_one(w, op, s, n, &failed))
    if ((n += SANITIZED_STEP) > MOST_FAULTS) fail_msg("%s: the sweep does not end", fw_op_name(op));
  if (!s->pool) assert_true(n > first);
  if (n == first) return;
  printf("fault %s %s %s host_memory_of_%s%s 0 %lld %lld\n", w->device.type == TDICT_DEVICE_SIM ? "sim" : "cuda",
         fw_op_name(op), s->variant->name, s->pool ? "pool" : "caller", s->lasts ? "_for_good" : "", (long long)n - 1,
         (long long)failed);
}

static void sweep(fw_op op, int first, int num_variants) {
  fw_world w;
  fw_open(&w);
  w.num_threads = 1;
  tdict_driver_fault_set_around(w.driver, around);
  for (int v = first; v < first + num_variants; v++) {
    if (fw_variants[v].num_threads > 1) continue;
    for (int lasts = 0; lasts < 2; lasts++)
      for (int pool = 0; pool < (op == FW_CONTEXT ? 1 : 2); pool++)
        sweep_one(&w, op, &(sweep_of){pool == 1, lasts == 1, &fw_variants[v]});
  }
  tdict_driver_fault_set_around(w.driver, NULL);
  fw_close(&w);
}

GPU_CASE(faults_alloc_to_device) { sweep(FW_TO_DEVICE, 0, 4); }
GPU_CASE(faults_alloc_to_device_async) { sweep(FW_TO_DEVICE_ASYNC, 0, 4); }
GPU_CASE(faults_alloc_wire) { sweep(FW_WIRE, 0, 4); }
GPU_CASE(faults_alloc_to_host) { sweep(FW_TO_HOST, 0, 4); }
GPU_CASE(faults_alloc_to_host_async) { sweep(FW_TO_HOST_ASYNC, 0, 4); }
GPU_CASE(faults_alloc_transfer_into_device) { sweep(FW_INTO_DEVICE, 0, 4); }
GPU_CASE(faults_alloc_transfer_into_host_async) { sweep(FW_INTO_HOST_ASYNC, 0, 4); }
GPU_CASE(faults_alloc_transfer_into_within_device) { sweep(FW_INTO_WITHIN, 0, 4); }
GPU_CASE(faults_alloc_pin_memory) { sweep(FW_PIN_MEMORY, 0, 4); }
GPU_CASE(faults_alloc_single_tensors) { sweep(FW_TENSORS, 0, 1); }
GPU_CASE(faults_alloc_context) { sweep(FW_CONTEXT, 0, 1); }

ALL_FAULT_CASES(faults_alloc_long)
