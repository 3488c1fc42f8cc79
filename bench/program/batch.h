/* Reads the option --batch: a tree of the user to measure. Thread rule: one thread. */
#ifndef TDICT_BENCH_BATCH_H
#define TDICT_BENCH_BATCH_H

#include "check.h"

#define BATCH_HELP                                                                                                    \
  "measure this batch: a text such as \"obs:u8[64,3,84,84] reward:f32[64]\", a file that tdict inspect can show, or " \
  "the JSON that tdict inspect --json prints"

/* Makes the source that `text` describes, in pageable memory. The source of a file keeps the elements of the file;
 * other sources have random elements. `most` is as in check_source_adopt(). Prints an error and returns false on
 * failure. */
bool batch_make(check_source *s, const char *text, int64_t most);

#endif
