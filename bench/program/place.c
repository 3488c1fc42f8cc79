/* Opens places and jobs: contexts, the driver, and source trees that later rows reuse. See rows.h for ownership and
 * threads. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "options.h"
#include "rows.h"
#include "tdict/memory.h"
#include "tdict/sim.h"

static const size_t line_bytes_cuda = (size_t)1 << 30, line_bytes_sim = (size_t)4 << 20;
static const size_t evict_bytes = (size_t)768 << 20; /* more than twice the largest cache */
static const size_t touch_bytes = (size_t)64 << 20;  /* larger sources would not stay in the caches */
static const int64_t pause_ns = 5000000;             /* about as long as a training step */

static bool open_place_context(bench_place *p, const char *device) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  sim.memory_bytes = (size_t)64 << 30;
  sim.h2d_bytes_per_second = sim.d2h_bytes_per_second = p->sim_rate;
  options_place(device, &sim, &o);
  o.tuning_file = p->tuning_file;
  o.pin_piece_bytes = p->pin_piece_bytes;
  if (p->staging_bytes) o.staging_bytes = p->staging_bytes;
  if (!bench_ok("no context", tdict_context_create(&o, &p->context, err))) return false;
  p->device = tdict_context_device(p->context, &p->why);
  if (o.device.type == TDICT_DEVICE_CPU) p->why.message[0] = 0; /* the user chose another device */
  return true;
}

static bool open_cuda(bench_place *p) {
  char why[256];
  check_place *c = &p->check;
  c->raw = raw_open(p->device.index, why, sizeof why);
  if (!c->raw) bench_print_error("the driver: %s", why);
  return c->raw && (p->bare || place_furnish(p));
}

bool place_furnish(bench_place *p) {
  check_place *c = &p->check;
  if (!c->raw || c->bounce) return true;
  p->line_bytes = c->bounce_bytes = line_bytes_cuda;
  const bool good =
      raw_alloc(c->raw, p->line_bytes, &p->line_device) && raw_host_alloc(c->raw, c->bounce_bytes, &c->bounce);
  if (good) memset(c->bounce, 1, c->bounce_bytes);
  return check_driver(c->raw, "the driver", good);
}

static bool open_sim(bench_place *p) {
  const check_group group = {1, line_bytes_sim};
  check_place *c = &p->check;
  p->line_bytes = line_bytes_sim;
  c->bounce_bytes = line_bytes_sim;
  c->bounce = malloc(c->bounce_bytes);
  if (!c->bounce) bench_print_error("cannot allocate the buffer for reading results back");
  if (!c->bounce || !check_source_make(&p->line_source, &group, 1, tdict_pinned_memory(p->context))) return false;
  check_source_seed(&p->line_source, 99);
  return bench_ok("the simulated device",
                  tdict_stream_create(p->context, p->device, &c->stream, err) == TDICT_OK &&
                      tdict_to_device(p->context, p->line_source.tree, p->device, NULL, &p->line_target, err));
}

bool place_open(bench_place *p, const char *device) {
  if (!open_place_context(p, device)) return false;
  p->check.context = p->context;
  p->check.device = p->device;
  if (place_is_gpu(p)) return open_cuda(p);
  return p->device.type == TDICT_DEVICE_CPU || open_sim(p);
}

bool place_open_device(bench_place *p, const char *device, const char *tool) {
  if (!place_open(p, device)) return false;
  if (p->device.type != TDICT_DEVICE_CPU) return true;
  bench_print_error("%s needs a device: on the cpu no bytes are moved", tool);
  return false;
}

bool place_move(const bench_place *p, const tdict_tree *tree, const tdict_transfer_options *options, const char *what,
                tdict_tree **out) {
  return bench_ok(what, tdict_to_device(p->context, tree, p->device, options, out, err));
}

bool place_move_timed(const bench_place *p, const tdict_tree *tree, const tdict_transfer_options *options,
                      const char *what, double *seconds) {
  tdict_tree *out = NULL;
  const double begin = bench_now();
  if (!place_move(p, tree, options, what, &out)) return false;
  tdict_release(out);
  *seconds = bench_now() - begin;
  return true;
}

int place_verify(const bench_place *p, const check_source *source, const tdict_transfer_options *options,
                 const char *what) {
  check_poison poison;
  scoped_tree out = NULL;
  if (!check_poison_result(&p->check, source, &poison) || !place_move(p, source->tree, options, what, &out))
    return BENCH_FAILED;
  return check_result(&p->check, source, out, NULL, NULL);
}

json_t *place_record(const bench_place *p, const char *scenario, int argc, char **argv) {
  json_t *record = bench_record(scenario, argc, argv);
  json_object_set_new(record, "simulated", json_boolean(p->device.type == TDICT_DEVICE_SIM));
  json_object_set_new(record, "device", place_describe(p));
  return record;
}

