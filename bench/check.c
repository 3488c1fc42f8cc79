/* Sources and verification of the scenarios, see check.h. */
#include "check.h"

#include <inttypes.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Steele, Lea and Flood's SplitMix64: a bijection of its counter, so equal words come from equal counters only. */
static uint64_t next_random(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

bool check_source_make(check_source *s, int64_t leaves, size_t leaf_bytes) {
  tdict_error err;
  memset(s, 0, sizeof *s);
  s->leaves = leaves;
  s->leaf_bytes = leaf_bytes;
  s->data = calloc((size_t)leaves, sizeof *s->data);
  if (!s->data) {
    bench_complain("no memory for the addresses of %" PRId64 " leaves", leaves);
    return false;
  }
  tdict_status status = tdict_create(0, NULL, &s->tree, &err);
  const int64_t shape[1] = {(int64_t)(leaf_bytes / 4)};
  for (int64_t i = 0; i < leaves && status == TDICT_OK; i++) {
    char key[24];
    tdict_tensor *leaf = NULL;
    snprintf(key, sizeof key, "%" PRId64, i);
    status = tdict_tensor_empty(TDICT_F32, 1, shape, NULL, &leaf, &err);
    if (status != TDICT_OK) break;
    s->data[i] = tdict_tensor_data(leaf);
    status = tdict_set(s->tree, key, leaf, &err);
    tdict_tensor_release(leaf);
  }
  if (status == TDICT_OK) return true;
  bench_complain_error("the source tree could not be built", &err);
  check_source_free(s);
  return false;
}

void check_source_free(check_source *s) {
  tdict_release(s->tree);
  free(s->data);
  memset(s, 0, sizeof *s);
}

void check_source_seed(check_source *s, uint64_t seed) {
  uint64_t mixer = seed;
  uint64_t salt = next_random(&mixer);
  for (int64_t i = 0; i < s->leaves; i++) {
    if (i % 64 == 0) bench_progress("filling leaf %" PRId64 " of %" PRId64, i, s->leaves);
    uint64_t state = salt + (uint64_t)i;
    state = next_random(&state);
    unsigned char *to = s->data[i];
    size_t words = s->leaf_bytes / 8;
    for (size_t w = 0; w < words; w++) {
      uint64_t word = next_random(&state);
      memcpy(to + w * 8, &word, 8);
    }
    /* the first four bytes are a bijection of the leaf's number, so that no leaf is another's double; a leaf of four
       bytes has no others */
    uint32_t first = ((uint32_t)i + (uint32_t)salt) * 0x9E3779B1u;
    if (s->leaf_bytes % 8) memcpy(to + words * 8, &state, 4);
    memcpy(to, &first, 4);
  }
}

/* One piece of work on the simulated device, and the thread that waits for it. */
typedef struct sim_job {
  tdict_stream stream;
  void *device, *host; /* host NULL: fill with 0xA5, else read */
  size_t bytes;
  bool good;
  sem_t done;
} sim_job;

static void sim_job_run(void *user) {
  sim_job *job = user;
  void *bytes = tdict_sim_bytes(job->stream, job->device);
  job->good = bytes != NULL;
  if (bytes && job->host) memcpy(job->host, bytes, job->bytes);
  if (bytes && !job->host) memset(bytes, CHECK_POISON, job->bytes);
  sem_post(&job->done);
}

static bool sim_job_do(const check_place *p, void *device, void *host, size_t bytes) {
  tdict_error err;
  sim_job job = {p->stream, device, host, bytes, false, {{0}}};
  if (sem_init(&job.done, 0, 0) != 0) return false;
  tdict_status status = tdict_sim_launch(p->stream, sim_job_run, &job, &err);
  if (status == TDICT_OK)
    while (sem_wait(&job.done) != 0) continue; /* interrupted */
  else
    bench_complain_error("the simulated device refused a launch", &err);
  sem_destroy(&job.done);
  if (status == TDICT_OK && !job.good) bench_complain("%p is no address of the simulated device", device);
  return status == TDICT_OK && job.good;
}

static bool fill_bytes(const check_place *p, void *device, size_t bytes) {
  if (p->device.type == TDICT_DEVICE_SIM) return sim_job_do(p, device, NULL, bytes);
  if (p->device.type == TDICT_DEVICE_CPU) {
    memset(device, CHECK_POISON, bytes);
    return true;
  }
  if (raw_fill(p->raw, (raw_address)(uintptr_t)device, CHECK_POISON, bytes)) return true;
  bench_complain("result memory could not be filled: %s", raw_why(p->raw));
  return false;
}

/* The bytes at `device`: in the bounce buffer, or where they lie when the host can read them. NULL: failed. */
static const void *read_bytes(const check_place *p, const void *device, size_t bytes) {
  if (p->device.type == TDICT_DEVICE_CPU) return device;
  if (p->device.type == TDICT_DEVICE_SIM)
    return sim_job_do(p, (void *)(uintptr_t)device, p->bounce, bytes) ? p->bounce : NULL;
  if (raw_copy_out(p->raw, p->bounce, (raw_address)(uintptr_t)device, bytes)) return p->bounce;
  bench_complain("a result could not be read back: %s", raw_why(p->raw));
  return NULL;
}

bool check_poison_result(const check_place *p, const check_source *s, check_poison *out) {
  memset(out, 0, sizeof *out);
  if (p->device.type == TDICT_DEVICE_CPU) return true;
  tdict_error err;
  tdict_tensor *block = NULL;
  size_t padded = (s->leaf_bytes + 255) & ~(size_t)255; /* leaves of a result begin on multiples of 256 */
  const int64_t shape[1] = {(int64_t)padded * s->leaves};
  tdict_memory *memory = tdict_device_memory(p->context, p->device);
  if (tdict_tensor_empty(TDICT_U8, 1, shape, memory, &block, &err) != TDICT_OK) {
    bench_complain_error("device memory to fill could not be had", &err);
    return false;
  }
  void *device = tdict_tensor_data(block);
  bool good = fill_bytes(p, device, (size_t)shape[0]);
  tdict_tensor_release(block);
  out->low = (uintptr_t)device;
  out->high = out->low + (size_t)shape[0];
  return good;
}

static size_t first_difference(const unsigned char *a, const unsigned char *b, size_t bytes) {
  size_t i = 0;
  while (i < bytes && a[i] == b[i]) i++;
  return i;
}

static int check_leaf(const check_place *p, const check_source *s, int64_t i, const unsigned char *device) {
  for (size_t at = 0; at < s->leaf_bytes;) {
    size_t bytes = s->leaf_bytes - at;
    if (p->device.type != TDICT_DEVICE_CPU && bytes > p->bounce_bytes) bytes = p->bounce_bytes;
    const unsigned char *found = read_bytes(p, device + at, bytes);
    if (!found) return BENCH_FAILED;
    if (memcmp(found, s->data[i] + at, bytes) != 0) {
      size_t where = first_difference(found, s->data[i] + at, bytes);
      bench_complain("leaf \"%" PRId64 "\" differs at offset %zu: sent 0x%02x, arrived 0x%02x", i, at + where,
                     s->data[i][at + where], found[where]);
      return BENCH_DIFFERS;
    }
    at += bytes;
  }
  return BENCH_OK;
}

int check_result(const check_place *p, const check_source *s, tdict_tree *result, const check_poison *poison,
                 size_t *poisoned_bytes) {
  tdict_error err;
  if (tdict_num_leaves(result) != (size_t)s->leaves) {
    bench_complain("%zu leaves arrived of %" PRId64, tdict_num_leaves(result), s->leaves);
    return BENCH_DIFFERS;
  }
  for (int64_t i = 0; i < s->leaves; i++) {
    char key[24];
    tdict_tensor *leaf = NULL;
    snprintf(key, sizeof key, "%" PRId64, i);
    if (i % 64 == 0) bench_progress("reading back leaf %" PRId64 " of %" PRId64, i, s->leaves);
    if (tdict_get(result, key, &leaf, &err) != TDICT_OK) {
      bench_complain_error("a leaf did not arrive", &err);
      return BENCH_DIFFERS;
    }
    if (!tdict_device_equal(tdict_tensor_device(leaf), p->device) || tdict_tensor_dtype(leaf) != TDICT_F32 ||
        tdict_tensor_bytes(leaf) != s->leaf_bytes || !tdict_tensor_is_contiguous(leaf)) {
      bench_complain("leaf \"%s\" arrived on another device, or with another dtype or size", key);
      return BENCH_DIFFERS;
    }
    const unsigned char *device = tdict_tensor_const_data(leaf);
    uintptr_t address = (uintptr_t)device;
    if (address >= poison->low && address + s->leaf_bytes <= poison->high) *poisoned_bytes += s->leaf_bytes;
    int answer = check_leaf(p, s, i, device);
    if (answer != BENCH_OK) return answer;
  }
  return BENCH_OK;
}
