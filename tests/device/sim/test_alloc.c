/* Tests memory of the simulated driver through the driver's table. */
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "device/sim/table.h"
#include "support/threads.h"

enum { MIB = 1 << 20, SURVIVED = 7 };

/* Reads or writes the address in a child process. Returns true if this killed the child. */
static bool dies(volatile char *address, bool write) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    close(STDERR_FILENO);
    signal(SIGSEGV, SIG_DFL);
    if (write)
      *address = 1;
    else
      (void)*address;
    _exit(SURVIVED);
  }
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (SANITIZED) return !(WIFEXITED(status) && WEXITSTATUS(status) == SURVIVED); /* the sanitizer exits on the signal */
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

CASE(sim_host_access_to_device_memory_faults) {
  scoped_table d = open_plain();
  char *dev = make_device(d, 10000), *host = (char *)make_pinned(d, 10000, 1);
  assert_true(dies(dev, false));
  assert_true(dies(dev + 9999, true));
  assert_false(dies(host, true));
  assert_false(dies(host + 9999, false));
}

CASE(sim_device_memory_runs_out) {
  tdict_sim_options o = sim_options(false);
  o.memory_bytes = 4 * MIB;
  scoped_table d = open_table(&o);
  void *p[4], *q = NULL;
  CU(OUT_OF_MEMORY, mem_alloc, &q, 4 * MIB + 1);
  CU(OUT_OF_MEMORY, mem_alloc, &q, SIZE_MAX);
  CU(INVALID_VALUE, mem_alloc, &q, 0);
  for (int i = 0; i < 4; i++) CU(SUCCESS, mem_alloc, &p[i], MIB);
  CU(OUT_OF_MEMORY, mem_alloc, &q, 1);
  assert_null(q);
  CU(SUCCESS, mem_free, p[1]);
  CU(OUT_OF_MEMORY, mem_alloc, &q, MIB + 1);
  CU(SUCCESS, mem_alloc, &q, MIB);
  assert_ptr_equal(q, p[1]);
  CU(SUCCESS, mem_free, p[2]);
  CU(SUCCESS, mem_free, p[3]);
  CU(SUCCESS, mem_alloc, &q, 2 * MIB);
  assert_ptr_equal(q, p[2]);
}

CASE(sim_allocations_do_not_overlap) {
  enum { SLOTS = 200, ROUNDS = 3000 };
  scoped_table d = open_plain();
  char *start[SLOTS] = {0};
  size_t bytes[SLOTS] = {0};
  uint64_t dice[2];
  for (uint64_t i = 0; i < ROUNDS; i++) {
    td_fill_random(dice, sizeof dice, i + 1);
    size_t k = dice[0] % SLOTS;
    if (start[k]) {
      CU(SUCCESS, mem_free, start[k]);
      start[k] = NULL;
      continue;
    }
    bytes[k] = 1 + dice[1] % 5000;
    void *p = make_device(d, bytes[k]);
    assert_int_equal((uintptr_t)p % 256, 0);
    for (size_t j = 0; j < SLOTS; j++)
      if (start[j]) assert_true((char *)p + bytes[k] <= start[j] || start[j] + bytes[j] <= (char *)p);
    start[k] = p;
  }
  for (size_t k = 0; k < SLOTS; k++)
    if (start[k]) CU(SUCCESS, mem_free, start[k]);
  tdict_driver_sim_count count;
  tdict_driver_sim_counts(d, 0, &count);
  assert_int_equal(count.device_bytes, 0);
  assert_int_equal(count.num_allocations, 0);
}

CASE(sim_free_refuses) {
  scoped_table d = open_plain();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_pool pool;
  char *dev = make_device(d, 1000), *host = (char *)make_pinned(d, 1000, 1);
  void *pooled;
  CU(SUCCESS, pool_create, 0, &pool);
  CU(SUCCESS, mem_alloc_async, &pooled, 1000, pool, s);
  CU(INVALID_VALUE, mem_free, dev + 1);
  CU(INVALID_VALUE, mem_free, host);
  CU(INVALID_VALUE, mem_free, NULL);
  CU(INVALID_VALUE, mem_free_async, dev, s); /* `dev` is not from a pool */
  CU(SUCCESS, mem_free, dev);
  CU(INVALID_VALUE, mem_free, dev);
  CU(SUCCESS, mem_free_async, pooled, s);
  CU(INVALID_VALUE, mem_free_async, pooled, s);
  CU(INVALID_VALUE, host_free, host + 1, 999);
  CU(HOST_MEMORY_NOT_REGISTERED, host_unregister, host, 1000);
  CU(SUCCESS, host_free, host, 1000);
  CU(INVALID_VALUE, host_free, host, 1000);
}

typedef struct freer {
  tdict_driver *d;
  tdict_cu_context context;
  void *memory;
  bool host;
  atomic_int result; /* -1 until the call has returned */
} freer;
static void *run_freer(void *user) {
  freer *f = user;
  f->d->ops->ctx_push(f->d, f->context);
  int result = f->host ? f->d->ops->host_free(f->d, f->memory, 5000) : f->d->ops->mem_free(f->d, f->memory);
  atomic_store(&f->result, result);
  f->d->ops->ctx_pop(f->d, NULL);
  return NULL;
}

