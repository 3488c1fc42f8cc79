/* The memory-mapped directory of TensorDict, also the contents of a `.tdz`. Thread-safe for different contents. */
#ifndef TDICT_SERVICES_IO_TENSORDICT_MEMMAP_H
#define TDICT_SERVICES_IO_TENSORDICT_MEMMAP_H

#include "services/io/listing.h"
#include "services/io/tensordict/tensordict.h"

/* Finds a whole file by its path in a directory or an archive, such as "obs/meta.json", or sets *exists to false. */
typedef tdict_status (*tdict_td_finder)(tdict_contents *contents, const void *archive, const char *path,
                                        tdict_span *span, bool *exists, tdict_error *err);
/* The state of a reader of a save. `folder` is the path of the folder: "", or a path that ends with a slash. */
typedef struct tdict_td_reader {
  tdict_reader base;
  tdict_td_finder find;
  const void *archive; /* for `find`; NULL for a directory */
  tdict_io_text folder;
} tdict_td_reader;
/* Begins at the root. If `find` is NULL, reads the directory contents->root. */
void tdict_td_reader_init(tdict_td_reader *reader, tdict_contents *contents, tdict_td_finder find, const void *archive);
void tdict_td_reader_reset(tdict_td_reader *reader);
const char *tdict_td_folder(const tdict_td_reader *reader);
/* Adds an item for each tree and each leaf. Returns TDICT_EFORMAT if a meta.json breaks a rule, or a file is missing or
 * too short, and TDICT_ENOTSUP for pickles and other data that tdict cannot hold. */
tdict_status tdict_td_read_files(tdict_contents *contents, tdict_td_finder find, const void *archive,
                                 const tdict_open_options *options, tdict_error *err);
/* Finds the file of a leaf by the encoded name, and then by the key itself, as old versions of TensorDict wrote it. */
tdict_status tdict_td_find_leaf(tdict_td_reader *reader, const char *key, tdict_span *span, bool *exists,
                                tdict_error *err);
/* Enters the folder of a key. Tries the names as tdict_td_find_leaf() does. To leave the folder, cut the text. */
tdict_status tdict_td_enter_folder(tdict_td_reader *reader, const char *key, tdict_error *err);
/* Reads the folder's meta.json, if any, and sets the file for messages. The caller zeroes *out, and closes it. */
tdict_status tdict_td_read_meta(tdict_td_reader *reader, tdict_json_document *out, tdict_error *err);
/* Checks that a meta.json has a class, and does not have a newer version than this library knows. */
tdict_status tdict_td_check_meta(const tdict_json_place *place, tdict_json meta, tdict_error *err);
/* Returns true if the class of a folder has this name, for example "NonTensorData". */
bool tdict_td_is_class(tdict_json meta, const char *name);

typedef struct tdict_td_new_files {
  tdict_listing list;   /* owns all texts */
  tdict_zip_new *files; /* owned; their names are paths in the save. A file has a text or a tensor */
  size_t count, cap;
} tdict_td_new_files;
/* Makes the list of files of a tree, in the order of an archive: in each folder meta.json first, then files by name,
 * then folders. Returns the errors of tdict_listing_make(). The caller resets `out` also on failure. */
tdict_status tdict_td_collect(tdict_td_new_files *out, const tdict_save_request *request, tdict_error *err);
void tdict_td_new_files_reset(tdict_td_new_files *files);

#endif
