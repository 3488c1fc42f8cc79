/* Tests failures of the NCCL table: absent ranks, asynchronous errors, `abort`, wrong arguments and driver errors. */
#include <sys/wait.h>

#include "device/gpu_help.h"
#include "services/comm/nccl/link.h"
#include "services/comm/nccl/ranks.h"
#include "support/threads.h"

enum { BYTES = 4096 };
static char host[MOST_RANKS * BYTES]; /* only one rank uses these bytes */
static int64_t limit_now;

/* The operations that wait for other ranks. If an operation of rank r needs a peer, it uses rank 1 - r. */
typedef tdict_status operation(rank *r, tdict_error *err);
static tdict_status finish(rank *r, tdict_status status, tdict_error *err) {
  return status == TDICT_OK ? r->t.finish(r->t.self, r->stream, limit_now, err) : status;
}
static tdict_status exchange(rank *r, tdict_error *err) {
  return r->t.exchange(r->t.self, host, host, BYTES, limit_now, err);
}
static tdict_status send_host(rank *r, tdict_error *err) {
  return r->t.send_host(r->t.self, host, BYTES, 1 - r->number, limit_now, err);
}
static tdict_status receive_host(rank *r, tdict_error *err) {
  return r->t.receive_host(r->t.self, host, BYTES, 1 - r->number, limit_now, err);
}
static tdict_status broadcast(rank *r, tdict_error *err) {
  return finish(r, r->t.broadcast(r->t.self, r->memory, BYTES, 0, r->stream, limit_now, err), err);
}
static tdict_status all_gather(rank *r, tdict_error *err) {
  return finish(r, r->t.all_gather(r->t.self, r->memory, r->memory, BYTES, r->stream, limit_now, err), err);
}
static tdict_status all_reduce(rank *r, tdict_error *err) {
  tdict_status status =
      r->t.all_reduce(r->t.self, r->memory, 16, TDICT_F32, TDICT_REDUCE_SUM, r->stream, limit_now, err);
  return finish(r, status, err);
}
static tdict_status send(rank *r, tdict_error *err) {
  return finish(r, r->t.send(r->t.self, r->memory, BYTES, 1 - r->number, r->stream, limit_now, err), err);
}
static tdict_status receive(rank *r, tdict_error *err) {
  return finish(r, r->t.receive(r->t.self, r->memory, BYTES, 1 - r->number, r->stream, limit_now, err), err);
}
static tdict_status group(rank *r, tdict_error *err) {
  const tdict_stream s = r->stream;
  tdict_status status = r->t.group_begin(r->t.self, err);
  if (status == TDICT_OK) status = r->t.send(r->t.self, r->memory, BYTES, 1 - r->number, s, limit_now, err);
  if (status == TDICT_OK) status = r->t.receive(r->t.self, r->memory + BYTES, 8, 1 - r->number, s, limit_now, err);
  if (status == TDICT_OK) status = r->t.group_end(r->t.self, s, limit_now, err);
  return finish(r, status, err);
}
static operation *const operations[] = {exchange,   send_host, receive_host, broadcast, all_gather,
                                        all_reduce, send,      receive,      group};
enum { NUM_OPERATIONS = sizeof operations / sizeof operations[0] };

static void abort_rank(rank *r) { r->t.abort(r->t.self); }
/* Checks that every operation of an aborted table returns an error at once. */
static void check_aborted(world *w, rank *r) {
  const int before = world_operations(w);
  for (int i = 0; i < NUM_OPERATIONS; i++)
    td_fails(TDICT_ECANCELLED, "the communicator was aborted", operations[i](r, err));
  td_fails(TDICT_ECANCELLED, "aborted", r->t.finish(r->t.self, r->stream, SECONDS(60), err));
  assert_int_equal(world_operations(w), before);
}

