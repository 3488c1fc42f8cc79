/* Describes the contents of opened files, independently of their format.
 *
 * A reader of a format opens the files and adds an item for each leaf. If the format describes trees, the reader also
 * adds an item for each tree. An item has the path of the leaf, and the bytes of the leaf as a span of a file.
 * tdict_contents_map() or tdict_contents_unload() then makes tensors, and tdict_contents_build() their tree.
 *
 * The struct owns the descriptors, the items and all texts and sizes that the items point to. Thread rule: used by one
 * thread at a time; several threads may read the items and the files.
 *
 * Errors of all functions: TDICT_ENOMEM; TDICT_EIO for a file that cannot be opened or read, or that was removed or
 * shortened in between. */
#ifndef TDICT_SERVICES_IO_CONTENTS_CONTENTS_H
#define TDICT_SERVICES_IO_CONTENTS_CONTENTS_H

#include "services/io/contents/below.h"
#include "services/io/progress.h"
#include "tdict/io.h"
#include "tdict/nontensor.h"

/* Keeps large local variables of a function off each level of a recursion. A thread of musl has 128 KiB of stack. */
#define TDICT_NOINLINE __attribute__((noinline))

enum { TDICT_IO_MAX_DEPTH = 128 }; /* maximum number of nested trees in a file, and of keys in a name */

struct tdict_output;

typedef enum tdict_item_kind {
  TDICT_ITEM_TREE,           /* a tree; comes before the items below the tree. The path of the root is "" */
  TDICT_ITEM_TENSOR,         /* a tensor */
  TDICT_ITEM_UNBATCHED,      /* the tensor of a leaf without batch dimensions */
  TDICT_ITEM_RAGGED_VALUES,  /* the values of a ragged leaf; the next item has the offsets, with the same path */
  TDICT_ITEM_RAGGED_OFFSETS, /* the offsets of a ragged leaf */
  TDICT_ITEM_VALUES          /* one value for the whole tree, or a column of values */
} tdict_item_kind;

typedef struct tdict_span {
  size_t file; /* index in `files` */
  uint64_t offset, bytes;
} tdict_span;

typedef struct tdict_item {
  tdict_item_kind kind;
  /* The escaped path in the tree. A reader that knows only the names of tensors sets the names instead: see
   * tdict_contents_nest(). */
  const char *path;
  tdict_dtype dtype;         /* of a tensor */
  int32_t ndim;              /* number of sizes in `shape` */
  const int64_t *shape;      /* shape of a tensor, batch size of a tree, or shape of a column of values */
  tdict_span span;           /* the elements of a tensor, in C order unless `is_fortran` is true */
  bool is_swapped;           /* the numbers are big-endian; see tdict_item_read() */
  bool is_fortran;           /* the elements are in Fortran order: the first index changes fastest */
  const tdict_value *values; /* for TDICT_ITEM_VALUES: one value, or the values of a column in C order */
  size_t num_values;
} tdict_item;
static inline bool tdict_item_has_tensor(const tdict_item *item) {
  return item->kind != TDICT_ITEM_TREE && item->kind != TDICT_ITEM_VALUES;
}
/* Orders pointers to items of one file by their spans, for tdict_array_sorted(). */
int tdict_item_compare_spans(const void *a, const void *b);

typedef struct tdict_source_file {
  const char *path; /* for messages */
  /* -1: not open yet, see tdict_contents_open_file(), or moved to a storage, see tdict_contents_unload() */
  int fd;
  tdict_below_file below; /* a file below contents->root that is opened when needed; the name is NULL for other files */
  uint64_t bytes;         /* size of the file when the file was added */
} tdict_source_file;

/* An entry of the metadata of a safetensors file. */
typedef struct tdict_metadata_entry {
  const char *key, *value;
  size_t length; /* of the value */
} tdict_metadata_entry;

