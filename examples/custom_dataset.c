/* custom_dataset: uses a dataset and a batch type of the program with a loader.
 *
 *   custom_dataset [[--device] DEVICE]     auto (default), cpu, sim, cuda:N
 *
 * The dataset makes sample i from the number i: a point, and a flag that tells if it is
 * inside a circle. A batch is a struct of the program. The loader makes it with a
 * collate function, pins it by the hook of its type, and delivers it with its type. One
 * loader delivers pinned batches on the host, another delivers them on the device. The
 * exit status is 0 if every batch is right. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tdict/combine.h>
#include <tdict/hook.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>

enum { SAMPLES = 20, BATCH = 4 };
static tdict_error err;

/* ---- the dataset: how many samples, and sample i as a tree ---- */
static int64_t count_points(void *self) { return *(int64_t *)self; }

static tdict_status make_point(void *self, const tdict_fetch_info *info, int64_t index,
                               tdict_tree **out, tdict_error *e) {
  static const tdict_field fields[] = {TDICT_FIELD("xy", TDICT_F32, 2),
                                       TDICT_FIELD("inside", TDICT_F32)};
  tdict_tree *td;
  (void)info;
  (void)self;
  tdict_status status = tdict_create_from(fields, 2, 0, NULL, NULL, &td, e);
  if (status != TDICT_OK) return status;
  float x = (float)(index % 5) / 4, y = (float)(index / 5) / 3;
  memcpy(tdict_data(td, "xy"), (float[]){x, y}, 2 * sizeof(float));
  *(float *)tdict_data(td, "inside") = x * x + y * y < 1 ? 1 : 0;
  *out = td;
  return TDICT_OK;
}

/* ---- the batch: a struct with a type that has
 * functions to release, pin and move it ---- */
typedef struct batch {
  tdict_tree *tensors; /* "xy" and "inside" of all samples */
  double radius;       /* what no tensor holds */
} batch;

static void batch_release(void *self) {
  tdict_release(((batch *)self)->tensors);
  free(self);
}
/* takes the tensors */
static tdict_status batch_create(tdict_tree *tensors, double radius, void **out) {
  batch *b = malloc(sizeof *b);
  if (!b) {
    tdict_release(tensors);
    return TDICT_ENOMEM;
  }
  *b = (batch){tensors, radius};
  *out = b;
  return TDICT_OK;
}
static bool batch_is_pinned(const void *self) {
  return tdict_is_pinned(((const batch *)self)->tensors);
}
static tdict_status batch_pin(const void *self, const tdict_hook *hook, void **out,
                              tdict_error *e) {
  const batch *b = self;
  tdict_tree *pinned;
  tdict_status status = tdict_pin_memory(hook->context, b->tensors, NULL, &pinned, e);
  return status == TDICT_OK ? batch_create(pinned, b->radius, out) : status;
}
static tdict_status batch_move(const void *self, const tdict_hook *hook, void **out,
                               tdict_error *e) {
  const batch *b = self;
  tdict_tree *moved;
  tdict_status status =
      tdict_to_device(hook->context, b->tensors, hook->device, NULL, &moved, e);
  return status == TDICT_OK ? batch_create(moved, b->radius, out) : status;
}
static const tdict_type batch_type = {.struct_size = sizeof batch_type,
                                      .name = "point batch",
                                      .release = batch_release,
                                      .pin_memory = batch_pin,
                                      .to_device = batch_move,
                                      .is_pinned = batch_is_pinned};

/* ---- samples become a batch ---- */
static tdict_status collate(void *user, const tdict_fetch_info *info,
                            const tdict_tree *const *samples, size_t count,
                            tdict_tree **out, tdict_error *e) {
  tdict_tree *stacked, *td = NULL;
  void *b = NULL;
  (void)user;
  (void)info; /* plain memory here, so that the hook has something to do */
  tdict_status status = tdict_stack(samples, count, NULL, NULL, &stacked, e);
  if (status == TDICT_OK) status = batch_create(stacked, 1.0, &b);
  if (status == TDICT_OK) status = tdict_create(0, NULL, &td, e);
  if (status == TDICT_OK) status = tdict_set_object(td, "batch", &batch_type, b, e);
  if (status == TDICT_OK) {
    *out = td;
    return TDICT_OK;
  }
  if (b) batch_release(b);
  tdict_release(td);
  return status;
}