/* Rank 1 never makes the call, so rank 0 returns after the limit. Then both ranks abort. */
GPU_CASE(nccl_operations_wait_until_the_limit) {
  ranks_need(2);
  for (int i = 0; i < NUM_OPERATIONS; i++)
    for (int waits = 0; waits < world_num_waits(); waits++) {
      scoped_world w;
      world_open(&w, 2, i % 2, 4 * BYTES);
      if (w.fake) w.fake->aborts = 0;
      world_waits(&w, waits);
      w.absent = 1;
      limit_now = SECONDS(0.1);
      world_run(&w, operations[i]);
      world_has_failed(&w, TDICT_ETIMEDOUT, ":0: rank 0 of 2 waited ");
      assert_true(w.ranks[0].took_ns >= SECONDS(0.1) && w.ranks[0].took_ns < SECONDS(20));
      world_waits(&w, WAITS_ON_DEVICE);
      abort_rank(&w.ranks[0]);
      abort_rank(&w.ranks[0]);                         /* a second call does nothing */
      if (w.fake) assert_int_equal(w.fake->aborts, 2); /* the communicator and its parent */
      check_aborted(&w, &w.ranks[0]);
      abort_rank(&w.ranks[1]);
      check_aborted(&w, &w.ranks[1]);
    }
}

/* What interrupts the wait of rank 0: an error of NCCL, or another thread that aborts. */
typedef struct interruption {
  world *w;
  int operations; /* number of operations before the call */
  int error;      /* the error that NCCL reports; 0: another thread aborts */
} interruption;
static void *interrupt_soon(void *user) {
  const interruption *it = user;
  const int64_t begun = tdict_now_ns();
  while (it->w->fake && it->w->fake->operations == it->operations && tdict_now_ns() - begun < SECONDS(20)) usleep(1000);
  usleep(it->w->fake ? 3000 : 300000);
  if (it->error == 0)
    abort_rank(&it->w->ranks[0]);
  else
    it->w->fake->inject(0, it->error);
  return NULL;
}
static void interrupt_each(int error, tdict_status wanted, const char *text) {
  for (int i = 0; i < NUM_OPERATIONS; i++)
    for (int waits = 0; waits < world_num_waits(); waits++) {
      scoped_world w;
      world_open(&w, 2, i % 2, 4 * BYTES);
      interruption it = {&w, world_operations(&w), error};
      world_waits(&w, waits);
      if (w.fake) w.fake->last_error = "the peer is gone";
      w.absent = 1;
      limit_now = SECONDS(60);
      pthread_t thread = td_start(interrupt_soon, &it);
      world_run(&w, operations[i]);
      pthread_join(thread, NULL);
      world_has_failed(&w, wanted, text);
      assert_true(w.ranks[0].took_ns < SECONDS(20));
      assert_int_equal(w.ranks[0].err.native, error);
      world_waits(&w, WAITS_ON_DEVICE);
      abort_rank(&w.ranks[0]);
      abort_rank(&w.ranks[1]);
    }
}
SIM_CASE(nccl_operations_report_asynchronous_errors) {
  interrupt_each(6, TDICT_ELOST, "returned 6, fake remote error: the peer is gone");
  interrupt_each(2, TDICT_EDEVICE, "returned 2, fake system error: the peer is gone");
}
GPU_CASE(nccl_abort_ends_operations_of_other_threads) {
  ranks_need(2);
  interrupt_each(0, TDICT_ECANCELLED, ":0: the communicator was aborted");
}

/* An aborted operation never counts as finished, even if its work on the stream has finished. */
SIM_CASE(nccl_aborted_work_is_not_finished) {
  scoped_world w;
  world_open(&w, 2, false, 4 * BYTES);
  rank *r = &w.ranks[0];
  ranks_driver = r->gpu->driver;
  td_ok(r->t.broadcast(r->t.self, r->memory, BYTES, 0, r->stream, SECONDS(60), err));
  abort_rank(r);
  td_ok(tdict_stream_synchronize(r->context, r->stream, err)); /* the work has finished */
  td_fails(TDICT_ECANCELLED, "aborted", r->t.finish(r->t.self, r->stream, SECONDS(60), err));
  abort_rank(&w.ranks[1]);
}

