/* Opens files and folders below an open folder. A path below a folder consists of names that are separated by slashes.
 * No name may be a symbolic link, empty, "." or "..", so no path leaves the folder. The caller owns the descriptors.
 * Thread-safe. */
#ifndef TDICT_IO_BELOW_H
#define TDICT_IO_BELOW_H

#include "tdict/status.h"

/* Opens a regular file for reading. Returns the errors of tdict_file_open_in(). Returns TDICT_EFORMAT also for a path
 * that breaks the rules above. If the file or one of its folders does not exist, returns TDICT_EIO with ENOENT. */
tdict_status tdict_below_open(const char *what, int root, const char *path, int *fd, tdict_error *err);
/* Opens a folder. An empty path is the folder `root`. Returns the errors of tdict_below_open(). */
tdict_status tdict_below_open_folder(const char *what, int root, const char *path, int *fd, tdict_error *err);

#endif
