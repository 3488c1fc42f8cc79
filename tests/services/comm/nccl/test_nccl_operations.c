/* Tests services/comm/nccl/host.c and operations.c: every operation of the table moves the bytes of all ranks, in
 * worlds of 1 to 4 ranks, with one context for each rank and with one shared context. */
#include "services/comm/nccl/ranks.h"

enum { BYTES = 6 << 20 };

/* The parameters of the next world_run(), which are equal on all ranks. */
static size_t bytes_now;
static int root_now;
static bool in_place_now;
static unsigned char *sent[MOST_RANKS], *found[MOST_RANKS];

static void in_all_worlds(void (*test)(world *w)) {
  const int most = ranks_most();
  for (int size = 1; size <= most; size++)
    for (int shared = 0; shared < 2; shared++) {
      scoped_world w;
      world_open(&w, size, shared, BYTES);
      world_polls(&w, size == 3 ? 4 : 0); /* with 3 ranks, operations stay in progress for 4 polls */
      test(&w);
      world_polls(&w, 0);
    }
}

/* Allocates two buffers for each rank: `sent` with random bytes, and `found` for the bytes that the rank receives. */
static void make_host(const world *w, size_t bytes, size_t room, uint64_t seed) {
  for (int i = 0; i < w->size; i++) {
    sent[i] = malloc(bytes + 1);
    found[i] = malloc(room + 1);
    td_fill_random(sent[i], bytes, seed + (uint64_t)i);
    memset(found[i], 0xA5, room + 1);
  }
}
static void free_host(const world *w) {
  for (int i = 0; i < w->size; i++) {
    assert_non_null(sent[i]);
    free(sent[i]);
    free(found[i]);
    sent[i] = found[i] = NULL;
  }
}

static tdict_status exchange(rank *r, tdict_error *err) {
  return r->t.exchange(r->t.self, sent[r->number], found[r->number], bytes_now, SECONDS(60), err);
}
static void check_exchange(world *w) {
  static const size_t sizes[] = {0, 1, 255, 4097, (1 << 20) + 1, (3 << 20) + 3};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    bytes_now = sizes[s];
    make_host(w, bytes_now, bytes_now * (size_t)w->size, 100 * s + 1);
    world_do(w, exchange);
    for (int i = 0; i < w->size; i++) {
      for (int j = 0; j < w->size; j++) assert_memory_equal(found[i] + (size_t)j * bytes_now, sent[j], bytes_now);
      assert_int_equal(found[i][bytes_now * (size_t)w->size], 0xA5);
    }
    free_host(w);
  }
}
GPU_CASE(nccl_exchange_gives_all_bytes_to_all_ranks) { in_all_worlds(check_exchange); }

/* Sends the rank's bytes to the next rank, or from the last rank to rank 0. Only rank 0 sends before it receives. */
static tdict_status pass_on(rank *r, tdict_error *err) {
  const int next = (r->number + 1) % r->w->size, before = (r->number + r->w->size - 1) % r->w->size;
  tdict_status status = TDICT_OK;
  if (r->number > 0) status = r->t.receive_host(r->t.self, found[r->number], bytes_now, before, SECONDS(60), err);
  if (status == TDICT_OK) status = r->t.send_host(r->t.self, sent[r->number], bytes_now, next, SECONDS(60), err);
  if (status == TDICT_OK && r->number == 0)
    status = r->t.receive_host(r->t.self, found[r->number], bytes_now, before, SECONDS(60), err);
  return status;
}
static void check_host_messages(world *w) {
  static const size_t sizes[] = {0, 1, 4096, (4 << 20) + 5, (9 << 20) + 3};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0] && w->size > 1; s++) {
    bytes_now = sizes[s];
    make_host(w, bytes_now, bytes_now, 100 * s + 2);
    world_do(w, pass_on);
    for (int i = 0; i < w->size; i++) {
      assert_memory_equal(found[i], sent[(i + w->size - 1) % w->size], bytes_now);
      assert_int_equal(found[i][bytes_now], 0xA5);
    }
    free_host(w);
  }
}
GPU_CASE(nccl_host_messages_arrive) { in_all_worlds(check_host_messages); }

