/* Tests a communicator whose ranks are threads. A rank may fail, be late or die.
 *
 * All ranks make the calls listed in a script, either blocking or asynchronous. Each rank checks its results against
 * the rows that all ranks passed to the call. In some runs, a function of a rank's table fails, a rank exits between
 * two calls, or a rank is late. Each call then returns the right result or an error. A rank that gets an error aborts
 * its communicator, as a program would, so no rank waits forever. */
#include <unistd.h>

#include "dst/workloads/model.h"
#include "support/take_comm.h"
#include "support/thread_comm.h"
#include "tdict/comm.h"
#include "tdict/shape.h"

enum { WORLD = 3, NUM_CALLS = 6, MOST_ROWS = 6, WIDTH = 20, NUM_NUMBERS = 5, SECOND = 1000000000 };

typedef enum call_kind {
  BROADCAST,
  BROADCAST_INTO,
  SCATTER,
  GATHER_TO,
  ALL_GATHER,
  STACK,
  REDUCE,
  SEND,
  MISMATCH, /* the ranks pass different roots */
  NUM_CALL_KINDS
} call_kind;
/* One call of the script. All ranks make the same calls. */
typedef struct script_call {
  call_kind kind;
  int32_t root, peer; /* SEND: from root to peer */
  tdict_reduce_op reduce;
  int64_t counts[WORLD]; /* rows of each rank's part */
} script_call;
typedef enum trouble { NO_TROUBLE, FAILS, FAILS_SILENTLY, DIES, COMES_LATE, NUM_TROUBLES } trouble;

typedef struct stage {
  model_world world;
  thread_world *threads;
  tdict_device device;
  tdict_comm *comms[WORLD];
  script_call script[NUM_CALLS];
  bool is_async;
  bool is_patient; /* timeouts never expire early */
  trouble trouble;
  int unlucky_rank, unlucky_call;
  int64_t timeout_ns;
} stage;
/* The trees and the future of a call on one rank. */
typedef struct taking {
  tdict_tree *given, *result;
  tdict_future *future;
  bool is_done;
} taking;

/* ---- the trees of a call ---- */

static model_rows rows_of(int call, int rank, int64_t count) {
  return model_rows_of((call + 1) * 10 + rank, 0, count, WIDTH);
}
static model_rows joined_rows(const script_call *c, int call) {
  model_rows joined = {.width = WIDTH};
  for (int r = 0; r < WORLD; r++)
    for (int64_t i = 0; i < c->counts[r]; i++) joined.stamps[joined.count++] = rows_of(call, r, c->counts[r]).stamps[i];
  return joined;
}
/* Makes a tree on the host or (always for calls in place) the ranks' device. Returns NULL after an injected fault. */
static tdict_tree *make_tree(stage *s, const model_rows *rows, bool in_place) {
  tdict_tree *td = dst_roll(2) ? model_tree(rows) : model_block(rows, NULL), *there = NULL;
  const bool moves = td && s->device.type != TDICT_DEVICE_CPU && (in_place || dst_roll(2));
  if (!moves) return td;
  (void)model_ok(tdict_to_device(s->world.context, td, s->device, NULL, &there, model_error()));
  tdict_release(td);
  return there;
}