/* Makes an NCCL function return an error. A group that is open on the thread must then be closed. */
SIM_CASE(nccl_operations_report_errors_of_the_call) {
  static const char *const names[NUM_OPERATIONS] = {"ncclAllGather", "ncclSend",      "ncclRecv",
                                                    "ncclBroadcast", "ncclAllGather", "ncclAllReduce",
                                                    "ncclSend",      "ncclRecv",      "ncclSend"};
  scoped_world w;
  world_open(&w, 2, false, 4 * BYTES);
  ranks_driver = w.ranks[0].gpu->driver;
  limit_now = SECONDS(60);
  for (int i = 0; i < NUM_OPERATIONS; i++) {
    char text[64];
    w.fake->call_result = 2 + i % 2;
    sprintf(text, "sim:0: %s returned %d, fake ", names[i], 2 + i % 2);
    td_fails(TDICT_EDEVICE, text, operations[i](&w.ranks[0], err));
    assert_int_equal(td_last_error.native, 2 + i % 2);
    assert_int_equal(w.fake->open_groups, 0);
  }
  w.fake->call_result = 0;
  for (int i = 0; i < 2; i++) abort_rank(&w.ranks[i]);
}

/* The device has not yet read the message that timed out, so the next message must not overwrite its bytes. */
SIM_CASE(nccl_host_messages_wait_for_earlier_ones) {
  scoped_world w;
  world_open(&w, 2, false, 4 * BYTES);
  rank *r = &w.ranks[0];
  const tdict_nccl_link *link = r->t.self;
  char before[BYTES];
  ranks_driver = r->gpu->driver;
  td_ok(tdict_sim_hold(r->context, err));
  td_fill_random(before, BYTES, 31);
  memcpy(host, before, BYTES);
  limit_now = SECONDS(0.5); /* a call must begin within the limit, or it would end the communicator */
  td_fails(TDICT_ETIMEDOUT, "rank 0 of 2 waited", send_host(r, err));
  for (int i = 0; i < BYTES; i++) host[i] = (char)~before[i];
  td_fails(TDICT_ETIMEDOUT, "rank 0 of 2 waited", send_host(r, err));
  assert_memory_equal(link->stage, before, BYTES);
  td_ok(tdict_sim_resume(r->context, err));
  for (int i = 0; i < 2; i++) abort_rank(&w.ranks[i]);
}

SIM_CASE(nccl_operations_check_ranks_and_groups) {
  scoped_world w;
  world_open(&w, 2, false, 4 * BYTES);
  rank *r = &w.ranks[0];
  void *self = r->t.self, *m = r->memory;
  const tdict_stream s = r->stream;
  const int before = w.fake->operations;
  const int64_t limit = SECONDS(60); /* never reached: the calls are refused at once */
  ranks_driver = r->gpu->driver;
  for (int32_t peer = -1; peer <= 2; peer += 3) {
    td_fails(TDICT_EINVAL, ", wanted 0 to 1", r->t.broadcast(self, m, 8, peer, s, limit, err));
    td_fails(TDICT_EINVAL, ", wanted 0 to 1", r->t.send(self, m, 8, peer, s, limit, err));
    td_fails(TDICT_EINVAL, ", wanted 0 to 1", r->t.receive(self, m, 8, peer, s, limit, err));
    td_fails(TDICT_EINVAL, ", wanted 0 to 1", r->t.send_host(self, host, 8, peer, limit, err));
    td_fails(TDICT_EINVAL, ", wanted 0 to 1", r->t.receive_host(self, host, 8, peer, limit, err));
  }
  td_fails(TDICT_EINVAL, "itself", r->t.send(self, m, 8, 0, s, limit, err)); /* would wait forever */
  td_fails(TDICT_EINVAL, "itself", r->t.receive(self, m, 8, 0, s, limit, err));
  td_fails(TDICT_EINVAL, "but not 0", r->t.send_host(self, host, 8, 0, limit, err));
  td_fails(TDICT_EINVAL, "but not 0", r->t.receive_host(self, host, 8, 0, limit, err));
  td_fails(TDICT_EINVAL, "no group has begun", r->t.group_end(self, s, limit, err));
  td_ok(r->t.group_begin(self, err));
  td_fails(TDICT_EINVAL, "a group has begun already", r->t.group_begin(self, err));
  td_fails(TDICT_EINVAL, ", wanted 0 to 1", r->t.send(self, m, 8, 2, s, limit, err));
  td_ok(r->t.group_end(self, s, limit, err));
  assert_int_equal(w.fake->operations, before);
}