static tdict_status broadcast(rank *r, tdict_error *err) {
  tdict_status status = r->t.broadcast(r->t.self, r->memory, bytes_now, root_now, r->stream, SECONDS(60), err);
  return status == TDICT_OK ? r->t.finish(r->t.self, r->stream, SECONDS(60), err) : status;
}
static void check_broadcast(world *w) {
  static const size_t sizes[] = {0, 1, 1000003};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
    for (root_now = 0; root_now < w->size; root_now++) {
      bytes_now = sizes[s];
      unsigned char *wanted = NULL, *after[MOST_RANKS];
      const int before = world_operations(w);
      for (int i = 0; i < w->size; i++) {
        unsigned char *filled = ranks_fill(&w->ranks[i], 0, bytes_now, (uint64_t)(10 * s + 3) + (uint64_t)i);
        if (i == root_now)
          wanted = filled;
        else
          free(filled);
        after[i] = ranks_fill(&w->ranks[i], bytes_now, 64, 7);
      }
      world_do(w, broadcast);
      for (int i = 0; i < w->size; i++) {
        assert_true(ranks_holds(&w->ranks[i], 0, wanted, bytes_now));
        assert_true(ranks_holds(&w->ranks[i], bytes_now, after[i], 64));
        free(after[i]);
      }
      if (w->fake)
        assert_int_equal(world_operations(w) - before, bytes_now ? w->size : 0); /* one operation of each rank */
      free(wanted);
    }
}
GPU_CASE(nccl_broadcast_copies_the_root) { in_all_worlds(check_broadcast); }

/* Gathers the bytes of all ranks. A rank's own bytes are at the end of its memory, or already in their place in the
 * result. */
static tdict_status all_gather(rank *r, tdict_error *err) {
  const char *src = in_place_now ? r->memory + (size_t)r->number * bytes_now : r->memory + BYTES - bytes_now;
  tdict_status status = r->t.all_gather(r->t.self, src, r->memory, bytes_now, r->stream, SECONDS(60), err);
  return status == TDICT_OK ? r->t.finish(r->t.self, r->stream, SECONDS(60), err) : status;
}
static void check_all_gather(world *w) {
  static const size_t sizes[] = {0, 3, 1000001};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
    for (int place = 0; place < 2; place++) {
      unsigned char *wanted[MOST_RANKS];
      bytes_now = sizes[s];
      in_place_now = place;
      for (int i = 0; i < w->size; i++) {
        const size_t at = in_place_now ? (size_t)i * bytes_now : BYTES - bytes_now;
        free(ranks_fill(&w->ranks[i], 0, (size_t)w->size * bytes_now + 64, 5));
        wanted[i] = ranks_fill(&w->ranks[i], at, bytes_now, 20 * s + (uint64_t)(place + 30 * i) + 4);
      }
      world_do(w, all_gather);
      for (int i = 0; i < w->size; i++)
        for (int j = 0; j < w->size; j++)
          assert_true(ranks_holds(&w->ranks[i], (size_t)j * bytes_now, wanted[j], bytes_now));
      for (int i = 0; i < w->size; i++) free(wanted[i]);
    }
}
GPU_CASE(nccl_all_gather_gives_all_bytes_to_all_ranks) { in_all_worlds(check_all_gather); }

static tdict_status send_around(rank *r, tdict_error *err) {
  const int next = (r->number + 1) % r->w->size, before = (r->number + r->w->size - 1) % r->w->size;
  char *half = r->memory + BYTES / 2;
  const tdict_stream s = r->stream;
  tdict_status status = TDICT_OK;
  if (r->number > 0) status = r->t.receive(r->t.self, half, bytes_now, before, s, SECONDS(60), err);
  if (status == TDICT_OK) status = r->t.send(r->t.self, r->memory, bytes_now, next, s, SECONDS(60), err);
  if (status == TDICT_OK && r->number == 0)
    status = r->t.receive(r->t.self, half, bytes_now, before, s, SECONDS(60), err);
  return status == TDICT_OK ? r->t.finish(r->t.self, s, SECONDS(60), err) : status;
}
static void check_messages(world *w) {
  static const size_t sizes[] = {0, 1, 1000001};
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0] && w->size > 1; s++) {
    unsigned char *wanted[MOST_RANKS];
    bytes_now = sizes[s];
    for (int i = 0; i < w->size; i++) wanted[i] = ranks_fill(&w->ranks[i], 0, bytes_now, 50 * s + (uint64_t)i + 9);
    world_do(w, send_around);
    for (int i = 0; i < w->size; i++)
      assert_true(ranks_holds(&w->ranks[i], BYTES / 2, wanted[(i + w->size - 1) % w->size], bytes_now));
    for (int i = 0; i < w->size; i++) free(wanted[i]);
  }
}
GPU_CASE(nccl_messages_arrive) { in_all_worlds(check_messages); }

static size_t part_bytes(int from, int to) { return (size_t)(from + to + 1) * 1000; }
enum { PART = 16384, LAST = BYTES - 64 };
/* Sends part j of the first half of the memory to each rank j, and receives part j of the second half from rank j. Rank
 * i sends 1000 * (i + j + 1) bytes to rank j. Every rank also broadcasts one byte. */
