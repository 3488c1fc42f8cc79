/* A dataset whose samples tell where they were fetched, for tests of plans: each sample has its index, its seed and its
 * position in the epoch. Also reads all batches of an epoch as one rank. Thread rule: as in numbers.h. */
#ifndef TDICT_TESTS_SERVICES_LOADER_TICKETS_H
#define TDICT_TESTS_SERVICES_LOADER_TICKETS_H

#include "numbers.h"
#include "tdict/random.h"

enum { MOST_TICKETS = 256 };

typedef struct ticket {
  int64_t index, seed, position;
} ticket;

/* An epoch: batch b has the tickets begins[b] to begins[b + 1] - 1. */
typedef struct ticket_epoch {
  int64_t num_batches, begins[MOST_TICKETS + 1];
  ticket all[MOST_TICKETS];
} ticket_epoch;

typedef struct tickets {
  _Atomic(int64_t) length;
} tickets;

static inline int64_t tickets_length(void *self) { return atomic_load(&((tickets *)self)->length); }
static inline tdict_status tickets_fetch(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree *batch,
                                         int64_t row, tdict_error *err) {
  if (index < 0 || index >= tickets_length(self)) return tdict_error_set(err, TDICT_EINVAL, NULL, "no such ticket");
  const ticket t = {index, (int64_t)tdict_sample_seed(info, index), info->position};
  memcpy((int64_t *)tdict_data(batch, "ticket") + 3 * row, &t, sizeof t);
  return TDICT_OK;
}
static inline tdict_dataset_table tickets_dataset(tickets *t) {
  static const tdict_field fields[] = {{"ticket", TDICT_I64, 1, {3}}};
  return td_with(tdict_dataset_table, name = "tickets", self = t, fields = fields, num_fields = 1,
                 length = tickets_length, fetch = tickets_fetch);
}

/* Takes the next batch. Writes its tickets to `out` and returns their number, or -1 at the end of the epoch. */
static inline int64_t take_tickets(tdict_loader *l, ticket *out, int64_t room) {
  scoped_tree batch = td_made(tree, tdict_loader_next(l, tdict_no_stream(), &made, err));
  if (!batch) return -1;
  const int64_t count = tdict_batch_size(batch)[0];
  assert_in_range(count, 1, room);
  memcpy(out, tdict_const_data(batch, "ticket"), (size_t)count * sizeof *out);
  return count;
}
/* Takes the batches up to the end of the epoch. */
static inline void take_ticket_epoch(tdict_loader *l, ticket_epoch *e) {
  int64_t at = 0, count;
  e->num_batches = 0;
  while ((count = take_tickets(l, e->all + at, MOST_TICKETS - at)) >= 0) {
    e->begins[e->num_batches++] = at;
    at += count;
  }
  e->begins[e->num_batches] = at;
}
/* Checks that a batch has the tickets of batch `b` of an epoch. */
static inline void check_tickets(const ticket_epoch *e, int64_t b, const ticket *found, int64_t count) {
  assert_in_range(b, 0, e->num_batches - 1);
  assert_int_equal(count, e->begins[b + 1] - e->begins[b]);
  assert_memory_equal(found, e->all + e->begins[b], (size_t)count * sizeof *found);
}
static inline tdict_loader_state state_of(tdict_loader *l) {
  return td_filled(tdict_loader_state, tdict_loader_get_state(l, &made, err));
}

#endif
