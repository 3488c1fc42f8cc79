/* Temporary files and directories, which are written next to the path of a save and then renamed. Thread-safe.
 *
 * A temporary name is ".BASE.<16 hexadecimal digits>.tmp". BASE is the last name of the path. If the temporary name
 * would be too long, the end of BASE is replaced by a hash. The process that writes holds a shared lock, flock(), until
 * the file has its final name. If the process is killed, the lock is free, and the next save of the path removes what
 * is left. For a short time a new file is not locked yet, so another save can remove it: the creating function finds
 * that the name is gone, and creates another file. */
#ifndef TDICT_SERVICES_IO_OUTPUT_TEMPORARY_H
#define TDICT_SERVICES_IO_OUTPUT_TEMPORARY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { TDICT_OUTPUT_NAME_BYTES = 256 };

/* A temporary file or directory. The caller closes `fd` after the rename, because closing releases the lock. */
typedef struct tdict_temporary {
  int fd;
  uint64_t unique; /* the digits in the name */
  char name[TDICT_OUTPUT_NAME_BYTES];
} tdict_temporary;

/* Creates and locks an empty file or directory in a folder, for the path whose last name is `base`. If the file system
 * has no locks, the name ends with ".unlocked.tmp", and no save removes the file. Returns the errno, or 0. */
int tdict_temporary_create(tdict_temporary *out, int folder, const char *base, bool is_directory, mode_t mode);
/* Writes the name under which a directory waits while another directory gets its name: ".BASE.<16 digits>.old". Until
 * the other directory has the name, the caller holds tdict_temporary_lock(). */
void tdict_temporary_name_old(char name[TDICT_OUTPUT_NAME_BYTES], const char *base);
/* Keeps tdict_temporary_clean() away from an open file until `fd` is closed. Returns the errno, or 0. */
int tdict_temporary_lock(int fd);

/* Removes the files that belong to a temporary file. */
typedef void (*tdict_temporary_remover)(int folder, const char *base, uint64_t unique);
/* Removes the files that killed processes have left for the path whose last name is `base`. Before each file, calls
 * `remove_more`, which may be NULL. Moves a directory that ends in ".old" back to `base` if nothing has this name.
 * Leaves alone files that cannot be locked or removed. Also leaves alone all files on file systems of several machines,
 * where only one machine may know a lock. */
void tdict_temporary_clean(int folder, const char *base, tdict_temporary_remover remove_more);

/* Removes a file, a link or a directory with its files. Never follows a link, and makes directories writable if
 * necessary. A missing file is no error. Returns the errno, or 0. */
int tdict_entry_remove(int folder, const char *name);
/* Calls `visit` for each name in a folder except "." and "..", until it returns an errno. Returns the errno, or 0. */
typedef int (*tdict_name_visitor)(void *user, int folder, const char *name);
int tdict_names_visit(int folder, tdict_name_visitor visit, void *user);

#endif
