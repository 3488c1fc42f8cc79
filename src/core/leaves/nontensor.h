/* Declares the built-in type of values that are not tensors: text, numbers and JSON. An object is an array of values in
 * C order, in one allocation, and never changes. The box of the object owns the object. Thread-safe. */
#ifndef TDICT_CORE_LEAVES_NONTENSOR_H
#define TDICT_CORE_LEAVES_NONTENSOR_H

#include "core/tree/box.h"
#include "tdict/nontensor.h"

extern const tdict_builtin tdict_nontensor_builtin;

/* Reads value `k` of a source. The text is borrowed. */
typedef void (*tdict_value_source)(void *user, int64_t k, tdict_value *out);
/* Makes an object of the valid values that `read` returns for k = 0, 1, 2 and so on, twice each. Successive values with
 * the same text at the same address share it. Returns TDICT_EINVAL for more than TDICT_MAX_NDIM dimensions,
 * TDICT_EOVERFLOW for too many bytes, and TDICT_ENOMEM. */
tdict_status tdict_nontensor_create(int ndim, const int64_t *shape, tdict_value_source read, void *user,
                                    tdict_nontensor **out, tdict_error *err);
/* Sets a column at a path, as tdict_set_values(). Its shape may have more dimensions than the tree, as after
 * tdict_set_batch_size(), but at least one. `values` has one value for each element. */
tdict_status tdict_nontensor_set(tdict_tree *tree, const char *path, const tdict_value *values, int ndim,
                                 const int64_t *shape, tdict_error *err);

#endif
