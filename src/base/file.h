/* Opening files that the program names. */
#ifndef TDICT_BASE_FILE_H
#define TDICT_BASE_FILE_H

#include <stdio.h>

#include "tdict/status.h"

/* Opens a file for reading, or creates and empties one for writing. Never waits: opening a FIFO blocks until another
 * program opens its other end. Only a regular file is read; only a regular file or a character device, such as
 * /dev/null, is written. `what` begins the message. TDICT_EIO with the errno, TDICT_EFORMAT for another kind of file;
 * both name the path in the message and in err->path. */
tdict_status tdict_file_open_to_read(const char *what, const char *path, int *fd, tdict_error *err);
/* The same as a stream of stdio; fclose() ends it. */
tdict_status tdict_file_stream_to_read(const char *what, const char *path, FILE **out, tdict_error *err);
tdict_status tdict_file_stream_to_write(const char *what, const char *path, FILE **out, tdict_error *err);

#endif
