/* Reads and writes archives `.tdz` of TensorDict. Thread-safe for different contents. */
#ifndef TDICT_SERVICES_IO_TENSORDICT_ARCHIVE_H
#define TDICT_SERVICES_IO_TENSORDICT_ARCHIVE_H

#include "services/io/request.h"
#include "services/io/zip/zip.h"

/* Returns true if a zip file has a meta.json, as archives of TensorDict have. */
bool tdict_archive_is(const tdict_zip *zip);
/* Adds an item for each leaf of the archive. Returns the errors of tdict_td_read_files() of memmap.h, and TDICT_ENOTSUP
 * for compressed entries. */
tdict_status tdict_archive_read(tdict_contents *contents, const tdict_zip *zip, const tdict_open_options *options,
                                tdict_error *err);
tdict_status tdict_archive_save(const tdict_save_request *request, tdict_error *err);

#endif
