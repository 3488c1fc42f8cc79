/* Finds a GPU's NUMA node in sysfs and binds worker threads to the node's processors. The functions store nothing. See
 * placement.h for the thread rule. */
#include "device/placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched/pool.h"
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

/* Parses a list of numbers in the kernel's format, such as "0-3,8". Returns false if the text has another format, or if
 * a number is CPU_SETSIZE or more. */
static bool parse_list(const char *text, cpu_set_t *out) {
  CPU_ZERO(out);
  while (*text && *text != '\n') {
    char *end;
    long first = strtol(text, &end, 10), last = first;
    if (end == text || first < 0) return false;
    if (*end == '-') {
      text = end + 1;
      last = strtol(text, &end, 10);
      if (end == text) return false;
    }
    if (last < first || last >= CPU_SETSIZE) return false;
    for (long i = first; i <= last; i++) CPU_SET((size_t)i, out);
    if (*end == ',')
      end++;
    else if (*end && *end != '\n')
      return false;
    text = end;
  }
  return true;
}

tdict_placement tdict_placement_find(const char *root, const char *bus, const cpu_set_t *mask) {
  tdict_placement p = {TDICT_PLACEMENT_ONE_NODE, 1, -1, *mask};
  char path[MAX_PATH], text[MAX_LIST];
  cpu_set_t nodes, cpus;
  /* Count the machine's NUMA nodes. */
  snprintf(path, sizeof path, "%.100s/devices/system/node/online", root);
  if (!read_text(path, text, sizeof text) || !parse_list(text, &nodes) || CPU_COUNT(&nodes) < 2) return p;
  p.num_nodes = CPU_COUNT(&nodes);
  p.kind = TDICT_PLACEMENT_UNKNOWN;
  /* Find the NUMA node of the device. */
  snprintf(path, sizeof path, "%.100s/bus/pci/devices/%.32s/numa_node", root, bus);
  if (!read_text(path, text, sizeof text)) return p;
  long node = strtol(text, NULL, 10);
  if (node < 0 || node >= CPU_SETSIZE || !CPU_ISSET((size_t)node, &nodes)) return p;
  p.node = (int)node;
  /* Find the node's processors that the process may use. */
  snprintf(path, sizeof path, "%.100s/devices/system/node/node%ld/cpulist", root, node);
  if (!read_text(path, text, sizeof text) || !parse_list(text, &cpus)) return p;
  CPU_AND(&cpus, &cpus, mask);
  p.kind = CPU_COUNT(&cpus) ? TDICT_PLACEMENT_NODE : TDICT_PLACEMENT_ELSEWHERE;
  if (CPU_COUNT(&cpus)) p.cpus = cpus;
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
  cpu_set_t none;
  CPU_ZERO(&none);
  return tdict_placement_bus(gpu, bus, sizeof bus) ? tdict_placement_find(root, bus, &none).node : -1;
}

char *tdict_placement_format(const cpu_set_t *cpus, char *buffer, size_t bytes) {
  size_t at = 0;
  buffer[0] = 0;
  for (size_t i = 0; i < CPU_SETSIZE && at + 32 < bytes; i++) {
    if (!CPU_ISSET(i, cpus)) continue;
    size_t last = i;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, cpus)) last++;
    at += (size_t)snprintf(buffer + at, bytes - at, last > i ? "%s%zu-%zu" : "%s%zu", at ? "," : "", i, last);
    i = last;
  }
  return buffer;
}

void tdict_placement_apply(const char *root, const tdict_gpu *gpu, tdict_pool *pool, tdict_log *log) {
  cpu_set_t mask;
  char bus[32], list[256];
  if (!tdict_placement_bus(gpu, bus, sizeof bus) || sched_getaffinity(0, sizeof mask, &mask) != 0) return;
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
                    tdict_placement_format(&p.cpus, list, sizeof list), p.node, gpu->name, bus);
    return;
  }
}
