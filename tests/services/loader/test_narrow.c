/* Tests the loader's option `narrow`: batches that a program collates in ordinary memory are sent in fewer bytes. */
#include "engine/kinds/pack.h"
#include "numbers.h"

enum { SAMPLES = 24, BATCH = 4, COUNT = 3000 };

static atomic_int num_packed;
size_t __real_tdict_pack_end(tdict_packer *packer);
size_t __wrap_tdict_pack_end(tdict_packer *packer);
size_t __wrap_tdict_pack_end(tdict_packer *packer) {
  atomic_fetch_add(&num_packed, 1);
  return __real_tdict_pack_end(packer);
}

static int64_t element_of(int64_t id, int i) { return 1000000000000 * id + i * 7 % 50000; }
/* Makes a batch in ordinary memory whose elements are computed from the first id. */
static tdict_status collate_ids(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples,
                                size_t count, tdict_tree **out, tdict_error *err) {
  tdict_tree *td = NULL;
  tdict_tensor *t = NULL;
  const int64_t id = *(const int64_t *)tdict_const_data(samples[0], "id"), length = COUNT;
  (void)user, (void)count, (void)info;
  tdict_status status = tdict_create(0, NULL, &td, err);
  if (status == TDICT_OK) status = tdict_tensor_empty(TDICT_I64, 1, &length, NULL, &t, err);
  for (int i = 0; i < COUNT && status == TDICT_OK; i++) ((int64_t *)tdict_tensor_data(t))[i] = element_of(id, i);
  if (status == TDICT_OK) status = tdict_set(td, "ids", t, err);
  tdict_tensor_release(t);
  if (status == TDICT_OK)
    *out = td;
  else
    tdict_release(td);
  return status;
}

DEVICE_CASE(loader_narrows_batches) {
  static int64_t ids[COUNT];
  scoped_yard y = open_yard();
  for (int k = 0; k < 4; k++) {
    numbers n = numbers_of(SAMPLES);
    tdict_dataset_table d = by_sample(&n);
    tdict_loader_options o = td_with(tdict_loader_options, batch_size = BATCH, num_workers = k / 2 * 3,
                                     device = y.device, collate = collate_ids, narrow = k % 2);
    atomic_store(&num_packed, 0);
    tdict_loader *l = open_loader(&y, &d, &o);
    for (int64_t first = 0; first < SAMPLES; first += BATCH) {
      scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
      assert_int_equal(read_leaf(&y, batch, "ids", ids, sizeof ids), sizeof ids);
      for (int i = 0; i < COUNT; i++) assert_int_equal(ids[i], element_of(first, i));
    }
    tdict_loader_destroy(l);
    assert_int_equal(atomic_load(&num_packed) >= SAMPLES / BATCH, o.narrow && y.device.type != TDICT_DEVICE_CPU);
  }
}
