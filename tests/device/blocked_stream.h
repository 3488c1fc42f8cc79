/* A blocking stream on the first of two simulated devices. The stream waits until a gate opens, and the legacy stream
 * waits for this stream. The function at the gate runs on the second device, so no engine of the first device is busy.
 * Thread rule: the same as for the context. */
#ifndef TDICT_TESTS_DEVICE_BLOCKED_STREAM_H
#define TDICT_TESTS_DEVICE_BLOCKED_STREAM_H

#include "device/gpu_help.h"
#include "support/gate.h"
#include "support/threads.h"

typedef struct blocked_stream {
  gate gate;
  tdict_stream other;
  tdict_cu_stream stream;
  pthread_t opener;
} blocked_stream;
static inline void block_stream(const fixture *b, blocked_stream *s) {
  tdict_driver *d = b->d;
  tdict_gpu *second;
  tdict_gpu_scope scope;
  tdict_cu_event event;
  memset(s, 0, sizeof *s);
  CU(SUCCESS, stream_create, &s->stream, TDICT_CU_STREAM_DEFAULT);
  td_ok(tdict_stream_create(b->context, tdict_sim(1), &s->other, err));
  td_ok(tdict_sim_launch(s->other, pass_gate, &s->gate, err));
  td_ok(tdict_devices_gpu(tdict_context_devices(b->context), tdict_sim(1), &second, err));
  td_ok(tdict_gpu_enter(second, &scope, err));
  td_ok(tdict_gpu_take_recorded(second, s->other.handle, &event, err));
  tdict_gpu_leave(second, &scope);
  CU(SUCCESS, stream_wait_event, s->stream, event);
  tdict_gpu_give_event(second, event);
}
/* Starts a thread that opens the gate when all other threads wait. */
static inline void open_blocked_stream(blocked_stream *s) { s->opener = td_start(open_gate_at_rest, &s->gate); }
/* Destroys both streams. The gate must be open. */
static inline void end_blocked_stream(const fixture *b, blocked_stream *s) {
  tdict_driver *d = b->d;
  assert_true(atomic_load(&s->gate.open));
  assert_int_equal(pthread_join(s->opener, NULL), 0);
  CU(SUCCESS, stream_destroy, s->stream);
  tdict_stream_destroy(b->context, s->other);
}

#endif
