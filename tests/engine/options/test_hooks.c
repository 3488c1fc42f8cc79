/* Tests hooks that call library functions: what they may call, streams, errors, cancellation and nested transfers. */
#include "engine/pair.h"

#include "context.h"
#include "device/sim/driver.h"
#include "support/driver_fault.h"

/* Makes a tree with one pair that has hooks. */
static tdict_tree *tree_of_pair(probe *p, pair **out) {
  tdict_tree *td = new_tree();
  *out = put_pair(td, "x.pair", &pair_hooked, p, 1);
  return td;
}
static void check_wrong(const probe *p) { assert_int_equal(atomic_load(&p->wrong), 0); }
static void expect(const pair *self, bool true_one) {
  if (!true_one) atomic_fetch_add(&self->p->wrong, 1);
}

typedef struct place_seen {
  tdict_context *c;
  tdict_memory *memory, *pinned;
  tdict_device device, seen[2], target;
  bool pinned_argument;
  int calls;
} place_seen;
static tdict_status note_place(const pair *self, const tdict_hook *hook, tdict_error *err) {
  place_seen *s = self->user;
  (void)err;
  tdict_device device = hook->device;
  bool pins = s->calls == 0; /* pin_memory runs before to_device */
  expect(self, hook->context == s->c);
  expect(self, hook->struct_size == sizeof *hook);
  expect(self, hook->memory == (pins ? s->pinned : s->memory));
  expect(self, (hook->stream.handle != NULL) == (s->target.type != TDICT_DEVICE_CPU));
  expect(self, s->target.type == TDICT_DEVICE_CPU ? hook->stream.device.type == 0
                                                  : tdict_device_equal(hook->stream.device, s->target));
  expect(self, !tdict_hook_cancelled(hook));
  if (s->calls < 2) s->seen[s->calls] = device;
  if (!pins) s->pinned_argument = tdict_tensor_is_pinned(self->inp) && tdict_tensor_is_pinned(self->tgt);
  s->calls++;
  return TDICT_OK;
}

GPU_CASE(hook_knows_its_context_and_device) {
  scoped_place w = place_open(2);
  scoped_probe p = {0};
  pair *x;
  scoped_tree src = tree_of_pair(&p, &x);
  tdict_tree *out = NULL;
  place_seen s = {.c = w.c, .memory = w.memory, .pinned = w.pinned, .device = w.device, .target = w.device};
  x->also = note_place;
  x->user = &s;
  out = moved(&w, src, w.device); /* pins the pair, then moves the pinned pair */
  assert_int_equal(s.calls, 2);
  assert_true(tdict_device_equal(s.seen[0], tdict_cpu()));
  assert_true(tdict_device_equal(s.seen[1], w.device));
  assert_true(s.pinned_argument);
  tdict_release(out);
  s.calls = 0;
  s.target = tdict_cpu();
  td_ok(tdict_pin_memory(w.c, src, NULL, &out, err));
  assert_int_equal(s.calls, 1);
  tdict_release(out);
  /* for a transfer to the CPU, only `to_device` is called, and nothing is pinned */
  s.calls = 1;
  s.memory = tdict_device_memory(w.c, tdict_cpu());
  out = moved(&w, src, tdict_cpu());
  assert_int_equal(s.calls, 2);
  assert_true(tdict_device_equal(s.seen[1], tdict_cpu()));
  tdict_release(out);
  check_wrong(&p);
}

