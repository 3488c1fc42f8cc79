/* Reads elements of tensors in C order. Thread rule: one thread per tensor. */
#ifndef TDICT_TOOLS_ELEMENTS_H
#define TDICT_TOOLS_ELEMENTS_H

#include "progress.h"
#include "tdict/debug.h"
#include "tool.h"

/* The number of elements that a command reads at once. */
enum { CHUNK_ELEMENTS = 1 << 16 };

/* Makes a tensor of one dimension with the elements in C order. Copies the elements only if they are strided. The
 * caller releases *flat. */
tdict_status elements_flatten(const tdict_tensor *tensor, tdict_tensor **flat, tdict_error *err);
/* Makes a tensor of `count` elements from element `start` of a flat tensor, converted to `dtype`. The caller releases
 * *chunk. */
tdict_status elements_chunk(const tdict_tensor *flat, int64_t start, int64_t count, tdict_dtype dtype,
                            tdict_tensor **chunk, tdict_error *err);
/* Computes the summary of a tensor in host memory. Shows the bytes in `p`, which has `done` bytes before the tensor. */
tdict_status elements_summarize(const tdict_tensor *tensor, progress *p, uint64_t done, tdict_tensor_summary *out,
                                tdict_error *err);
/* Returns the dtype to which cat and diff convert elements: float32 for smaller floats, else the dtype itself. */
tdict_dtype elements_wide_dtype(tdict_dtype dtype);
enum { ELEMENT_TEXT_BYTES = 96 };
/* Writes an element of a dtype that elements_wide_dtype() returns. Floats have the fewest digits that give the same
 * number when read again. */
void element_text(tdict_dtype dtype, const void *element, char text[ELEMENT_TEXT_BYTES]);

#endif
