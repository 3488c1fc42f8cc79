/* Finds the format of the files at a path, and reads the headers of the files. Thread-safe for different contents. */
#ifndef TDICT_IO_FORMAT_H
#define TDICT_IO_FORMAT_H

#include "io/contents.h"
#include "io/output.h"

/* Finds the format of contents->path, opens the files, adds an item for each leaf, and selects and renames the items as
 * the options say. Returns the errors of tdict_open(). The caller closes the contents also on failure. */
tdict_status tdict_format_read(tdict_contents *contents, const tdict_open_options *options, tdict_error *err);
/* Checks that tdict_open() reads a consolidated file, which is complete but still open, as a consolidated file. Returns
 * TDICT_ENOTSUP if the elements at the start of the file are a header of safetensors or NumPy that fits the file. Returns
 * TDICT_EIO. */
tdict_status tdict_format_check_start(const tdict_output *output, tdict_error *err);

#endif
