/* Names of dtypes and files in TensorDict's formats, and JSON as Python writes it. Thread-safe for different texts. */
#include <inttypes.h>
#include <string.h>

#include "core/tensor/layout.h"
#include "services/io/json/read.h"
#include "services/io/tensordict/tensordict.h"

static const struct {
  const char *name;
  tdict_dtype dtype;
} dtypes[] = {{"torch.bool", TDICT_BOOL},         {"torch.uint8", TDICT_U8},
              {"torch.int8", TDICT_I8},           {"torch.uint16", TDICT_U16},
              {"torch.int16", TDICT_I16},         {"torch.uint32", TDICT_U32},
              {"torch.int32", TDICT_I32},         {"torch.uint64", TDICT_U64},
              {"torch.int64", TDICT_I64},         {"torch.float16", TDICT_F16},
              {"torch.bfloat16", TDICT_BF16},     {"torch.float32", TDICT_F32},
              {"torch.float64", TDICT_F64},       {"torch.complex64", TDICT_C64},
              {"torch.complex128", TDICT_C128},   {"torch.float8_e4m3fn", TDICT_F8E4M3},
              {"torch.float8_e5m2", TDICT_F8E5M2}};
enum { NUM_DTYPES = sizeof dtypes / sizeof *dtypes };

const char *tdict_torch_name(tdict_dtype dtype) {
  for (int i = 0; i < NUM_DTYPES; i++)
    if (dtypes[i].dtype == dtype) return dtypes[i].name;
  return NULL;
}

tdict_status tdict_torch_dtype(const tdict_json_place *place, tdict_json name, tdict_dtype *out, tdict_error *err) {
  char text[48]; /* no dtype has a name that does not fit */
  if (!tdict_json_read_text(name, text, sizeof text)) return tdict_json_fail(place, err, "no text 'dtype'");
  for (int i = 0; i < NUM_DTYPES; i++) {
    if (strcmp(dtypes[i].name, text) != 0) continue;
    *out = dtypes[i].dtype;
    return TDICT_OK;
  }
  return tdict_json_refuse(place, err, "this library has no dtype %.40s", text);
}

tdict_status tdict_torch_layout(const tdict_json_place *place, tdict_json dtype, tdict_json sizes, tdict_item *item,
                                tdict_sizes *shape, tdict_error *err) {
  tdict_layout_size size;
  tdict_status status = tdict_torch_dtype(place, dtype, &item->dtype, err);
  if (status == TDICT_OK) status = tdict_json_sizes(place, "shape", sizes, TDICT_MAX_NDIM, shape, err);
  if (status != TDICT_OK) return status;
  if (tdict_layout_check(place->contents->what, item->dtype, shape->count, shape->at, &size, NULL) != TDICT_OK)
    return tdict_json_fail(place, err, "the bytes of the shape do not fit 63 bits");
  item->span.bytes = size.bytes;
  return TDICT_OK;
}

static bool is_forbidden(unsigned char c) { return c < 32 || c == 127 || strchr("/<>:\"|?*\\ %", c) != NULL; }

void tdict_td_add_name(tdict_io_text *text, const char *key) {
  if (!key[0]) tdict_io_text_add(text, "%", 1);
  if (strcmp(key, ".") == 0 || strcmp(key, "..") == 0) {
    for (; *key; key++) tdict_io_text_add(text, "%2E", 3);
    return;
  }
  for (; *key; key++) {
    if (is_forbidden((unsigned char)*key))
      tdict_io_text_format(text, "%%%02X", (unsigned char)*key);
    else
      tdict_io_text_add(text, key, 1);
  }
}

bool tdict_td_is_plain_name(const char *key) { return tdict_below_is_name(key) && !strchr(key, '\\'); }

void tdict_td_add_string(tdict_io_text *text, const char *string) {
  static const char escaped[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
  const unsigned char *at = (const unsigned char *)string;
  tdict_io_text_add(text, "\"", 1);
  while (*at) {
    const uint32_t code = (uint32_t)tdict_json_next_character(&at);
    const char *found = code < 128 ? strchr(escaped, (int)code) : NULL;
    const char plain = (char)code;
    if (found)
      tdict_io_text_format(text, "\\%c", letters[found - escaped]);
    else if (code >= 0x20 && code < 0x7f)
      tdict_io_text_add(text, &plain, 1);
    else if (code < 0x10000)
      tdict_io_text_format(text, "\\u%04" PRIx32, code);
    else
      tdict_io_text_format(text, "\\u%04" PRIx32 "\\u%04" PRIx32, 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
  }
  tdict_io_text_add(text, "\"", 1);
}

tdict_status tdict_td_add_value_json(tdict_io_text *text, const tdict_value *value, const char **why) {
  const bool is_text = value->kind == TDICT_VALUE_TEXT && strlen(value->text) == value->length;
  if (!is_text) return tdict_value_to_json(text, value, why);
  tdict_td_add_string(text, value->text);
  return TDICT_OK;
}
