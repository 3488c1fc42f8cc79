/* tdict-bench alloc: measures how long it takes to allocate new pinned memory, and to reuse a block from the cache. See
 * rows.h for ownership and threads. */
#include <string.h>

#include "rows.h"
#include "tdict/memory.h"

static bool take_pinned(bench_job *job, tdict_tensor **out) {
  return check_block(tdict_pinned_memory(job->place->context), job->total_bytes, "pinned memory", out);
}

/* Allocates a block and verifies that it is pinned, and that its pages can be written and read. */
static int alloc_verify(bench_job *job) {
  tdict_tensor *block = NULL;
  if (!take_pinned(job, &block)) return BENCH_FAILED;
  unsigned char *bytes = tdict_tensor_data(block);
  bool good = tdict_tensor_is_pinned(block);
  memset(bytes, CHECK_POISON, job->total_bytes);
  for (size_t i = 0; i < job->total_bytes && good; i += 4096) good = bytes[i] == CHECK_POISON;
  tdict_tensor_release(block);
  if (!good) bench_print_error("the memory is not pinned, or does not keep written bytes");
  return good ? BENCH_OK : BENCH_DIFFERS;
}

static bool first_driver(bench_job *job, int tree, double *seconds) {
  raw_driver *raw = job->place->check.raw;
  void *block = NULL;
  (void)tree;
  double begin = bench_now();
  bool good = raw_host_alloc(raw, job->total_bytes, &block);
  *seconds = bench_now() - begin;
  if (good) good = raw_host_free(raw, block);
  return check_driver(raw, "pinned memory by the driver", good);
}

static const bench_kind kind_first;

/* kind_first: measures an allocation with an empty cache. kind_again: measures the allocation and the release of a
 * block that stays in the cache between repetitions. */
static bool alloc_sample(bench_job *job, int tree, double *seconds) {
  const bool is_first = job->row.kind == &kind_first;
  tdict_tensor *block = NULL;
  (void)tree;
  if (is_first) tdict_context_trim(job->place->context, tdict_cpu(), 0);
  const double begin = bench_now();
  if (!take_pinned(job, &block)) return false;
  if (is_first) *seconds = bench_now() - begin;
  tdict_tensor_release(block);
  if (!is_first) *seconds = bench_now() - begin;
  if (is_first) tdict_context_trim(job->place->context, tdict_cpu(), 0);
  return true;
}

#define ALLOC .no_sources = true, .verify = alloc_verify
static const bench_kind kind_first = {.name = "alloc", .sample = alloc_sample, .driver = first_driver, ALLOC};
static const bench_kind kind_again = {.name = "alloc_again", .sample = alloc_sample, ALLOC};

#define GIGABYTE .groups = {{1, 1073741824}}, .source = "pinned", .peers = "torch"
static const bench_row rows[] = {
    {.name = "1 GiB, none kept", .kind = &kind_first, GIGABYTE, .worth = 2},
    {.name = "1 GiB, again", .kind = &kind_again, GIGABYTE, .worth = 2},
    {.name = "16 MiB, none kept",
     .kind = &kind_first,
     .groups = {{1, 16777216}},
     .source = "pinned",
     .peers = "torch",
     .worth = 3},
};

BENCH_SCENARIO(alloc, "alloc", rows, "allocates pinned memory, new and reused")
