/* Objects for tests of transfers: a struct of two tensors, once with hooks that pin and move it, once with flatten.
 *
 * The program counts all that live, so that a test sees one that was never released. Thread rule: hooks run
 * anywhere. */
#ifndef TDICT_TESTS_SUPPORT_THINGS_H
#define TDICT_TESTS_SUPPORT_THINGS_H

#include "tdict/tdict.h"

typedef struct thing {
  tdict_tensor *a, *b;
} thing;

/* Has pin_memory and to_device. */
extern const tdict_type thing_hooked;
/* Has flatten and unflatten, to the keys "a" and "b". */
extern const tdict_type thing_flat;

/* Creates a thing that takes over the tensors. Returns NULL without memory; the tensors then stay with the caller. */
thing *thing_create(tdict_tensor *a, tdict_tensor *b);
/* Returns the number of things that exist. */
int64_t thing_count(void);

#endif
