/* What the engine does with a transfer of a size: how many threads, chunks of how many bytes, which stores. One table a
 * direction; the built-in one serves where none was measured.
 * Plain data that its holder owns. Thread rule: whoever reads a table sees to it that nobody writes it. */
#ifndef TDICT_TRANSFER_PLAN_TUNING_H
#define TDICT_TRANSFER_PLAN_TUNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tdict/status.h"

enum { TDICT_TUNING_ROWS = 16, TDICT_TUNING_MAX_WORKERS = 256, TDICT_TUNING_MAX_SPIN_US = 10000 };

typedef enum tdict_tuning_direction {
  TDICT_TUNING_IN,      /* host to device through slots */
  TDICT_TUNING_OUT,     /* device to host through slots, into memory that is there */
  TDICT_TUNING_OUT_NEW, /* the same into a new result, whose pages the threads touch as well */
  TDICT_TUNING_HOST,    /* host to host: pinning, and copies into host memory that is there */
  TDICT_TUNING_DIRECTIONS
} tdict_tuning_direction;

/* Serves transfers of up to that many bytes by way of slots; rows are in rising order. */
typedef struct tdict_tuning_row {
  size_t up_to_bytes; /* the last row's is SIZE_MAX */
  size_t chunk_bytes; /* the most that a copy carries: a multiple of 256; cut down to a slot where that is smaller */
  size_t first_bytes; /* the first chunks': a multiple of 256, at most chunk_bytes; later ones grow */
  int32_t workers;    /* threads, at least 1; counts the caller where it works, too */
  int32_t slots;      /* that a thread has in flight at most, at least 1 */
  int32_t streaming;  /* 1: slots are filled by stores that pass by the cache */
  int32_t caller;     /* 1: a call that waits works itself, with one thread fewer beside it */
  int32_t spin_us;    /* so long a wait for the end looks before it sleeps; not above 80 MiB, nor on two processors */
} tdict_tuning_row;

typedef struct tdict_tuning {
  tdict_tuning_row rows[TDICT_TUNING_DIRECTIONS][TDICT_TUNING_ROWS];
  int32_t num_rows[TDICT_TUNING_DIRECTIONS];
} tdict_tuning;

/* The table that serves where none was measured. */
tdict_tuning tdict_tuning_default(void);
/* Whether a table can be used as it is. TDICT_EINVAL says what is wrong where. */
tdict_status tdict_tuning_check(const tdict_tuning *tuning, tdict_error *err);
/* The row for that many bytes, in a table that was checked. */
const tdict_tuning_row *tdict_tuning_find(const tdict_tuning *tuning, tdict_tuning_direction direction, size_t bytes);

#endif
