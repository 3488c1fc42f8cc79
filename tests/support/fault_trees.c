/* Makes and compares the trees of a fault world, and counts the driver's resources: see fault_world.h. */
#include "support/fault_world.h"
#include "support/test.h"
#include "support/things.h"

enum { ROWS = 4 };

static tdict_tensor *random_tensor(tdict_dtype dtype, int ndim, const int64_t *shape, tdict_memory *memory) {
  static uint64_t seed = 1000;
  tdict_tensor *t = td_made(tensor, tdict_tensor_empty(dtype, ndim, shape, memory, &made, err));
  if (tdict_tensor_bytes(t)) td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), seed++);
  return t;
}

static void put_thing(tdict_tree *td, const char *path, const tdict_type *type) {
  tdict_tensor *a = random_tensor(TDICT_F32, 2, (const int64_t[]){ROWS, 5000}, NULL);
  tdict_tensor *b = random_tensor(TDICT_I64, 1, (const int64_t[]){7}, NULL);
  thing *t = thing_create(a, b);
  assert_non_null(t);
  td_ok(tdict_set_object(td, path, type, t, err));
}

/* Returns columns 1 to 60 of a tensor with 64 columns, so that there are gaps between the rows. */
static tdict_tensor *wide(tdict_memory *memory) {
  tdict_tensor *base = NULL, *part = NULL;
  td_ok(tdict_tensor_empty(TDICT_U8, 2, (const int64_t[]){ROWS, 64}, memory, &base, err));
  if (!memory) td_fill_random(tdict_tensor_data(base), tdict_tensor_bytes(base), 77);
  tdict_tensor_range columns = {.dim = 1, .start = 1, .count = 60, .step = 1};
  td_ok(tdict_tensor_slice(base, &columns, &part, err));
  tdict_tensor_release(base);
  return part;
}

static tdict_tensor *turned(void) {
  tdict_tensor *base = random_tensor(TDICT_F32, 2, (const int64_t[]){50, ROWS}, NULL), *part = NULL;
  td_ok(tdict_tensor_permute(base, 2, (const int[]){1, 0}, &part, err));
  tdict_tensor_release(base);
  return part;
}

/* Returns int64 elements that a transfer with the option narrow packs into 2 bytes each. */
static tdict_tensor *small_numbers(void) {
  tdict_tensor *t = random_tensor(TDICT_I64, 2, (const int64_t[]){ROWS, 9000}, NULL);
  int64_t *numbers = tdict_tensor_data(t);
  for (int i = 0; i < ROWS * 9000; i++) numbers[i] &= 0x7fff;
  return t;
}

/* Returns a source tree with objects, and with leaves that are copied through slots, packed, or copied directly from
 * pinned memory. Some leaves are strided or empty. If `twice` is true, two keys share a tensor. */
static tdict_tree *make_host(fw_world *w, bool hooked, bool twice) {
  const int64_t batch[] = {ROWS};
  tdict_tree *td = td_made(tree, tdict_create(1, batch, &made, err));
  scoped_tensor a = random_tensor(TDICT_I64, 2, (const int64_t[]){ROWS, 3}, NULL);
  td_ok(tdict_set(td, "a", a, err));
  td_put(td, "n.big", random_tensor(TDICT_F32, 2, (const int64_t[]){ROWS, 75000}, NULL));
  if (hooked) put_thing(td, "n.hooked", &thing_hooked);
  td_put(td, "n.turned", turned());
  td_put(td, "n.wide", wide(NULL));
  put_thing(td, "n.m.flat", &thing_flat);
  td_put(td, "pinned", random_tensor(TDICT_F32, 2, (const int64_t[]){ROWS, 20000}, tdict_pinned_memory(w->maker)));
  if (twice) td_ok(tdict_set(td, "again", a, err));
  td_put(td, "ids", small_numbers());
  td_put(td, "none", random_tensor(TDICT_F32, 2, (const int64_t[]){ROWS, 0}, NULL));
  td_put(td, "z\\.0", random_tensor(TDICT_U8, 2, (const int64_t[]){ROWS, 33}, NULL));
  return td;
}

