/* Implements the table of thread_comm.h with one lock and one condition variable. The last rank that posts its buffers
 * for a collective operation makes all copies. Messages between two ranks wait in a list. */
#include "support/thread_comm.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/memory/memory.h"

enum { MOST_GROUPED = 64, MOST_LOGGED = 32 };
typedef struct post {
  thread_kind kind;
  const void *src; /* host memory */
  void *dst;
  size_t bytes;
  int32_t root;
  tdict_dtype dtype;
  tdict_reduce_op op;
  size_t reads, writes; /* bytes to copy from the device before the operation, and to the device after it */
} post;
typedef struct mail {
  struct mail *next;
  int from, to;
  bool host;
  size_t bytes;
  char data[];
} mail;
typedef struct rank_state {
  thread_world *world;
  int rank, calls, aborts, destroys;
  int num_calls[THREAD_KINDS];
  size_t num_bytes[THREAD_KINDS];
  int fails_at; /* number of the first call that fails; -1: none */
  bool silent, is_gone, is_aborted;
  bool in_group;
  post grouped[MOST_GROUPED];
  int num_grouped;
  post posted;
  size_t received[MOST_LOGGED]; /* number of bytes that each call received */
  bool is_waiting;
  uint64_t seen; /* value of `changes` when the rank began to wait */
} rank_state;
struct thread_world {
  pthread_mutex_t lock; /* guards everything below */
  pthread_cond_t changed;
  int world, arrived;
  uint64_t generation;
  bool mixed; /* the ranks posted different operations in the last finished generation */
  uint64_t changes;
  int damaged_rank, damaged_call; /* -1: none */
  size_t damaged_byte;
  unsigned char damage;
  tdict_context *context;
  tdict_device device;
  mail *mails;
  rank_state ranks[THREAD_MOST_RANKS];
};

thread_world *thread_world_create(int world, tdict_context *context, tdict_device device) {
  thread_world *w = calloc(1, sizeof *w);
  pthread_condattr_t clock;
  if (!w) abort();
  pthread_mutex_init(&w->lock, NULL);
  pthread_condattr_init(&clock);
  pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
  pthread_cond_init(&w->changed, &clock);
  pthread_condattr_destroy(&clock);
  w->world = world;
  w->damaged_rank = -1;
  w->context = context;
  w->device = context ? device : tdict_cpu();
  for (int i = 0; i < world; i++) w->ranks[i] = (rank_state){.world = w, .rank = i, .fails_at = -1};
  return w;
}

void thread_world_destroy(thread_world *w) {
  while (w->mails) {
    mail *next = w->mails->next;
    free(w->mails);
    w->mails = next;
  }
  pthread_mutex_destroy(&w->lock);
  pthread_cond_destroy(&w->changed);
  free(w);
}

/* Counts a change and wakes all ranks. Call with the lock held. */
static void note_change(thread_world *w) {
  w->changes++;
  pthread_cond_broadcast(&w->changed);
}

/* Returns true if all ranks wait and have seen the last change. */
static bool is_deadlock(const thread_world *w) {
  for (int i = 0; i < w->world; i++)
    if (!w->ranks[i].is_waiting || w->ranks[i].seen != w->changes) return false;
  return true;
}

/* Waits for a change. Returns an error at the deadline, or if no change is possible. Call with the lock held. */
static tdict_status await_change(rank_state *r, int wanted, int64_t deadline, tdict_error *err) {
  thread_world *w = r->world;
  if (r->is_aborted) return tdict_fail(err, TDICT_ECANCELLED, "threads: rank %d gave up", r->rank);
  for (int i = 0; i < w->world; i++)
    if (w->ranks[i].is_gone && !w->ranks[i].silent && (wanted < 0 || wanted == i))
      return tdict_fail(err, TDICT_ELOST, "threads: rank %d has ended", i);
  if (tdict_now_ns() >= deadline) return tdict_fail(err, TDICT_ETIMEDOUT, "threads: no answer in time");
  const struct timespec until = {(time_t)(deadline / 1000000000), (long)(deadline % 1000000000)};
  r->is_waiting = true;
  r->seen = w->changes;
  const bool ends = w->damaged_rank >= 0 && is_deadlock(w);
  if (!ends) pthread_cond_timedwait(&w->changed, &w->lock, &until);
  r->is_waiting = false;
  return ends ? tdict_fail(err, TDICT_ETIMEDOUT, "threads: all ranks wait") : TDICT_OK;
}

