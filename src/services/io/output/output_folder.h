/* Writes directories so that a reader never sees half a directory. The caller owns the structs. Thread rule: used by
 * one thread at a time.
 *
 * A new directory is created under a temporary name, next to its final name. The caller writes the files of the new
 * directory with the functions of output.h. tdict_output_folder_replace() then exchanges the names of the new and the
 * old directory by one system call, and removes the old directory. If the file system cannot exchange names and
 * allows_gap is true, two renames replace the exchange. If a process is killed, a directory with a temporary name can
 * stay, see temporary.h. The next save removes this directory. If no directory has the final name, the next save first
 * gives the old directory its name back.
 *
 *     tdict_output_folder new;
 *     tdict_output_folder_create(&new, request, "meta.json", err);
 *     tdict_output_create(&file, &new.root, "a.memmap", err);       write and close the file
 *     tdict_output_folder_enter(&new.root, "child", &child, err);   write files, tdict_output_folder_leave(&child, err)
 *     on success: tdict_output_folder_replace(&new, err); on failure: tdict_output_folder_discard(&new) */
#ifndef TDICT_SERVICES_IO_OUTPUT_OUTPUT_FOLDER_H
#define TDICT_SERVICES_IO_OUTPUT_OUTPUT_FOLDER_H

#include "services/io/output/output.h"
#include "services/io/request.h"

enum { TDICT_FOLDER_PATH_BYTES = 4096 };

/* The address of the struct must not change, because `parent` points to `target`. */
typedef struct tdict_output_folder {
  tdict_folder root;   /* the new directory, in which the caller creates files; `root.path` is the path of the call */
  tdict_folder parent; /* the folder of both directories */
  bool replaces;       /* a directory has the final name already */
  bool exchanges;      /* the file system can exchange two names */
  char target[TDICT_FOLDER_PATH_BYTES]; /* the path without slashes at the end */
  char name[TDICT_OUTPUT_NAME_BYTES];   /* the temporary name */
} tdict_output_folder;

/* Creates a new directory for request->path. An existing one is replaced only if it is empty or has `mark`, a regular
 * file of each directory of the format. Returns TDICT_EINVAL if the path has no name, and TDICT_EFORMAT if it names a
 * file, or a directory with files but without `mark`. Returns TDICT_ENOTSUP if the name of an old directory cannot be
 * exchanged and the option allows_gap is false. Also returns TDICT_EIO. */
tdict_status tdict_output_folder_create(tdict_output_folder *out, const tdict_save_request *request, const char *mark,
                                        tdict_error *err);
/* Creates and opens a directory in a new one. If it replaces one of the old directory, it gets the permissions. Copies
 * `what`, `path` and `watch` from `in`. Returns TDICT_EEXIST if the name exists, and TDICT_EIO. */
tdict_status tdict_output_folder_enter(const tdict_folder *in, const char *name, tdict_folder *out, tdict_error *err);
/* Writes the names of a directory's files to the disk and closes it. After a failed step, use tdict_folder_close(). */
tdict_status tdict_output_folder_leave(tdict_folder *folder, tdict_error *err);
/* Gives the new directory its final name, and removes the old one, whose symbolic links are not followed. All files
 * must be closed, and all directories below left. Releases `folder` also on failure. After most failures, the old
 * directory has its name again, and the new one is removed. The new one stays if the old one cannot be removed, or if
 * the parent cannot be flushed and the names not be exchanged back. Returns TDICT_EIO or TDICT_ECANCELLED. */
tdict_status tdict_output_folder_replace(tdict_output_folder *folder, tdict_error *err);
/* Closes and removes the new directory with all files. */
void tdict_output_folder_discard(tdict_output_folder *folder);

#endif
