/* Tensors in one storage: offsets, elements, sums that do not fit, no memory. */
#include "core/tensor/arena.h"

#include "support/test.h"

static const int64_t shape[] = {3, 0, 5, 7};

static void measure_three(tdict_arena *arena) {
  td_ok(tdict_arena_measure(arena, "here", TDICT_F32, 1, shape, err));
  td_ok(tdict_arena_measure(arena, "here", TDICT_U8, 2, shape, err));
  td_ok(tdict_arena_measure(arena, "here", TDICT_F64, 2, shape + 2, err));
  assert_int_equal(arena->bytes, 256 + 0 + 512);
}

CASE(arena_puts_tensors_in_one_storage) {
  tdict_arena arena = {0};
  measure_three(&arena);
  td_ok(tdict_arena_allocate(&arena, NULL, true, err));
  tdict_tensor *a = tdict_arena_add(&arena, TDICT_F32, 1, shape), *b = tdict_arena_add(&arena, TDICT_U8, 2, shape);
  tdict_tensor *c = tdict_arena_add(&arena, TDICT_F64, 2, shape + 2);
  tdict_arena_reset(&arena);
  assert_int_equal((uintptr_t)c->data - (uintptr_t)a->data, 256);
  assert_true(a->storage == b->storage && a->storage == c->storage && a->storage->flags & TDICT_STORAGE_ARENA);
  const unsigned char *bytes = tdict_tensor_const_data(c);
  for (size_t i = 0; i < 5 * 7 * 8; i++) assert_int_equal(bytes[i], 0);
  tdict_tensor_release(a);
  tdict_tensor_release(b);
  memset(tdict_tensor_data(c), 1, tdict_tensor_bytes(c));
  tdict_tensor_release(c);
  tdict_arena none = {0};
  td_ok(tdict_arena_allocate(&none, NULL, true, err));
  assert_null(none.slab);
  tdict_arena_reset(&none);
}

CASE(arena_refuses) {
  tdict_arena arena = {0};
  const int64_t huge[] = {INT64_MAX - 600};
  td_fails(TDICT_EDTYPE, "here: ", tdict_arena_measure(&arena, "here", 77, 1, shape, err));
  td_fails(TDICT_EINVAL, "here: ", tdict_arena_measure(&arena, "here", TDICT_U8, 1, (const int64_t[]){-1}, err));
  td_ok(tdict_arena_measure(&arena, "here", TDICT_U8, 1, huge, err));
  td_ok(tdict_arena_measure(&arena, "here", TDICT_U8, 1, shape, err));
  td_fails(TDICT_EOVERFLOW, "up to this one", tdict_arena_measure(&arena, "here", TDICT_F64, 2, shape + 2, err));
  assert_int_equal(arena.num_tensors, 2);
}

CASE(arena_survives_enomem) {
  for (int64_t n = 0;; n++) {
    tdict_arena arena = {0};
    measure_three(&arena);
    td_fail_alloc(n, false);
    tdict_status status = tdict_arena_allocate(&arena, NULL, false, NULL);
    bool failed = td_fail_alloc_stop();
    tdict_arena_reset(&arena);
    assert_int_equal(status, failed ? TDICT_ENOMEM : TDICT_OK);
    if (!failed) break;
    assert_true(n < 10);
  }
}
