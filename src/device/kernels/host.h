/* Runs the bodies of the kernels on the host, for the simulated device. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_KERNELS_HOST_H
#define TDICT_DEVICE_KERNELS_HOST_H

#include "core/kernel/work.h"

/* Translates the addresses of a launch. */
typedef struct tdict_kernel_access {
  /* Returns the host address of `bytes` bytes, equally aligned, or NULL if they are not accessible. */
  void *(*at)(void *user, uint64_t address, size_t bytes);
  void *user;
} tdict_kernel_access;

/* Runs all blocks of a launch in turn. Leaves out units with an address that is not accessible, and returns false. */
bool tdict_kernel_run_host(tdict_kernel_op op, const tdict_kernel_params *params, uint64_t num_blocks,
                           const tdict_kernel_access *access);

#endif