typedef struct tdict_contents {
  const char *what; /* the name of the public call, for messages; static */
  const char *path; /* the path that the program gave; borrowed */
  int root;         /* descriptor of the folder of the files that are opened when needed; owned; -1: none */
  tdict_source_file *files;
  size_t num_files, cap_files;
  tdict_item *items;
  size_t num_items, cap_items;
  tdict_tensor **leaves; /* owned; leaves[i] is the tensor of item i, or NULL. NULL: no tensors yet */
  size_t num_leaves;
  tdict_metadata_entry *metadata; /* without TensorDict's entry */
  size_t num_metadata, cap_metadata;
  bool has_metadata;                   /* the format holds metadata */
  size_t num_unnamed;                  /* tensors of shards that the index does not name, and that are left out */
  struct tdict_contents_block *blocks; /* memory of texts, sizes and values */
} tdict_contents;

void tdict_contents_init(tdict_contents *contents, const char *what, const char *path);
/* Closes the files and frees the items. */
void tdict_contents_close(tdict_contents *contents);

/* Allocates memory that lives as long as the contents. */
tdict_status tdict_contents_alloc(tdict_contents *contents, size_t bytes, void **out, tdict_error *err);
/* Copies a text and adds a 0 byte. */
tdict_status tdict_contents_copy_text(tdict_contents *contents, const char *text, size_t length, const char **out,
                                      tdict_error *err);
/* Makes a text as printf() does. */
tdict_status tdict_contents_format(tdict_contents *contents, const char **out, tdict_error *err, const char *format,
                                   ...) TDICT_PRINTF(4, 5);
/* Copies the sizes to the contents, and sets the shape of an item. */
tdict_status tdict_contents_set_shape(tdict_contents *contents, tdict_item *item, int ndim, const int64_t *sizes,
                                      tdict_error *err);
/* Adds a file. Takes over the descriptor, also on failure. Copies `path`. */
tdict_status tdict_contents_add_file(tdict_contents *contents, int fd, const char *path, tdict_error *err);
/* Adds a file below contents->root, and closes the file again, so that a folder of many files needs few descriptors.
 * Copies `below`. Returns the errors of tdict_below_open(), with the whole path in err->path. */
tdict_status tdict_contents_add_below(tdict_contents *contents, const char *below, tdict_error *err);
/* Adds a shard, which is in the folder contents->root. `path` is its path for messages. Copies both texts. The
 * descriptor stays open until tdict_contents_rest(). Returns the errors of tdict_below_open_shard(). */
tdict_status tdict_contents_add_shard(tdict_contents *contents, const char *name, const char *path, bool follows_links,
                                      tdict_error *err);
/* Closes the shard that was added last if many are open; it is opened again when needed. So an index can have more
 * shards than a process may open files. */
void tdict_contents_rest(tdict_contents *contents);
/* Returns a descriptor of file number `file`. The caller passes the descriptor to tdict_contents_close_file(). Several
 * threads may call the function for the same contents. Returns the errors of tdict_below_open(). */
tdict_status tdict_contents_open_file(const tdict_contents *contents, size_t file, int *fd, tdict_error *err);
void tdict_contents_close_file(const tdict_contents *contents, size_t file, int fd);
/* Adds an item. The pointers of the item must live as long as the contents. */
tdict_status tdict_contents_add(tdict_contents *contents, const tdict_item *item, tdict_error *err);
/* Adds an entry of the metadata. The texts of the entry must live as long as the contents. */
tdict_status tdict_contents_add_metadata(tdict_contents *contents, const tdict_metadata_entry *entry, tdict_error *err);
/* Makes a tree of the metadata, with a text for each entry, or sets *out to NULL if the format holds no metadata. If a
 * key is in several files, takes the first entry. Leaves out an entry with an empty key. */
tdict_status tdict_contents_metadata(tdict_contents *contents, tdict_tree **out, tdict_error *err);
/* Reads bytes of a file into memory. */
tdict_status tdict_contents_read(const tdict_contents *contents, tdict_span span, void *to, tdict_error *err);

/* Turns the names of tensors into paths: each dot in a name separates two keys. A name becomes one key if a key between
 * the dots would be empty, if the path would lead through a tensor, or if the path would have more than
 * TDICT_IO_MAX_DEPTH keys. Returns TDICT_EFORMAT for an empty name. */
