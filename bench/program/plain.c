/* Implements the copies of plain.h. Each copying thread opens the driver for its GPU and owns its buffers. */
#include "plain.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "raw.h"

enum { MOST_THREADS = 64, CPUS_PER_THREAD = 2, PIECES_PER_THREAD = 4, LEAST_PIECE = 64 << 10, MOST_PIECE = 2 << 20 };

/* Pageable bytes in several places, which the threads of a GPU copy one after the other. */
typedef struct stretch {
  unsigned char *const *data; /* the address of each leaf */
  const size_t *bytes;        /* the size of each leaf */
  size_t total, piece;
  _Atomic(size_t) next; /* relaxed: offset of the next piece */
} stretch;

/* A thread that copies to one GPU. */
typedef struct copier {
  pthread_t thread;
  pthread_barrier_t *begin, *end;
  int ordinal;
  stretch *ordinary;   /* pageable source, shared by the threads of the GPU; NULL: the thread's own pinned buffer */
  size_t bytes;        /* size of the pinned buffer, if `ordinary` is NULL */
  raw_address results; /* where the bytes go; 0: each thread uses memory of its own again and again */
  bool good;
} copier;

/* Copies `bytes` bytes from offset `at` of the leaves to `to`. */
static void gather(const stretch *s, size_t at, size_t bytes, unsigned char *to) {
  size_t leaf = 0, begin = 0;
  for (; begin + s->bytes[leaf] <= at; leaf++) begin += s->bytes[leaf];
  for (at -= begin; bytes > 0; leaf++, at = 0) {
    const size_t part = s->bytes[leaf] - at < bytes ? s->bytes[leaf] - at : bytes;
    memcpy(to, s->data[leaf] + at, part);
    to += part;
    bytes -= part;
  }
}

/* Copies pieces of the source to the GPU through two page-locked buffers, which are used alternately. */
static bool copy_pieces(copier *c, raw_driver *raw, void *buffers[2], raw_address own) {
  stretch *s = c->ordinary;
  bool good = true;
  for (int turn = 0; good; turn = !turn) {
    const size_t at = atomic_fetch_add_explicit(&s->next, s->piece, memory_order_relaxed);
    if (at >= s->total) break;
    const size_t bytes = s->total - at < s->piece ? s->total - at : s->piece;
    gather(s, at, bytes, buffers[turn]);
    good = raw_finish_own(raw) && raw_copy_in_async(raw, c->results ? c->results + at : own, buffers[turn], bytes);
  }
  return raw_finish_own(raw) && good;
}

static void *run_copier(void *user) {
  copier *c = user;
  char why[256];
  raw_driver *raw = raw_open(c->ordinal, why, sizeof why);
  const size_t room = c->ordinary ? c->ordinary->piece : c->bytes;
  void *buffers[2] = {NULL, NULL};
  raw_address to = 0;
  bool good = raw && raw_alloc(raw, room, &to) && raw_host_alloc(raw, room, &buffers[0]);
  if (good && c->ordinary) good = raw_host_alloc(raw, room, &buffers[1]);
  if (good) memset(buffers[0], 1, room);
  if (good)
    good = raw_copy_in_async(raw, to, buffers[0], room) && raw_finish_own(raw); /* the first copy takes longer */
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

/* Runs the threads. Writes the time from the first copy's start to the last copy's end. */
static bool run_all(copier *all, int count, double *seconds) {
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
  *seconds = bench_now() - start;
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
  double seconds = 1;
  for (int i = 0; i < count; i++) all[i] = (copier){.ordinal = i, .bytes = bytes};
  const bool good = run_all(all, count, &seconds);
  *bytes_per_second = (double)(bytes * (size_t)count) / seconds;
  return good;
}

/* Copies parts[i] to GPU first + i, for `count` GPUs. A processor in CPUS_PER_THREAD has a thread. */
static bool stage(stretch *parts, int first, int count, raw_address results, double *seconds) {
  copier all[MOST_THREADS];
  int each = bench_cpu_count() / (CPUS_PER_THREAD * count);
  each = each < 1 ? 1 : each > MOST_THREADS / count ? MOST_THREADS / count : each;
  for (int i = 0; i < count; i++) {
    const size_t piece = parts[i].total / (size_t)(PIECES_PER_THREAD * each) / 4096 * 4096;
    parts[i].piece = piece < LEAST_PIECE ? LEAST_PIECE : piece > MOST_PIECE ? MOST_PIECE : piece;
  }
  for (int i = 0; i < count * each; i++)
    all[i] = (copier){.ordinal = first + i % count, .ordinary = &parts[i % count], .results = results};
  return run_all(all, count * each, seconds);
}

bool plain_staging(int count, size_t bytes, double *bytes_per_second) {
  stretch parts[MOST_THREADS];
  unsigned char *data[MOST_THREADS];
  scoped_bytes ordinary = malloc(bytes);
  const size_t part = bytes / (size_t)count;
  double seconds = 1;
  if (!ordinary) {
    bench_print_error("cannot allocate %zu bytes", bytes);
    return false;
  }
  memset(ordinary, 7, bytes);
  for (int i = 0; i < count; i++) {
    data[i] = ordinary + part * (size_t)i;
    parts[i] = (stretch){.data = &data[i], .bytes = &part, .total = part};
  }
  const bool good = stage(parts, 0, count, 0, &seconds);
  *bytes_per_second = (double)(part * (size_t)count) / seconds;
  return good;
}

bool plain_leaves(const check_source *source, int ordinal, raw_address to, double *seconds) {
  stretch all = {.data = source->data, .bytes = source->bytes, .total = source->total_bytes};
  return stage(&all, ordinal, 1, to, seconds);
}
