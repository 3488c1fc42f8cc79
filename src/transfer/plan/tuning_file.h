/* Tuning tables as text: one row a line, comments, the version and the machine's name. Plain data that the caller owns.
 *
 *   # anything
 *   tdict-tuning 1
 *   machine NAME
 *   in  UP_TO CHUNK FIRST WORKERS SLOTS STREAMING CALLER SPIN_US
 *   out ...
 *
 * Words are separated by blanks; the fields of a row are those of tdict_tuning_row, in its order, UP_TO of a direction's
 * last row is `max`. The version comes first, rows of a direction in rising order. Thread rule: pure, but for the file. */
#ifndef TDICT_TRANSFER_PLAN_TUNING_FILE_H
#define TDICT_TRANSFER_PLAN_TUNING_FILE_H

#include "transfer/plan/tuning.h"

enum { TDICT_TUNING_VERSION = 1, TDICT_TUNING_MACHINE = 256 };

/* Reads a table. machine: may be NULL; the name's TDICT_TUNING_MACHINE bytes at most, "" when the file has none.
 * TDICT_EIO the file cannot be read; TDICT_EFORMAT with file, line, what was wanted and found. Nothing is written then. */
tdict_status tdict_tuning_read(const char *path, tdict_tuning *out, char *machine, tdict_error *err);
/* Writes a table that was checked, over a file that is there. TDICT_EIO; TDICT_EINVAL the machine's name has a line end or
 * is too long, or the table cannot be used. */
tdict_status tdict_tuning_write(const char *path, const tdict_tuning *tuning, const char *machine, tdict_error *err);

#endif
