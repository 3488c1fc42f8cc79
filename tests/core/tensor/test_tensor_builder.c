/* Tests building several tensors in one storage: offsets, elements, overflowing sizes, and failing allocations. */
#include "core/tensor/tensor_builder.h"

#include "support/test.h"

static const int64_t shape[] = {3, 0, 5, 7};

static void measure_three(tdict_tensor_builder *builder) {
  td_ok(tdict_tensor_builder_measure(builder, "here", TDICT_F32, 1, shape, err));
  td_ok(tdict_tensor_builder_measure(builder, "here", TDICT_U8, 2, shape, err));
  td_ok(tdict_tensor_builder_measure(builder, "here", TDICT_F64, 2, shape + 2, err));
  assert_int_equal(builder->bytes, 256 + 0 + 512);
}

CASE(tensor_builder_puts_tensors_in_one_storage) {
  tdict_tensor_builder builder = {0};
  measure_three(&builder);
  td_ok(tdict_tensor_builder_allocate(&builder, NULL, true, err));
  tdict_tensor *a = tdict_tensor_builder_add(&builder, TDICT_F32, 1, shape),
               *b = tdict_tensor_builder_add(&builder, TDICT_U8, 2, shape);
  tdict_tensor *c = tdict_tensor_builder_add(&builder, TDICT_F64, 2, shape + 2);
  tdict_tensor_builder_reset(&builder);
  assert_int_equal((uintptr_t)c->data - (uintptr_t)a->data, 256);
  assert_true(a->storage == b->storage && a->storage == c->storage && a->storage->flags & TDICT_STORAGE_ARENA);
  const unsigned char *bytes = tdict_tensor_const_data(c);
  for (size_t i = 0; i < 5 * 7 * 8; i++) assert_int_equal(bytes[i], 0);
  td_release(a, b);
  memset(tdict_tensor_data(c), 1, tdict_tensor_bytes(c));
  tdict_tensor_release(c);
  tdict_tensor_builder none = {0};
  td_ok(tdict_tensor_builder_allocate(&none, NULL, true, err));
  assert_null(none.slab);
  tdict_tensor_builder_reset(&none);
}

CASE(tensor_builder_refuses) {
  tdict_tensor_builder builder = {0};
  const int64_t huge[] = {INT64_MAX - 600};
  td_fails(TDICT_EDTYPE, "here: ", tdict_tensor_builder_measure(&builder, "here", 77, 1, shape, err));
  td_fails(TDICT_EINVAL,
           "here: ", tdict_tensor_builder_measure(&builder, "here", TDICT_U8, 1, (const int64_t[]){-1}, err));
  td_ok(tdict_tensor_builder_measure(&builder, "here", TDICT_U8, 1, huge, err));
  td_ok(tdict_tensor_builder_measure(&builder, "here", TDICT_U8, 1, shape, err));
  td_fails(TDICT_EOVERFLOW, "up to this one",
           tdict_tensor_builder_measure(&builder, "here", TDICT_F64, 2, shape + 2, err));
  assert_int_equal(builder.num_tensors, 2);
}

CASE(tensor_builder_survives_enomem) {
  TD_SWEEP(s) {
    tdict_tensor_builder builder = {0};
    measure_three(&builder);
    (void)td_refused(s, tdict_tensor_builder_allocate(&builder, NULL, false, NULL));
    tdict_tensor_builder_reset(&builder);
  }
}
