/* What a machine does without the library, so that two runs of bench/compare can be told apart from two machines: copies
 * within ordinary memory by one thread and by all, fresh pages, a chain of multiplications, driver copies of 4 KiB that are
 * waited for, and the line. All of them are rates, so more is faster. See rows.h. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "rows.h"

enum { ROUNDS = 3, MOST_THREADS = 256, SMALL_COPIES = 200, LINES = 5 };
static const size_t full_bytes = (size_t)256 << 20, small_bytes = (size_t)8 << 20, small_copy_bytes = 4096;
static const int64_t full_steps = 20000000, small_steps = 1000000;

typedef struct speed_part {
  unsigned char *to;
  const unsigned char *from;
  size_t bytes;
} speed_part;

static void *copy_part(void *user) {
  const speed_part *part = user;
  memcpy(part->to, part->from, part->bytes);
  return NULL;
}

/* The calling thread does what no thread could be started for. */
static double copy_by(int threads, unsigned char *to, const unsigned char *from, size_t bytes) {
  pthread_t started[MOST_THREADS];
  speed_part parts[MOST_THREADS];
  bool runs[MOST_THREADS] = {false};
  size_t each = bytes / (size_t)threads;
  double begin = bench_now();
  for (int t = 0; t < threads; t++) {
    parts[t] = (speed_part){to + (size_t)t * each, from + (size_t)t * each, each};
    runs[t] = threads > 1 && pthread_create(&started[t], NULL, copy_part, &parts[t]) == 0;
    if (!runs[t]) copy_part(&parts[t]);
  }
  for (int t = 0; t < threads; t++)
    if (runs[t]) pthread_join(started[t], NULL);
  return bench_now() - begin;
}

/* Bytes a second of the middle one of a few copies, the caches being emptied before each. */
static bool copy_rate(bench_place *p, int threads, unsigned char *memory, size_t bytes, double *rate) {
  bench_samples seconds;
  if (!bench_samples_reserve(&seconds, ROUNDS)) return false;
  bool good = true;
  for (int i = 0; i < ROUNDS && good; i++) {
    good = !p->full || place_empty_caches(p);
    bench_samples_add(&seconds, copy_by(threads, memory + bytes, memory, bytes));
  }
  *rate = (double)bytes / bench_samples_median(&seconds);
  bench_samples_free(&seconds);
  return good;
}

/* Taken and written to a few times, since a virtual machine's pages may be slow for the first time ever. */
static void *fresh_memory(size_t bytes, json_t *found) {
  bench_samples seconds;
  void *memory = NULL;
  if (!bench_samples_reserve(&seconds, ROUNDS)) return NULL;
  for (int i = 0; i < ROUNDS; i++) {
    if (memory) munmap(memory, bytes);
    double begin = bench_now();
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) memory = NULL;
    if (!memory) break;
    memset(memory, CHECK_POISON, bytes);
    bench_samples_add(&seconds, bench_now() - begin);
  }
  if (memory) json_object_set_new(found, "fresh_pages", json_real((double)bytes / bench_samples_median(&seconds)));
  bench_samples_free(&seconds);
  return memory;
}

/* Memory: fresh pages, then copies within them. */
static bool memory_speed(bench_place *p, json_t *found) {
  size_t bytes = p->full ? full_bytes : small_bytes;
  int threads = bench_cpu_count();
  double one, all;
  if (threads > MOST_THREADS) threads = MOST_THREADS;
  void *memory = fresh_memory(2 * bytes, found);
  if (!memory) return false;
  bool good = copy_rate(p, 1, memory, bytes, &one) && copy_rate(p, threads, memory, bytes, &all);
  munmap(memory, 2 * bytes);
  if (!good) return false;
  json_object_set_new(found, "copy_one_thread", json_real(one));
  json_object_set_new(found, "copy_all_threads", json_real(all));
  return true;
}

/* Steps a second of a chain in which each multiplication waits for the one before. */
static double core_speed(int64_t steps) {
  volatile uint64_t seed = 1;
  uint64_t x = seed;
  double begin = bench_now();
  for (int64_t i = 0; i < steps; i++) x = x * UINT64_C(6364136223846793005) + (uint64_t)i;
  seed = x;
  return (double)steps / (bench_now() - begin);
}

static bool small_copies(bench_place *p, json_t *found) {
  raw_driver *raw = p->check.raw;
  bench_samples seconds;
  if (!bench_samples_reserve(&seconds, SMALL_COPIES)) return false;
  bool good = true;
  for (int i = 0; i < SMALL_COPIES && good; i++) {
    double begin = bench_now();
    good = raw_copy_in_async(raw, p->line_device, p->check.bounce, small_copy_bytes) && raw_finish_own(raw);
    bench_samples_add(&seconds, bench_now() - begin);
  }
  if (good) json_object_set_new(found, "small_copies", json_real(1 / bench_samples_median(&seconds)));
  bench_samples_free(&seconds);
  if (!good) bench_complain("small copies: %s", raw_why(raw));
  return good;
}

static bool line_speed(bench_place *p, json_t *found) {
  bench_samples seconds;
  if (!bench_samples_reserve(&seconds, LINES)) return false;
  bool good = true;
  for (int i = 0; i < LINES && good; i++) {
    double one = 0;
    good = place_line(p, &one);
    bench_samples_add(&seconds, one);
  }
  if (good) json_object_set_new(found, "line", json_real((double)p->line_bytes / bench_samples_median(&seconds)));
  bench_samples_free(&seconds);
  return good;
}

json_t *place_speed(bench_place *p) {
  json_t *found = json_object();
  bool good = memory_speed(p, found);
  json_object_set_new(found, "core", json_real(core_speed(p->full ? full_steps : small_steps)));
  if (good && place_is_gpu(p)) good = small_copies(p, found);
  if (good && p->line_bytes) good = line_speed(p, found);
  if (good) return found;
  json_decref(found);
  return NULL;
}
