/* Tests messages with a wrong byte. Each run damages one byte: the calls must return TDICT_OK or an error, and
 * AddressSanitizer checks all memory accesses. */
#include "core/base/error.h"
#include "services/comm/every_op.h"

enum { WORLD = 2, OP_SEND = NUM_OPS };

/* A corrupted row count can make the library request more memory than the machine has. malloc() must then return
 * NULL. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=1024"; }
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "allocator_may_return_null=1:max_allocation_size_mb=1024"; }

/* The operation that the ranks run, and conditions under which they send other kinds of messages. */
typedef struct scene {
  int op;
  bool has_other_tree; /* rank 1 has a tree with a different schema, so the ranks exchange their schemas */
  bool has_bad_option; /* rank 1 passes a bad argument, so its error is sent */
  bool has_no_tree;    /* rank 0 passes no tree */
  bool has_counts;
} scene;
static const scene scenes[] = {
    {.op = OP_BROADCAST},
    {.op = OP_SCATTER},
    {.op = OP_SCATTER, .has_counts = true},
    {.op = OP_BROADCAST_INTO},
    {.op = OP_BROADCAST_INTO, .has_other_tree = true},
    {.op = OP_GATHER_TO},
    {.op = OP_ALL_GATHER},
    {.op = OP_ALL_GATHER, .has_bad_option = true},
    {.op = OP_STACK},
    {.op = OP_REDUCE},
    {.op = OP_SEND},
    {.op = OP_SEND, .has_no_tree = true},
    {.op = OP_SEND, .has_bad_option = true},
};
enum { NUM_SCENES = sizeof scenes / sizeof *scenes };

/* One run: the damage, the allocation that fails, and the arguments of both ranks. */
typedef struct damage_case {
  const scene *s;
  int rank, call; /* the call of the table whose received message is damaged */
  size_t byte;
  unsigned char bits; /* 0: without damage */
  bool is_short;      /* allocation number `allocation` of the rank fails */
  int64_t allocation;
  bool has_failed;
  op_args of[WORLD];
} damage_case;

static void try_scene(rig_rank *r) {
  damage_case *c = r->rig->user;
  const op_args *a = &c->of[r->rank];
  const bool is_short = c->is_short && r->rank == c->rank;
  tdict_comm_options bad = td_with(tdict_comm_options, timeout_ns = -1);
  if (is_short) td_fail_alloc(c->allocation, false);
  if (c->s->op != OP_SEND)
    rig_keep(r, op_call(r, a, &r->got, err));
  else if (r->rank == 0)
    rig_keep(r, td_comm_send(r->comm, a->tree, 1, a->options, err));
  else
    rig_keep(r, td_comm_receive(r->comm, 0, a->has_bad_option ? &bad : a->options, &r->got, err));
  if (is_short) c->has_failed = td_fail_alloc_stop();
  thread_world_leave(r->rig->threads, r->rank);
}

static tdict_tree *small_tree(const char *key) {
  static const int64_t two = 2;
  const tdict_field fields[] = {{key, TDICT_I16, 0, {0}}, {"b.c", TDICT_U8, 1, {3}}};
  tdict_tree *tree = NULL;
  td_ok(tdict_create_from(fields, 2, 1, &two, tdict_device_memory(rig_context(), td_device()), &tree, err));
  td_ok(tdict_fill(tree, NULL, 1, NULL, err));
  return tree;
}

/* Makes the arguments of the ranks. drop_case() releases the trees. */
static void make_case(damage_case *c) {
  static const int64_t counts[WORLD] = {0, 2};
  const scene *s = c->s;
  for (int r = 0; r < WORLD; r++)
    c->of[r] = (op_args){.op = s->op,
                         .tree = small_tree(r == 1 && s->has_other_tree ? "other" : "a"),
                         .counts = s->has_counts ? counts : NULL,
                         .has_bad_option = r == 1 && s->has_bad_option};
  if (!s->has_no_tree) return;
  tdict_release(c->of[0].tree);
  c->of[0].tree = NULL;
}
static void drop_case(damage_case *c) {
  for (int r = 0; r < WORLD; r++) tdict_release(c->of[r].tree);
}

