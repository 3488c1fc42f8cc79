/* Reads the directories of zip files. See zip.h for ownership and threads. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/array.h"
#include "core/base/error.h"
#include "core/leaves/json.h"
#include "services/io/zip/zip.h"

enum {
  END_BYTES = 22,       /* end of central directory, without the comment */
  LOCATOR_BYTES = 20,   /* position of the zip64 end */
  END64_BYTES = 56,     /* zip64 end of central directory */
  CENTRAL_BYTES = 46,   /* entry of the central directory, without name, extra fields and comment */
  LOCAL_BYTES = 30,     /* header before the bytes of an entry, without name and extra fields */
  MOST_COMMENT = 65535, /* maximum size of the archive's comment */
  CHECK_BYTES = 1 << 20
};
static const uint32_t end_mark = 0x06054b50, locator_mark = 0x07064b50, end64_mark = 0x06064b50,
                      central_mark = 0x02014b50, local_mark = 0x04034b50;
static const uint64_t most_directory = 1 << 28; /* maximum size of the central directory, which is read into memory */

/* The file that is read: file 0 of the contents. */
typedef struct reader {
  tdict_contents *contents;
  const char *path;
  uint64_t bytes;
} reader;

/* The position and the size of the central directory, and its number of entries. */
typedef struct directory {
  uint64_t offset, bytes, count;
  uint64_t end; /* the end of the directory: the position of the end record that follows */
} directory;

typedef struct bytes_left {
  const unsigned char *at;
  size_t count;
} bytes_left;

static uint64_t number(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int i = bytes - 1; i >= 0; i--) value = value << 8 | at[i];
  return value;
}

static tdict_status fail_format(const reader *r, tdict_error *err, const char *why) {
  return tdict_fail_at(err, TDICT_EFORMAT, r->path, "%s: the zip file is damaged: %s", r->contents->what, why);
}

static tdict_status fail_entry(const reader *r, const char *name, tdict_status status, tdict_error *err,
                               const char *why) {
  return tdict_fail_at(err, status, r->path, "%s: entry '%.120s': %s", r->contents->what, name, why);
}

static tdict_status read_at(const reader *r, uint64_t offset, void *to, size_t bytes, tdict_error *err) {
  return tdict_contents_read(r->contents, (tdict_span){0, offset, bytes}, to, err);
}

bool tdict_zip_is_zip(const tdict_contents *contents) {
  unsigned char mark[8];
  if (contents->files[0].bytes < END_BYTES) return false;
  if (tdict_contents_read(contents, (tdict_span){0, 0, sizeof mark}, mark, NULL) != TDICT_OK) return false;
  if (number(mark, 4) == end_mark) return true; /* an archive without entries */
  /* A safetensors file with a header of 67,324,752 bytes begins with the same mark, and then has four zeros. */
  return number(mark, 4) == local_mark && number(mark + 4, 4) != 0;
}

/* Reads the zip64 end of the directory. `end` is the position of the ordinary end. */
static tdict_status read_end64(const reader *r, uint64_t end, directory *out, tdict_error *err) {
  unsigned char locator[LOCATOR_BYTES], record[END64_BYTES];
  if (end < LOCATOR_BYTES + END64_BYTES) return fail_format(r, err, "no zip64 end of central directory");
  tdict_status status = read_at(r, end - LOCATOR_BYTES, locator, sizeof locator, err);
  if (status != TDICT_OK) return status;
  const uint64_t at = number(locator + 8, 8);
  if (number(locator, 4) != locator_mark || at > end - LOCATOR_BYTES - END64_BYTES)
    return fail_format(r, err, "no zip64 end of central directory");
  status = read_at(r, at, record, sizeof record, err);
  if (status != TDICT_OK) return status;
  if (number(record, 4) != end64_mark || number(record + 4, 8) < END64_BYTES - 12)
    return fail_format(r, err, "no zip64 end of central directory");
  out->count = number(record + 32, 8);
  out->bytes = number(record + 40, 8);
  out->offset = number(record + 48, 8);
  out->end = at;
  return TDICT_OK;
}

