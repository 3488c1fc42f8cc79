/* Tests copies and fills of the simulated driver through the driver's table. */
#include "device/sim/table.h"

enum { BYTES = 70001 };

CASE(sim_copies_move_the_bytes) {
  static const size_t sizes[] = {1, 3, 511, 512, 4096, 65537, BYTES};
  tdict_sim_options o = sim_options(false);
  o.num_devices = 2;
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_context second, popped;
  unsigned char *pinned = make_pinned(d, BYTES, 1), *pageable = make_pageable(BYTES, 2);
  unsigned char *to_pinned = make_pinned(d, BYTES, 0), *to_pageable = make_pageable(BYTES, 0);
  char *dev = make_device(d, BYTES), *twin = make_device(d, BYTES), *far;
  CU(SUCCESS, ctx_retain, 1, &second);
  CU(SUCCESS, ctx_push, second);
  far = make_device(d, BYTES);
  CU(SUCCESS, ctx_pop, &popped);
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    size_t n = sizes[i], at = BYTES - n; /* the last n bytes of each buffer, so some addresses are odd */
    memset(to_pinned, 0xA5, BYTES);
    memset(to_pageable, 0xA5, BYTES);
    CU(SUCCESS, copy_h2d_async, dev + at, pinned + at, n, s);
    CU(SUCCESS, copy_d2d_async, twin + at, dev + at, n, s);
    CU(SUCCESS, copy_d2d_async, far + at, twin + at, n, s);
    CU(SUCCESS, copy_d2h_async, to_pageable + at, far + at, n, s); /* returns when the copy is complete */
    assert_memory_equal(to_pageable + at, pinned + at, n);
    assert_true(td_all_bytes(to_pageable, at, 0xA5));
    CU(SUCCESS, copy_h2d_async, dev + at, pageable + at, n, s);
    CU(SUCCESS, copy_d2h_async, to_pinned + at, dev + at, n, s);
    CU(SUCCESS, stream_synchronize, s);
    assert_memory_equal(to_pinned + at, pageable + at, n);
    CU_NOW(SUCCESS, copy_h2d_async, dev, pinned, n);
    CU_NOW(SUCCESS, copy_d2h_async, to_pinned, dev, n);
    assert_memory_equal(to_pinned, pinned, n);
    CU_NOW(SUCCESS, copy_h2d_async, dev, pageable, n);
    CU_NOW(SUCCESS, copy_d2h_async, to_pageable, dev, n);
    assert_memory_equal(to_pageable, pageable, n);
  }
  CU_NOW(SUCCESS, copy_h2d_async, dev, pinned, 0);
  CU(SUCCESS, ctx_release, 1);
  free(pageable);
  free(to_pageable);
}

CASE(sim_fill_writes_the_byte) {
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pinned(d, BYTES, 3), *back = make_pinned(d, BYTES, 0);
  char *dev = make_device(d, BYTES);
  CU(SUCCESS, copy_h2d_async, dev, src, BYTES, s);
  CU(SUCCESS, fill_async, dev + 100, 0x3C, 1000, s);
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, s);
  CU(SUCCESS, stream_synchronize, s);
  memset(src + 100, 0x3C, 1000);
  assert_memory_equal(back, src, BYTES);
  CU(INVALID_VALUE, fill_async, dev + 1, 0, BYTES, s);
  CU(INVALID_VALUE, fill_async, src, 0, 1, s);
}

CASE(sim_copy_across_registrations_fails) {
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  scoped_bytes host = make_pageable(4 * 4096, 4);
  char *dev = make_device(d, 4 * 4096);
  CU(SUCCESS, host_register, host + 4096, 4096, TDICT_CU_HOST_PORTABLE);
  CU(SUCCESS, host_register, host + 8192, 4096, TDICT_CU_HOST_PORTABLE);
  CU(SUCCESS, copy_h2d_async, dev, host + 4096, 4096, s);
  CU(SUCCESS, copy_h2d_async, dev, host + 8192 + 1, 4095, s);
  CU(SUCCESS, copy_h2d_async, dev, host, 4096, s);
  CU(INVALID_VALUE, copy_h2d_async, dev, host + 4096, 8192, s);
  CU(INVALID_VALUE, copy_h2d_async, dev, host + 8192, 4097, s);
  CU_NOW(INVALID_VALUE, copy_h2d_async, dev, host + 4096, 4097);
  CU(INVALID_VALUE, copy_d2h_async, host + 4096, dev, 4097, s);
  CU_NOW(INVALID_VALUE, copy_d2h_async, host + 12287, dev, 2);
  CU(SUCCESS, stream_synchronize, s);
  CU(SUCCESS, host_unregister, host + 4096, 4096);
  CU(SUCCESS, copy_h2d_async, dev, host + 4096, 4096, s);
  CU(SUCCESS, host_unregister, host + 8192, 4096);
  CU_NOW(SUCCESS, copy_h2d_async, dev, host, 4 * 4096);
}

