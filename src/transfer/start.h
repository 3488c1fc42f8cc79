/* Starts transfers for the public calls. The caller owns the request and the returned future.
 * Thread rule: safe from any thread, as long as no thread changes the trees. */
#ifndef TDICT_TRANSFER_START_H
#define TDICT_TRANSFER_START_H

#include "tdict/transfer.h"

typedef struct tdict_start {
  const char *what; /* name of the public call, for messages */
  const tdict_tree *src;
  tdict_tree *dst;                /* for transfer_into; else NULL */
  tdict_device device;            /* for to_device; TDICT_DEVICE_AUTO is the context's own device */
  tdict_transfer_options options; /* all fields set */
  bool caller_waits;              /* the call blocks until the end */
  bool pin;                       /* pin_memory: keeps the tree's device; leaves on devices are an error */
} tdict_start;

/* Starts a transfer and returns a new future. The transfer is running, or has already ended. Errors of the public
 * calls. */
tdict_status tdict_start_transfer(tdict_context *context, const tdict_start *start, tdict_future **out,
                                  tdict_error *err);

#endif
