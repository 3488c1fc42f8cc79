/* Makes source trees and verifies results. See check.h for ownership and threads. */
#include "check.h"
#include "tdict/sim.h"

#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool alloc_arrays(check_source *s, const check_group *groups, int num_groups) {
  for (int g = 0; g < num_groups; g++) s->leaves += groups[g].leaves;
  s->data = calloc((size_t)s->leaves + 1, sizeof *s->data);
  s->bytes = calloc((size_t)s->leaves + 1, sizeof *s->bytes);
  if (!s->data || !s->bytes) return false;
  int64_t i = 0;
  for (int g = 0; g < num_groups; g++)
    for (int64_t n = 0; n < groups[g].leaves; n++, i++) {
      s->bytes[i] = groups[g].leaf_bytes;
      s->total_bytes += groups[g].leaf_bytes;
    }
  return true;
}

static bool make_leaves(check_source *s, const check_group *groups, int num_groups, tdict_memory *memory) {
  tdict_error err;
  if (!alloc_arrays(s, groups, num_groups)) {
    bench_print_error("cannot allocate the addresses of %" PRId64 " leaves", s->leaves);
    check_source_free(s);
    return false;
  }
  tdict_status status = tdict_create(0, NULL, &s->tree, &err);
  for (int64_t i = 0; i < s->leaves && status == TDICT_OK; i++) {
    char key[24];
    tdict_tensor *leaf = NULL;
    const int64_t shape[1] = {(int64_t)(s->bytes[i] / tdict_dtype_bytes(s->values.dtype))};
    snprintf(key, sizeof key, "%" PRId64, i);
    status = tdict_tensor_empty(s->values.dtype, 1, shape, memory, &leaf, &err);
    if (status != TDICT_OK) break;
    s->data[i] = tdict_tensor_data(leaf);
    status = tdict_set(s->tree, key, leaf, &err);
    tdict_tensor_release(leaf);
  }
  if (!bench_has_worked("cannot build the source tree", status, &err)) check_source_free(s);
  return status == TDICT_OK;
}

bool check_source_make(check_source *s, const check_group *groups, int num_groups, tdict_memory *memory) {
  *s = (check_source){.values = {TDICT_F32, 0}};
  return make_leaves(s, groups, num_groups, memory);
}
bool check_source_make_of(check_source *s, const check_values *values, const check_group *group, tdict_memory *memory) {
  *s = (check_source){.values = *values};
  return make_leaves(s, group, 1, memory);
}

static tdict_status adopt_leaf(void *user, const tdict_entry *entry, tdict_error *err) {
  check_source *s = user;
  (void)err;
  if (!entry->tensor) return TDICT_OK;
  const int64_t i = s->leaves++;
  s->data[i] = tdict_tensor_data(entry->tensor);
  s->bytes[i] = tdict_tensor_bytes(entry->tensor);
  s->dtypes[i] = tdict_tensor_dtype(entry->tensor);
  s->paths[i] = strdup(entry->path);
  s->total_bytes += s->bytes[i];
  return s->paths[i] ? TDICT_OK : TDICT_ENOMEM;
}

bool check_source_adopt(check_source *s, tdict_tree *tree, int64_t most) {
  const size_t count = tdict_num_leaves(tree) + 1;
  *s = (check_source){.values = {TDICT_F32, most}, .tree = tree};
  s->data = calloc(count, sizeof *s->data);
  s->bytes = calloc(count, sizeof *s->bytes);
  s->dtypes = calloc(count, sizeof *s->dtypes);
  s->paths = calloc(count, sizeof *s->paths);
  if (s->data && s->bytes && s->dtypes && s->paths && tdict_walk(tree, adopt_leaf, s, NULL) == TDICT_OK) return true;
  bench_print_error("cannot list the leaves of the batch");
  check_source_free(s);
  return false;
}

void check_source_free(check_source *s) {
  for (int64_t i = 0; i < s->leaves && s->paths; i++) free(s->paths[i]);
  free(s->paths);
  free(s->dtypes);
  tdict_release(s->tree);
  free(s->data);
  free(s->bytes);
  memset(s, 0, sizeof *s);
}

size_t check_padded_bytes(const check_source *s) {
  size_t total = 0;
  for (int64_t i = 0; i < s->leaves; i++) total += (s->bytes[i] + 255) & ~(size_t)255;
  return total;
}

static tdict_dtype dtype_of(const check_source *s, int64_t i) { return s->dtypes ? s->dtypes[i] : s->values.dtype; }

