/* A stand-in for a profiler: NVTX loads it where NVTX_INJECTION64_PATH says, and hands it its function tables. It counts the
 * ranges. Thread rule: ranges come from any thread; counts are read when none is under way. */
#include <nvtx3/nvToolsExt.h>
#include <stdatomic.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

static const char *const names[] = {"tdict plan", "tdict copy", "tdict submit", "tdict wait", "tdict hook"};
enum { NAMES = sizeof names / sizeof names[0] };
static atomic_long pushes[NAMES], strange, pops;

static int NVTX_API push(const char *name) {
  for (int i = 0; i < NAMES; i++)
    if (strcmp(name, names[i]) == 0) return (int)atomic_fetch_add(&pushes[i], 1);
  return (int)atomic_fetch_add(&strange, 1);
}
static int NVTX_API pop(void) { return (int)atomic_fetch_add(&pops, 1); }

EXPORTED long fake_nvtx_pushes(int i);
EXPORTED long fake_nvtx_strange(void);
EXPORTED long fake_nvtx_pops(void);
EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

long fake_nvtx_pushes(int i) { return i < NAMES ? atomic_load(&pushes[i]) : -1; }
long fake_nvtx_strange(void) { return atomic_load(&strange); }
long fake_nvtx_pops(void) { return atomic_load(&pops); }

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table) {
  const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned size = 0;
  if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) return 0;
  *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
  return 1;
}
