/* A stand-in for libnccl.so.2, for tests of src/services/comm/nccl on machines without GPUs: the ranks are threads of
 * one process, and their devices are simulated. Operations run as functions on the stream, where they wait for the
 * other ranks. The last rank to arrive moves all bytes. The fake refuses what NCCL's manual forbids: calls without a
 * current context, and ranks that disagree on the operation or its size. Thread rule: as NCCL's. */
#include "services/comm/nccl/fake_nccl.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "services/comm/nccl/fake_reduce.h"
#include "services/comm/nccl/nccl_api.h"

#define EXPORT __attribute__((visibility("default")))
#define DECLARE(field, symbol, parameters) EXPORT tdict_nccl_##field##_fn symbol;
TDICT_NCCL_ENTRIES(DECLARE)
EXPORT tdict_nccl_error_string_fn ncclGetErrorString;
#ifndef FAKE_WITHOUT_LAST_ERROR
EXPORT tdict_nccl_last_error_fn ncclGetLastError;
#endif
EXPORT extern fake_nccl_settings fake_nccl;

enum { OK = 0, CUDA_ERROR = 1, INTERNAL = 3, INVALID = 4, USAGE = 5, PROGRESS = 7, MOST_RANKS = 8 };
typedef enum kind { BROADCAST, GATHER, REDUCE, SEND, RECEIVE } kind;
typedef struct op {
  kind kind;
  const void *src;
  void *dst;
  size_t count;
  int type, op, peer; /* peer: the other rank, or the root */
} op;
/* An operation for which ranks wait for each other: all ranks of a clique, or a sender and a receiver. */
typedef struct meeting {
  uint64_t number; /* sequence number of the collective, or of the message from `from` to `to` */
  int from, to;    /* -1: all ranks */
  int wanted, arrived;
  bool done, broken;  /* broken: a rank was aborted before the operation was complete */
  op ops[MOST_RANKS]; /* one for each rank; for a pair: the sender's, then the receiver's */
  struct meeting *next;
} meeting;
typedef struct clique {
  char id[TDICT_NCCL_ID_BYTES];
  int world, arrived, finalized, refs;
  struct ncclComm *comms[MOST_RANKS];
  meeting *meetings;
  struct clique *next;
} clique;
/* The operations of one group, launched together. */
typedef struct batch {
  struct ncclComm *comm;
  tdict_stream stream;
  size_t count;
  op ops[64];
  meeting *meetings[64];
} batch;
struct ncclComm {
  clique *clique;
  int rank, device, refs, error, polls;
  bool aborted, finalized;
  struct ncclComm *parent;            /* the communicator from which ncclCommSplit made this one, retained; or NULL */
  struct ncclComm *child, **child_at; /* child: the result of a split in progress; child_at: where to store it */
  uint64_t collectives, sent[MOST_RANKS], received[MOST_RANKS];
  batch *pending; /* operations in progress that are not launched yet */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all cliques */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static clique *cliques;
static int last_id;
static _Thread_local int depth;
static _Thread_local batch *group;

static void set_error(int rank, int result) {
  pthread_mutex_lock(&lock);
  for (clique *q = cliques; q; q = q->next)
    if (rank < q->world && q->comms[rank]) q->comms[rank]->error = result;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&lock);
}
fake_nccl_settings fake_nccl = {.version = 22809, .inject = set_error};

/* Returns whether the communicator or its parent was aborted. In NCCL, both share one abort flag. */
static bool is_aborted(const struct ncclComm *comm) { return comm->aborted || (comm->parent && comm->parent->aborted); }

static void release_comm(struct ncclComm *comm) {
  if (--comm->refs > 0) return;
  if (comm->parent) release_comm(comm->parent);
  clique *q = comm->clique;
  free(comm->pending);
  free(comm);
  if (--q->refs > 0) return;
  for (clique **at = &cliques; *at; at = &(*at)->next)
    if (*at == q) {
      *at = q->next;
      break;
    }
  for (meeting *m = q->meetings, *next; m; m = next) {
    next = m->next;
    free(m);
  }
  free(q);
}

