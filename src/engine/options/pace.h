/* Declares the pace of a transfer or of a save: the option max_bytes_per_second. A pace has a time at which the next
 * bytes may be copied. A thread takes this time for its bytes, and sleeps until then. The time of the next bytes is
 * later by as long as these bytes take at the rate. Time that no thread uses is lost, so copies never catch up, and an
 * interval exceeds the rate by one piece at most. Ownership: the creator frees the pace. Thread rule: any number of
 * threads may wait for a pace at the same time. */
#ifndef TDICT_ENGINE_OPTIONS_PACE_H
#define TDICT_ENGINE_OPTIONS_PACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tdict/status.h"

struct tdict_worker;
typedef struct tdict_pace tdict_pace;

/* Checks the value of the option max_bytes_per_second. Returns TDICT_EINVAL if the value is negative, or too small. */
tdict_status tdict_pace_check(int64_t bytes_per_second, const char *what, tdict_error *err);
/* Returns the limit of a piece that is copied at once: what the rate allows in a millisecond, but at least 256 KiB. */
size_t tdict_pace_piece_bytes(int64_t bytes_per_second);
/* Returns how many threads are enough for the rate. The other threads of the pool stay free for the program. */
int tdict_pace_num_threads(int64_t bytes_per_second);
/* Creates a pace. bytes_per_second: a checked value that is not 0. Errors: TDICT_ENOMEM. */
tdict_status tdict_pace_create(int64_t bytes_per_second, tdict_pace **out, tdict_error *err);
void tdict_pace_free(tdict_pace *pace);
/* Returns tdict_pace_piece_bytes() for the rate of the pace. */
size_t tdict_pace_max_bytes(const tdict_pace *pace);
/* Waits until `bytes` bytes may be copied. Returns false if *stops becomes true meanwhile. `stops` may be NULL. */
bool tdict_pace_wait(tdict_pace *pace, size_t bytes, const _Atomic(bool) *stops);
/* Waits like tdict_pace_wait() for the pace of the worker's transfer, which must have one. Counts the time as waiting.
 * Returns false if the transfer has failed meanwhile. */
bool tdict_pace_wait_for_chunk(struct tdict_worker *worker, size_t bytes);

#endif
