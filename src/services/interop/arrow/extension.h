/* Reads the shape of Arrow's extension type arrow.fixed_shape_tensor, which TensorDict's to_arrow() makes. The function
 * keeps no state. Thread-safe. */
#ifndef TDICT_SERVICES_INTEROP_ARROW_EXTENSION_H
#define TDICT_SERVICES_INTEROP_ARROW_EXTENSION_H

#include "tdict/arrow.h"

/* The dimensions of each row. */
typedef struct tdict_arrow_row_shape {
  int ndim; /* 0: the schema does not have this extension type */
  bool is_permuted;
  int64_t sizes[TDICT_MAX_NDIM]; /* in the order in which the elements are stored */
  int order[TDICT_MAX_NDIM];     /* if is_permuted is true: dimension i of the row is stored dimension order[i] */
} tdict_arrow_row_shape;
/* Reads the metadata of a schema whose lists have `size` elements. Returns TDICT_EFORMAT if the shape or the
 * permutation is malformed, or if the shape does not have `size` elements. */
tdict_status tdict_arrow_row_shape_read(const char *what, const struct ArrowSchema *schema, int64_t size,
                                        tdict_arrow_row_shape *out, tdict_error *err);

#endif
