/* The option check_sources: hashes, which the transfer owns, before and after the copies. Thread rule: the launching
 * thread calls _before(), and the ending thread _after(). */
#ifndef TDICT_ENGINE_OPTIONS_CHECK_SOURCES_H
#define TDICT_ENGINE_OPTIONS_CHECK_SOURCES_H

#include "engine/transfer.h"

/* Allocates the hashes. Returns TDICT_ENOMEM. */
tdict_status tdict_check_sources_prepare(tdict_transfer *transfer, tdict_error *err);
/* Hashes every source in host memory, at the launch: until then earlier transfers may write them. */
void tdict_check_sources_before(tdict_transfer *transfer);
/* Hashes again, and fails the transfer with TDICT_ECHANGED for a changed hash, unless it has failed. */
void tdict_check_sources_after(tdict_transfer *transfer);

#endif
