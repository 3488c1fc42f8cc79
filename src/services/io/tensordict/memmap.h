/* The memory-mapped directory of TensorDict, which is also the contents of an archive `.tdz`. Thread-safe for different
 * contents. */
#ifndef TDICT_SERVICES_IO_TENSORDICT_MEMMAP_H
#define TDICT_SERVICES_IO_TENSORDICT_MEMMAP_H

#include "services/io/tensordict/tensordict.h"

/* The files of a save: a directory, or an archive. */
typedef struct tdict_td_files {
  /* Finds a file by its path in the save, such as "obs/meta.json". If no file has the path, sets *exists to false. The
   * span is the whole file. */
  tdict_status (*find)(const struct tdict_td_files *files, const char *path, tdict_span *span, bool *exists,
                       tdict_error *err);
  tdict_contents *contents;
  const void *archive; /* for `find`; NULL for a directory */
} tdict_td_files;
/* Reads the files, and adds an item to files->contents for each tree and each leaf. Returns TDICT_EFORMAT if a
 * meta.json breaks a rule, a file is missing, or a file is shorter than its leaf. Returns TDICT_ENOTSUP for pickles and
 * other data that tdict cannot hold. */
tdict_status tdict_td_read_files(const tdict_td_files *files, const tdict_open_options *options, tdict_error *err);
/* Returns the files of a directory. The contents take over the descriptor. */
tdict_td_files tdict_td_folder_files(tdict_contents *contents, int folder);
/* Finds the file `name` in a folder of the save; `folder` is "" or ends with a slash. */
tdict_status tdict_td_find(const tdict_td_files *files, const char *folder, const char *name, tdict_span *span,
                           bool *exists, tdict_error *err);
/* Finds the file of a leaf. Tries the encoded name, and then the key itself, which old versions of TensorDict used as
 * the name. */
tdict_status tdict_td_find_leaf(const tdict_td_files *files, const char *folder, const char *key, tdict_span *span,
                                bool *exists, tdict_error *err);
/* Appends the name of a key's folder, and then a slash. Tries the names as tdict_td_find_leaf() does. */
tdict_status tdict_td_add_folder(const tdict_td_files *files, tdict_io_text *folder, const char *key, tdict_error *err);
/* The meta.json of a folder. The caller initializes it with zeros and closes it. */
typedef struct tdict_td_meta {
  tdict_json_document document;
  char *text;      /* owned */
  tdict_json root; /* a JSON object; absent if the folder has no meta.json */
} tdict_td_meta;
/* Reads the file meta.json of a folder of the save; `folder` is "" or ends with a slash. If the meta.json exists and
 * `file` is not NULL, sets *file to its path, for messages. */
tdict_status tdict_td_read_meta(const tdict_td_files *files, const char *folder, tdict_td_meta *out, const char **file,
                                tdict_error *err);
void tdict_td_close_meta(tdict_td_meta *meta);
/* Checks that a meta.json has a class, and does not have a newer version than this library knows. */
tdict_status tdict_td_check_meta(const tdict_json_place *place, tdict_json meta, tdict_error *err);
/* Returns true if the class of a folder has this name, for example "NonTensorData". */
bool tdict_td_is_class(tdict_json meta, const char *name);

/* A file that is written. */
typedef struct tdict_td_new_file {
  const char *path;           /* in the save */
  const tdict_tensor *tensor; /* borrowed; the file has the elements of this tensor. NULL: the file is a text */
  const char *name;           /* the path of the tensor in the tree, for messages */
  const char *text;
  size_t length;
} tdict_td_new_file;
/* The files of a tree. `contents` owns all texts. */
typedef struct tdict_td_new_files {
  tdict_contents contents;
  tdict_td_new_file *files; /* owned */
  size_t count, cap;
} tdict_td_new_files;
/* Makes the list of files of a tree, in the order of an archive: in each folder meta.json first, then files by name,
 * then folders. Returns TDICT_ENOTSUP if the format cannot hold the tree, and TDICT_ENOMEM. The caller has initialized
 * the contents, and resets `out` also on failure. */
tdict_status tdict_td_collect(tdict_td_new_files *out, const tdict_tree *tree, tdict_error *err);
void tdict_td_new_files_reset(tdict_td_new_files *files);

#endif
