/* What the engine needs of the future's file. */
#ifndef TDICT_TRANSFER_FENCE_H
#define TDICT_TRANSFER_FENCE_H

#include "transfer/engine.h"

const tdict_fence_ops *tdict_transfer_fence_ops(void);
/* Waits until nothing stands before a transfer that works on its caller. */
void tdict_transfer_wait_to_start(tdict_future *transfer);
/* How the pinned memory of this transfer was come by: a tdict_pin_path. */
int32_t tdict_transfer_pin_path(const tdict_future *transfer);

#endif