/* Moves the bytes of a meeting at which all ranks have arrived. Returns false if their operations do not match. */
static bool perform(const clique *q, meeting *m) {
  const op *first = &m->ops[0];
  const size_t bytes = first->count * fake_type_bytes(first->type);
  if (m->from >= 0) {
    if (m->ops[1].count != first->count || m->ops[1].type != first->type) return false;
    memmove(m->ops[1].dst, first->src, bytes);
    return true;
  }
  const void *parts[MOST_RANKS];
  for (int r = 0; r < q->world; r++) {
    const op *o = &m->ops[r];
    if (o->kind != first->kind || o->count != first->count || o->type != first->type || o->op != first->op ||
        o->peer != first->peer)
      return false;
    parts[r] = o->src;
  }
  if (first->kind == REDUCE) {
    void *result = malloc(bytes);
    bool good = result && fake_reduce(parts, q->world, first->count, first->type, first->op, result);
    for (int r = 0; good && r < q->world; r++) memcpy(m->ops[r].dst, result, bytes);
    free(result);
    return good;
  }
  for (int r = 0; r < q->world; r++) {
    if (first->kind == BROADCAST) memmove(m->ops[r].dst, parts[first->peer], bytes);
    for (int s = 0; first->kind == GATHER && s < q->world; s++)
      memmove((char *)m->ops[r].dst + (size_t)s * bytes, parts[s], bytes);
  }
  return true;
}

/* Finds or makes the meeting for an operation, and adds the rank to it. */
static meeting *arrive(struct ncclComm *comm, const op *o) {
  clique *q = comm->clique;
  const bool pair = o->kind == SEND || o->kind == RECEIVE;
  const int from = !pair ? -1 : o->kind == SEND ? comm->rank : o->peer;
  const int to = !pair ? -1 : o->kind == SEND ? o->peer : comm->rank;
  uint64_t *counter = !pair ? &comm->collectives : o->kind == SEND ? &comm->sent[o->peer] : &comm->received[o->peer];
  const uint64_t number = (*counter)++;
  meeting *m = q->meetings;
  while (m && (m->number != number || m->from != from || m->to != to)) m = m->next;
  if (!m) {
    m = calloc(1, sizeof *m);
    *m = (meeting){.number = number, .from = from, .to = to, .wanted = pair ? 2 : q->world, .next = q->meetings};
    q->meetings = m;
  }
  m->ops[!pair ? comm->rank : o->kind == RECEIVE] = *o;
  if (++m->arrived == m->wanted && !m->broken) {
    if (!perform(q, m))
      for (int r = 0; r < q->world; r++)
        if (q->comms[r]) q->comms[r]->error = USAGE;
    m->done = true;
    pthread_cond_broadcast(&changed);
  }
  return m;
}

static bool all_done(const batch *b) {
  for (size_t i = 0; i < b->count; i++)
    if (!b->meetings[i]->done) return false;
  return true;
}

/* Performs the operations of a batch. Runs on the stream. */
static void run_batch(void *user) {
  batch *b = user;
  struct ncclComm *comm = b->comm;
  bool good = true;
  for (size_t i = 0; i < b->count; i++) {
    op *o = &b->ops[i];
    const void *src = fake_nccl.host_pointer(b->stream, o->src); /* NULL unless it is device memory */
    void *dst = fake_nccl.host_pointer(b->stream, o->dst);
    if (src) o->src = src;
    if (dst) o->dst = dst;
    good = good && (o->kind == RECEIVE || o->src) && (o->kind == SEND || o->dst);
  }
  pthread_mutex_lock(&lock);
  if (!good) comm->error = CUDA_ERROR;
  if (good && !is_aborted(comm)) {
    for (size_t i = 0; i < b->count; i++) b->meetings[i] = arrive(comm, &b->ops[i]);
    while (!all_done(b) && !is_aborted(comm)) pthread_cond_wait(&changed, &lock);
    for (size_t i = 0; i < b->count; i++) b->meetings[i]->broken = !b->meetings[i]->done;
  }
  release_comm(comm);
  pthread_mutex_unlock(&lock);
  free(b);
}

/* Launches a batch on its stream. The caller must not hold the lock. */
static int launch(batch *b) {
  tdict_error err;
  fake_nccl.launches++;
  b->stream.device = (tdict_device){TDICT_DEVICE_SIM, b->comm->device};
  if (fake_nccl.launch(b->stream, run_batch, b, &err) == TDICT_OK) return OK;
  pthread_mutex_lock(&lock);
  release_comm(b->comm);
  pthread_mutex_unlock(&lock);
  free(b);
  return CUDA_ERROR;
}

/* Waits inside the call, as NCCL does while it connects ranks, until the communicator is aborted or has an error. */
static int block(batch *b) {
  struct ncclComm *comm = b->comm;
  pthread_mutex_lock(&lock);
  while (!is_aborted(comm) && !comm->error) pthread_cond_wait(&changed, &lock);
  const int result = comm->error ? comm->error : INTERNAL;
  release_comm(comm);
  pthread_mutex_unlock(&lock);
  free(b);
  return result;
}

/* Launches a batch now or after fake_nccl.polls calls of ncclCommGetAsyncError, or waits in block(). */
static int begin(batch *b) {
  if (fake_nccl.blocks) return block(b);
  if (!fake_nccl.polls) return launch(b);
  b->comm->pending = b;
  b->comm->polls = fake_nccl.polls;
  return PROGRESS;
}

