/* MurmurHash3_x64_128 by Austin Appleby (public domain), with the same result on all machines. Thread-safe. */
#ifndef TDICT_CORE_SCHEMA_HASH128_H
#define TDICT_CORE_SCHEMA_HASH128_H

#include <stddef.h>

#include "tdict/schema.h"

tdict_hash128 tdict_hash128_of(const void *bytes, size_t count, uint32_t seed);

#endif