static tdict_status pin_and_move(const pair *self, const tdict_hook *hook, tdict_error *err) {
  tdict_tensor *pinned = NULL, *again = NULL, *there = NULL, *once = NULL, *untouched = NULL;
  tdict_error said = {0};
  if (hook->device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  const tdict_hook copy = *hook; /* a copy of the struct is accepted, too */
  tdict_status status = tdict_hook_pin(&copy, self->inp, &pinned, err);
  if (status == TDICT_OK) status = tdict_hook_pin(hook, pinned, &again, err);
  if (status == TDICT_OK) status = tdict_hook_move(hook, self->inp, &there, err);
  if (status == TDICT_OK) status = tdict_hook_move(hook, there, &once, err);
  if (status == TDICT_OK) {
    expect(self, tdict_tensor_is_pinned(pinned) && again == pinned && once == there);
    expect(self, tdict_device_equal(tdict_tensor_device(there), hook->device));
    /* tdict_hook_move() returns after the copy is done, so a clone has the bytes */
    tdict_tensor *back = NULL;
    status = tdict_tensor_clone(there, NULL, &back, err);
    if (status == TDICT_OK) expect(self, memcmp(back->data, self->inp->data, tdict_tensor_bytes(back)) == 0);
    tdict_tensor_release(back);
    expect(self, tdict_hook_pin(hook, there, &untouched, &said) == TDICT_EWRONGDEVICE && !untouched);
    expect(self, said.status == TDICT_EWRONGDEVICE && strstr(said.message, "cpu") != NULL);
    expect(self, tdict_hook_pin(hook, NULL, &untouched, NULL) == TDICT_EINVAL);
    expect(self, tdict_hook_pin(hook, pinned, NULL, NULL) == TDICT_EINVAL);
    expect(self, tdict_hook_move(hook, NULL, &untouched, NULL) == TDICT_EINVAL);
    expect(self, tdict_hook_move(hook, pinned, NULL, NULL) == TDICT_EINVAL && !untouched);
  }
  td_release(pinned, again, there, once);
  return status;
}

GPU_CASE(hook_pin_and_move) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  pair *x;
  scoped_tree src = tree_of_pair(&p, &x);
  x->also = pin_and_move;
  for (int num_threads = 0; num_threads <= 2; num_threads++) {
    tdict_transfer_options o = threads(num_threads);
    scoped_tree out = finish(move_async(&w, src, w.device, &o));
    check_pair(&w, pair_at(out, "x.pair", &pair_hooked), 1, w.device);
  }
  check_wrong(&p);
}

static tdict_status pin_without_room(const pair *self, const tdict_hook *hook, tdict_error *err) {
  tdict_tensor *big = NULL, *pinned = NULL;
  const int64_t count = 1 << 20;
  tdict_status status = tdict_tensor_empty(TDICT_U8, 1, &count, NULL, &big, err);
  if (status == TDICT_OK) status = tdict_hook_pin(hook, big, &pinned, err);
  expect(self, status == TDICT_ENOMEM && !pinned);
  tdict_tensor_release(big);
  return status;
}
GPU_CASE(hook_pin_keeps_to_the_limit) {
  tdict_context_options o = place_options(2);
  o.pinned_bytes = 64 << 10;
  scoped_place w = place_over(&o);
  probe p = {0};
  pair *x;
  tdict_tree *src = tree_of_pair(&p, &x), *out = NULL;
  x->also = pin_without_room;
  td_fails_at(TDICT_ENOMEM, "pinned", "x.pair", tdict_pin_memory(w.c, src, NULL, &out, err));
  assert_null(out);
  check_wrong(&p);
  tdict_release(src);
}

/* Work that a hook queues on its stream. The object that was passed to the hook must live until the work is done. */
typedef struct on_stream {
  kernel k;
  gate gate;
  tdict_context *c;
  tdict_tensor *seen; /* owned by the object */
} on_stream;
static tdict_status use_stream(const pair *self, const tdict_hook *hook, tdict_error *err) {
  on_stream *s = self->user;
  if (hook->device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  const tdict_stream stream = hook->stream;
  expect(self, stream.handle && tdict_device_equal(stream.device, hook->device));
  s->k.gate = &s->gate;
  s->k.stream = stream;
  s->k.address = self->inp->data; /* pinned: a tensor of the object that pin_memory made */
  s->k.bytes = tdict_tensor_bytes(self->inp);
  return tdict_sim_launch(stream, kernel_run, &s->k, err);
}

SIM_CASE(hook_stream_is_waited_for) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  pair *x;
  tdict_tree *src = tree_of_pair(&p, &x);
  on_stream s = {.k.seen = calloc(1, sizeof(float) * PAIR_ROWS * PAIR_COLUMNS)};
  x->also = use_stream;
  x->user = &s;
  tdict_future *f = move_async(&w, src, w.device, NULL);
  gate_await(&s.gate, 1); /* the work is running */
  tdict_release(src);
  check_pending(f);
  for (int i = 0; i < 50000 && atomic_load(&p.live) < 3; i++) usleep(100); /* the hook returns while the kernel runs */
  assert_int_equal(atomic_load(&p.live), 3); /* the pairs of the source, of pin_memory and of the result */
  gate_open(&s.gate);
  tdict_tree *out = finish(f);
  assert_true(atomic_load(&s.k.done));
  assert_true(kernel_saw(&s.k, pair_seed(1, 0)));
  check_pair(&w, pair_at(out, "x.pair", &pair_hooked), 1, w.device);
  tdict_release(out);
  check_wrong(&p);
  free(s.k.seen);
}

