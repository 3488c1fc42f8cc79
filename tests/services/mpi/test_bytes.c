/* Tests the operations of the MPI table that move bytes. */
#include "services/mpi/job.h"

/* Sizes near multiples of the message size of 64 bytes. The last size is only for a table with large messages: with
 * more processes than cores, each message takes milliseconds. */
static const size_t sizes[] = {0, 1, 63, 64, 65, 128, 500, 300001};
enum { NUM_SIZES = sizeof sizes / sizeof *sizes };

static size_t size_for(const tdict_comm_table *t, const tdict_comm_table *small, uint64_t number) {
  return t == small && sizes[number] > 1000 ? 200 : sizes[number];
}

static void gather_all(tdict_comm_table *t, bool exchange, bool in_place, size_t bytes, uint64_t seed) {
  const size_t world = (size_t)t->world_size, own = (size_t)t->rank * bytes;
  scoped_bytes dst = make_bytes(world * bytes, 99, 0), src = make_bytes(bytes, seed, t->rank);
  if (in_place) memcpy(dst + own, src, bytes);
  const void *from = in_place ? dst + own : src;
  if (exchange)
    td_ok(t->exchange(t->self, from, dst, bytes, LONG_NS, err));
  else
    td_ok(t->all_gather(t->self, from, dst, bytes, tdict_no_stream(), LONG_NS, err));
  for (int r = 0; r < t->world_size; r++) check_bytes(dst + (size_t)r * bytes, bytes, seed, r);
  check_bytes(src, bytes, seed, t->rank);
}

MPI_CASE(mpi_table_gathers) {
  tdict_comm_table tables[] = {start_job(MPI_THREAD_SINGLE, 64), make_table(0)};
  for (size_t i = 0; i < 2 * 2 * 2 * NUM_SIZES; i++)
    gather_all(&tables[i & 1], i & 2, i & 4, size_for(&tables[i & 1], tables, i / 8), i);
  drop_table(&tables[0]);
  end_job(&tables[1]);
}

MPI_CASE(mpi_table_broadcasts) {
  tdict_comm_table tables[] = {start_job(MPI_THREAD_SINGLE, 64), make_table(0)};
  for (uint64_t i = 0; i < 2 * NUM_SIZES; i++) {
    tdict_comm_table *t = &tables[i & 1];
    const size_t bytes = size_for(t, tables, i / 2);
    for (int root = 0; root < t->world_size; root++) {
      scoped_bytes buffer = make_bytes(bytes, i, t->rank);
      td_ok(t->broadcast(t->self, buffer, bytes, root, tdict_no_stream(), LONG_NS, err));
      check_bytes(buffer, bytes, i, root);
    }
  }
  drop_table(&tables[0]);
  end_job(&tables[1]);
}

/* Sends between each pair of ranks, in both directions. Host messages have a different tag, so they may be received
 * first. */
MPI_CASE(mpi_table_sends) {
  tdict_comm_table tables[] = {start_job(MPI_THREAD_SINGLE, 64), make_table(0)};
  for (uint64_t i = 0; i < 2 * NUM_SIZES; i++) {
    tdict_comm_table *t = &tables[i & 1];
    const size_t bytes = sizes[i / 2] > 1000 ? 700 : sizes[i / 2]; /* small messages do not wait for the receiver */
    for (int from = 0; from < t->world_size; from++)
      for (int to = 0; to < t->world_size; to++) {
        if (from == to) continue;
        scoped_bytes data = make_bytes(bytes, i, t->rank), host = make_bytes(bytes, i + 100, t->rank);
        if (t->rank == from) {
          td_ok(t->send(t->self, data, bytes, to, tdict_no_stream(), LONG_NS, err));
          td_ok(t->send_host(t->self, host, bytes, to, LONG_NS, err));
        } else if (t->rank == to) {
          td_ok(t->receive_host(t->self, host, bytes, from, LONG_NS, err));
          td_ok(t->receive(t->self, data, bytes, from, tdict_no_stream(), LONG_NS, err));
          check_bytes(data, bytes, i, from);
          check_bytes(host, bytes, i + 100, from);
        }
      }
  }
  drop_table(&tables[0]);
  end_job(&tables[1]);
}

