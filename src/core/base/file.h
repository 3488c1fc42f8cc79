/* Opens files that the program names. The caller closes the descriptor or the stream. Thread-safe. */
#ifndef TDICT_CORE_BASE_FILE_H
#define TDICT_CORE_BASE_FILE_H

#include <stdbool.h>
#include <stdio.h>

#include "tdict/status.h"

/* Opens a regular file for reading. If the path names a FIFO, the call does not wait for a writer. The error message
 * begins with `what`. Returns TDICT_EIO and the errno as native code if the file cannot be opened. Returns
 * TDICT_EFORMAT if the file is not a regular file. If the function returns one of these errors, err->path is the path,
 * and the message has the first 150 bytes of the path. */
tdict_status tdict_file_open_to_read(const char *what, const char *path, int *fd, tdict_error *err);
/* Opens a regular file like tdict_file_open_to_read(), relative to `folder`, an open folder or AT_FDCWD. Returns
 * TDICT_EFORMAT for a symbolic link at the end of `name`, unless follows_links. */
tdict_status tdict_file_open_in(const char *what, int folder, const char *name, bool follows_links, int *fd,
                                tdict_error *err);
/* Opens a stdio stream for reading, which the caller closes. Accepts files and fails like tdict_file_open_to_read(). */
tdict_status tdict_file_stream_to_read(const char *what, const char *path, FILE **out, tdict_error *err);
/* Opens a stdio stream for writing to a new or emptied file, or to a character device such as /dev/null. Returns the
 * errors of tdict_file_open_to_read(), but TDICT_EIO for a folder. */
tdict_status tdict_file_stream_to_write(const char *what, const char *path, FILE **out, tdict_error *err);

#endif