/* Slow work that a hook queues before it makes the next driver call of the kind TDICT_FAULT_CTX_PUSH fail. */
typedef struct slow_work {
  tdict_driver *driver;
  atomic_bool has_run;
} slow_work;
static void run_slowly(void *user) {
  usleep(30000);
  atomic_store(&((slow_work *)user)->has_run, true);
}
static tdict_status move_and_arm(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  slow_work *s = ((const pair *)self)->user;
  const tdict_fault fault = {.kinds = TDICT_FAULT_BIT(TDICT_FAULT_CTX_PUSH), .n = 1, .code = TDICT_CU_INVALID_HANDLE};
  tdict_status status = tdict_sim_launch(hook->stream, run_slowly, s, err);
  if (status == TDICT_OK) status = pair_move(self, hook, out, err);
  tdict_driver_fault_arm(s->driver, &fault);
  return status;
}
SIM_CASE(hook_stream_is_waited_for_after_a_failed_call) {
  static const tdict_type type = PAIR_TYPE(.to_device = move_and_arm);
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context *c = NULL;
  tdict_tree *src = new_tree(), *out = NULL;
  slow_work s = {0};
  scoped_probe p = {0};
  tdict_context_options o = td_with(tdict_context_options, device = td_device());
  tdict_driver *inner = td_made(driver, tdict_driver_sim_open(&sim, &made, err));
  td_ok(tdict_driver_fault_open(inner, &s.driver, err));
  td_ok(tdict_context_create_over(&o, s.driver, &c, err));
  put_pair(src, "pair", &type, &p, 1)->user = &s;
  td_ok(tdict_to_device(c, src, o.device, NULL, &out, err));
  assert_true(atomic_load(&s.has_run));
  assert_true(tdict_driver_fault_fired(s.driver));
  td_release(out, src, c, s.driver, inner);
}

/* The hooks' stream is the only stream that the transfer creates, so the injected fault makes its creation fail. */
SIM_CASE(hook_needs_its_stream) {
  static const tdict_fault fault = {
      .kinds = TDICT_FAULT_BIT(TDICT_FAULT_STREAM_CREATE), .n = 1, .code = TDICT_CU_OUT_OF_MEMORY};
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_driver *inner = NULL, *driver = NULL;
  tdict_context *c = NULL;
  tdict_tree *src = new_tree(), *out = NULL;
  scoped_probe p = {0};
  tdict_context_options o = td_with(tdict_context_options, device = td_device());
  td_ok(tdict_driver_sim_open(&sim, &inner, err));
  td_ok(tdict_driver_fault_open(inner, &driver, err));
  td_ok(tdict_context_create_over(&o, driver, &c, err));
  put_pair(src, "pair", &pair_hooked, &p, 1);
  tdict_driver_fault_arm(driver, &fault);
  td_fails_at(TDICT_ENOMEM, "", "pair", tdict_to_device(c, src, o.device, NULL, &out, err));
  assert_true(tdict_driver_fault_fired(driver));
  assert_int_equal(atomic_load(&p.pins) + atomic_load(&p.moves), 0); /* no hook ran without a stream */
  tdict_release(td_made(tree, tdict_to_device(c, src, o.device, NULL, &made, err)));
  td_release(src, c, driver, inner);
}