/* Returns element `i` of the leaf that a rank passes to a reduction. */
static int64_t number_of(int call, int rank, int i) { return call * 7 + (rank * 5 + i * 3) % 11; }
static bool put_numbers(tdict_tree *td, const char *path, tdict_dtype dtype, const void *data) {
  const int64_t count = NUM_NUMBERS;
  scoped_tensor t = NULL;
  bool is_ok = model_ok(tdict_tensor_from_array(dtype, 1, &count, data, &t, model_error()));
  is_ok = is_ok && model_ok(tdict_set(td, path, t, model_error()));
  return is_ok;
}
/* Makes a tree with the tripled numbers as floats and, unless the call computes the mean, the numbers as integers. */
static tdict_tree *make_numbers(stage *s, int call, int rank) {
  const bool is_mean = s->script[call].reduce == TDICT_REDUCE_MEAN;
  int64_t integers[NUM_NUMBERS];
  float reals[NUM_NUMBERS];
  tdict_tree *td = NULL, *there = NULL;
  for (int i = 0; i < NUM_NUMBERS; i++) {
    integers[i] = number_of(call, rank, i);
    reals[i] = (float)integers[i] * 3; /* so the mean of three ranks is integral */
  }
  bool is_ok = model_ok(tdict_create(0, NULL, &td, model_error())) && put_numbers(td, "real", TDICT_F32, reals);
  if (is_ok && !is_mean) is_ok = put_numbers(td, "deep.integer", TDICT_I64, integers);
  if (is_ok && s->device.type == TDICT_DEVICE_CPU) return td;
  if (is_ok) (void)model_ok(tdict_to_device(s->world.context, td, s->device, NULL, &there, model_error()));
  tdict_release(td);
  return there;
}
static int64_t reduced(const script_call *c, int call, int i) {
  int64_t result = number_of(call, 0, i);
  for (int r = 1; r < WORLD; r++) {
    const int64_t next = number_of(call, r, i);
    if (c->reduce == TDICT_REDUCE_MIN)
      result = next < result ? next : result;
    else if (c->reduce == TDICT_REDUCE_MAX)
      result = next > result ? next : result;
    else
      result += next;
  }
  return result;
}

static tdict_tree *make_given(stage *s, int call, int rank) {
  const script_call *c = &s->script[call];
  const model_rows own = rows_of(call, rank, c->counts[rank]), shared = rows_of(call, rank, c->counts[0]);
  const model_rows joined = joined_rows(c, call);
  switch (c->kind) {
  case BROADCAST:
  case MISMATCH:
    return make_tree(s, &own, false);
  case BROADCAST_INTO:
    return make_tree(s, &shared, true);
  case SCATTER:
    return make_tree(s, &joined, false);
  case STACK:
    return make_tree(s, &shared, false);
  case REDUCE:
    return make_numbers(s, call, rank);
  default:
    return make_tree(s, &own, false);
  }
}

/* ---- calls ---- */

/* Makes a call of the script on one rank, either blocking or asynchronous. */
static tdict_status make_call(stage *s, int call, int rank, taking *t) {
  const script_call *c = &s->script[call];
  tdict_comm *comm = s->comms[rank];
  const bool is_root = rank == c->root;
  tdict_error *err = model_error();
  tdict_tree **out = &t->result;
  tdict_future **f = &t->future;
  const tdict_tree *from_root = is_root ? t->given : NULL;
  tdict_comm_options o = td_with(tdict_comm_options, timeout_ns = s->timeout_ns);
  if (c->kind == SCATTER) o.counts = c->counts;
  switch (c->kind) {
  case BROADCAST:
    return s->is_async ? tdict_comm_broadcast_async(comm, from_root, c->root, &o, f, err)
                       : td_comm_broadcast(comm, from_root, c->root, &o, out, err);
  case BROADCAST_INTO:
    return s->is_async ? tdict_comm_broadcast_into_async(comm, t->given, c->root, &o, f, err)
                       : td_comm_broadcast_into(comm, t->given, c->root, &o, err);
  case SCATTER:
    return s->is_async ? tdict_comm_scatter_async(comm, from_root, c->root, &o, f, err)
                       : td_comm_scatter(comm, from_root, c->root, &o, out, err);
  case GATHER_TO:
    return s->is_async ? tdict_comm_gather_async(comm, t->given, c->root, &o, f, err)
                       : td_comm_gather(comm, t->given, c->root, &o, out, err);
  case ALL_GATHER:
    return s->is_async ? tdict_comm_all_gather_async(comm, t->given, &o, f, err)
                       : td_comm_all_gather(comm, t->given, &o, out, err);
  case STACK:
    return s->is_async ? tdict_comm_all_gather_stack_async(comm, t->given, &o, f, err)
                       : td_comm_all_gather_stack(comm, t->given, &o, out, err);
  case REDUCE:
    return s->is_async ? tdict_comm_all_reduce_async(comm, t->given, c->reduce, &o, f, err)
                       : td_comm_all_reduce(comm, t->given, c->reduce, &o, err);
  case SEND:
    if (is_root)
      return s->is_async ? tdict_comm_send_async(comm, t->given, c->peer, &o, f, err)
                         : td_comm_send(comm, t->given, c->peer, &o, err);
    if (rank != c->peer) return TDICT_OK;
    return s->is_async ? tdict_comm_receive_async(comm, c->root, &o, f, err)
                       : td_comm_receive(comm, c->root, &o, out, err);
  default: /* MISMATCH */
    return s->is_async ? tdict_comm_broadcast_async(comm, rank == 0 ? NULL : t->given, rank == 0 ? 1 : rank, &o, f, err)
                       : td_comm_broadcast(comm, rank == 0 ? NULL : t->given, rank == 0 ? 1 : rank, &o, out, err);
  }
}

