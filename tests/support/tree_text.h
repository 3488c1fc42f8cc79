/* Trees and tensors that a text describes, such as "[4] obs.pixels:u8[4,84,84] obs.state:f32[4,17] step:i64".
 *
 * Fields are separated by spaces. A field is `path:dtype[size,size,...]`. Its shape is the whole shape of the leaf, and
 * a leaf without brackets is a scalar. A text may begin with the batch size of the tree. Dots in a path lead to nested
 * trees, which have the same batch size. The dtypes are bool, i8 to i64, u8 to u64, f16, bf16, f32, f64, f8e4m3,
 * f8e5m2, c64 and c128, and with lanes for example u8x3.
 *
 * Uses only public functions, and no test macros. Thread rule: any thread. */
#ifndef TDICT_TESTS_SUPPORT_TREE_TEXT_H
#define TDICT_TESTS_SUPPORT_TREE_TEXT_H

#include "tdict/tdict.h"

/* Creates the tree of a text. Its leaves are not written. `memory` may be NULL for host memory. Returns TDICT_EINVAL
 * and a message that quotes the text if the text is wrong. */
tdict_status tree_from_text(const char *text, tdict_memory *memory, tdict_tree **out, tdict_error *err);
/* Creates the tensor of a text without a path, such as "f32[4,3]". */
tdict_status tensor_from_text(const char *text, tdict_memory *memory, tdict_tensor **out, tdict_error *err);

#endif