static tdict_tree *to_device(fw_world *w, const tdict_tree *td) {
  return td_made(tree, tdict_to_device(w->maker, td, w->device, NULL, &made, err));
}

/* The bytes of a tree's leaves, including the tensors of objects: leaf after leaf, each in C order. */
typedef struct gathering {
  fw_world *w;
  char *out;
  size_t at, room;
  const char *wrong;
} gathering;

static void add_rows(gathering *g, const tdict_tensor_desc *v, int dim, const char *from, size_t bytes) {
  bool line = dim == v->ndim || (dim == v->ndim - 1 && v->strides[dim] == 1);
  size_t count = line && dim < v->ndim ? (size_t)v->shape[dim] * bytes : bytes;
  if (!line) {
    for (int64_t i = 0; i < v->shape[dim]; i++)
      add_rows(g, v, dim + 1, from + (ptrdiff_t)(i * v->strides[dim]) * (ptrdiff_t)bytes, bytes);
    return;
  }
  if (g->room - g->at < count) {
    g->wrong = "the tree has more bytes than the buffer";
    return;
  }
  if (v->device.type == TDICT_DEVICE_CPU)
    memcpy(g->out + g->at, from, count);
  else
    raw_read(g->w->raw, g->out + g->at, from, count);
  g->at += count;
}

static void add(gathering *g, const tdict_tensor *t) {
  tdict_tensor_desc v = tdict_tensor_desc_default();
  size_t bytes = tdict_tensor_bytes(t);
  if (!bytes) return;
  if (!tdict_tensor_const_data(t)) {
    g->wrong = "an accessor returned NULL";
    return;
  }
  tdict_tensor_get_desc(t, &v);
  int64_t numel = tdict_tensor_numel(t);
  if (!tdict_tensor_is_contiguous(t)) {
    add_rows(g, &v, 0, v.data, bytes / (size_t)numel);
    return;
  }
  const int64_t one_stride = 1;
  tdict_tensor_desc line = {.ndim = 1, .device = v.device, .shape = &numel, .strides = &one_stride};
  add_rows(g, &line, 0, v.data, bytes / (size_t)numel);
}

static tdict_status visit(void *user, const tdict_entry *e, tdict_error *err) {
  (void)err;
  if (e->tensor) add(user, e->tensor);
  if (!e->object) return TDICT_OK;
  const thing *t = e->object;
  add(user, t->a);
  add(user, t->b);
  return TDICT_OK;
}

static size_t gather(fw_world *w, const tdict_tree *td, char *out, size_t room) {
  gathering g = {w, out, 0, room, NULL};
  td_ok(tdict_walk(td, visit, &g, err));
  if (g.wrong) fail_msg("%s", g.wrong);
  return g.at;
}

static int source_of(fw_op op) {
  switch (op) {
  case FW_INTO_DEVICE:
  case FW_INTO_HOST_ASYNC:
  case FW_INTO_WITHIN:
    return 1;
  case FW_TENSORS:
  case FW_CONTEXT:
    return 2;
  case FW_WIRE:
    return 3;
  default:
    return 0;
  }
}

const tdict_tree *fw_source(const fw_world *w, fw_op op) {
  switch (op) {
  case FW_TO_HOST:
  case FW_TO_HOST_ASYNC:
    return w->device_tree;
  case FW_INTO_HOST_ASYNC:
  case FW_INTO_WITHIN:
    return w->device_into;
  case FW_INTO_DEVICE:
    return w->host_into;
  case FW_TENSORS:
  case FW_CONTEXT:
    return w->one;
  default:
    return w->host;
  }
}