/* Returns the statuses that a failed call may return. An injected fault may also make other ranks fail. */
static uint32_t allowed_of(const stage *s, call_kind kind) {
  const uint32_t lost = 1u << TDICT_ELOST | 1u << TDICT_ETIMEDOUT | 1u << TDICT_ECANCELLED | 1u << TDICT_EIO |
                        1u << TDICT_ENOMEM | 1u << TDICT_EDEVICE;
  uint32_t allowed = kind == MISMATCH ? 1u << TDICT_EINVAL : 0;
  if (s->trouble != NO_TROUBLE || !s->is_patient || model_was_unlucky()) allowed |= lost;
  return allowed;
}

/* ---- results ---- */

static void check_rows(stage *s, const tdict_tree *td, const model_rows *rows) {
  model_look look = model_plain_look();
  tdict_tensor *first = NULL;
  model_true(td && tdict_get(td, "a", &first, NULL) == TDICT_OK);
  look.device = tdict_tensor_device(first);
  look.has_device = tdict_get_device(td, NULL);
  look.is_pinned = -1;
  if (look.device.type == TDICT_DEVICE_CPU)
    model_check(td, rows, &look);
  else
    model_check_device(&s->world, td, rows, &look);
}
static void check_new_tree(const stage *s, const tdict_tree *td) {
  tdict_tensor *t = NULL;
  model_true(tdict_get(td, "n.c", &t, NULL) == TDICT_OK);
  model_true(tdict_device_equal(tdict_tensor_device(t), s->device));
  model_true(!tdict_is_locked(td) && !tdict_get_device(td, NULL));
}
static void check_stack(stage *s, int call, const tdict_tree *td) {
  tdict_tree *host = NULL, *parts[WORLD] = {NULL};
  size_t count = WORLD;
  model_true(tdict_batch_ndim(td) == 2 && tdict_batch_size(td)[0] == WORLD);
  model_calm(true);
  model_true(tdict_to_device(s->world.context, td, tdict_cpu(), NULL, &host, NULL) == TDICT_OK);
  model_true(tdict_unbind(host, 0, parts, &count, NULL) == TDICT_OK && count == WORLD);
  model_calm(false);
  for (int r = 0; r < WORLD; r++) {
    const model_rows rows = rows_of(call, r, s->script[call].counts[0]);
    check_rows(s, parts[r], &rows);
    tdict_release(parts[r]);
  }
  tdict_release(host);
}
static void check_numbers(stage *s, int call, const tdict_tree *td) {
  const script_call *c = &s->script[call];
  scoped_tree host = NULL;
  model_calm(true);
  model_true(tdict_to_device(s->world.context, td, tdict_cpu(), NULL, &host, NULL) == TDICT_OK);
  model_calm(false);
  const float *reals = tdict_const_data(host, "real");
  const int64_t *integers = tdict_const_data(host, "deep.integer");
  model_true(reals && (integers || c->reduce == TDICT_REDUCE_MEAN));
  for (int i = 0; i < NUM_NUMBERS; i++) {
    const int64_t wanted = reduced(c, call, i);
    const float real = c->reduce == TDICT_REDUCE_MEAN ? (float)wanted : (float)wanted * 3;
    if (reals[i] != real || (integers && integers[i] != wanted))
      dst_fail("element %d is reduced to %g, wanted %g", i, (double)reals[i], (double)real);
  }
}