/* Finds the end record of the central directory: the last end mark whose comment ends at the end of the file. */
static tdict_status find_directory(const reader *r, directory *out, tdict_error *err) {
  const size_t most = END_BYTES + MOST_COMMENT;
  const size_t bytes = r->bytes < most ? (size_t)r->bytes : most;
  unsigned char *tail = malloc(bytes + 1);
  if (!tail) return tdict_fail_at(err, TDICT_ENOMEM, r->path, "%s: no host memory to read", r->contents->what);
  tdict_status status = read_at(r, r->bytes - bytes, tail, bytes, err);
  size_t at = bytes < END_BYTES ? 0 : bytes - END_BYTES + 1;
  while (at && !(number(tail + at - 1, 4) == end_mark && number(tail + at - 1 + 20, 2) == bytes - at + 1 - END_BYTES))
    at--;
  if (status == TDICT_OK && !at) status = fail_format(r, err, "no end of central directory");
  if (status == TDICT_OK) {
    const unsigned char *end = tail + at - 1;
    const bool is_split = number(end + 4, 2) != 0 && number(end + 4, 2) != 0xffff;
    out->end = r->bytes - bytes + at - 1;
    out->count = number(end + 10, 2);
    out->bytes = number(end + 12, 4);
    out->offset = number(end + 16, 4);
    if (is_split)
      status = tdict_fail_at(err, TDICT_ENOTSUP, r->path, "%s: the zip file is a part of a larger archive",
                             r->contents->what);
    else if (out->count == 0xffff || out->bytes == 0xffffffff || out->offset == 0xffffffff)
      status = read_end64(r, out->end, out, err);
  }
  free(tail);
  if (status != TDICT_OK) return status;
  if (out->offset > out->end || out->bytes != out->end - out->offset)
    return fail_format(r, err, "the central directory does not end where the end record begins");
  if (out->bytes > most_directory)
    return tdict_fail_at(err, TDICT_ENOTSUP, r->path,
                         "%s: the central directory has %" PRIu64 " bytes, wanted at most %" PRIu64, r->contents->what,
                         out->bytes, most_directory);
  if (out->count > out->bytes / CENTRAL_BYTES) return fail_format(r, err, "more entries than the directory can hold");
  return TDICT_OK;
}

/* Replaces each 32-bit field that is 0xffffffff by the number in the zip64 extra field, which has the numbers in the
 * order of `fields`. Returns false if a number is missing or an extra field is malformed. */
static bool read_extra64(const unsigned char *extra, size_t bytes, uint64_t *const *fields, int count) {
  bool is_needed = false;
  for (int i = 0; i < count; i++) is_needed = is_needed || *fields[i] == 0xffffffff;
  if (!is_needed) return true;
  for (size_t at = 0; bytes - at >= 4;) {
    const size_t size = (size_t)number(extra + at + 2, 2);
    if (size > bytes - at - 4) return false;
    if (number(extra + at, 2) != 1) {
      at += 4 + size;
      continue;
    }
    const unsigned char *from = extra + at + 4, *end = from + size;
    for (int i = 0; i < count; i++) {
      if (*fields[i] != 0xffffffff) continue;
      if (end - from < 8) return false;
      *fields[i] = number(from, 8);
      from += 8;
    }
    return true;
  }
  return false;
}

/* Checks the header before the bytes of an entry, and sets the position of the bytes. */
static tdict_status read_local(const reader *r, uint64_t at, uint64_t limit, tdict_zip_entry *entry, tdict_error *err) {
  unsigned char header[LOCAL_BYTES];
  char stored[256];
  const size_t length = strlen(entry->name);
  if (at > limit || limit - at < LOCAL_BYTES) return fail_entry(r, entry->name, TDICT_EFORMAT, err, "no header");
  tdict_status status = read_at(r, at, header, sizeof header, err);
  if (status != TDICT_OK) return status;
  if (number(header, 4) != local_mark || number(header + 26, 2) != length || number(header + 8, 2) != entry->method)
    return fail_entry(r, entry->name, TDICT_EFORMAT, err, "its header differs from the central directory");
  for (size_t i = 0; i < length && status == TDICT_OK; i += sizeof stored) {
    const size_t part = length - i < sizeof stored ? length - i : sizeof stored;
    if (part > limit - at - LOCAL_BYTES || i > limit - at - LOCAL_BYTES - part)
      return fail_entry(r, entry->name, TDICT_EFORMAT, err, "no header");
    status = read_at(r, at + LOCAL_BYTES + i, stored, part, err);
    if (status == TDICT_OK && memcmp(stored, entry->name + i, part) != 0)
      status = fail_entry(r, entry->name, TDICT_EFORMAT, err, "its header has another name");
  }
  if (status != TDICT_OK) return status;
  entry->span.offset = at + LOCAL_BYTES + length + number(header + 28, 2);
  if (entry->span.offset > limit || entry->span.bytes > limit - entry->span.offset)
    return fail_entry(r, entry->name, TDICT_EFORMAT, err, "its bytes end after the start of the central directory");
  return TDICT_OK;
}

