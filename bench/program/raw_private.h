/* The private struct of a raw_driver, for raw.c and raw_more.c only. See raw.h for ownership and threads. */
#ifndef TDICT_BENCH_RAW_PRIVATE_H
#define TDICT_BENCH_RAW_PRIVATE_H

#include "raw.h"

typedef int cu_result;
typedef int cu_device;
typedef void *cu_context;
typedef void *cu_stream;
typedef void *cu_module;
typedef void *cu_function;
/* CUlaunchConfig in the manual. */
typedef struct cu_launch {
  unsigned grid[3], block[3], shared_bytes;
  cu_stream stream;
  void *attributes;
  unsigned num_attributes;
} cu_launch;

struct raw_driver {
  void *library;
  cu_result (*init)(unsigned flags);
  cu_result (*driver_version)(int *version);
  cu_result (*device_get)(cu_device *device, int ordinal);
  cu_result (*device_name)(char *name, int bytes, cu_device device);
  cu_result (*ctx_retain)(cu_context *context, cu_device device);
  cu_result (*ctx_release)(cu_device device);
  cu_result (*ctx_push)(cu_context context);
  cu_result (*ctx_pop)(cu_context *context);
  cu_result (*mem_alloc)(raw_address *out, size_t bytes);
  cu_result (*mem_free)(raw_address device);
  cu_result (*host_alloc)(void **out, size_t bytes, unsigned flags);
  cu_result (*host_free)(void *host);
  cu_result (*copy_in)(raw_address device, const void *host, size_t bytes);
  cu_result (*copy_out)(void *host, raw_address device, size_t bytes);
  cu_result (*copy_in_async)(raw_address device, const void *host, size_t bytes, cu_stream stream);
  cu_result (*copy_out_async)(void *host, raw_address device, size_t bytes, cu_stream stream);
  cu_result (*fill)(raw_address device, unsigned char byte, size_t bytes);
  cu_result (*stream_create)(cu_stream *out, unsigned flags);
  cu_result (*stream_destroy)(cu_stream stream);
  cu_result (*stream_synchronize)(cu_stream stream);
  cu_result (*stream_query)(cu_stream stream);
  cu_result (*error_name)(cu_result result, const char **name);
  cu_result (*device_count)(int *count);
  cu_result (*device_memory)(size_t *bytes, cu_device device);
  cu_result (*device_attribute)(int *value, int attribute, cu_device device);
  cu_result (*device_bus)(char *text, int bytes, cu_device device);
  cu_result (*module_load)(cu_module *out, const void *image);
  cu_result (*module_unload)(cu_module module);
  cu_result (*module_function)(cu_function *out, cu_module module, const char *name);
  cu_result (*launch)(const cu_launch *how, cu_function function, void **parameters, void **extra);
  cu_device device;
  cu_context context; /* NULL: not retained and pushed yet */
  cu_stream stream;
  cu_module module; /* contains the kernel; loaded at the first launch */
  cu_function kernel;
  int version;
  char name[128], why[256];
};

/* Returns true if `result` is 0. Otherwise sets the message of raw_why() to the name of the call and the error. */
bool raw_answered(raw_driver *r, const char *call, cu_result result);

#endif