CASE(sim_copy_refuses_bad_addresses) {
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *host = make_pinned(d, BYTES, 5);
  char *dev = make_device(d, BYTES), *next = make_device(d, BYTES);
  assert_ptr_equal(next, dev + 70144); /* the gap between the blocks is only what rounding to 512 bytes adds */
  CU(INVALID_VALUE, copy_h2d_async, dev + 1, host, BYTES, s);
  CU(INVALID_VALUE, copy_h2d_async, dev + BYTES, host, 1, s);
  CU(INVALID_VALUE, copy_d2h_async, host, dev + 2, BYTES - 1, s);
  CU(INVALID_VALUE, copy_d2d_async, next, dev + 1, BYTES, s);
  CU(INVALID_VALUE, copy_d2d_async, next + 1, dev, BYTES, s);
  CU(INVALID_VALUE, copy_d2d_async, dev, host, 16, s);
  CU(INVALID_VALUE, copy_h2d_async, host, host, 16, s);
  CU(INVALID_VALUE, copy_h2d_async, dev, dev, 16, s);
  CU_NOW(INVALID_VALUE, copy_h2d_async, dev, NULL, 16);
  CU_NOW(INVALID_VALUE, copy_h2d_async, NULL, host, 16);
  CU(SUCCESS, mem_free, next);
  CU_NOW(INVALID_VALUE, copy_d2h_async, host, next, 16);
  CU(INVALID_HANDLE, copy_h2d_async, dev, host, 16, (tdict_cu_stream)(void *)host);
}

/* Checks access to pools between two devices. Only the pool's own device has access, until the pool allows another
 * device, which must be linked. A copy that names the right contexts always succeeds. */
static void check_between(tdict_driver *d, int ordinal, bool linked) {
  tdict_cu_context zero, other, popped;
  tdict_cu_pool pools[2];
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), far_stream;
  unsigned char *host = make_pinned(d, BYTES, 6), *back = make_pinned(d, BYTES, 0);
  void *near, *far;
  int can = 2;
  CU(SUCCESS, ctx_current, &zero);
  CU(SUCCESS, ctx_retain, ordinal, &other);
  CU(SUCCESS, pool_create, 0, &pools[0]);
  CU(SUCCESS, pool_create, ordinal, &pools[1]);
  CU(SUCCESS, mem_alloc_async, &near, BYTES, pools[0], s);
  CU(SUCCESS, mem_alloc_async, &far, BYTES, pools[1], s);
  CU_NOW(SUCCESS, copy_h2d_async, near, host, BYTES);
  CU(SUCCESS, device_can_reach, 0, ordinal, &can);
  assert_int_equal(can, linked);
  CU(INVALID_VALUE, copy_d2d_async, far, near, BYTES, s);
  CU(INVALID_VALUE, copy_d2d_async, near, far, BYTES, s);
  CU(SUCCESS, ctx_push, other);
  far_stream = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  CU(INVALID_VALUE, copy_d2d_async, far, near, BYTES, far_stream);
  tdict_cu_rect line = {TDICT_CU_D2D, far, near, BYTES, BYTES, BYTES, 1};
  CU(SUCCESS, copy_peer_async, &line, other, zero, far_stream);
  CU(INVALID_VALUE, copy_peer_async, &line, zero, other, far_stream);
  CU(SUCCESS, copy_d2h_async, back, far, BYTES, far_stream);
  CU(SUCCESS, stream_synchronize, far_stream);
  assert_memory_equal(back, host, BYTES);
  cu_check(d, d->ops->pool_allow_peer(d, pools[0], ordinal), linked ? TDICT_CU_SUCCESS : TDICT_CU_INVALID_DEVICE,
           "let_in", __LINE__);
  if (linked) {
    CU(SUCCESS, copy_d2d_async, far, near, BYTES, far_stream);
    CU(SUCCESS, stream_synchronize, far_stream);
  } else {
    CU(INVALID_VALUE, copy_d2d_async, far, near, BYTES, far_stream);
  }
  CU(SUCCESS, ctx_pop, &popped);
  CU(INVALID_VALUE, copy_d2d_async, far, near, BYTES, s); /* the other pool allows only its own device */
  CU(SUCCESS, ctx_release, ordinal);
}
CASE(sim_copies_between_devices) {
  tdict_sim_options o = sim_options(false);
  o.num_devices = 3;
  scoped_table d = open_table(&o);
  check_between(d, 1, true);
  check_between(d, 2, false);
  int can;
  CU(INVALID_DEVICE, device_can_reach, 0, 3, &can);
}

typedef struct rect_case {
  tdict_cu_kind kind;
  bool pinned;
} rect_case;

