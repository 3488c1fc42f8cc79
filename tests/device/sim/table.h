/* Helpers for tests of the simulated driver: a driver with a current context of device 0, checked calls of its table,
 * and functions for tdict_sim_launch(). The helpers use no part of tdict above the driver's table. */
#ifndef TDICT_TESTS_DEVICE_SIM_TABLE_H
#define TDICT_TESTS_DEVICE_SIM_TABLE_H

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/base/clock.h"
#include "device/sim/driver.h"
#include "support/gate.h"
#include "support/test.h"

/* Calls an entry and checks that it returns TDICT_CU_<wanted>. A driver named `d` must be in scope. */
#define CU(wanted, entry, ...) cu_check(d, d->ops->entry(d, __VA_ARGS__), TDICT_CU_##wanted, #entry, __LINE__)
/* Makes a copy on the legacy stream, and waits for it. */
#define CU_NOW(wanted, entry, ...) \
  cu_check(d, cu_finish(d, d->ops->entry(d, __VA_ARGS__, NULL)), TDICT_CU_##wanted, #entry, __LINE__)
static inline tdict_cu cu_finish(tdict_driver *d, tdict_cu result) {
  return result == TDICT_CU_SUCCESS ? d->ops->stream_synchronize(d, NULL) : result;
}
static inline void cu_check(tdict_driver *d, tdict_cu result, tdict_cu wanted, const char *entry, int line) {
  if (result == wanted) return;
  const char *name = "?", *text = "?";
  d->ops->error_text(d, result, &name, &text);
  fail_msg("line %d: %s returned %d (%s), wanted %d", line, entry, result, name, wanted);
}

static inline tdict_sim_options sim_options(bool held) {
  return td_with(tdict_sim_options, memory_bytes = (size_t)256 << 20, held = held);
}

/* Opens a driver and makes the context of its device 0 current. */
static inline tdict_driver *open_table(const tdict_sim_options *options) {
  tdict_cu_context context;
  tdict_driver *d = td_made(driver, tdict_driver_sim_open(options, &made, err));
  CU(SUCCESS, ctx_retain, 0, &context);
  CU(SUCCESS, ctx_push, context);
  return d;
}
static inline tdict_driver *open_with(bool held) {
  tdict_sim_options o = sim_options(held);
  return open_table(&o);
}
static inline tdict_driver *open_plain(void) { return open_with(false); }
static inline tdict_driver *open_held(void) { return open_with(true); }
static inline void close_table(tdict_driver *d) {
  tdict_cu_context context;
  CU(SUCCESS, ctx_pop, &context);
  CU(SUCCESS, ctx_release, 0);
  tdict_driver_release(d);
}
TD_DECLARE_SCOPED(table, tdict_driver, close_table)
#define scoped_table TD_SCOPED_NAMED(table)

static inline tdict_cu_stream make_stream(tdict_driver *d, unsigned flags) {
  tdict_cu_stream s = NULL;
  CU(SUCCESS, stream_create, &s, flags);
  return s;
}
static inline tdict_cu_event make_event(tdict_driver *d) {
  tdict_cu_event e = NULL;
  CU(SUCCESS, event_create, &e, TDICT_CU_EVENT_DEFAULT);
  return e;
}
static inline void *make_device(tdict_driver *d, size_t bytes) {
  void *p = NULL;
  CU(SUCCESS, mem_alloc, &p, bytes);
  return p;
}
/* Allocates pinned memory filled with random bytes, or with 0xA5 if the seed is 0. */
static inline unsigned char *make_pinned(tdict_driver *d, size_t bytes, uint64_t seed) {
  void *p = NULL;
  CU(SUCCESS, host_alloc, &p, bytes, TDICT_CU_HOST_PORTABLE);
  memset(p, 0xA5, bytes);
  if (seed) td_fill_random(p, bytes, seed);
  return p;
}
static inline unsigned char *make_pageable(size_t bytes, uint64_t seed) {
  unsigned char *p = td_alloc(bytes);
  memset(p, 0xA5, bytes);
  if (seed) td_fill_random(p, bytes, seed);
  return p;
}
static inline tdict_stream public_stream(tdict_cu_stream s) { return (tdict_stream){tdict_sim(0), s}; }

/* Blocks the stream, and the engine that runs functions on its device, until open_gate() is called. */
static inline void block_stream(tdict_cu_stream s, gate *g) {
  atomic_init(&g->entered, false);
  atomic_init(&g->open, false);
  atomic_init(&g->left, false);
  td_ok(tdict_sim_launch(public_stream(s), pass_gate, g, err));
}

/* The order in which functions on streams have run. */
typedef struct trace {
  atomic_int count;
  int order[64];
} trace;
typedef struct trace_entry {
  trace *trace;
  int id;
} trace_entry;
static inline void note(void *user) {
  trace_entry *e = user;
  int n = atomic_fetch_add(&e->trace->count, 1);
  e->trace->order[n] = e->id;
}

#endif
