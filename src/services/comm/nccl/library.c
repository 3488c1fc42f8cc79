/* Implements the opening of NCCL, and the texts of NCCL's errors. The process owns the opened library. Thread-safe. */
#include "services/comm/nccl/library.h"

#include <dlfcn.h>
#include <string.h>

#include "core/base/error.h"

typedef struct entry {
  const char *symbol;
  size_t offset; /* offset of the function pointer in tdict_nccl_api */
} entry;

static const entry entries[] = {
#define ENTRY(field, symbol, parameters) {#symbol, offsetof(tdict_nccl_api, field)},
    TDICT_NCCL_ENTRIES(ENTRY)
#undef ENTRY
        {"ncclGetErrorString", offsetof(tdict_nccl_api, error_string)},
};

/* Stores a symbol in a function pointer. ISO C has no such cast, but POSIX gives both pointers one format. */
static void store_function(void *function, void *symbol) { memcpy(function, &symbol, sizeof symbol); }

/* Checks the version before other entries are looked up, so that an old library is reported as old. */
static tdict_status check_version(void *library, const char *path, tdict_nccl_api *api, tdict_error *err) {
  store_function(&api->get_version, dlsym(library, "ncclGetVersion"));
  if (!api->get_version) return tdict_fail(err, TDICT_ENOTSUP, "nccl: %.150s lacks ncclGetVersion", path);
  int code = api->get_version(&api->version);
  if (code != TDICT_NCCL_SUCCESS)
    return tdict_fail_native(err, TDICT_EDEVICE, code, "nccl: ncclGetVersion of %.150s returned %d", path, code);
  if (api->version < TDICT_NCCL_OLDEST)
    return tdict_fail(err, TDICT_ENOTSUP, "nccl: %.150s has version code %d, wanted %d or newer", path, api->version,
                      TDICT_NCCL_OLDEST);
  return TDICT_OK;
}

static tdict_status load_entries(void *library, const char *path, tdict_nccl_api *api, tdict_error *err) {
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
    void *symbol = dlsym(library, entries[i].symbol);
    if (!symbol) return tdict_fail(err, TDICT_ENOTSUP, "nccl: %.150s lacks %s", path, entries[i].symbol);
    store_function((char *)api + entries[i].offset, symbol);
  }
  store_function(&api->last_error, dlsym(library, "ncclGetLastError"));
  return TDICT_OK;
}

tdict_status tdict_nccl_open(const char *path, tdict_nccl_api *out, tdict_error *err) {
  if (!path) path = "libnccl.so.2";
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    return tdict_fail(err, TDICT_ENOTSUP, "nccl: no NCCL library: %.200s", why ? why : path);
  }
  tdict_nccl_api api = {0};
  tdict_status status = check_version(library, path, &api, err);
  if (status == TDICT_OK) status = load_entries(library, path, &api, err);
  if (status != TDICT_OK) {
    dlclose(library);
    return status;
  }
  *out = api; /* The library stays open, because NCCL's threads may still run after the last communicator ends. */
  return TDICT_OK;
}

tdict_status tdict_nccl_check(const tdict_nccl_api *api, tdict_nccl_comm comm, tdict_nccl_result result,
                              const char *where, const char *call, tdict_error *err) {
  if (result == TDICT_NCCL_SUCCESS || result == TDICT_NCCL_IN_PROGRESS) return TDICT_OK;
  const char *text = api->error_string(result);
  const char *last = api->last_error ? api->last_error(comm) : NULL;
  if (!last) last = "";
  int line = (int)strcspn(last, "\n"); /* an error message is one line */
  const tdict_status status = result == TDICT_NCCL_REMOTE_ERROR ? TDICT_ELOST : TDICT_EDEVICE;
  return tdict_fail_native(err, status, result, "%s: %s returned %d, %s%s%.*s", where, call, result, text ? text : "?",
                           line > 0 ? ": " : "", line > 120 ? 120 : line, last);
}