/* Logs the call. Returns an error if the call must fail. Call with the lock held. */
static tdict_status begin_call(rank_state *r, thread_kind kind, size_t bytes, tdict_error *err) {
  r->num_calls[kind]++;
  r->num_bytes[kind] += bytes;
  if (r->calls++ == r->fails_at) r->is_gone = true;
  if (!r->is_gone && !r->is_aborted) return TDICT_OK;
  note_change(r->world);
  return tdict_fail(err, TDICT_EIO, "threads: the connection of rank %d is broken", r->rank);
}

/* Makes all copies of a collective operation, after all ranks have posted their buffers. */
static void complete(thread_world *w) {
  const post *first = &w->ranks[0].posted;
  w->mixed = false;
  for (int i = 1; i < w->world; i++) {
    const post *p = &w->ranks[i].posted;
    w->mixed = w->mixed || p->kind != first->kind || p->bytes != first->bytes || p->root != first->root ||
               p->dtype != first->dtype || p->op != first->op;
  }
  if (w->mixed) return;
  if (first->kind == THREAD_ALL_REDUCE) {
    const size_t count = first->bytes / tdict_dtype_bytes(first->dtype);
    for (int i = 1; i < w->world; i++)
      thread_reduce(first->dst, w->ranks[i].posted.src, count, first->dtype, first->op);
    if (first->op == TDICT_REDUCE_MEAN) thread_divide(first->dst, count, first->dtype, w->world);
  }
  for (int to = 0; to < w->world; to++) {
    const post *p = &w->ranks[to].posted;
    if (p->kind == THREAD_BROADCAST || p->kind == THREAD_ALL_REDUCE) {
      const post *root = &w->ranks[p->kind == THREAD_BROADCAST ? p->root : 0].posted;
      const void *from = p->kind == THREAD_BROADCAST ? root->src : root->dst;
      if (p->dst != from) memmove(p->dst, from, p->bytes); /* the root's memory may be read-only */
      continue;
    }
    for (int from = 0; from < w->world; from++)
      memmove((char *)p->dst + (size_t)from * p->bytes, w->ranks[from].posted.src, p->bytes);
  }
}

static tdict_status meet(rank_state *r, const post *mine, int64_t timeout_ns, tdict_error *err) {
  thread_world *w = r->world;
  const int64_t deadline = tdict_deadline_ns(timeout_ns);
  const uint64_t generation = w->generation;
  tdict_status status = TDICT_OK;
  r->posted = *mine;
  if (++w->arrived == w->world) {
    complete(w);
    w->arrived = 0;
    w->generation++;
    note_change(w);
  }
  while (w->generation == generation && status == TDICT_OK) status = await_change(r, -1, deadline, err);
  if (status != TDICT_OK) {
    w->arrived--;
    return status;
  }
  return w->mixed ? tdict_fail(err, TDICT_EFORMAT, "threads: the ranks' operations differ") : TDICT_OK;
}

static tdict_status post_mail(rank_state *r, const post *p, tdict_error *err) {
  const size_t bytes = p->bytes;
  mail *m = malloc(sizeof *m + bytes), **at = &r->world->mails;
  if (!m) return tdict_fail(err, TDICT_ENOMEM, "threads: no host memory for %zu bytes", bytes);
  *m = (mail){.from = r->rank, .to = p->root, .host = p->kind == THREAD_SEND_HOST, .bytes = bytes};
  if (bytes) memcpy(m->data, p->src, bytes);
  while (*at) at = &(*at)->next;
  *at = m;
  note_change(r->world);
  return TDICT_OK;
}

