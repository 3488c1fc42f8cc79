/* A user's program, which uses only the installed package. Moves a tree to the simulated device and back, and compares
 * the bytes. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <tdict/config.h>
#include <tdict/tdict.h>

#ifdef EXPECT_PARTS /* the optional parts that find_package() reports */
#if TDICT_HAS_CUDA != EXPECT_CUDA || TDICT_HAS_NVTX != EXPECT_NVTX
#error tdict/config.h and the components of find_package differ: cuda or nvtx
#endif
#if TDICT_HAS_OPENMPI != EXPECT_OPENMPI || TDICT_HAS_MPICH != EXPECT_MPICH
#error tdict/config.h and the components of find_package differ: openmpi or mpich
#endif
#endif

static const tdict_field fields[] = {{"obs.pixels", TDICT_U8, 3, {3, 8, 8}}, {"reward", TDICT_F32, 1, {1}}};

static int fail(const char *what, const tdict_error *err) {
  fprintf(stderr, "consumer: %s: %s: %s\n", what, tdict_status_name((tdict_status)err->status), err->message);
  return 1;
}

static int same(const tdict_tree *a, const tdict_tree *b, const char *path, size_t bytes) {
  return memcmp(tdict_const_data(a, path), tdict_const_data(b, path), bytes) == 0;
}

static int there_and_back(tdict_context *context, tdict_tree *host, tdict_error *err) {
  tdict_tree *device = NULL, *back = NULL;
  int good;
  if (tdict_to_device(context, host, tdict_sim(0), NULL, &device, err) != TDICT_OK) return fail("to the device", err);
  if (tdict_to_device(context, device, tdict_cpu(), NULL, &back, err) != TDICT_OK) {
    tdict_release(device);
    return fail("back", err);
  }
  good = same(host, back, "obs.pixels", 4 * 3 * 8 * 8) && same(host, back, "reward", 4 * sizeof(float));
  tdict_release(back);
  tdict_release(device);
  if (!good) fprintf(stderr, "consumer: other bytes came back\n");
  return good ? 0 : 1;
}

int main(void) {
  const int64_t batch[1] = {4};
  tdict_context_options options = tdict_context_options_default();
  tdict_context *context = NULL;
  tdict_tree *host = NULL;
  tdict_error err;
  unsigned char *pixels;
  float *reward;
  int i, code;
  memset(&err, 0, sizeof err);
  options.device = tdict_sim(0);
  if (tdict_context_create(&options, &context, &err) != TDICT_OK) return fail("context", &err);
  if (tdict_create_from(fields, 2, 1, batch, NULL, &host, &err) != TDICT_OK) {
    tdict_context_destroy(context);
    return fail("tree", &err);
  }
  pixels = (unsigned char *)tdict_data(host, "obs.pixels");
  reward = (float *)tdict_data(host, "reward");
  for (i = 0; i < 4 * 3 * 8 * 8; i++) pixels[i] = (unsigned char)(i * 37 + 11);
  for (i = 0; i < 4; i++) reward[i] = 1.5f + (float)i;
  code = there_and_back(context, host, &err);
  tdict_release(host);
  tdict_context_destroy(context);
  if (code == 0) printf("consumer: C, version %d, the same bytes came back\n", tdict_version());
  return code;
}
