/* Reads and writes .npy, one array, and .npz, a zip of .npy files: see numpy.lib.format of NumPy 2. Thread-safe. */
#ifndef TDICT_SERVICES_IO_NUMPY_NUMPY_H
#define TDICT_SERVICES_IO_NUMPY_NUMPY_H

#include "services/io/contents/contents.h"
#include "services/io/request.h"
#include "services/io/zip/zip.h"

/* Returns true if file 0 begins as a .npy file. Returns false if the file cannot be read. */
bool tdict_npy_is_npy(const tdict_contents *contents);
/* Reads the header of an array that fills `span`, and adds an item. The name of the item is `name`, which must live as
 * long as the contents. Returns TDICT_EFORMAT if the header breaks a rule or the span has another size than the array.
 * Returns TDICT_ENOTSUP for another version of the format, and for a type that needs pickle or that tdict does not
 * have; the message names the type. Returns TDICT_EIO and TDICT_ENOMEM. */
tdict_status tdict_npy_read(tdict_contents *contents, tdict_span span, const char *name, tdict_error *err);
/* Adds an item for each array of a zip file, named as its entry without ".npy". Returns the errors of tdict_npy_read(),
 * TDICT_EFORMAT for another ending, and TDICT_ENOTSUP for compressed entries. */
tdict_status tdict_npz_read(tdict_contents *contents, const tdict_zip *zip, tdict_error *err);

/* Returns the dtype of a NumPy type without its byte order, such as "f4", or 0. */
tdict_dtype tdict_npy_dtype(const char *kind);
/* Writes a tree of tensors: one tensor in the format .npy, any number in .npz. Returns TDICT_ENOTSUP for other trees,
 * TDICT_EEXIST if two tensors get the same name, and the errors of tdict_listing_make() and tdict_output_file(). */
tdict_status tdict_numpy_save(const tdict_save_request *request, tdict_error *err);

#endif