static tdict_status take_mail(rank_state *r, const post *p, int64_t timeout_ns, tdict_error *err) {
  const int64_t deadline = tdict_deadline_ns(timeout_ns);
  for (;;) {
    for (mail **at = &r->world->mails; *at; at = &(*at)->next) {
      mail *m = *at;
      if (m->from != p->root || m->to != r->rank || m->host != (p->kind == THREAD_RECEIVE_HOST)) continue;
      const bool fits = m->bytes == p->bytes;
      *at = m->next;
      if (fits && p->bytes) memcpy(p->dst, m->data, p->bytes);
      free(m);
      return fits ? TDICT_OK : tdict_fail(err, TDICT_EFORMAT, "threads: a message has a wrong size");
    }
    tdict_status status = await_change(r, p->root, deadline, err);
    if (status != TDICT_OK) return status;
  }
}

/* Copies a rectangle between the device and the host, after the work on the stream. */
static tdict_status copy_device(thread_world *w, tdict_stream stream, const tdict_rect *rect, tdict_direction direction,
                                tdict_error *err) {
  tdict_memory *m = tdict_device_memory(w->context, w->device);
  if (rect->width == 0) return TDICT_OK;
  tdict_status status = tdict_stream_synchronize(w->context, stream, err);
  return status == TDICT_OK ? m->ops->copy(m, rect, direction, err) : status;
}

/* Runs one operation on host buffers. Call with the lock held. */
static tdict_status run_on_host(rank_state *r, const post *p, int64_t timeout_ns, tdict_error *err) {
  tdict_status status = begin_call(r, p->kind, p->bytes, err);
  if (status != TDICT_OK) return status;
  if (p->kind == THREAD_SEND || p->kind == THREAD_SEND_HOST) return post_mail(r, p, err);
  if (p->kind == THREAD_RECEIVE || p->kind == THREAD_RECEIVE_HOST) return take_mail(r, p, timeout_ns, err);
  return meet(r, p, timeout_ns, err);
}

/* Records how many bytes a call received. Flips the bits that thread_world_damage() chose. Call with the lock held. */
static void receive(rank_state *r, const post *p, int call) {
  const thread_world *w = r->world;
  const bool gathers = p->kind == THREAD_EXCHANGE || p->kind == THREAD_ALL_GATHER;
  const bool sends =
      p->kind == THREAD_SEND || p->kind == THREAD_SEND_HOST || (p->kind == THREAD_BROADCAST && p->root == r->rank);
  const size_t bytes = sends ? 0 : gathers ? p->bytes * (size_t)w->world : p->bytes;
  if (call < MOST_LOGGED) r->received[call] = bytes;
  if (w->damaged_rank == r->rank && w->damaged_call == call && w->damaged_byte < bytes)
    ((unsigned char *)p->dst)[w->damaged_byte] ^= w->damage;
}

static tdict_status run(rank_state *r, post p, int64_t timeout_ns, tdict_error *err) {
  pthread_mutex_lock(&r->world->lock);
  const int call = r->calls;
  tdict_status status = run_on_host(r, &p, timeout_ns, err);
  if (status == TDICT_OK) receive(r, &p, call);
  pthread_mutex_unlock(&r->world->lock);
  return status;
}

/* Runs an operation whose buffers are in the memory of the world's device. */
static tdict_status run_data(rank_state *r, post p, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  if (!r->world->context || r->world->device.type == TDICT_DEVICE_CPU) return run(r, p, timeout_ns, err);
  char *in = calloc(1, p.reads + 1), *out = calloc(1, p.writes + 1);
  if (!in || !out) {
    free(in);
    free(out);
    return tdict_fail(err, TDICT_ENOMEM, "threads: no host memory for %zu bytes", p.bytes);
  }
  const tdict_rect get = {in, p.src, 0, 0, p.reads, 1}, put = {p.dst, out, 0, 0, p.writes, 1};
  tdict_status status = copy_device(r->world, stream, &get, TDICT_COPY_OUT, err);
  if (status == TDICT_OK && p.kind == THREAD_ALL_REDUCE) memcpy(out, in, p.writes);
  p.src = in;
  p.dst = out;
  if (status == TDICT_OK) status = run(r, p, timeout_ns, err);
  if (status == TDICT_OK) status = copy_device(r->world, stream, &put, TDICT_COPY_IN, err);
  free(in);
  free(out);
  return status;
}

