/* tdict-bench doctor: shows the properties of this machine that transfers depend on, and the settings that transfers
 * use. Queries the system and the driver, and moves a few small trees. Prints the JSON record, which doctor_main()
 * owns, as text. Thread rule: one thread. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/sched/cpus.h"
#include "options.h"
#include "rows.h"
#include "tdict/sim.h"

static json_t *line_or_null(const char *path) {
  char text[512];
  return bench_read_field(path, "", text, sizeof text) ? json_string(text) : json_null();
}

/* Returns the list of processors that the process may use, for example "0-3,8", or JSON null. */
static json_t *cpu_mask(void) {
  tdict_cpus set;
  char text[1024];
  return tdict_cpus_read(&set) ? json_string(tdict_cpus_format(&set, text, sizeof text)) : json_null();
}

/* Returns the CPU quota of the cgroup as a number of processors, or "none". */
static json_t *cpu_quota(void) {
  const int quota = tdict_quota_cpus("");
  return quota > 0 ? json_integer(quota) : json_string("none");
}

static json_t *host_section(void) {
  char text[256];
  const json_int_t memory = (json_int_t)sysconf(_SC_PHYS_PAGES) * (json_int_t)sysconf(_SC_PAGESIZE);
  return json_pack("{s:s, s:i, s:o, s:o, s:I, s:o, s:o, s:o, s:o}", "cpu", bench_cpu_model(text, sizeof text),
                   "processors", bench_cpu_count(), "cpu_mask", cpu_mask(), "cpu_quota", cpu_quota(), "memory_bytes",
                   memory, "kernel", line_or_null("/proc/sys/kernel/osrelease"), "transparent_huge_pages",
                   line_or_null("/sys/kernel/mm/transparent_hugepage/enabled"), "huge_pages_reserved",
                   line_or_null("/proc/sys/vm/nr_hugepages"), "overcommit",
                   line_or_null("/proc/sys/vm/overcommit_memory"));
}

static json_t *numa_section(void) {
  json_t *nodes = json_array();
  DIR *folder = opendir("/sys/devices/system/node");
  const struct dirent *entry;
  while (folder && (entry = readdir(folder))) {
    char path[512];
    if (strncmp(entry->d_name, "node", 4) != 0 || !strchr("0123456789", entry->d_name[4])) continue;
    snprintf(path, sizeof path, "/sys/devices/system/node/%.64s/cpulist", entry->d_name);
    json_t *cpus = line_or_null(path);
    json_array_append_new(nodes, json_pack("{s:i, s:o}", "node", atoi(entry->d_name + 4), "processors", cpus));
  }
  if (folder) closedir(folder);
  return nodes;
}

static json_t *describe_limit(int resource) {
  struct rlimit l;
  if (getrlimit((__rlimit_resource_t)resource, &l) != 0) return json_null();
  return l.rlim_cur == RLIM_INFINITY ? json_string("unlimited") : json_integer((json_int_t)l.rlim_cur);
}

static json_t *limits_section(void) {
  json_t *cgroup = line_or_null("/sys/fs/cgroup/memory.max");
  return json_pack("{s:o, s:o, s:o, s:o}", "locked_bytes", describe_limit(RLIMIT_MEMLOCK), "address_bytes",
                   describe_limit(RLIMIT_AS), "open_files", describe_limit(RLIMIT_NOFILE), "cgroup_memory", cgroup);
}

static json_t *gpu_section(raw_driver *raw, int ordinal) {
  raw_device_info info;
  char path[128], bus[32];
  if (!raw_device_describe(raw, ordinal, &info)) return json_pack("{s:s}", "error", raw_why(raw));
  snprintf(bus, sizeof bus, "%s", info.bus);
  for (char *c = bus; *c; c++)
    if (*c >= 'A' && *c <= 'F') *c = (char)(*c - 'A' + 'a');
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", bus);
  json_t *node = line_or_null(path);
  if (json_is_string(node) && strcmp(json_string_value(node), "-1") == 0) {
    json_decref(node);
    node = json_string("unknown: the system says -1"); /* workers then run on all processors */
  }
  char compute[32];
  snprintf(compute, sizeof compute, "%d.%d", info.compute_major, info.compute_minor);
  return json_pack("{s:s, s:s, s:I, s:s, s:i, s:o}", "name", info.name, "bus", info.bus, "memory_bytes",
                   (json_int_t)info.memory_bytes, "compute", compute, "copy_engines", info.copy_engines, "numa_node",
                   node);
}

