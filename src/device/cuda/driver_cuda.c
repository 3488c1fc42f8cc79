/* Implements the driver's table over NVIDIA's driver. This file opens libcuda.so.1 at run time, and looks up each entry
 * in the version that device/cuda/cuda_api.h names. The functions convert between the table's types and the driver's
 * types.
 *
 * A driver is one reference-counted struct. After the driver is opened, only its counts change. Thread rule: safe from
 * any thread, as libcuda is. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "device/cuda/cuda_api.h"
#include "device/driver.h"

typedef struct cuda_driver {
  tdict_driver base;
  tdict_cuda_api api;
} cuda_driver;

static const tdict_cuda_api *api_of(tdict_driver *d) { return &((cuda_driver *)(void *)d)->api; }
static tdict_cuda_address to_cuda_address(const void *device) { return (tdict_cuda_address)(uintptr_t)device; }
static void *from_cuda_address(tdict_cuda_address address) { return (void *)(uintptr_t)address; }

/* Does not unload libcuda: its threads and exit handlers would crash without their code. */
static void close_driver(tdict_driver *d) { free(d); }

static tdict_cu error_text(tdict_driver *d, tdict_cu result, const char **name, const char **text) {
  const char *found_name = NULL, *found_text = NULL;
  tdict_cu status = api_of(d)->error_name(result, &found_name);
  if (status == TDICT_CU_SUCCESS) status = api_of(d)->error_string(result, &found_text);
  *name = found_name ? found_name : "CUDA_ERROR_?";
  *text = found_text ? found_text : "unknown error code";
  return status;
}

static tdict_cu device_count(tdict_driver *d, int *count) { return api_of(d)->device_count(count); }

static tdict_cu device_name(tdict_driver *d, int ordinal, char *buffer, int bytes) {
  tdict_cuda_device device;
  tdict_cu result = api_of(d)->device_get(&device, ordinal);
  return result ? result : api_of(d)->device_name(buffer, bytes, device);
}

static tdict_cu device_attribute(tdict_driver *d, int ordinal, int attribute, int *value) {
  tdict_cuda_device device;
  tdict_cu result = api_of(d)->device_get(&device, ordinal);
  return result ? result : api_of(d)->device_attribute(value, attribute, device);
}

static tdict_cu device_can_reach(tdict_driver *d, int ordinal, int peer, int *can) {
  tdict_cuda_device device, other;
  tdict_cu result = api_of(d)->device_get(&device, ordinal);
  if (!result) result = api_of(d)->device_get(&other, peer);
  return result ? result : api_of(d)->device_can_reach(can, device, other);
}

static tdict_cu ctx_retain(tdict_driver *d, int ordinal, tdict_cu_context *out) {
  tdict_cuda_device device;
  tdict_cu result = api_of(d)->device_get(&device, ordinal);
  if (result) return result;
  tdict_cu_context context = NULL;
  result = api_of(d)->ctx_retain(&context, device);
  if (!result) *out = context;
  return result;
}

static tdict_cu ctx_release(tdict_driver *d, int ordinal) {
  tdict_cuda_device device;
  tdict_cu result = api_of(d)->device_get(&device, ordinal);
  return result ? result : api_of(d)->ctx_release(device);
}

static tdict_cu ctx_push(tdict_driver *d, tdict_cu_context context) { return api_of(d)->ctx_push(context); }

static tdict_cu ctx_pop(tdict_driver *d, tdict_cu_context *out) {
  tdict_cu_context context = NULL;
  tdict_cu result = api_of(d)->ctx_pop(&context);
  if (!result) *out = context;
  return result;
}

static tdict_cu ctx_current(tdict_driver *d, tdict_cu_context *out) {
  tdict_cu_context context = NULL;
  tdict_cu result = api_of(d)->ctx_current(&context);
  if (!result) *out = context;
  return result;
}

static tdict_cu ctx_allow_peer(tdict_driver *d, tdict_cu_context peer) { return api_of(d)->ctx_allow_peer(peer, 0); }
static tdict_cu capture_mode(tdict_driver *d, int *mode) { return api_of(d)->capture_mode(mode); }

static tdict_cu pool_create(tdict_driver *d, int ordinal, tdict_cu_pool *out) {
  struct tdict_cuda_pool_props props;
  memset(&props, 0, sizeof props);
  props.allocation = TDICT_CUDA_ALLOCATION_PINNED;
  props.handles = TDICT_CUDA_HANDLE_NONE;
  props.location.type = TDICT_CUDA_LOCATION_DEVICE;
  props.location.id = ordinal;
  tdict_cu_pool pool = NULL;
  tdict_cu result = api_of(d)->pool_create(&pool, &props);
  if (!result) *out = pool;
  return result;
}

