/* Tests the order of index copies on a device relative to transfers, recorded uses, and the program's own work. */
#include "core/ops/device/rows.h"
#include "support/threads.h"

/* tdict_index_get() returns while its stream is blocked. A read of the result and a write to the source must wait. */
SIM_CASE(device_index_get_on_stream_is_ordered) {
  scoped_place w = place_open(2);
  const place host = host_of(w);
  const int64_t list[] = {9, 0, 33};
  scoped_tree td = rows_tree(&w, 40, 1), other = rows_tree(&host, 40, 11);
  tdict_tree *out = NULL;
  blocked b;
  block(&w, &b);
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 3)), TD_ON(b.s), &out, err));
  scoped_tree found = pass_gate(&w, &b, out, out, other, td);
  for (int i = 0; i < 3; i++) check_row(&w, td_leaf(found, "n.c"), i, 40, 3, list[i]);
  check_row(&w, td_leaf(td, "n.c"), 9, 40, 13, 9);
  end_blocked(&w, &b);
}

/* The memory of a released tree is not reused while the launch may still access it. */
SIM_CASE(device_index_on_stream_keeps_memory) {
  scoped_place w = place_open(2);
  blocked b;
  const int64_t list[] = {9, 0, 33};
  tdict_tree *td = rows_tree(&w, 40, 1), *out = NULL;
  void *places[2];
  block(&w, &b);
  const tdict_run options = td_with(tdict_run, stream = b.s);
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 3)), &options, &out, err));
  places[0] = td_leaf(td, "a")->data;
  places[1] = td_leaf(out, "a")->data;
  td_release(td, out);
  for (int i = 0; i < 4; i++) {
    scoped_tensor t = rows_on(&w, i < 2 ? 40 : 3, 1);
    assert_true(t->data != places[0] && t->data != places[1]);
  }
  unblock(&b);
  end_blocked(&w, &b);
}

/* On a stream, a call that writes rows queues a launch and returns. A later read of the destination waits for the
 * launch. */
SIM_CASE(device_index_set_on_stream_is_ordered) {
  for (int into = 0; into < 2; into++) {
    scoped_place w = place_open(2);
    blocked b;
    const int64_t list[] = {9, 0, 33};
    scoped_tree td = rows_tree(&w, 40, 1), few = rows_tree(&w, 3, 21);
    tdict_tree *read = into ? few : td;
    const tdict_indices *index = TDICT_INDEX(TDICT_LIST(list, 3));
    tdict_transfer_options o = threads(1);
    block(&w, &b);
    const tdict_run options = td_with(tdict_run, stream = b.s);
    td_ok(into ? tdict_index_into(NULL, few, td, index, &options, err)
               : tdict_index_set(NULL, td, index, few, &options, err));
    tdict_future *f = move_async(&w, read, tdict_cpu(), &o);
    check_pending(f);
    unblock(&b);
    scoped_tree out = finish(f);
    for (int i = 0; i < 3; i++) {
      if (into)
        check_row(&w, td_leaf(out, "e"), i, 40, 5, list[i]);
      else
        check_row(&w, td_leaf(out, "e"), list[i], 3, 25, i);
    }
    end_blocked(&w, &b);
  }
}

/* A stream of sim:0 that is blocked by a kernel on sim:1. Other streams of sim:0 are not blocked. */
typedef struct stuck {
  gate gate;
  kernel k;
  tdict_stream s, other;
  tdict_tensor *t;
} stuck;
static void stick(const place *w, stuck *b) {
  tdict_gpu *gpu;
  tdict_gpu_scope scope;
  tdict_cu_event event;
  memset(b, 0, sizeof *b);
  td_ok(tdict_devices_gpu(tdict_context_devices(w->c), tdict_sim(1), &gpu, err));
  td_ok(tdict_stream_create(w->c, tdict_sim(1), &b->other, err));
  b->s = new_stream(w);
  b->t = new_bytes(8, tdict_device_memory(w->c, tdict_sim(1)));
  kernel_launch(&b->k, b->other, b->t, &b->gate, NULL);
  td_ok(tdict_gpu_enter(gpu, &scope, err));
  td_ok(tdict_gpu_take_event(gpu, &event, err));
  td_ok(tdict_gpu_record(gpu, event, b->other.handle, err));
  td_ok(tdict_gpu_stream_wait(w->gpu, b->s.handle, event, err));
  tdict_gpu_give_event(gpu, event);
  tdict_gpu_leave(gpu, &scope);
  gate_await(&b->gate, 1);
}
static void end_stuck(const place *w, stuck *b) {
  sync_stream(w, b->s);
  tdict_stream_destroy(w->c, b->s);
  tdict_stream_destroy(w->c, b->other);
  tdict_tensor_release(b->t);
  kernel_end(&b->k);
}
static void *open_later(void *user) {
  td_rest();
  gate_open(user);
  return NULL;
}
static tdict_transfer_options after(tdict_stream s) {
  return td_with(tdict_transfer_options, num_threads = 1, after = s);
}

