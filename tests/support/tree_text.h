/* Makes trees and tensors that a string describes, such as "[4] obs.pixels:u8[4,84,84] obs.state:f32[4,17] step:i64".
 *
 * Fields are separated by spaces. A field is `path:dtype[size,size,...]`. The brackets contain the whole shape of the
 * leaf. Without brackets, the leaf is a scalar. A string may begin with the batch size of the tree. Dots in a path lead
 * to nested trees, which have the same batch size. The dtypes are bool, i8 to i64, u8 to u64, f16, bf16, f32, f64,
 * f8e4m3, f8e5m2, c64 and c128. A dtype can have lanes, as in u8x3.
 *
 * Uses only public functions, and no test macros. Thread rule: any thread. */
#ifndef TDICT_TESTS_SUPPORT_TREE_TEXT_H
#define TDICT_TESTS_SUPPORT_TREE_TEXT_H

#include "tdict/tdict.h"

/* Creates the tree that a string describes. The leaves are uninitialized. `memory` may be NULL for host memory. If the
 * string is invalid, returns TDICT_EINVAL, with a message that quotes it. */
tdict_status tree_from_text(const char *text, tdict_memory *memory, tdict_tree **out, tdict_error *err);
/* Creates a tensor from a string without a path, such as "f32[4,3]". */
tdict_status tensor_from_text(const char *text, tdict_memory *memory, tdict_tensor **out, tdict_error *err);

#endif