/* Returns the size of the message between two ranks. Both ranks can compute it. */
static size_t size_between(int from, int to, uint64_t round) {
  rng r = {round * 10000 + (uint64_t)(from * 100 + to)};
  const int64_t most[] = {0, 70, 1000, 200000};
  return (size_t)pick(&r, 0, most[pick(&r, 0, 3)]);
}

/* Sends from each rank to every rank, including itself, and broadcasts from each rank, all in one group. */
static void run_group(tdict_comm_table *t, uint64_t round) {
  enum { MOST = 8 };
  unsigned char *sent[MOST], *received[MOST], *shared[MOST];
  td_ok(t->group_begin(t->self, err));
  for (int peer = 0; peer < t->world_size; peer++) {
    const size_t to = size_between(t->rank, peer, round), from = size_between(peer, t->rank, round);
    const size_t all = size_between(peer, 50, round);
    sent[peer] = make_bytes(to, round, t->rank);
    received[peer] = make_bytes(from, round + 1000, t->rank);
    shared[peer] = make_bytes(all, round + 2000, t->rank);
    td_ok(t->send(t->self, sent[peer], to, peer, tdict_no_stream(), LONG_NS, err));
    td_ok(t->broadcast(t->self, shared[peer], all, peer, tdict_no_stream(), LONG_NS, err));
    td_ok(t->receive(t->self, received[peer], from, peer, tdict_no_stream(), LONG_NS, err));
    check_bytes(received[peer], from, round + 1000, t->rank); /* no operation has begun */
  }
  td_ok(t->group_end(t->self, tdict_no_stream(), LONG_NS, err));
  for (int peer = 0; peer < t->world_size; peer++) {
    check_bytes(received[peer], size_between(peer, t->rank, round), round, peer);
    check_bytes(shared[peer], size_between(peer, 50, round), round + 2000, peer);
    free(sent[peer]);
    free(received[peer]);
    free(shared[peer]);
  }
}

MPI_CASE(mpi_table_groups) {
  tdict_comm_table tables[] = {start_job(MPI_THREAD_SINGLE, 4096), make_table(0)};
  for (uint64_t round = 0; round < 20; round++) run_group(&tables[round & 1], round);
  tdict_comm_table *t = &tables[0];
  td_ok(t->group_begin(t->self, err)); /* an empty group */
  td_ok(t->group_end(t->self, tdict_no_stream(), LONG_NS, err));
  drop_table(&tables[0]);
  end_job(&tables[1]);
}

MPI_CASE(mpi_table_groups_keep_the_order_of_a_pair) {
  scoped_job t = start_job(MPI_THREAD_SINGLE, 64);
  const int next = (t.rank + 1) % t.world_size, previous = (t.rank + t.world_size - 1) % t.world_size;
  enum { COUNT = 40, BYTES = 150 };
  unsigned char *sent[COUNT], received[COUNT][BYTES];
  td_ok(t.group_begin(t.self, err));
  for (int i = 0; i < COUNT; i++) {
    sent[i] = make_bytes(BYTES, (uint64_t)i, t.rank);
    td_ok(t.send(t.self, sent[i], BYTES, next, tdict_no_stream(), LONG_NS, err));
    td_ok(t.receive(t.self, received[i], BYTES, previous, tdict_no_stream(), LONG_NS, err));
  }
  td_ok(t.group_end(t.self, tdict_no_stream(), LONG_NS, err));
  for (int i = 0; i < COUNT; i++) {
    check_bytes(received[i], BYTES, (uint64_t)i, previous);
    free(sent[i]);
  }
}