static void check_result(stage *s, int call, int rank, const taking *t) {
  const script_call *c = &s->script[call];
  const model_rows of_root = rows_of(call, c->root, c->counts[c->root]), joined = joined_rows(c, call);
  const model_rows into = rows_of(call, c->root, c->counts[0]);
  int64_t first = 0;
  for (int r = 0; r < rank; r++) first += c->counts[r];
  const model_rows part = model_rows_slice(&joined, first, c->counts[rank]);
  switch (c->kind) {
  case BROADCAST:
    if (rank == c->root)
      model_true(t->result == t->given);
    else
      check_new_tree(s, t->result);
    check_rows(s, t->result, &of_root);
    break;
  case BROADCAST_INTO:
    check_rows(s, t->given, &into);
    break;
  case SCATTER:
    check_rows(s, t->result, &part);
    break;
  case GATHER_TO:
    if (rank == c->root)
      check_rows(s, t->result, &joined);
    else
      model_true(!t->result);
    break;
  case ALL_GATHER:
    check_new_tree(s, t->result);
    check_rows(s, t->result, &joined);
    break;
  case STACK:
    check_stack(s, call, t->result);
    break;
  case REDUCE:
    check_numbers(s, call, t->given);
    break;
  case SEND:
    if (rank == c->peer) check_rows(s, t->result, &of_root);
    break;
  default:
    dst_fail("a call with different roots succeeded");
  }
}

/* ---- a rank ---- */

/* Aborts the communicator. Checks that a later call fails. */
static void give_up(stage *s, int rank) {
  tdict_comm_abort(s->comms[rank]);
  tdict_tree *none = NULL;
  const tdict_status status = td_comm_broadcast(s->comms[rank], NULL, (rank + 1) % WORLD, NULL, &none, NULL);
  model_true(status != TDICT_OK && !none);
}

/* Checks the status of a call. Returns false if the rank must give up. */
static bool judge(const stage *s, int call, tdict_status status) {
  const call_kind kind = s->script[call].kind;
  return model_may(allowed_of(s, kind), status) || (kind == MISMATCH && model_status() == TDICT_EINVAL);
}

static bool begin(stage *s, int call, int rank, taking *t) {
  t->given = make_given(s, call, rank);
  if (!t->given) return false;
  if (s->unlucky_rank == rank && s->unlucky_call == call) {
    if (s->trouble == DIES) return false;
    if (s->trouble == COMES_LATE) usleep(3000);
  }
  const tdict_status status = make_call(s, call, rank, t);
  t->is_done = status == TDICT_OK && !t->future;
  return judge(s, call, status);
}
static bool end(stage *s, int call, int rank, taking *t) {
  if (t->future) {
    const tdict_status status = tdict_future_wait(t->future, &t->result, model_error());
    t->is_done = status == TDICT_OK;
    if (!judge(s, call, status)) return false;
  }
  if (t->is_done) check_result(s, call, rank, t);
  return true;
}
static void release(taking *t) { td_release(t->future, t->result, t->given); }

