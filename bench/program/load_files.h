/* Makes the safetensors files of the scenario load, and reads and writes files with plain system calls on several
 * threads. Does not use the library under test. Each 8-byte word of tensor data is a function of its offset in the
 * file, so results can be verified without a copy of the data.
 * Thread rule: main thread only. Functions print an error before they return false. */
#ifndef TDICT_BENCH_LOAD_FILES_H
#define TDICT_BENCH_LOAD_FILES_H

#include "bench.h"

/* Describes the tensors of a file. All of them are one-dimensional and have the same dtype. */
typedef struct load_shape {
  const char *name;  /* the name of the workload: "even", "mixed" or "many" */
  const char *dtype; /* the name of `type` in the file */
  tdict_dtype type;
  int64_t num_leaves, item_bytes, total_bytes;
  uint64_t (*leaf_bytes)(int64_t leaf);
  void (*leaf_name)(int64_t leaf, char *buffer, size_t size); /* keys joined by dots */
} load_shape;
extern const load_shape load_even, load_mixed, load_many;

typedef struct load_file {
  const load_shape *shape;
  char path[512];
  uint64_t *offsets; /* the offset of each tensor in the file, then the file size */
  uint64_t data_begin;
  char *header; /* the first data_begin bytes */
  bool is_made; /* true: load_file_provide() wrote the file */
} load_file;

/* Computes the path, the header and the offsets of a file, without writing it. The tensors have 1/`divide` of the sizes
 * in `shape`. Release `f` with load_file_close(). */
bool load_file_plan(load_file *f, const load_shape *shape, const char *folder, int64_t divide);
/* Writes the file if it does not exist. Fails if it exists with another size. Then reads the file once to fill the page
 * cache. */
bool load_file_provide(load_file *f);
bool load_file_warm(const load_file *f);
void load_file_close(load_file *f, bool keeps); /* removes the file if load_file_provide() wrote it, unless `keeps` */
static inline uint64_t load_file_bytes(const load_file *f) { return f->offsets[f->shape->num_leaves]; }

/* Compares loaded bytes with the bytes of the file from `offset` on. Returns the byte index of the first 8-byte word
 * that differs, or `bytes` if all are equal. */
size_t load_file_equal(const void *found, uint64_t offset, size_t bytes);

/* Evicts a file from the page cache. Returns the fraction of its pages that are still cached, or -1 if unknown. */
double load_evict(const char *path);
bool load_is_tmpfs(const char *folder);

/* Reads a whole file on several threads, each with its own buffer, and writes the seconds. `direct`: bypass the page
 * cache with O_DIRECT. Returns false on failure. If O_DIRECT is not supported, prints no error. */
bool load_read_plain(const char *path, bool direct, double *seconds);
/* Creates a file of `num_blocks` consecutive blocks, written on several threads, and flushes it. Writes the seconds. */
bool load_write_plain(const char *path, unsigned char *const *blocks, int64_t num_blocks, size_t block_bytes,
                      double *seconds);

/* The growth of the process's host memory. Pages of mapped files, such as the driver's libraries, do not count. */
typedef struct load_memory {
  int64_t before, files_before;
  int64_t growth; /* the peak minus `before`, in bytes; -1: unknown */
} load_memory;
void load_memory_begin(load_memory *m); /* resets the kernel's peak */
void load_memory_end(load_memory *m);

#endif
