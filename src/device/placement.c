/* Finds a GPU's NUMA node in sysfs, and binds threads to its processors. Stores nothing. Threads: placement.h. */
#include "device/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/sched/pool.h"
#include "tdict/context.h"

enum { MAX_PATH = 256, MAX_LIST = 4096 };

/* Reads a whole file as a string. Returns false if the file is missing, empty or does not fit. */
static bool read_text(const char *path, char *buffer, size_t bytes) {
  FILE *file = fopen(path, "re");
  if (!file) return false;
  size_t count = fread(buffer, 1, bytes - 1, file);
  fclose(file);
  buffer[count] = 0;
  return count > 0 && count < bytes - 1;
}

/* Parses the kernel's lists, such as "0-3,8", of numbers below TDICT_MOST_CPUS. Returns false for other text. */
static bool parse_list(const char *text, tdict_cpus *out) {
  memset(out, 0, sizeof *out);
  while (*text && *text != '\n') {
    char *end;
    long first = strtol(text, &end, 10), last = first;
    if (end == text || first < 0) return false;
    if (*end == '-') {
      text = end + 1;
      last = strtol(text, &end, 10);
      if (end == text) return false;
    }
    if (last < first || last >= TDICT_MOST_CPUS) return false;
    for (long i = first; i <= last; i++) CPU_SET_S((size_t)i, sizeof out->sets, out->sets);
    if (*end == ',')
      end++;
    else if (*end && *end != '\n')
      return false;
    text = end;
  }
  return true;
}

static int count(const tdict_cpus *cpus) { return CPU_COUNT_S(sizeof cpus->sets, cpus->sets); }

tdict_placement tdict_placement_find(const char *root, const char *bus, const tdict_cpus *mask) {
  tdict_placement p = {TDICT_PLACEMENT_ONE_NODE, 1, -1, *mask};
  char path[MAX_PATH], text[MAX_LIST];
  tdict_cpus nodes, cpus;
  snprintf(path, sizeof path, "%.100s/devices/system/node/online", root);
  if (!read_text(path, text, sizeof text) || !parse_list(text, &nodes) || count(&nodes) < 2) return p;
  p.num_nodes = count(&nodes);
  p.kind = TDICT_PLACEMENT_UNKNOWN;
  snprintf(path, sizeof path, "%.100s/bus/pci/devices/%.32s/numa_node", root, bus);
  if (!read_text(path, text, sizeof text)) return p;
  long node = strtol(text, NULL, 10);
  if (node < 0 || node >= TDICT_MOST_CPUS || !CPU_ISSET_S((size_t)node, sizeof nodes.sets, nodes.sets)) return p;
  p.node = (int)node;
  /* Find the node's processors that the process may use. */
  snprintf(path, sizeof path, "%.100s/devices/system/node/node%ld/cpulist", root, node);
  if (!read_text(path, text, sizeof text) || !parse_list(text, &cpus)) return p;
  CPU_AND_S(sizeof cpus.sets, cpus.sets, cpus.sets, mask->sets);
  p.kind = count(&cpus) ? TDICT_PLACEMENT_NODE : TDICT_PLACEMENT_ELSEWHERE;
  if (count(&cpus)) p.cpus = cpus;
  return p;
}

bool tdict_placement_bus(const tdict_gpu *gpu, char *buffer, size_t bytes) {
  static const int attributes[] = {TDICT_CU_ATTRIBUTE_PCI_DOMAIN_ID, TDICT_CU_ATTRIBUTE_PCI_BUS_ID,
                                   TDICT_CU_ATTRIBUTE_PCI_DEVICE_ID};
  int values[3];
  for (int i = 0; i < 3; i++)
    if (gpu->driver->ops->device_attribute(gpu->driver, gpu->ordinal, attributes[i], &values[i]) != TDICT_CU_SUCCESS)
      return false;
  snprintf(buffer, bytes, "%04x:%02x:%02x.0", (unsigned)values[0], (unsigned)values[1], (unsigned)values[2]);
  return true;
}

int tdict_placement_node(const char *root, const tdict_gpu *gpu) {
  char bus[32];
  const tdict_cpus none = {0};
  return tdict_placement_bus(gpu, bus, sizeof bus) ? tdict_placement_find(root, bus, &none).node : -1;
}

void tdict_placement_apply(const char *root, const tdict_gpu *gpu, tdict_pool *pool, tdict_log *log) {
  tdict_cpus mask;
  char bus[32], list[256];
  if (!tdict_placement_bus(gpu, bus, sizeof bus) || !tdict_cpus_read(&mask)) return;
  const tdict_placement p = tdict_placement_find(root, bus, &mask);
  switch (p.kind) {
  case TDICT_PLACEMENT_ONE_NODE:
    return;
  case TDICT_PLACEMENT_UNKNOWN:
    tdict_log_write(log, TDICT_LOG_INFO, "workers use all processors: the node of %s at %s, one of %d, is not known",
                    gpu->name, bus, p.num_nodes);
    return;
  case TDICT_PLACEMENT_ELSEWHERE:
    tdict_log_write(log, TDICT_LOG_INFO,
                    "workers use all processors: this process may use none of node %d, where %s at %s is", p.node,
                    gpu->name, bus);
    return;
  case TDICT_PLACEMENT_NODE:
    tdict_log_write(log, TDICT_LOG_INFO, "workers %s processors %s of node %d, where %s at %s is",
                    tdict_pool_set_cpus(pool, &p.cpus) ? "keep to" : "cannot be moved to",
                    tdict_cpus_format(&p.cpus, list, sizeof list), p.node, gpu->name, bus);
    return;
  }
}
