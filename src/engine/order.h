/* Orders transfers that use the same storages. The engine's lock guards the order. Thread rule: the starting thread or
 * the thread of the last hook begins a transfer. If the transfer waits for other transfers, the thread that ends the
 * last of these transfers launches the waiting transfer. */
#ifndef TDICT_ENGINE_ORDER_H
#define TDICT_ENGINE_ORDER_H

#include "engine/transfer.h"

/* What only the starting call knows. All fields are 0 if hooks have run. */
typedef struct tdict_beginning {
  const tdict_tree *source;    /* error paths are looked up in this tree if the result is not built yet; NULL: it is */
  tdict_future *const *awaits; /* transfers that must end before the copies begin */
  size_t num_awaits;
  int num_helpers;         /* number of threads that may help the calling thread to mark many sources */
  bool places_items;       /* true: the thread that marks an item's source also sets the item's dst_data */
  bool on_caller_if_ready; /* see tdict_choice */
} tdict_beginning;

/* Attaches the transfer's marks to the storages that the transfer reads and writes. If transfers of other contexts
 * conflict with this transfer, first waits until those transfers have ended. If the transfer waits for no other
 * transfer, launches the transfer at once. If the transfer waits for other transfers, the thread that ends the last of
 * these transfers launches the transfer. Call after the plan, the stream waits and the workers' tasks are set. After a
 * failure, no copy has begun. Returns TDICT_ENOMEM if host memory is exhausted. Returns TDICT_EINVAL if a source's
 * bytes are lost. If the transfer waits for other transfers, tdict_transfer_launch() checks for lost bytes. */
tdict_status tdict_transfer_begin(tdict_transfer *transfer, const tdict_beginning *from, tdict_error *err);
/* Submits the workers' tasks to the pool. With on_caller, the starting thread does the work of the first worker
 * instead. If the transfer had to wait and source bytes are now lost, first fails the transfer. Call when it waits for
 * no earlier transfer. */
void tdict_transfer_launch(tdict_transfer *transfer);

#endif