void place_close(bench_place *p) {
  check_place *c = &p->check;
  place_drop_sources(p);
  check_source_free(&p->line_source);
  tdict_release(p->line_target);
  if (c->stream.handle) tdict_stream_destroy(p->context, c->stream);
  if (c->raw) {
    if (c->bounce) (void)raw_host_free(c->raw, c->bounce);
    if (p->line_device) (void)raw_free(c->raw, p->line_device);
  } else {
    free(c->bounce);
  }
  free(p->evict);
  if (p->context) tdict_context_destroy(p->context);
  raw_close(c->raw);
  memset(p, 0, sizeof *p);
}

bool place_line(bench_place *p, double *seconds) {
  raw_driver *raw = p->check.raw;
  const double begin = bench_now();
  const bool good =
      raw ? check_driver(raw, "the line",
                         raw_copy_in_async(raw, p->line_device, p->check.bounce, p->line_bytes) && raw_finish(raw))
          : bench_ok("the simulated line",
                     tdict_transfer_into(p->context, p->line_target, p->line_source.tree, NULL, err));
  *seconds = bench_now() - begin;
  return good;
}

bool place_copy_leaves(const bench_place *p, const check_source *source, raw_address to, bool waits, double *seconds) {
  raw_driver *raw = p->check.raw;
  bool (*const copy)(raw_driver *, raw_address, const void *, size_t) = waits ? raw_copy_in : raw_copy_in_async;
  bool good = true;
  const double begin = bench_now();
  for (int64_t i = 0; i < source->leaves && good; to += source->bytes[i], i++)
    good = copy(raw, to, source->data[i], source->bytes[i]);
  good = good && raw_finish(raw);
  *seconds = bench_now() - begin;
  return good;
}

tdict_stream place_stream(const bench_place *p) {
  return place_is_gpu(p) ? (tdict_stream){p->device, raw_stream(p->check.raw)} : p->check.stream;
}

static void sleep_for(void *user) {
  const int64_t ns = *(const int64_t *)user;
  const struct timespec time = {ns / 1000000000, ns % 1000000000};
  nanosleep(&time, NULL);
}

bool place_spin(const bench_place *p, int64_t *ns) {
  if (place_is_gpu(p)) return check_driver(p->check.raw, "the kernel", raw_spin(p->check.raw, (uint64_t)*ns));
  return bench_ok("the simulated kernel", tdict_sim_launch(place_stream(p), sleep_for, ns, err));
}

void place_drop_sources(bench_place *p) {
  for (int t = 0; t < BENCH_TREES; t++) check_source_free(&p->sources[t]);
  if (p->context && p->num_sources > 0) {
    tdict_context_trim(p->context, p->device, 0);
    if (p->kept_pinned) tdict_context_trim(p->context, tdict_cpu(), 0);
  }
  p->num_sources = 0;
}

bool place_sources(bench_place *p, const bench_row *row) {
  bool pinned = strcmp(row->source, "pinned") == 0;
  int trees = row->trees ? row->trees : BENCH_TREES;
  if (p->num_sources == trees && p->kept_pinned == pinned && memcmp(p->groups, row->groups, sizeof p->groups) == 0)
    return true;
  place_drop_sources(p);
  int count = 0;
  while (count < BENCH_MAX_GROUPS && row->groups[count].leaves > 0) count++;
  for (int t = 0; t < trees; t++) {
    tdict_memory *memory = pinned ? tdict_pinned_memory(p->context) : NULL;
    if (!check_source_make(&p->sources[t], row->groups, count, memory)) {
      place_drop_sources(p);
      return false;
    }
    check_source_seed(&p->sources[t], (uint64_t)t + 1);
  }
  memcpy(p->groups, row->groups, sizeof p->groups);
  p->num_sources = trees;
  p->kept_pinned = pinned;
  return true;
}

json_t *place_describe(const bench_place *p) {
  char text[32];
  bool sim = p->device.type == TDICT_DEVICE_SIM;
  const char *kind = place_is_gpu(p) ? "cuda" : sim ? "sim" : "cpu";
  const char *name = place_is_gpu(p) ? raw_device_name(p->check.raw) : sim ? "SIMULATED device" : "host memory";
  json_t *d = json_pack("{s:s, s:s, s:s}", "kind", kind, "text", tdict_device_format(p->device, text, sizeof text),
                        "name", name);
  if (place_is_gpu(p))
    json_object_set_new(d, "driver_version", json_integer(raw_driver_version(p->check.raw)));
  else
    json_object_set_new(d, "why_no_gpu", json_string(p->why.message));
  return d;
}

static size_t bytes_of(const bench_row *row) {
  size_t bytes = 0;
  for (int g = 0; g < BENCH_MAX_GROUPS; g++) bytes += (size_t)row->groups[g].leaves * row->groups[g].leaf_bytes;
  return bytes;
}

