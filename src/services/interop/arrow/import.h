/* Declares the steps of an import: open the columns of an array, find the nulls of a column, and make a leaf from a
 * column. Thread rule: one thread at a time uses an importer. */
#ifndef TDICT_SERVICES_INTEROP_ARROW_IMPORT_H
#define TDICT_SERVICES_INTEROP_ARROW_IMPORT_H

#include <stdatomic.h>

#include "core/memory/memory.h"
#include "services/interop/arrow/type.h"

/* Holds the imported array. Each tensor over the array owns a reference; the last one releases the array. */
typedef struct tdict_arrow_holder {
  _Atomic(int64_t) refs;
  struct ArrowArray array; /* `release` is NULL until the import has succeeded */
} tdict_arrow_holder;

typedef struct tdict_arrow_importer {
  const char *what;
  tdict_arrow_import_options options;
  tdict_arrow_holder *holder;
  tdict_device device;  /* of the buffers */
  uint32_t flags;       /* TDICT_DESC_ bits of tensors over the buffers */
  tdict_memory *memory; /* of copies: NULL for host memory, else the memory of `device` */
  int depth;
  bool is_located;    /* true: the error has the path of the field */
  tdict_tree *tree;   /* the result; the caller of tdict_arrow_import_tree() gets it on success */
  tdict_tree *masks;  /* NULL unless the option asks for masks */
  tdict_io_text path; /* of the field that is being imported; escaped */
} tdict_arrow_importer;

/* Part of a field: elements [start, start + count) of the buffers. */
typedef struct tdict_arrow_column {
  const struct ArrowSchema *schema;
  const struct ArrowArray *array; /* NULL: no elements, and `count` is 0 */
  tdict_arrow_type type;
  int64_t start, count;
} tdict_arrow_column;

/* Elements of an array. The offset of the array is not part of `first`. */
typedef struct tdict_arrow_range {
  int64_t first, count;
} tdict_arrow_range;

/* Drops a reference to the holder. `user` is a holder. */
void tdict_arrow_holder_release(void *user);
/* Opens elements of an array. Checks the members of both structs, but not the members of the child structs. Returns
 * TDICT_EFORMAT if a struct is invalid or has too few elements, and the errors of tdict_arrow_type_read(). */
tdict_status tdict_arrow_column_open(const tdict_arrow_importer *m, const struct ArrowSchema *schema,
                                     const struct ArrowArray *array, tdict_arrow_range range, tdict_arrow_column *out,
                                     tdict_error *err);
/* Opens elements of child `i`. Returns the errors of tdict_arrow_column_open(). */
tdict_status tdict_arrow_column_child(const tdict_arrow_importer *m, const tdict_arrow_column *c, int64_t i,
                                      tdict_arrow_range range, tdict_arrow_column *out, tdict_error *err);
/* Returns buffer `i`, or NULL if the column has no array or the array has no buffer `i`. */
const void *tdict_arrow_column_buffer(const tdict_arrow_column *c, int i);
/* Finds the nulls of a column. *out, which the caller frees, has one byte for each element, 0 for a null, or is NULL if
 * there is no null. `above` has such bytes for the parents, or is NULL. Returns TDICT_EINVAL for a null that the
 * options refuse, TDICT_ENOMEM, and the errors of tdict_arrow_unpack(). */
tdict_status tdict_arrow_column_nulls(const tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *above,
                                      uint8_t **out, tdict_error *err);
/* Copies a tensor over the buffers, or a copy of it, to new host memory. */
tdict_status tdict_arrow_host_copy(const tdict_arrow_importer *m, const tdict_tensor *from, tdict_tensor **out,
                                   tdict_error *err);
/* Makes a buffer readable by the host. *out is `buffer`, or the data of *copy. The caller releases *copy, if any. */
tdict_status tdict_arrow_to_host(const tdict_arrow_importer *m, const void *buffer, int64_t bytes, tdict_tensor **copy,
                                 const void **out, tdict_error *err);
/* Writes one byte, 0 or 1, for each of the bits [first, first + count). */
tdict_status tdict_arrow_unpack(const tdict_arrow_importer *m, const void *buffer, int64_t first, int64_t count,
                                uint8_t *out, tdict_error *err);
/* Makes a tensor over elements of a buffer, or a copy if the elements are not aligned. */
tdict_status tdict_arrow_wrap(const tdict_arrow_importer *m, const void *elements, tdict_dtype dtype, int64_t count,
                              tdict_tensor **out, tdict_error *err);
/* Moves a tensor that the import has made in host memory to the memory of the import. A failure changes nothing. */
tdict_status tdict_arrow_place(const tdict_arrow_importer *m, tdict_tensor **tensor, tdict_error *err);

/* Makes a tensor of shape [count, ...] from numbers, bools, fixed-size lists or arrow.fixed_shape_tensor. Elements of
 * null rows get the fill value. Returns TDICT_ENOTSUP for other types. */
tdict_status tdict_arrow_import_tensor(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                       tdict_tensor **out, tdict_error *err);
/* Makes a leaf from a list, text or null column, and sets the leaf at m->path. */
tdict_status tdict_arrow_import_list(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                     tdict_error *err);
tdict_status tdict_arrow_import_text(tdict_arrow_importer *m, const tdict_arrow_column *c, const uint8_t *valid,
                                     tdict_error *err);

/* The dimensions of each row of an extension type. */
typedef struct tdict_arrow_row_shape {
  int ndim; /* 0: the schema does not have this extension type */
  bool is_permuted;
  int64_t sizes[TDICT_MAX_NDIM]; /* in the order in which the elements are stored */
  int order[TDICT_MAX_NDIM];     /* if is_permuted is true: dimension i of the row is stored dimension order[i] */
} tdict_arrow_row_shape;
/* Reads the shape of the extension type arrow.fixed_shape_tensor, which TensorDict's to_arrow() makes. Returns
 * TDICT_EFORMAT if it is malformed, or has not the `size` elements of the schema's lists. */
tdict_status tdict_arrow_row_shape_read(const char *what, const struct ArrowSchema *schema, int64_t size,
                                        tdict_arrow_row_shape *out, tdict_error *err);

/* Reads the options of the caller. The buffers are in ordinary host memory until the caller sets another device, flags
 * and memory. Returns TDICT_EINVAL for invalid values, and the errors of tdict_options_read(). */
tdict_status tdict_arrow_import_begin(tdict_arrow_importer *m, const tdict_arrow_import_options *options,
                                      tdict_error *err);
/* Imports an array after tdict_arrow_import_begin(), and takes it over on success. If `array` is NULL, makes a tree
 * without rows. */
tdict_status tdict_arrow_import_tree(tdict_arrow_importer *m, const struct ArrowSchema *schema,
                                     struct ArrowArray *array, tdict_tree **out, tdict_error *err);

#endif