void fw_check_bytes(fw_world *w, const fw_run *run) {
  const int source = source_of(run->op);
  if (!run->result) fail_msg("%s: there is no result", fw_op_name(run->op));
  memset(w->read, 0xA5, w->room);
  size_t bytes = gather(w, run->result, w->read, w->room);
  assert_int_equal(bytes, w->expected_bytes[source]);
  if (memcmp(w->read, w->expected[source], bytes) == 0) return;
  size_t at = 0;
  while (w->read[at] == w->expected[source][at]) at++;
  fail_msg("%s: byte %zu of %zu is %02x, wanted %02x", fw_op_name(run->op), at, bytes, (unsigned char)w->read[at],
           (unsigned char)w->expected[source][at]);
}

static tdict_status see_lost(void *user, const tdict_entry *e, tdict_error *err) {
  (void)err;
  if (e->tensor && tdict_tensor_bytes(e->tensor) && tdict_tensor_const_data(e->tensor)) *(const char **)user = e->key;
  return TDICT_OK;
}
void fw_check_lost(fw_world *w, const fw_run *run) {
  const char *given = NULL;
  if (run->op != FW_INTO_HOST_ASYNC) return;
  td_ok(tdict_walk(w->dst_host, see_lost, &given, err));
  if (given) fail_msg("the transfer failed, but an accessor returned the address of '%s'", given);
}

static tdict_status see_free(void *user, const tdict_entry *e, tdict_error *err) {
  (void)err;
  if (e->tensor && tdict_tensor_bytes(e->tensor) && !tdict_tensor_data(e->tensor)) *(const char **)user = e->key;
  return TDICT_OK;
}
void fw_check_source_free(fw_world *w, const fw_run *run) {
  const char *kept = NULL;
  td_ok(tdict_walk(fw_source(w, run->op), see_free, &kept, err));
  if (kept) fail_msg("the accessor of the source's '%s' returned NULL", kept);
}

/* Overwrites a leaf of a destination, so that old bytes cannot be mistaken for copied bytes. */
static tdict_status spoil_leaf(void *user, const tdict_entry *e, tdict_error *err) {
  fw_world *w = user;
  (void)err;
  tdict_tensor *leaves[2] = {e->tensor, NULL};
  if (e->object) {
    leaves[0] = ((const thing *)e->object)->a;
    leaves[1] = ((const thing *)e->object)->b;
  }
  for (int i = 0; i < 2; i++) {
    tdict_tensor *t = leaves[i];
    if (!t || !tdict_tensor_bytes(t) || !tdict_tensor_data(t)) continue;
    if (tdict_tensor_device(t).type != TDICT_DEVICE_CPU)
      raw_fill(w->raw, tdict_tensor_data(t), 0xA5, tdict_tensor_bytes(t));
    else if (tdict_tensor_is_contiguous(t))
      memset(tdict_tensor_data(t), 0xA5, tdict_tensor_bytes(t));
  }
  return TDICT_OK;
}

void fw_spoil(fw_world *w, tdict_tree *td) { td_ok(tdict_walk(td, spoil_leaf, w, err)); }

static void open_drivers(fw_world *w) {
  tdict_error why = {0};
  tdict_status status = TDICT_ENODEVICE;
  tdict_sim_options sim = td_with(tdict_sim_options, memory_bytes = (size_t)256 << 20);
  if (w->device.type == TDICT_DEVICE_SIM) status = tdict_driver_sim_open(&sim, &w->inner, &why);
#if TDICT_CUDA
  if (w->device.type == TDICT_DEVICE_CUDA) status = tdict_driver_cuda_open(&w->inner, &why);
#endif
  if (status == TDICT_ENODEVICE) td_skip(why.message[0] ? why.message : "built without CUDA");
  assert_int_equal(status, TDICT_OK);
  td_ok(tdict_driver_fault_open(w->inner, &w->driver, err));
}

static void expect(fw_world *w, int source, const tdict_tree *td) {
  w->expected[source] = td_alloc(w->room);
  w->expected_bytes[source] = gather(w, td, w->expected[source], w->room);
  assert_true(w->expected_bytes[source] > 0);
}

