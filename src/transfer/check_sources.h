/* Declares the option check_sources, which hashes the sources before and after the copies. The transfer owns the
 * hashes. Thread rule: the thread that launches the transfer calls tdict_check_sources_before(). The last worker calls
 * tdict_check_sources_after(). */
#ifndef TDICT_TRANSFER_CHECK_SOURCES_H
#define TDICT_TRANSFER_CHECK_SOURCES_H

#include "transfer/job.h"

/* Allocates the hashes. Returns TDICT_ENOMEM if host memory is exhausted. */
tdict_status tdict_check_sources_prepare(tdict_future *transfer, tdict_error *err);
/* Hashes every leaf of the host sources. Call when the transfer is launched, because earlier transfers may write the
 * sources before that. */
void tdict_check_sources_before(tdict_future *transfer);
/* Fails the transfer with TDICT_ECHANGED if a source has changed. */
void tdict_check_sources_after(tdict_future *transfer);

#endif
