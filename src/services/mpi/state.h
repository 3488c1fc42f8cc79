/* The state of an MPI table, and the functions that its files share. Thread rule: as in tdict/comm_table.h. */
#ifndef TDICT_SERVICES_MPI_STATE_H
#define TDICT_SERVICES_MPI_STATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include <mpi.h>

#include "tdict/comm_table.h"

/* Messages of host operations and of device operations between two ranks must not match each other. */
enum { TDICT_MPI_HOST_TAG = 1, TDICT_MPI_DATA_TAG = 2 };
enum { TDICT_MPI_NUM_DTYPES = 10, TDICT_MPI_NUM_OPS = 3 };

/* An operation that moves bytes. */
typedef struct tdict_mpi_work {
  enum { TDICT_MPI_SEND, TDICT_MPI_RECEIVE, TDICT_MPI_BROADCAST } kind;
  int peer;        /* the other rank, or the root */
  int tag;         /* TDICT_MPI_HOST_TAG or TDICT_MPI_DATA_TAG */
  const char *src; /* of TDICT_MPI_SEND */
  char *dst;       /* of the other kinds; the root of a broadcast only reads it */
  size_t num_bytes;
} tdict_mpi_work;

typedef struct tdict_mpi {
  MPI_Comm comm; /* the duplicate */
  int rank, world;
  size_t piece_bytes;                                  /* a multiple of 64; equal on all ranks */
  bool on_one_thread;                                  /* true: only `thread` may call MPI */
  pthread_t thread;                                    /* the main thread of MPI */
  atomic_bool aborted;                                 /* any thread sets this */
  MPI_Op ops[TDICT_MPI_NUM_DTYPES][TDICT_MPI_NUM_OPS]; /* see reduce.c */
  float *scratch;                                      /* elements of small floats during a reduction */
  size_t scratch_count;                                /* number of floats; equal on all ranks */
  bool in_group;
  tdict_mpi_work *work; /* the operations of the group */
  size_t num_work, work_capacity;
} tdict_mpi;

/* Returns TDICT_ECANCELLED after `abort`, and TDICT_EINVAL on a thread that must not call MPI. */
tdict_status tdict_mpi_enter(const tdict_mpi *mpi, const char *what, tdict_error *err);
/* Returns TDICT_OK for MPI_SUCCESS. Otherwise fills *err with MPI's text and code for the operation `what`, and returns
 * TDICT_ENOMEM for MPI_ERR_NO_MEM, else TDICT_EIO. */
tdict_status tdict_mpi_status(int code, const char *what, tdict_error *err);

/* Returns the size of a buffer's next message, of at most tdict_mpi.piece_bytes: MPI's counts are ints. */
int tdict_mpi_piece(const tdict_mpi *mpi, size_t left);
/* Checks that a message had as many bytes as the receiver expected. MPI accepts shorter messages. */
tdict_status tdict_mpi_check_length(const MPI_Status *status, int wanted, tdict_error *err);
/* Moves the bytes of an operation, and waits until its buffer can be used again. */
tdict_status tdict_mpi_run(const tdict_mpi *mpi, const tdict_mpi_work *work, tdict_error *err);

/* Makes the operations with which MPI reduces, or none. Returns MPI_SUCCESS or an error of MPI. See reduce.c. */
int tdict_mpi_ops_make(tdict_mpi *mpi);
void tdict_mpi_ops_free(tdict_mpi *mpi);

/* Fill in the operations of a table. Defined in bytes.c, reduce.c and group.c. MPI cannot give up at `timeout_ns`. */
void tdict_mpi_add_bytes(tdict_comm_table *table);
void tdict_mpi_add_reductions(tdict_comm_table *table);
void tdict_mpi_add_groups(tdict_comm_table *table);

#endif
