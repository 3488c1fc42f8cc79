/* Computes CRC-32 with the polynomial of zip files, eight bytes in each step. See crc.h for threads. */
#include "services/io/zip/crc.h"

#include <string.h>

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
