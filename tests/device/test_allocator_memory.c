/* Tests memory objects that use the program's allocator, for tensors, trees and results of transfers. */
#include "device/allocator_memory.h"

#include "core/memory/storage.h"
#include "core/tensor/tensor.h"
#include "gpu_help.h"
#include "support/gate.h"
#include "support/threads.h"

/* An allocator that takes memory from the context's device or from the host, and counts its calls. */
typedef struct own {
  tdict_memory *from; /* NULL: aligned_alloc */
  atomic_int live, allocated, released, wrong;
  _Atomic(size_t) last_bytes;
  tdict_tensor *tensors[64];
  atomic_bool empty;
} own;
static void *own_allocate(void *user, size_t bytes) {
  own *o = user;
  if (atomic_load(&o->empty)) return NULL;
  int n = atomic_fetch_add(&o->allocated, 1);
  atomic_fetch_add(&o->live, 1);
  atomic_store(&o->last_bytes, bytes);
  if (!o->from) return aligned_alloc(256, (bytes + 255) / 256 * 256);
  const int64_t count = (int64_t)bytes;
  if (n >= 64 || tdict_tensor_empty(TDICT_U8, 1, &count, o->from, &o->tensors[n], NULL) != TDICT_OK) return NULL;
  return o->tensors[n]->data;
}
static void own_release(void *user, void *data, size_t bytes) {
  own *o = user;
  bool found = !o->from;
  atomic_fetch_sub(&o->live, 1);
  atomic_fetch_add(&o->released, 1);
  (void)bytes;
  for (int i = 0; o->from && i < 64; i++)
    if (o->tensors[i] && o->tensors[i]->data == data) {
      tdict_tensor_release(o->tensors[i]);
      o->tensors[i] = NULL;
      found = true;
    }
  if (!o->from) free(data);
  if (!found) atomic_fetch_add(&o->wrong, 1);
}
static tdict_allocator allocator_of(own *o, tdict_device device, bool pinned) {
  return (tdict_allocator){.struct_size = sizeof(tdict_allocator),
                           .device = device,
                           .pinned = pinned,
                           .allocate = own_allocate,
                           .release = own_release,
                           .user = o};
}
static tdict_memory *memory_of(tdict_context *c, own *o, tdict_device device, bool pinned) {
  tdict_allocator a = allocator_of(o, device, pinned);
  return td_made(memory, tdict_memory_create(c, &a, &made, err));
}
static tdict_tree *tree_of(int64_t count, uint64_t seed) {
  tdict_tree *td = NULL;
  scoped_tensor t = NULL;
  td_ok(tdict_create(0, NULL, &td, err));
  td_ok(tdict_tensor_empty(TDICT_U8, 1, &count, NULL, &t, err));
  td_fill_random(t->data, (size_t)count, seed);
  td_ok(tdict_set(td, "n.x", t, err));
  return td;
}
static const tdict_tensor *leaf(const tdict_tree *td) { return td_made(tensor, tdict_get(td, "n.x", &made, err)); }
static void check_bytes(tdict_context *c, const tdict_tree *td, uint64_t seed) {
  const tdict_tensor *t = leaf(td);
  size_t count = tdict_tensor_bytes(t);
  scoped_bytes want = malloc(count), got = malloc(count);
  scoped_raw raw = raw_open(c, tdict_tensor_device(t));
  assert_true(want && got);
  td_fill_random(want, count, seed);
  raw_read(raw, got, t->data, count);
  assert_memory_equal(got, want, count);
}