/* Reduces a row to at most 4 MB. Halves leaf sizes down to 16 KiB, then the numbers of leaves. */
static void shrink_row(bench_row *row) {
  for (int pass = 0; pass < 64; pass++) {
    const size_t total = bytes_of(row);
    if (total <= 4000000) return;
    for (int g = 0; g < BENCH_MAX_GROUPS; g++) {
      check_group *group = &row->groups[g];
      if ((size_t)group->leaves * group->leaf_bytes * BENCH_MAX_GROUPS < total / 2) continue;
      if (group->leaf_bytes > 16384 || group->leaves == 1)
        group->leaf_bytes = group->leaf_bytes / 2 & ~(size_t)7; /* other libraries sum the 8-byte words of a leaf */
      else
        group->leaves = (group->leaves + 1) / 2;
    }
  }
}

/* Returns the length of the unit of bytes at `text`, such as "MB", or 0. */
static size_t unit_length(const char *text) {
  const size_t length = strspn(text, "KMGiB");
  return length && length <= 3 && text[length - 1] == 'B' && !isalpha((unsigned char)text[length]) ? length : 0;
}

/* Returns the start of the number that ends before `end`, such as 10,000 or 38.5. */
static const char *number_before(const char *name, const char *end) {
  while (end > name && (isdigit((unsigned char)end[-1]) || end[-1] == '.' || end[-1] == ',')) end--;
  return end;
}

/* Writes the name of a row that was reduced: its first size, as in "10.9 MB of 7 leaves" or "1000 x 4 MB, cold", is
 * replaced with the measured size. */
static void name_reduced(const bench_row *row, char *out) {
  const char *name = row->name, *at = name;
  char size[32], count[32] = "";
  while (*at && !(at[0] == ' ' && at > name && isdigit((unsigned char)at[-1]) && unit_length(at + 1))) at++;
  if (!*at) return;
  const char *from = number_before(name, at);
  double bytes = (double)bytes_of(row);
  if (from - name > 4 && strncmp(from - 3, " x ", 3) == 0) {
    from = number_before(name, from - 3);
    bytes = (double)row->groups[0].leaf_bytes;
    snprintf(count, sizeof count, "%lld x ", (long long)row->groups[0].leaves);
  }
  const bool is_binary = unit_length(at + 1) == 3; /* such as MiB */
  const double kilo = is_binary ? 1024 : 1000;
  if (bytes < 10 * kilo)
    snprintf(size, sizeof size, "%.0f B", bytes);
  else if (bytes < kilo * kilo)
    snprintf(size, sizeof size, "%.4g %s", bytes / kilo, is_binary ? "KiB" : "KB");
  else
    snprintf(size, sizeof size, "%.3g %s", bytes / kilo / kilo, is_binary ? "MiB" : "MB");
  snprintf(out, BENCH_NAME_BYTES, "%.*s%s%s%s", (int)(from - name), name, count, size, at + 1 + unit_length(at + 1));
}

static const char *or_first(const char *text, const char *first) { return text ? text : first; }

static bench_row complete(const bench_place *p, const bench_row *row) {
  bench_row r = *row;
  r.source = or_first(r.source, "pageable");
  r.cache = or_first(r.cache, "warm");
  r.result = or_first(r.result, "device");
  r.calls = or_first(r.calls, "best");
  r.peers = or_first(r.peers, "all");
  r.statistic = or_first(r.statistic, "time");
  if (r.worth == 0) r.worth = 2;
  if (r.trees == 0) r.trees = BENCH_TREES;
  if (!p->full) shrink_row(&r);
  return r;
}

double row_weight(const bench_place *p, const bench_row *row) {
  const bench_row r = complete(p, row);
  return (double)(16 << 20) + (double)bytes_of(&r);
}

void row_measured_name(const bench_place *p, const bench_row *row, char name[BENCH_NAME_BYTES]) {
  const bench_row r = complete(p, row);
  snprintf(name, BENCH_NAME_BYTES, "%s", row->name);
  if (memcmp(r.groups, row->groups, sizeof row->groups) != 0) name_reduced(&r, name);
}

bool job_open(bench_job *job, bench_place *place, const bench_scenario *scenario, const bench_row *row) {
  memset(job, 0, sizeof *job);
  job->place = place;
  job->scenario = scenario->name;
  job->row = complete(place, row);
  job->total_bytes = bytes_of(&job->row);
  row_measured_name(place, row, job->name);
  const bench_kind *kind = job->row.kind;
  if (place->device.type == TDICT_DEVICE_CPU && !kind->on_host) {
    bench_print_error("%s/%s needs a device: %s", scenario->name, row->name,
                      place->why.message[0] ? place->why.message : "the cpu was asked for");
    return false;
  }
  if (kind->no_sources) place_drop_sources(place);
  if (!kind->no_sources && !place_sources(place, &job->row)) return false;
  if (strcmp(job->row.cache, "cold") == 0 && !place_empty_caches(place))
    return false; /* this allocates the eviction buffer now, not during a measurement */
  return !kind->prepare || kind->prepare(job);
}

