/* Appends rows to a memory-mapped directory of TensorDict. Thread-safe for different directories.
 *
 * The steps and their order are those of append_memmap() of TensorDict 0.15. First, the rows are written after the
 * saved elements of each file. Then each folder gets a file `.meta.json.append.tmp`, the root first. Then each of these
 * temporary files replaces the meta.json of its folder, the root first.
 *
 * Readers ignore the bytes of a file that follow the elements of the saved shape. A process that was killed during an
 * append therefore leaves one of two states. If the root still has its `.meta.json.append.tmp`, no meta.json was
 * replaced. To undo the append, remove the temporary files, the file of the root last. If the root has no
 * `.meta.json.append.tmp`, the remaining temporary files are complete. To complete the append, replace each
 * meta.json. */
#ifndef TDICT_SERVICES_IO_TENSORDICT_APPEND_H
#define TDICT_SERVICES_IO_TENSORDICT_APPEND_H

#include "services/io/tensordict/memmap.h"

/* Rows that are written at the end of the elements of a leaf. */
typedef struct tdict_td_grown {
  const char *path;         /* path of the file below the root */
  const char *name;         /* path of the leaf in the tree, for messages */
  const tdict_tensor *rows; /* in host memory; borrowed */
  uint64_t offset;          /* number of bytes of the saved elements */
  uint64_t old_bytes;       /* the size of the file before the append */
  bool is_new, is_changed;  /* is_new: the file did not exist; is_changed: the file was opened for writing */
} tdict_td_grown;
/* A meta.json that is replaced. */
typedef struct tdict_td_new_meta {
  const char *folder; /* "" or ends with a slash */
  const char *text, *old_text;
  size_t length, old_length;
} tdict_td_new_meta;
/* The changes of an append. `contents` owns all texts, and has the root folder. */
typedef struct tdict_td_append {
  tdict_contents contents;
  tdict_td_grown *leaves; /* owned */
  size_t num_leaves, cap_leaves;
  tdict_td_new_meta *metas; /* owned; the root is first */
  size_t num_metas, cap_metas;
  bool flushes; /* true: wait until the bytes are on the disk */
} tdict_td_append;

/* Ends or undoes an interrupted append. contents->root is the descriptor of the directory. Returns TDICT_EIO. */
tdict_status tdict_td_recover(const tdict_contents *contents, tdict_error *err);
/* Writes the rows, and replaces each meta.json. A failure undoes all changes, or says that it could not. */
tdict_status tdict_td_append_write(tdict_td_append *append, tdict_error *err);

#endif
