/* Tests that fills of device memory are ordered with the program's legacy stream. */
#include "device/blocked_stream.h"

enum { BYTES = 1024 };

/* A fill waits for a blocked copy that the program has queued on the legacy stream. */
SIM_CASE(gpu_memory_fills_after_the_legacy_stream) {
  tdict_sim_options sim = td_with(tdict_sim_options, num_devices = 2);
  scoped_fixture b = fixture_open(td_options(tdict_context_options, sim = &sim));
  tdict_driver *d = b.d;
  tdict_block block = fixture_take(&b, BYTES);
  raw_memory *raw = raw_open(b.context, td_device());
  blocked_stream blocked;
  void *host = NULL;
  unsigned char found[BYTES];
  CU(SUCCESS, host_alloc, &host, BYTES, TDICT_CU_HOST_PORTABLE);
  memset(host, 7, BYTES);
  block_stream(&b, &blocked);
  CU(SUCCESS, copy_h2d_async, block.data, host, BYTES, NULL);
  open_blocked_stream(&blocked);
  td_ok(b.memory->ops->fill(b.memory, block.data, 9, BYTES, err));
  end_blocked_stream(&b, &blocked);
  raw_read(raw, found, block.data, BYTES);
  assert_true(td_all_bytes(found, BYTES, 9));
  CU(SUCCESS, host_free, host, BYTES);
  raw_close(raw);
  fixture_give(&b, &block);
}