static tdict_cu pool_destroy(tdict_driver *d, tdict_cu_pool pool) { return api_of(d)->pool_destroy(pool); }

static tdict_cu pool_trim(tdict_driver *d, tdict_cu_pool pool, size_t keep_bytes) {
  return api_of(d)->pool_trim(pool, keep_bytes);
}

static tdict_cu pool_set(tdict_driver *d, tdict_cu_pool pool, int attribute, uint64_t value) {
  int narrow = (int)value;
  return api_of(d)->pool_set(pool, attribute, attribute <= TDICT_CUDA_POOL_LAST_INT ? (void *)&narrow : (void *)&value);
}

static tdict_cu pool_get(tdict_driver *d, tdict_cu_pool pool, int attribute, uint64_t *value) {
  int narrow = 0;
  uint64_t wide = 0;
  bool is_int = attribute <= TDICT_CUDA_POOL_LAST_INT;
  tdict_cu result = api_of(d)->pool_get(pool, attribute, is_int ? (void *)&narrow : (void *)&wide);
  if (!result) *value = is_int ? (uint64_t)(unsigned)narrow : wide;
  return result;
}

static tdict_cu pool_allow_peer(tdict_driver *d, tdict_cu_pool pool, int ordinal) {
  struct tdict_cuda_access access;
  memset(&access, 0, sizeof access);
  access.location.type = TDICT_CUDA_LOCATION_DEVICE;
  access.location.id = ordinal;
  access.flags = TDICT_CUDA_ACCESS_READWRITE;
  return api_of(d)->pool_set_access(pool, &access, 1);
}

static tdict_cu mem_alloc_async(tdict_driver *d, void **out, size_t bytes, tdict_cu_pool pool, tdict_cu_stream stream) {
  tdict_cuda_address address = 0;
  tdict_cu result = api_of(d)->alloc_async(&address, bytes, pool, stream);
  if (!result) *out = from_cuda_address(address);
  return result;
}

static tdict_cu mem_free_async(tdict_driver *d, void *device, tdict_cu_stream stream) {
  return api_of(d)->free_async(to_cuda_address(device), stream);
}

static tdict_cu mem_alloc(tdict_driver *d, void **out, size_t bytes) {
  tdict_cuda_address address = 0;
  tdict_cu result = api_of(d)->alloc(&address, bytes);
  if (!result) *out = from_cuda_address(address);
  return result;
}

static tdict_cu mem_free(tdict_driver *d, void *device) { return api_of(d)->free(to_cuda_address(device)); }

static tdict_cu host_alloc(tdict_driver *d, void **out, size_t bytes, unsigned flags) {
  void *host = NULL;
  tdict_cu result = api_of(d)->host_alloc(&host, bytes, flags);
  if (!result) *out = host;
  return result;
}

static tdict_cu host_free(tdict_driver *d, void *host, size_t bytes) {
  (void)bytes; /* `bytes` is for wrappers that count bytes */
  return api_of(d)->host_free(host);
}

static tdict_cu host_register(tdict_driver *d, void *host, size_t bytes, unsigned flags) {
  return api_of(d)->host_register(host, bytes, flags);
}

static tdict_cu host_unregister(tdict_driver *d, void *host, size_t bytes) {
  (void)bytes; /* `bytes` is for wrappers that count bytes */
  return api_of(d)->host_unregister(host);
}

static tdict_cu pointer(tdict_driver *d, const void *address, tdict_cu_pointer *out) {
  int type = 0, ordinal = 0;
  tdict_cuda_address start = 0;
  size_t bytes = 0;
  int attributes[] = {TDICT_CUDA_POINTER_MEMORY_TYPE, TDICT_CUDA_POINTER_DEVICE_ORDINAL, TDICT_CUDA_POINTER_RANGE_START,
                      TDICT_CUDA_POINTER_RANGE_SIZE};
  void *values[] = {&type, &ordinal, &start, &bytes};
  /* cuPointerGetAttributes is used, because cuPointerGetAttribute fails for addresses that the driver does not know. */
  tdict_cu result = api_of(d)->pointer(4, attributes, values, to_cuda_address(address));
  if (result) return result;
  memset(out, 0, sizeof *out);
  if (type != TDICT_CUDA_MEMORY_HOST && type != TDICT_CUDA_MEMORY_DEVICE) return 0;
  out->known = true;
  out->device = type == TDICT_CUDA_MEMORY_DEVICE;
  out->ordinal = ordinal;
  out->range = from_cuda_address(start);
  out->range_bytes = bytes;
  return 0;
}

