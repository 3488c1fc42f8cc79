/* Reads and writes tuning tables as text. The caller owns all data. A file has comments, a version, the machine's
 * name, and one row on each line:
 *
 *   # anything
 *   tdict-tuning 1
 *   machine NAME
 *   in  UP_TO CHUNK FIRST WORKERS SLOTS STREAMING CALLER SPIN_US
 *   out ...
 *
 * Blanks separate words. A row has the fields of tdict_tuning_row in the same order. UP_TO is `max` in the last row
 * of a direction. The version comes first, and the rows of a direction are in rising order.
 * Thread rule: safe from any thread, with one writer for each file. */
#ifndef TDICT_TRANSFER_PLAN_TUNING_FILE_H
#define TDICT_TRANSFER_PLAN_TUNING_FILE_H

#include "transfer/plan/tuning.h"

enum { TDICT_TUNING_VERSION = 1, TDICT_TUNING_MACHINE = 256 };

/* Reads a table. machine: NULL, or receives at most TDICT_TUNING_MACHINE bytes, "" if the file names no machine.
 * TDICT_EIO the file cannot be read; TDICT_EFORMAT the file has a wrong format; the message names the file, the line,
 * and the wanted and found text.
 * Writes nothing on failure. */
tdict_status tdict_tuning_read(const char *path, tdict_tuning *out, char *machine, tdict_error *err);
/* Writes a table to a file. An existing file is replaced. TDICT_EIO the file cannot be written; TDICT_EINVAL the
 * machine's name has a line end or is too long, or the table is invalid. */
tdict_status tdict_tuning_write(const char *path, const tdict_tuning *tuning, const char *machine, tdict_error *err);

#endif