/* Adds an operation to the thread's group. Outside a group, starts a batch with this operation alone. */
static int add(struct ncclComm *comm, tdict_nccl_stream stream, const op *o) {
  fake_nccl.operations++;
  if (fake_nccl.call_result) return fake_nccl.call_result;
  if (fake_nccl.device() != comm->device) return CUDA_ERROR;
  if (o->peer < 0 || o->peer >= comm->clique->world || comm->pending || comm->clique->arrived < comm->clique->world)
    return INVALID;
  batch *b = depth ? group : NULL;
  if (!b) {
    b = calloc(1, sizeof *b);
    b->comm = comm;
    b->stream.handle = stream;
    pthread_mutex_lock(&lock);
    comm->refs++;
    pthread_mutex_unlock(&lock);
  }
  if (b->comm != comm || b->stream.handle != (void *)stream || b->count == 64) return USAGE;
  b->ops[b->count++] = *o;
  if (!depth) return begin(b);
  group = b;
  return OK;
}

tdict_nccl_result ncclGroupStart(void) {
  depth++;
  fake_nccl.open_groups++;
  return OK;
}
tdict_nccl_result ncclGroupEnd(void) {
  if (depth == 0) return USAGE;
  fake_nccl.open_groups--;
  if (--depth > 0 || !group) return OK;
  batch *b = group;
  group = NULL;
  return begin(b);
}
tdict_nccl_result ncclBroadcast(const void *src, void *dst, size_t count, tdict_nccl_type type, int root,
                                tdict_nccl_comm comm, tdict_nccl_stream stream) {
  return add(comm, stream, &(op){BROADCAST, src, dst, count, type, 0, root});
}
tdict_nccl_result ncclAllGather(const void *src, void *dst, size_t count, tdict_nccl_type type, tdict_nccl_comm comm,
                                tdict_nccl_stream stream) {
  return add(comm, stream, &(op){GATHER, src, dst, count, type, 0, 0});
}
tdict_nccl_result ncclAllReduce(const void *src, void *dst, size_t count, tdict_nccl_type type, tdict_nccl_op operation,
                                tdict_nccl_comm comm, tdict_nccl_stream stream) {
  if (type >= 10 && operation == 4 && comm->clique->world == 1) return INVALID; /* as in NCCL 2.28 */
  return add(comm, stream, &(op){REDUCE, src, dst, count, type, operation, 0});
}
tdict_nccl_result ncclSend(const void *src, size_t count, tdict_nccl_type type, int peer, tdict_nccl_comm comm,
                           tdict_nccl_stream stream) {
  return add(comm, stream, &(op){SEND, src, NULL, count, type, 0, peer});
}
tdict_nccl_result ncclRecv(void *dst, size_t count, tdict_nccl_type type, int peer, tdict_nccl_comm comm,
                           tdict_nccl_stream stream) {
  return add(comm, stream, &(op){RECEIVE, NULL, dst, count, type, 0, peer});
}

tdict_nccl_result ncclGetVersion(int *version) {
  *version = fake_nccl.version;
  return fake_nccl.version_result;
}
tdict_nccl_result ncclGetUniqueId(tdict_nccl_unique_id *id) {
  if (fake_nccl.id_result) return fake_nccl.id_result;
  pthread_mutex_lock(&lock);
  memset(id->internal, ++last_id, sizeof id->internal);
  pthread_mutex_unlock(&lock);
  return OK;
}

static clique *find_clique(const tdict_nccl_unique_id *id, int world) {
  clique *q = cliques;
  while (q && memcmp(q->id, id->internal, sizeof q->id) != 0) q = q->next;
  if (!q) {
    q = calloc(1, sizeof *q);
    memcpy(q->id, id->internal, sizeof q->id);
    q->world = world;
    q->next = cliques;
    cliques = q;
  }
  return q;
}

static bool is_good_config(const tdict_nccl_config_arg *c, bool blocks) {
  return c->size == 48 && c->magic == 0xcafebeef && c->version == 21800 && c->blocking == blocks &&
         c->split_share == 1 && c->cga_cluster_size == INT_MIN && c->min_ctas == INT_MIN && c->max_ctas == INT_MIN &&
         !c->net_name;
}

