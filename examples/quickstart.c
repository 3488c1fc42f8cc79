/* quickstart: fills a nested reinforcement-learning batch on the host, copies it to a
 * device and back, and compares.
 *
 *   quickstart [[--device] DEVICE]     auto (default), cpu, sim, cuda:N
 *
 * Runs on any machine: "auto" uses a GPU if there is one, else the simulated device. */
#include <stdio.h>
#include <string.h>

#include <tdict/sim.h>
#include <tdict/tdict.h>
#include <tdict/try.h>

enum { BATCH = 128, NUM_FIELDS = 7 };

/* The batch: paths, element types, shapes without the batch dimension. */
static const tdict_field fields[NUM_FIELDS] = {
    TDICT_FIELD("obs.pixels", TDICT_U8, 3, 64, 64),
    TDICT_FIELD("obs.state", TDICT_F32, 17),
    TDICT_FIELD("action", TDICT_F32, 6),
    TDICT_FIELD("next.obs.pixels", TDICT_U8, 3, 64, 64),
    TDICT_FIELD("next.obs.state", TDICT_F32, 17),
    TDICT_FIELD("next.reward", TDICT_F32, 1),
    TDICT_FIELD("next.done", TDICT_BOOL, 1),
};

static void fill(tdict_tree *host) {
  for (int f = 0; f < NUM_FIELDS; f++) {
    tdict_tensor *leaf;
    if (tdict_get(host, fields[f].path, &leaf, NULL) != TDICT_OK) continue;
    /* an ordinary pointer: write as you like */
    void *data = tdict_data(host, fields[f].path);
    int64_t count = tdict_tensor_numel(leaf);
    for (int64_t i = 0; i < count; i++) {
      if (fields[f].dtype == TDICT_F32)
        ((float *)data)[i] = (float)i * 0.25f + (float)f;
      else if (fields[f].dtype == TDICT_U8)
        ((unsigned char *)data)[i] = (unsigned char)(i * 7 + i / 256 + f);
      else
        ((bool *)data)[i] = i % 5 == 0;
    }
  }
}

/* Returns the number of equal bytes of the two trees.
 * Prints an error and returns 0 if a byte differs. */
static size_t compare(tdict_tree *a, tdict_tree *b) {
  size_t total = 0;
  for (int f = 0; f < NUM_FIELDS; f++) {
    tdict_tensor *x, *y;
    if (tdict_get(a, fields[f].path, &x, NULL) != TDICT_OK ||
        tdict_get(b, fields[f].path, &y, NULL) != TDICT_OK ||
        tdict_tensor_bytes(x) != tdict_tensor_bytes(y) ||
        memcmp(tdict_tensor_const_data(x), tdict_tensor_const_data(y),
               tdict_tensor_bytes(x)) != 0) {
      fprintf(stderr, "quickstart: %s came back different\n", fields[f].path);
      return 0;
    }
    total += tdict_tensor_bytes(x);
  }
  return total;
}

static int round_trip(tdict_context *c) {
  const int64_t batch[1] = {BATCH};
  tdict_tree *host = NULL, *dev = NULL, *back = NULL;
  tdict_future *f = NULL;
  tdict_error err = {0};
  size_t equal = 0;

  /* Allocates pinned memory, which a device reads fastest.
   * Without a device, allocates ordinary memory. */
  tdict_status status = tdict_create_from(fields, NUM_FIELDS, 1, batch,
                                          tdict_pinned_memory(c), &host, &err);
  if (status == TDICT_ENODEVICE)
    status = tdict_create_from(fields, NUM_FIELDS, 1, batch, NULL, &host, &err);
  TDICT_TRY(status);
  fill(host);
  /* returns at once */
  TDICT_TRY(
      tdict_to_device_async(c, host, tdict_context_device(c, NULL), NULL, &f, &err));
  TDICT_TRY(tdict_future_wait(f, &dev, &err));
  TDICT_TRY(tdict_print(dev, stdout, &err));
  TDICT_TRY(tdict_to_device(c, dev, tdict_cpu(), NULL, &back, &err));
  equal = compare(host, back);
  if (equal) printf("round trip: %zu bytes equal\n", equal);

done:
  tdict_future_release(f);
  tdict_release(back);
  tdict_release(dev);
  tdict_release(host);
  return equal ? 0 : 1;
}

int main(int argc, char **argv) {
  tdict_context *c = NULL;
  tdict_error err, why;
  int code = 1;
  /* so that "auto" finds a device on any machine */
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  o.sim = &sim;
  if (argc > 3 || (argc == 3 && strcmp(argv[1], "--device") != 0) ||
      (argc == 2 && argv[1][0] == '-')) {
    fprintf(stderr, "usage: quickstart [[--device] auto|cpu|sim|cuda:N]\n");
    return 2;
  }
  if (argc > 1) TDICT_TRY(tdict_device_parse(argv[argc - 1], &o.device, &err));
  TDICT_TRY(tdict_context_create(&o, &c, &err));
  if (tdict_context_device(c, &why).type == TDICT_DEVICE_SIM)
    printf("on the simulated device: %s\n", why.message);
  code = round_trip(c);

done:
  tdict_context_destroy(c);
  return code;
}
