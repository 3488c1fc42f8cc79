/* Reads and writes safetensors files, with TensorDict's entry in their metadata. Thread-safe for different contents. */
#ifndef TDICT_SERVICES_IO_SAFETENSORS_SAFETENSORS_H
#define TDICT_SERVICES_IO_SAFETENSORS_SAFETENSORS_H

#include "services/io/contents/contents.h"
#include "services/io/json/document.h"
#include "services/io/listing.h"
#include "services/io/output/output.h"
#include "services/io/request.h"
#include "services/io/text.h"

enum { TDICT_SAFETENSORS_MAX_HEADER = 100000000, TDICT_SAFETENSORS_PREFIX = 8 };

/* A dtype of the format, in the order of the package's enum. Writers put tensors of the last dtype first. */
typedef struct tdict_safetensors_dtype {
  const char *name;
  tdict_dtype dtype; /* 0: tdict does not have the dtype */
} tdict_safetensors_dtype;
/* Returns the format's dtype, or NULL. Pointers compare: the dtype that is written first has the highest address. */
const tdict_safetensors_dtype *tdict_safetensors_of(tdict_dtype dtype);

/* Reads the header of file number `file` and adds an item for each tensor, with the name of the tensor as path. Sets
 * *structure to the text of TensorDict's entry, or to NULL. Adds the other entries of the metadata. Returns
 * TDICT_EFORMAT if the file breaks a rule of the format. Returns TDICT_ENOTSUP for a dtype that tdict does not have,
 * and for a header of more than TDICT_SAFETENSORS_MAX_HEADER bytes. */
tdict_status tdict_safetensors_read(tdict_contents *contents, size_t file, const char **structure, tdict_error *err);
/* Returns TDICT_EFORMAT for a zip file, or for a pointer of Git LFS, which git checks out if the data is not fetched.
 * Also returns the errors of tdict_contents_read(). */
tdict_status tdict_safetensors_refuse_other(const tdict_contents *contents, size_t file, tdict_error *err);
/* Adds the entries of the metadata to the contents, and sets *structure to TensorDict's entry, if there is one. Skips
 * values that are not strings, or with `texts_only` returns TDICT_EFORMAT for them. A 0 byte in TensorDict's entry is
 * always TDICT_EFORMAT. */
tdict_status tdict_safetensors_read_metadata(tdict_contents *contents, const char *file, tdict_json metadata,
                                             bool texts_only, const char **structure, tdict_error *err);
/* Reads an index, adds the shards as files, and adds an item for each tensor of the index. Sets *structure as
 * tdict_safetensors_read() does. Returns TDICT_EFORMAT if the index breaks a rule or names a tensor that is not in the
 * named shard, TDICT_ENOTSUP if the index is too long, and the errors of tdict_safetensors_read(). */
tdict_status tdict_shards_read(tdict_contents *contents, const char *path, const tdict_open_options *options,
                               const char **structure, tdict_error *err);
/* Replaces the items, which have the names of tensors, by the items of TensorDict's entry. Returns TDICT_EFORMAT if the
 * entry breaks a rule or does not name all tensors, and TDICT_ENOTSUP for another version of the entry. */
tdict_status tdict_structure_read(tdict_contents *contents, const char *structure, tdict_error *err);

typedef struct tdict_out_tensor {
  const char *name;
  const tdict_tensor *tensor; /* borrowed */
  const tdict_safetensors_dtype *dtype;
} tdict_out_tensor;
/* The tensors of a tree, and TensorDict's entry. */
typedef struct tdict_out_tree {
  tdict_listing list; /* owns the names */
  const tdict_save_options *options;
  tdict_out_tensor *tensors; /* owned */
  size_t num_tensors;
  tdict_io_text structure; /* TensorDict's entry, empty if the options leave out the entry */
  tdict_io_text metadata;  /* the other entries of the metadata, as members of a JSON object; may be empty */
} tdict_out_tree;
/* Collects the tensors of the request's tree, and writes the metadata that its options want. Returns TDICT_EINVAL if
 * the option `metadata` is wrong, TDICT_EEXIST if two tensors get the same name, and the errors of
 * tdict_listing_make(). The caller resets `out` also on failure. */
tdict_status tdict_out_tree_collect(tdict_out_tree *out, const tdict_save_request *request, tdict_error *err);
void tdict_out_tree_reset(tdict_out_tree *out);
/* Writes a tree to one file, or to shards and an index if the option `max_shard_bytes` is not 0. */
tdict_status tdict_safetensors_save(const tdict_save_request *request, tdict_error *err);

#endif