/* Adds the operation to the open group, or runs it if no group is open. */
static tdict_status add_or_run(rank_state *r, post p, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  if (r->in_group) {
    if (r->num_grouped == MOST_GROUPED) abort();
    r->grouped[r->num_grouped++] = p;
    return TDICT_OK;
  }
  const bool is_root = p.kind == THREAD_BROADCAST && p.root == r->rank;
  p.reads = p.kind == THREAD_SEND || is_root ? p.bytes : 0;
  p.writes = p.kind == THREAD_SEND ? 0 : p.bytes;
  return run_data(r, p, stream, timeout_ns, err);
}

static tdict_status op_exchange(void *self, const void *src, void *dst, size_t bytes, int64_t timeout_ns,
                                tdict_error *err) {
  return run(self, (post){.kind = THREAD_EXCHANGE, .src = src, .dst = dst, .bytes = bytes}, timeout_ns, err);
}
static tdict_status op_send_host(void *self, const void *src, size_t bytes, int32_t peer, int64_t timeout_ns,
                                 tdict_error *err) {
  return run(self, (post){.kind = THREAD_SEND_HOST, .src = src, .bytes = bytes, .root = peer}, timeout_ns, err);
}
static tdict_status op_receive_host(void *self, void *dst, size_t bytes, int32_t peer, int64_t timeout_ns,
                                    tdict_error *err) {
  return run(self, (post){.kind = THREAD_RECEIVE_HOST, .dst = dst, .bytes = bytes, .root = peer}, timeout_ns, err);
}
static tdict_status op_broadcast(void *self, void *buffer, size_t bytes, int32_t root, tdict_stream stream,
                                 int64_t timeout_ns, tdict_error *err) {
  const post p = {.kind = THREAD_BROADCAST, .src = buffer, .dst = buffer, .bytes = bytes, .root = root};
  return add_or_run(self, p, stream, timeout_ns, err);
}
static tdict_status op_all_gather(void *self, const void *src, void *dst, size_t bytes, tdict_stream stream,
                                  int64_t timeout_ns, tdict_error *err) {
  rank_state *r = self;
  const post p = {.kind = THREAD_ALL_GATHER,
                  .src = src,
                  .dst = dst,
                  .bytes = bytes,
                  .reads = bytes,
                  .writes = bytes * (size_t)r->world->world};
  return run_data(r, p, stream, timeout_ns, err);
}
static bool op_can_reduce(void *self, tdict_dtype dtype, tdict_reduce_op op) {
  (void)self;
  return thread_can_reduce(dtype, op);
}
static tdict_status op_all_reduce(void *self, void *buffer, size_t count, tdict_dtype dtype, tdict_reduce_op op,
                                  tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  const size_t bytes = count * tdict_dtype_bytes(dtype);
  const post p = {.kind = THREAD_ALL_REDUCE,
                  .src = buffer,
                  .dst = buffer,
                  .bytes = bytes,
                  .dtype = dtype,
                  .op = op,
                  .reads = bytes,
                  .writes = bytes};
  return run_data(self, p, stream, timeout_ns, err);
}
static tdict_status op_send(void *self, const void *src, size_t bytes, int32_t peer, tdict_stream stream,
                            int64_t timeout_ns, tdict_error *err) {
  return add_or_run(self, (post){.kind = THREAD_SEND, .src = src, .bytes = bytes, .root = peer}, stream, timeout_ns,
                    err);
}
static tdict_status op_receive(void *self, void *dst, size_t bytes, int32_t peer, tdict_stream stream,
                               int64_t timeout_ns, tdict_error *err) {
  return add_or_run(self, (post){.kind = THREAD_RECEIVE, .dst = dst, .bytes = bytes, .root = peer}, stream, timeout_ns,
                    err);
}
static tdict_status op_group_begin(void *self, tdict_error *err) {
  rank_state *r = self;
  (void)err;
  r->in_group = true;
  r->num_grouped = 0;
  return TDICT_OK;
}
/* Runs the operations of the group. Sends come first because a send never waits. */
static tdict_status op_group_end(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  static const thread_kind order[] = {THREAD_SEND, THREAD_BROADCAST, THREAD_RECEIVE};
  rank_state *r = self;
  tdict_status status = TDICT_OK;
  r->in_group = false;
  for (int k = 0; k < 3; k++)
    for (int i = 0; i < r->num_grouped && status == TDICT_OK; i++)
      if (r->grouped[i].kind == order[k]) status = add_or_run(r, r->grouped[i], stream, timeout_ns, err);
  return status;
}
static tdict_status op_finish(void *self, tdict_stream stream, int64_t timeout_ns, tdict_error *err) {
  rank_state *r = self;
  (void)timeout_ns;
  if (!r->world->context || r->world->device.type == TDICT_DEVICE_CPU) return TDICT_OK;
  return tdict_stream_synchronize(r->world->context, stream, err);
}
static void op_abort(void *self) {
  rank_state *r = self;
  pthread_mutex_lock(&r->world->lock);
  r->aborts++;
  r->is_aborted = true;
  r->is_gone = true;
  note_change(r->world);
  pthread_mutex_unlock(&r->world->lock);
}
static void op_destroy(void *self) {
  rank_state *r = self;
  pthread_mutex_lock(&r->world->lock);
  r->destroys++;
  pthread_mutex_unlock(&r->world->lock);
}

