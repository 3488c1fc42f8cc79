/* Sets and returns leaves of text, numbers and JSON. A leaf holds one value for a whole tree, or a column, which has
 * one value for each element of the tree. A value never changes: to replace it, set the leaf again. Values stay in host
 * memory. docs/leaves.md says what operations on trees do with them. Thread rule: as in tdict/tree.h.
 *
 * Errors of all functions with a path: #TDICT_EINVAL an invalid path or a NULL pointer; #TDICT_ETYPE the path leads
 * through a tensor or an object; #TDICT_ENOMEM. Results are written on success only. */
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

/** A value. Functions ignore members that the kind does not use; in values that they return, these members are 0. */
typedef struct tdict_value {
  int32_t kind;     /**< a tdict_value_kind */
  int64_t integer;  /**< the value of an integer; 0 or 1 for a bool */
  double real;      /**< the value of a real */
  const char *text; /**< text or JSON, borrowed; in a returned value, a 0 byte follows the text */
  size_t length;    /**< bytes of the text, without the 0 byte */
} tdict_value;

/** Value for `count` of tdict_set_values(): sets one value for the whole tree. */
#define TDICT_WHOLE_TREE SIZE_MAX

/** @brief Sets a column, or one value for the whole tree, as tdict_set() sets a tensor.
 *  @param[in] values  One value for each element, in C order. The values and texts are copied into one allocation.
 *  @param[in] count  Number of values: that of the elements of the tree that holds the leaf, or #TDICT_WHOLE_TREE.
 *  @return #TDICT_ESHAPE @p count differs from the number of elements; #TDICT_EINVAL also for an invalid value, which
 *          the message names with the position of the first wrong byte; #TDICT_ELOCKED; #TDICT_EOVERFLOW. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_values(tdict_tree *tree, const char *path, const tdict_value *values,
                                                        size_t count, tdict_error *err);
/** @brief Sets one text, which ends with a 0 byte, for the whole tree. Errors: as tdict_set_values(). */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_text(tdict_tree *tree, const char *path, const char *text,
                                                      tdict_error *err);
/** @brief Sets a column of texts, which end with a 0 byte. NULL stands for a value of the kind #TDICT_VALUE_NULL. */
TDICT_API TDICT_NODISCARD tdict_status tdict_set_texts(tdict_tree *tree, const char *path, const char *const *texts,
                                                       size_t count, tdict_error *err);

/** @brief Returns the value of one element, or the value for the whole tree.
 *  @param[in] i  Position of the element in C order; a value for the whole tree belongs to each element. -1: the leaf
 *          must hold one value for the whole tree.
 *  @param[out] out  Its text is borrowed from the tree until the leaf is replaced or removed.
 *  @return #TDICT_EINVAL also if @p i is out of range; #TDICT_ENOTFOUND; #TDICT_ETYPE also for another kind of entry;
 *          #TDICT_ESHAPE @p i is -1 and the leaf is a column. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_value(const tdict_tree *tree, const char *path, int64_t i,
                                                       tdict_value *out, tdict_error *err);
/** @brief Returns the text or JSON of an element, or of the whole tree, as tdict_get_value().
 *  @param[out] text  Borrowed until the leaf is replaced or removed. A 0 byte follows.
 *  @param[out] length  Bytes of the text without the 0 byte. May be NULL.
 *  @return #TDICT_ETYPE also if the value is neither text nor JSON. */
TDICT_API TDICT_NODISCARD tdict_status tdict_get_text(const tdict_tree *tree, const char *path, int64_t i,
                                                      const char **text, size_t *length, tdict_error *err);

/** The object of a leaf of values, as tdict_walk() and tdict_get_object() return it. The tree owns the object. */
typedef struct tdict_nontensor tdict_nontensor;
/** @brief Returns the type of these objects, to recognize them. Static. Not for tdict_set_object(). Thread-safe. */
TDICT_API const tdict_type *tdict_nontensor_type(void);
/** @brief Returns the number of dimensions: 0 for a value for the whole tree.
 *  @param[out] shape  The sizes of the dimensions, borrowed from @p values. May be NULL. */
TDICT_API int tdict_nontensor_shape(const tdict_nontensor *values, const int64_t **shape);
/** @brief Returns value @p i in C order. Its text is borrowed from @p values.
 *  @return #TDICT_EINVAL a NULL pointer, or @p i is out of range. */
TDICT_API TDICT_NODISCARD tdict_status tdict_nontensor_get(const tdict_nontensor *values, int64_t i, tdict_value *out,
                                                           tdict_error *err);

TDICT_END_DECLS
#endif
