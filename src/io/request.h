/* Declares what tdict_save() passes to the writer of a format. A writer is a function that takes a request and returns
 * the errors of tdict_save(). The caller owns the request. */
#ifndef TDICT_IO_REQUEST_H
#define TDICT_IO_REQUEST_H

#include "tdict/io.h"

typedef struct tdict_save_request {
  const char *what;                  /* the name of the public call, for messages; static */
  const char *path;                  /* the path that the program gave; borrowed */
  const tdict_tree *tree;            /* all tensors are in host memory; borrowed */
  const tdict_save_options *options; /* all fields are set; borrowed */
} tdict_save_request;

/* Returns the tree itself with a new reference if all tensors are in host memory, else a copy in host memory. Returns
 * TDICT_EINVAL if a copy needs a context and `context` is NULL, and the errors of tdict_to_device(). */
tdict_status tdict_save_host_tree(const char *what, tdict_context *context, const tdict_tree *tree, tdict_tree **out,
                                  tdict_error *err);

#endif
