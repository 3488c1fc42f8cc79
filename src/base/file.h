/* Opens files that the program names. The caller owns what is opened. Thread-safe. */
#ifndef TDICT_BASE_FILE_H
#define TDICT_BASE_FILE_H

#include <stdio.h>

#include "tdict/status.h"

/* Opens a file for reading. The call does not wait for other programs. Only a regular file can be read. The error
 * message begins with `what`. Returns TDICT_EIO with the errno, or TDICT_EFORMAT if the file has another kind. Both
 * errors name the path in the message and in err->path. */
tdict_status tdict_file_open_to_read(const char *what, const char *path, int *fd, tdict_error *err);
/* Opens a stdio stream for reading. Accepts the same files and returns the same errors as tdict_file_open_to_read().
 * The caller closes the stream with fclose(). */
tdict_status tdict_file_stream_to_read(const char *what, const char *path, FILE **out, tdict_error *err);
/* Opens a stdio stream for writing. Creates the file, or empties an existing file. The file must be a regular file or a
 * character device such as /dev/null. Returns the errors of tdict_file_open_to_read(). */
tdict_status tdict_file_stream_to_write(const char *what, const char *path, FILE **out, tdict_error *err);

#endif