static tdict_status copy_name(const reader *r, const unsigned char *name, size_t length, bool is_utf8,
                              tdict_zip_entry *entry, tdict_error *err) {
  tdict_status status = tdict_contents_copy_text(r->contents, (const char *)name, length, &entry->name, err);
  if (status != TDICT_OK) return status;
  bool is_ascii = true;
  for (size_t i = 0; i < length; i++) is_ascii = is_ascii && name[i] < 0x80;
  if (!length || memchr(name, 0, length))
    return fail_format(r, err, "an entry has an empty name, or a 0 byte in its name");
  /* Without the flag, the name is in an old code page. */
  if ((!is_utf8 && !is_ascii) || tdict_utf8_length(entry->name, length) != length)
    return fail_format(r, err, "the name of an entry is not UTF-8");
  return TDICT_OK;
}

/* Reads the first entry of *rest, of the central directory at position `limit`, and removes it from *rest. */
static tdict_status read_entry(const reader *r, uint64_t limit, bytes_left *rest, tdict_zip_entry *entry,
                               tdict_error *err) {
  const unsigned char *from = rest->at;
  const size_t left = rest->count;
  if (left < CENTRAL_BYTES || number(from, 4) != central_mark)
    return fail_format(r, err, "the central directory is shorter than its number of entries");
  const unsigned flags = (unsigned)number(from + 8, 2);
  const size_t name = (size_t)number(from + 28, 2), extra = (size_t)number(from + 30, 2);
  uint64_t packed = number(from + 20, 4), bytes = number(from + 24, 4), at = number(from + 42, 4);
  uint64_t *const fields[] = {&bytes, &packed, &at};
  const size_t used = CENTRAL_BYTES + name + extra + (size_t)number(from + 32, 2);
  if (used > left) return fail_format(r, err, "an entry reaches beyond the central directory");
  entry->crc = (uint32_t)number(from + 16, 4);
  entry->method = (uint16_t)number(from + 10, 2);
  tdict_status status = copy_name(r, from + CENTRAL_BYTES, name, flags & 0x800, entry, err);
  if (status != TDICT_OK) return status;
  if (!read_extra64(from + CENTRAL_BYTES + name, extra, fields, 3))
    return fail_entry(r, entry->name, TDICT_EFORMAT, err, "no zip64 sizes");
  if (flags & 1) return fail_entry(r, entry->name, TDICT_ENOTSUP, err, "the entry is encrypted");
  if (entry->method == TDICT_ZIP_STORED && packed != bytes)
    return fail_entry(r, entry->name, TDICT_EFORMAT, err, "its two sizes differ, but the entry is not compressed");
  entry->span = (tdict_span){0, 0, packed};
  *rest = (bytes_left){from + used, left - used};
  return read_local(r, at, limit, entry, err);
}

static int compare_names(const void *a, const void *b) {
  const tdict_zip_entry *x = *(const tdict_zip_entry *const *)a, *y = *(const tdict_zip_entry *const *)b;
  return strcmp(x->name, y->name);
}

static int compare_offsets(const void *a, const void *b) {
  const tdict_span x = (*(const tdict_zip_entry *const *)a)->span, y = (*(const tdict_zip_entry *const *)b)->span;
  if (x.offset != y.offset) return x.offset < y.offset ? -1 : 1;
  return x.bytes < y.bytes ? -1 : x.bytes > y.bytes;
}

/* Checks that all names differ and that no two entries share bytes. Sets zip->by_name. */
static tdict_status check_entries(const reader *r, tdict_zip *zip, tdict_error *err) {
  const tdict_zip_entry **sorted = tdict_array_sorted(zip->entries, zip->count, sizeof *zip->entries, compare_names);
  const size_t bytes = zip->count * sizeof *sorted;
  void *by_name;
  if (!sorted) return tdict_fail_memory(err, r->contents->what, r->path, "%zu entries", zip->count);
  tdict_status status = tdict_contents_alloc(r->contents, bytes, &by_name, err);
  if (status == TDICT_OK) zip->by_name = memcpy(by_name, (const void *)sorted, bytes);
  for (size_t i = 1; i < zip->count && status == TDICT_OK; i++)
    if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
      status = fail_entry(r, sorted[i]->name, TDICT_EFORMAT, err, "two entries have this name");
  qsort((void *)sorted, zip->count, sizeof *sorted, compare_offsets);
  for (size_t i = 1; i < zip->count && status == TDICT_OK; i++) {
    const tdict_span before = sorted[i - 1]->span;
    if (before.offset + before.bytes > sorted[i]->span.offset)
      status = fail_entry(r, sorted[i]->name, TDICT_EFORMAT, err, "its bytes overlap with another entry");
  }
  free((void *)sorted);
  return status;
}

