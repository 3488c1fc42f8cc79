/* Implements the driver calls that are not copies: a kernel to overlap with, and properties of devices. See raw.h for
 * ownership and threads. */
#include <stdio.h>
#include <string.h>

#include "raw_private.h"

/* Values of CUdevice_attribute from NVIDIA's "CUDA Driver API" manual. */
enum { attribute_engines = 40, attribute_major = 75, attribute_minor = 76 };

/* The kernel in PTX. The driver compiles it, so that no CUDA toolkit is needed. It reads the nanosecond clock of the
 * device until the time is over. */
static const char spin_text[] = ".version 6.3\n"
                                ".target sm_75\n"
                                ".address_size 64\n"
                                ".visible .entry tdict_bench_spin(.param .u64 nanoseconds)\n"
                                "{\n"
                                "  .reg .pred %p;\n"
                                "  .reg .b64 %rd<5>;\n"
                                "  ld.param.u64 %rd1, [nanoseconds];\n"
                                "  mov.u64 %rd2, %globaltimer;\n"
                                "again:\n"
                                "  mov.u64 %rd3, %globaltimer;\n"
                                "  sub.s64 %rd4, %rd3, %rd2;\n"
                                "  setp.lt.u64 %p, %rd4, %rd1;\n"
                                "  @%p bra again;\n"
                                "  ret;\n"
                                "}\n";

static bool load_kernel(raw_driver *r) {
  if (r->kernel) return true;
  if (!r->module && !raw_answered(r, "cuModuleLoadData", r->module_load(&r->module, spin_text))) return false;
  return raw_answered(r, "cuModuleGetFunction", r->module_function(&r->kernel, r->module, "tdict_bench_spin"));
}

bool raw_spin(raw_driver *r, uint64_t nanoseconds) {
  void *parameters[1] = {&nanoseconds};
  const cu_launch how = {{1, 1, 1}, {1, 1, 1}, 0, r->stream, NULL, 0};
  return load_kernel(r) && raw_answered(r, "cuLaunchKernelEx", r->launch(&how, r->kernel, parameters, NULL));
}

int raw_device_count(raw_driver *r) {
  int count = 0;
  return raw_answered(r, "cuDeviceGetCount", r->device_count(&count)) ? count : -1;
}

bool raw_device_describe(raw_driver *r, int ordinal, raw_device_info *out) {
  cu_device d;
  memset(out, 0, sizeof *out);
  return raw_answered(r, "cuDeviceGet", r->device_get(&d, ordinal)) &&
         raw_answered(r, "cuDeviceGetName", r->device_name(out->name, (int)sizeof out->name, d)) &&
         raw_answered(r, "cuDeviceGetPCIBusId", r->device_bus(out->bus, (int)sizeof out->bus, d)) &&
         raw_answered(r, "cuDeviceTotalMem", r->device_memory(&out->memory_bytes, d)) &&
         raw_answered(r, "cuDeviceGetAttribute", r->device_attribute(&out->compute_major, attribute_major, d)) &&
         raw_answered(r, "cuDeviceGetAttribute", r->device_attribute(&out->compute_minor, attribute_minor, d)) &&
         raw_answered(r, "cuDeviceGetAttribute", r->device_attribute(&out->copy_engines, attribute_engines, d));
}
