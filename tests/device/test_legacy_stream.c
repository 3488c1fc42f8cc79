/* Fills of device memory are ordered with the legacy stream of the program. */
#include "device/gpu_help.h"
#include "support/gate.h"
#include "support/threads.h"

enum { BYTES = 1024 };

/* A fill comes after the copy that the program has queued on the legacy stream. A function blocks this copy. */
SIM_CASE(gpu_memory_fills_after_the_legacy_stream) {
  scoped_fixture b = fixture_open(NULL);
  tdict_driver *d = b.d;
  tdict_block block = fixture_take(&b, BYTES);
  raw_memory *raw = raw_open(b.context, td_device());
  tdict_cu_stream blocking = NULL;
  gate g = {0};
  void *host = NULL;
  unsigned char found[BYTES];
  CU(SUCCESS, host_alloc, &host, BYTES, TDICT_CU_HOST_PORTABLE);
  memset(host, 7, BYTES);
  CU(SUCCESS, stream_create, &blocking, TDICT_CU_STREAM_DEFAULT);
  td_ok(tdict_sim_launch((tdict_stream){td_device(), blocking}, pass_gate, &g, err));
  CU(SUCCESS, copy_h2d_async, block.data, host, BYTES, NULL);
  pthread_t opener = td_start(open_gate_at_rest, &g);
  td_ok(b.memory->ops->fill(b.memory, block.data, 9, BYTES, err));
  assert_true(atomic_load(&g.open));
  assert_int_equal(pthread_join(opener, NULL), 0);
  raw_read(raw, found, block.data, BYTES);
  assert_true(all_bytes(found, BYTES, 9));
  CU(SUCCESS, stream_destroy, blocking);
  CU(SUCCESS, host_free, host, BYTES);
  raw_close(raw);
  fixture_give(&b, &block);
}