static tdict_cu copy_h2d_async(tdict_driver *d, void *device, const void *host, size_t bytes, tdict_cu_stream s) {
  return api_of(d)->h2d_async(to_cuda_address(device), host, bytes, s);
}

static tdict_cu copy_d2h_async(tdict_driver *d, void *host, const void *device, size_t bytes, tdict_cu_stream s) {
  return api_of(d)->d2h_async(host, to_cuda_address(device), bytes, s);
}

static tdict_cu copy_d2d_async(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  return api_of(d)->copy_async(to_cuda_address(dst), to_cuda_address(src), bytes, s);
}

static tdict_cu copy_peer_async(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_context to, tdict_cu_context from,
                                tdict_cu_stream s) {
  if (rect->height == 1 || (rect->dst_pitch == rect->width && rect->src_pitch == rect->width))
    return api_of(d)->peer_async(to_cuda_address(rect->dst), to, to_cuda_address(rect->src), from,
                                 rect->width * rect->height, s);
  struct tdict_cuda_peer_rect r;
  memset(&r, 0, sizeof r);
  r.src_type = r.dst_type = TDICT_CUDA_MEMORY_DEVICE;
  r.src_device = to_cuda_address(rect->src);
  r.src_context = from;
  r.src_pitch = rect->src_pitch;
  r.dst_device = to_cuda_address(rect->dst);
  r.dst_context = to;
  r.dst_pitch = rect->dst_pitch;
  r.width = rect->width;
  r.height = r.src_height = r.dst_height = rect->height;
  r.depth = 1;
  return api_of(d)->peer_rect_async(&r, s);
}

static tdict_cu copy_rect_async(tdict_driver *d, const tdict_cu_rect *rect, tdict_cu_stream s) {
  struct tdict_cuda_rect r;
  memset(&r, 0, sizeof r);
  if (rect->kind == TDICT_CU_H2D) {
    r.src_type = TDICT_CUDA_MEMORY_HOST;
    r.src_host = rect->src;
  } else {
    r.src_type = TDICT_CUDA_MEMORY_DEVICE;
    r.src_device = to_cuda_address(rect->src);
  }
  if (rect->kind == TDICT_CU_D2H) {
    r.dst_type = TDICT_CUDA_MEMORY_HOST;
    r.dst_host = rect->dst;
  } else {
    r.dst_type = TDICT_CUDA_MEMORY_DEVICE;
    r.dst_device = to_cuda_address(rect->dst);
  }
  r.src_pitch = rect->src_pitch;
  r.dst_pitch = rect->dst_pitch;
  r.width = rect->width;
  r.height = rect->height;
  return api_of(d)->rect_async(&r, s);
}

static tdict_cu copy_batch_async(tdict_driver *d, tdict_cu_kind kind, const tdict_cu_copy *lines, size_t count,
                                 tdict_cu_stream s) {
  tdict_cuda_address dsts[TDICT_CU_MOST_COPIES], srcs[TDICT_CU_MOST_COPIES];
  size_t sizes[TDICT_CU_MOST_COPIES], first = 0;
  (void)kind; /* the driver determines the direction from the addresses */
  if (!api_of(d)->batch_async) return TDICT_CU_NOT_SUPPORTED;
  if (count == 0 || count > TDICT_CU_MOST_COPIES) return TDICT_CU_INVALID_VALUE;
  for (size_t i = 0; i < count; i++) {
    dsts[i] = to_cuda_address(lines[i].dst);
    srcs[i] = to_cuda_address(lines[i].src);
    sizes[i] = lines[i].bytes;
  }
  struct tdict_cuda_copy_hints hints;
  memset(&hints, 0, sizeof hints);
  hints.order = TDICT_CUDA_ORDER_STREAM;
  return api_of(d)->batch_async(dsts, srcs, sizes, count, &hints, &first, 1, s);
}

static tdict_cu fill_async(tdict_driver *d, void *device, unsigned char byte, size_t bytes, tdict_cu_stream s) {
  return api_of(d)->fill_async(to_cuda_address(device), byte, bytes, s);
}

