/* Prints trees with a summary of the elements of each tensor, in programs and in debuggers.
 *
 * The text has the lines of tdict_format(). The line of each tensor ends with the summary:
 *
 * - Integers and floats: `min`, `max` and `mean`. The mean is correct even if the sum exceeds the range of the dtype.
 * - Floats also: `nan`, the number of NaN elements. NaN elements do not count for `min`, `max` and `mean`.
 * - Bool: the number of true elements. Complex: the number of elements with a NaN part.
 * - `empty`: the tensor has no elements.
 * - `not read`, and the reason: the tensor is on a device, or a transfer into the tensor has failed.
 *
 * The functions read only host memory, and transfer nothing. In types with several lanes, each lane counts as an
 * element. Objects are printed as tdict_format() prints them.
 * Thread rule: as in tdict/tree.h. */
#ifndef TDICT_DEBUG_H
#define TDICT_DEBUG_H

#include "tdict/tree.h"

TDICT_BEGIN_DECLS

/** @brief Writes the text to @p file. Waits for transfers that write a host tensor of the tree.
 *  @return #TDICT_OK; #TDICT_EINVAL a NULL pointer; #TDICT_EIO the file could not be written, and err->native is errno.
 *  @note Cost: the cost of tdict_format(), plus one read of each element in host memory. */
TDICT_API TDICT_NODISCARD tdict_status tdict_describe(const tdict_tree *tree, FILE *file, tdict_error *err);
/** @brief Writes the text to @p buffer. The text is cut to @p bytes bytes, which include the final 0. Waits as
 *  tdict_describe() does, and has the same cost.
 *  @param[out] buffer  May be NULL if @p bytes is 0.
 *  @return The length of the full text without the final 0, as snprintf does. */
TDICT_API size_t tdict_describe_format(const tdict_tree *tree, char *buffer, size_t bytes);
/** @brief Writes the text to the standard error output. For calls from a debugger, such as `call tdict_dump(tree)`.
 *
 *  A debugger may have stopped the other threads of the process. The call therefore waits for no transfer and takes no
 *  lock. A host tensor is marked `not read: in transfer` if a transfer reads or writes its storage. A host tensor is
 *  marked `not read: in use by a stream` if a stream uses its storage. The call does not call hooks of the program's
 *  objects, does not use stdio, and does not change errno. The call allocates memory only if the tree has more than 24
 *  levels.
 *  @param[in] tree  May be NULL. */
TDICT_API void tdict_dump(const tdict_tree *tree);

TDICT_END_DECLS
#endif