/* A launch waits for a transfer that writes its source. */
SIM_CASE(device_index_on_stream_waits_for_transfers) {
  scoped_place w = place_sim(2, 0, 2);
  const place host = host_of(w);
  const int64_t list[] = {9, 0, 33};
  scoped_tree td = rows_tree(&w, 40, 1), fresh = rows_tree(&host, 40, 11), few = rows_tree(&w, 3, 21);
  TD_STREAM(s, w.c, w.device);
  stuck b;
  stick(&w, &b);
  const tdict_transfer_options o = after(b.s);
  tdict_future *f = copy_async(&w, fresh, td, &o);
  const tdict_run options = td_with(tdict_run, stream = s);
  td_ok(tdict_index_into(NULL, few, td, TDICT_INDEX(TDICT_LIST(list, 3)), &options, err));
  check_pending(f);
  check_row(&w, td_leaf(few, "a"), 1, 3, 21, 1); /* the launch has not run */
  gate_open(&b.gate);
  sync_stream(&w, s);
  for (int i = 0; i < 3; i++) check_row(&w, td_leaf(few, "a"), i, 40, 11, list[i]);
  finish_copy(f);
  end_stuck(&w, &b);
}

/* A launch waits for a use that the program recorded for its destination. */
SIM_CASE(device_index_on_stream_waits_for_uses) {
  scoped_place w = place_sim(2, 0, 2);
  const int64_t list[] = {9, 0, 33};
  scoped_tree td = rows_tree(&w, 40, 1), few = rows_tree(&w, 3, 21);
  TD_STREAM(s, w.c, w.device);
  scoped_tensor seen = new_tensor(TDICT_I32, 2, (const int64_t[]){3, 6}, w.pinned);
  tdict_gpu_scope scope;
  stuck b;
  stick(&w, &b);
  td_ok(tdict_gpu_enter(w.gpu, &scope, err));
  assert_int_equal(w.d->ops->copy_d2h_async(w.d, seen->data, td_leaf(few, "a")->data, 72, b.s.handle), 0);
  tdict_gpu_leave(w.gpu, &scope);
  td_ok(tdict_record_stream(few, b.s, err));
  const tdict_run options = td_with(tdict_run, stream = s);
  td_ok(tdict_index_into(NULL, few, td, TDICT_INDEX(TDICT_LIST(list, 3)), &options, err));
  td_rest();
  check_row(&w, td_leaf(few, "a"), 1, 3, 21, 1); /* the launch has not run */
  gate_open(&b.gate);
  sync_stream(&w, s);
  end_stuck(&w, &b);
  check_row(&w, seen, 1, 3, 21, 1); /* the old bytes */
  for (int i = 0; i < 3; i++) check_row(&w, td_leaf(few, "a"), i, 40, 1, list[i]);
}

