/* Tests that calls on device trees wait for earlier transfers of the same bytes and for recorded uses. A fence examines
 * the bytes when a call waits for it, so no test has to sleep. */
#include "promises.h"
#include "support/threads.h"

enum { ROWS = 4 };
static const tdict_field fields[] = {{"x", TDICT_F32, 1, {6}}, {"n.y", TDICT_U8, 2, {5, 7}}};

static tdict_tree *rows_tree(const place *w, int64_t rows, tdict_memory *memory, uint64_t number) {
  tdict_tree *td = td_made(tree, tdict_create_from(fields, 2, 1, &rows, memory, &made, err));
  for (int i = 0; i < 2; i++) put_number(w, td_leaf(td, fields[i].path), number + (uint64_t)i);
  return td;
}
static bool rows_have(const place *w, const tdict_tree *td, uint64_t number) {
  return has_number(w, td_leaf(td, fields[0].path), number) && has_number(w, td_leaf(td, fields[1].path), number + 1);
}

/* The trees of a call, and its result. */
typedef struct things {
  const place *w;
  tdict_tree *dst, *src; /* both on the device, batch size [ROWS] */
  tdict_tree *row;       /* on the device, batch size [] */
  tdict_tree *out;
} things;

static tdict_status do_zero(things *t, tdict_error *e) { return tdict_fill(t->dst, NULL, 0, NULL, e); }
static tdict_status do_fill(things *t, tdict_error *e) { return tdict_fill(t->dst, "x", 0, NULL, e); }
static tdict_status do_copy(things *t, tdict_error *e) { return tdict_copy(t->dst, t->src, NULL, e); }
static tdict_status do_update(things *t, tdict_error *e) { return tdict_update_in_place(t->dst, t->src, NULL, 0, e); }
static tdict_status do_write(things *t, tdict_error *e) {
  return tdict_write(t->dst, "x", NULL, td_leaf(t->src, "x"), e);
}
static tdict_status do_write_at(things *t, tdict_error *e) {
  return tdict_write(t->dst, "x", TDICT_INDEX(TDICT_ALL), td_leaf(t->src, "x"), e);
}
static tdict_status do_index_set(things *t, tdict_error *e) {
  return tdict_index_set(NULL, t->dst, TDICT_INDEX(TDICT_ALL), t->src, NULL, e);
}
static tdict_status do_write_row(things *t, tdict_error *e) { return tdict_write_rows(t->dst, 1, t->row, e); }
static tdict_status do_write_rows(things *t, tdict_error *e) { return tdict_write_rows(t->dst, 0, t->src, e); }
static tdict_status do_cat_into(things *t, tdict_error *e) {
  return tdict_cat_into(t->dst, (const tdict_tree *[]){t->src}, 1, NULL, NULL, e);
}
static tdict_status do_stack_into(things *t, tdict_error *e) {
  return tdict_stack_into(t->dst, (const tdict_tree *[]){t->row, t->row, t->row, t->row}, ROWS, NULL, NULL, e);
}
static tdict_status do_tensor_copy(things *t, tdict_error *e) {
  return tdict_tensor_copy(td_leaf(t->dst, "x"), td_leaf(t->src, "x"), e);
}
static tdict_status do_clone(things *t, tdict_error *e) { return tdict_clone_deep(t->src, NULL, &t->out, e); }
static tdict_status do_cat(things *t, tdict_error *e) {
  return tdict_cat((const tdict_tree *[]){t->src}, 1, NULL, NULL, &t->out, e);
}
static tdict_status do_stack(things *t, tdict_error *e) {
  return tdict_stack((const tdict_tree *[]){t->src}, 1, NULL, NULL, &t->out, e);
}
static tdict_status do_pad(things *t, tdict_error *e) {
  return tdict_pad_sequence((const tdict_tree *[]){t->src}, 1, NULL, NULL, &t->out, e);
}
static tdict_status do_compare(things *t, tdict_error *e) {
  tdict_difference d;
  return tdict_get_difference(t->src, t->dst, NULL, &d, e);
}

