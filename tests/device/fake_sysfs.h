/* Fake machines: a temporary folder with the sysfs files that placement.c reads, and devices placed by these files. */
#ifndef TDICT_TESTS_DEVICE_MADE_UP_MACHINE_H
#define TDICT_TESTS_DEVICE_MADE_UP_MACHINE_H

#include <sys/stat.h>
#include <unistd.h>

#include "device/devices.h"
#include "device/placement.h"
#include "device/sim/driver.h"
#include "support/test.h"

typedef struct machine {
  char root[64];
} machine;

static inline void put_file(const machine *m, const char *path, const char *text) {
  char *full = td_text("%s/%s", m->root, path);
  for (char *slash = full + strlen(m->root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
    *slash = 0;
    mkdir(full, 0700);
  }
  FILE *file = fopen(full, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}
static inline machine make_machine(const char *online, const char *node) {
  machine m = {"/tmp/tdict-sysfs-XXXXXX"};
  assert_non_null(mkdtemp(m.root));
  if (online) put_file(&m, "devices/system/node/online", online);
  if (node) put_file(&m, "bus/pci/devices/0000:1b:00.0/numa_node", node);
  return m;
}
static inline void drop_machine(machine *m) { assert_int_equal(system(td_text("rm -r %s", m->root)), 0); }
#define scoped_machine TD_SCOPED(drop_machine, machine)

/* Writes the NUMA node of the GPU to the fake sysfs. */
static inline void put_node(const machine *m, const tdict_gpu *gpu, int node) {
  char address[32], path[128], text[16];
  assert_true(tdict_placement_bus(gpu, address, sizeof address));
  snprintf(path, sizeof path, "bus/pci/devices/%s/numa_node", address);
  snprintf(text, sizeof text, "%d\n", node);
  put_file(m, path, text);
}
/* Opens two simulated devices that use the fake sysfs. */
static inline tdict_devices *open_on(const machine *m) {
  tdict_context_options o = tdict_context_options_default();
  tdict_devices *devices = NULL;
  o.sim = td_options(tdict_sim_options, num_devices = 2);
  o.device = tdict_sim(0);
  const tdict_devices_config config = {.options = &o, .open_sim = tdict_driver_sim_open, .sysfs = m->root};
  td_ok(tdict_devices_create(&config, &devices, err));
  return devices;
}
static inline void put_nodes(const machine *m, int first, int second) {
  tdict_devices *devices = open_on(m);
  for (int i = 0; i < 2; i++) {
    tdict_gpu *gpu;
    td_ok(tdict_devices_gpu(devices, tdict_sim(i), &gpu, err));
    put_node(m, gpu, i ? second : first);
  }
  tdict_devices_destroy(devices);
}

#endif
