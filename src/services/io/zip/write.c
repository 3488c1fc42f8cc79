/* Writes zip files without compression, with CRC-32 of eight bytes a step. See zip.h for ownership and threads. */
#include <string.h>

#include "core/base/error.h"
#include "services/io/zip/zip.h"
#include "tdict/view.h"

enum {
  LOCAL_BYTES = 30,
  EXTRA64_BYTES = 20, /* the zip64 extra field with two sizes */
  PAD_ID = 0x6474,    /* the extra field that TensorDict's archives use for padding */
  PAD_BYTES = 4,      /* the padding field without its zero bytes */
  VERSION = 45,       /* the first version with zip64 sizes */
  UNIX = 3 << 8,      /* the system that the attributes belong to */
  DATE = 0x21,        /* 1980-01-01, the first day of the format: the same tree gives the same bytes */
  UTF8 = 0x800,
  MOST_NAME = 65000
};
static const uint64_t most32 = 0xffffffff;

static const uint32_t polynomial = 0xedb88320u; /* bits reversed */

void tdict_crc_init(tdict_crc_tables *tables) {
  for (uint32_t b = 0; b < 256; b++) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; bit++) crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
    tables->row[0][b] = crc;
  }
  for (int k = 1; k < TDICT_CRC_TABLES; k++)
    for (int b = 0; b < 256; b++) {
      const uint32_t crc = tables->row[k - 1][b];
      tables->row[k][b] = crc >> 8 ^ tables->row[0][crc & 0xff];
    }
}

uint32_t tdict_crc_add(const tdict_crc_tables *tables, uint32_t crc, const void *data, size_t bytes) {
  const unsigned char *at = data;
  crc = ~crc;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    word ^= crc;
    crc = 0;
    for (int k = 0; k < 8; k++) crc ^= tables->row[7 - k][word >> 8 * k & 0xff];
  }
  for (; bytes; bytes--, at++) crc = crc >> 8 ^ tables->row[0][(crc ^ *at) & 0xff];
  return ~crc;
}

/* An archive that is written. */
typedef struct writer {
  tdict_output *to;
  tdict_io_text directory; /* the central directory */
  uint64_t count;
  tdict_crc_tables tables;
} writer;

/* What the headers of an entry say. */
typedef struct header {
  const char *name;
  uint64_t bytes;
  uint32_t crc, alignment;
} header;

static void add_number(tdict_io_text *text, uint64_t value, int bytes) {
  char out[8];
  for (int i = 0; i < bytes; i++) out[i] = (char)(value >> 8 * i & 0xff);
  tdict_io_text_add(text, out, (size_t)bytes);
}

static bool is_ascii(const char *name) {
  for (; *name; name++)
    if ((unsigned char)*name >= 0x80) return false;
  return true;
}

/* Adds the fields that are equal in the header of an entry and in the central directory. */
static void add_common(tdict_io_text *text, const header *entry, uint64_t packed, uint64_t bytes) {
  add_number(text, VERSION, 2);
  add_number(text, is_ascii(entry->name) ? 0 : UTF8, 2);
  add_number(text, TDICT_ZIP_STORED, 2);
  add_number(text, 0, 2); /* time */
  add_number(text, DATE, 2);
  add_number(text, entry->crc, 4);
  add_number(text, packed, 4);
  add_number(text, bytes, 4);
  add_number(text, strlen(entry->name), 2);
}

/* Returns the number of bytes of the padding field, or 0 if no padding is needed. */
static size_t pad_bytes(uint64_t data, uint32_t alignment) {
  if (!alignment || data % alignment == 0) return 0;
  const size_t rest = (size_t)((data + PAD_BYTES) % alignment);
  return PAD_BYTES + (rest ? alignment - rest : 0);
}

static void add_local(tdict_io_text *text, const header *entry, size_t pad) {
  static const char zeros[64] = {0};
  add_number(text, 0x04034b50, 4);
  add_common(text, entry, most32, most32);
  add_number(text, EXTRA64_BYTES + pad, 2);
  tdict_io_text_add_string(text, entry->name);
  if (pad) {
    add_number(text, PAD_ID, 2);
    add_number(text, pad - PAD_BYTES, 2);
    for (size_t left = pad - PAD_BYTES; left;) {
      const size_t part = left < sizeof zeros ? left : sizeof zeros;
      tdict_io_text_add(text, zeros, part);
      left -= part;
    }
  }
  add_number(text, 1, 2);
  add_number(text, EXTRA64_BYTES - 4, 2);
  add_number(text, entry->bytes, 8);
  add_number(text, entry->bytes, 8);
}