CASE(sim_free_waits_for_the_device) {
  scoped_table d = open_held();
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  unsigned char *src = make_pinned(d, 5000, 1), *back = make_pinned(d, 5000, 0);
  freer f[2] = {{.d = d, .memory = make_device(d, 5000)}, {.d = d, .memory = src, .host = true}};
  pthread_t threads[2];
  CU(SUCCESS, copy_h2d_async, f[0].memory, src, 5000, s);
  CU(SUCCESS, copy_d2h_async, back, f[0].memory, 5000, s);
  for (int i = 0; i < 2; i++) {
    atomic_init(&f[i].result, -1);
    CU(SUCCESS, ctx_current, &f[i].context);
    threads[i] = td_start(run_freer, &f[i]);
  }
  td_rest();
  assert_int_equal(atomic_load(&f[0].result), -1);
  assert_int_equal(atomic_load(&f[1].result), -1);
  tdict_driver_sim_resume(d);
  for (int i = 0; i < 2; i++) {
    pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&f[i].result), TDICT_CU_SUCCESS);
  }
  scoped_bytes wanted = make_pageable(5000, 1);
  assert_memory_equal(back, wanted, 5000);
}

CASE(sim_memory_freed_on_a_stream_is_reused_after_the_free_ran) {
  scoped_table d = open_plain();
  tdict_cu_stream a = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING), b = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_pool pool;
  unsigned char *src = make_pinned(d, MIB, 2), *back = make_pinned(d, MIB, 0);
  void *first, *second, *third;
  gate g;
  CU(SUCCESS, pool_create, 0, &pool);
  CU(SUCCESS, mem_alloc_async, &first, MIB, pool, a);
  CU(SUCCESS, copy_h2d_async, first, src, MIB, a);
  block_stream(a, &g);
  CU(SUCCESS, copy_d2h_async, back, first, MIB, a);
  CU(SUCCESS, mem_free_async, first, a);
  CU(SUCCESS, mem_alloc_async, &second, MIB, pool, b); /* the queued free has not run yet */
  assert_ptr_not_equal(second, first);
  CU(SUCCESS, fill_async, second, 0, MIB, b);
  CU(INVALID_VALUE, fill_async, first, 0, MIB, b);
  open_gate(&g);
  CU(SUCCESS, stream_synchronize, a);
  assert_memory_equal(back, src, MIB);
  CU(SUCCESS, mem_alloc_async, &third, MIB, pool, b);
  assert_ptr_equal(third, first);
  memset(back, 0xA5, MIB);
  CU_NOW(SUCCESS, copy_d2h_async, back, third, MIB);
  assert_memory_equal(back, src, MIB); /* reused memory still has its old bytes */
}

static void check_pool(tdict_driver *d, tdict_cu_pool pool, size_t reserved, size_t used) {
  uint64_t value;
  CU(SUCCESS, pool_get, pool, TDICT_CU_POOL_RESERVED_MEM_CURRENT, &value);
  assert_int_equal(value, reserved);
  CU(SUCCESS, pool_get, pool, TDICT_CU_POOL_USED_MEM_CURRENT, &value);
  assert_int_equal(value, used);
}

CASE(sim_pool_caches_up_to_its_threshold) {
  tdict_sim_options o = sim_options(false);
  o.memory_bytes = 8 * MIB;
  scoped_table d = open_table(&o);
  tdict_cu_stream s = make_stream(d, TDICT_CU_STREAM_NON_BLOCKING);
  tdict_cu_pool pool;
  void *p[4], *q;
  uint64_t value;
  CU(SUCCESS, pool_create, 0, &pool);
  CU(SUCCESS, pool_get, pool, TDICT_CU_POOL_RELEASE_THRESHOLD, &value);
  assert_int_equal(value, 0);
  for (int i = 0; i < 4; i++) CU(SUCCESS, mem_alloc_async, &p[i], 2 * MIB, pool, s);
  check_pool(d, pool, 8 * MIB, 8 * MIB);
  CU(OUT_OF_MEMORY, mem_alloc_async, &q, 1, pool, s);
  CU(SUCCESS, mem_free_async, p[0], s);
  CU(SUCCESS, stream_synchronize, s);
  check_pool(d, pool, 6 * MIB, 6 * MIB);
  CU(SUCCESS, pool_set, pool, TDICT_CU_POOL_RELEASE_THRESHOLD, 5 * MIB);
  for (int i = 1; i < 4; i++) CU(SUCCESS, mem_free_async, p[i], s);
  CU(SUCCESS, stream_synchronize, s);
  check_pool(d, pool, 5 * MIB, 0);
  CU(OUT_OF_MEMORY, mem_alloc, &q, 4 * MIB); /* mem_alloc() cannot use memory that a pool has cached */
  CU(SUCCESS, mem_alloc_async, &p[0], 4 * MIB, pool, s);
  check_pool(d, pool, 5 * MIB, 4 * MIB);
  CU(SUCCESS, pool_trim, pool, 0);
  check_pool(d, pool, 4 * MIB, 4 * MIB);
  CU(SUCCESS, mem_alloc, &q, 4 * MIB);
  CU(SUCCESS, pool_set, pool, TDICT_CU_POOL_REUSE_ALLOW_OPPORTUNISTIC, 0);
  CU(SUCCESS, pool_get, pool, TDICT_CU_POOL_REUSE_ALLOW_OPPORTUNISTIC, &value);
  assert_int_equal(value, 0);
  CU(INVALID_VALUE, pool_set, pool, 99, 0);
  CU(INVALID_VALUE, pool_get, pool, 99, &value);
  CU(SUCCESS, pool_destroy, pool); /* the pool exists until p[0] is freed */
  CU(INVALID_VALUE, mem_alloc_async, &p[1], 1, pool, s);
  CU(INVALID_VALUE, pool_destroy, pool);
  CU(SUCCESS, mem_free_async, p[0], s);
  CU(SUCCESS, stream_synchronize, s);
  CU(SUCCESS, mem_free, q);
  CU(SUCCESS, mem_alloc, &q, 8 * MIB);
  CU(INVALID_DEVICE, pool_create, 1, &pool);
}

