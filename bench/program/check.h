/* Makes the source trees of a scenario, and verifies results. Sources contain random numbers, which depend on a seed.
 * Before a transfer, memory that the result will probably use is filled with 0xA5. After the transfer, every byte is
 * read back without the library and compared.
 * Thread rule: one thread. Functions that return a bool or an exit code print an error if they fail. */
#ifndef TDICT_BENCH_CHECK_H
#define TDICT_BENCH_CHECK_H

#include "bench.h"
#include "raw.h"

/* A group of leaves of equal size. For float32, the size is a multiple of 4 bytes. */
typedef struct check_group {
  int64_t leaves;
  size_t leaf_bytes;
} check_group;

/* The type and the range of the elements of a source. */
typedef struct check_values {
  tdict_dtype dtype; /* float32, an integer dtype or bool */
  int64_t most;      /* integers are random numbers from 0 to `most`; 0: random bits; ignored for other dtypes */
} check_values;

/* A flat tree of one-dimensional tensors, each with its own allocation. The keys are "0", "1", ... Or a tree of the
 * user, see check_source_adopt(). */
typedef struct check_source {
  check_values values;
  tdict_dtype *dtypes; /* the dtype of each leaf of a tree of the user; NULL: values.dtype */
  char **paths;        /* the path of each leaf of a tree of the user; NULL: the number of the leaf */
  bool keeps_elements; /* check_source_seed() does nothing */
  tdict_tree *tree;
  unsigned char **data; /* the address of each leaf; the tree owns the bytes */
  size_t *bytes;        /* the size of each leaf */
  int64_t leaves;
  size_t total_bytes;
} check_source;
/* Makes a float32 source without filling it. `memory` allocates the leaves; NULL: pageable memory. */
bool check_source_make(check_source *s, const check_group *groups, int num_groups, tdict_memory *memory);
/* Like check_source_make() for one group, but with the dtype and the range of `values`. The size of a leaf must be a
 * multiple of the element size. */
bool check_source_make_of(check_source *s, const check_values *values, const check_group *group, tdict_memory *memory);
/* Makes a source of a tree in host memory, all leaves of which are contiguous. Takes over the reference, also on
 * failure. `most` is check_values.most, for leaves of an integer dtype that holds it. */
bool check_source_adopt(check_source *s, tdict_tree *tree, int64_t most);
void check_source_free(check_source *s);
/* Returns the sum of the leaf sizes in bytes, each rounded up to a multiple of 256, as in the memory of a result. */
size_t check_padded_bytes(const check_source *s);
/* Fills all leaves with random elements on several threads. Float leaves all differ, even between seeds. */
void check_source_seed(check_source *s, uint64_t seed);

/* How the functions below access memory of `device` without a transfer: through `raw` for cuda, by functions queued on
 * `stream` for the simulated device, and directly for the cpu. Pointers are borrowed. */
typedef struct check_place {
  tdict_context *context;
  tdict_device device;
  raw_driver *raw;
  tdict_stream stream;
  void *bounce; /* host memory that receives device bytes; page-locked for cuda */
  size_t bounce_bytes;
} check_place;

/* Returns `good`, the result of a driver call. If the call failed, prints an error that begins with `what`. */
bool check_driver(const raw_driver *raw, const char *what, bool good);
/* Allocates a block of `bytes` bytes from `memory`. On failure, prints an error that begins with `what` and returns
 * false. */
bool check_block(tdict_memory *memory, size_t bytes, const char *what, tdict_tensor **out);

/* A range of device memory that was filled with 0xA5 and freed. */
typedef struct check_poison {
  uintptr_t low, high;
} check_poison;
enum { CHECK_POISON = 0xA5 };
/* Allocates as much device memory as the result of a transfer of `s` needs, fills it with 0xA5 and frees it, so that
 * the library can reuse this memory for the result. Does nothing for the cpu. */
bool check_poison_result(const check_place *p, const check_source *s, check_poison *out);

/* Compares a result with its source. Returns BENCH_OK if every byte of every leaf is equal. At the first difference,
 * prints the leaf and the offset and returns BENCH_DIFFERS. Returns BENCH_FAILED if a leaf cannot be read. Unless
 * `poison` is NULL, adds the sizes of the result's leaves in this range to *poisoned_bytes. */
int check_result(const check_place *p, const check_source *s, tdict_tree *result, const check_poison *poison,
                 size_t *poisoned_bytes);

/* Compares memory of p->device with `want`, in pieces of at most bounce_bytes. Returns BENCH_OK, or BENCH_FAILED if the
 * memory cannot be read. At the first difference, writes its offset and the byte found, and returns BENCH_DIFFERS. */
int check_bytes(const check_place *p, const unsigned char *address, size_t bytes, const unsigned char *want, size_t *at,
                unsigned char *found);

/* Makes at most bounce_bytes of device memory readable on the host. Returns the bounce buffer with a copy, or `device`
 * itself if the device is the cpu. Returns NULL on failure. */
const void *check_read(const check_place *p, const void *device, size_t bytes);

#endif
