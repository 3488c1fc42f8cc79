/* Data-parallel training for the trainers in this folder. Several processes, called ranks, train one model. Each rank
 * reads its own part of every batch. After each step, all ranks average their gradients, so that the weights of all
 * ranks stay equal.
 *
 * The result is that of one process with the whole batch, except for rounding. One process adds the gradients of all
 * samples in one sum. With n ranks, each rank adds the gradients of its own samples, and the all-reduce adds the n
 * sums. The order of an all-reduce depends on its algorithm. Floating-point sums in another order differ in their last
 * bits.
 *
 * Gradients and loss travel in one message: the tree `gradients` has a leaf for each parameter, and the leaf "loss".
 *
 * Thread rule: one thread. */
#ifndef EXAMPLES_PARALLEL_H
#define EXAMPLES_PARALLEL_H

#include <tdict/comm.h>
#include <tdict/tdict.h>

/* A parameter of a model: a tensor of floats at an offset in an array. */
typedef struct parallel_leaf {
  const char *name;
  int64_t offset;
  int32_t ndim;
  int64_t shape[4];
} parallel_leaf;
/* The parameters of a model in one array. The array of gradients also has the loss, at index `num_parameters`. */
typedef struct parallel_layout {
  const parallel_leaf *leaves;
  size_t num_leaves;
  int64_t num_parameters;
} parallel_layout;

typedef struct parallel {
  const char *program;        /* for messages */
  const char *kind;           /* "mpi", "nccl", or NULL for one process */
  const char *id_file;        /* nccl: the file by which rank 0 gives its id to the other ranks */
  int64_t rank, world, local; /* rank and world: given for nccl, written for mpi; local: the rank on this host */
  const parallel_layout *layout;
  tdict_context *context;
  tdict_device device; /* of the model */
  tdict_comm *comm;
  tdict_tree *weights, *gradients; /* views of the model's arrays */
} parallel;

/* Checks the options, and initializes MPI. Returns false after a message. */
bool parallel_begin(parallel *p, int *argc, char ***argv);
/* Divides the rows of a batch by the number of ranks. Returns false after a message if a rest remains. */
bool parallel_divide_rows(const parallel *p, int64_t *rows);
/* Creates the context `p->context` for a device as text. With nccl or MPI, "cuda" is another GPU for each rank of a
 * host. `log` may be NULL. */
tdict_status parallel_open_context(parallel *p, const char *device,
                                   void (*log)(void *user, int32_t level, const char *text), tdict_error *err);
/* Makes a tree of the parameters, with the leaf "loss" if `with_loss` is true, over an array on `device`. The tree does
 * not own the array. */
tdict_status parallel_make_tree(const parallel_layout *layout, float *array, tdict_device device, bool with_loss,
                                tdict_tree **out, tdict_error *err);
/* Connects all ranks, and copies the parameters of rank 0 to all ranks. Reads `layout`, `context` and `device` of `p`.
 * The arrays are on this device, and must stay valid until parallel_disconnect(). */
tdict_status parallel_connect(parallel *p, float *parameters, float *gradients, tdict_error *err);
/* Replaces gradients and loss by their means over all ranks, after the work that is queued on `stream`. */
tdict_status parallel_average(parallel *p, tdict_stream stream, tdict_error *err);
void parallel_disconnect(parallel *p);
/* Ends MPI. If `status` is not 0, ends the processes of all ranks, because they may wait for this rank. */
void parallel_end(parallel *p, int status);

#endif