/* Moves a pair with copies that the hook queues itself. */
static tdict_status move_by_itself(const void *self, const tdict_hook *hook, void **out, tdict_error *err) {
  const pair *own = self;
  const tdict_tensor *from[] = {own->inp, own->tgt};
  tdict_tensor *t[2] = {NULL, NULL};
  tdict_gpu *gpu = own->user;
  tdict_stream stream = hook->stream;
  tdict_gpu_scope scope;
  tdict_status status = TDICT_OK;
  for (int i = 0; i < 2 && status == TDICT_OK; i++)
    status = tdict_tensor_empty(tdict_tensor_dtype(from[i]), 2, tdict_tensor_shape(from[i]), hook->memory, &t[i], err);
  if (status == TDICT_OK) status = tdict_gpu_enter(gpu, &scope, err);
  for (int i = 0; i < 2 && status == TDICT_OK; i++)
    if (gpu->driver->ops->copy_h2d_async(gpu->driver, t[i]->data, from[i]->data, tdict_tensor_bytes(t[i]),
                                         stream.handle))
      status = TDICT_EDEVICE;
  if (status == TDICT_OK) tdict_gpu_leave(gpu, &scope);
  *out = pair_around(own, t[0], t[1]);
  return status;
}
static const tdict_type pair_itself = PAIR_TYPE(.pin_memory = pair_pin, .to_device = move_by_itself);

GPU_CASE(hook_moves_by_its_own_stream) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  for (int i = 0; i < 20; i++) {
    tdict_tree *src = new_tree();
    put_pair(src, "p", &pair_itself, &p, i)->user = w.gpu;
    tdict_future *f = move_async(&w, src, w.device, NULL);
    tdict_release(src);
    scoped_tree out = finish(f);
    check_pair(&w, pair_at(out, "p", &pair_itself), i, w.device);
  }
}

typedef struct cancelling {
  gate gate;
  atomic_bool saw;
} cancelling;
static tdict_status look_for_cancel(const pair *self, const tdict_hook *hook, tdict_error *err) {
  cancelling *c = self->user;
  (void)err;
  expect(self, !tdict_hook_cancelled(hook));
  gate_pass(&c->gate);
  atomic_store(&c->saw, tdict_hook_cancelled(hook));
  return TDICT_OK;
}

GPU_CASE(hook_sees_cancel) {
  scoped_probe p = {0};
  scoped_place w = place_open(1);
  cancelling c = {0};
  tdict_tree *src = new_tree();
  for (int i = 0; i < 2; i++) put_pair_with(src, i ? "second" : "first", &p, i, look_for_cancel, &c);
  tdict_future *f = move_async(&w, src, w.device, NULL);
  gate_await(&c.gate, 1);
  tdict_future_cancel(f);
  assert_int_equal(tdict_future_state(f), TDICT_FUTURE_PENDING); /* the hook still runs */
  gate_open(&c.gate);
  td_fails(TDICT_ECANCELLED, "", tdict_future_wait(f, NULL, err));
  assert_true(atomic_load(&c.saw));
  assert_int_equal(atomic_load(&p.pins), 1); /* the hook of the second object was skipped */
  td_release(f, src);
  check_wrong(&p);
}

static tdict_status fail_when_told(const pair *self, const tdict_hook *hook, tdict_error *err) {
  cancelling *c = self->user;
  (void)err;
  if (self->number == 0) {
    for (int i = 0; i < PROMISE_LONG_MS * 10 && !atomic_load(&c->gate.entered); i++) usleep(100);
    return TDICT_EIO;
  }
  atomic_fetch_add(&c->gate.entered, 1);
  for (int i = 0; i < PROMISE_LONG_MS * 10 && !tdict_hook_cancelled(hook); i++) usleep(100);
  atomic_store(&c->saw, tdict_hook_cancelled(hook));
  return TDICT_ENOMEM;
}
/* If a hook fails, the other hooks see a cancelled transfer. Their own errors do not replace the first error. */
GPU_CASE(hook_sees_failure) {
  scoped_probe p = {0};
  scoped_place w = place_open(2);
  cancelling c = {0};
  scoped_tree src = new_tree();
  for (int i = 0; i < 2; i++) put_pair_with(src, i ? "waits" : "fails", &p, i, fail_when_told, &c);
  scoped_future f = move_async(&w, src, w.device, NULL);
  td_fails_at(TDICT_EIO, "", "fails", tdict_future_wait(f, NULL, err));
  assert_true(atomic_load(&c.saw));
}

