/* Moves one leaf of 32 KiB to the simulated device with the calling thread, and prints the address of each function
 * that this thread enters. The library is compiled with -finstrument-functions, and tests/gates/walk.py looks up the
 * functions' names. */

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tdict/sim.h>
#include <tdict/tdict.h>

#define NOT_TRACED __attribute__((no_instrument_function))
#define MOST 100000

static uintptr_t entered[MOST];
static int depths[MOST];
static int count, depth, on;
static pthread_t traced;

void __cyg_profile_func_enter(void *function, void *site) NOT_TRACED;
void __cyg_profile_func_exit(void *function, void *site) NOT_TRACED;

void __cyg_profile_func_enter(void *function, void *site) {
  (void)site;
  if (!on || !pthread_equal(pthread_self(), traced) || count == MOST) return;
  depths[count] = ++depth;
  entered[count++] = (uintptr_t)function;
}

void __cyg_profile_func_exit(void *function, void *site) {
  (void)function;
  (void)site;
  if (on && pthread_equal(pthread_self(), traced)) depth--;
}

NOT_TRACED static void must(tdict_status status, const tdict_error *err) {
  if (status == TDICT_OK) return;
  tdict_error_print(err, stderr);
  exit(1);
}

NOT_TRACED int main(void) {
  tdict_error err;
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options options = tdict_context_options_default();
  options.sim = &sim;
  options.device = tdict_sim(0);
  tdict_context *context;
  must(tdict_context_create(&options, &context, &err), &err);
  tdict_transfer_options transfer = tdict_transfer_options_default();
  transfer.num_threads = 0;
  int64_t shape[] = {8192};
  traced = pthread_self();
  for (int round = 0; round < 2; round++) { /* the first round fills caches and starts threads */
    tdict_tree *tree, *moved;
    tdict_tensor *leaf;
    must(tdict_create(0, NULL, &tree, &err), &err);
    must(tdict_tensor_empty(TDICT_F32, 1, shape, NULL, &leaf, &err), &err);
    memset(tdict_tensor_data(leaf), 1, 32768);
    must(tdict_set(tree, "leaf", leaf, &err), &err);
    on = round == 1;
    must(tdict_to_device(context, tree, options.device, &transfer, &moved, &err), &err);
    on = 0;
    tdict_tensor_release(leaf);
    tdict_release(moved);
    tdict_release(tree);
  }
  for (int i = 0; i < count; i++) printf("%d %lx\n", depths[i], (unsigned long)entered[i]);
  tdict_context_destroy(context);
  return 0;
}
