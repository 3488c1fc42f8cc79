/* Declares the request that tdict_save() passes to the writer of a format. A writer is a function that takes a request
 * and returns the errors of tdict_save(). The caller owns the request. */
#ifndef TDICT_SERVICES_IO_REQUEST_H
#define TDICT_SERVICES_IO_REQUEST_H

#include "services/io/progress.h"

typedef struct tdict_save_request {
  const char *what;                  /* the name of the public call, for messages; static */
  const char *path;                  /* the path that the program gave; borrowed */
  const tdict_tree *tree;            /* borrowed */
  tdict_context *context;            /* its threads write. NULL: the calling thread writes, and all tensors are in host
                                      * memory */
  int32_t num_threads;               /* threads that write, as in tdict_transfer_options; -1: the library chooses */
  tdict_save_watch watch;            /* `progress` and `pace` are set by tdict_save_request_run() */
  const tdict_save_options *options; /* all fields are set; borrowed */
} tdict_save_request;

/* The devices of the tensors of a tree. */
typedef struct tdict_save_places {
  size_t num_tensors;
  tdict_device device; /* of the first tensor */
  bool is_mixed;       /* true: not all tensors are on this device */
  bool has_device;     /* true: a tensor is not in host memory */
  uint64_t bytes;      /* of all elements */
} tdict_save_places;
/* Finds where all tensors of a tree are, also the tensors of ragged leaves and of leaves without batch dimensions. */
tdict_status tdict_save_find_places(const tdict_tree *tree, tdict_save_places *out, tdict_error *err);
/* Writes a tree in host memory to *out: a new reference to `tree` if all tensors are in host memory, else a copy of
 * `tree`. The copy keeps to the options `after` and `max_bytes_per_second`. Returns TDICT_EINVAL if a copy needs a
 * context and `context` is NULL, and the errors of tdict_to_device(). */
tdict_status tdict_save_host_tree(const char *what, tdict_context *context, const tdict_tree *tree,
                                  const tdict_save_options *options, tdict_tree **out, tdict_error *err);
/* Reads the options of a call that saves `tree`, and chooses the format. Returns TDICT_EINVAL if `path` or
 * `tree` is NULL, or if the option `snapshot` or `max_bytes_per_second` is invalid. Also returns the errors of
 * tdict_options_read(). tdict_save_request_run() checks the other options. */
tdict_status tdict_save_read_options(const char *what, const char *path, const tdict_tree *tree,
                                     const tdict_save_options *options, tdict_save_options *out, tdict_error *err);
/* Writes a tree with the writer of the format. Sets `tree` and `context`, and the caller all other fields. */
tdict_status tdict_save_request_run(tdict_save_request *request, tdict_context *context, const tdict_tree *tree,
                                    tdict_error *err);

#endif
