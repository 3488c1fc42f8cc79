/* Finds the format of the files at a path, and reads the headers of the files. Thread-safe for different contents. */
#ifndef TDICT_SERVICES_IO_FORMAT_H
#define TDICT_SERVICES_IO_FORMAT_H

#include "services/io/contents.h"
#include "services/io/output.h"

/* Finds the format of contents->path, opens the files, adds an item for each leaf, and selects and renames the items as
 * the options say. Returns the errors of tdict_open(). The caller closes the contents also on failure. */
tdict_status tdict_format_read(tdict_contents *contents, const tdict_open_options *options, tdict_error *err);
/* Returns true if another directory now has the path of a directory that was read. Call after an error, before the
 * contents are closed: the files of a directory that tdict_save() has replaced are missing. */
bool tdict_format_was_replaced(const tdict_contents *contents);
/* A call that reads a directory begins again at most this often if the directory was replaced. */
enum { TDICT_FORMAT_RETRIES = 3 };
/* Checks that tdict_open() reads a consolidated file, which is complete but still open, as a consolidated file. Returns
 * TDICT_ENOTSUP if the elements at the start of the file are a header of safetensors or NumPy that fits the file.
 * Returns TDICT_EIO. */
tdict_status tdict_format_check_start(const tdict_output *output, tdict_error *err);

#endif
