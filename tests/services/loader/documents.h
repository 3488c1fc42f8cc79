/* A dataset of documents with random lengths, for the tests of batches with a token limit, and a naive division into
 * such batches. Token k of document i is i * 1000 + k. Thread rule: as in numbers.h. */
#ifndef TDICT_TESTS_SERVICES_LOADER_DOCUMENTS_H
#define TDICT_TESTS_SERVICES_LOADER_DOCUMENTS_H

#include "numbers.h"

enum { DOCUMENTS = 97, LONGEST = 60 };

typedef struct documents {
  int64_t count, lengths[DOCUMENTS];
  int64_t longer_by;    /* each document has this many tokens more than sample_length returns */
  bool batched;         /* true: a document is a tree of batch size [length] without the leaf `id` */
  pthread_mutex_t gate; /* locked by a test: sample_length waits here if `waits` is set */
  atomic_bool waits, at_gate;
  atomic_int asked;
  _Atomic(int64_t) num_wrong; /* number of calls of sample_length for documents that do not exist */
} documents;

static inline documents documents_of(uint64_t seed) {
  documents d = {.count = DOCUMENTS, .gate = PTHREAD_MUTEX_INITIALIZER};
  for (int i = 0; i < DOCUMENTS; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    d.lengths[i] = (int64_t)((seed >> 33) % LONGEST) + 1;
  }
  return d;
}

static inline int64_t documents_length(void *self) { return ((documents *)self)->count; }
static inline int64_t documents_sample_length(void *self, int64_t index) {
  documents *d = self;
  atomic_fetch_add(&d->asked, 1);
  if (index >= d->count) atomic_fetch_add(&d->num_wrong, 1);
  if (atomic_load(&d->waits)) {
    atomic_store(&d->at_gate, true);
    pthread_mutex_lock(&d->gate);
    pthread_mutex_unlock(&d->gate);
  }
  return d->lengths[index];
}

static inline tdict_status documents_sample(void *self, const tdict_fetch_info *info, int64_t index, tdict_tree **out,
                                            tdict_error *err) {
  (void)info;
  documents *d = self;
  const int64_t length = d->lengths[index] + d->longer_by;
  tdict_tree *td = NULL;
  tdict_status status = tdict_create(d->batched ? 1 : 0, &length, &td, err);
  if (status == TDICT_OK) status = add_leaf(td, "tokens", TDICT_I64, &length, err);
  if (status == TDICT_OK && !d->batched) status = add_leaf(td, "id", TDICT_I64, NULL, err);
  if (status != TDICT_OK) {
    tdict_release(td);
    return status;
  }
  int64_t *tokens = (int64_t *)tdict_data(td, "tokens");
  for (int64_t k = 0; k < length; k++) tokens[k] = index * 1000 + k;
  if (!d->batched) *(int64_t *)tdict_data(td, "id") = index;
  *out = td;
  return TDICT_OK;
}

static inline tdict_dataset_table documents_dataset(documents *d) {
  tdict_dataset_table set = td_with(tdict_dataset_table, name = "documents", self = d, length = documents_length,
                                    fetch_sample = documents_sample, sample_length = documents_sample_length);
  return set;
}

/* The batches of an epoch: batch b has the documents order[begins[b]] to order[begins[b + 1] - 1]. */
typedef struct division {
  int64_t order[2 * DOCUMENTS], begins[2 * DOCUMENTS + 1];
  int64_t num_batches;
} division;

/* Divides documents into batches: adds documents to a batch until the next document does not fit. */
static inline void divide(division *v, const documents *d, const tdict_sampler *all, int64_t epoch,
                          const tdict_loader_options *o) {
  int64_t count = tdict_sampler_length(all), at = 0;
  memset(v, 0, sizeof *v);
  for (int64_t i = 0; i < count; i++) v->order[i] = tdict_sampler_get(all, epoch, i);
  while (at < count) {
    int64_t end = at;
    for (;;) {
      int64_t sum = 0, longest = 0;
      for (int64_t i = at; i <= end && end < count; i++) {
        int64_t length = d->lengths[v->order[i]];
        sum += length;
        if (length > longest) longest = length;
      }
      int64_t tokens = o->pad ? longest * (end + 1 - at) : sum;
      if (end >= count || end - at >= o->batch_size || tokens > o->max_tokens) break;
      end++;
    }
    v->begins[v->num_batches++] = at;
    at = end;
  }
  v->begins[v->num_batches] = count;
}

/* Checks a packed batch on the device of the yard, and its tdict_batch_info. */
static inline void check_packed_batch(const yard *y, tdict_loader *l, const tdict_tree *batch, const documents *d,
                                      const int64_t *ids, int64_t count) {
  static int64_t tokens[DOCUMENTS * LONGEST], found[DOCUMENTS];
  static int32_t offsets[DOCUMENTS + 1];
  int32_t most = 0;
  int64_t at = 0, longest = 0;
  size_t bytes = read_leaf(y, batch, "tokens", tokens, sizeof tokens);
  assert_int_equal(read_leaf(y, batch, "id", found, sizeof found), (size_t)count * sizeof *found);
  assert_int_equal(read_leaf(y, batch, "cu_seqlens", offsets, sizeof offsets), (size_t)(count + 1) * sizeof *offsets);
  assert_int_equal(read_leaf(y, batch, "max_seqlen", &most, sizeof most), sizeof most);
  for (int64_t i = 0; i < count; i++) {
    assert_int_equal(found[i], ids[i]);
    assert_int_equal(offsets[i], at);
    for (int64_t k = 0; k < d->lengths[ids[i]]; k++) assert_int_equal(tokens[at++], ids[i] * 1000 + k);
    if (d->lengths[ids[i]] > longest) longest = d->lengths[ids[i]];
  }
  assert_int_equal(offsets[count], at);
  assert_int_equal(bytes, (size_t)at * sizeof *tokens);
  assert_int_equal(most, longest);
  tdict_batch_info info = td_filled(tdict_batch_info, tdict_loader_get_batch_info(l, &made, err));
  assert_int_equal(info.num_samples, count);
  assert_int_equal(info.num_tokens, at);
  assert_int_equal(info.max_seqlen, longest);
}

#endif