static json_t *driver_section(void) {
  char why[256];
  json_t *driver = json_object(), *gpus = json_array();
  raw_driver *raw = raw_open(0, why, sizeof why);
  json_object_set_new(driver, "found", json_boolean(raw != NULL));
  if (raw) {
    int v = raw_driver_version(raw), count = raw_device_count(raw);
    char text[32];
    snprintf(text, sizeof text, "%d.%d", v / 1000, v % 1000 / 10);
    json_object_set_new(driver, "cuda_version", json_string(text));
    for (int i = 0; i < count; i++) json_array_append_new(gpus, gpu_section(raw, i));
  } else {
    json_object_set_new(driver, "why", json_string(why));
  }
  json_object_set_new(driver, "gpus", gpus);
  raw_close(raw);
  return driver;
}

static const char *pin_name(int path) {
  static const char *const names[] = {"none needed", "register", "driver", "pageable"};
  return path >= 0 && path < 4 ? names[path] : "?";
}

static void take_log(void *user, int32_t level, const char *text) {
  (void)level;
  json_array_append_new(user, json_string(text));
}

/* Returns an object that maps each list of allowed processors to the number of threads of this process that have it. */
static json_t *thread_masks(void) {
  json_t *masks = json_object();
  DIR *folder = opendir("/proc/self/task");
  const struct dirent *entry;
  while (folder && (entry = readdir(folder))) {
    char path[512], list[512];
    snprintf(path, sizeof path, "/proc/self/task/%.32s/status", entry->d_name);
    if (entry->d_name[0] == '.' || !bench_read_field(path, "Cpus_allowed_list:", list, sizeof list)) continue;
    json_object_set_new(masks, list, json_integer(1 + json_integer_value(json_object_get(masks, list))));
  }
  if (folder) closedir(folder);
  return masks;
}

/* Moves a tree to the device, and returns an object with the statistics of the transfer or the error. */
static json_t *try_way(tdict_context *context, const check_group *group, bool pinned) {
  check_source source;
  tdict_error err;
  tdict_tree *out = NULL;
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_transfer_options o = tdict_transfer_options_default();
  char what[96], bytes[32];
  o.stats = &stats;
  snprintf(what, sizeof what, "%d x %s, %s", (int)group->leaves,
           bench_format_bytes((double)group->leaf_bytes, bytes, sizeof bytes), pinned ? "pinned" : "ordinary memory");
  if (!check_source_make(&source, group, 1, pinned ? tdict_pinned_memory(context) : NULL))
    return json_pack("{s:s, s:s}", "what", what, "error", "no sources");
  check_source_seed(&source, 1);
  tdict_status status = tdict_to_device(context, source.tree, (tdict_device){TDICT_DEVICE_AUTO, 0}, &o, &out, &err);
  tdict_release(out);
  check_source_free(&source);
  if (status != TDICT_OK) return json_pack("{s:s, s:s}", "what", what, "error", err.message);
  return json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:I}", "what", what, "mode", options_mode_name(stats.mode),
                   "pin_path", pin_name(stats.pin_path), "threads", (int)stats.num_threads, "staged_bytes",
                   (json_int_t)stats.staged_bytes, "direct_bytes", (json_int_t)stats.direct_bytes, "pageable_bytes",
                   (json_int_t)stats.pageable_bytes);
}

static json_t *ways_section(const char *device, bool *good) {
  static const check_group groups[] = {{1, 4096}, {7, 1000000}, {1000, 4000}, {4, 8000000}};
  tdict_error err;
  tdict_context *context = NULL;
  char text[32];
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  json_t *section = json_object(), *log = json_array(), *ways = json_array();
  json_object_set_new(section, "log", log);
  json_object_set_new(section, "ways", ways);
  o.log = take_log;
  o.user = log;
  options_place(device, &sim, &o);
  *good = tdict_context_create(&o, &context, &err) == TDICT_OK;
  if (!*good) {
    json_object_set_new(section, "error", json_string(err.message));
    return section;
  }
  err.message[0] = 0;
  tdict_device chosen = tdict_context_device(context, &err);
  const bool asked = o.device.type != TDICT_DEVICE_CPU;
  json_object_update_new(section, json_pack("{s:s, s:b}", "device", tdict_device_format(chosen, text, sizeof text),
                                            "simulated", chosen.type == TDICT_DEVICE_SIM));
  if (asked && err.message[0]) json_object_set_new(section, "why_no_gpu", json_string(err.message));
  json_object_update_new(section, json_pack("{s:i, s:o, s:I}", "pool_threads", tdict_context_num_threads(context),
                                            "threads_on_processors", thread_masks(), "staging_bytes",
                                            (json_int_t)o.staging_bytes));
  for (size_t i = 0; i < sizeof groups / sizeof groups[0] && chosen.type != TDICT_DEVICE_CPU; i++) {
    json_array_append_new(ways, try_way(context, &groups[i], false));
    if (i == 1) json_array_append_new(ways, try_way(context, &groups[i], true));
  }
  tdict_context_destroy(context);
  return section;
}

