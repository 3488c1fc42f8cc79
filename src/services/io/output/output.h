/* Writes files so that a reader never sees half a file. The caller owns the structs. Thread rule: used by one thread at
 * a time.
 *
 * A new file is created under a temporary name (temporary.h). tdict_output_replace() writes the bytes to the disk, and
 * gives the file its final name by one rename(), which replaces an old file. If a process is killed before the rename,
 * the new file stays under its temporary name, and the old file is unchanged. The next save removes the new file. All
 * functions that return a status return TDICT_EIO with the errno. */
#ifndef TDICT_SERVICES_IO_OUTPUT_OUTPUT_H
#define TDICT_SERVICES_IO_OUTPUT_OUTPUT_H

#include <sys/types.h>

#include "services/io/output/temporary.h"
#include "services/io/progress.h"
#include "tdict/io.h"

struct tdict_save_request;

/* The permissions of a file or directory that is replaced. A new file that replaces a file may only be used by its
 * owner until tdict_access_give(), so its permissions are never wider than those of the old file. */
typedef struct tdict_access {
  bool exists; /* false: nothing is replaced */
  mode_t mode;
  uid_t owner;
  gid_t group;
} tdict_access;
/* Returns the permissions of the regular file `name`, or exists == false if there is no such file. The set-user-ID and
 * set-group-ID bits are left out, because the system also removes them from a file that is written. */
tdict_access tdict_access_of_file(int folder, const char *name);
/* Gives an open file the permissions and group of an old file, if there is one, and its owner if this process may. If
 * the group cannot be set, the group and all others get only the permissions that both had. Returns the errno, or 0. */
int tdict_access_give(const tdict_access *old, int fd);

/* The folder of a file that is to be written. */
typedef struct tdict_folder {
  const char *what, *path; /* the name of the public call and the path that the program gave, for messages; borrowed */
  const char *name;        /* the last part of the path; borrowed */
  int fd;
  tdict_access old;       /* of the regular file at the path, or of the directory that this directory replaces */
  int old_fd;             /* the directory that this directory replaces; -1: none */
  tdict_save_watch watch; /* tdict_folder_open() sets no members */
} tdict_folder;
/* Opens the folder of a path, and removes what killed processes have left for it. Returns TDICT_EINVAL if the last name
 * is empty, "." or "..", and TDICT_EFORMAT if the path names something other than a regular file or a symbolic link. */
tdict_status tdict_folder_open(tdict_folder *folder, const char *what, const char *path,
                               tdict_temporary_remover remove_more, tdict_error *err);
/* Opens the folder of a path like tdict_folder_open(), but ignores what is at the path now. Leaves all files alone. */
tdict_status tdict_folder_open_parent(tdict_folder *folder, const char *what, const char *path, tdict_error *err);
/* Returns TDICT_EIO, such as "save: the file cannot be renamed: <text of code>" for "file" and "renamed". */
tdict_status tdict_folder_fail(const tdict_folder *folder, const char *noun, const char *verb, int code,
                               tdict_error *err);
/* Waits until the names of files in the folder are on the disk, if the file system can flush folders. */
tdict_status tdict_folder_flush(const tdict_folder *folder, tdict_error *err);
void tdict_folder_close(tdict_folder *folder);

typedef struct tdict_output {
  const tdict_folder *folder;
  tdict_temporary file; /* `fd` is -1 if the file is closed */
  uint64_t offset;
  tdict_access old; /* of the file that is replaced */
  bool is_whole;    /* the bytes are on the disk, and the file has its name: tdict_output_end() keeps the file */
} tdict_output;
tdict_status tdict_output_create_temporary(tdict_output *out, const tdict_folder *folder, tdict_error *err);
/* Creates a file with the name `name`. In a new directory, the file replaces the file with this name in the old
 * directory; elsewhere, it replaces the file at the path. If a file has this name already, returns TDICT_EEXIST. */
tdict_status tdict_output_create(tdict_output *out, const tdict_folder *folder, const char *name, tdict_error *err);
/* Appends bytes. Also returns TDICT_ECANCELLED. */
tdict_status tdict_output_write(tdict_output *out, const void *data, size_t bytes, tdict_error *err);
/* Writes bytes at `offset` like tdict_output_write(). Several threads may call this function for one file. */
tdict_status tdict_output_write_at(const tdict_output *out, uint64_t offset, const void *data, size_t bytes,
                                   tdict_error *err);
/* Appends the elements of a host tensor in C order. `name` names the tensor in messages. Returns TDICT_EINVAL if a
 * transfer into the tensor failed, TDICT_ENOMEM, and the errors of tdict_output_write(). */
tdict_status tdict_output_write_tensor(tdict_output *out, const tdict_tensor *tensor, const char *name,
                                       tdict_error *err);
typedef struct tdict_output_part {
  const tdict_tensor *tensor; /* on any device; borrowed */
  const char *name;           /* for messages; borrowed */
  uint64_t offset;            /* offset of the first element in the file */
} tdict_output_part;
/* Writes the elements of tensors in C order. Later calls of tdict_output_write() continue at the end of the last part.
 * Threads of request->context copy device tensors into the staging ring and write the slots in parallel, so a tensor
 * needs no other host memory. Without a context, the calling thread writes, and all tensors must be in host memory.
 * Returns the errors of tdict_output_write_tensor() and of transfers. */
tdict_status tdict_output_write_parts(tdict_output *out, const struct tdict_save_request *request,
                                      const tdict_output_part *parts, size_t count, tdict_error *err);
/* Waits until the bytes are on the disk, and closes a file that needs no rename. */
tdict_status tdict_output_close(tdict_output *out, tdict_error *err);
/* Writes the bytes to the disk, renames the file from its temporary name to folder->name, and waits until the new name
 * is on the disk. Also returns TDICT_ECANCELLED. If only the last step fails, the file is whole. */
tdict_status tdict_output_replace(tdict_output *out, tdict_error *err);
/* Closes the file, and removes the file if it is not whole. Call for each file that was created. */
void tdict_output_end(tdict_output *out);
/* Returns TDICT_ECANCELLED if the save was cancelled. tdict_folder_ask() also asks the function `progress`. */
tdict_status tdict_folder_ask(const tdict_folder *folder, tdict_error *err);
tdict_status tdict_folder_check_cancelled(const tdict_folder *folder, tdict_error *err);
/* Writes a new file with `write`, and gives the file the name request->path. On failure, an old file at the path is
 * unchanged, and the new file is removed. Exception: if the folder cannot be flushed after the rename, the call returns
 * TDICT_EIO, and the new file is in place. Returns the errors of `write` and of the functions above. */
typedef tdict_status (*tdict_output_writer)(void *user, tdict_output *to, tdict_error *err);
tdict_status tdict_output_file(const struct tdict_save_request *request, tdict_temporary_remover remove_more,
                               tdict_output_writer write, void *user, tdict_error *err);

#endif