GPU_CASE(allocator_memory_holds_trees_and_results) {
  enum { COUNT = 300001 };
  scoped_fixture b = fixture_open(NULL);
  own o = {.from = b.memory};
  tdict_memory *m = memory_of(b.context, &o, td_device(), false);
  assert_true(tdict_device_equal(tdict_memory_device(m), td_device()));
  scoped_tree src = tree_of(COUNT, 1), out = NULL;
  tdict_tree *back = NULL;
  for (int k = 0; k < 4 * 3; k++) { /* results of transfers */
    tdict_transfer_options t = td_with(tdict_transfer_options, memory = m, mode = k / 3, num_threads = k % 3 - 1);
    td_ok(tdict_to_device(b.context, src, td_device(), &t, &out, err));
    assert_int_equal(atomic_load(&o.allocated), k + 1);
    assert_int_equal(atomic_load(&o.live), 1);
    assert_ptr_equal(leaf(out)->storage->data, o.tensors[k]->data);
    assert_true(atomic_load(&o.last_bytes) >= COUNT);
    check_bytes(b.context, out, 1);
    td_ok(tdict_to_device(b.context, out, tdict_cpu(), NULL, &back, err));
    check_bytes(b.context, back, 1);
    td_release(back, out);
    for (int i = 0; i < 50000 && atomic_load(&o.live); i++) usleep(100);
    assert_int_equal(atomic_load(&o.live), 0);
  }
  tdict_memory_counts counts = td_memory_counts(m);
  assert_int_equal(counts.live_bytes, 0);
  assert_int_equal(counts.num_allocations, 12);
  assert_true(counts.peak_bytes >= COUNT && counts.peak_bytes < 2 * COUNT);
  /* fills, copies and clones a tensor, which keeps the memory object after the program has released it */
  tdict_tensor *t = NULL, *host = NULL;
  const int64_t count = 1000;
  td_ok(tdict_tensor_zeros(TDICT_U8, 1, &count, m, &t, err));
  tdict_memory_release(m);
  td_ok(tdict_tensor_clone(t, NULL, &host, err));
  assert_true(td_all_bytes(host->data, 1000, 0));
  memset(host->data, 9, 1000);
  td_ok(tdict_tensor_copy(t, host, err));
  tdict_tensor_release(host);
  td_ok(tdict_tensor_clone(t, NULL, &host, err));
  assert_true(td_all_bytes(host->data, 1000, 9));
  td_release(host, t);
  assert_int_equal(atomic_load(&o.live), 0);
  assert_int_equal(atomic_load(&o.allocated), atomic_load(&o.released));
  assert_int_equal(atomic_load(&o.wrong), 0);
  tdict_release(src);
  tdict_memory_release(NULL);
  tdict_memory_release(tdict_pinned_memory(b.context)); /* does nothing, because the context owns this memory */
  tdict_memory_release(b.memory);
  src = tree_of(10, 2);
  td_ok(tdict_to_device(b.context, src, td_device(), NULL, &out, err));
  check_bytes(b.context, out, 2);
}

GPU_CASE(allocator_memory_on_the_default_device) {
  scoped_fixture b = fixture_open(NULL);
  own o = {.from = b.memory};
  scoped_memory m = memory_of(b.context, &o, (tdict_device){TDICT_DEVICE_AUTO, 0}, false);
  assert_true(tdict_device_equal(tdict_memory_device(m), tdict_context_device(b.context, NULL)));
}

GPU_CASE(allocator_memory_on_the_host) {
  scoped_fixture b = fixture_open(NULL);
  own plain = {.from = NULL}, pinned = {.from = tdict_pinned_memory(b.context)};
  tdict_memory *m[2] = {memory_of(b.context, &plain, tdict_cpu(), false),
                        memory_of(b.context, &pinned, tdict_cpu(), true)};
  scoped_tree src = tree_of(200000, 3), there = NULL;
  tdict_tree *back = NULL, *again = NULL;
  td_ok(tdict_to_device(b.context, src, td_device(), NULL, &there, err));
  for (int i = 0; i < 2; i++) {
    own *o = i ? &pinned : &plain;
    tdict_transfer_options t = td_with(tdict_transfer_options, memory = m[i]);
    td_ok(tdict_to_device(b.context, there, tdict_cpu(), &t, &back, err));
    assert_int_equal(atomic_load(&o->live), 1);
    assert_int_equal(tdict_is_pinned(back), i);
    check_bytes(b.context, back, 3);
    td_ok(tdict_to_device(b.context, back, td_device(), NULL, &again, err));
    check_bytes(b.context, again, 3);
    td_release(again, back);
    for (int k = 0; k < 50000 && atomic_load(&o->live); k++) usleep(100);
    assert_int_equal(atomic_load(&o->live), 0);
    tdict_memory_release(m[i]);
  }
}

