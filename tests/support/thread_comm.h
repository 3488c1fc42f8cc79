/* A table of byte operations for tests of communicators whose ranks are threads of one process. The table logs all
 * calls, and can make calls fail. Buffers are in host memory, or on a simulated device and copied through host buffers.
 * The caller owns a world and destroys it after all communicators. Thread rule: any thread. */
#ifndef TDICT_TESTS_SUPPORT_THREAD_COMM_H
#define TDICT_TESTS_SUPPORT_THREAD_COMM_H

#include "tdict/comm_table.h"
#include "tdict/tdict.h"

enum { THREAD_MOST_RANKS = 8 };
typedef enum thread_kind {
  THREAD_EXCHANGE,
  THREAD_BROADCAST,
  THREAD_ALL_GATHER,
  THREAD_ALL_REDUCE,
  THREAD_SEND,
  THREAD_RECEIVE,
  THREAD_SEND_HOST,
  THREAD_RECEIVE_HOST,
  THREAD_KINDS
} thread_kind;

typedef struct thread_world thread_world;
/* Creates a world. `context` is NULL for host memory. Otherwise all ranks use `device` of `context`. */
thread_world *thread_world_create(int world, tdict_context *context, tdict_device device);
void thread_world_destroy(thread_world *world);
/* Fills in the table of a rank. The table owns no memory, so its `destroy` only counts its calls. */
void thread_world_table(thread_world *world, int rank, tdict_comm_table *out);

/* Makes call number `call` (from 0) of the rank's table and all later calls of this table fail. Other ranks that wait
 * for this rank get TDICT_ELOST at once or, if `silent`, wait until their time limit. */
void thread_world_fail(thread_world *world, int rank, int call, bool silent);

/* Flips bits of one byte that call number `call` (from 0) of the rank's table receives. If all ranks then wait for each
 * other, they get TDICT_ETIMEDOUT at once. */
void thread_world_damage(thread_world *world, int rank, int call, size_t byte, unsigned char bits);
/* Returns the number of bytes that call number `call` of a rank has received. Only the first 32 calls are recorded. */
size_t thread_world_received(thread_world *world, int rank, int call);
/* Declares that a rank makes no further calls. Other ranks that wait for this rank get TDICT_ELOST. */
void thread_world_leave(thread_world *world, int rank);

/* Return the number and the bytes of a rank's calls of this kind since the last thread_world_forget(). */
int thread_world_calls(thread_world *world, int rank, thread_kind kind);
size_t thread_world_bytes(thread_world *world, int rank, thread_kind kind);
void thread_world_forget(thread_world *world);
/* Returns the number of all calls of a rank since the world was created. thread_world_forget() does not reset it. */
int thread_world_all_calls(thread_world *world, int rank);
int thread_world_aborts(thread_world *world, int rank);
int thread_world_destroys(thread_world *world, int rank);
/* Returns the number of messages that were sent but not received. */
int thread_world_unread(thread_world *world);

/* Defined in thread_reduce.c. thread_reduce() combines `count` elements of `src` into `dst`. */
bool thread_can_reduce(tdict_dtype dtype, tdict_reduce_op op);
void thread_reduce(void *dst, const void *src, size_t count, tdict_dtype dtype, tdict_reduce_op op);
void thread_divide(void *dst, size_t count, tdict_dtype dtype, int world);

#endif
