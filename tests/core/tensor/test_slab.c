/* Tests slabs: many tensors in one allocation, with one reference count. */
#include "naive.h"

#include "core/tensor/tensor.h"
#include "support/random.h"

static void count_release(void *user) { ++*(int *)user; }

static tdict_storage *counted_storage(void *data, size_t bytes, int *released) {
  tdict_storage *s = td_made(storage, tdict_storage_wrap(data, bytes, tdict_cpu(), 0, &made, err));
  s->release = count_release;
  s->user = released;
  return s;
}

CASE(slab_tensors_share_one_count) {
  unsigned char data[4096];
  int released = 0;
  const int64_t shape[] = {3, 5}, empty[] = {0};
  tdict_storage *storage = counted_storage(data, sizeof data, &released);
  tdict_slab *slab = NULL;
  td_ok(tdict_slab_create(4, 2 + 0 + 1 + 2, storage, &slab, err));
  tdict_storage_release(storage);
  tdict_tensor *a = tdict_slab_add(slab, TDICT_F32, 2, shape, 256), *b = tdict_slab_add(slab, TDICT_I64, 0, NULL, 512);
  tdict_tensor *c = tdict_slab_add(slab, TDICT_U8, 1, empty, 768), *d = tdict_slab_add(slab, TDICT_U8, 2, shape, 0);
  assert_int_equal(slab->num_tensors, 4);
  tdict_slab_release(slab, 1);
  assert_ptr_equal(tdict_tensor_data(a), data + 256);
  assert_ptr_equal(tdict_tensor_data(b), data + 512);
  assert_ptr_equal(tdict_tensor_data(d), data);
  assert_int_equal(tdict_tensor_bytes(a), 60);
  assert_int_equal(tdict_tensor_numel(b), 1);
  assert_int_equal(tdict_tensor_numel(c), 0);
  assert_memory_equal(tdict_tensor_shape(a), shape, sizeof shape);
  assert_int_equal(tdict_tensor_strides(a)[0], 5);
  assert_int_equal(tdict_tensor_strides(a)[1], 1);
  assert_memory_equal(tdict_tensor_shape(d), shape, sizeof shape);
  assert_int_equal(tdict_tensor_shape(c)[0], 0);
  assert_true(tdict_tensor_is_contiguous(a) && tdict_tensor_is_contiguous(b));
  assert_true(tdict_tensor_shares_storage(a, d));
  tdict_tensor *view = NULL;
  const tdict_tensor_range range = {1, 4, 5, -1};
  td_ok(tdict_tensor_slice(a, &range, &view, err));
  tdict_tensor_release(tdict_tensor_retain(a));
  td_release(b, c, d);
  assert_int_equal(released, 0);
  assert_int_equal(tdict_tensor_shape(a)[0], 3);
  tdict_tensor_release(a);
  assert_int_equal(released, 0); /* the view has its own reference to the storage */
  assert_ptr_equal(tdict_tensor_data(view), data + 256 + 16);
  tdict_tensor_release(view);
  assert_int_equal(released, 1);
}

CASE(slab_releases_many_references_at_once) {
  unsigned char data[4096];
  int released = 0;
  const int64_t one[] = {1};
  tdict_storage *storage = counted_storage(data, sizeof data, &released);
  tdict_slab *slab = NULL;
  td_ok(tdict_slab_create(100, 100, storage, &slab, err));
  for (size_t i = 0; i < 100; i++) (void)tdict_slab_add(slab, TDICT_U8, 1, one, i);
  tdict_tensor_release(&slab->tensors[7]);
  tdict_slab_release(slab, 99);
  assert_int_equal(released, 0);
  tdict_storage_release(storage);
  tdict_slab_release(slab, 1);
  assert_int_equal(released, 1);
}

