/* The sources of a scenario, and the check that what arrived is what was sent: seeded random leaves, result memory
 * filled with 0xA5 beforehand, every byte read back without the library and compared.
 *
 * Thread rule: one thread. Every call that answers false has complained on stderr. */
#ifndef TDICT_BENCH_CHECK_H
#define TDICT_BENCH_CHECK_H

#include "bench.h"
#include "raw.h"

/* So many leaves of one size, a multiple of 4. */
typedef struct check_group {
  int64_t leaves;
  size_t leaf_bytes;
} check_group;

/* A flat tree of tensors of floats, each in an allocation of its own, named "0", "1", ... */
typedef struct check_source {
  tdict_tree *tree;
  unsigned char **data; /* one address a leaf; the tree owns the bytes */
  size_t *bytes;        /* of each leaf */
  int64_t leaves;
  size_t total_bytes;
} check_source;
/* In `memory`, NULL being ordinary (pageable) memory; contents are unspecified. */
bool check_source_make(check_source *s, const check_group *groups, int num_groups, tdict_memory *memory);
void check_source_free(check_source *s);
/* Bytes of a result of the same leaves, each beginning on a multiple of 256. */
size_t check_padded_bytes(const check_source *s);
/* Fills all leaves from `seed`, with a few threads: no two leaves are equal, and two seeds give different bytes in every
 * leaf. */
void check_source_seed(check_source *s, uint64_t seed);

/* How device bytes are reached without a transfer of the library. For cuda by the driver (raw is set), for the
 * simulated device by functions that run on it (stream is set), for the cpu by plain code. Pointers are borrowed. */
typedef struct check_place {
  tdict_context *context;
  tdict_device device;
  raw_driver *raw;
  tdict_stream stream;
  void *bounce; /* host memory to read back into; page-locked for cuda */
  size_t bounce_bytes;
} check_place;

/* A range of device memory that was filled with 0xA5 and given back. */
typedef struct check_poison {
  uintptr_t low, high;
} check_poison;
enum { CHECK_POISON = 0xA5 };
/* Takes as much device memory as the result will need, fills it, gives it back: the library's pool will hand it out
 * again. */
bool check_poison_result(const check_place *p, const check_source *s, check_poison *out);

/* BENCH_OK when every byte of every leaf of `result` equals the source; BENCH_DIFFERS and a complaint that names leaf
 * and offset of the first difference; BENCH_FAILED when it cannot be found out. Adds to *poisoned_bytes what lay
 * in the poisoned range. */
int check_result(const check_place *p, const check_source *s, tdict_tree *result, const check_poison *poison,
                 size_t *poisoned_bytes);

/* The bytes at `device`, at most bounce_bytes of them: in the bounce buffer, or where they lie when the host can read them.
 * NULL: it failed. */
const void *check_read(const check_place *p, const void *device, size_t bytes);

#endif
