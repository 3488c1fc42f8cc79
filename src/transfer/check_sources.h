/* check_sources: hashes of the sources before and after. Called by whoever lets the transfer's turn begin, and by the last
 * worker. */
#ifndef TDICT_TRANSFER_CHECK_SOURCES_H
#define TDICT_TRANSFER_CHECK_SOURCES_H

#include "transfer/engine.h"

/* Sources are to be checked. TDICT_ENOMEM. */
tdict_status tdict_check_sources_prepare(tdict_future *transfer, tdict_error *err);
/* Hashes every host source of the plan, once its turn has come: earlier transfers may write them until then. */
void tdict_check_sources_before(tdict_future *transfer);
/* Fails the transfer with TDICT_ECHANGED when a source is not as it was; does nothing when none was hashed. */
void tdict_check_sources_after(tdict_future *transfer);

#endif
