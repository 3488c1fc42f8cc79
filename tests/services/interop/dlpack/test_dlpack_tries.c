/* Repeats imports and exports with random timing: a producer's stream still writes when the library reads, and
 * transfers still run when a consumer reads. Producers and consumers only queue copies, so the tests also run on a
 * GPU. */
#include "streams.h"

enum { BYTES = 4096, SIM_TRIES = 10000 / SANITIZED_STEP, CUDA_TRIES = 500 };

/* Queues up to 8 copies, as a delay. */
static void queue_delay(const place *w, naive_random *r, const consumer_copy *c, const tdict_tensor *device) {
  const int64_t count = naive_below(r, 9);
  tdict_gpu_scope scope;
  const tdict_rect rect = {.dst = device->data, .src = c->host->data, .width = BYTES, .height = 1};
  td_ok(tdict_gpu_enter(w->gpu, &scope, err));
  for (int64_t i = 0; i < count; i++) td_ok(tdict_gpu_queue_rect(w->gpu, TDICT_CU_H2D, &rect, c->s.handle, err));
  tdict_gpu_leave(w->gpu, &scope);
}

static void fill_pinned(const consumer_copy *c, uint64_t number) { td_fill_random(c->host->data, BYTES, number); }
static bool pinned_has(const consumer_copy *c, uint64_t number) {
  unsigned char want[BYTES];
  td_fill_random(want, BYTES, number);
  return memcmp(want, c->host->data, BYTES) == 0;
}

/* Imports a tensor while its producer's stream is busy. A transfer, or a consumer on a third stream, reads it. */
GPU_CASE(dlpack_import_tries) {
  const int tries = td_device().type == TDICT_DEVICE_SIM ? SIM_TRIES : CUDA_TRIES;
  scoped_place w = place_open(4);
  naive_random r = {41};
  tdict_tensor *bytes = new_bytes(BYTES, w.memory);
  consumer_copy writes = {new_bytes(BYTES, w.pinned), new_stream(&w), NULL};
  consumer_copy reads = {new_bytes(BYTES, w.pinned), new_stream(&w), NULL};
  tdict_tensor *noise = new_bytes(BYTES, w.memory);
  int wrong = 0;
  for (int n = 0; n < tries; n++) {
    const uint64_t number = (uint64_t)n + 100;
    produced p;
    tdict_dlpack_import_options i = producer_on(writes.s);
    tdict_dlpack_entry entry = {"t", NULL, NULL};
    fill_pinned(&writes, number);
    queue_delay(&w, &r, &writes, noise);
    queue_copy(&w, &writes, TDICT_CU_H2D, bytes);
    produce_leaf(&p, bytes);
    entry.versioned = give_versioned(&p);
    tdict_tree *in = td_made(tree, tdict_dlpack_import_tree(w.c, &entry, 1, &i, &made, err));
    if (naive_below(&r, 2)) {
      tdict_future *f = move_async(&w, in, tdict_cpu(), NULL);
      tdict_release(in);
      scoped_tree host = finish(f);
      wrong += !has_number(&w, td_leaf(host, "t"), number);
    } else {
      tdict_dlpack_export_options e = consumer_on(reads.s);
      struct DLManagedTensorVersioned *m = NULL;
      td_ok(export_versioned(w.c, td_leaf(in, "t"), &e, &m, err));
      tdict_release(in);
      queue_copy(&w, &reads, TDICT_CU_D2H, bytes);
      delete_versioned_of(m); /* waits for the consumer, because the producer owns the bytes */
      sync_stream(&w, reads.s);
      wrong += !pinned_has(&reads, number);
      tdict_gpu_give_event(w.gpu, reads.event);
    }
    sync_stream(&w, writes.s);
    tdict_gpu_give_event(w.gpu, writes.event);
    assert_int_equal(times_deleted(&p), 1);
  }
  assert_int_equal(wrong, 0);
  td_release(bytes, noise, writes.host, reads.host);
  tdict_stream_destroy(w.c, writes.s);
  tdict_stream_destroy(w.c, reads.s);
}

/* Exports a tree while its transfer runs. The deleter is called while the consumer still reads, and the next transfer
 * overwrites the bytes at once. */
GPU_CASE(dlpack_export_tries) {
  const int tries = td_device().type == TDICT_DEVICE_SIM ? SIM_TRIES : CUDA_TRIES;
  scoped_place w = place_open(4);
  naive_random r = {43};
  tdict_tree *dst = new_tree();
  tdict_tensor *noise = new_bytes(BYTES, w.memory), *bytes = new_bytes(BYTES, w.memory);
  consumer_copy reads = {new_bytes(BYTES, w.pinned), new_stream(&w), NULL};
  consumer_copy before = {new_bytes(BYTES, w.pinned), new_stream(&w), NULL};
  int wrong = 0;
  td_put(dst, "t", bytes);
  for (int n = 0; n < tries; n++) {
    const uint64_t number = (uint64_t)n + 100;
    tdict_tree *src[2] = {new_tree(), new_tree()};
    tdict_dlpack_export_options e = consumer_on(reads.s);
    tdict_dlpack_entry *entries = NULL;
    size_t count = 0;
    for (int i = 0; i < 2; i++) {
      tdict_tensor *t = new_bytes(BYTES, NULL);
      td_fill_random(t->data, BYTES, number + (uint64_t)i);
      td_put(src[i], "t", t);
    }
    tdict_transfer_options o = td_with(tdict_transfer_options, after = before.s);
    queue_delay(&w, &r, &before, noise);
    tdict_future *first = copy_async(&w, src[0], dst, &o);
    td_ok(tdict_dlpack_export_tree(w.c, dst, &e, &entries, &count, err));
    queue_copy(&w, &reads, TDICT_CU_D2H, bytes);
    tdict_dlpack_release_entries(entries, count);
    tdict_future *second = copy_async(&w, src[1], dst, &o);
    sync_stream(&w, reads.s);
    wrong += !pinned_has(&reads, number);
    tdict_gpu_give_event(w.gpu, reads.event);
    finish_copy(first);
    finish_copy(second);
    wrong += !has_number(&w, bytes, number + 1);
    td_release(src[0], src[1]);
  }
  assert_int_equal(wrong, 0);
  td_release(dst, noise, reads.host);
  tdict_stream_destroy(w.c, reads.s);
  tdict_stream_destroy(w.c, before.s);
  tdict_tensor_release(before.host);
}
