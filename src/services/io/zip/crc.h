/* Computes CRC-32, the checksum of zip files. The tables are owned by the caller. Thread-safe. */
#ifndef TDICT_SERVICES_IO_ZIP_CRC_H
#define TDICT_SERVICES_IO_ZIP_CRC_H

#include <stddef.h>
#include <stdint.h>

enum { TDICT_CRC_TABLES = 8 };
/* row[k][b]: the CRC of the byte `b` followed by `k` zero bytes, without the inversions of the checksum */
typedef struct tdict_crc_tables {
  uint32_t row[TDICT_CRC_TABLES][256];
} tdict_crc_tables;
void tdict_crc_init(tdict_crc_tables *tables);
/* Returns the checksum of the bytes before `data` together with the bytes at `data`. `crc` is the checksum of the bytes
 * before `data`. The checksum of no bytes is 0. */
uint32_t tdict_crc_add(const tdict_crc_tables *tables, uint32_t crc, const void *data, size_t bytes);

#endif
