/* The settings of fake_libcuda.so, exported as `fake_libcuda`. A test changes them before it opens the driver. */
#ifndef TDICT_TESTS_DEVICE_CUDA_FAKE_LIBCUDA_H
#define TDICT_TESTS_DEVICE_CUDA_FAKE_LIBCUDA_H

typedef struct fake_settings {
  int version;        /* the version that cuDriverGetVersion reports */
  int version_result; /* the result of cuDriverGetVersion */
  int init_result;    /* the result of cuInit */
  int device_count;
  const char *missing; /* the name of an entry that cuGetProcAddress does not find, or NULL */
  int lookups;         /* the number of calls to cuGetProcAddress */
  int load_result;     /* the result of cuModuleLoadData */
  int modules;         /* the number of loaded modules */
} fake_settings;

#endif