/* Adds the entry of the central directory. Numbers that do not fit 32 bits go to a zip64 field. */
static void add_central(tdict_io_text *text, const header *entry, uint64_t at) {
  const bool is_long = entry->bytes >= most32, is_far = at >= most32;
  const int numbers = 2 * is_long + is_far;
  add_number(text, 0x02014b50, 4);
  add_number(text, UNIX | VERSION, 2);
  add_common(text, entry, is_long ? most32 : entry->bytes, is_long ? most32 : entry->bytes);
  add_number(text, numbers ? 4 + 8 * (uint64_t)numbers : 0, 2);
  add_number(text, 0, 2); /* comment */
  add_number(text, 0, 2); /* disk */
  add_number(text, 0, 2); /* internal attributes */
  add_number(text, (uint64_t)0100644 << 16, 4);
  add_number(text, is_far ? most32 : at, 4);
  tdict_io_text_add_string(text, entry->name);
  if (!numbers) return;
  add_number(text, 1, 2);
  add_number(text, 8 * (uint64_t)numbers, 2);
  if (is_long) {
    add_number(text, entry->bytes, 8);
    add_number(text, entry->bytes, 8);
  }
  if (is_far) add_number(text, at, 8);
}

static tdict_status fail_memory(const writer *w, tdict_error *err) {
  const tdict_folder *folder = w->to->folder;
  return tdict_fail_memory(err, folder->what, folder->path, "the directory of the archive");
}

static tdict_status begin_entry(writer *w, const header *entry, tdict_error *err) {
  const tdict_folder *folder = w->to->folder;
  const uint64_t at = w->to->offset;
  const size_t length = strlen(entry->name);
  tdict_io_text text = {0};
  if (length > MOST_NAME)
    return tdict_fail_at(err, TDICT_ENOTSUP, folder->path, "%s: the name '%.60s...' has %zu bytes, wanted at most %d",
                         folder->what, entry->name, length, MOST_NAME);
  add_local(&text, entry, pad_bytes(at + LOCAL_BYTES + length + EXTRA64_BYTES, entry->alignment));
  add_central(&w->directory, entry, at);
  w->count++;
  tdict_status status = text.has_failed || w->directory.has_failed
                            ? fail_memory(w, err)
                            : tdict_output_write(w->to, text.bytes, text.length, err);
  tdict_io_text_reset(&text);
  return status;
}

static tdict_status add_entry(writer *w, const tdict_zip_new *entry, tdict_error *err) {
  header h = {entry->name, entry->length, tdict_crc_add(&w->tables, 0, entry->text, entry->length), entry->alignment};
  tdict_tensor *tensor = NULL;
  tdict_status status = entry->tensor ? tdict_tensor_contiguous(entry->tensor, &tensor, err) : TDICT_OK;
  if (status != TDICT_OK) return tdict_error_at(err, status, entry->tensor_name);
  const void *data = tensor ? tdict_tensor_const_data(tensor) : NULL;
  if (tensor) h.bytes += tdict_tensor_bytes(tensor);
  if (data) h.crc = tdict_crc_add(&w->tables, h.crc, data, tdict_tensor_bytes(tensor));
  status = begin_entry(w, &h, err);
  if (status == TDICT_OK) status = tdict_output_write(w->to, entry->text, entry->length, err);
  if (status == TDICT_OK && tensor) status = tdict_output_write_tensor(w->to, tensor, entry->tensor_name, err);
  tdict_tensor_release(tensor);
  return status;
}

/* Writes the central directory and the end record. */
static tdict_status write_directory(writer *w, tdict_error *err) {
  tdict_io_text *text = &w->directory;
  const uint64_t at = w->to->offset, bytes = text->length, count = w->count;
  if (count >= 0xffff || bytes >= most32 || at >= most32) {
    add_number(text, 0x06064b50, 4);
    add_number(text, 44, 8); /* bytes that follow in this record */
    add_number(text, UNIX | VERSION, 2);
    add_number(text, VERSION, 2);
    add_number(text, 0, 8); /* the numbers of two disks */
    add_number(text, count, 8);
    add_number(text, count, 8);
    add_number(text, bytes, 8);
    add_number(text, at, 8);
    add_number(text, 0x07064b50, 4);
    add_number(text, 0, 4);
    add_number(text, at + bytes, 8);
    add_number(text, 1, 4);
  }
  add_number(text, 0x06054b50, 4);
  add_number(text, 0, 4); /* the numbers of two disks */
  add_number(text, count < 0xffff ? count : 0xffff, 2);
  add_number(text, count < 0xffff ? count : 0xffff, 2);
  add_number(text, bytes < most32 ? bytes : most32, 4);
  add_number(text, at < most32 ? at : most32, 4);
  add_number(text, 0, 2); /* comment */
  return text->has_failed ? fail_memory(w, err) : tdict_output_write(w->to, text->bytes, text->length, err);
}

tdict_status tdict_zip_write(tdict_output *to, const tdict_zip_new *entries, size_t count, tdict_error *err) {
  writer w = {.to = to};
  tdict_status status = TDICT_OK;
  tdict_crc_init(&w.tables);
  for (size_t i = 0; i < count && status == TDICT_OK; i++) status = add_entry(&w, &entries[i], err);
  if (status == TDICT_OK) status = write_directory(&w, err);
  tdict_io_text_reset(&w.directory);
  return status;
}
