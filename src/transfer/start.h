/* Starting a transfer from what the public calls were given. */
#ifndef TDICT_TRANSFER_START_H
#define TDICT_TRANSFER_START_H

#include "tdict/transfer.h"

typedef struct tdict_start {
  const char *what; /* the call, for messages */
  const tdict_tree *src;
  tdict_tree *dst;                /* copy_into; else NULL */
  tdict_device device;            /* to_device; TDICT_DEVICE_AUTO is the context's own */
  tdict_transfer_options options; /* complete */
  bool waits;                     /* the call waits for the end */
  bool pin;                       /* pin_memory: keeps the tree's device, refuses device leaves */
} tdict_start;

/* A new future; the transfer is under way, or has ended. */
tdict_status tdict_start_transfer(tdict_context *context, const tdict_start *start, tdict_future **out,
                                  tdict_error *err);

#endif