static tdict_cu module_load(tdict_driver *d, const char *image, tdict_cu_module *out) {
  const tdict_cuda_api *api = api_of(d);
  tdict_cu_module module = NULL;
  if (!api->module_load || !api->module_unload || !api->module_function || !api->launch) return TDICT_CU_NOT_SUPPORTED;
  tdict_cu result = api->module_load(&module, image);
  if (!result) *out = module;
  return result;
}

/* The next three functions need a module, which exists only if the driver has all entries for launches. */
static tdict_cu module_unload(tdict_driver *d, tdict_cu_module module) { return api_of(d)->module_unload(module); }

static tdict_cu module_function(tdict_driver *d, tdict_cu_module module, const char *name, tdict_cu_function *out) {
  tdict_cu_function function = NULL;
  tdict_cu result = api_of(d)->module_function(&function, module, name);
  if (!result) *out = function;
  return result;
}

static tdict_cu launch(tdict_driver *d, const tdict_cu_launch *launch, tdict_cu_stream s) {
  size_t bytes = launch->params_bytes;
  void *params = (void *)(uintptr_t)launch->params; /* only read */
  void *extra[] = {(void *)TDICT_CUDA_LAUNCH_BUFFER, params, (void *)TDICT_CUDA_LAUNCH_BYTES, &bytes,
                   (void *)TDICT_CUDA_LAUNCH_END};
  return api_of(d)->launch(launch->function, launch->blocks, 1, 1, launch->threads, 1, 1, 0, s, NULL, extra);
}

static tdict_cu stream_create(tdict_driver *d, tdict_cu_stream *out, unsigned flags) {
  tdict_cu_stream stream = NULL;
  tdict_cu result = api_of(d)->stream_create(&stream, flags);
  if (!result) *out = stream;
  return result;
}

static tdict_cu stream_destroy(tdict_driver *d, tdict_cu_stream s) { return api_of(d)->stream_destroy(s); }
static tdict_cu stream_query(tdict_driver *d, tdict_cu_stream s) { return api_of(d)->stream_query(s); }
static tdict_cu stream_synchronize(tdict_driver *d, tdict_cu_stream s) { return api_of(d)->stream_synchronize(s); }

static tdict_cu stream_wait_event(tdict_driver *d, tdict_cu_stream s, tdict_cu_event e) {
  return api_of(d)->stream_wait_event(s, e, 0);
}

static tdict_cu stream_capture_status(tdict_driver *d, tdict_cu_stream s, int *status) {
  return api_of(d)->stream_is_capturing(s, status);
}

static tdict_cu event_create(tdict_driver *d, tdict_cu_event *out, unsigned flags) {
  tdict_cu_event event = NULL;
  tdict_cu result = api_of(d)->event_create(&event, flags);
  if (!result) *out = event;
  return result;
}

static tdict_cu event_destroy(tdict_driver *d, tdict_cu_event e) { return api_of(d)->event_destroy(e); }

static tdict_cu event_record(tdict_driver *d, tdict_cu_event e, tdict_cu_stream s) {
  return api_of(d)->event_record(e, s);
}

static tdict_cu event_query(tdict_driver *d, tdict_cu_event e) { return api_of(d)->event_query(e); }
static tdict_cu event_synchronize(tdict_driver *d, tdict_cu_event e) { return api_of(d)->event_synchronize(e); }

static tdict_cu event_elapsed(tdict_driver *d, float *milliseconds, tdict_cu_event from, tdict_cu_event to) {
  return api_of(d)->event_elapsed(milliseconds, from, to);
}

#define FILL(entry) .entry = entry,
static const tdict_driver_ops cuda_ops = {.close = close_driver, TDICT_DRIVER_ENTRIES(FILL)};
#undef FILL

/* Stores a symbol in a function pointer. ISO C has no such cast, but POSIX gives both pointers one format. */
static void store_function(void *function, void *symbol) { memcpy(function, &symbol, sizeof symbol); }

typedef struct entry {
  const char *name, *symbol;
  int version;
  size_t offset; /* offset of the function pointer in tdict_cuda_api */
} entry;

static const entry entries[] = {
#define ENTRY(field, name, version, symbol, parameters) {#name, #symbol, version, offsetof(tdict_cuda_api, field)},
    TDICT_CUDA_ENTRIES(ENTRY)};
static const entry optional_entries[] = {TDICT_CUDA_LAUNCH_ENTRIES(ENTRY) TDICT_CUDA_NEWER_ENTRIES(ENTRY)};
#undef ENTRY

