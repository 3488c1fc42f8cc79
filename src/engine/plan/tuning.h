/* Declares the tuning table. For each size of a transfer, the table gives the number of threads, the bytes of a chunk
 * and the kind of stores. Each direction has its own rows. A context uses the built-in table unless it has a tuning
 * file. A table is plain data and owns no memory. Thread rule: no thread may write a table while other threads read the
 * table. */
#ifndef TDICT_ENGINE_PLAN_TUNING_H
#define TDICT_ENGINE_PLAN_TUNING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tdict/status.h"

enum { TDICT_TUNING_ROWS = 16, TDICT_TUNING_MAX_WORKERS = 256, TDICT_TUNING_MAX_SPIN_US = 10000 };

typedef enum tdict_tuning_direction {
  TDICT_TUNING_IN,      /* host to device, through slots */
  TDICT_TUNING_OUT,     /* device to host through slots, into existing memory */
  TDICT_TUNING_OUT_NEW, /* device to host through slots, into a new result whose pages the threads touch first */
  TDICT_TUNING_HOST,    /* host to host: pinning, and copies into existing host memory */
  TDICT_TUNING_DIRECTIONS
} tdict_tuning_direction;

/* One row: settings for transfers of up to up_to_bytes. Rows are in rising order. */
typedef struct tdict_tuning_row {
  size_t up_to_bytes; /* SIZE_MAX in the last row */
  size_t chunk_bytes; /* maximum number of bytes of a chunk, a multiple of 256. Reduced if slots are smaller, or to make
                       * all chunks about equal. Raised if the calling thread of an _async call copies and would need
                       * more slots than the ring has */
  size_t first_bytes; /* bytes of the first chunks, a multiple of 256 and at most chunk_bytes. Later chunks grow to
                       * chunk_bytes */
  int32_t workers;    /* number of threads, at least 1. Includes the caller if the caller works */
  int32_t slots;      /* maximum number of slots that a thread holds, at least 1. Ignored if all chunks fit into the
                       * ring, or if several threads fill a slot */
  int32_t streaming;  /* 1: threads copy with stores that bypass the cache */
  int32_t caller;     /* 1: the caller of a blocking call normally works as one of the threads */
  /* microseconds that a thread spins before it sleeps, while it waits for the transfer's end. Ignored for transfers of
   * more than 80 MiB, and if there are fewer than three processors */
  int32_t spin_us;
} tdict_tuning_row;

typedef struct tdict_tuning {
  tdict_tuning_row rows[TDICT_TUNING_DIRECTIONS][TDICT_TUNING_ROWS];
  int32_t num_rows[TDICT_TUNING_DIRECTIONS];
} tdict_tuning;

tdict_tuning tdict_tuning_default(void);
extern const char *const tdict_tuning_names[TDICT_TUNING_DIRECTIONS];
/* Checks a row, except up_to_bytes. Returns TDICT_EINVAL with a message of `what` and the field. */
tdict_status tdict_tuning_check_row(const tdict_tuning_row *row, const char *what, tdict_error *err);
/* Checks a table. Returns TDICT_EINVAL if a field is invalid. The message names the row and the field. */
tdict_status tdict_tuning_check(const tdict_tuning *tuning, tdict_error *err);

#endif
