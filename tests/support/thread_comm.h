/* A table of operations for tests of communicators: the ranks are threads of one process. The table has a log of all
 * calls, and faults. The memory is host memory, or memory of a simulated device, which the table copies through host
 * buffers. The caller owns a world and destroys it after all communicators. Thread rule: any thread. */
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
/* Creates a world. `context` is NULL for host memory; otherwise all ranks use `device` of this context. */
thread_world *thread_world_create(int world, tdict_context *context, tdict_device device);
void thread_world_destroy(thread_world *world);
/* Fills in the table of a rank. The table has no own memory: its `destroy` only counts. */
void thread_world_table(thread_world *world, int rank, tdict_comm_table *out);

/* Call number `call` (from 0) of the table of `rank` fails, and the rank never comes again. Others that wait for the
 * rank get TDICT_ELOST at once; if `silent`, they wait until their time limit. */
void thread_world_fail(thread_world *world, int rank, int call, bool silent);

/* Flips bits of one byte of the bytes that call number `call` (from 0) of the table of `rank` receives. If all ranks
 * then wait for each other, they get TDICT_ETIMEDOUT at once. */
void thread_world_damage(thread_world *world, int rank, int call, size_t byte, unsigned char bits);
/* Bytes that call number `call` of a rank has received; 0 if there was no such call. */
size_t thread_world_received(thread_world *world, int rank, int call);
/* The rank makes no further calls: others that wait for the rank get TDICT_ELOST. */
void thread_world_leave(thread_world *world, int rank);

/* Number of calls of a kind on a rank since the last thread_world_forget(), and the sum of their bytes. */
int thread_world_calls(thread_world *world, int rank, thread_kind kind);
size_t thread_world_bytes(thread_world *world, int rank, thread_kind kind);
void thread_world_forget(thread_world *world);
/* All calls on a rank, of all kinds, since the world was created. Not changed by thread_world_forget(). */
int thread_world_all_calls(thread_world *world, int rank);
int thread_world_aborts(thread_world *world, int rank);
int thread_world_destroys(thread_world *world, int rank);
/* Messages that were sent and not received. */
int thread_world_unread(thread_world *world);

/* thread_reduce.c: combines `count` elements of `src` into `dst`; divides `dst` by `world`. */
bool thread_can_reduce(tdict_dtype dtype, tdict_reduce_op op);
void thread_reduce(void *dst, const void *src, size_t count, tdict_dtype dtype, tdict_reduce_op op);
void thread_divide(void *dst, size_t count, tdict_dtype dtype, int world);

#endif
