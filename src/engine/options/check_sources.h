/* Declares the functions of the option check_sources, which hash the sources before and after the copies. The transfer
 * owns the hashes. Thread rule: the thread that launches the transfer calls tdict_check_sources_before(). The thread
 * that ends the transfer calls tdict_check_sources_after(). */
#ifndef TDICT_ENGINE_OPTIONS_CHECK_SOURCES_H
#define TDICT_ENGINE_OPTIONS_CHECK_SOURCES_H

#include "engine/transfer.h"

/* Allocates the hashes. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_check_sources_prepare(tdict_transfer *transfer, tdict_error *err);
/* Hashes every source whose bytes are in host memory. Call when the transfer is launched, because earlier transfers may
 * write the sources before the launch. */
void tdict_check_sources_before(tdict_transfer *transfer);
/* Hashes the sources again, and fails the transfer with TDICT_ECHANGED if a hash has changed. Does nothing if the
 * transfer has failed already. */
void tdict_check_sources_after(tdict_transfer *transfer);

#endif
