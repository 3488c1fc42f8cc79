/* Declares the in-memory file system: names and inodes. The bytes of a file are in a memfd, so the kernel performs
 * reads, writes, locks and mappings of open files. Only the thread with the token may call these functions. */
#ifndef TDICT_TESTS_DST_FILES_H
#define TDICT_TESTS_DST_FILES_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DST_FOLDER "/dst"
enum { DST_ROOT = 1, DST_DEVICE = 77 };

typedef struct dst_inode {
  int fd; /* the memfd, which is empty for a folder */
  bool is_folder;
  unsigned mode;
  int64_t changed_ns;
  int parent; /* the parent folder, if this is a folder */
  /* the bytes that a crash keeps */
  char *durable;
  size_t durable_bytes;
} dst_inode;

/* A change of one name in a folder: the name gets the inode, or is removed if `inode` is 0. */
typedef struct dst_name_change {
  int folder, inode;
  char name[NAME_MAX + 1];
} dst_name_change;

void dst_tree_start(void);
dst_inode *dst_inode_at(int number);
int dst_inode_create(bool is_folder, unsigned mode, int parent);
/* Returns the inode of a name in a folder, or 0 if the name does not exist. */
int dst_name_find(int folder, const char *name);
/* Returns the next name in a folder, starting at *position, and advances *position. Returns NULL at the end. */
const char *dst_name_at(int folder, size_t *position);
/* Changes one or two names. A crash keeps or loses both changes together. */
void dst_names_change(const dst_name_change *changes, int count);
/* Makes the bytes of a file, or the names of a folder, durable. */
void dst_inode_sync(int number);
/* Called before each file call. Crashes the file system if this is the chosen call. */
void dst_crash_count(void);

#endif
