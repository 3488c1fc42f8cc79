/* Finds the NUMA node of a GPU and binds the threads of a pool to the node's processors. Ignores processors that the
 * process is not allowed to use. The library reads sysfs when a context is created and when a gpu is opened. These
 * functions store nothing. Thread rule: safe from any thread. */
#ifndef TDICT_DEVICE_PLACEMENT_H
#define TDICT_DEVICE_PLACEMENT_H

#include "core/base/log.h"
#include "device/gpu.h"

typedef enum tdict_placement_kind {
  TDICT_PLACEMENT_ONE_NODE,  /* the machine has one node, or sysfs does not list nodes */
  TDICT_PLACEMENT_UNKNOWN,   /* sysfs does not give the gpu's node, or the node's processors */
  TDICT_PLACEMENT_ELSEWHERE, /* the process may use none of the node's processors */
  TDICT_PLACEMENT_NODE       /* bind workers to `cpus` */
} tdict_placement_kind;
typedef struct tdict_placement {
  tdict_placement_kind kind;
  int num_nodes, node; /* node -1: unknown, or the machine has one node */
  tdict_cpus cpus;     /* kind NODE: the node's processors that the process may use; else `mask` */
} tdict_placement;

/* Finds the node of a PCI address ("0000:1b:00.0"). `root`: "/sys", or a test's folder. `mask`: usable processors. */
tdict_placement tdict_placement_find(const char *root, const char *bus, const tdict_cpus *mask);
/* Writes the gpu's PCI address to `buffer`. Returns false if the driver does not give the address. */
bool tdict_placement_bus(const tdict_gpu *gpu, char *buffer, size_t bytes);
/* Returns the gpu's NUMA node; -1 if the node is unknown or the machine has one node. */
int tdict_placement_node(const char *root, const tdict_gpu *gpu);
/* Binds the pool's threads to the processors of the gpu's node, and logs it. If the node is unknown, or the process may
 * use none of its processors, only logs the reason. Does nothing on a machine with one node. */
void tdict_placement_apply(const char *root, const tdict_gpu *gpu, tdict_pool *pool, tdict_log *log);

#endif
