/* Declares leaves of text, numbers and JSON: one value for a whole tree, or one value for each element of its batch
 * size.
 *
 * A value for a whole tree belongs to every element of the tree (TensorDict: NonTensorData). A column has one value for
 * each element (NonTensorStack). Values never change after they are set. To change a value, set the leaf again.
 *
 * Operations on trees. All results share a value for a whole tree. The values of a column move as the elements of a
 * tensor do, in every function of tdict/index.h and tdict/shape.h that makes a tree. A row of a column has a value for
 * the whole row. A stack makes a column along any dimension, also of values for whole trees. A cat makes a column, too,
 * unless all trees have the same value for the whole tree. The function tdict_pad_sequence() needs columns of one
 * length.
 *
 * Other functions. A deep clone and the result of a transfer share the values, which stay in host memory. The option
 * `strict_objects` accepts values. The functions tdict_visit(), tdict_apply(), tdict_filter() and tdict_fill() skip
 * values. A comparison is exact: 1 and 1.0 differ, a NaN equals the same NaN, and JSON is compared as text. The
 * function tdict_bytes() counts 16 bytes for each value, plus the texts.
 *
 * Writes in place. If the values are equal in both trees, the functions tdict_copy(), tdict_update_in_place() and
 * tdict_transfer_into() write nothing. Functions that write some elements of a tree, such as tdict_index_set(),
 * tdict_write_row() and tdict_stack_into(), accept only equal values for whole trees. Otherwise each function returns
 * #TDICT_ENOTSUP, and err->path names the leaf.
 *
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_NONTENSOR_H
#define TDICT_NONTENSOR_H

#include "tdict/object.h"

TDICT_BEGIN_DECLS

/** The kind of a value. The numbers are part of the ABI and never change. */
typedef enum tdict_value_kind {
  TDICT_VALUE_NULL = 0,
  TDICT_VALUE_BOOL = 1,
  TDICT_VALUE_INTEGER = 2,
  TDICT_VALUE_REAL = 3,
  TDICT_VALUE_TEXT = 4, /**< valid UTF-8; may contain NUL */
  TDICT_VALUE_JSON = 5  /**< a text that is one JSON value as in RFC 8259, with at most 512 levels; kept as text */
} tdict_value_kind;

/** A value. Functions ignore members that the kind does not use, and return them as 0 or NULL. */
typedef struct tdict_value {
  int32_t kind;     /**< a tdict_value_kind */
  int64_t integer;  /**< the value of an integer; 0 or 1 for a bool */
  double real;      /**< the value of a real */
  const char *text; /**< text or JSON, borrowed; a text that a function returns is followed by a 0 byte */
  size_t length;    /**< bytes of the text, without the 0 byte */
} tdict_value;

/** @brief Sets one value for the whole tree at a path, as tdict_set() sets a tensor.
 *  @param[in] value  Copied, with its text.
 *  @return The errors of tdict_set() except #TDICT_ESHAPE; #TDICT_EINVAL also if the kind is unknown, a bool is not 0
 *          or 1, or a text is NULL, is not UTF-8 or is not JSON; #TDICT_EOVERFLOW the text is too long. The message
 *          names the first byte that is wrong.
 *  @note Cost: as tdict_set(), plus O(bytes of the text). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_value(tdict_tree *tree, const char *path, const tdict_value *value,
                                                       tdict_error *err);
/** @brief Sets a column at a path: one value for each element of the batch size of the tree that holds the leaf.
 *
 *  If that tree has no batch dimensions, sets one value for the whole tree.
 *  @param[in] values  One value for each element, in C order. Copied with their texts into one allocation. NULL is
 *                     allowed if @p count is 0.
 *  @param[in] count   Number of values.
 *  @return The errors of tdict_set_value(); #TDICT_ESHAPE @p count is not the number of elements. The message names the
 *          first value that is wrong. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_values(tdict_tree *tree, const char *path, const tdict_value *values,
                                                        size_t count, tdict_error *err);
/** @brief Sets one text for the whole tree, as tdict_set_value() does. @p text ends with a 0 byte. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_text(tdict_tree *tree, const char *path, const char *text,
                                                      tdict_error *err);
/** @brief Sets a column of texts, as tdict_set_values() does. Each text ends with a 0 byte. A NULL in @p texts sets a
 *  null value. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_texts(tdict_tree *tree, const char *path, const char *const *texts,
                                                       size_t count, tdict_error *err);

/** @brief Returns the value for the whole tree at a path.
 *  @param[out] out  Written on success only. Its text is borrowed from the tree until the leaf is replaced.
 *  @return The errors of tdict_get(); #TDICT_ETYPE if the path names a tensor, a tree or another object; #TDICT_ESHAPE
 *          if the path names a column. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_value(const tdict_tree *tree, const char *path, tdict_value *out,
                                                       tdict_error *err);
/** @brief Returns the value of one element.
 *
 *  If the path names a value for the whole tree, that value belongs to each element.
 *  @param[in]  i    Position of the element in C order, below the number of elements of the batch size of the tree that
 *                   holds the leaf. For a column with more dimensions, below the number of values.
 *  @param[out] out  As in tdict_get_value().
 *  @return The errors of tdict_get_value() except #TDICT_ESHAPE; #TDICT_EINVAL also if @p i is out of range. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_value_at(const tdict_tree *tree, const char *path, int64_t i,
                                                          tdict_value *out, tdict_error *err);
/** @brief Returns the text or JSON for the whole tree at a path.
 *  @param[out] text    Borrowed from the tree until the leaf is replaced. Followed by a 0 byte.
 *  @param[out] length  Bytes of the text without the 0 byte. May be NULL.
 *  @return The errors of tdict_get_value(); #TDICT_ETYPE also if the value is neither text nor JSON. Nothing is written
 *          on failure. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_text(const tdict_tree *tree, const char *path, const char **text,
                                                      size_t *length, tdict_error *err);
/** @brief Returns the text or JSON of one element. @p i is as in tdict_get_value_at(), the rest as in
 *  tdict_get_text(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_text_at(const tdict_tree *tree, const char *path, int64_t i,
                                                         const char **text, size_t *length, tdict_error *err);

/** The object of a leaf of values, as tdict_walk() and tdict_get_object() return it. The tree owns the object. */
typedef struct tdict_nontensor tdict_nontensor;
/** @brief Returns the type of objects that hold values. Only the functions of this header make such objects. Do not
 *  pass this type to tdict_set_object(). Static, thread-safe. */
TDICT_API const tdict_type *tdict_nontensor_type(void);
/** @brief Returns the number of dimensions of @p values: 0 for a value for the whole tree.
 *  @param[out] shape  The sizes of the dimensions, borrowed from @p values. May be NULL. */
TDICT_API int tdict_nontensor_shape(const tdict_nontensor *values, const int64_t **shape);
/** @brief Returns value @p i in C order.
 *  @param[out] out  Its text is borrowed from @p values. Written on success only.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or @p i is out of range. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nontensor_get(const tdict_nontensor *values, int64_t i, tdict_value *out,
                                                           tdict_error *err);

TDICT_END_DECLS
#endif
