/* Objects for tests of transfers: structs with two tensors. One type has hooks that pin and move the object. The other
 * type can be flattened.
 *
 * Existing things are counted, so that a test can detect leaks. Thread rule: hooks run on any thread. */
#ifndef TDICT_TESTS_SUPPORT_THINGS_H
#define TDICT_TESTS_SUPPORT_THINGS_H

#include "tdict/tdict.h"

typedef struct thing {
  tdict_tensor *a, *b;
} thing;

/* Has the hooks pin_memory and to_device. */
extern const tdict_type thing_hooked;
/* Has the hooks flatten and unflatten. Its tree has the keys "a" and "b". */
extern const tdict_type thing_flat;

/* Creates a thing that owns the tensors. On failure, returns NULL, and the caller still owns the tensors. */
thing *thing_create(tdict_tensor *a, tdict_tensor *b);
/* Returns the number of things that exist. */
int64_t thing_count(void);

#endif
