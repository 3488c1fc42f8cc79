/* Runs the bodies of the kernels on the host, for the simulated device. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_KERNELS_HOST_H
#define TDICT_DEVICE_KERNELS_HOST_H

#include "core/kernel/work.h"

/* Translates the addresses of a launch. */
typedef struct tdict_kernel_access {
  /* Returns the host address of `bytes` bytes, or NULL if they are not accessible. The host address has the alignment
   * of the address. */
  void *(*at)(void *user, uint64_t address, size_t bytes);
  void *user;
} tdict_kernel_access;

/* Runs all blocks of a launch, one after another. Returns false if an address was not accessible. Units with such an
 * address are left out. */
bool tdict_kernel_run_host(tdict_kernel_op op, const tdict_kernel_params *params, uint64_t num_blocks,
                           const tdict_kernel_access *access);

#endif