static void put_value(FILE *file, json_t *value) {
  if (json_is_string(value)) {
    fputs(json_string_value(value), file);
  } else if (json_is_null(value)) {
    fputs("unknown", file);
  } else if (json_is_object(value)) {
    const char *name, *between = "";
    json_t *one;
    json_object_foreach(value, name, one) {
      fprintf(file, "%s%s: ", between, name);
      put_value(file, one);
      between = "; ";
    }
  } else {
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    fputs(text ? text : "?", file);
    free(text);
  }
}

static void print_value(int hang, const char *label, json_t *value) {
  char text[1024] = "?";
  FILE *file = fmemopen(text, sizeof text, "w");
  if (file) {
    put_value(file, value);
    fclose(file);
  }
  bench_print_item(hang, label, text);
}

/* Prints the transfers that ways_section() has made, if there are any. */
static void print_ways(json_t *ways) {
  static const char *const numbers[] = {"threads", "staged_bytes", "direct_bytes", "pageable_bytes"};
  bench_sink none = {.fd = -1};
  bench_table t;
  json_t *way;
  size_t i;
  if (json_array_size(ways) == 0) return;
  printf("\ntransfers that were tried, and how their bytes were sent\n");
  table_begin(&t, &none, "transfer|            mode|pin path|threads|  staged|  direct|pageable");
  json_array_foreach(ways, i, way) {
    const char *error = json_string_value(json_object_get(way, "error"));
    table_text(&t, json_string_value(json_object_get(way, "what")));
    table_text(&t, error ? error : json_string_value(json_object_get(way, "mode")));
    if (!error) table_text(&t, json_string_value(json_object_get(way, "pin_path")));
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers && !error; n++)
      table_number(&t, "%.0f", (double)json_integer_value(json_object_get(way, numbers[n])));
    table_end_row(&t);
  }
}

/* Prints a section of the record: a heading, and below it one line for each field. */
static void print_section(const char *title, json_t *section, int depth) {
  const char *key;
  json_t *value, *one;
  size_t i;
  char label[64];
  printf("%*s%s\n", depth * 2, "", title);
  json_object_foreach(section, key, value) {
    if (!json_is_array(value)) {
      snprintf(label, sizeof label, "%*s%s ", depth * 2 + 2, "", key);
      print_value(depth * 2 + 27, label, value);
      continue;
    }
    const char *device = json_string_value(json_object_get(section, "device"));
    const bool are_ways = strcmp(key, "ways") == 0, still = are_ways && device && strcmp(device, "cpu") == 0;
    if (are_ways && json_array_size(value)) continue; /* print_ways() prints them */
    printf("%*s%s%s%s\n", depth * 2 + 2, "", key, json_array_size(value) ? "" : ": none",
           still ? " on the cpu; --device sim shows those of the simulated device" : "");
    json_array_foreach(value, i, one) {
      snprintf(label, sizeof label, "%*s- ", depth * 2 + 4, "");
      print_value(depth * 2 + 6, label, one);
    }
  }
}

int doctor_main(int argc, char **argv) {
  static const char doc[] =
      "Shows the hardware, driver and limits that transfers depend on, and the settings that transfers use."
      "\vExit status: 0 success, 1 cannot create a context or write the JSON file, 2 wrong "
      "use.";
  const char *device = "auto";
  bench_outputs outputs = {0};
  const bench_option options[] = {DEVICE_OPTION(&device), JSON_OPTION(&outputs.json, "the result"), {0}};
  static const char *const titles[] = {"driver", "host", "numa", "limits", "transfers"};
  bench_sink sink;
  bool good;
  if (options_parse(argc, argv, doc, options, NULL, NULL) != BENCH_OK) return BENCH_USAGE;
  if (!bench_sink_open(&sink, &outputs)) return BENCH_FAILED;
  json_t *record = bench_record("doctor", argc, argv);
  json_object_set_new(record, "driver", driver_section());
  json_object_set_new(record, "host", host_section());
  json_object_set_new(record, "numa", json_pack("{s:o}", "nodes", numa_section()));
  json_object_set_new(record, "limits", limits_section());
  json_object_set_new(record, "transfers", ways_section(device, &good));
  for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++)
    print_section(titles[i], json_object_get(record, titles[i]), 0);
  print_ways(json_object_get(json_object_get(record, "transfers"), "ways"));
  return bench_sink_end(&sink, BENCH_OK, record) == BENCH_OK && good ? BENCH_OK : BENCH_FAILED;
}