/* The settings of nested hooks. Each hook moves a tensor and a pair one level deeper, down to level `depth`. */
typedef struct nest {
  place *w;
  int depth, num_threads;
  atomic_int deepest;
} nest;
typedef struct level {
  nest *all;
  int depth;
  pthread_t thread; /* the thread whose hook started the transfer; unused at depth 0 */
} level;
static tdict_status nested(const pair *self, const tdict_hook *hook, tdict_error *err);
static tdict_status nest_tree(const pair *self, level *deeper, tdict_tree **out, tdict_error *err) {
  tdict_tensor *inp = NULL, *tgt = NULL;
  tdict_status status = tdict_tensor_clone(self->inp, NULL, &inp, err);
  if (status == TDICT_OK) status = tdict_tensor_clone(self->tgt, NULL, &tgt, err);
  pair *below = status == TDICT_OK ? pair_around(self, inp, tgt) : NULL;
  if (!below) return TDICT_ENOMEM;
  below->also = nested;
  below->user = deeper;
  tdict_tree *td = NULL;
  status = tdict_create(0, NULL, &td, err);
  if (status == TDICT_OK) status = tdict_set(td, "inp", self->inp, err);
  if (status == TDICT_OK) status = tdict_set_object(td, "pair", &pair_hooked, below, err);
  *out = td;
  return status;
}
static tdict_status nest_transfers(const pair *self, const tdict_hook *hook, const tdict_tree *td, tdict_error *err) {
  tdict_context *c = hook->context;
  nest *all = ((level *)self->user)->all;
  tdict_transfer_options o = threads(all->num_threads);
  scoped_tree there = NULL, back = NULL, pinned = NULL;
  scoped_future f = NULL;
  tdict_status status = tdict_to_device(c, td, all->w->device, &o, &there, err);
  if (status == TDICT_OK) status = tdict_to_device_async(c, there, tdict_cpu(), &o, &f, err);
  if (status == TDICT_OK) status = tdict_future_wait(f, &back, err);
  tdict_tensor *a = NULL;
  if (status == TDICT_OK) status = tdict_get(back, "inp", &a, err);
  if (status == TDICT_OK) expect(self, memcmp(tdict_tensor_const_data(a), self->inp->data, tdict_tensor_bytes(a)) == 0);
  if (status == TDICT_OK) status = tdict_pin_memory(c, td, NULL, &pinned, err);
  if (status == TDICT_OK) expect(self, tdict_is_pinned(pinned));
  return status;
}
static tdict_status nested(const pair *self, const tdict_hook *hook, tdict_error *err) {
  level *here = self->user;
  nest *all = here->all;
  if (tdict_tensor_device(self->inp).type != TDICT_DEVICE_CPU) return TDICT_OK; /* a transfer to the host */
  if (here->depth > atomic_load(&all->deepest)) atomic_store(&all->deepest, here->depth);
  if (here->depth) expect(self, pthread_equal(pthread_self(), here->thread)); /* runs on the caller's thread */
  if (here->depth == all->depth) return TDICT_OK;
  level deeper = {all, here->depth + 1, pthread_self()};
  scoped_tree td = NULL;
  tdict_status status = nest_tree(self, &deeper, &td, err);
  if (status == TDICT_OK) status = nest_transfers(self, hook, td, err);
  return status;
}

/* With 0 threads, only the caller copies and runs hooks. Otherwise the pool has as many threads as the transfer. */
GPU_CASE(hook_nested_transfers) {
  for (int num_threads = 0; num_threads <= 2; num_threads++) {
    place w = place_open(num_threads ? num_threads : 1);
    probe p = {0};
    nest all = {.w = &w, .depth = 3, .num_threads = num_threads};
    level top = {.all = &all};
    tdict_tree *src = new_tree();
    for (int i = 0; i < 3; i++) put_pair_with(src, td_text("p%d", i), &p, i, nested, &top);
    tdict_transfer_options o = threads(num_threads);
    tdict_tree *out = finish(move_async(&w, src, w.device, &o));
    for (int i = 0; i < 3; i++) check_pair(&w, pair_at(out, td_text("p%d", i), &pair_hooked), i, w.device);
    assert_int_equal(atomic_load(&all.deepest), 3);
    td_release(out, src);
    check_wrong(&p);
    close_pairs(&w, &p);
  }
}