static void play(int rank, void *data) {
  stage *s = data;
  taking of[NUM_CALLS] = {{0}};
  bool goes_on = true;
  for (int i = 0; i < NUM_CALLS && goes_on; i++) {
    goes_on = begin(s, i, rank, &of[i]);
    if (goes_on && !s->is_async) goes_on = end(s, i, rank, &of[i]);
  }
  for (int i = 0; i < NUM_CALLS && goes_on && s->is_async; i++) goes_on = end(s, i, rank, &of[i]);
  if (!goes_on) {
    /* After these two errors, other ranks may still wait, so the failed call must have aborted the communicator. */
    const uint32_t aborting = 1u << TDICT_ELOST | 1u << TDICT_ETIMEDOUT;
    if (!model_was_unlucky() && aborting >> model_status() & 1) model_true(thread_world_aborts(s->threads, rank) > 0);
    if (s->trouble == DIES && rank == s->unlucky_rank) thread_world_leave(s->threads, rank);
    give_up(s, rank);
    for (int i = 0; i < NUM_CALLS; i++)
      if (of[i].future) (void)!tdict_future_wait(of[i].future, NULL, NULL);
  }
  for (int i = 0; i < NUM_CALLS; i++) release(&of[i]);
}

/* ---- the run ---- */

static void roll_script(stage *s) {
  for (int i = 0; i < NUM_CALLS; i++) {
    script_call *c = &s->script[i];
    c->kind = (call_kind)dst_roll(NUM_CALL_KINDS);
    c->root = (int32_t)dst_roll(WORLD);
    c->peer = (c->root + 1 + (int32_t)dst_roll(WORLD - 1)) % WORLD;
    c->reduce = (tdict_reduce_op)dst_roll(4);
    for (int r = 0; r < WORLD; r++) c->counts[r] = (int64_t)dst_roll(MOST_ROWS) + (r == 0);
  }
  s->is_async = dst_roll(2);
  s->is_patient = !dst_is_simulated() || dst_roll(2);
  s->trouble = dst_roll(2) ? NO_TROUBLE : (trouble)dst_roll(NUM_TROUBLES);
  s->unlucky_rank = (int)dst_roll(WORLD);
  s->unlucky_call = (int)dst_roll(NUM_CALLS);
  s->timeout_ns = (int64_t)20 * SECOND;
  if (s->trouble == FAILS_SILENTLY) s->timeout_ns = 20000000;
  if (s->trouble == COMES_LATE) s->timeout_ns = 1000000;
}

static bool open_comms(stage *s) {
  model_calm(true);
  s->threads = thread_world_create(WORLD, s->device.type == TDICT_DEVICE_CPU ? NULL : s->world.context, s->device);
  model_calm(false);
  if (s->trouble == FAILS || s->trouble == FAILS_SILENTLY)
    thread_world_fail(s->threads, s->unlucky_rank, (int)dst_roll(12), s->trouble == FAILS_SILENTLY);
  for (int r = 0; r < WORLD; r++) {
    tdict_comm_table table;
    thread_world_table(s->threads, r, &table);
    if (!model_ok(tdict_comm_create(s->world.context, &table, NULL, &s->comms[r], model_error()))) return false;
    model_true(tdict_comm_get_info(s->comms[r]).rank == r && tdict_comm_get_info(s->comms[r]).world_size == WORLD);
    model_true(tdict_device_equal(tdict_comm_get_info(s->comms[r]).device, s->device));
  }
  return true;
}

void dst_workload(void) {
  stage s = {0};
  model_settings settings = model_settings_default();
  (void)model_fields(WIDTH);
  roll_script(&s);
  s.device = dst_roll(2) ? tdict_cpu() : tdict_sim(0);
  model_begin();
  if (s.is_patient) dst_allow(1u << DST_EARLY_TIMEOUT, false);
  if (model_open(&s.world, &settings)) {
    if (open_comms(&s)) {
      model_run(WORLD, play, &s);
      if (s.trouble == NO_TROUBLE && s.is_patient && !model_was_unlucky()) {
        model_true(thread_world_unread(s.threads) == 0);
        for (int r = 0; r < WORLD; r++) model_true(thread_world_aborts(s.threads, r) == 0);
      }
    }
    for (int r = 0; r < WORLD; r++) {
      const bool has_comm = s.comms[r];
      tdict_comm_destroy(s.comms[r]);
      model_true(thread_world_destroys(s.threads, r) == (has_comm ? 1 : 0));
    }
    thread_world_destroy(s.threads);
    model_next_transfer_works(&s.world);
    model_close(&s.world);
  }
  model_end();
}
