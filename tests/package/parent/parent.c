/* The program of a project that has tdict as a subproject. Its asserts must be enabled, as it does not define
 * NDEBUG. */
#include <assert.h>
#include <stdio.h>

#include <tdict/config.h>
#include <tdict/tdict.h>

#if !TDICT_HAS_CUDA || TDICT_HAS_OPENMPI || TDICT_HAS_MPICH
#error by default, a subproject has CUDA and no MPI
#endif

int main(void) {
  const int64_t batch[1] = {4};
  int asserted = 0;
  tdict_tree *tree = NULL;
  assert((asserted = 1) == 1);
  if (!asserted) {
    fprintf(stderr, "parent: the asserts of this project are disabled\n");
    return 1;
  }
  if (tdict_create(1, batch, &tree, NULL) != TDICT_OK) return 1;
  tdict_release(tree);
  printf("parent: asserts are enabled, and a tree was created\n");
  return 0;
}