/* In a hook, the only pool thread waits for a transfer whose hooks are queued later. */
typedef struct other {
  gate gate;
  tdict_future *future;
} other;
static tdict_status wait_for_other(const pair *self, const tdict_hook *hook, tdict_error *err) {
  other *o = self->user;
  (void)hook;
  gate_pass(&o->gate);
  return tdict_future_wait_for(o->future, PROMISE_LONG_MS * (int64_t)1000000, NULL, err);
}
GPU_CASE(hook_waits_for_another_with_hooks) {
  for (int num_threads = 1; num_threads <= 2; num_threads++) {
    place w = place_open(num_threads);
    probe p = {0};
    other o = {0};
    pair *x, *y;
    tdict_tree *first = tree_of_pair(&p, &x), *second = tree_of_pair(&p, &y);
    x->also = wait_for_other;
    x->user = &o;
    put_pair(second, "y", &pair_hooked, &p, 2);
    tdict_future *f = move_async(&w, first, w.device, NULL);
    gate_await(&o.gate, 1);
    o.future = move_async(&w, second, w.device, NULL);
    gate_open(&o.gate);
    tdict_release(finish(f));
    tdict_tree *out = finish(o.future);
    check_pair(&w, pair_at(out, "y", &pair_hooked), 2, w.device);
    td_release(out, first, second);
    close_pairs(&w, &p);
  }
}

typedef struct own_future {
  gate gate;
  tdict_future *future;
  tdict_stream stream;
  tdict_status waited[4];
  tdict_error said;
  bool ready;
  bool nests;
} own_future;
static tdict_status wait_for_itself(const pair *self, const tdict_hook *hook, tdict_error *err) {
  own_future *o = self->user;
  tdict_tree *none = NULL;
  (void)err;
  gate_pass(&o->gate);
  if (o->nests) { /* does the same in a nested transfer */
    o->nests = false;
    scoped_tree td = NULL, out = NULL;
    tdict_status status = tdict_create(0, NULL, &td, err);
    pair *below = pair_around(self, tdict_tensor_retain(self->inp), tdict_tensor_retain(self->tgt));
    if (status == TDICT_OK && below) status = tdict_set_object(td, "below", &pair_hooked, below, err);
    if (status == TDICT_OK) status = tdict_to_device(hook->context, td, hook->device, NULL, &out, err);
    return status;
  }
  o->waited[0] = tdict_future_wait(o->future, &none, &o->said);
  o->waited[1] = tdict_future_wait_for(o->future, 0, &none, NULL);
  o->waited[2] = tdict_future_wait_on_stream(o->future, o->stream, &none, NULL);
  o->waited[3] = tdict_future_wait_source(o->future, NULL);
  o->ready = tdict_future_is_ready(o->future);
  expect(self, none == NULL);
  return TDICT_OK;
}

GPU_CASE(hook_own_future) {
  scoped_place w = place_open(2);
  TD_STREAM(stream, w.c, w.device);
  for (int round = 0; round < 2; round++) {
    scoped_probe p = {0};
    pair *x;
    own_future o = {.stream = stream, .nests = round == 1, .ready = true};
    tdict_tree *src = tree_of_pair(&p, &x);
    x->also = wait_for_itself;
    x->user = &o;
    o.future = move_async(&w, src, w.device, NULL);
    gate_open(&o.gate);
    tdict_release(finish(tdict_future_retain(o.future))); /* outside the hook, waiting succeeds */
    for (int i = 0; i < 4; i++) assert_int_equal(o.waited[i], TDICT_EDEADLOCK);
    assert_int_equal(o.said.status, TDICT_EDEADLOCK);
    assert_false(o.ready);
    td_release(o.future, src);
    check_wrong(&p);
  }
}
