/* Sizes and names of element types, and devices as text. The functions keep no state. Thread-safe. */
#include <stdio.h>
#include <string.h>

#include "core/base/device.h"
#include "core/base/error.h"
#include "tdict/values.h"

/* Returns the name of a dtype, of one lane also for several, or NULL for an unknown one. Operations call this often,
 * and a switch is faster than a search in a table. */
static const char *find_dtype_name(tdict_dtype dtype) {
  if (dtype >> 16 == 0) return NULL;
  switch ((dtype & 0xffffu) | 1u << 16) {
  case TDICT_I8:
    return "int8";
  case TDICT_I16:
    return "int16";
  case TDICT_I32:
    return "int32";
  case TDICT_I64:
    return "int64";
  case TDICT_U8:
    return "uint8";
  case TDICT_U16:
    return "uint16";
  case TDICT_U32:
    return "uint32";
  case TDICT_U64:
    return "uint64";
  case TDICT_F16:
    return "float16";
  case TDICT_F32:
    return "float32";
  case TDICT_F64:
    return "float64";
  case TDICT_BF16:
    return "bfloat16";
  case TDICT_C64:
    return "complex64";
  case TDICT_C128:
    return "complex128";
  case TDICT_BOOL:
    return "bool";
  case TDICT_F8E4M3:
    return "float8_e4m3fn";
  case TDICT_F8E5M2:
    return "float8_e5m2";
  default:
    return NULL;
  }
}

size_t tdict_dtype_bytes(tdict_dtype dtype) {
  return find_dtype_name(dtype) ? (size_t)(dtype >> 8 & 0xffu) / 8 * (dtype >> 16) : 0;
}

const char *tdict_dtype_name(tdict_dtype dtype) {
  const char *name = find_dtype_name(dtype);
  return name ? name : "unknown";
}

char *tdict_dtype_format(tdict_dtype dtype, char *buffer, size_t bytes) {
  const unsigned lanes = (unsigned)(dtype >> 16);
  if (bytes == 0) return buffer;
  if (lanes == 1)
    snprintf(buffer, bytes, "%s", tdict_dtype_name(dtype));
  else
    snprintf(buffer, bytes, "%s x %u", tdict_dtype_name(dtype), lanes);
  return buffer;
}

static tdict_device make_device(int32_t type, int index) {
  tdict_device d = {type, index};
  return d;
}
tdict_device tdict_cpu(void) { return make_device(TDICT_DEVICE_CPU, 0); }
tdict_device tdict_cuda(int index) { return make_device(TDICT_DEVICE_CUDA, index); }
tdict_device tdict_sim(int index) { return make_device(TDICT_DEVICE_SIM, index); }
bool tdict_device_equal(tdict_device a, tdict_device b) { return a.type == b.type && a.index == b.index; }

static const struct {
  const char *name;
  int32_t type;
  bool indexed;
} device_types[] = {{"auto", TDICT_DEVICE_AUTO, false},
                    {"cpu", TDICT_DEVICE_CPU, false},
                    {"cuda", TDICT_DEVICE_CUDA, true},
                    {"sim", TDICT_DEVICE_SIM, true}};
#define NUM_DEVICE_TYPES (sizeof device_types / sizeof *device_types)

/* Parses what follows the name of a device, such as ":12": 0 for nothing, -1 for other than one to four digits. */
static int parse_device_index(const char *text) {
  if (!*text) return 0;
  if (*text++ != ':' || !*text || strlen(text) > 4) return -1;
  int index = 0;
  for (; *text; text++) {
    if (*text < '0' || *text > '9') return -1;
    index = index * 10 + (*text - '0');
  }
  return index;
}

tdict_status tdict_device_parse(const char *text, tdict_device *out, tdict_error *err) {
  if (!text || !out) return tdict_fail_null(err, "device", text ? "out" : "text");
  for (size_t i = 0; i < NUM_DEVICE_TYPES; i++) {
    size_t length = strlen(device_types[i].name);
    if (strncmp(text, device_types[i].name, length) != 0) continue;
    int index = parse_device_index(text + length);
    if (index < 0 || (text[length] && !device_types[i].indexed)) break;
    *out = make_device(device_types[i].type, index);
    return TDICT_OK;
  }
  return tdict_fail(err, TDICT_EINVAL, "device: '%.40s' is none of auto, cpu, cuda, cuda:N, sim, sim:N", text);
}

tdict_status tdict_device_check(tdict_device device, const char *what, tdict_error *err) {
  if (device.type <= TDICT_DEVICE_AUTO || device.index < 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: %s cannot hold memory", what, TDICT_DEVICE_TEXT(device));
  if (device.type == TDICT_DEVICE_CPU && device.index != 0)
    return tdict_fail(err, TDICT_EINVAL, "%s: cpu:%d cannot hold memory, wanted cpu:0", what, (int)device.index);
  return TDICT_OK;
}

tdict_status tdict_stream_check_device(tdict_stream stream, const char *what, tdict_error *err) {
  if (tdict_has_stream(stream) || !stream.handle) return TDICT_OK;
  return tdict_fail(err, TDICT_EINVAL, "%s: the stream has a handle but no device, wanted a device such as cuda:0",
                    what);
}

char *tdict_device_format(tdict_device device, char *buffer, size_t bytes) {
  const char *name = NULL;
  bool indexed = true;
  for (size_t i = 0; i < NUM_DEVICE_TYPES; i++)
    if (device_types[i].type == device.type) name = device_types[i].name, indexed = device_types[i].indexed;
  if (bytes == 0) return buffer;
  if (name && !indexed)
    snprintf(buffer, bytes, "%s", name);
  else if (name)
    snprintf(buffer, bytes, "%s:%d", name, (int)device.index);
  else
    snprintf(buffer, bytes, "device type %d:%d", (int)device.type, (int)device.index);
  return buffer;
}