CASE(sim_registrations_do_not_overlap) {
  scoped_table d = open_plain();
  scoped_bytes host = make_pageable(4096, 3);
  void *dev = make_device(d, 4096);
  tdict_driver_sim_count count;
  CU(SUCCESS, host_register, host + 1000, 1000, TDICT_CU_HOST_PORTABLE);
  CU(HOST_MEMORY_ALREADY_REGISTERED, host_register, host + 1000, 1000, 0);
  CU(HOST_MEMORY_ALREADY_REGISTERED, host_register, host + 1999, 1, 0);
  CU(HOST_MEMORY_ALREADY_REGISTERED, host_register, host, 1001, 0);
  CU(HOST_MEMORY_ALREADY_REGISTERED, host_register, host, 4096, 0);
  CU(SUCCESS, host_register, host, 1000, 0);
  CU(SUCCESS, host_register, host + 2000, 96, 0);
  CU(INVALID_VALUE, host_register, NULL, 1, 0);
  CU(INVALID_VALUE, host_register, host + 3000, 0, 0);
  CU(INVALID_VALUE, host_register, host + 3000, 1, 1024u);
  CU(INVALID_VALUE, host_register, dev, 4096, 0);
  CU(HOST_MEMORY_NOT_REGISTERED, host_unregister, host + 1, 999);
  CU(HOST_MEMORY_NOT_REGISTERED, host_unregister, host + 3000, 1);
  tdict_driver_sim_counts(d, 0, &count);
  assert_int_equal(count.pinned_bytes, 2096);
  CU(SUCCESS, host_unregister, host, 1000);
  CU(HOST_MEMORY_NOT_REGISTERED, host_unregister, host, 1000);
  CU(INVALID_VALUE, host_free, host + 1000, 1000); /* registered, not allocated */
  CU(SUCCESS, host_unregister, host + 1000, 1000);
  CU(SUCCESS, host_unregister, host + 2000, 96);
  tdict_driver_sim_counts(d, 0, &count);
  assert_int_equal(count.pinned_bytes, 0);
}

CASE(sim_pointer_describes_an_address) {
  tdict_sim_options o = sim_options(false);
  o.num_devices = 2;
  scoped_table d = open_table(&o);
  tdict_cu_context second;
  tdict_cu_pointer p;
  unsigned char *host = make_pinned(d, 5000, 4), *plain = make_pageable(5000, 5);
  CU(SUCCESS, ctx_retain, 1, &second);
  CU(SUCCESS, ctx_push, second);
  char *dev = make_device(d, 6000);
  CU(SUCCESS, pointer, dev + 5999, &p);
  assert_true(p.known && p.device && p.ordinal == 1 && p.range == dev && p.range_bytes == 6000);
  CU(SUCCESS, pointer, dev + 6000, &p);
  assert_false(p.known);
  CU(SUCCESS, pointer, host + 4999, &p);
  assert_true(p.known && !p.device && p.ordinal == 0 && p.range == host && p.range_bytes == 5000);
  CU(SUCCESS, pointer, plain, &p);
  assert_false(p.known);
  CU(SUCCESS, host_register, plain + 1, 100, 0);
  CU(SUCCESS, pointer, plain + 100, &p);
  assert_true(p.known && !p.device && p.ordinal == 1 && p.range == plain + 1 && p.range_bytes == 100);
  CU(SUCCESS, pointer, plain + 101, &p);
  assert_false(p.known);
  CU(SUCCESS, host_unregister, plain + 1, 100);
  CU(SUCCESS, mem_free, dev);
  CU(SUCCESS, pointer, dev, &p);
  assert_false(p.known);
  CU(SUCCESS, pointer, NULL, &p);
  assert_false(p.known);
  CU(SUCCESS, ctx_pop, NULL);
  free(plain);
}