/* Computes the bytes that FW_WIRE must produce, with a plain loop. */
static void expect_converted(fw_world *w) {
  tdict_tensor *bytes = NULL, *numbers = NULL;
  scoped_tree td = td_made(tree, tdict_clone(w->host, &made, err));
  td_ok(tdict_get(td, "n.wide", &bytes, err));
  td_ok(tdict_tensor_empty(TDICT_I32, 2, tdict_tensor_shape(bytes), NULL, &numbers, err));
  const unsigned char *from = tdict_tensor_const_data(bytes);
  int32_t *to = tdict_tensor_data(numbers);
  for (int row = 0; row < ROWS; row++)
    for (int i = 0; i < 60; i++) to[row * 60 + i] = from[row * 64 + i];
  td_put(td, "n.wide", numbers);
  expect(w, 3, td);
}

void fw_open(fw_world *w) {
  memset(w, 0, sizeof *w);
  w->device = td_device();
  w->num_threads = 2;
  open_drivers(w);
  w->maker = fw_context(w);
  w->raw = raw_open(w->maker, w->device);
  w->host = make_host(w, true, true);
  w->host_into = make_host(w, false, true);
  w->dst_host = make_host(w, false, true);
  td_ok(tdict_create(1, (const int64_t[]){ROWS}, &w->one, err));
  td_put(w->one, "t", random_tensor(TDICT_F32, 2, (const int64_t[]){ROWS, 40000}, NULL));
  tdict_tensor *again = random_tensor(TDICT_I64, 2, (const int64_t[]){ROWS, 3}, NULL);
  td_put(w->dst_host, "again", again); /* a separate leaf; in the sources, "again" and "a" are the same tensor */
  w->device_tree = to_device(w, w->host);
  w->device_into = to_device(w, w->host_into);
  w->dst_device = to_device(w, w->dst_host);
  td_put(w->dst_device, "n.wide", wide(tdict_device_memory(w->maker, w->device)));
  w->room = tdict_bytes(w->host) + ((size_t)1 << 20);
  w->read = td_alloc(w->room);
  expect(w, 0, w->host);
  expect(w, 1, w->host_into);
  expect(w, 2, w->one);
  expect_converted(w);
}

static void close_world(fw_world *w, bool asks) {
  tdict_tree *trees[] = {w->host, w->device_tree, w->host_into, w->device_into, w->dst_host, w->dst_device, w->one};
  for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) tdict_release(trees[i]);
  raw_close(w->raw);
  tdict_context_destroy(w->maker);
  for (int i = 0; i < 4; i++) free(w->expected[i]);
  free(w->read);
  tdict_fault_live live, none = {0};
  tdict_driver_fault_get_live(w->driver, &live);
  if (asks) assert_memory_equal(&live, &none, sizeof live);
  assert_int_equal(thing_count(), 0);
  td_release(w->driver, w->inner);
}
void fw_close(fw_world *w) { close_world(w, true); }
void fw_abandon(fw_world *w) { close_world(w, false); }

void fw_count(fw_world *w, fw_counts *out) {
  memset(out, 0, sizeof *out);
  tdict_driver_fault_get_live(w->driver, &out->live);
  if (w->device.type == TDICT_DEVICE_SIM) tdict_driver_sim_counts(w->inner, 0, &out->sim);
  out->things = thing_count();
}

#define SAME(field)               \
  if (now.field != before->field) \
  fail_msg("%s: " #field " is %lld, was %lld before", what, (long long)now.field, (long long)before->field)
void fw_check_counts(fw_world *w, const fw_counts *before, const char *what) {
  fw_counts now;
  fw_count(w, &now);
  SAME(live.contexts);
  SAME(live.pools);
  SAME(live.device_blocks);
  SAME(live.host_blocks);
  SAME(live.registrations);
  SAME(live.streams);
  SAME(live.events);
  SAME(sim.pinned_bytes);
  SAME(sim.num_pending);
  SAME(sim.device_bytes);
  SAME(sim.num_allocations);
  SAME(sim.num_streams);
  SAME(sim.num_events);
  SAME(things);
}