/* Copies a rectangle, and compares it and the bytes around it with the result of a plain loop. */
static void check_rect(tdict_driver *d, tdict_cu_stream s, rect_case c) {
  enum { DST_PITCH = 130, SRC_PITCH = 111, WIDTH = 97, HEIGHT = 53 };
  enum { DST_BYTES = DST_PITCH * (HEIGHT - 1) + WIDTH, SRC_BYTES = SRC_PITCH * (HEIGHT - 1) + WIDTH };
  scoped_bytes src = make_pageable(SRC_BYTES, 6), dst = make_pageable(DST_BYTES, 0);
  scoped_bytes wanted = make_pageable(DST_BYTES, 0);
  void *dev_src = make_device(d, SRC_BYTES), *dev_dst = make_device(d, DST_BYTES);
  for (size_t row = 0; row < HEIGHT; row++) memcpy(wanted + row * DST_PITCH, src + row * SRC_PITCH, WIDTH);
  if (c.pinned) {
    CU(SUCCESS, host_register, src, SRC_BYTES, 0);
    CU(SUCCESS, host_register, dst, DST_BYTES, 0);
  }
  CU_NOW(SUCCESS, copy_h2d_async, dev_src, src, SRC_BYTES);
  CU_NOW(SUCCESS, copy_h2d_async, dev_dst, dst, DST_BYTES);
  tdict_cu_rect r = {c.kind, dev_dst, dev_src, DST_PITCH, SRC_PITCH, WIDTH, HEIGHT};
  if (c.kind == TDICT_CU_H2D) r.src = src;
  if (c.kind == TDICT_CU_D2H) r.dst = dst;
  CU(SUCCESS, copy_rect_async, &r, s);
  CU(SUCCESS, stream_synchronize, s);
  if (c.kind != TDICT_CU_D2H) CU_NOW(SUCCESS, copy_d2h_async, dst, dev_dst, DST_BYTES);
  assert_memory_equal(dst, wanted, DST_BYTES);
  r.height++; /* one row too many */
  CU(INVALID_VALUE, copy_rect_async, &r, s);
  r.height--;
  r.dst_pitch = WIDTH - 1;
  CU(INVALID_VALUE, copy_rect_async, &r, s);
  r.dst_pitch = SIZE_MAX / 2;
  CU(INVALID_VALUE, copy_rect_async, &r, s);
  if (c.pinned) {
    CU(SUCCESS, host_unregister, src, SRC_BYTES);
    CU(SUCCESS, host_unregister, dst, DST_BYTES);
  }
  CU(SUCCESS, mem_free, dev_src);
  CU(SUCCESS, mem_free, dev_dst);
}

CASE(sim_rectangles_move_the_bytes) {
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  for (int kind = TDICT_CU_H2D; kind <= (int)TDICT_CU_D2D; kind++)
    for (int pinned = 0; pinned < 2; pinned++)
      check_rect(d, s, (rect_case){.kind = (tdict_cu_kind)kind, .pinned = pinned});
}

CASE(sim_pageable_rectangle_is_read_inside_the_call) {
  scoped_table d = open_held();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  scoped_bytes src = make_pageable(1000, 7), kept = make_pageable(1000, 7), back = make_pageable(1000, 0);
  void *dev = make_device(d, 1000);
  tdict_cu_rect r = {TDICT_CU_H2D, dev, src, 100, 100, 100, 10};
  CU(SUCCESS, copy_rect_async, &r, s);
  memset(src, 0xA5, 1000);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, s);
  CU_NOW(SUCCESS, copy_d2h_async, back, dev, 1000);
  assert_memory_equal(back, kept, 1000);
}

CASE(sim_reads_pageable_memory_later) {
  tdict_sim_options o = sim_options(true);
  o.reads_pageable_memory = true;
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  scoped_bytes src = make_pageable(1000, 7), later = make_pageable(1000, 8), back = make_pageable(1000, 0);
  void *dev = make_device(d, 1000);
  int value = 0;
  CU(SUCCESS, device_attribute, 0, TDICT_CU_ATTRIBUTE_READS_HOST_PAGE_TABLES, &value);
  assert_int_equal(value, 1);
  CU(SUCCESS, copy_h2d_async, dev, src, 1000, s);
  memcpy(src, later, 1000);
  tdict_driver_sim_resume(d);
  CU(SUCCESS, stream_synchronize, s);
  CU_NOW(SUCCESS, copy_d2h_async, back, dev, 1000);
  assert_memory_equal(back, later, 1000);
}

CASE(sim_work_on_freed_memory_is_an_error) {
  scoped_table d = open_plain();
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_pool pool;
  unsigned char *host = make_pinned(d, BYTES, 8), *back = make_pinned(d, BYTES, 0);
  void *dev, *again;
  gate g;
  CU(SUCCESS, pool_create, 0, &pool);
  CU(SUCCESS, mem_alloc_async, &dev, BYTES, pool, a);
  block_stream(a, &g);
  CU(SUCCESS, copy_d2h_async, back, dev, BYTES, a);
  CU(SUCCESS, mem_free_async, dev, b); /* stream b does not wait for stream a, which is the caller's error */
  CU(SUCCESS, stream_synchronize, b);
  CU(SUCCESS, mem_alloc_async, &again, BYTES, pool, b);
  assert_ptr_equal(again, dev);
  open_gate(&g);
  CU(ILLEGAL_ADDRESS, stream_synchronize, a);
  assert_true(td_all_bytes(back, BYTES, 0xA5));
  CU(ILLEGAL_ADDRESS, copy_h2d_async, again, host, BYTES, b);
}
