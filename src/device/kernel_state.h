/* Declares the state of a gpu for launches: the module with the library's kernels, and buffers for results and for
 * tables that do not fit the parameters of a launch. The functions are in run.c. The gpu owns the state. Thread rule:
 * the lock guards all fields. */
#ifndef TDICT_DEVICE_KERNEL_STATE_H
#define TDICT_DEVICE_KERNEL_STATE_H

#include <pthread.h>

#include "device/driver.h"
#include "kernel/work.h"

enum { TDICT_KEPT_TABLES = 8 };
/* A buffer for the table and the results of a launch. The host writes the table to the pinned half, and a copy on the
 * stream of the launch fills the device half. The kernel writes the results to the pinned half. */
typedef struct tdict_launch_table {
  void *host, *device;
  size_t bytes;         /* of each half */
  tdict_cu_event event; /* recorded after the last use; NULL: the buffer is idle */
} tdict_launch_table;

typedef struct tdict_kernel_state {
  pthread_mutex_t lock;
  tdict_cu_module module; /* NULL: not loaded yet */
  bool logged_failure;    /* a message about kernels that cannot be loaded was logged */
  tdict_cu_function functions[TDICT_KERNEL_NUM_OPS];
  int num_tables;
  tdict_launch_table tables[TDICT_KEPT_TABLES];
} tdict_kernel_state;

#endif
