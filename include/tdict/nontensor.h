/* Declares leaves of text, numbers and JSON. A leaf holds one value for a whole tree, or a column. A column has one
 * value for each element of the tree.
 *
 * A value for a whole tree belongs to every element of the tree. TensorDict calls such a leaf NonTensorData, and a
 * column NonTensorStack. A value never changes. To replace a value, set the leaf again.
 *
 * Operations on trees. A new tree shares the values for whole trees with its source. If a function of tdict/index.h or
 * tdict/shape.h makes a tree, the values of a column move like the elements of a tensor. An index that removes all
 * dimensions of a column makes a value for the whole tree. The function tdict_stack() always makes a column. The
 * function tdict_cat() also makes a column, unless all trees have the same value for the whole tree. If the trees of
 * tdict_pad_sequence() have columns at one path, these columns must have equal lengths.
 *
 * Other functions. A deep clone and the result of a transfer share the values, which stay in host memory. No
 * transfer needs the option `keep_objects` for values. The functions tdict_visit(), tdict_apply(), tdict_filter() and
 * tdict_fill() skip values. Comparisons are exact: the integer 1 and the real 1.0 differ, reals are compared bit by
 * bit, and JSON is compared as text. The function tdict_bytes() counts 16 bytes for each value, plus the stored texts,
 * each with one byte for its end. If successive values of a column are set from the same `text` pointer, their text is
 * stored once.
 *
 * Writes in place. Functions that write to an existing tree cannot change a value. The functions tdict_copy(),
 * tdict_update_in_place() and tdict_transfer_into() accept a leaf of values if the leaf has equal values in both trees.
 * Functions that write some elements of a tree, such as tdict_index_set() and tdict_stack_into(), accept a leaf only if
 * both trees have the same value for the whole tree. Otherwise each of these functions returns #TDICT_ENOTSUP, and
 * err->path names the leaf.
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
  TDICT_VALUE_TEXT = 4, /**< valid UTF-8; may contain 0 bytes */
  TDICT_VALUE_JSON = 5  /**< the text of one JSON value (RFC 8259), nested at most 512 levels deep */
} tdict_value_kind;

/** A value. Functions ignore members that the kind does not use. In values that functions return, these members are 0
 *  or NULL. */
typedef struct tdict_value {
  int32_t kind;     /**< a tdict_value_kind */
  int64_t integer;  /**< the value of an integer; 0 or 1 for a bool */
  double real;      /**< the value of a real */
  const char *text; /**< text or JSON, borrowed; in a returned value, a 0 byte follows the text */
  size_t length;    /**< bytes of the text, without the 0 byte */
} tdict_value;

/** Value for `count` of tdict_set_values(): sets one value for the whole tree. */
#define TDICT_WHOLE_TREE SIZE_MAX

/** @brief Sets values at a path, as tdict_set() sets a tensor: a column with one value for each element of the tree
 *  that holds the leaf, or one value for this whole tree.
 *
 *  If this tree has no batch dimensions, both are the same.
 *  @param[in] values  One value for each element, in C order. The call copies the values and texts into one allocation.
 *                     NULL is allowed if @p count is 0.
 *  @param[in] count   Number of values. #TDICT_WHOLE_TREE: @p values has one value for the whole tree.
 *  @return #TDICT_OK; #TDICT_EINVAL an invalid path, or a NULL pointer; #TDICT_EINVAL also if the kind is unknown, a
 *          bool is not 0 or 1, a text is not UTF-8, or JSON is invalid; #TDICT_ETYPE the path leads through a tensor or
 *          an object; #TDICT_ESHAPE @p count is not the number of elements; #TDICT_ELOCKED the tree that gets the leaf
 *          is locked; #TDICT_EOVERFLOW the text is too long; #TDICT_ENOMEM. The message names the first invalid value
 *          of a column, and the position of the first wrong byte of a text.
 *  @note Cost: as tdict_set(), plus O(bytes of the texts). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_values(tdict_tree *tree, const char *path, const tdict_value *values,
                                                        size_t count, tdict_error *err);
/** @brief Sets one text for the whole tree. @p text ends with a 0 byte. Returns the errors of tdict_set_values(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_text(tdict_tree *tree, const char *path, const char *text,
                                                      tdict_error *err);
/** @brief Sets a column of texts. Each text ends with a 0 byte. For a NULL in @p texts, the value has the kind
 *  #TDICT_VALUE_NULL. Returns the errors of tdict_set_values(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_texts(tdict_tree *tree, const char *path, const char *const *texts,
                                                       size_t count, tdict_error *err);

/** @brief Returns the value of one element, or the value for the whole tree.
 *
 *  If the path names a value for the whole tree, the function returns this value for each element.
 *  @param[in]  i    Position of the element in C order. For a column, @p i must be below the number of values. For a
 *                   value for the whole tree, @p i must be below the number of elements of the tree that holds the
 *                   leaf. -1: the leaf must hold one value for the whole tree.
 *  @param[out] out  Written on success only. The text of the value is borrowed from the tree until the leaf is replaced
 *          or removed.
 *  @return #TDICT_OK; #TDICT_EINVAL @p i is out of range; #TDICT_EINVAL also for an invalid path or a NULL pointer;
 *          #TDICT_ENOTFOUND there is no entry at the path; #TDICT_ETYPE the path names a tensor, a tree or another
 *          object, or leads through a tensor or an object; #TDICT_ESHAPE @p i is -1 and the path names a column;
 *          #TDICT_ENOMEM. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_value(const tdict_tree *tree, const char *path, int64_t i,
                                                       tdict_value *out, tdict_error *err);
/** @brief Returns the text or JSON of one element, or the text or JSON for the whole tree.
 *  @param[in]  i       As in tdict_get_value().
 *  @param[out] text    Borrowed from the tree until the leaf is replaced or removed. A 0 byte follows the text.
 *  @param[out] length  Bytes of the text without the 0 byte. May be NULL.
 *  @return The errors of tdict_get_value(); #TDICT_ETYPE also if the value is neither text nor JSON. Nothing is written
 *          on failure. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_text(const tdict_tree *tree, const char *path, int64_t i,
                                                      const char **text, size_t *length, tdict_error *err);

/** The object of a leaf of values. tdict_walk() and tdict_get_object() return this object. The tree owns the object. */
typedef struct tdict_nontensor tdict_nontensor;
/** @brief Returns the type of objects that hold values. To put such an object into a tree, call
 *  tdict_set_values(), and do not call tdict_set_object(). The type is static. Thread-safe. */
TDICT_API const tdict_type *tdict_nontensor_type(void);
/** @brief Returns the number of dimensions of @p values: 0 for a value for the whole tree.
 *  @param[out] shape  The sizes of the dimensions, borrowed from @p values. May be NULL. */
TDICT_API int tdict_nontensor_shape(const tdict_nontensor *values, const int64_t **shape);
/** @brief Returns value @p i in C order.
 *  @param[out] out  Written on success only. The text of the value is borrowed from @p values.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer, or @p i is out of range. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nontensor_get(const tdict_nontensor *values, int64_t i, tdict_value *out,
                                                           tdict_error *err);

TDICT_END_DECLS
#endif
