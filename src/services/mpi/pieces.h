/* Calls of MPI for buffers of any size. The counts of MPI are ints, so each call moves at most tdict_mpi.piece_bytes
 * bytes. All functions wait until the buffer can be used again. Thread rule: as in tdict/comm_table.h. */
#ifndef TDICT_SERVICES_MPI_PIECES_H
#define TDICT_SERVICES_MPI_PIECES_H

#include "services/mpi/state.h"

/* Returns the size of the next message of a buffer of which `left` bytes are left. */
int tdict_mpi_piece(const tdict_mpi *mpi, size_t left);
/* Checks that a message had as many bytes as the receiver expected. MPI accepts shorter messages. */
tdict_status tdict_mpi_check_length(const MPI_Status *status, int wanted, tdict_error *err);

tdict_status tdict_mpi_send_pieces(const tdict_mpi *mpi, const void *src, size_t num_bytes, int peer, int tag,
                                   tdict_error *err);
tdict_status tdict_mpi_receive_pieces(const tdict_mpi *mpi, void *dst, size_t num_bytes, int peer, int tag,
                                      tdict_error *err);
tdict_status tdict_mpi_broadcast_pieces(const tdict_mpi *mpi, void *buffer, size_t num_bytes, int root,
                                        tdict_error *err);

#endif
