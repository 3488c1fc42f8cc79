/* Tests services/comm/nccl/table.c: creating and destroying a table. */
#include <errno.h>

#include "device/gpu_help.h"
#include "services/comm/nccl/ranks.h"
#include "support/thread_name.h"
#include "support/threads.h"

SIM_CASE(nccl_table_describes_the_rank) {
  for (int size = 1; size <= MOST_RANKS; size++)
    for (int shared = 0; shared < 2; shared++) {
      world w;
      world_open(&w, size, shared, 4096);
      assert_int_equal(w.fake->comms, 2 * size); /* each rank has a communicator and its parent */
      for (int i = 0; i < size; i++) {
        const tdict_comm_table *t = &w.ranks[i].t;
        assert_int_equal(t->struct_size, sizeof *t);
        assert_string_equal(t->name, "nccl");
        assert_int_equal(t->rank, i);
        assert_int_equal(t->world_size, size);
        assert_true(tdict_device_equal(t->device, tdict_sim(shared ? i : 0)));
        assert_true(t->exchange && t->send_host && t->receive_host && t->broadcast && t->all_gather && t->can_reduce);
        assert_true(t->all_reduce && t->send && t->receive && t->group_begin && t->group_end && t->finish);
      }
      w.fake->aborts = 0;
      world_close(&w);
      assert_int_equal(w.fake->aborts, size); /* only the parents are aborted */
    }
}

/* Creates several tables of one rank in turn, each with a new id, on the default device of the context. */
SIM_CASE(nccl_table_uses_the_default_device) {
  world w;
  world_prepare(&w, 1, false, 4096);
  rank *r = &w.ranks[0];
  ranks_driver = r->gpu->driver;
  for (int i = 0; i < 3; i++) {
    tdict_nccl_options o = ranks_options(r);
    o.device = tdict_nccl_options_default().device;
    td_ok(tdict_nccl_create_id(w.library, &o.id, err));
    r->t.struct_size = sizeof r->t;
    td_ok(tdict_nccl_create_table(r->context, &o, &r->t, err));
    assert_true(tdict_device_equal(r->t.device, tdict_sim(0)));
    r->t.destroy(r->t.self);
  }
  world_end(&w);
}

