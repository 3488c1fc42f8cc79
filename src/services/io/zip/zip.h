/* Reads and writes zip files without compression (method 0, "stored"), with zip64 sizes. The format is described by
 * PKWARE's APPNOTE.TXT 6.3. Thread rule: a struct is used by one thread at a time. */
#ifndef TDICT_SERVICES_IO_ZIP_ZIP_H
#define TDICT_SERVICES_IO_ZIP_ZIP_H

#include "services/io/contents/contents.h"
#include "services/io/output/output.h"
#include "services/io/text.h"

enum { TDICT_ZIP_STORED = 0 };

/* CRC-32, the checksum of zip files. */
enum { TDICT_CRC_TABLES = 8 };
/* row[k][b]: the CRC of the byte `b` followed by `k` zero bytes, without the inversions of the checksum */
typedef struct tdict_crc_tables {
  uint32_t row[TDICT_CRC_TABLES][256];
} tdict_crc_tables;
void tdict_crc_init(tdict_crc_tables *tables);
/* Returns the checksum of bytes whose checksum is `crc`, 0 for none, followed by the bytes at `data`. */
uint32_t tdict_crc_add(const tdict_crc_tables *tables, uint32_t crc, const void *data, size_t bytes);

typedef struct tdict_zip_entry {
  const char *name; /* UTF-8, at least one byte, without a 0 byte; the end is a slash for a folder */
  tdict_span span;  /* the bytes of the entry, as stored */
  uint32_t crc;     /* CRC-32 of the bytes before compression; only tdict_zip_check() checks this number */
  uint16_t method;  /* TDICT_ZIP_STORED, or a method of compression, such as 8 for deflate */
} tdict_zip_entry;

/* The entries in the order of the central directory. The contents own the memory. */
typedef struct tdict_zip {
  const tdict_zip_entry *entries;
  const tdict_zip_entry *const *by_name; /* the entries, sorted by name */
  size_t count;
} tdict_zip;

/* Returns true if file 0 begins as a zip file. Returns false if the file cannot be read. */
bool tdict_zip_is_zip(const tdict_contents *contents);
/* Reads the central directory of file 0, and the header of each entry. Returns TDICT_EFORMAT for wrong
 * positions or sizes, entries that overlap, two equal names, and names that are not UTF-8. Also returns TDICT_EFORMAT
 * if the directory and the header of an entry have different names or methods. Returns TDICT_ENOTSUP for archives of
 * several disks and for encrypted entries. Returns TDICT_EIO and TDICT_ENOMEM. */
tdict_status tdict_zip_read(tdict_contents *contents, tdict_zip *out, tdict_error *err);
/* Returns the entry with a name, or NULL. */
const tdict_zip_entry *tdict_zip_find(const tdict_zip *zip, const char *name);
/* Returns TDICT_ENOTSUP with the name of the method if an entry is compressed. */
tdict_status tdict_zip_check_stored(const tdict_contents *contents, const tdict_zip_entry *entry, tdict_error *err);
/* Reads all bytes of all stored entries. Skips compressed entries, whose checksum is that of the bytes before
 * compression. Returns TDICT_EFORMAT with the entry's name for a wrong checksum, TDICT_EIO and TDICT_ENOMEM. */
tdict_status tdict_zip_check(const tdict_contents *contents, const tdict_zip *zip, tdict_error *err);

/* An entry to write: bytes, and then the elements of a tensor in C order. */
typedef struct tdict_zip_new {
  const char *name;
  const char *text; /* `length` bytes */
  size_t length;
  const tdict_tensor *tensor; /* in host memory; NULL: none. A strided tensor is copied first, for the checksum */
  const char *tensor_name;    /* for messages */
  uint32_t alignment; /* the position of the first byte in the file is a multiple of this number; 0: any position */
} tdict_zip_new;
/* Writes an archive. TDICT_ENOTSUP: a name of more than 65,000 bytes. Other errors: tdict_output_write_tensor(). */
tdict_status tdict_zip_write(tdict_output *to, const tdict_zip_new *entries, size_t count, tdict_error *err);

#endif