typedef struct kind {
  const char *name;
  tdict_status (*run)(things *t, tdict_error *err);
  bool writes, reads; /* whether the call writes `x` of dst; whether it reads `x` of src */
} kind;
static const kind kinds[] = {{"zero", do_zero, true, false},
                             {"fill", do_fill, true, false},
                             {"copy", do_copy, true, true},
                             {"update_in_place", do_update, true, true},
                             {"write", do_write, true, true},
                             {"write_at", do_write_at, true, true},
                             {"index_set", do_index_set, true, true},
                             {"write_row", do_write_row, true, false},
                             {"write_rows", do_write_rows, true, true},
                             {"cat_into", do_cat_into, true, true},
                             {"stack_into", do_stack_into, true, false},
                             {"tensor_copy", do_tensor_copy, true, true},
                             {"clone_deep", do_clone, false, true},
                             {"cat", do_cat, false, true},
                             {"stack", do_stack, false, true},
                             {"pad_sequence", do_pad, false, true},
                             {"compare", do_compare, false, true}};
enum { NUM_KINDS = sizeof kinds / sizeof *kinds };

static things open_things(const place *w) {
  things t = {.w = w, .dst = rows_tree(w, ROWS, w->memory, 100), .src = rows_tree(w, ROWS, w->memory, 200)};
  td_ok(tdict_create_from(fields, 2, 0, NULL, w->memory, &t.row, err));
  for (int i = 0; i < 2; i++) put_number(w, td_leaf(t.row, fields[i].path), 300 + (uint64_t)i);
  return t;
}
static void close_things(things *t) { td_release(t->dst, t->src, t->row, t->out); }
#define scoped_things TD_SCOPED(close_things, things)

/* A fence in place of a transfer. It ends at the first wait. If `writes` is not 0, that wait writes the tensor. */
typedef struct transfer_stand_in {
  tdict_fence fence; /* first */
  tdict_fence_node node;
  const place *w;
  const tdict_tensor *t;
  int waits;
  bool untouched; /* the tensor had the bytes of `before` at the first wait */
  uint64_t before, writes;
} transfer_stand_in;
static bool poll_stand_in(tdict_fence *f) { return ((transfer_stand_in *)f)->waits > 0; }
static bool wait_for_stand_in(tdict_fence *f, int64_t deadline_ns) {
  transfer_stand_in *s = (transfer_stand_in *)f;
  (void)deadline_ns;
  if (s->waits++) return true;
  s->untouched = has_number(s->w, s->t, s->before);
  if (s->writes) put_number(s->w, s->t, s->writes);
  tdict_storage_detach(&s->node);
  return true;
}
static void count_stand_in(tdict_fence *f) { (void)f; }
static void begin_stand_in(transfer_stand_in *s, const place *w, const tdict_tensor *t, uint64_t before,
                           uint64_t writes) {
  static const tdict_fence_ops ops = {poll_stand_in, wait_for_stand_in, NULL, count_stand_in, count_stand_in};
  *s = (transfer_stand_in){.fence = {&ops}, .w = w, .t = t, .before = before, .writes = writes};
  s->node = (tdict_fence_node){.storage = t->storage, .fence = &s->fence, .writes = writes != 0};
  tdict_storage_attach(&s->node);
}

SIM_CASE(device_writers_wait_for_transfers) {
  scoped_place w = place_open(2);
  for (int i = 0; i < NUM_KINDS; i++)
    for (int writes = 0; writes < 2 && kinds[i].writes; writes++) {
      scoped_things t = open_things(&w);
      transfer_stand_in s;
      begin_stand_in(&s, &w, td_leaf(t.dst, "x"), 100, writes ? 900 : 0);
      td_ok(kinds[i].run(&t, err));
      if (s.waits == 0 || !s.untouched) fail_msg("%s did not wait for a transfer before it wrote", kinds[i].name);
      assert_false(has_number(&w, td_leaf(t.dst, "x"), writes ? 900 : 100)); /* the call wrote last */
    }
}

SIM_CASE(device_readers_wait_for_writers) {
  scoped_place w = place_open(2);
  for (int i = 0; i < NUM_KINDS; i++) {
    if (!kinds[i].reads) continue;
    scoped_things t = open_things(&w);
    transfer_stand_in s;
    begin_stand_in(&s, &w, td_leaf(t.src, "x"), 200, 900);
    td_ok(kinds[i].run(&t, err));
    if (s.waits == 0) fail_msg("%s did not wait for a transfer that writes its source", kinds[i].name);
    if (kinds[i].writes) assert_true(has_number(&w, td_leaf(t.dst, "x"), 900));
    if (t.out) assert_true(has_number(&w, td_leaf(t.out, "x"), 900));
    close_things(&t);
    t = open_things(&w); /* two readers do not conflict */
    begin_stand_in(&s, &w, td_leaf(t.src, "x"), 200, 0);
    td_ok(kinds[i].run(&t, err));
    assert_int_equal(s.waits, 0);
    wait_for_stand_in(&s.fence, 0);
  }
}