/* Index calls without a stream wait for a transfer that writes their source or reads their destination. */
SIM_CASE(device_index_waits_for_transfers) {
  for (int writes = 0; writes < 2; writes++) {
    scoped_place w = place_sim(2, 0, 2);
    const place host = host_of(w);
    const int64_t list[] = {9, 0, 33};
    scoped_tree td = rows_tree(&w, 40, 1), fresh = rows_tree(&host, 40, 31), few = rows_tree(&w, 3, 21), out = NULL;
    stuck b;
    stick(&w, &b);
    const tdict_transfer_options o = after(b.s);
    tdict_future *f = writes ? move_async(&w, td, tdict_cpu(), &o) : copy_async(&w, fresh, td, &o);
    pthread_t opener = td_start(open_later, &b.gate);
    if (writes)
      td_ok(tdict_index_set(NULL, td, TDICT_INDEX(TDICT_LIST(list, 3)), few, NULL, err));
    else
      td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 3)), NULL, &out, err));
    assert_int_equal(pthread_join(opener, NULL), 0);
    scoped_tree result = finish(f);
    for (int i = 0; i < 3; i++) {
      if (writes)
        check_row(&w, td_leaf(result, "e"), list[i], 40, 5, list[i]); /* the old rows */
      else
        check_row(&w, td_leaf(out, "e"), i, 40, 35, list[i]);
    }
    if (writes) check_row(&w, td_leaf(td, "e"), 9, 3, 25, 0);
    end_stuck(&w, &b);
  }
}

/* If the allocation for recording a use fails, the call waits for the launch. The device is slow, so that the case
 * would notice a call that does not wait. */
SIM_CASE(device_index_waits_without_memory) {
  tdict_context_options options = place_options(2);
  options.sim = td_options(tdict_sim_options, latency_ns = 3000000);
  scoped_place w = place_over(&options);
  const int64_t list[] = {9, 0, 33};
  scoped_tree td = rows_tree(&w, 40, 1), few = rows_tree(&w, 3, 21);
  TD_STREAM(stream, w.c, w.device);
  const tdict_run o = td_with(tdict_run, stream = stream);
  int num_waits = 0;
  TD_SWEEP(s) {
    number_rows(&w, few, 21);
    const tdict_indices *index = TDICT_INDEX(TDICT_LIST(list, 3));
    if (td_sweep_call(s, tdict_index_into(NULL, few, td, index, &o, err)) == TDICT_OK && s.failed) {
      for (int i = 0; i < 3; i++) check_row(&w, td_leaf(few, "e"), i, 40, 5, list[i]);
      num_waits++;
    }
    sync_stream(&w, stream);
  }
  assert_true(num_waits > 0);
}

/* A kernel of the program writes a list and a mask on the stream. Index calls must read them after this kernel. */
SIM_CASE(device_index_lists_are_ordered) {
  scoped_place w = place_sim(2, 0, 1);
  const int64_t positions[] = {9, 0, 33}, others[] = {1, 2, 3}, three = 3, forty = 40;
  unsigned char bits[40] = {0};
  bits[5] = bits[39] = 1;
  scoped_tree td = rows_tree(&w, 40, 1), few = rows_tree(&w, 3, 21), by_mask = NULL;
  scoped_tensor list = new_tensor(TDICT_I64, 1, &three, w.memory), mask = new_tensor(TDICT_BOOL, 1, &forty, w.memory);
  TD_STREAM(s, w.c, w.device);
  const tdict_run o = td_with(tdict_run, stream = s);
  kernel k[2];
  put_bytes(&w, list, others);
  put_bytes(&w, mask, (unsigned char[40]){0});
  td_ok(tdict_sim_hold(w.c, err));
  kernel_launch(&k[0], s, list, NULL, positions);
  kernel_launch(&k[1], s, mask, NULL, bits);
  pthread_t thread = td_start(resume_later, &w);
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_MASK(mask)), &o, &by_mask, err));
  td_ok(tdict_index_into(NULL, few, td, TDICT_INDEX(TDICT_LIST_OF(list)), &o, err));
  pthread_join(thread, NULL);
  sync_stream(&w, s);
  assert_int_equal(tdict_batch_size(by_mask)[0], 2);
  check_row(&w, td_leaf(by_mask, "b"), 1, 40, 2, 39);
  for (int i = 0; i < 3; i++) check_row(&w, td_leaf(few, "e"), i, 40, 5, positions[i]);
  kernel_end(&k[0]);
  kernel_end(&k[1]);
}

