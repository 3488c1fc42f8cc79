/* Reads and writes the file formats of the Python package TensorDict 0.15: the memory-mapped directory, the archive
 * `.tdz` and the consolidated file. The archive is a zip file of a memory-mapped directory. Thread-safe for different
 * contents.
 *
 * Marks of tdict. TensorDict ignores some additional members of its JSON texts. The writers use such members for leaves
 * that TensorDict lacks: `"tdict": "ragged"` in the meta.json of a ragged leaf, `"tdict": "unbatched"` in the entry of
 * a leaf without batch dimensions, and the member `size` of a consolidated file. */
#ifndef TDICT_SERVICES_IO_TENSORDICT_TENSORDICT_H
#define TDICT_SERVICES_IO_TENSORDICT_TENSORDICT_H

#include "services/io/contents.h"
#include "services/io/json/read.h"
#include "services/io/request.h"
#include "services/io/text.h"

enum { TDICT_TD_MAX_JSON = 100000000, TDICT_TD_FORMAT_VERSION = 1 };

/* Returns the name of a dtype, such as "torch.float32", or NULL if the formats have no name for the dtype. */
const char *tdict_torch_name(tdict_dtype dtype);
/* Reads a dtype. Returns TDICT_ENOTSUP with the name if tdict does not have the dtype, and TDICT_EFORMAT if `name` is
 * not a string. */
tdict_status tdict_torch_dtype(const tdict_json_place *place, tdict_json name, tdict_dtype *out, tdict_error *err);
/* Appends the name of a key's file or folder: control characters, spaces, % and /<>:"|?*\ become %XX. An empty key
 * becomes "%", and each dot of "." and ".." becomes %2E. */
void tdict_td_add_name(tdict_io_text *text, const char *key);
/* Returns true if a file or folder may have the key itself as its name. Old versions of TensorDict wrote such names. */
bool tdict_td_is_plain_name(const char *key);
/* Appends a JSON string, or an array of sizes, in the same way as Python's module json. */
void tdict_td_add_string(tdict_io_text *text, const char *string);
void tdict_td_add_sizes(tdict_io_text *text, int count, const int64_t *sizes);
/* Appends a JSON value. Writes a text without 0 bytes like tdict_td_add_string(), and other values like
 * tdict_value_to_json(). Returns the results of tdict_value_to_json(). */
tdict_status tdict_td_add_value_json(tdict_io_text *text, const tdict_value *value, const char **why);

/* The state of a reader of one of the formats. `path` is the path of the tree that is read, for example "obs.pixels",
 * escaped unless `flat` is true. */
typedef struct tdict_td_reader {
  tdict_contents *contents;
  const char *file; /* the file that is read, for messages */
  tdict_io_text path;
  bool flat; /* only tensors are added, and the path is the name of the tensor */
  int depth; /* number of trees that are being read */
  struct {
    size_t item;     /* the item of the tree; not used if `flat` is true */
    bool has_column; /* a column of values was read */
  } trees[TDICT_IO_MAX_DEPTH];
} tdict_td_reader;
/* Returns the path in the tree as a place for messages. */
tdict_json_place tdict_td_place(const tdict_td_reader *reader);
/* Adds a key to the path. To remove the key, cut the path to its old length. Returns TDICT_ENOTSUP for an empty key,
 * and TDICT_ENOMEM. */
tdict_status tdict_td_push(tdict_td_reader *reader, const char *key, tdict_error *err);
/* Adds a tree, and enters the tree. tdict_td_leave() leaves the tree. `batch_size` is the JSON array of its sizes, and
 * `name` names the array in messages. If `name` is NULL, the tree has no batch dimensions. Returns TDICT_EFORMAT if
 * there are more than TDICT_IO_MAX_DEPTH trees, and the errors of tdict_json_sizes(). */
tdict_status tdict_td_enter(tdict_td_reader *reader, const char *name, tdict_json batch_size, tdict_error *err);
void tdict_td_leave(tdict_td_reader *reader);
/* Adds a tensor. Sets kind, dtype and span from `tensor`, and copies the shape. */
tdict_status tdict_td_add_tensor(tdict_td_reader *reader, const tdict_item *tensor, const tdict_sizes *shape,
                                 tdict_error *err);
/* Adds one value for the whole tree. */
tdict_status tdict_td_add_value(tdict_td_reader *reader, tdict_json value, tdict_error *err);
/* Adds a list of values. If the sizes of the nested lists begin with the batch size of the tree, the leaf is a column,
 * else one JSON value. */
tdict_status tdict_td_add_column(tdict_td_reader *reader, tdict_json list, tdict_error *err);
/* Adds values in C order, which live as long as the contents: one value for the whole tree if there are no sizes, else
 * a column, whose sizes are the batch size of the tree. */
tdict_status tdict_td_add_values(tdict_td_reader *reader, const tdict_value *values, size_t count,
                                 const tdict_sizes *sizes, tdict_error *err);
/* Adds the values of a NonTensorStack of a consolidated file: a column, or one JSON value as tdict_td_add_column().
 * Returns TDICT_EFORMAT if the node breaks a rule, and TDICT_ENOTSUP if its members have different batch sizes or it
 * has more values than a meta.json of TDICT_TD_MAX_JSON bytes. */
tdict_status tdict_td_add_stack(tdict_td_reader *reader, tdict_json node, tdict_error *err);
/* Removes the batch dimensions `dim` and higher from all trees that are being read, because these trees hold a lazy
 * stack along dimension `dim`. The members of the stack lack this dimension. Returns TDICT_ENOTSUP if a tree that would
 * lose dimensions has a column. */
tdict_status tdict_td_cut_batch(tdict_td_reader *reader, int dim, tdict_error *err);
/* Sets the batch size of a lazy stack, which is the tree that is being read: the first `dim` sizes of item `member`.
 * Returns TDICT_EFORMAT if the item is not a tree or has fewer batch dimensions. */
tdict_status tdict_td_stack_batch(tdict_td_reader *reader, int dim, size_t member, tdict_error *err);
/* Reads a member that must be an integer from 0 to `most`. */
tdict_status tdict_td_read_dim(const tdict_json_place *place, tdict_json value, int most, int *out, tdict_error *err);
/* Returns TDICT_ENOTSUP: the data is a pickle. */
tdict_status tdict_td_fail_pickle(const tdict_td_reader *reader, const char *name, tdict_error *err);

/* Reads a memory-mapped directory. The contents take over the descriptor `folder`, also on failure. */
tdict_status tdict_memmap_read(tdict_contents *contents, int folder, const tdict_open_options *options,
                               tdict_error *err);
/* Returns true if file number `file` ends as a consolidated file. */
bool tdict_consolidated_is(const tdict_contents *contents, size_t file);
/* Reads a consolidated file. */
tdict_status tdict_consolidated_read(tdict_contents *contents, size_t file, const tdict_open_options *options,
                                     tdict_error *err);

/* The writers of the formats. */
tdict_status tdict_memmap_save(const tdict_save_request *request, tdict_error *err);
tdict_status tdict_consolidated_save(const tdict_save_request *request, tdict_error *err);

#endif
