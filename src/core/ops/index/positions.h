/* Reads the positions of lists and masks in host memory. Owns nothing. Pure functions of their arguments;
 * thread-safe. */
#ifndef TDICT_CORE_OPS_INDEX_POSITIONS_H
#define TDICT_CORE_OPS_INDEX_POSITIONS_H

#include "core/tensor/tensor.h"

/* tdict_mask_positions() can write this many numbers after the last position. */
enum { TDICT_POSITIONS_SLACK = 8 };

/* Copies `count` positions of a dimension of `size` elements. Counts negative positions from the end. The distance from
 * one position to the next at `from` is `step` numbers. Returns the index of the first position outside the dimension,
 * or -1. After a failure, `to` is unspecified. */
int64_t tdict_positions_read(int64_t *to, const int64_t *from, int64_t count, int64_t step, int64_t size);
/* Returns the number of elements of a mask that are not 0. The elements have one byte. */
int64_t tdict_mask_count(const tdict_tensor *mask);
/* Writes the positions of the elements that are not 0, in C order: one number for each dimension of the mask. */
void tdict_mask_positions(const tdict_tensor *mask, int64_t *positions);

#endif
