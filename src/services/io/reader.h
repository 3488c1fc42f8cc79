/* Builds the list of items of a file that describes a tree: keeps the path of the tree that is read, and adds trees,
 * tensors and values. The readers of TensorDict's formats and of the entry of safetensors files use this reader. The
 * caller owns the reader. Thread rule: used by one thread at a time. */
#ifndef TDICT_SERVICES_IO_READER_H
#define TDICT_SERVICES_IO_READER_H

#include "services/io/json/read.h"

/* `path` is the path of the tree that is read, escaped unless `flat` is true. The struct must not move. */
typedef struct tdict_reader {
  tdict_contents *contents;
  tdict_json_place place; /* the path in the file that is read, for messages */
  tdict_io_text path;     /* the caller resets the text */
  bool flat;              /* only tensors are added, and the path is the name of the tensor */
  int depth;              /* number of trees that are being read */
  struct {
    size_t item;     /* the item of the tree; not used if `flat` is true */
    bool has_column; /* a column of values was read */
  } trees[TDICT_IO_MAX_DEPTH];
} tdict_reader;
void tdict_reader_init(tdict_reader *reader, tdict_contents *contents, const char *file, bool flat);
/* Adds a key to the path. To remove it, cut the path to its old length. Returns TDICT_ENOTSUP for an empty key, and
 * TDICT_ENOMEM. */
tdict_status tdict_reader_push(tdict_reader *reader, const char *key, tdict_error *err);
/* Adds a tree, and enters it. Its sizes are the JSON array `batch_size`, which messages call `name`; NULL: no batch
 * dimensions. Returns TDICT_EFORMAT for more than TDICT_IO_MAX_DEPTH trees, and errors of tdict_json_sizes(). */
tdict_status tdict_reader_enter(tdict_reader *reader, const char *name, tdict_json batch_size, tdict_error *err);
void tdict_reader_leave(tdict_reader *reader);
/* Adds an item with the current path. Its shape must live as long as the contents. */
tdict_status tdict_reader_add(tdict_reader *reader, tdict_item *item, tdict_error *err);
/* Adds an item with the current path and a copy of the shape. */
tdict_status tdict_reader_add_shaped(tdict_reader *reader, tdict_item *item, const tdict_sizes *shape,
                                     tdict_error *err);
tdict_status tdict_reader_add_value(tdict_reader *reader, tdict_json value, tdict_error *err);
/* Adds a list of values: a column if its nested sizes begin with the tree's batch size, else one JSON value. */
tdict_status tdict_reader_add_column(tdict_reader *reader, tdict_json list, tdict_error *err);
/* Adds values in C order, which live as long as the contents: a column, or one value of the tree without sizes. */
tdict_status tdict_reader_add_values(tdict_reader *reader, const tdict_value *values, size_t count,
                                     const tdict_sizes *sizes, tdict_error *err);
/* Enters a lazy stack along dimension `value`, which is written to *dim. The members of the stack lack this dimension,
 * so all trees that are being read lose it and higher ones. Returns TDICT_ENOTSUP if such a tree has a column. */
tdict_status tdict_reader_enter_stack(tdict_reader *reader, tdict_json value, int *dim, tdict_error *err);
/* Sets the batch size of a lazy stack, which is the tree that is being read: the first `dim` sizes of item `member`.
 * Returns TDICT_EFORMAT if the item is no tree or has fewer batch dimensions. */
tdict_status tdict_reader_stack_batch(tdict_reader *reader, int dim, size_t member, tdict_error *err);
/* Reads a member that must be an integer from 0 to `most`. */
tdict_status tdict_reader_read_dim(const tdict_reader *reader, tdict_json value, int most, int *out, tdict_error *err);
/* Returns TDICT_ENOTSUP: the data is a pickle. */
tdict_status tdict_reader_fail_pickle(const tdict_reader *reader, const char *name, tdict_error *err);

#endif