SIM_CASE(nccl_table_checks_its_arguments) {
  world w;
  world_prepare(&w, 1, false, 4096);
  rank *r = &w.ranks[0];
  tdict_comm_table t = {.struct_size = sizeof t};
  tdict_nccl_options o = ranks_options(r);
  ranks_driver = r->gpu->driver;
  td_fails(TDICT_EINVAL, "context is NULL", tdict_nccl_create_table(NULL, &o, &t, err));
  td_fails(TDICT_EINVAL, "options is NULL", tdict_nccl_create_table(r->context, NULL, &t, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_nccl_create_table(r->context, &o, NULL, err));
  t.struct_size = 0;
  td_fails(TDICT_EINVAL, "table: struct_size is 0", tdict_nccl_create_table(r->context, &o, &t, err));
  t.struct_size = sizeof t;
  o.struct_size = 0;
  td_fails(TDICT_EINVAL, "struct_size is 0", tdict_nccl_create_table(r->context, &o, &t, err));
#define REFUSED(change, status, text) \
  o = ranks_options(r);               \
  change;                             \
  td_fails(status, text, tdict_nccl_create_table(r->context, &o, &t, err));
  REFUSED(o.world_size = 0, TDICT_EINVAL, "world_size is 0, wanted 1 or more")
  REFUSED(o.rank = -1, TDICT_EINVAL, "rank is -1, wanted 0 to 0")
  REFUSED(o.rank = 1, TDICT_EINVAL, "rank is 1, wanted 0 to 0")
  REFUSED(o.timeout_ns = -1, TDICT_EINVAL, "timeout_ns is -1")
  REFUSED(o.device = tdict_cpu(), TDICT_EINVAL, "")
  REFUSED(o.device = tdict_sim(1), TDICT_ENODEVICE, "")
  REFUSED(o.library = "/no/such/libnccl.so", TDICT_ENOTSUP, "no NCCL library: /no/such/libnccl.so")
  w.fake->init_result = 5;
  REFUSED((void)0, TDICT_EDEVICE, "sim:0: ncclCommInitRankConfig returned 5, fake invalid usage")
  assert_int_equal(td_last_error.native, 5);
  w.fake->init_result = 0;
  assert_null(t.self);
  assert_null(t.destroy);
  world_end(&w);
}

/* A program that was compiled with an older header passes a shorter table struct. */
SIM_CASE(nccl_table_writes_no_more_than_the_size) {
  world w;
  union {
    tdict_comm_table t;
    unsigned char bytes[sizeof(tdict_comm_table)];
  } u;
  world_prepare(&w, 1, false, 4096);
  tdict_nccl_options o = ranks_options(&w.ranks[0]);
  const size_t kept = sizeof(void *);
  ranks_driver = w.ranks[0].gpu->driver;
  memset(&u, 0xA5, sizeof u);
  u.t.struct_size = sizeof u - kept; /* without `destroy` */
  td_ok(tdict_nccl_create_table(w.ranks[0].context, &o, &u.t, err));
  assert_int_equal(u.t.struct_size, sizeof u - kept);
  assert_true(td_all_bytes(u.bytes + sizeof u - kept, kept, 0xA5));
  /* A second table is complete, so its `destroy` can also destroy the first. */
  td_ok(tdict_nccl_create_id(w.library, &o.id, err));
  tdict_comm_table whole = td_filled(tdict_comm_table, tdict_nccl_create_table(w.ranks[0].context, &o, &made, err));
  whole.destroy(u.t.self);
  whole.destroy(whole.self);
  world_end(&w);
}

GPU_CASE(nccl_table_waits_for_all_ranks_until_the_limit) {
  const int most = ranks_most();
  ranks_need(2);
  for (int size = 2; size <= most; size++)
    for (int absent = 0; absent < size; absent++) {
      world w;
      world_prepare(&w, size, absent % 2, 4096);
      w.absent = absent;
      w.timeout_ns = SECONDS(0.2);
      if (w.fake) w.fake->aborts = 0;
      world_run(&w, ranks_join);
      world_has_failed(&w, TDICT_ETIMEDOUT, "s for the other ranks in ncclCommInitRankConfig");
      for (int i = 0; i < size; i++) {
        if (i == absent) continue;
        /* less than the default limit; under memcheck, NCCL needs half a minute before it waits */
        assert_true(w.ranks[i].took_ns >= SECONDS(0.2) && w.ranks[i].took_ns < SECONDS(55));
        assert_null(w.ranks[i].t.self);
      }
      if (w.fake) assert_int_equal(w.fake->aborts, size - 1);
      world_end(&w);
    }
}

/* Joins 30 ms later than the previous rank. No rank may return before the last rank calls. */
static tdict_status join_late(rank *r, tdict_error *err) {
  usleep((unsigned)r->number * 30000);
  r->called_ns = tdict_now_ns();
  const tdict_status status = ranks_join(r, err);
  r->returned_ns = tdict_now_ns();
  return status;
}
GPU_CASE(nccl_ranks_may_join_late) {
  scoped_world w;
  const int most = ranks_most();
  world_prepare(&w, most, true, 4096);
  world_do(&w, join_late);
  for (int i = 0; i < most - 1; i++) assert_true(w.ranks[i].returned_ns >= w.ranks[most - 1].called_ns);
}

/* Joins as rank 0, whatever the rank's number. NCCL refuses the second rank 0; the first waits until the limit. */
static tdict_status join_as_zero(rank *r, tdict_error *err) {
  tdict_nccl_options o = ranks_options(r);
  o.rank = 0;
  o.timeout_ns = SECONDS(0.5);
  r->t.struct_size = sizeof r->t;
  return tdict_nccl_create_table(r->context, &o, &r->t, err);
}
static void *fail_soon(void *user) {
  const world *w = user;
  usleep(50000);
  w->fake->inject(0, 6);
  return NULL;
}
SIM_CASE(nccl_table_reports_errors_of_the_start) {
  world w;
  world_prepare(&w, 2, false, 4096);
  world_run(&w, join_as_zero);
  const bool first_waits = w.ranks[0].status == TDICT_ETIMEDOUT;
  assert_int_equal(w.ranks[first_waits ? 0 : 1].status, TDICT_ETIMEDOUT);
  assert_int_equal(w.ranks[first_waits ? 1 : 0].status, TDICT_EDEVICE);
  assert_int_equal(w.ranks[first_waits ? 1 : 0].err.native, 4);
  td_ok(tdict_nccl_create_id(w.library, &w.id, err));
  w.absent = 1;
  pthread_t thread = td_start(fail_soon, &w);
  world_run(&w, ranks_join);
  pthread_join(thread, NULL);
  world_has_failed(&w, TDICT_ELOST, "sim:0: ncclCommInitRankConfig returned 6, fake remote error");
  assert_true(w.ranks[0].took_ns < SECONDS(20));
  world_end(&w);
}

static bool has_no_threads;
int __real_tdict_thread_create(pthread_t *out, void *(*run)(void *argument), void *argument);
int __wrap_tdict_thread_create(pthread_t *out, void *(*run)(void *argument), void *argument);
int __wrap_tdict_thread_create(pthread_t *out, void *(*run)(void *argument), void *argument) {
  return has_no_threads ? EAGAIN : __real_tdict_thread_create(out, run, argument);
}

/* After each failure, no communicator is left, and a later call succeeds. */
SIM_CASE(nccl_table_survives_failures_after_the_start) {
  world w;
  world_prepare(&w, 1, false, 4096);
  rank *r = &w.ranks[0];
  tdict_nccl_options o = ranks_options(r);
  ranks_driver = r->gpu->driver;
  for (int way = 0; way < 3; way++) {
    w.fake->split_result = way == 0 ? 4 : 0;
    has_no_threads = way == 1;
    r->t.struct_size = sizeof r->t;
    td_ok(tdict_nccl_create_id(w.library, &o.id, err));
    if (way == 0)
      td_fails(TDICT_EDEVICE, "ncclCommSplit returned 4, fake invalid argument",
               tdict_nccl_create_table(r->context, &o, &r->t, err));
    else if (way == 1)
      td_fails(TDICT_ENOMEM, "cannot start a thread", tdict_nccl_create_table(r->context, &o, &r->t, err));
    else
      td_ok(tdict_nccl_create_table(r->context, &o, &r->t, err));
    assert_int_equal(w.fake->comms, way == 2 ? 2 : 0);
  }
  r->t.destroy(r->t.self);
  world_end(&w);
}

/* A destroyed table has returned everything that it took: streams and events to the pool, memory to the driver. */
SIM_CASE(nccl_table_leaves_nothing) {
  world w;
  tdict_driver_sim_count before, with, after;
  world_open(&w, 1, false, 4096); /* fills the pools */
  world_do(&w, ranks_destroy);
  rank *r = &w.ranks[0];
  tdict_driver *d = r->gpu->driver;
  d->ops->stream_synchronize(d, r->gpu->free_stream);
  tdict_driver_sim_counts(d, 0, &before);
  td_ok(tdict_nccl_create_id(w.library, &w.id, err));
  world_do(&w, ranks_join);
  tdict_driver_sim_counts(d, 0, &with);
  assert_int_equal(with.pinned_bytes - before.pinned_bytes, 1 << 20); /* as tdict/comm_nccl.h says */
  assert_int_equal(with.num_allocations, before.num_allocations);
  world_do(&w, ranks_destroy);
  d->ops->stream_synchronize(d, r->gpu->free_stream);
  tdict_driver_sim_counts(d, 0, &after);
  assert_int_equal(after.pinned_bytes, before.pinned_bytes);
  assert_int_equal(after.num_allocations, before.num_allocations);
  assert_int_equal(after.num_streams, before.num_streams);
  assert_int_equal(after.num_events, before.num_events);
  world_end(&w);
}

/* Each table has a thread that watches the time limits. */
SIM_CASE(nccl_thread_has_a_name) {
  world w;
  world_open(&w, 2, false, 4096);
  td_rest();
  assert_int_equal(td_threads_named("tdict-nccl"), 2);
  world_do(&w, ranks_destroy);
  world_end(&w);
}
