/* Runs tdict-bench comm with the simulated NCCL of tests/services/comm/nccl, on simulated devices.
 * Usage: comm_test FAKE_NCCL [OPTION...]. Thread rule: main thread only. */
#include <dlfcn.h>
#include <stdio.h>

#include "rows.h"
#include "services/comm/nccl/fake_nccl.h"
#include "tdict/sim.h"

/* Returns the device number of the calling thread: 0, because each rank has its own context with one device. */
static int device_of_thread(void) { return 0; }

int main(int argc, char **argv) {
  char library[4096];
  void *fake = argc > 1 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
  fake_nccl_settings *settings = fake ? (fake_nccl_settings *)dlsym(fake, "fake_nccl") : NULL;
  if (!settings) {
    fprintf(stderr, "comm_test: %s\n", argc > 1 ? dlerror() : "found no argument, wanted the path of fake_nccl.so");
    return BENCH_USAGE;
  }
  settings->launch = tdict_sim_launch;
  settings->host_pointer = tdict_sim_host_pointer;
  settings->device = device_of_thread;
  snprintf(library, sizeof library, "--library=%s", argv[1]);
  argv[1] = library;
  const int answer = comm_main(argc, argv);
  if (settings->comms != 0) {
    fprintf(stderr, "comm_test: %d communicators were neither destroyed nor aborted\n", settings->comms);
    return BENCH_FAILED;
  }
  return answer;
}
