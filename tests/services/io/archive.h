/* Makes zip files byte by byte, so that tests can corrupt each field. Thread rule: one thread. */
#ifndef TDICT_TESTS_SERVICES_IO_ARCHIVE_H
#define TDICT_TESTS_SERVICES_IO_ARCHIVE_H

#include <stdint.h>
#include <string.h>

/* A file in memory. */
typedef struct image {
  unsigned char bytes[1 << 17];
  size_t count;
  size_t local[8], data[8], central[8], entries, directory, end; /* offsets of the parts */
} image;

static inline void put(image *m, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) m->bytes[m->count++] = (unsigned char)(i < 8 ? value >> 8 * i : 0);
}
static inline void put_bytes(image *m, const void *from, size_t count) {
  memcpy(m->bytes + m->count, from, count);
  m->count += count;
}
static inline void set(image *m, size_t at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) m->bytes[at + (size_t)i] = (unsigned char)(value >> 8 * i);
}

/* Computes the CRC-32 bit by bit. */
static inline uint32_t slow_crc(const unsigned char *bytes, size_t count) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < count; i++) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
  }
  return ~crc;
}

/* Adds an entry: its local header and its bytes. */
static inline void put_entry(image *m, const char *name, const void *bytes, size_t count) {
  const size_t i = m->entries++;
  m->local[i] = m->count;
  put(m, 0x04034b50, 4);
  put(m, 20, 2);
  put(m, 0, 8); /* flags, method, time, date */
  put(m, slow_crc(bytes, count), 4);
  put(m, count, 4);
  put(m, count, 4);
  put(m, strlen(name), 2);
  put(m, 0, 2);
  put_bytes(m, name, strlen(name));
  m->data[i] = m->count;
  put_bytes(m, bytes, count);
}

/* Adds the central directory and the end record. */
static inline void put_directory(image *m) {
  m->directory = m->count;
  for (size_t i = 0; i < m->entries; i++) {
    const unsigned char *local = m->bytes + m->local[i];
    const size_t name = m->data[i] - m->local[i] - 30;
    m->central[i] = m->count;
    put(m, 0x02014b50, 4);
    put(m, 20, 2);
    put_bytes(m, local + 4, 26);
    put(m, 0, 10); /* comment length, disk number, attributes */
    put(m, m->local[i], 4);
    put_bytes(m, local + 30, name);
  }
  m->end = m->count;
  put(m, 0x06054b50, 4);
  put(m, 0, 4);
  put(m, m->entries, 2);
  put(m, m->entries, 2);
  put(m, m->end - m->directory, 4);
  put(m, m->directory, 4);
  put(m, 0, 2);
}

/* Writes a .npy file of version 1.0 to `out`. Returns the number of bytes. */
static inline size_t make_npy(unsigned char *out, const char *literal, const void *data, size_t bytes) {
  const size_t length = strlen(literal);
  memcpy(out, "\x93NUMPY\x01\x00", 8);
  out[8] = (unsigned char)length;
  out[9] = (unsigned char)(length >> 8);
  memcpy(out + 10, literal, length);
  if (bytes) memcpy(out + 10 + length, data, bytes);
  return 10 + length + bytes;
}

#endif
