/* Opens files and folders below an open folder. The names of a path, separated by slashes, are no symbolic links, nor
 * empty, "." or "..", so no path leaves the folder. The caller owns the descriptors. Thread-safe. */
#ifndef TDICT_SERVICES_IO_CONTENTS_BELOW_H
#define TDICT_SERVICES_IO_CONTENTS_BELOW_H

#include <stdbool.h>
#include <sys/types.h>

#include "tdict/status.h"

/* Returns true if a file in a folder may have this name: a path that is one name. */
bool tdict_below_is_name(const char *name);
/* Opens a regular file for reading. Returns the errors of tdict_file_open_in(). Returns TDICT_EFORMAT also for a path
 * that breaks the rules above. If the file or one of its folders does not exist, returns TDICT_EIO with ENOENT. */
tdict_status tdict_below_open(const char *what, int root, const char *path, int *fd, tdict_error *err);
/* Opens a folder. An empty path is the folder `root`. Returns the errors of tdict_below_open(). */
tdict_status tdict_below_open_folder(const char *what, int root, const char *path, int *fd, tdict_error *err);
/* A file in a folder that is opened several times. */
typedef struct tdict_below_file {
  const char *name;   /* the path below the folder */
  bool is_shard;      /* true: `name` is a file name, and the members below are set */
  bool follows_links; /* opens the shard if it is a symbolic link */
  dev_t device;       /* of the file when it was opened first */
  ino_t inode;
} tdict_below_file;
/* Opens a shard, or the model of a folder. For a symbolic link, the message of the error names `follows_links`. */
tdict_status tdict_below_open_shard(const char *what, int folder, const char *name, bool follows_links, int *fd,
                                    tdict_error *err);
/* Opens the file again. Returns TDICT_EIO if another file now has the name of a shard. Other errors: as opening it. */
tdict_status tdict_below_reopen(const char *what, int root, const tdict_below_file *file, int *fd, tdict_error *err);

#endif
