/* Selects rows of opened files: intervals of dimension 0 of all tensors. Thread-safe for different contents. */
#ifndef TDICT_SERVICES_IO_ROWS_H
#define TDICT_SERVICES_IO_ROWS_H

#include "services/io/contents.h"

/* The selected rows. */
typedef struct tdict_row_range {
  int64_t first, count; /* count -1: all rows from `first` */
} tdict_row_range;

/* Narrows the spans and shapes of all items to the rows of the range, as tdict_load_options says. The narrowed offsets
 * of a ragged leaf need not begin with 0, so the reader of the offsets must subtract the first offset from all offsets.
 * Returns TDICT_EINVAL if the range is not inside the tree. Returns TDICT_ESHAPE if no leaf has rows, a tensor has no
 * dimensions, or the leaves have different numbers of rows. Returns TDICT_ENOTSUP for a tensor in Fortran order, and
 * TDICT_EFORMAT if offsets are wrong. Returns TDICT_EIO and TDICT_ENOMEM. */
tdict_status tdict_contents_select_rows(tdict_contents *contents, tdict_row_range range, tdict_error *err);

#endif