tdict_status tdict_contents_nest(tdict_contents *contents, tdict_error *err);
/* Copies and checks the program's options for the public call `what`. Returns TDICT_EINVAL and TDICT_ENOTSUP. */
tdict_status tdict_contents_options(const char *what, const tdict_open_options *given, tdict_open_options *out,
                                    tdict_error *err);
/* Drops the items that `options` does not select, and renames the others; with the option `flat`, paths are names, and
 * become single keys. Returns TDICT_ENOTFOUND, with similar keys, if a selected key or `strip_prefix` matches nothing,
 * TDICT_EINVAL for a selected NULL, and TDICT_EFORMAT if a new name is empty. */
tdict_status tdict_contents_arrange(tdict_contents *contents, const tdict_open_options *options, tdict_error *err);
/* Narrows the spans and shapes of all items to rows of dimension 0, as tdict_load_options says. `count` -1 stands for
 * all rows from `first`. The narrowed offsets of a ragged leaf need not begin with 0, so the reader of the offsets must
 * subtract the first offset from all offsets. Returns TDICT_EINVAL if the rows are not inside the tree. Returns
 * TDICT_ESHAPE if no leaf has rows, a tensor has no dimensions, or the leaves have different numbers of rows. Returns
 * TDICT_ENOTSUP for a tensor in Fortran order, and TDICT_EFORMAT if offsets are wrong. */
tdict_status tdict_contents_select_rows(tdict_contents *contents, int64_t first, int64_t count, tdict_error *err);

/* Returns true if the bytes of the file are the elements in C order and little-endian. */
static inline bool tdict_item_is_plain(const tdict_item *item) { return !item->is_swapped && !item->is_fortran; }
/* Reads the elements of a tensor into memory, in C order and little-endian. */
tdict_status tdict_item_read(const tdict_contents *contents, const tdict_item *item, void *to, tdict_error *err);
/* Makes read-only tensors over mapped files. Each tensor of a file holds a reference to the mapping of the file, and
 * the last release unmaps the file. A tensor is read into host memory instead if its address would not be a multiple of
 * the size of its numbers, or if tdict_item_is_plain() is false. */
tdict_status tdict_contents_map(tdict_contents *contents, tdict_error *err);
/* Makes tensors whose elements are read when a transfer copies them. The tensors of a file share one unloaded storage
 * (core/memory/storage.h), which owns the descriptor, or in a directory opens the file for each read. Tensors that are
 * read early are in host memory. With `has_row_range`, the first offset is subtracted from the narrowed offsets.
 * `progress` may be NULL. Returns TDICT_EOVERFLOW. */
tdict_status tdict_contents_unload(tdict_contents *contents, tdict_io_progress *progress, bool has_row_range,
                                   tdict_error *err);
/* Makes room for the tensors, for the two functions above. */
tdict_status tdict_contents_add_leaves(tdict_contents *contents, tdict_error *err);
/* Returns true for tensors that are read early: offsets of ragged leaves, and tensors to convert. */
bool tdict_item_is_read_early(const tdict_item *item);
/* Makes the tree of the tensors, and releases them. Errors have the path that the program opened, and name the key. */
tdict_status tdict_contents_build(tdict_contents *contents, tdict_tree **out, tdict_error *err);

/* Finds the format of contents->path, opens the files, adds an item for each leaf, and selects and renames the items as
 * the options say. Returns the errors of tdict_open(). The caller closes the contents also on failure. */
tdict_status tdict_format_read(tdict_contents *contents, const tdict_open_options *options, tdict_error *err);
/* Returns true if tdict_save() has replaced the directory that was read. Call after an error, before contents close. */
bool tdict_format_was_replaced(const tdict_contents *contents);
/* A call that reads a directory begins again at most this often if the directory was replaced. */
enum { TDICT_FORMAT_RETRIES = 3 };
/* Checks that tdict_open() will read a consolidated file, complete but still open, as one. Returns TDICT_ENOTSUP if its
 * first elements are a header of safetensors or NumPy that fits the file, and TDICT_EIO. */
tdict_status tdict_format_check_start(const struct tdict_output *output, tdict_error *err);

#endif
