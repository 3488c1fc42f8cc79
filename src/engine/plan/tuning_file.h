/* Reads and writes tuning tables as text. The caller owns all data. A file has comments, a version, the machine's
 * name, and one row on each line:
 *
 *   # anything
 *   tdict-tuning 1
 *   machine NAME
 *   in  UP_TO CHUNK FIRST WORKERS SLOTS STREAMING CALLER SPIN_US
 *   out ...
 *   out_new ...
 *   host ...
 *
 * Blanks separate words. A row has the fields of tdict_tuning_row in the same order. UP_TO is `max` in the last row
 * of a direction. The version comes first, and the rows of a direction are in rising order. If a file has no rows of
 * `out_new` or `host`, tdict_tuning_read() uses the built-in rows of this direction.
 * Thread rule: safe from any thread, with one writer for each file. */
#ifndef TDICT_ENGINE_PLAN_TUNING_FILE_H
#define TDICT_ENGINE_PLAN_TUNING_FILE_H

#include "engine/plan/tuning.h"

enum { TDICT_TUNING_VERSION = 1, TDICT_TUNING_MACHINE = 256 };

/* Reads a table from a file. If `machine` is not NULL, writes the machine's name to `machine`, a buffer of
 * TDICT_TUNING_MACHINE bytes. The name is empty if the file names no machine. Returns TDICT_EIO if the file cannot be
 * read. Returns TDICT_EFORMAT if the path is not a regular file. Also returns TDICT_EFORMAT if the text is wrong; in
 * this case, the message names the file, the line, and what is wrong. Writes nothing on failure. */
tdict_status tdict_tuning_read(const char *path, tdict_tuning *out, char *machine, tdict_error *err);
/* Writes a table to a file. Overwrites an existing file. Returns TDICT_EIO if the path is a folder, or if the file
 * cannot be written. Returns TDICT_EFORMAT if the path is another file that is neither regular nor a character device.
 * Returns TDICT_EINVAL if the table is invalid, or if the machine's name contains a line end or has 256 bytes or
 * more. */
tdict_status tdict_tuning_write(const char *path, const tdict_tuning *tuning, const char *machine, tdict_error *err);

#endif