/* Looks up a function by cuGetProcAddress or, if that is missing, as an exported symbol. NULL: the driver lacks it. */
static void *find_entry(void *library, tdict_cuda_lookup_fn *lookup, const entry *e, tdict_cu *code) {
  void *symbol = NULL;
  tdict_cuda_lookup_result found = TDICT_CUDA_LOOKUP_NOT_FOUND;
  *code = 0;
  if (!lookup) return dlsym(library, e->symbol);
  *code = lookup(e->name, &symbol, e->version, TDICT_CUDA_LOOKUP_LEGACY_STREAM, &found);
  return *code || found != TDICT_CUDA_LOOKUP_SUCCESS ? NULL : symbol;
}

/* Fills the table. The pointers of optional entries may be NULL; without any other entry, it fails. */
static tdict_status load_entries(void *library, int version, tdict_cuda_api *api, tdict_error *err) {
  tdict_cuda_lookup_fn *lookup = NULL;
  tdict_cu code;
  store_function(&lookup, dlsym(library, "cuGetProcAddress_v2"));
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
    const entry *e = &entries[i];
    void *symbol = find_entry(library, lookup, e, &code);
    if (!symbol)
      return tdict_fail_native(err, TDICT_ENODEVICE, code, "the NVIDIA driver (libcuda.so.1) lacks %s of CUDA %d.%d",
                               e->name, e->version / 1000, e->version % 1000 / 10);
    store_function((char *)api + e->offset, symbol);
  }
  for (size_t i = 0; i < sizeof optional_entries / sizeof optional_entries[0]; i++) {
    const entry *e = &optional_entries[i];
    void *symbol = version >= e->version ? find_entry(library, lookup, e, &code) : NULL;
    if (symbol) store_function((char *)api + e->offset, symbol);
  }
  return TDICT_OK;
}

/* Checks the version before any entry is looked up, so that an old driver is reported as old, not as incomplete. */
static tdict_status check_version(void *library, int *out, tdict_error *err) {
  tdict_cuda_driver_version_fn *driver_version = NULL;
  store_function(&driver_version, dlsym(library, "cuDriverGetVersion"));
  if (!driver_version)
    return tdict_fail(err, TDICT_ENODEVICE, "libcuda.so.1 is not the NVIDIA driver: it lacks cuDriverGetVersion");
  int version = 0;
  tdict_cu code = driver_version(&version);
  if (code)
    return tdict_fail_native(err, TDICT_ENODEVICE, code,
                             "the NVIDIA driver does not report its version (CUDA error %d)", code);
  if (version < TDICT_CUDA_OLDEST_DRIVER)
    return tdict_fail(err, TDICT_ENODEVICE, "the NVIDIA driver is for CUDA %d.%d, wanted %d.0 or newer", version / 1000,
                      version % 1000 / 10, TDICT_CUDA_OLDEST_DRIVER / 1000);
  *out = version;
  return TDICT_OK;
}

static tdict_status check_devices(cuda_driver *c, tdict_error *err) {
  int count = 0;
  const char *call = "cuInit";
  tdict_cu code = c->api.init(0);
  if (!code) {
    call = "cuDeviceGetCount";
    code = c->api.device_count(&count);
  }
  if (code) {
    const char *name, *text;
    error_text(&c->base, code, &name, &text);
    return tdict_fail_native(err, TDICT_ENODEVICE, code, "no usable GPU: %s returned %s (%s)", call, name, text);
  }
  if (count < 1) return tdict_fail_native(err, TDICT_ENODEVICE, TDICT_CU_NO_DEVICE, "the NVIDIA driver finds no GPU");
  return TDICT_OK;
}

tdict_status tdict_driver_cuda_open(tdict_driver **out, tdict_error *err) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    return tdict_fail(err, TDICT_ENODEVICE, "no NVIDIA driver: %.200s", why ? why : "libcuda.so.1 does not open");
  }
  int version = 0;
  tdict_status status = check_version(library, &version, err);
  if (status != TDICT_OK) return status;
  cuda_driver *c = calloc(1, sizeof *c);
  if (!c) return tdict_fail(err, TDICT_ENOMEM, "no host memory for the CUDA driver's table");
  c->base.ops = &cuda_ops;
  c->base.device_type = TDICT_DEVICE_CUDA;
  atomic_init(&c->base.refs, 1);
  status = load_entries(library, version, &c->api, err);
  if (status == TDICT_OK) status = check_devices(c, err);
  if (status != TDICT_OK) {
    free(c);
    return status;
  }
  *out = &c->base;
  return TDICT_OK;
}