/* Checks a batch of the loader: its type, the
 * device of its tensors, and its numbers. */
static bool check(tdict_context *c, const tdict_tree *td, bool on_host, int64_t first) {
  void *self;
  tdict_tree *host;
  /* the type is kept */
  if (tdict_get_object(td, "batch", &batch_type, &self, &err) != TDICT_OK) return false;
  const batch *b = self;
  if (on_host && !batch_is_pinned(b)) return false;
  if (tdict_to_device(c, b->tensors, tdict_cpu(), NULL, &host, &err) != TDICT_OK)
    return false;
  const float *xy = tdict_const_data(host, "xy");
  bool good = xy && b->radius == 1.0 && tdict_batch_size(host)[0] == BATCH;
  for (int64_t i = 0; i < BATCH && good; i++)
    good = xy[2 * i] == (float)((first + i) % 5) / 4 &&
           xy[2 * i + 1] == (float)((first + i) / 5) / 3;
  tdict_release(host);
  return good;
}

static bool epoch(tdict_context *c, tdict_device device, bool on_host) {
  static int64_t samples = SAMPLES;
  tdict_dataset_table points = tdict_dataset_table_default();
  points.self = &samples;
  points.length = count_points;
  points.fetch_sample = make_point;
  tdict_loader_options o = tdict_loader_options_default();
  o.batch_size = BATCH;
  o.device = device;
  /* else there is nothing to pin for */
  o.pin_memory = tdict_context_device(c, NULL).type != TDICT_DEVICE_CPU;
  o.collate = collate;
  /* the loop counts samples, and needs no look for the end of an epoch */
  o.endless = true;
  tdict_dataset *dataset = NULL;
  tdict_loader *loader = NULL;
  tdict_status status = tdict_dataset_create(&points, &dataset, &err);
  if (status == TDICT_OK) status = tdict_loader_create(c, dataset, &o, &loader, &err);
  tdict_dataset_release(dataset);
  if (status != TDICT_OK) return false;
  tdict_tree *td = NULL;
  int64_t seen = 0;
  bool good = true;
  for (; good && seen < SAMPLES; seen += BATCH) {
    good = tdict_loader_next(loader, tdict_no_stream(), &td, &err) == TDICT_OK;
    if (!good) break;
    good = check(c, td, on_host && o.pin_memory, seen);
    tdict_release(td);
  }
  tdict_loader_destroy(loader);
  printf("%-9s %d samples, each batch a \"%s\"%s\n",
         on_host ? "host:" : "device:", (int)seen, batch_type.name,
         on_host && o.pin_memory ? ", pinned by its hook" : "");
  return good && seen == SAMPLES;
}

int main(int argc, char **argv) {
  tdict_context *c = NULL;
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  if (argc > 3 || (argc == 3 && strcmp(argv[1], "--device") != 0) ||
      (argc == 2 && argv[1][0] == '-')) {
    fprintf(stderr, "usage: custom_dataset [[--device] auto|cpu|sim|cuda:N]\n");
    return 2;
  }
  bool good = tdict_device_parse(argc > 1 ? argv[argc - 1] : "auto", &o.device, &err) ==
              TDICT_OK;
  if (o.device.type == TDICT_DEVICE_SIM || o.device.type == TDICT_DEVICE_AUTO)
    o.sim = &sim;
  good = good && tdict_context_create(&o, &c, &err) == TDICT_OK;
  good = good && epoch(c, tdict_cpu(), true) &&
         epoch(c, tdict_context_device(c, NULL), false);
  if (!good)
    fprintf(stderr, "custom_dataset: %s\n",
            err.message[0] ? err.message : "a batch is not what it should be");
  tdict_context_destroy(c);
  return good ? 0 : 1;
}
