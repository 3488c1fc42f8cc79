/* Reads and writes the file formats of the Python package TensorDict 0.15: the memory-mapped directory, the archive
 * `.tdz` and the consolidated file. The archive is a zip file of a memory-mapped directory. Thread-safe for different
 * contents.
 *
 * Marks of tdict. TensorDict ignores some additional members of its JSON texts. The writers use such members for leaves
 * that TensorDict lacks: `"tdict": "ragged"` in the meta.json of a ragged leaf, `"tdict": "unbatched"` in the entry of
 * a leaf without batch dimensions, and the member `size` of a consolidated file. */
#ifndef TDICT_SERVICES_IO_TENSORDICT_TENSORDICT_H
#define TDICT_SERVICES_IO_TENSORDICT_TENSORDICT_H

#include "services/io/reader.h"
#include "services/io/request.h"
#include "services/io/zip/zip.h"

enum { TDICT_TD_MAX_JSON = 100000000, TDICT_TD_FORMAT_VERSION = 1 };

/* Returns the name of a dtype, such as "torch.float32", or NULL if the formats have no name for the dtype. */
const char *tdict_torch_name(tdict_dtype dtype);
/* Reads a dtype. Returns TDICT_ENOTSUP for a dtype that tdict lacks, and TDICT_EFORMAT for no string. */
tdict_status tdict_torch_dtype(const tdict_json_place *place, tdict_json name, tdict_dtype *out, tdict_error *err);
/* Reads dtype and shape, and so the bytes, of a tensor. Returns TDICT_EFORMAT and errors of tdict_torch_dtype(). */
tdict_status tdict_torch_layout(const tdict_json_place *place, tdict_json dtype, tdict_json sizes, tdict_item *item,
                                tdict_sizes *shape, tdict_error *err);
/* Appends a key's file name: control characters, spaces, % and /<>:"|?*\ as %XX, "%" for "", %2E for "." and "..". */
void tdict_td_add_name(tdict_io_text *text, const char *key);
/* Returns true if a file or folder may have the key itself as its name. Old versions of TensorDict wrote such names. */
bool tdict_td_is_plain_name(const char *key);
/* Appends a JSON string in the same way as Python's module json. */
void tdict_td_add_string(tdict_io_text *text, const char *string);
/* Appends a JSON value, a text without 0 bytes as tdict_td_add_string(). Returns as tdict_value_to_json(). */
tdict_status tdict_td_add_value_json(tdict_io_text *text, const tdict_value *value, const char **why);

/* Adds the values of a NonTensorStack of a consolidated file: a column, or one JSON value as tdict_reader_add_column().
 * Returns TDICT_EFORMAT if the node breaks a rule, and TDICT_ENOTSUP if its members have different batch sizes or it
 * has more values than a meta.json of TDICT_TD_MAX_JSON bytes. */
tdict_status tdict_td_add_stack(tdict_reader *reader, tdict_json node, tdict_error *err);
/* Reads a memory-mapped directory. The contents take over the descriptor `folder`, also on failure. */
tdict_status tdict_memmap_read(tdict_contents *contents, int folder, const tdict_open_options *options,
                               tdict_error *err);
/* Returns true if a zip file has a meta.json, as archives of TensorDict have. */
bool tdict_archive_is(const tdict_zip *zip);
/* Adds an item for each leaf. Returns TDICT_ENOTSUP for compressed entries, and errors of tdict_td_read_files(). */
tdict_status tdict_archive_read(tdict_contents *contents, const tdict_zip *zip, const tdict_open_options *options,
                                tdict_error *err);
bool tdict_consolidated_is(const tdict_contents *contents);
tdict_status tdict_consolidated_read(tdict_contents *contents, const tdict_open_options *options, tdict_error *err);

/* The writers of the formats. */
tdict_status tdict_memmap_save(const tdict_save_request *request, tdict_error *err);
tdict_status tdict_archive_save(const tdict_save_request *request, tdict_error *err);
tdict_status tdict_consolidated_save(const tdict_save_request *request, tdict_error *err);

#endif
