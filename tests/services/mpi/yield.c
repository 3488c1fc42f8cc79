/* Lets processes of MPICH yield while they wait. MPICH of Debian only polls UCX, so jobs with more processes than cores
 * would mostly wait for the end of time slices. This function is called instead of UCX's, and is not used otherwise. */
#include <dlfcn.h>
#include <sched.h>

unsigned ucp_worker_progress(void *worker);
unsigned ucp_worker_progress(void *worker) {
  static unsigned (*progress)(void *);
  if (!progress) *(void **)&progress = dlsym(RTLD_NEXT, "ucp_worker_progress");
  const unsigned count = progress(worker);
  if (!count) sched_yield();
  return count;
}