/* A call on one stream writes a list that a call on another stream reads. The second must wait for the first. */
SIM_CASE(device_index_waits_for_writes_of_its_list) {
  scoped_place w = place_sim(2, 0, 2);
  const int64_t before[] = {1, 2, 3}, later[] = {9, 0, 33}, three = 3;
  scoped_tree td = rows_tree(&w, 40, 1), few = rows_tree(&w, 3, 21), lists = TREE(3), fresh = TREE(3);
  scoped_tensor list = new_tensor(TDICT_I64, 1, &three, w.memory);
  TD_STREAM(s, w.c, w.device);
  const tdict_run reads = td_with(tdict_run, stream = s);
  stuck b;
  put_bytes(&w, list, before);
  td_ok(tdict_set(lists, "list", list, err));
  td_put(fresh, "list", new_tensor(TDICT_I64, 1, &three, w.memory));
  put_bytes(&w, td_leaf(fresh, "list"), later);
  stick(&w, &b);
  const tdict_run writes = td_with(tdict_run, stream = b.s);
  td_ok(tdict_index_set(NULL, lists, TDICT_INDEX(TDICT_RANGE(0, 3, 1)), fresh, &writes, err));
  pthread_t opener = td_start(open_later, &b.gate);
  td_ok(tdict_index_into(NULL, few, td, TDICT_INDEX(TDICT_LIST_OF(list)), &reads, err));
  assert_int_equal(pthread_join(opener, NULL), 0);
  for (int i = 0; i < 3; i++) check_row(&w, td_leaf(few, "e"), i, 40, 5, later[i]);
  sync_stream(&w, b.s);
  end_stuck(&w, &b);
}

enum { NUM_LEAVES = 64, NUM_ITEMS = 3, MOST_POLLS = 8 };

/* Makes a tree with many tensors on the device, each in a storage of its own. */
static tdict_tree *many_leaves(const place *w) {
  tdict_tree *td = TREE(3);
  for (int i = 0; i < NUM_LEAVES; i++) td_put(td, td_text("k%d", i), rows_on(w, 3, (uint64_t)i));
  return td;
}
static int count_uses(tdict_tree *td) { return td_leaf(td, "k0")->storage->num_uses; }

/* If all leaves of a tree are in one storage, each launch adds a single use. */
SIM_CASE(device_ops_on_stream_add_one_use) {
  scoped_place w = place_open(2);
  tdict_tree *separate = many_leaves(&w), *items[NUM_ITEMS], *out[3];
  const int64_t list[] = {2, 0};
  blocked b;
  for (int i = 0; i < NUM_ITEMS; i++) td_ok(tdict_clone_deep(separate, NULL, &items[i], err));
  assert_ptr_equal(td_leaf(items[0], "k0")->storage, td_leaf(items[0], "k63")->storage);
  block(&w, &b);
  const tdict_run index_options = td_with(tdict_run, stream = b.s);
  tdict_run o = td_with(tdict_run, stream = b.s);
  td_ok(tdict_stack((const tdict_tree *const *)items, NUM_ITEMS, NULL, &o, &out[0], err));
  for (int i = 0; i < NUM_ITEMS; i++) assert_int_equal(count_uses(items[i]), 1);
  assert_int_equal(count_uses(out[0]), 1);
  td_ok(tdict_index_get(NULL, items[0], TDICT_INDEX(TDICT_LIST(list, 2)), &index_options, &out[1], err));
  assert_int_equal(count_uses(items[0]), 2);
  assert_int_equal(count_uses(out[1]), 1);
  td_ok(tdict_clone_deep(items[1], TD_ON(b.s), &out[2], err));
  assert_int_equal(count_uses(items[1]), 2);
  td_ok(tdict_fill(items[1], NULL, 7, TD_ON(b.s), err));
  assert_int_equal(count_uses(items[1]), 1); /* the fill runs after the reads, so its use replaces their uses */
  unblock(&b);
  end_blocked(&w, &b);
  check_row(&w, td_leaf(out[0], "k63"), 3 + 1, 3, 63, 1);
  check_row(&w, td_leaf(out[1], "k9"), 0, 3, 9, 2);
  check_row(&w, td_leaf(out[2], "k5"), 2, 3, 5, 2);
  for (int i = 0; i < 3; i++) tdict_release(out[i]);
  for (int i = 0; i < NUM_ITEMS; i++) tdict_release(items[i]);
  tdict_release(separate);
}

