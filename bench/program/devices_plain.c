/* Implements the copies of devices_plain.h. Each copying thread opens the driver for its GPU and owns its buffers. */
#include "devices_plain.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"

enum { MOST_THREADS = 64, PIECE_BYTES = 2 << 20, CPUS_PER_THREAD = 2 };

/* A thread that copies to one GPU. */
typedef struct copier {
  pthread_t thread;
  pthread_barrier_t *begin, *end;
  int ordinal;
  const unsigned char *ordinary; /* pageable source, shared by the host threads that copy to this GPU; NULL: each thread
                                  * copies from its own pinned buffer */
  size_t bytes;                  /* the bytes that all threads of the GPU copy in total */
  _Atomic(size_t) *next;         /* relaxed: offset of the next piece, shared by the threads of the GPU */
  bool good;
} copier;

/* Copies pieces of the source to the GPU through two page-locked buffers, which are used alternately. */
static bool copy_pieces(copier *c, raw_driver *raw, void *buffers[2], raw_address to) {
  bool good = true;
  for (int turn = 0; good; turn = !turn) {
    const size_t at = atomic_fetch_add_explicit(c->next, PIECE_BYTES, memory_order_relaxed);
    if (at >= c->bytes) break;
    const size_t bytes = c->bytes - at < PIECE_BYTES ? c->bytes - at : PIECE_BYTES;
    memcpy(buffers[turn], c->ordinary + at, bytes);
    good = raw_finish_own(raw) && raw_copy_in_async(raw, to, buffers[turn], bytes);
  }
  return raw_finish_own(raw) && good;
}

static void *run_copier(void *user) {
  copier *c = user;
  char why[256];
  raw_driver *raw = raw_open(c->ordinal, why, sizeof why);
  const size_t room = c->ordinary ? PIECE_BYTES : c->bytes;
  void *buffers[2] = {NULL, NULL};
  raw_address to = 0;
  bool good = raw && raw_alloc(raw, room, &to) && raw_host_alloc(raw, room, &buffers[0]);
  if (good && c->ordinary) good = raw_host_alloc(raw, room, &buffers[1]);
  if (good) memset(buffers[0], 1, room);
  pthread_barrier_wait(c->begin);
  if (good && c->ordinary)
    good = copy_pieces(c, raw, buffers, to);
  else if (good)
    good = raw_copy_in_async(raw, to, buffers[0], c->bytes) && raw_finish_own(raw);
  pthread_barrier_wait(c->end);
  c->good = good;
  if (raw && to) (void)raw_free(raw, to);
  for (int i = 0; i < 2; i++)
    if (buffers[i]) (void)raw_host_free(raw, buffers[i]);
  if (raw) raw_close(raw);
  return NULL;
}

/* Runs the threads. Sets *bytes_per_second to `bytes` divided by the time from the first copy's start to the last
 * copy's end. */
static bool run_all(copier *all, int count, size_t bytes, double *bytes_per_second) {
  pthread_barrier_t begin, end;
  bool good = true;
  int started = 0;
  pthread_barrier_init(&begin, NULL, (unsigned)count + 1);
  pthread_barrier_init(&end, NULL, (unsigned)count + 1);
  for (; started < count; started++) {
    all[started].begin = &begin;
    all[started].end = &end;
    if (pthread_create(&all[started].thread, NULL, run_copier, &all[started]) != 0) {
      bench_print_error("cannot start a thread");
      exit(BENCH_FAILED); /* the started threads would wait at the barrier forever */
    }
  }
  pthread_barrier_wait(&begin);
  const double start = bench_now();
  pthread_barrier_wait(&end);
  *bytes_per_second = (double)bytes / (bench_now() - start);
  for (int i = 0; i < count; i++) {
    pthread_join(all[i].thread, NULL);
    good &= all[i].good;
  }
  pthread_barrier_destroy(&begin);
  pthread_barrier_destroy(&end);
  if (!good) bench_print_error("a plain copy failed");
  return good;
}

bool plain_lines(int count, size_t bytes, double *bytes_per_second) {
  copier all[MOST_THREADS];
  for (int i = 0; i < count; i++) all[i] = (copier){.ordinal = i, .bytes = bytes};
  return run_all(all, count, bytes * (size_t)count, bytes_per_second);
}

bool plain_staging(int count, size_t bytes, double *bytes_per_second) {
  copier all[MOST_THREADS];
  _Atomic(size_t) next[MOST_THREADS];
  scoped_bytes ordinary = malloc(bytes);
  const size_t part = bytes / (size_t)count;
  int each = bench_cpu_count() / (CPUS_PER_THREAD * count);
  if (!ordinary) {
    bench_print_error("cannot allocate %zu bytes", bytes);
    return false;
  }
  memset(ordinary, 7, bytes);
  each = each < 1 ? 1 : each > MOST_THREADS / count ? MOST_THREADS / count : each;
  for (int i = 0; i < count * each; i++) {
    const int gpu = i % count;
    atomic_init(&next[gpu], 0);
    all[i] = (copier){.ordinal = gpu, .next = &next[gpu], .bytes = part, .ordinary = ordinary + part * (size_t)gpu};
  }
  return run_all(all, count * each, part * (size_t)count, bytes_per_second);
}