tdict_nccl_result ncclCommInitRankConfig(tdict_nccl_comm *out, int world, tdict_nccl_unique_id id, int rank,
                                         tdict_nccl_config_arg *config) {
  const int device = fake_nccl.device();
  *out = NULL;
  if (fake_nccl.init_result) return fake_nccl.init_result;
  if (device < 0) return CUDA_ERROR;
  if (!is_good_config(config, false)) return INVALID;
  if (world < 1 || world > MOST_RANKS || rank < 0 || rank >= world) return INVALID;
  pthread_mutex_lock(&lock);
  clique *q = find_clique(&id, world);
  int result = q->world == world && !q->comms[rank] ? PROGRESS : INVALID;
  if (result == PROGRESS) {
    struct ncclComm *comm = calloc(1, sizeof *comm);
    *comm = (struct ncclComm){.clique = q, .rank = rank, .device = device, .refs = 1};
    q->comms[rank] = *out = comm;
    q->arrived++;
    q->refs++;
    fake_nccl.comms++;
  }
  pthread_mutex_unlock(&lock);
  return result;
}

/* Makes a child communicator with the same ranks. All ranks must pass color 0 and their own rank as `key`. */
tdict_nccl_result ncclCommSplit(tdict_nccl_comm comm, int color, int key, tdict_nccl_comm *out,
                                tdict_nccl_config_arg *config) {
  tdict_nccl_unique_id id;
  *out = NULL;
  if (fake_nccl.split_result) return fake_nccl.split_result;
  if (fake_nccl.device() != comm->device) return CUDA_ERROR;
  if (!is_good_config(config, true) || color != 0 || key != comm->rank || comm->child || comm->parent) return INVALID;
  memcpy(id.internal, comm->clique->id, sizeof id.internal);
  id.internal[0] ^= 1;
  pthread_mutex_lock(&lock);
  struct ncclComm *child = calloc(1, sizeof *child);
  clique *q = find_clique(&id, comm->clique->world);
  *child = (struct ncclComm){.clique = q, .rank = comm->rank, .device = comm->device, .refs = 1, .parent = comm};
  q->comms[comm->rank] = child;
  q->arrived++;
  q->refs++;
  comm->refs++;
  comm->child = child;
  comm->child_at = out;
  fake_nccl.comms++;
  pthread_mutex_unlock(&lock);
  return PROGRESS;
}

/* Removes a communicator from its clique and releases it. The caller must hold the lock. */
static void end_comm(struct ncclComm *comm) {
  comm->clique->comms[comm->rank] = NULL;
  fake_nccl.comms--;
  release_comm(comm);
}

tdict_nccl_result ncclCommFinalize(tdict_nccl_comm comm) {
  pthread_mutex_lock(&lock);
  int result = comm->finalized ? INVALID : PROGRESS;
  comm->finalized = true;
  comm->clique->finalized++;
  pthread_mutex_unlock(&lock);
  return result;
}
tdict_nccl_result ncclCommDestroy(tdict_nccl_comm comm) {
  pthread_mutex_lock(&lock);
  int result = comm->finalized ? OK : USAGE;
  if (result == OK) end_comm(comm);
  pthread_mutex_unlock(&lock);
  return result;
}
tdict_nccl_result ncclCommAbort(tdict_nccl_comm comm) {
  pthread_mutex_lock(&lock);
  fake_nccl.aborts++;
  comm->aborted = true;
  if (comm->pending) comm->refs--; /* the batch was never launched, and is freed with the communicator */
  if (comm->child) end_comm(comm->child);
  comm->child = NULL;
  pthread_cond_broadcast(&changed);
  end_comm(comm);
  pthread_mutex_unlock(&lock);
  return OK;
}

tdict_nccl_result ncclCommGetAsyncError(tdict_nccl_comm comm, tdict_nccl_result *state) {
  batch *ready = NULL;
  pthread_mutex_lock(&lock);
  const clique *q = comm->clique;
  const bool splits = comm->child && comm->child->clique->arrived < q->world;
  const bool waits = q->arrived < q->world || splits || (comm->finalized && q->finalized < q->world);
  if (comm->child && !splits) {
    *comm->child_at = comm->child;
    comm->child = NULL;
  }
  if (comm->pending && --comm->polls <= 0) {
    ready = comm->pending;
    comm->pending = NULL;
  }
  *state = comm->error ? comm->error : waits || comm->pending ? PROGRESS : OK;
  pthread_mutex_unlock(&lock);
  return ready ? launch(ready) : OK;
}

const char *ncclGetErrorString(tdict_nccl_result result) {
  static const char *const texts[] = {
      "no error",           "fake cuda error",   "fake system error", "fake internal error", "fake invalid argument",
      "fake invalid usage", "fake remote error", "in progress"};
  return result >= 0 && result < 8 ? texts[result] : NULL;
}
#ifndef FAKE_WITHOUT_LAST_ERROR
const char *ncclGetLastError(tdict_nccl_comm comm) {
  (void)comm;
  return fake_nccl.last_error;
}
#endif
