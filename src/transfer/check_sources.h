/* The option check_sources: hashes of the sources before and after the copies. The transfer owns the hashes.
 * Thread rule: the thread that launches the transfer calls before, its last worker after. */
#ifndef TDICT_TRANSFER_CHECK_SOURCES_H
#define TDICT_TRANSFER_CHECK_SOURCES_H

#include "transfer/job.h"

/* Has the sources checked. TDICT_ENOMEM. */
tdict_status tdict_check_sources_prepare(tdict_future *transfer, tdict_error *err);
/* Hashes every host source of the plan. Called at the launch: earlier transfers may write the sources until then. */
void tdict_check_sources_before(tdict_future *transfer);
/* Fails the transfer with TDICT_ECHANGED when a source is not as it was. */
void tdict_check_sources_after(tdict_future *transfer);

#endif