static tdict_status all_to_all(rank *r, tdict_error *err) {
  const tdict_stream s = r->stream;
  tdict_status status = r->t.group_begin(r->t.self, err);
  for (int j = 0; j < r->w->size && status == TDICT_OK; j++) {
    status = r->t.send(r->t.self, r->memory + j * PART, part_bytes(r->number, j), j, s, SECONDS(60), err);
    if (status == TDICT_OK)
      status =
          r->t.receive(r->t.self, r->memory + BYTES / 2 + j * PART, part_bytes(j, r->number), j, s, SECONDS(60), err);
    if (status == TDICT_OK) status = r->t.broadcast(r->t.self, r->memory + LAST + j, 1, j, s, SECONDS(60), err);
  }
  if (status == TDICT_OK) status = r->t.group_end(r->t.self, s, SECONDS(60), err);
  return status == TDICT_OK ? r->t.finish(r->t.self, s, SECONDS(60), err) : status;
}
static void check_groups(world *w) {
  unsigned char *wanted[MOST_RANKS], *last[MOST_RANKS];
  for (int i = 0; i < w->size; i++) {
    wanted[i] = ranks_fill(&w->ranks[i], 0, (size_t)w->size * PART, (uint64_t)i + 61);
    last[i] = ranks_fill(&w->ranks[i], LAST, MOST_RANKS, (uint64_t)i + 71);
  }
  const int launches = world_launches(w);
  world_do(w, all_to_all);
  for (int i = 0; i < w->size; i++)
    for (int j = 0; j < w->size; j++) {
      assert_true(ranks_holds(&w->ranks[i], BYTES / 2 + (size_t)j * PART, wanted[j] + i * PART, part_bytes(j, i)));
      assert_true(ranks_holds(&w->ranks[i], LAST + (size_t)j, last[j] + j, 1));
    }
  if (w->fake) assert_int_equal(world_launches(w) - launches, w->size); /* one launch for the group of each rank */
  for (int i = 0; i < w->size; i++) {
    free(wanted[i]);
    free(last[i]);
  }
}
GPU_CASE(nccl_groups_do_their_work_together) { in_all_worlds(check_groups); }

/* Makes an empty group, then a group of empty messages. */
static tdict_status empty_groups(rank *r, tdict_error *err) {
  const tdict_stream s = r->stream;
  const int next = (r->number + 1) % r->w->size, before = (r->number + r->w->size - 1) % r->w->size;
  tdict_status status = r->t.group_begin(r->t.self, err);
  if (status == TDICT_OK) status = r->t.group_end(r->t.self, s, SECONDS(60), err);
  if (status == TDICT_OK) status = r->t.group_begin(r->t.self, err);
  if (status == TDICT_OK) status = r->t.send(r->t.self, NULL, 0, next, s, SECONDS(60), err);
  if (status == TDICT_OK) status = r->t.receive(r->t.self, NULL, 0, before, s, SECONDS(60), err);
  if (status == TDICT_OK) status = r->t.group_end(r->t.self, s, SECONDS(60), err);
  return status == TDICT_OK ? r->t.finish(r->t.self, s, SECONDS(60), err) : status;
}
static void check_empty_groups(world *w) {
  const int launches = world_launches(w);
  world_do(w, empty_groups);
  assert_int_equal(world_launches(w), launches);
}
GPU_CASE(nccl_groups_may_be_empty) { in_all_worlds(check_empty_groups); }

static unsigned char *early;
/* Queues a copy into rank 0's memory, a broadcast, and a copy of the broadcast bytes. They must run in this order. */
static tdict_status in_order(rank *r, tdict_error *err) {
  tdict_driver *d = r->gpu->driver;
  const tdict_stream s = r->stream;
  tdict_gpu_scope scope;
  tdict_status status = tdict_gpu_enter(r->gpu, &scope, err);
  if (status != TDICT_OK) return status;
  usleep((unsigned)r->number * 3000);
  if (r->number == 0 && d->ops->copy_h2d_async(d, r->memory, early, 4096, s.handle) != 0) return TDICT_EDEVICE;
  status = r->t.broadcast(r->t.self, r->memory, 4096, 0, s, SECONDS(60), err);
  if (status == TDICT_OK && d->ops->copy_d2d_async(d, r->memory + 8192, r->memory, 4096, s.handle) != TDICT_CU_SUCCESS)
    status = TDICT_EDEVICE;
  tdict_gpu_leave(r->gpu, &scope);
  return status == TDICT_OK ? r->t.finish(r->t.self, s, SECONDS(60), err) : status;
}
static void check_order(world *w) {
  early = malloc(4096); /* pageable, so the driver copies the bytes when the copy is queued */
  td_fill_random(early, 4096, 88);
  for (int i = 0; i < w->size; i++) free(ranks_fill(&w->ranks[i], 0, 16384, 89));
  world_do(w, in_order);
  for (int i = 0; i < w->size; i++) assert_true(ranks_holds(&w->ranks[i], 8192, early, 4096));
  free(early);
}
GPU_CASE(nccl_operations_are_in_the_order_of_the_stream) { in_all_worlds(check_order); }