/* Returns the range of the elements of leaf `i`, or 0 for random bits. */
static uint64_t range_of(const check_source *s, int64_t i) {
  const tdict_dtype dtype = dtype_of(s, i);
  const size_t bits = 8 * tdict_dtype_bytes(dtype);
  if (dtype == TDICT_BOOL) return 2;
  if (s->values.most == 0 || (dtype & 0xff) > 1 || bits > 64) return 0;
  if (bits < 64 && s->values.most >> (bits - !(dtype & 0xff)) != 0) return 0;
  return (uint64_t)s->values.most + 1;
}

/* Fills leaf `i` with random integers below `range`. */
static void seed_integers(const check_source *s, int64_t i, uint64_t range, uint64_t state) {
  const size_t item = tdict_dtype_bytes(dtype_of(s, i)), count = s->bytes[i] / item;
  for (size_t k = 0; k < count; k++) {
    const uint64_t number = bench_random(&state) % range;
    memcpy(s->data[i] + k * item, &number, item); /* little-endian, like every GPU */
  }
}

static void seed_leaf(check_source *s, int64_t i, uint64_t salt) {
  uint64_t state = salt + (uint64_t)i;
  state = bench_random(&state);
  const uint64_t range = range_of(s, i);
  if (range) {
    seed_integers(s, i, range, state);
    return;
  }
  unsigned char *to = s->data[i];
  size_t words = s->bytes[i] / 8;
  for (size_t w = 0; w < words; w++) {
    uint64_t word = bench_random(&state);
    memcpy(to + w * 8, &word, 8);
  }
  /* The first four bytes of each leaf are unique, so that even leaves of four bytes differ. */
  uint32_t first = ((uint32_t)i + (uint32_t)salt) * 0x9E3779B1u;
  if (s->bytes[i] % 8) memcpy(to + words * 8, &state, s->bytes[i] % 8);
  if (s->bytes[i] >= 4) memcpy(to, &first, 4);
}

enum { SEED_THREADS = 8 };
typedef struct seed_job {
  check_source *source;
  uint64_t salt;
} seed_job;

static void seed_part(void *user, int part, int parts) {
  const seed_job *job = user;
  for (int64_t i = part; i < job->source->leaves; i += parts) seed_leaf(job->source, i, job->salt);
}

void check_source_seed(check_source *s, uint64_t seed) {
  uint64_t mixer = seed;
  if (s->keeps_elements) return;
  seed_job job = {s, bench_random(&mixer)};
  const int count = s->total_bytes < ((size_t)32 << 20) ? 1 : bench_cpu_count();
  bench_progress("filling %" PRId64 " leaves", s->leaves);
  bench_on_threads(count < SEED_THREADS ? count : SEED_THREADS, seed_part, &job);
  bench_progress_end();
}

/* The argument of sim_job_run(), which reads or fills memory of the simulated device. */
typedef struct sim_job {
  tdict_stream stream;
  void *device, *host; /* host NULL: fill with 0xA5; otherwise read into host */
  size_t bytes;
  bool good;
  sem_t done;
} sim_job;

static void sim_job_run(void *user) {
  sim_job *job = user;
  void *bytes = tdict_sim_host_pointer(job->stream, job->device);
  job->good = bytes != NULL;
  if (bytes && job->host) memcpy(job->host, bytes, job->bytes);
  if (bytes && !job->host) memset(bytes, CHECK_POISON, job->bytes);
  sem_post(&job->done);
}

static bool sim_job_do(const check_place *p, void *device, void *host, size_t bytes) {
  sim_job job = {p->stream, device, host, bytes, false, {{0}}};
  if (sem_init(&job.done, 0, 0) != 0) return false;
  const bool is_launched =
      bench_ok("the simulated device refused a launch", tdict_sim_launch(p->stream, sim_job_run, &job, err));
  while (is_launched && sem_wait(&job.done) != 0) continue; /* a signal interrupted the wait: wait again */
  sem_destroy(&job.done);
  if (is_launched && !job.good) bench_print_error("%p is not an address of the simulated device", device);
  return is_launched && job.good;
}

bool check_driver(const raw_driver *raw, const char *what, bool good) {
  if (!good) bench_print_error("%s: %s", what, raw_why(raw));
  return good;
}

bool check_block(tdict_memory *memory, size_t bytes, const char *what, tdict_tensor **out) {
  const int64_t shape[1] = {(int64_t)bytes};
  return bench_ok(what, tdict_tensor_empty(TDICT_U8, 1, shape, memory, out, err));
}