/* Reads all elements of a result, and checks that a failed call has a message. */
static void check_rank(const rig_rank *r) {
  if (r->status == TDICT_OK) {
    if (r->got) assert_true(tdict_equal(r->got, r->got));
    return;
  }
  assert_true(tdict_status_is_known((tdict_status)r->status));
  assert_int_equal(r->error.status, r->status);
  assert_true(r->error.message[0] != 0);
  assert_null(r->got);
  assert_true(r->took_ns < 20 * RIG_SECOND);
}

static rig *run_case(damage_case *c) {
  make_case(c);
  rig *g = rig_create(WORLD);
  thread_world_damage(g->threads, c->rank, c->call, c->byte, c->bits);
  rig_run(g, try_scene, c);
  for (int r = 0; r < WORLD; r++) check_rank(&g->ranks[r]);
  drop_case(c);
  return g;
}
/* Runs the scene with one damaged byte in call `call` of rank `rank`. If `bits` is 0, nothing is damaged. */
static rig *run_scene(const scene *s, int rank, int call, size_t byte, unsigned char bits) {
  return run_case(&(damage_case){.s = s, .rank = rank, .call = call, .byte = byte, .bits = bits});
}

static void damage_all(int step, int *num_runs, int *num_errors) {
  rng random = {0xda3a6e};
  for (int i = 0; i < NUM_SCENES; i++) {
    const scene *s = &scenes[i];
    scoped_rig whole = run_scene(s, 0, 0, 0, 0);
    const bool fails = s->has_other_tree || s->has_bad_option || s->has_no_tree;
    for (int r = 0; r < WORLD; r++) assert_true((whole->ranks[r].status == TDICT_OK) == !fails);
    for (int rank = 0; rank < WORLD; rank++)
      for (int call = 0; call < thread_world_all_calls(whole->threads, rank); call++) {
        const size_t bytes = thread_world_received(whole->threads, rank, call);
        for (size_t byte = (size_t)(i % step); byte < bytes; byte += (size_t)step) {
          scoped_rig g = run_scene(s, rank, call, byte, (unsigned char)pick(&random, 1, 255));
          *num_errors += g->ranks[rank].status != TDICT_OK;
          ++*num_runs;
        }
      }
  }
}

CASE(comm_survives_damaged_messages) {
  int num_runs = 0, num_errors = 0;
  damage_all(SANITIZED_STEP, &num_runs, &num_errors);
  assert_true(num_runs > 4000 / SANITIZED_STEP && num_errors > num_runs / 4);
}

/* On a device, different code places the blocks of the ranks. */
SIM_CASE(comm_survives_damaged_messages_on_devices) {
  int num_runs = 0, num_errors = 0;
  damage_all(7 * SANITIZED_STEP, &num_runs, &num_errors);
  assert_true(num_runs > 4000 / (7 * SANITIZED_STEP) && num_errors > num_runs / 4);
}

static bool is_short_of_memory(damage_case *c) {
  scoped_rig g = run_case(c);
  const bool is_short = g->ranks[c->rank].status == TDICT_ENOMEM;
  return is_short;
}
/* Makes each allocation of a rank fail once: with undamaged messages, then with random damage in each message. */
static void damage_without_memory(const scene *s, rng *random, int *num_short) {
  scoped_rig whole = run_scene(s, 0, 0, 0, 0);
  for (int rank = 0; rank < WORLD; rank++) {
    damage_case c = {.s = s, .rank = rank, .is_short = true, .has_failed = true};
    for (; c.has_failed; c.allocation++) *num_short += is_short_of_memory(&c);
    const int64_t num_allocations = c.allocation;
    for (; c.call < thread_world_all_calls(whole->threads, rank); c.call++) {
      const size_t bytes = thread_world_received(whole->threads, rank, c.call);
      c.allocation = bytes ? sanitized_first(c.call) : num_allocations;
      for (; c.allocation < num_allocations; c.allocation += SANITIZED_STEP) {
        c.byte = (size_t)pick(random, 0, (int64_t)bytes - 1);
        c.bits = (unsigned char)pick(random, 1, 255);
        *num_short += is_short_of_memory(&c);
      }
    }
  }
}
DEVICE_CASE(comm_survives_damaged_messages_without_memory) {
  int num_short = 0;
  rng random = {0x5107};
  for (int i = 0; i < NUM_SCENES; i++) damage_without_memory(&scenes[i], &random, &num_short);
  assert_true(num_short > 100);
}
