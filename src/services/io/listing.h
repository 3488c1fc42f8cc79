/* Lists the entries of a tree that is saved, with their names, for the writers of all formats. The listing owns its
 * texts and borrows the tree. Thread rule: used by one thread at a time. */
#ifndef TDICT_SERVICES_IO_LISTING_H
#define TDICT_SERVICES_IO_LISTING_H

#include "services/io/contents/contents.h"
#include "services/io/request.h"
#include "services/io/text.h"

/* What a format can hold. */
typedef struct tdict_format_rules {
  const char *dtypes;                              /* begins a message, for example "NumPy has" */
  const char *(*name_of_dtype)(tdict_dtype dtype); /* returns NULL if the format lacks the dtype */
  bool has_tensors_only;                           /* no values, ragged leaves and empty trees, but any depth */
} tdict_format_rules;

/* An entry of the tree. */
typedef struct tdict_listed {
  tdict_item_kind kind;                 /* TDICT_ITEM_RAGGED_VALUES: a whole ragged leaf */
  const char *key, *path;               /* the last key, and the escaped path in the whole tree */
  const char *name;                     /* the keys of the path with dots between them */
  const tdict_tree *tree;               /* the tree, or the tree that has the leaf */
  const tdict_tensor *tensor, *offsets; /* the tensor, or the values, of a leaf; the offsets of a ragged leaf */
  const tdict_nontensor *values;
  size_t parent;  /* number of the entry of the tree above */
  size_t end;     /* number of the first entry that is not below this entry */
  size_t tensors; /* number of tensors before this entry */
} tdict_listed;

/* The entries in the order of tdict_walk(). Entry 0 is the root. */
typedef struct tdict_listing {
  tdict_contents contents; /* owns the texts */
  tdict_listed *entries;   /* owned */
  size_t count, cap, num_tensors;
} tdict_listing;

/* Lists a tree. Returns TDICT_ENOTSUP, with the path, if the format cannot hold the tree or a key is not UTF-8, and
 * TDICT_ENOMEM. The caller resets the listing also on failure. */
tdict_status tdict_listing_make(tdict_listing *out, const tdict_save_request *request, const tdict_format_rules *rules,
                                tdict_error *err);
void tdict_listing_reset(tdict_listing *listing);
/* Appends the JSON of value `i` with `write`, which returns as tdict_value_to_json(). Returns TDICT_ENOTSUP. */
typedef tdict_status (*tdict_value_writer)(tdict_io_text *text, const tdict_value *value, const char **why);
tdict_status tdict_listing_add_value(const tdict_listing *listing, const tdict_listed *entry, int64_t i,
                                     tdict_value_writer write, tdict_io_text *to, tdict_error *err);
/* Returns TDICT_ENOTSUP with the path of an entry. */
tdict_status tdict_listing_refuse(const tdict_listing *listing, const tdict_listed *entry, const char *why,
                                  tdict_error *err);
/* Returns TDICT_ENOMEM: the memory for keys is exhausted. */
tdict_status tdict_listing_no_memory(const tdict_listing *listing, tdict_error *err);

#endif