static int num_polls;
static tdict_cu count_poll(tdict_driver *d, tdict_cu_event event) {
  num_polls++;
  return real_ops->event_query(d, event);
}

/* Each leaf has its own storage, but the number of event queries must not grow with the number of leaves, whether uses
 * are pending or complete. */
SIM_CASE(device_ops_on_stream_poll_seldom) {
  scoped_place w = place_open(2);
  tdict_tree *td = many_leaves(&w), *out[3];
  const int64_t list[] = {2, 0};
  blocked b;
  shim s;
  block(&w, &b);
  const tdict_run o = td_with(tdict_run, stream = b.s);
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 2)), &o, &out[0], err));
  begin_counting(&s, &w);
  s.ops.event_query = count_poll;
  num_polls = 0;
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 2)), &o, &out[1], err));
  assert_true(num_polls <= MOST_POLLS);
  unblock(&b);
  sync_stream(&w, b.s);
  td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 2)), NULL, &out[2], err));
  assert_in_range(num_polls, 1, 2 * MOST_POLLS);
  shim_end(&s, w.d);
  end_blocked(&w, &b);
  check_row(&w, td_leaf(out[2], "k9"), 0, 3, 9, 2);
  for (int i = 0; i < 3; i++) tdict_release(out[i]);
  tdict_release(td);
}

static struct { int waits, records, processes; } num_calls;
static tdict_cu count_wait(tdict_driver *d, tdict_cu_stream stream, tdict_cu_event event) {
  num_calls.waits++;
  return real_ops->stream_wait_event(d, stream, event);
}
static tdict_cu count_record(tdict_driver *d, tdict_cu_event event, tdict_cu_stream stream) {
  num_calls.records++;
  return real_ops->event_record(d, event, stream);
}
pid_t __real_getpid(void);
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void) {
  num_calls.processes++;
  return __real_getpid();
}

/* Many calls are queued on one stream, and none has run. Each leaf has its own storage, but the number of driver and
 * getpid() calls per call must not grow with the number of leaves. */
SIM_CASE(device_ops_on_stream_in_a_row_poll_seldom) {
  enum { NUM_ROUNDS = 10, MOST = NUM_LEAVES / 2 };
  scoped_place w = place_open(2);
  tdict_tree *td = many_leaves(&w), *target = many_leaves(&w), *out[NUM_ROUNDS];
  const int64_t list[] = {2, 0, 1};
  blocked b;
  shim s;
  block(&w, &b);
  const tdict_run o = td_with(tdict_run, stream = b.s);
  begin_counting(&s, &w);
  s.ops.event_query = count_poll;
  s.ops.stream_wait_event = count_wait;
  s.ops.event_record = count_record;
  for (int i = 0; i < 3 * NUM_ROUNDS; i++) {
    num_polls = num_launches = 0;
    memset(&num_calls, 0, sizeof num_calls);
    if (i % 3 == 0)
      td_ok(tdict_index_into(NULL, target, td, TDICT_INDEX(TDICT_LIST(list, 3)), &o, err));
    else if (i % 3 == 1)
      td_ok(tdict_index_get(NULL, td, TDICT_INDEX(TDICT_LIST(list, 3)), &o, &out[i / 3], err));
    else
      td_ok(tdict_fill(target, NULL, 7, TD_ON(b.s), err));
    assert_int_equal(num_launches, 1);
    assert_true(num_polls < MOST && num_calls.waits < MOST && num_calls.records < MOST);
    assert_in_range(num_calls.processes, 1, MOST);
    assert_int_equal(count_uses(target), 1);
  }
  shim_end(&s, w.d);
  unblock(&b);
  end_blocked(&w, &b);
  check_row(&w, td_leaf(out[NUM_ROUNDS - 1], "k9"), 0, 3, 9, 2);
  for (int i = 0; i < NUM_ROUNDS; i++) tdict_release(out[i]);
  tdict_release(target);
  tdict_release(td);
}