/* A tensor gets its own shape, even if it has as many dimensions and elements as the tensor before it. */
CASE(slab_tensors_like_others_have_their_shapes) {
  static unsigned char data[3][12];
  const int64_t shapes[3][2] = {{3, 4}, {3, 4}, {4, 3}};
  tdict_slab *slab = NULL;
  tdict_storage *storage = td_made(storage, tdict_storage_wrap(data, sizeof data, tdict_cpu(), 0, &made, err));
  td_ok(tdict_slab_create(3, 3 * 2, storage, &slab, err));
  tdict_storage_release(storage);
  tdict_slab_place place = TDICT_FIRST_PLACE(slab);
  tdict_tensor *like[3];
  for (int i = 0; i < 3; i++) {
    like[i] = td_made(tensor, tdict_tensor_from_array(TDICT_U8, 2, shapes[i], data[i], &made, err));
    (void)tdict_slab_add_like(&place, like[i], data[i]);
  }
  tdict_slab_count(slab, 3);
  for (int i = 0; i < 3; i++) {
    assert_ptr_equal(slab->tensors[i].data, data[i]);
    assert_memory_equal(slab->tensors[i].dims, shapes[i], sizeof shapes[i]);
    assert_int_equal(tdict_tensor_strides(&slab->tensors[i])[0], shapes[i][1]);
  }
  td_release(like[0], like[1], like[2]);
  tdict_slab_release(slab, slab->refs);
}

/* tdict_slab_add_repeated() makes a view with the layout of another view, but its own address and reference. */
CASE(slab_repeats_views) {
  enum { VIEWS = 60 };
  unsigned char data[2][4096];
  int released[2] = {0, 0};
  rng r = {41};
  tdict_storage *storages[] = {counted_storage(data[0], sizeof *data, &released[0]),
                               counted_storage(data[1], sizeof *data, &released[1])};
  const int64_t shapes[2][2] = {{3, 5}, {4, 2}}, strides[2][2] = {{7, 1}, {2, 1}};
  const tdict_dtype dtypes[] = {TDICT_F32, TDICT_I64};
  tdict_tensor *views[VIEWS] = {NULL}, *first[2] = {NULL, NULL};
  int kinds[VIEWS];
  tdict_slab *slab = NULL;
  td_ok(tdict_slab_create(VIEWS, 2 * 2, NULL, &slab, err));
  for (int i = 0; i < VIEWS; i++) {
    const int k = kinds[i] = i < 2 ? i : (int)(next_random(&r) % 2);
    const tdict_tensor_desc view = {
        .data = data[k] + 8 * i, .dtype = dtypes[k], .ndim = 2, .shape = shapes[k], .strides = strides[k]};
    views[i] = i < 2 ? tdict_slab_add_view(slab, storages[k], &view)
                     : tdict_slab_add_repeated(slab, first[k], storages[k], data[k] + 8 * i);
    if (i < 2) first[k] = views[i];
  }
  for (int k = 0; k < 2; k++) tdict_storage_release(storages[k]);
  tdict_slab_release(slab, 1);
  for (int i = 0; i < VIEWS; i++) {
    const int k = kinds[i];
    assert_ptr_equal(tdict_tensor_data(views[i]), data[k] + 8 * i);
    assert_int_equal(tdict_tensor_dtype(views[i]), dtypes[k]);
    assert_int_equal(tdict_tensor_numel(views[i]), shapes[k][0] * shapes[k][1]);
    assert_memory_equal(tdict_tensor_shape(views[i]), shapes[k], sizeof shapes[k]);
    assert_memory_equal(tdict_tensor_strides(views[i]), strides[k], sizeof strides[k]);
    assert_true(tdict_tensor_shares_storage(views[i], first[k]));
  }
  assert_int_equal(slab->refs, VIEWS);
  for (int i = VIEWS; i-- > 0;) {
    assert_int_equal(released[0] + released[1], 0);
    tdict_tensor_release(views[i]);
  }
  assert_true(released[0] == 1 && released[1] == 1);
}

CASE(slab_create_refuses) {
  unsigned char data[64];
  int released = 0;
  tdict_storage *storage = counted_storage(data, sizeof data, &released);
  tdict_slab *const kept = (tdict_slab *)(uintptr_t)0xA5A5;
  tdict_slab *slab = kept;
  td_fails(TDICT_EOVERFLOW, "slab", tdict_slab_create(SIZE_MAX / 8, 1, storage, &slab, err));
  td_fails(TDICT_EOVERFLOW, "slab", tdict_slab_create(1, SIZE_MAX / 8, storage, &slab, err));
  const size_t wraps = SIZE_MAX / sizeof(tdict_tensor) + 2; /* the product would wrap around to a few bytes */
  td_fails(TDICT_EOVERFLOW, "slab", tdict_slab_create(wraps, 1, storage, &slab, err));
  td_fail_alloc(0, false);
  td_fails(TDICT_ENOMEM, "slab", tdict_slab_create(1, 1, storage, &slab, err));
  assert_true(td_fail_alloc_stop());
  assert_ptr_equal(slab, kept);
  tdict_storage_release(storage);
  assert_int_equal(released, 1);
}
