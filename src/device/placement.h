/* The memory node that a GPU hangs on, and on which processors the threads of a pool work: those of that node, as far as
 * the process may use them. Asked of the system when a context is made and a gpu is opened; nothing is kept here. Thread
 * rule: safe from any thread. */
#ifndef TDICT_DEVICE_PLACEMENT_H
#define TDICT_DEVICE_PLACEMENT_H

#include <sched.h>

#include "base/log.h"
#include "device/gpu.h"

typedef enum tdict_placement_kind {
  TDICT_PLACEMENT_ONE_NODE,  /* or the system does not say how many: there is nothing to choose */
  TDICT_PLACEMENT_UNKNOWN,   /* the gpu's node is not known */
  TDICT_PLACEMENT_ELSEWHERE, /* the process may not use the node's processors */
  TDICT_PLACEMENT_NODE       /* workers keep to `cpus` */
} tdict_placement_kind;
typedef struct tdict_placement {
  tdict_placement_kind kind;
  int num_nodes, node; /* node -1: not known */
  cpu_set_t cpus;      /* of the node and of the mask */
} tdict_placement;

/* `root` is "/sys" but in tests; `bus` the device's address, "0000:1b:00.0". */
tdict_placement tdict_placement_find(const char *root, const char *bus, const cpu_set_t *mask);
/* The address on the PCI bus; false: the driver does not say. */
bool tdict_placement_bus(const tdict_gpu *gpu, char *buffer, size_t bytes);
/* The gpu's memory node where there are several; -1: it is not known, or there is one. */
int tdict_placement_node(const char *root, const tdict_gpu *gpu);
/* Finds it for a gpu and this process, moves the pool's threads there, and tells the log what was chosen. */
void tdict_placement_apply(const char *root, const tdict_gpu *gpu, tdict_pool *pool, tdict_log *log);
/* "0-3,8". Returns `buffer`. */
char *tdict_placement_format(const cpu_set_t *cpus, char *buffer, size_t bytes);

#endif
