/* Tests the loader with custom batches as in PyTorch bug reports. A collate function of the program makes the batches,
 * workers send them, and the tests check what the loader returns. tests/engine/test_pytorch_reports.c tests the same
 * reports with the calls that the loader makes. */
#include "numbers.h"

#include "engine/named_batch.h" /* after numbers.h: a variable here has the name of parameters there */

/* A container that also has hooks of its own. */
static const tdict_type training_batch =
    TD_TYPE(.name = "TrainingBatch", .release = pair_release, .pin_memory = batch_pin, .to_device = batch_move,
            .is_pinned = pair_is_pinned, .flatten = pair_flatten, .unflatten = batch_unflatten);
enum { SAMPLES = 12, ROWS = 3, BATCHES = SAMPLES / ROWS, MOST_PATHS = 4 };

/* What the collate function of a case makes: one batch of type `type` at each path. */
typedef struct report {
  const tdict_type *type;
  const char *paths[MOST_PATHS]; /* NULL after the last */
  probe p;
} report;

/* Computes the number of a batch from its first sample and its path. Workers call this, so it must not assert. */
static int number_at(int64_t first, int path) { return (int)(first * MOST_PATHS) + path; }

static tdict_status put_batch(tdict_tree *td, const char *path, report *r, int number, tdict_error *err) {
  static const int64_t shape[] = {PAIR_ROWS, PAIR_COLUMNS};
  tdict_tensor *t[2] = {NULL, NULL};
  tdict_status status = TDICT_OK;
  for (int i = 0; i < 2 && status == TDICT_OK; i++) {
    status = tdict_tensor_empty(TDICT_F32, 2, shape, NULL, &t[i], err); /* not pinned: there is something to pin */
    if (status == TDICT_OK) td_fill_random(tdict_tensor_data(t[i]), tdict_tensor_bytes(t[i]), pair_seed(number, i));
  }
  batch like = {.base = {.label = "a batch", .number = number, .p = &r->p},
                .names = {"left camera", "lidar"},
                .sizes = {640 + number, 480}};
  batch *made = status == TDICT_OK ? batch_around(&like, t[0], t[1]) : NULL;
  if (!made) {
    td_release(t[0], t[1]);
    return status == TDICT_OK ? TDICT_ENOMEM : status;
  }
  status = tdict_set_object(td, path, r->type, made, err);
  if (status != TDICT_OK) pair_release(made);
  return status;
}
static tdict_status collate(void *user, const tdict_fetch_info *info, const tdict_tree *const *samples, size_t count,
                            tdict_tree **out, tdict_error *err) {
  report *r = user;
  tdict_tree *td = NULL;
  (void)count;
  (void)info;
  int64_t first = *(const int64_t *)tdict_const_data(samples[0], "id");
  tdict_status status = tdict_create(0, NULL, &td, err);
  for (int k = 0; k < MOST_PATHS && r->paths[k] && status == TDICT_OK; k++)
    status = put_batch(td, r->paths[k], r, number_at(first, k), err);
  if (status == TDICT_OK)
    *out = td;
  else
    tdict_release(td);
  return status;
}

/* Checks the batch at a path: its type, all its members and elements, and, on the host, that it is pinned. */
static void check_batch(const place *w, const tdict_tree *td, const report *r, int64_t first, int path, bool on_host) {
  void *self = NULL;
  int number = number_at(first, path);
  assert_ptr_equal(tdict_object_type(td, r->paths[path]), r->type);
  td_ok(tdict_get_object(td, r->paths[path], r->type, &self, err));
  const batch *b = self;
  check_pair(w, &b->base, number, on_host ? tdict_cpu() : w->device);
  assert_string_equal(b->names[0], "left camera");
  assert_string_equal(b->names[1], "lidar");
  assert_int_equal(batch_area(b), (640 + number) * 480 + number);
  if (!on_host) return;
  assert_true(tdict_tensor_is_pinned(b->base.inp));
  assert_true(tdict_tensor_is_pinned(b->base.tgt));
}

/* Loads one epoch with pin_memory, with batches on the host or on the device. */
static void load(place *w, report *r, int workers, bool on_host) {
  numbers n = numbers_of(SAMPLES);
  tdict_dataset_table d = by_sample(&n);
  scoped_loader l = NULL;
  tdict_loader_options o = td_with(tdict_loader_options, batch_size = ROWS, num_workers = workers, collate = collate,
                                   user = r, pin_memory = true);
  if (on_host) o.device = tdict_cpu();
  td_ok(create_loader_of(w->c, &d, &o, &l, err));
  for (int64_t i = 0; i < BATCHES; i++) {
    scoped_tree td = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
    assert_non_null(td);
    for (int k = 0; k < MOST_PATHS && r->paths[k]; k++) check_batch(w, td, r, i * ROWS, k, on_host);
  }
}

static void load_in_all_ways(report r) {
  for (int workers = 0; workers < 5; workers += 2) {
    for (int on_host = 0; on_host < 2; on_host++) {
      place w = place_open(4);
      load(&w, &r, workers, on_host);
      place_close(&w); /* transfers that still ran when the loader was destroyed retain their batches until now */
      check_gone(&r.p);
    }
  }
  int own = atomic_load(&r.p.pins) + atomic_load(&r.p.moves), taken_apart = atomic_load(&r.p.flattens);
  if (r.type->pin_memory) {
    assert_true(own >= 2 * 3 * BATCHES);
    assert_true(atomic_load(&r.p.pins) >= 3 * BATCHES);
    assert_int_equal(taken_apart, 0); /* its own hooks were called, and `flatten` was not */
  } else {
    assert_int_equal(own, 0);
    assert_true(taken_apart >= 2 * 3 * BATCHES);
  }
}

/* "pin_memory may change the type of instance returned by collate_fn": the object is the only entry of the batch. */
GPU_CASE(loader_pytorch_32150_pin_keeps_the_type_of_the_batch) {
  load_in_all_ways((report){.type = &training_batch, .paths = {"batch"}});
}

/* "DataLoader w/ memory pinning doesn't allow returning custom dict objects from custom data collator": the type has a
 * method, but no hook. */
GPU_CASE(loader_pytorch_67831_a_batch_without_hook_keeps_its_methods) {
  load_in_all_ways((report){.type = &container, .paths = {"values"}});
}

/* "pin_memory *still* destroys custom containers": objects keep names and sizes as well as tensors, even in lists. */
GPU_CASE(loader_pytorch_70158_containers_keep_what_they_carry) {
  load_in_all_ways((report){.type = &container, .paths = {"list.0", "list.1", "dict.a.b", "top"}});
}

/* "DataLoader: `pin_memory` should respect object attributes before object collection type": own hooks come first. */
GPU_CASE(loader_pytorch_82185_own_hook_is_asked_before_the_container_rule) {
  load_in_all_ways((report){.type = &training_batch, .paths = {"batch", "in.a.dict.of.dicts", "list.0", "list.1"}});
}
