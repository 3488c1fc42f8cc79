/* Where workers are put, in made-up machines: folders like sysfs below a folder of the test's own. */
#include "device/placement.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "device/gpu_help.h"
#include "sched/latch.h"

static const char bus[] = "0000:1b:00.0";

typedef struct machine {
  char root[64];
} machine;

static void put(const machine *m, const char *path, const char *text) {
  char full[256];
  snprintf(full, sizeof full, "%s/%s", m->root, path);
  for (char *slash = full + strlen(m->root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
    *slash = 0;
    mkdir(full, 0700);
  }
  FILE *file = fopen(full, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}
static machine make_machine(const char *online, const char *node) {
  machine m = {"/tmp/tdict-sysfs-XXXXXX"};
  assert_non_null(mkdtemp(m.root));
  if (online) put(&m, "devices/system/node/online", online);
  if (node) put(&m, "bus/pci/devices/0000:1b:00.0/numa_node", node);
  return m;
}
static void drop(machine *m) {
  char command[128];
  snprintf(command, sizeof command, "rm -r %s", m->root);
  assert_int_equal(system(command), 0);
}
static cpu_set_t cpus(int first, int last) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (int i = first; i <= last; i++) CPU_SET((size_t)i, &set);
  return set;
}
static tdict_placement find(const machine *m) {
  cpu_set_t mask = cpus(2, 11);
  return tdict_placement_find(m->root, bus, &mask);
}

CASE(placement_takes_the_gpus_node) {
  machine m = make_machine("0-1\n", "1\n");
  put(&m, "devices/system/node/node0/cpulist", "0-7\n");
  put(&m, "devices/system/node/node1/cpulist", "8-9,11,14-15\n");
  tdict_placement p = find(&m);
  cpu_set_t mask = cpus(0, 7);
  char text[64];
  assert_int_equal(p.kind, TDICT_PLACEMENT_NODE);
  assert_int_equal(p.node, 1);
  assert_int_equal(p.num_nodes, 2);
  assert_string_equal(tdict_placement_format(&p.cpus, text, sizeof text), "8-9,11");
  p = tdict_placement_find(m.root, bus, &mask); /* the mask allows none of them */
  assert_int_equal(p.kind, TDICT_PLACEMENT_ELSEWHERE);
  assert_true(CPU_EQUAL(&p.cpus, &mask));
  drop(&m);
}

CASE(placement_says_what_it_does_not_know) {
  machine m = make_machine(NULL, "1\n");
  assert_int_equal(find(&m).kind, TDICT_PLACEMENT_ONE_NODE);
  drop(&m);
  m = make_machine("0\n", "0\n");
  assert_int_equal(find(&m).kind, TDICT_PLACEMENT_ONE_NODE);
  drop(&m);
  static const char *const nodes[] = {"-1\n", "7\n", "-1", "1000000\n"};
  for (int i = 0; i < 4; i++) { /* no node, and nodes that are not there */
    m = make_machine("0-1\n", nodes[i]);
    assert_int_equal(find(&m).kind, TDICT_PLACEMENT_UNKNOWN);
    assert_int_equal(find(&m).node, -1);
    drop(&m);
  }
  m = make_machine("0-1\n", NULL);
  assert_int_equal(find(&m).kind, TDICT_PLACEMENT_UNKNOWN);
  drop(&m);
  static const char *const lists[] = {"all\n", "3-\n", "5-3\n", "0-99999\n", "1;2\n"};
  for (int i = 0; i < 5; i++) {
    m = make_machine("0-1\n", "1\n");
    put(&m, "devices/system/node/node1/cpulist", lists[i]);
    assert_int_equal(find(&m).kind, TDICT_PLACEMENT_UNKNOWN);
    drop(&m);
  }
}

typedef struct look {
  tdict_task task;
  cpu_set_t mask;
  tdict_latch done;
} look;
static void take_mask(tdict_task *task) {
  look *l = (look *)task;
  (void)sched_getaffinity(0, sizeof l->mask, &l->mask);
  tdict_latch_down(&l->done);
}
static cpu_set_t mask_of_worker(tdict_pool *pool) {
  look l = {.task.run = take_mask};
  tdict_latch_init(&l.done, 1);
  tdict_pool_submit(pool, &l.task);
  tdict_latch_wait(&l.done, INT64_MAX);
  tdict_latch_reset(&l.done);
  return l.mask;
}

static void keep_text(void *user, int32_t level, const char *text) {
  (void)level;
  snprintf(user, 256, "%s", text);
}

/* One of this machine's own processors plays the gpu's node. */
SIM_CASE(placement_moves_the_workers) {
  bench b = bench_open(NULL);
  cpu_set_t own, first;
  char text[256] = "", address[32], path[128], list[32];
  tdict_log *log;
  tdict_pool *pool;
  machine m = make_machine("0-1\n", NULL);
  assert_int_equal(sched_getaffinity(0, sizeof own, &own), 0);
  size_t cpu = 0;
  while (!CPU_ISSET(cpu, &own)) cpu++;
  first = cpus((int)cpu, (int)cpu);
  td_ok(tdict_log_create(keep_text, text, &log, err));
  td_ok(tdict_pool_create(3, &pool, err));
  assert_true(tdict_placement_bus(b.gpu, address, sizeof address));
  tdict_placement_apply(m.root, b.gpu, pool, log); /* its node is not known */
  assert_non_null(strstr(text, "is not known"));
  cpu_set_t mask = mask_of_worker(pool);
  assert_true(CPU_EQUAL(&mask, &own));
  snprintf(path, sizeof path, "bus/pci/devices/%s/numa_node", address);
  put(&m, path, "1\n");
  snprintf(list, sizeof list, "%zu\n", cpu);
  put(&m, "devices/system/node/node1/cpulist", list);
  tdict_placement_apply(m.root, b.gpu, pool, log);
  assert_non_null(strstr(text, "workers keep to processors"));
  mask = mask_of_worker(pool);
  assert_true(CPU_EQUAL(&mask, &first));
  assert_int_equal(tdict_pool_num_cpus(pool), 1);
  mask = own;
  assert_int_equal(sched_getaffinity(0, sizeof mask, &mask), 0);
  assert_true(CPU_EQUAL(&mask, &own)); /* the program's own thread stays where it was */
  tdict_pool_destroy(pool);
  tdict_log_release(log);
  drop(&m);
  bench_close(&b);
}
