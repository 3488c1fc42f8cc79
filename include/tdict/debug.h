/* Prints the elements of trees for people, in programs and in debuggers.
 *
 * The text has the lines of tdict_format(). The line of each tensor ends with a summary of its elements:
 *
 * - Integers and floats: `min`, `max` and `mean`. Floats also have `nan`, the number of NaN elements; these elements do
 *   not count for the other numbers. A mean of integers is not limited by the range of the dtype.
 * - Bool: the number of true elements. Complex: the number of elements with a NaN part.
 * - `empty`: there are no elements.
 * - `not read`, and the reason: the tensor is on a device, or a transfer into the tensor has failed.
 *
 * Only host memory is read, and nothing is transferred. Types with several lanes count each lane as an element. Objects
 * are printed as tdict_format() prints them.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_DEBUG_H
#define TDICT_DEBUG_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Writes the text to @p file. Waits for transfers that write a host tensor of the tree.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_EIO the file could not be written, and err->native is errno.
 *  @note Cost: as tdict_format(), and each element of a host tensor is read once. */
TDICT_API TDICT_NODISCARD tdict_status tdict_describe(const tdict_tree *tree, FILE *file, tdict_error *err);
/** @brief Writes the text to @p buffer, cut to @p bytes and ended by 0. Waits and costs as tdict_describe().
 *  @param[out] buffer  May be NULL if @p bytes is 0.
 *  @return the length of the full text without the 0, as snprintf does. */
TDICT_API size_t tdict_describe_format(const tdict_tree *tree, char *buffer, size_t bytes);
/** @brief Writes the text to the standard error output. For calls from a debugger, such as `call tdict_dump(tree)`.
 *
 *  The process may be stopped, so the call waits for no transfer and takes no lock. A tensor that a transfer reads or
 *  writes is marked `not read: in transfer`. A host tensor that a stream uses is marked `not read: in use by a stream`.
 *  Hooks of the program's objects are not called. The call does not use stdio, and keeps errno. Memory is allocated
 *  only if the tree has more than 24 levels.
 *  @param[in] tree  May be NULL. */
TDICT_API void tdict_dump(const tdict_tree *tree);

TDICT_END_DECLS
#endif