static tdict_status read_entries(const reader *r, const directory *d, const unsigned char *bytes, tdict_zip *out,
                                 tdict_error *err) {
  void *memory = NULL;
  bytes_left rest = {bytes, (size_t)d->bytes};
  tdict_status status =
      tdict_contents_alloc(r->contents, ((size_t)d->count + 1) * sizeof(tdict_zip_entry), &memory, err);
  tdict_zip_entry *entries = memory;
  for (size_t i = 0; i < d->count && status == TDICT_OK; i++)
    status = read_entry(r, d->offset, &rest, &entries[i], err);
  if (status == TDICT_OK && rest.count) status = fail_format(r, err, "bytes after the last entry of the directory");
  *out = (tdict_zip){.entries = entries, .count = (size_t)d->count};
  return status == TDICT_OK ? check_entries(r, out, err) : status;
}

tdict_status tdict_zip_read(tdict_contents *contents, tdict_zip *out, tdict_error *err) {
  const reader r = {contents, contents->files[0].path, contents->files[0].bytes};
  directory d;
  tdict_status status = find_directory(&r, &d, err);
  if (status != TDICT_OK) return status;
  unsigned char *bytes = malloc((size_t)d.bytes + 1);
  if (!bytes) return tdict_fail_memory(err, contents->what, r.path, "%" PRIu64 " entries", d.count);
  status = read_at(&r, d.offset, bytes, (size_t)d.bytes, err);
  if (status == TDICT_OK) status = read_entries(&r, &d, bytes, out, err);
  free(bytes);
  return status;
}

const tdict_zip_entry *tdict_zip_find(const tdict_zip *zip, const char *name) {
  const tdict_zip_entry wanted = {.name = name}, *key = &wanted;
  const tdict_zip_entry *const *found =
      zip->count ? bsearch(&key, (const void *)zip->by_name, zip->count, sizeof key, compare_names) : NULL;
  return found ? *found : NULL;
}

tdict_status tdict_zip_check_stored(const tdict_contents *contents, const tdict_zip_entry *entry, tdict_error *err) {
  static const struct {
    uint16_t method;
    const char *name;
  } methods[] = {{8, "deflate"}, {9, "deflate64"}, {12, "bzip2"}, {14, "LZMA"}, {93, "Zstandard"}, {95, "XZ"}};
  const char *name = "an unknown method";
  if (entry->method == TDICT_ZIP_STORED) return TDICT_OK;
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (methods[i].method == entry->method) name = methods[i].name;
  return tdict_fail_at(err, TDICT_ENOTSUP, contents->files[entry->span.file].path,
                       "%s: entry '%.80s' is compressed with %s (method %u), wanted an entry without compression",
                       contents->what, entry->name, name, entry->method);
}

/* Reads all bytes of an entry through a buffer of CHECK_BYTES bytes, and compares the checksum. */
static tdict_status check_entry(const tdict_contents *contents, const tdict_zip_entry *entry,
                                const tdict_crc_tables *tables, void *buffer, tdict_error *err) {
  uint32_t crc = 0;
  for (uint64_t done = 0; done < entry->span.bytes;) {
    const uint64_t left = entry->span.bytes - done;
    const tdict_span part = {entry->span.file, entry->span.offset + done, left < CHECK_BYTES ? left : CHECK_BYTES};
    tdict_status status = tdict_contents_read(contents, part, buffer, err);
    if (status != TDICT_OK) return status;
    crc = tdict_crc_add(tables, crc, buffer, (size_t)part.bytes);
    done += part.bytes;
  }
  if (crc == entry->crc) return TDICT_OK;
  return tdict_fail_at(err, TDICT_EFORMAT, contents->files[entry->span.file].path,
                       "%s: entry '%.80s': the checksum of the bytes is %08" PRIx32 ", wanted %08" PRIx32,
                       contents->what, entry->name, crc, entry->crc);
}

tdict_status tdict_zip_check(const tdict_contents *contents, const tdict_zip *zip, tdict_error *err) {
  tdict_crc_tables tables;
  tdict_status status = TDICT_OK;
  void *buffer = malloc(CHECK_BYTES);
  if (!buffer) return tdict_fail_memory(err, contents->what, contents->path, "a buffer");
  tdict_crc_init(&tables);
  for (size_t i = 0; i < zip->count && status == TDICT_OK; i++)
    if (zip->entries[i].method == TDICT_ZIP_STORED)
      status = check_entry(contents, &zip->entries[i], &tables, buffer, err);
  free(buffer);
  return status;
}