/* A call that runs on its own thread. */
typedef struct call {
  things t;
  const kind *kind;
  tdict_status status;
  atomic_bool started, ended;
  pthread_t thread;
} call;
static void *run_call(void *user) {
  call *c = user;
  atomic_store(&c->started, true);
  c->status = c->kind->run(&c->t, NULL);
  atomic_store(&c->ended, true);
  return NULL;
}
static void begin_call(call *c) {
  atomic_init(&c->started, false);
  atomic_init(&c->ended, false);
  c->thread = td_start(run_call, c);
  assert_true(wait_flag(&c->started));
}
static void end_call(call *c) {
  assert_int_equal(pthread_join(c->thread, NULL), 0);
  assert_int_equal(c->status, TDICT_OK);
}
/* Runs one operation of the stopped device at a time until the transfer has ended. The call must not end earlier. */
static void step_to_the_end(const place *w, tdict_future *f, const call *c) {
  for (int i = 0; i < PROMISE_LONG_MS && !tdict_future_is_ready(f); i++) {
    const bool ended = atomic_load(&c->ended);
    if (ended && !tdict_future_is_ready(f)) fail_msg("%s ended before the transfer", c->kind->name);
    td_ok(tdict_sim_step(w->c, 1, err));
    usleep(1000);
  }
  assert_true(tdict_future_is_ready(f));
}

/* Runs calls while real transfers are stopped. A call must not end before its conflicting transfer. */
SIM_CASE(device_calls_come_after_transfers) {
  scoped_place w = place_open(2);
  for (int i = 0; i < NUM_KINDS; i++)
    for (int32_t threads_of_it = 1; threads_of_it < 3; threads_of_it++) {
      const tdict_transfer_options o = threads(threads_of_it);
      call c = {.t = open_things(&w), .kind = &kinds[i]};
      tdict_tree *host = rows_tree(&w, ROWS, w.pinned, 900), *seen;
      hold(&w);
      tdict_future *f = kinds[i].writes ? move_async(&w, c.t.dst, tdict_cpu(), &o) : copy_async(&w, host, c.t.src, &o);
      begin_call(&c);
      step_to_the_end(&w, f, &c);
      resume(&w);
      end_call(&c);
      seen = finish(f);
      if (kinds[i].writes) assert_true(rows_have(&w, seen, 100));
      if (c.t.out) assert_true(has_number(&w, td_leaf(c.t.out, "x"), 900));
      if (kinds[i].writes) { /* a later transfer reads the call's result */
        scoped_bytes now = get_bytes(&w, td_leaf(c.t.dst, "x"));
        tdict_release(seen);
        seen = finish(move_async(&w, c.t.dst, tdict_cpu(), &o));
        assert_memory_equal(td_leaf(seen, "x")->data, now, tdict_tensor_bytes(td_leaf(seen, "x")));
      }
      td_release(seen, host);
      close_things(&c.t);
    }
}

/* After tdict_record_stream(), calls that write wait for a kernel of the program that reads the bytes. */
SIM_CASE(device_writers_wait_for_recorded_uses) {
  scoped_place w = place_open(2);
  for (int i = 0; i < NUM_KINDS; i++) {
    if (!kinds[i].writes) continue;
    call c = {.t = open_things(&w), .kind = &kinds[i]};
    gate g = {0};
    kernel k;
    tdict_stream s = new_stream(&w);
    kernel_launch(&k, s, td_leaf(c.t.dst, "x"), &g, NULL);
    gate_await(&g, 1);
    td_ok(tdict_record_stream(c.t.dst, s, err));
    begin_call(&c);
    assert_true(has_number(&w, td_leaf(c.t.dst, "x"), 100));
    gate_open(&g);
    if (!kernel_saw(&k, 100)) fail_msg("%s wrote before the kernel had read the bytes", kinds[i].name);
    end_call(&c);
    sync_stream(&w, s);
    kernel_end(&k);
    tdict_stream_destroy(w.c, s);
    close_things(&c.t);
  }
}
