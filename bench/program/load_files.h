/* Makes the files of the scenario load, and reads and writes files with plain system calls and several threads. Uses
 * nothing of the library, so that the files and the plain readers are independent of it.
 * Each file is a safetensors file. The word of 8 bytes at each offset of the elements is a function of the offset, so
 * results can be verified without a second copy of the elements.
 * Thread rule: main thread only. Functions that return false have printed an error. */
#ifndef TDICT_BENCH_LOAD_FILES_H
#define TDICT_BENCH_LOAD_FILES_H

#include "bench.h"

/* The tensors of a file. Tensors are one-dimensional. */
typedef struct load_shape {
  const char *name;  /* of the work: "even", "mixed" or "many" */
  const char *dtype; /* name of the dtype in the file */
  tdict_dtype type;
  int64_t num_leaves, item_bytes, total_bytes;
  uint64_t (*leaf_bytes)(int64_t leaf);
  void (*leaf_name)(int64_t leaf, char *buffer, size_t size); /* keys joined by dots */
} load_shape;
extern const load_shape load_even, load_mixed, load_many;

typedef struct load_file {
  const load_shape *shape;
  char path[512];
  uint64_t *offsets; /* of each tensor in the file, and of the end of the file */
  uint64_t data_begin;
  char *header; /* the first data_begin bytes */
  bool is_made; /* true: load_file_provide() wrote the file */
} load_file;

/* Plans the file of `shape` in `folder`, with 1/divide of the bytes of each tensor. load_file_close() releases the
 * plan. */
bool load_file_plan(load_file *f, const load_shape *shape, const char *folder, int64_t divide);
/* Writes the file, unless a file of this name and size exists. Reads the file once, so that its bytes are in the page
 * cache. */
bool load_file_provide(load_file *f);
bool load_file_warm(const load_file *f);
void load_file_close(load_file *f, bool keeps); /* removes the file if load_file_provide() wrote it, unless `keeps` */
static inline uint64_t load_file_bytes(const load_file *f) { return f->offsets[f->shape->num_leaves]; }

/* Compares bytes that were read from the file. Returns the number of equal bytes before the first difference. */
size_t load_file_equal(const void *found, uint64_t offset, size_t bytes);

/* Removes a file from the page cache. Returns the fraction of its pages that is still there, or -1 if the fraction is
 * unknown. */
double load_evict(const char *path);
bool load_is_tmpfs(const char *folder);

/* Reads a whole file into buffers of the threads, through the page cache or with O_DIRECT. Adds no time if O_DIRECT is
 * not supported, and returns false without an error if `direct` is true. */
bool load_read_plain(const char *path, bool direct, double *seconds);
/* Creates a file, writes `num_blocks` blocks of equal size one after another, and flushes the file. */
bool load_write_plain(const char *path, unsigned char *const *blocks, int64_t num_blocks, size_t block_bytes,
                      double *seconds);

/* The growth of the host memory of the process, without pages of mapped files, for example of the driver's
 * libraries. */
typedef struct load_memory {
  int64_t before, files_before;
  int64_t growth; /* bytes from before to the maximum; -1: unknown */
} load_memory;
void load_memory_begin(load_memory *m); /* resets the kernel's maximum */
void load_memory_end(load_memory *m);

#endif