typedef struct opener {
  gate *g;
  own *o;
  atomic_bool early;
} opener;
static void *open_later(void *user) {
  opener *x = user;
  td_rest(); /* until the other thread waits or has released the tree */
  atomic_store(&x->early, atomic_load(&x->o->released) != 0);
  open_gate(x->g);
  return NULL;
}
/* Checks that memory is released only after its copies and its recorded uses are complete. */
SIM_CASE(allocator_memory_is_released_after_its_uses) {
  scoped_fixture b = fixture_open(NULL);
  own o = {.from = b.memory};
  tdict_memory *m = memory_of(b.context, &o, td_device(), false);
  tdict_tree *src = tree_of(5000, 4), *out = NULL;
  gate g = {0};
  opener x = {.g = &g, .o = &o};
  tdict_transfer_options t = td_with(tdict_transfer_options, memory = m);
  td_ok(tdict_to_device(b.context, src, td_device(), &t, &out, err));
  TD_STREAM(s, b.context, td_device());
  td_ok(tdict_sim_launch(s, pass_gate, &g, err));
  td_ok(tdict_record_stream(out, s, err)); /* accepted, because the tree is on the device */
  pthread_t thread = td_start(open_later, &x);
  tdict_release(out);
  assert_int_equal(pthread_join(thread, NULL), 0);
  assert_false(atomic_load(&x.early));
  for (int i = 0; i < 50000 && !atomic_load(&o.released); i++) usleep(100);
  assert_int_equal(atomic_load(&o.released), 1);
  /* memory is not released while a copy runs */
  td_ok(tdict_sim_hold(b.context, err));
  tdict_future *f = td_made(future, tdict_to_device_async(b.context, src, td_device(), &t, &made, err));
  tdict_future_release(f);
  td_rest();
  assert_int_equal(atomic_load(&o.released), 1);
  td_ok(tdict_sim_resume(b.context, err));
  for (int i = 0; i < 50000 && atomic_load(&o.released) < 2; i++) usleep(100);
  assert_int_equal(atomic_load(&o.released), 2);
  td_release(src, m);
}

GPU_CASE(memory_create_refuses) {
  scoped_fixture b = fixture_open(NULL);
  own o = {.from = b.memory};
  tdict_allocator good = allocator_of(&o, td_device(), false), a = good;
  tdict_memory *m = NULL;
  td_fails(TDICT_EINVAL, "NULL", tdict_memory_create(NULL, &a, &m, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_memory_create(b.context, NULL, &m, err));
  td_fails(TDICT_EINVAL, "NULL", tdict_memory_create(b.context, &a, NULL, err));
  a.allocate = NULL;
  td_fails(TDICT_EINVAL, "allocate", tdict_memory_create(b.context, &a, &m, err));
  a = good;
  a.release = NULL;
  td_fails(TDICT_EINVAL, "release", tdict_memory_create(b.context, &a, &m, err));
  a = good;
  a.pinned = true;
  td_fails(TDICT_EINVAL, "pinned", tdict_memory_create(b.context, &a, &m, err));
  a = good;
  a.struct_size = 3;
  td_fails(TDICT_EINVAL, "struct_size", tdict_memory_create(b.context, &a, &m, err));
  a = good;
  a.device.index = 61;
  td_fails(TDICT_ENODEVICE, "", tdict_memory_create(b.context, &a, &m, err));
  assert_null(m);
  /* an allocator that returns NULL, and memory on another device than the target */
  m = memory_of(b.context, &o, td_device(), false);
  tdict_tree *src = tree_of(5000, 5), *out = NULL;
  tdict_transfer_options t = td_with(tdict_transfer_options, memory = m);
  atomic_store(&o.empty, true);
  td_fails(TDICT_ENOMEM, "allocator", tdict_to_device(b.context, src, td_device(), &t, &out, err));
  td_fails(TDICT_EWRONGDEVICE, "", tdict_to_device(b.context, src, tdict_cpu(), &t, &out, err));
  atomic_store(&o.empty, false);
  assert_null(out);
  assert_int_equal(atomic_load(&o.live), 0);
  tdict_memory_counts counts = td_memory_counts(m);
  assert_int_equal(counts.live_bytes, 0);
  td_release(m, src);
}

SIM_CASE(allocator_memory_returns_its_gpu) {
  scoped_fixture b = fixture_open(NULL);
  own o = {.from = b.memory}, plain = {.from = NULL};
  scoped_memory m = memory_of(b.context, &o, td_device(), false), h = memory_of(b.context, &plain, tdict_cpu(), false);
  assert_ptr_equal(tdict_gpu_of_allocator_memory(m), b.gpu);
  assert_ptr_equal(tdict_gpu_of_memory(m), b.gpu);
  assert_null(tdict_gpu_of_allocator_memory(h));
  assert_null(tdict_gpu_of_allocator_memory(b.memory));
  assert_null(tdict_gpu_of_allocator_memory(NULL));
}