/* If the other rank does not call `destroy`, `destroy` returns after the limit. */
SIM_CASE(nccl_destroy_waits_until_the_limit) {
  world w;
  world_prepare(&w, 2, false, BYTES);
  w.timeout_ns = SECONDS(2);
  world_do(&w, ranks_join);
  w.fake->aborts = 0;
  w.absent = 1;
  world_run(&w, ranks_destroy);
  assert_int_equal(w.ranks[0].status, TDICT_OK);
  assert_true(w.ranks[0].took_ns >= SECONDS(2) && w.ranks[0].took_ns < SECONDS(20));
  assert_int_equal(w.fake->aborts, 2);
  assert_int_equal(w.fake->comms, 2);
  ranks_driver = w.ranks[1].gpu->driver;
  abort_rank(&w.ranks[1]);
  w.ranks[1].t.destroy(w.ranks[1].t.self);
  world_end(&w);
}

/* A table of driver functions, some of which are replaced by functions that fail. */
static tdict_driver_ops broken;
static tdict_cu fail_query(tdict_driver *d, tdict_cu_event e) { return (void)d, (void)e, TDICT_CU_UNKNOWN; }
static tdict_cu fail_record(tdict_driver *d, tdict_cu_event e, tdict_cu_stream s) {
  return (void)d, (void)e, (void)s, TDICT_CU_UNKNOWN;
}
static tdict_cu fail_host(tdict_driver *d, void **out, size_t bytes, unsigned flags) {
  return (void)d, (void)out, (void)bytes, (void)flags, TDICT_CU_OUT_OF_MEMORY;
}
SIM_CASE(nccl_operations_report_driver_errors) {
  scoped_world w;
  world_open(&w, 1, false, 4 * BYTES);
  rank *r = &w.ranks[0];
  tdict_driver *d = ranks_driver = r->gpu->driver;
  const tdict_driver_ops *real = d->ops;
  limit_now = SECONDS(60);
  broken = *real;
  d->ops = &broken;
  broken.event_record = fail_record;
  td_fails(TDICT_EDEVICE, "cuEventRecord returned 999", exchange(r, err));
  broken = *real;
  broken.event_query = fail_query;
  td_fails(TDICT_EDEVICE, "cuEventQuery returned 999", broadcast(r, err));
  broken = *real;
  broken.host_alloc = fail_host;
  tdict_nccl_options o = ranks_options(r);
  td_ok(tdict_nccl_create_id(w.library, &o.id, err));
  td_fails(TDICT_ENOMEM, "cuMemHostAlloc", tdict_nccl_create_table(r->context, &o, &r->t, err));
  d->ops = real;
  td_ok(exchange(r, err)); /* the table still works */
}

/* Uses the table in a forked child, where the threads of NCCL do not exist. Returns 0 if all operations fail with
 * TDICT_EFORKED, and `abort` and `destroy` do nothing. */
static int use_in_child(const world *w, rank *r) {
  tdict_error e;
  for (int i = 0; i < NUM_OPERATIONS; i++)
    if (operations[i](r, &e) != TDICT_EFORKED) return 1 + i;
  abort_rank(r);
  r->t.destroy(r->t.self);
  return w->fake->aborts == 0 && w->fake->comms == 4 ? 0 : 100;
}
SIM_CASE(nccl_forked_children_leave_the_table_alone) {
  scoped_world w;
  int status = 0;
  world_open(&w, 2, false, 4 * BYTES);
  w.fake->aborts = 0;
  limit_now = SECONDS(60);
  const pid_t child = fork();
  if (child == 0) _exit(use_in_child(&w, &w.ranks[0]));
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
  world_do(&w, broadcast);
}
