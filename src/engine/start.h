/* Starts transfers for the public calls. The caller owns the request and the returned future.
 * Thread rule: safe from any thread, as long as no thread changes the trees. */
#ifndef TDICT_ENGINE_START_H
#define TDICT_ENGINE_START_H

#include "engine/plan/pair.h"
#include "tdict/transfer.h"

typedef struct tdict_start {
  const char *what; /* name of the public call, used in error messages */
  const tdict_tree *src;
  tdict_tree *dst;                /* the destination of tdict_transfer_into_async(); NULL in all other calls */
  tdict_device device;            /* the target, if `dst` is NULL; TDICT_DEVICE_AUTO means the context's default
                                   * device */
  tdict_transfer_options options; /* all fields are set */
  bool caller_waits;              /* true if the public call blocks until the transfer has ended */
  bool reads_files;               /* true if the tensors of the source are unloaded tensors over files */
  bool is_distinct;               /* true: the caller knows that no two tensors of the source share a storage */
  /* NULL: the whole source. Otherwise the result has these rows. All leaves of the source are then contiguous tensors
   * in host memory, each with a storage of its own, so the source is not one block. Each tree and tensor has rows->all
   * rows. The options must not have patterns, `narrow` or `check_sources` */
  const tdict_source_rows *rows;
  bool copies; /* true: leaves that are in place already are also copied */
  bool pin;    /* true for tdict_pin_memory(): the result has the same tree device as the source, and
                                   * a leaf on a GPU is an error */
  /* If `storage` is not NULL, the transfer copies the pairs into this storage on `device`, and does not read `src`. The
   * storage belongs to new trees: no queued work uses its bytes. If the transfer fails, all bytes of the storage are
   * lost. Paths of errors are looked up in the tree `named`, which the transfer retains. */
  tdict_storage *storage;
  const tdict_copy_pair *pairs;
  size_t num_pairs;
  const tdict_tree *named;
  tdict_tree *result; /* with `dst` or `storage`: the result of the future, retained. NULL: the result is `dst` */
  /* The promise of which the transfer is a part, or NULL; see promise.h. Parts of one promise do not wait for each
   * other because of common bytes. They only wait for the parts in `awaits`. */
  tdict_future *promise;
  size_t position; /* number of the promise's tree to which the part belongs */
  tdict_future *const *awaits;
  size_t num_awaits;
  /* Further devices that receive the result. Their GPUs have peer access to the target's GPU. Only a transfer from the
   * host into a new storage, without conversions and kept leaves, may have them. */
  const tdict_more_target *more_targets;
  size_t num_more_targets;
} tdict_start;

/* Starts a transfer and returns a new future. When the function returns, the transfer waits for earlier transfers,
 * runs, or has ended. Returns the errors of the public transfer calls. */
tdict_status tdict_start_transfer(tdict_context *context, const tdict_start *start, tdict_future **out,
                                  tdict_error *err);
/* Reads the program's options into start->options, and starts the transfer. If `options` is NULL, uses the default
 * options. Returns the errors of tdict_options_read(), tdict_options_check_size() and tdict_start_transfer(). */
tdict_status tdict_start_call(tdict_context *context, tdict_start *start, const tdict_transfer_options *options,
                              tdict_future **out, tdict_error *err);
/* Waits for a transfer that was just started, and drops the future. On success, writes the statistics, and writes a new
 * reference to the result to *out. `stats` and `out` may be NULL. */
tdict_status tdict_start_wait(tdict_future *future, tdict_transfer_stats *stats, tdict_tree **out, tdict_error *err);

#endif
