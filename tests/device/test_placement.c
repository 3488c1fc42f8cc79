/* Tests which processors the workers run on. Files in a temporary folder take the place of sysfs. */
#include "device/placement.h"

#include "core/base/log.h"
#include "core/memory/pinned_blocks.h"
#include "core/sched/latch.h"
#include "device/fake_sysfs.h"
#include "device/gpu_help.h"
#include "support/cpus.h"

static const char bus[] = "0000:1b:00.0";

static tdict_placement find(const machine *m) {
  const tdict_cpus mask = td_cpus(2, 11);
  return tdict_placement_find(m->root, bus, &mask);
}

CASE(placement_uses_the_node_of_the_gpu) {
  scoped_machine m = make_machine("0-1\n", "1\n");
  put_file(&m, "devices/system/node/node0/cpulist", "0-7\n");
  put_file(&m, "devices/system/node/node1/cpulist", "8-9,11,14-15\n");
  tdict_placement p = find(&m);
  const tdict_cpus mask = td_cpus(0, 7);
  char text[64];
  assert_int_equal(p.kind, TDICT_PLACEMENT_NODE);
  assert_int_equal(p.node, 1);
  assert_int_equal(p.num_nodes, 2);
  assert_string_equal(tdict_cpus_format(&p.cpus, text, sizeof text), "8-9,11");
  p = tdict_placement_find(m.root, bus, &mask); /* the mask allows no processor of the node */
  assert_int_equal(p.kind, TDICT_PLACEMENT_ELSEWHERE);
  assert_true(td_cpus_equal(&p.cpus, &mask));
}

CASE(placement_knows_processors_above_1024) {
  scoped_machine m = make_machine("0-1\n", "1\n");
  const tdict_cpus mask = td_cpus(1500, 8191);
  put_file(&m, "devices/system/node/node1/cpulist", "1000-1999,8190-8191\n");
  const tdict_placement p = tdict_placement_find(m.root, bus, &mask);
  char text[64];
  assert_int_equal(p.kind, TDICT_PLACEMENT_NODE);
  assert_string_equal(tdict_cpus_format(&p.cpus, text, sizeof text), "1500-1999,8190-8191");
}

CASE(placement_reports_unknown_node) {
  machine m = make_machine(NULL, "1\n");
  assert_int_equal(find(&m).kind, TDICT_PLACEMENT_ONE_NODE);
  drop_machine(&m);
  m = make_machine("0\n", "0\n");
  assert_int_equal(find(&m).kind, TDICT_PLACEMENT_ONE_NODE);
  drop_machine(&m);
  static const char *const nodes[] = {"-1\n", "7\n", "-1", "1000000\n"};
  for (int i = 0; i < 4; i++) { /* -1 means no node; the others do not exist */
    m = make_machine("0-1\n", nodes[i]);
    assert_int_equal(find(&m).kind, TDICT_PLACEMENT_UNKNOWN);
    assert_int_equal(find(&m).node, -1);
    drop_machine(&m);
  }
  m = make_machine("0-1\n", NULL);
  assert_int_equal(find(&m).kind, TDICT_PLACEMENT_UNKNOWN);
  drop_machine(&m);
  static const char *const lists[] = {"all\n", "3-\n", "5-3\n", "0-99999\n", "1;2\n"};
  for (int i = 0; i < 5; i++) {
    m = make_machine("0-1\n", "1\n");
    put_file(&m, "devices/system/node/node1/cpulist", lists[i]);
    assert_int_equal(find(&m).kind, TDICT_PLACEMENT_UNKNOWN);
    drop_machine(&m);
  }
}

typedef struct look {
  tdict_task task;
  tdict_cpus mask;
  tdict_latch done;
} look;
static void take_mask(tdict_task *task) {
  look *l = (look *)task;
  (void)tdict_cpus_read(&l->mask);
  tdict_latch_down(&l->done);
}
static tdict_cpus mask_of_worker(tdict_pool *pool) {
  look l = {.task.run = take_mask};
  tdict_latch_init(&l.done, 1);
  tdict_pool_submit(pool, &l.task);
  tdict_latch_wait(&l.done, INT64_MAX);
  tdict_latch_destroy(&l.done);
  return l.mask;
}

static void keep_text(void *user, int32_t level, const char *text) {
  (void)level;
  snprintf(user, 256, "%s", text);
}

/* Opens two simulated devices. Pinned memory must be on the NUMA node of the default device. */
CASE(gpu_open_finds_its_memory_node) {
  enum { ONE_NODE, NOT_KNOWN, KNOWN };
  for (int kind = ONE_NODE; kind <= KNOWN; kind++) {
    scoped_machine m = make_machine(kind == ONE_NODE ? "0\n" : "0-1\n", NULL);
    if (kind != NOT_KNOWN) put_nodes(&m, kind == ONE_NODE ? 0 : 1, 0);
    tdict_devices *devices = open_on(&m);
    for (int i = 0; i < 2; i++) {
      tdict_gpu *gpu;
      td_ok(tdict_devices_gpu(devices, tdict_sim(i), &gpu, err));
      assert_int_equal(gpu->node, kind == KNOWN ? 1 - i : -1);
      assert_int_equal(tdict_gpu_pinner(gpu, NULL).node, gpu->node);
    }
    tdict_storage *s = td_made(storage, tdict_storage_create(tdict_devices_pinned(devices), 1, true, &made, err));
    assert_int_equal(((tdict_pinned_block *)s->block.cookie)->run->node, kind == KNOWN ? 1 : -1);
    tdict_storage_release(s);
    tdict_devices_destroy(devices);
  }
}

/* The workers move to the GPU's NUMA node, to which the test assigns one processor of this machine. */
SIM_CASE(placement_moves_the_workers) {
  scoped_fixture b = fixture_open(NULL);
  tdict_cpus own, first;
  char text[256] = "", list[32];
  tdict_log *log;
  tdict_pool *pool;
  scoped_machine m = make_machine("0-1\n", NULL);
  assert_true(tdict_cpus_read(&own));
  size_t cpu = 0;
  while (!CPU_ISSET_S(cpu, sizeof own.sets, own.sets)) cpu++;
  first = td_cpus((int)cpu, (int)cpu);
  td_ok(tdict_log_create(keep_text, text, &log, err));
  td_ok(tdict_pool_create(3, &pool, err));
  tdict_placement_apply(m.root, b.gpu, pool, log); /* the node of the GPU is not known */
  assert_non_null(strstr(text, "is not known"));
  tdict_cpus mask = mask_of_worker(pool);
  assert_true(td_cpus_equal(&mask, &own));
  put_node(&m, b.gpu, 1);
  snprintf(list, sizeof list, "%zu\n", cpu);
  put_file(&m, "devices/system/node/node1/cpulist", list);
  tdict_placement_apply(m.root, b.gpu, pool, log);
  assert_non_null(strstr(text, "workers keep to processors"));
  mask = mask_of_worker(pool);
  assert_true(td_cpus_equal(&mask, &first));
  assert_int_equal(tdict_pool_num_cpus(pool), 1);
  mask = own;
  assert_true(tdict_cpus_read(&mask));
  assert_true(td_cpus_equal(&mask, &own)); /* the program's own thread stays where it is */
  tdict_pool_destroy(pool);
  tdict_log_release(log);
}
