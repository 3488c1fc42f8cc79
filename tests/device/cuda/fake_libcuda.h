/* What a test sets in fake_libcuda.so before it opens the driver: the symbol `fake_libcuda` of the loaded library. */
#ifndef TDICT_TESTS_DEVICE_CUDA_FAKE_LIBCUDA_H
#define TDICT_TESTS_DEVICE_CUDA_FAKE_LIBCUDA_H

typedef struct fake_settings {
  int version;        /* what cuDriverGetVersion says */
  int version_result; /* what it answers */
  int init_result;    /* what cuInit answers */
  int device_count;
  const char *missing; /* the name of an entry that cuGetProcAddress does not find, or NULL */
  int lookups;         /* counts the calls of cuGetProcAddress */
  int load_result;     /* what cuModuleLoadData answers */
  int modules;         /* modules that are loaded */
} fake_settings;

#endif