void job_close(bench_job *job) {
  if (!job->place) return;
  if (job->row.kind->finish) job->row.kind->finish(job);
  for (int t = 0; t < BENCH_TREES; t++) {
    tdict_release(job->device_trees[t]);
    check_source_free(&job->targets[t]);
  }
  if (job->raw_device) (void)raw_free(job->place->check.raw, job->raw_device);
  free(job->raw_host);
  memset(job, 0, sizeof *job);
}

int job_verify(bench_job *job) {
  int answer = job->row.kind->verify ? job->row.kind->verify(job) : job_verify_made(job);
  bench_progress_end();
  if (answer == BENCH_DIFFERS) bench_print_error("verification failed for %s/%s", job->scenario, job->row.name);
  if (answer == BENCH_OK) job->verified_bytes = job->total_bytes;
  return answer;
}

bool job_has_driver(const bench_job *job) {
  return job->row.kind->driver && !job->row.no_driver && place_is_gpu(job->place);
}

enum { EVICT_THREADS = 8 };
static void walk_part(void *user, int part, int parts) {
  const size_t bytes = evict_bytes / (size_t)parts;
  unsigned char *at = (unsigned char *)user + (size_t)part * bytes;
  for (size_t i = 0; i < bytes; i += 64) at[i]++;
}

/* Writes a large block to evict the sources from all caches. Uses several threads, so that cold rows take less time. */
bool place_empty_caches(bench_place *p) {
  if (!p->evict) p->evict = calloc(1, evict_bytes);
  if (p->evict)
    bench_on_threads(EVICT_THREADS, walk_part, p->evict);
  else
    bench_print_error("cannot allocate the buffer that evicts the CPU caches");
  return p->evict != NULL;
}

static int tree_number(const bench_job *job, int number) {
  return job->place->num_sources > 0 ? number % job->place->num_sources : 0;
}

/* Reads every cache line of a source that is not too large, so that the caches contain it as if it had just been
 * filled. Then sleeps. The volatile sum keeps the compiler from removing the reads. */
static void pause_before(const check_source *s) {
  volatile unsigned char sum = 0;
  struct timespec rest = {0, (long)pause_ns};
  for (int64_t i = 0; i < s->leaves && s->total_bytes <= touch_bytes; i++)
    for (size_t at = 0; at < s->bytes[i]; at += 64) sum = (unsigned char)(sum + s->data[i][at]);
  while (nanosleep(&rest, &rest) != 0) continue;
}

bool job_is_warm(const bench_job *job) { return strcmp(job->row.cache, "warm") == 0; }

bool job_settle(bench_job *job, int number) {
  if (strcmp(job->row.cache, "cold") == 0) return place_empty_caches(job->place);
  if (strcmp(job->row.cache, "paused") == 0) pause_before(&job->place->sources[tree_number(job, number)]);
  return true;
}

bool job_sample(bench_job *job, int number, bool driver, double *seconds) {
  int tree = tree_number(job, number);
  if (driver) return job->row.kind->driver(job, tree, seconds);
  bool (*sample)(bench_job *, int, double *) = job->row.kind->sample;
  if (!(sample ? sample : job_sample_made)(job, tree, seconds)) return false;
  if (job->place->delay > 0) {
    double wait = *seconds * job->place->delay / 100, begin = bench_now();
    while (bench_now() - begin < wait) continue;
    *seconds += wait;
  }
  return true;
}

json_t *rows_describe(const bench_place *place, const bench_scenario *scenario, const bench_row *row) {
  bench_row r = complete(place, row);
  json_t *groups = json_array();
  for (int g = 0; g < BENCH_MAX_GROUPS && r.groups[g].leaves > 0; g++)
    json_array_append_new(groups,
                          json_pack("[I, I]", (json_int_t)r.groups[g].leaves, (json_int_t)r.groups[g].leaf_bytes));
  json_t *work = json_pack("{s:s, s:o, s:s, s:s, s:s, s:s, s:s, s:f, s:i}", "do", r.kind->name, "groups", groups,
                           "source", r.source, "cache", r.cache, "result", r.result, "calls", r.calls, "statistic",
                           r.statistic, "kernel_seconds", (double)r.kernel_ns * 1e-9, "trees", (int)r.trees);
  return json_pack("{s:s, s:s, s:i, s:s, s:i, s:i, s:o}", "scenario", scenario->name, "row", r.name, "worth",
                   (int)r.worth, "peers", r.peers, "processes", (int)r.processes, "cpus", (int)r.cpus, "work", work);
}
