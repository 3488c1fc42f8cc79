/* How many calls of the driver and of NCCL the operations make. The test counts them in front of the simulated
 * driver. */
#include "core/base/error.h"
#include "services/comm/nccl/ranks.h"

enum { HEADER_BYTES = 120, BYTES = 1 << 16 };

/* Calls of the thread. */
typedef struct driver_calls {
  int pushes, copies_in, copies_out, records, queries;
} driver_calls;
static _Thread_local driver_calls calls;
static const tdict_driver_ops *real;

static tdict_cu counting_push(tdict_driver *d, tdict_cu_context context) {
  calls.pushes++;
  return real->ctx_push(d, context);
}
static tdict_cu counting_copy_in(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  calls.copies_in++;
  return real->copy_h2d_async(d, dst, src, bytes, s);
}
static tdict_cu counting_copy_out(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  calls.copies_out++;
  return real->copy_d2h_async(d, dst, src, bytes, s);
}
static tdict_cu counting_record(tdict_driver *d, tdict_cu_event e, tdict_cu_stream s) {
  calls.records++;
  return real->event_record(d, e, s);
}
static tdict_cu counting_query(tdict_driver *d, tdict_cu_event e) {
  calls.queries++;
  return real->event_query(d, e);
}

static driver_calls found[MOST_RANKS];

static tdict_status exchange_header(rank *r, tdict_error *err) {
  char mine[HEADER_BYTES], all[MOST_RANKS * HEADER_BYTES];
  memset(mine, 'a' + r->number, sizeof mine);
  calls = (driver_calls){0};
  tdict_status status = r->t.exchange(r->t.self, mine, all, sizeof mine, SECONDS(60), err);
  found[r->number] = calls;
  for (int i = 0; i < r->w->size && status == TDICT_OK; i++)
    if (all[i * HEADER_BYTES] != 'a' + i || all[(i + 1) * HEADER_BYTES - 1] != 'a' + i)
      status = tdict_fail(err, TDICT_EFORMAT, "the header of rank %d is wrong", i);
  return status;
}

static tdict_status broadcast_block(rank *r, tdict_error *err) {
  calls = (driver_calls){0};
  tdict_status status = r->t.broadcast(r->t.self, r->memory, BYTES, 0, r->stream, SECONDS(60), err);
  if (status == TDICT_OK) status = r->t.finish(r->t.self, r->stream, SECONDS(60), err);
  found[r->number] = calls;
  return status;
}

SIM_CASE(nccl_operations_make_few_driver_calls) {
  static tdict_driver_ops counting;
  scoped_world w;
  world_open(&w, 3, true, BYTES);
  tdict_driver *driver = w.ranks[0].gpu->driver;
  real = driver->ops;
  counting = *real;
  counting.ctx_push = counting_push;
  counting.copy_h2d_async = counting_copy_in;
  counting.copy_d2h_async = counting_copy_out;
  counting.event_record = counting_record;
  counting.event_query = counting_query;
  driver->ops = &counting;
  const int operations = world_operations(&w);
  world_do(&w, exchange_header);
  for (int i = 0; i < w.size; i++) {
    assert_int_equal(found[i].pushes, 1);
    assert_int_equal(found[i].copies_in + found[i].copies_out, 0);
    assert_int_equal(found[i].records, 1);
    assert_true(found[i].queries > 0);
  }
  assert_int_equal(world_operations(&w) - operations, w.size);
  world_do(&w, broadcast_block);
  for (int i = 0; i < w.size; i++) {
    assert_int_equal(found[i].pushes, 2);
    assert_int_equal(found[i].copies_in + found[i].copies_out, 0);
    assert_int_equal(found[i].records, 1);
  }
  assert_int_equal(world_operations(&w) - operations, 2 * w.size);
  driver->ops = real;
}