void thread_world_table(thread_world *w, int rank, tdict_comm_table *out) {
  *out = (tdict_comm_table){.struct_size = sizeof *out,
                            .self = &w->ranks[rank],
                            .name = "threads",
                            .rank = rank,
                            .world_size = w->world,
                            .device = w->device,
                            .exchange = op_exchange,
                            .send_host = op_send_host,
                            .receive_host = op_receive_host,
                            .broadcast = op_broadcast,
                            .all_gather = op_all_gather,
                            .can_reduce = op_can_reduce,
                            .all_reduce = op_all_reduce,
                            .send = op_send,
                            .receive = op_receive,
                            .group_begin = op_group_begin,
                            .group_end = op_group_end,
                            .finish = op_finish,
                            .abort = op_abort,
                            .destroy = op_destroy};
}

void thread_world_fail(thread_world *w, int rank, int call, bool silent) {
  w->ranks[rank].fails_at = call;
  w->ranks[rank].silent = silent;
}
void thread_world_damage(thread_world *w, int rank, int call, size_t byte, unsigned char bits) {
  w->damaged_rank = rank;
  w->damaged_call = call;
  w->damaged_byte = byte;
  w->damage = bits;
}
size_t thread_world_received(thread_world *w, int rank, int call) {
  return call < MOST_LOGGED ? w->ranks[rank].received[call] : 0;
}
void thread_world_leave(thread_world *w, int rank) {
  pthread_mutex_lock(&w->lock);
  w->ranks[rank].is_gone = true;
  note_change(w);
  pthread_mutex_unlock(&w->lock);
}
int thread_world_calls(thread_world *w, int rank, thread_kind kind) { return w->ranks[rank].num_calls[kind]; }
size_t thread_world_bytes(thread_world *w, int rank, thread_kind kind) { return w->ranks[rank].num_bytes[kind]; }
int thread_world_all_calls(thread_world *w, int rank) { return w->ranks[rank].calls; }
int thread_world_aborts(thread_world *w, int rank) { return w->ranks[rank].aborts; }
int thread_world_destroys(thread_world *w, int rank) { return w->ranks[rank].destroys; }
void thread_world_forget(thread_world *w) {
  for (int i = 0; i < w->world; i++) {
    memset(w->ranks[i].num_calls, 0, sizeof w->ranks[i].num_calls);
    memset(w->ranks[i].num_bytes, 0, sizeof w->ranks[i].num_bytes);
  }
}
int thread_world_unread(thread_world *w) {
  int count = 0;
  for (const mail *m = w->mails; m; m = m->next) count++;
  return count;
}
