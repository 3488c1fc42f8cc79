/* The state of an MPI table, and the checks that all operations share. Thread rule: as in tdict/comm_table.h. */
#ifndef TDICT_SERVICES_MPI_STATE_H
#define TDICT_SERVICES_MPI_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <mpi.h>

#include "services/mpi/ops.h"
#include "tdict/comm_table.h"

/* Messages of host operations and of device operations between two ranks must not match each other. */
enum { TDICT_MPI_HOST_TAG = 1, TDICT_MPI_DATA_TAG = 2 };

typedef enum tdict_mpi_kind { TDICT_MPI_SEND, TDICT_MPI_RECEIVE, TDICT_MPI_BROADCAST } tdict_mpi_kind;
/* An operation that waits for the end of its group. */
typedef struct tdict_mpi_work {
  tdict_mpi_kind kind;
  void *buffer; /* TDICT_MPI_SEND only reads the buffer */
  size_t num_bytes;
  int peer; /* the other rank, or the root */
} tdict_mpi_work;

typedef struct tdict_mpi {
  MPI_Comm comm; /* the duplicate */
  int rank, world;
  size_t piece_bytes;  /* a multiple of 64; equal on all ranks */
  bool on_one_thread;  /* true: only `thread` may call MPI */
  pthread_t thread;    /* the main thread of MPI */
  atomic_bool aborted; /* any thread sets this */
  tdict_mpi_ops ops;
  float *scratch;       /* elements of small floats during a reduction */
  size_t scratch_count; /* number of floats; equal on all ranks */
  bool in_group;
  tdict_mpi_work *work; /* the operations of the group */
  size_t num_work, work_capacity;
} tdict_mpi;

/* Checks that an operation may call MPI now. Returns TDICT_ECANCELLED after `abort`, and TDICT_EINVAL on a thread that
 * must not call MPI. `what` names the operation in the message. */
tdict_status tdict_mpi_enter(const tdict_mpi *mpi, const char *what, tdict_error *err);
/* Returns TDICT_EINVAL if `peer` is not a rank, because MPI accepts some negative numbers. */
tdict_status tdict_mpi_check_peer(const tdict_mpi *mpi, const char *what, int32_t peer, tdict_error *err);
/* Returns TDICT_OK for MPI_SUCCESS. Otherwise fills *err with the text of MPI and its code. `what` names the operation.
 * Returns TDICT_ENOMEM for MPI_ERR_NO_MEM, and TDICT_EIO for all other codes. */
tdict_status tdict_mpi_status(int code, const char *what, tdict_error *err);

#endif
