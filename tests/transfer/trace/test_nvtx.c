/* Ranges for profilers: one that NVTX loads sees what the library does, each range ended on its own thread. */
#include "transfer/promise.h"

#include <dlfcn.h>
#include <libgen.h>

#include "support/things.h"
#include "transfer/trace/ranges.h"

static long number(void *library, const char *name, int i) {
  long (*function)(int) = NULL;
  void *found = dlsym(library, name);
  assert_non_null(found);
  memcpy(&function, &found, sizeof found);
  return function(i);
}

/* A profiler or compute-sanitizer has put itself into this process; some push ranges of their own. */
static bool another_tool_is_here(void) {
  char line[1024];
  bool found = getenv("CUDA_INJECTION64_PATH") != NULL;
  FILE *maps = fopen("/proc/self/maps", "r");
  assert_non_null(maps);
  while (!found && fgets(line, sizeof line, maps)) found = strstr(line, "Injection") != NULL;
  fclose(maps);
  return found;
}

GPU_CASE(ranges_reach_a_profiler) {
  char self[512] = "", path[600];
  assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
  snprintf(path, sizeof path, "%s/fake_nvtx.so", dirname(self));
  if (access(path, R_OK) != 0) td_skip("built without NVTX");
  if (another_tool_is_here()) {
    place tried =
        place_open(2); /* compute-sanitizer takes a program that never calls the driver for one that broke off */
    place_close(&tried);
    td_skip("another tool is loaded, which pushes ranges of its own");
  }
  setenv("NVTX_INJECTION64_PATH", path, 1); /* read at the first range */
  place p = place_open(2);
  tdict_tree *src = new_tree(), *out;
  td_ok(tdict_set_object(src, "thing", &thing_hooked, thing_create(new_bytes(4096, NULL), new_bytes(64, NULL)), err));
  give(src, "leaf", new_bytes(20 << 20, NULL));
  td_ok(tdict_to_device(p.c, src, p.device, NULL, &out, err));
  tdict_release(out);
  tdict_release(src);
  place_close(&p);
  void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(library);
  long all = 0;
  for (int i = 0; i < TDICT_RANGE_TRANSFER; i++) {
    long count = number(library, "fake_nvtx_pushes", i);
    if (count < 1) fail_msg("no range '%s'", tdict_range_name((tdict_range)i));
    all += count;
  }
  assert_int_equal(number(library, "fake_nvtx_strange", 0), 0);
  assert_int_equal(number(library, "fake_nvtx_pops", 0), all);
  dlclose(library);
}