static bool fill_bytes(const check_place *p, void *device, size_t bytes) {
  if (p->device.type == TDICT_DEVICE_SIM) return sim_job_do(p, device, NULL, bytes);
  if (p->device.type == TDICT_DEVICE_CPU) {
    memset(device, CHECK_POISON, bytes);
    return true;
  }
  return check_driver(p->raw, "cannot fill result memory",
                      raw_fill(p->raw, (raw_address)(uintptr_t)device, CHECK_POISON, bytes));
}

const void *check_read(const check_place *p, const void *device, size_t bytes) {
  if (p->device.type == TDICT_DEVICE_CPU) return device;
  if (p->device.type == TDICT_DEVICE_SIM)
    return sim_job_do(p, (void *)(uintptr_t)device, p->bounce, bytes) ? p->bounce : NULL;
  const bool good = raw_read_back(p->raw, p->bounce, (raw_address)(uintptr_t)device, bytes);
  return check_driver(p->raw, "cannot read a result back", good) ? p->bounce : NULL;
}

bool check_poison_result(const check_place *p, const check_source *s, check_poison *out) {
  memset(out, 0, sizeof *out);
  if (p->device.type == TDICT_DEVICE_CPU) return true;
  scoped_tensor block = NULL;
  const size_t bytes = check_padded_bytes(s);
  if (!check_block(tdict_device_memory(p->context, p->device), bytes, "cannot allocate device memory to fill", &block))
    return false;
  void *device = tdict_tensor_data(block);
  out->low = (uintptr_t)device;
  out->high = out->low + bytes;
  return fill_bytes(p, device, bytes);
}

int check_bytes(const check_place *p, const unsigned char *address, size_t bytes, const unsigned char *want, size_t *at,
                unsigned char *found) {
  const bool is_host = p->device.type == TDICT_DEVICE_CPU;
  for (size_t done = 0, part; done < bytes; done += part) {
    part = is_host || bytes - done < p->bounce_bytes ? bytes - done : p->bounce_bytes;
    const unsigned char *read = check_read(p, address + done, part);
    if (!read) return BENCH_FAILED;
    if (memcmp(read, want + done, part) == 0) continue;
    size_t i = 0;
    while (read[i] == want[done + i]) i++;
    *at = done + i;
    *found = read[i];
    return BENCH_DIFFERS;
  }
  return BENCH_OK;
}

static const char *path_of(const check_source *s, int64_t i, char key[24]) {
  if (s->paths) return s->paths[i];
  snprintf(key, 24, "%" PRId64, i);
  return key;
}

static int check_leaf(const check_place *p, const check_source *s, int64_t i, const unsigned char *device) {
  char key[24];
  size_t at = 0;
  unsigned char found = 0;
  const int answer = check_bytes(p, device, s->bytes[i], s->data[i], &at, &found);
  if (answer == BENCH_DIFFERS)
    bench_print_error("leaf \"%s\" differs at offset %zu: sent 0x%02x, arrived 0x%02x", path_of(s, i, key), at,
                      s->data[i][at], found);
  return answer;
}

int check_result(const check_place *p, const check_source *s, tdict_tree *result, const check_poison *poison,
                 size_t *poisoned_bytes) {
  if (tdict_num_leaves(result) != (size_t)s->leaves) {
    bench_print_error("%zu leaves arrived, wanted %" PRId64, tdict_num_leaves(result), s->leaves);
    return BENCH_DIFFERS;
  }
  const bench_bar bar = bench_bar_start((double)s->leaves);
  for (int64_t i = 0; i < s->leaves; i++) {
    char key[24];
    tdict_tensor *leaf = NULL;
    const char *path = path_of(s, i, key);
    if (i % 64 == 0) bench_bar_show(&bar, (double)i, "reading back leaf %" PRId64 " of %" PRId64, i, s->leaves);
    if (!bench_ok("a leaf did not arrive", tdict_get(result, path, &leaf, err))) return BENCH_DIFFERS;
    if (!tdict_device_equal(tdict_tensor_device(leaf), p->device) || tdict_tensor_dtype(leaf) != dtype_of(s, i) ||
        tdict_tensor_bytes(leaf) != s->bytes[i] || !tdict_tensor_is_contiguous(leaf)) {
      bench_print_error("leaf \"%s\" arrived on another device, or with another dtype or size", path);
      return BENCH_DIFFERS;
    }
    const unsigned char *device = tdict_tensor_const_data(leaf);
    uintptr_t address = (uintptr_t)device;
    if (poison && address >= poison->low && address + s->bytes[i] <= poison->high) *poisoned_bytes += s->bytes[i];
    int answer = check_leaf(p, s, i, device);
    if (answer != BENCH_OK) return answer;
  }
  bench_progress_end();
  return BENCH_OK;
}
