/* Implements model.h. The state of a workload is in static variables, because a program runs only one workload. */
#include "dst/workloads/model.h"

#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "context.h"
#include "support/driver_fault.h"
#include "tdict/sim.h"
#include "tdict/view.h"

static const unsigned all_kinds =
    1u << DST_SPURIOUS | 1u << DST_EARLY_TIMEOUT | 1u << DST_ALLOC | 1u << DST_THREAD | 1u << DST_DRIVER | 1u << DST_IO;
/* kinds of misfortune that never make a call fail */
static const unsigned harmless_kinds = 1u << DST_SPURIOUS | 1u << DST_EARLY_TIMEOUT;

static uint64_t faults_at_begin;
static pthread_mutex_t calm_lock = PTHREAD_MUTEX_INITIALIZER; /* guards: num_calm */
static int num_calm;
static _Thread_local tdict_error last_error;
static _Thread_local tdict_status last_status;
enum { UNWRITTEN = -1 };

void model_begin(void) {
  faults_at_begin = dst_num_faults();
  num_calm = 0;
  dst_allow(all_kinds, true);
}
void model_end(void) { dst_allow(all_kinds & ~harmless_kinds, false); }
void model_calm(bool is_calm) {
  pthread_mutex_lock(&calm_lock);
  num_calm += is_calm ? 1 : -1;
  if (num_calm == (is_calm ? 1 : 0)) dst_allow(all_kinds & ~harmless_kinds, !is_calm);
  pthread_mutex_unlock(&calm_lock);
}
bool model_was_unlucky(void) { return dst_num_faults() > faults_at_begin; }

tdict_error *model_error(void) {
  memset(&last_error, 0, sizeof last_error);
  last_error.status = UNWRITTEN;
  return &last_error;
}
tdict_status model_status(void) { return last_status; }

/* Returns true if an injected fault can have caused the status: in this call, or in an earlier transfer whose bytes are
 * therefore lost. */
static bool is_excused(tdict_status status) {
  const uint32_t possible = 1u << TDICT_ENOMEM | 1u << TDICT_EDEVICE | 1u << TDICT_EIO;
  const bool reads_lost_bytes = status == TDICT_EINVAL && strstr(last_error.message, " are lost");
  return model_was_unlucky() && ((possible >> status & 1) || reads_lost_bytes);
}

bool model_judge(tdict_status status, uint32_t allowed, const char *call) {
  const tdict_error *e = &last_error;
  last_status = status;
  if (status == TDICT_OK) {
    if (e->status != UNWRITTEN && e->status != TDICT_OK) dst_fail("%s succeeded, but wrote '%s'", call, e->message);
    return true;
  }
  if (e->status != (int32_t)status && e->status != UNWRITTEN)
    dst_fail("%s returned %s, but wrote the status %d", call, tdict_status_name(status), (int)e->status);
  if ((allowed >> status & 1) || is_excused(status)) return false;
  dst_fail("%s: %s at '%s': %s", call, tdict_status_name(status), e->path, e->message);
}

/* ---- devices and threads ---- */

model_settings model_settings_default(void) {
  return (model_settings){.num_devices = 1, .num_threads = 2, .staging_bytes = 64 << 10};
}

/* Returns true if a driver call must fail. Making a context current never fails twice in a row on a thread: cleanup
 * retries it only once, and leaks resources if the retry fails, too. */
static bool must_fail(tdict_fault_kind kind) {
  static _Thread_local bool has_push_failed;
  if (kind != TDICT_FAULT_CTX_PUSH) return dst_is_unlucky(DST_DRIVER);
  return has_push_failed = !has_push_failed && dst_is_unlucky(DST_DRIVER);
}
tdict_driver *model_open_driver(const tdict_sim_options *options) {
  tdict_driver *sim = NULL, *driver = NULL;
  if (!model_ok(tdict_driver_sim_open(options, &sim, model_error()))) return NULL;
  if (model_ok(tdict_driver_fault_open(sim, &driver, model_error()))) {
    tdict_driver_fault_set_chooser(driver, must_fail);
    tdict_driver_fault_set_around(driver, dst_spare);
  }
  tdict_driver_release(sim);
  return driver;
}
void model_close_driver(tdict_driver *driver, int num_devices) {
  for (int i = 0; i < num_devices; i++) {
    tdict_driver_sim_count c;
    tdict_driver_sim_counts(driver->inner, i, &c);
    if (c.pinned_bytes || c.num_pending || c.device_bytes || c.num_allocations || c.num_streams || c.num_events)
      dst_fail("device %d still holds %zu bytes of pinned memory, %zu bytes in %lld allocations, %lld streams, %lld "
               "events and %lld pending operations",
               i, c.pinned_bytes, c.device_bytes, (long long)c.num_allocations, (long long)c.num_streams,
               (long long)c.num_events, (long long)c.num_pending);
  }
  tdict_driver_release(driver);
}

bool model_open(model_world *w, const model_settings *s) {
  tdict_sim_options sim = tdict_sim_options_default();
  tdict_context_options o = tdict_context_options_default();
  *w = (model_world){.num_devices = s->num_devices};
  sim.num_devices = s->num_devices;
  sim.memory_bytes = (size_t)64 << 20;
  sim.latency_ns = s->latency_ns;
  sim.peers = s->peers;
  o.device = tdict_sim(0);
  o.num_threads = s->num_threads;
  o.staging_bytes = s->staging_bytes;
  w->driver = model_open_driver(&sim);
  if (!w->driver) return false;
  if (model_ok(tdict_context_create_over(&o, w->driver, &w->context, model_error()))) return true;
  model_close(w);
  return false;
}

void model_next_transfer_works(model_world *w) {
  const model_rows rows = model_rows_of(977, 0, 3, 50);
  const model_look look = model_device_look(tdict_sim(0));
  model_calm(true);
  tdict_tree *td = model_tree(&rows), *there = NULL;
  model_true(td && tdict_to_device(w->context, td, tdict_sim(0), NULL, &there, NULL) == TDICT_OK);
  model_check_device(w, there, &rows, &look);
  td_release(there, td);
  model_calm(false);
}

void model_close(model_world *w) {
  tdict_context_destroy(w->context);
  model_close_driver(w->driver, w->num_devices);
  *w = (model_world){0};
}

typedef struct started {
  pthread_t thread;
  int number;
  void (*body)(int number, void *data);
  void *data;
} started;
static void *run_started(void *argument) {
  const started *s = argument;
  s->body(s->number, s->data);
  return NULL;
}
void model_run(int count, void (*body)(int number, void *data), void *data) {
  started threads[8];
  model_true(count <= 8);
  model_calm(true); /* the workload's own threads always start */
  for (int i = 0; i < count; i++) {
    threads[i] = (started){.number = i, .body = body, .data = data};
    model_true(pthread_create(&threads[i].thread, NULL, run_started, &threads[i]) == 0);
  }
  model_calm(false);
  for (int i = 0; i < count; i++) pthread_join(threads[i].thread, NULL);
}

static void pass_gate(void *user) {
  model_gate *g = user;
  while (!atomic_load(&g->is_open)) usleep(20);
}
bool model_shut_gate(model_world *w, tdict_device device, model_gate *g) {
  atomic_init(&g->is_open, false);
  if (!model_ok(tdict_stream_create(w->context, device, &g->stream, model_error()))) return false;
  if (model_ok(tdict_sim_launch(g->stream, pass_gate, g, model_error()))) return true;
  tdict_stream_destroy(w->context, g->stream);
  return false;
}
void model_open_gate(model_world *w, model_gate *g) {
  atomic_store(&g->is_open, true);
  model_synchronize(w, g->stream);
  tdict_stream_destroy(w->context, g->stream);
}
void model_synchronize(model_world *w, tdict_stream stream) {
  model_calm(true);
  const tdict_status status = tdict_stream_synchronize(w->context, stream, NULL);
  model_calm(false);
  model_true(status == TDICT_OK || model_was_unlucky());
}

/* ---- trees ---- */

model_rows model_rows_of(int64_t generation, int64_t first, int64_t count, int64_t width) {
  model_rows rows = {.count = count, .width = width};
  for (int64_t i = 0; i < count; i++) rows.stamps[i] = model_stamp_of(generation, first + i);
  return rows;
}
model_rows model_rows_slice(const model_rows *rows, int64_t first, int64_t count) {
  model_rows slice = {.count = count, .width = rows->width};
  memcpy(slice.stamps, rows->stamps + first, (size_t)count * sizeof slice.stamps[0]);
  return slice;
}

static uint64_t mix(model_stamp stamp, int leaf, int64_t index) {
  uint64_t x = (uint64_t)stamp * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)leaf * UINT64_C(0xd1b54a32d192ed03) +
               (uint64_t)index * UINT64_C(0x8cb92ba72f3d8dd7);
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

enum { STAMP, MATRIX, BYTES, WIDE, EMPTY, FLAGS, ANY_WIDTH = -1 };
/* A leaf of the trees, in tree order. `shape` is the shape of a row. */
typedef struct leaf {
  const char *path;
  tdict_dtype dtype;
  int ndim;
  int64_t shape[2];
  bool is_strided; /* only in trees of model_tree() */
} leaf;
static const leaf leaves[MODEL_NUM_LEAVES] = {
    {"a", TDICT_I64, 0, {0}, false},   {"n.b", TDICT_F32, 2, {5, 3}, true},
    {"n.c", TDICT_U8, 1, {31}, false}, {"n.m.d", TDICT_I32, 1, {ANY_WIDTH}, false},
    {"e", TDICT_U16, 1, {0}, false},   {"f", TDICT_BOOL, 1, {9}, false},
};

static int64_t size_of(const leaf *l, int dim, int64_t width) {
  return l->shape[dim] == ANY_WIDTH ? width : l->shape[dim];
}
static int64_t elements_of(const leaf *l, int64_t width) {
  int64_t count = 1;
  for (int d = 0; d < l->ndim; d++) count *= size_of(l, d, width);
  return count;
}
static void shape_of(const leaf *l, const model_rows *rows, int64_t *shape) {
  shape[0] = rows->count;
  for (int d = 0; d < l->ndim; d++) shape[d + 1] = size_of(l, d, rows->width);
}

int32_t model_int_of(model_stamp stamp, int64_t index) { return (int32_t)(mix(stamp, WIDE, index) & 0xff) + 7; }

/* Writes element `index` of a row of leaf `number`. Floats have integral values, so conversions are exact. */
static void element_of(int number, model_stamp stamp, int64_t index, void *out) {
  const uint64_t random = mix(stamp, number, index);
  const float real = (float)(random & 0xff);
  const int32_t integer = model_int_of(stamp, index);
  switch (number) {
  case STAMP:
    memcpy(out, &stamp, sizeof stamp);
    break;
  case MATRIX:
    memcpy(out, &real, sizeof real);
    break;
  case WIDE:
    memcpy(out, &integer, sizeof integer);
    break;
  case FLAGS:
    *(unsigned char *)out = random & 1;
    break;
  default:
    *(unsigned char *)out = (unsigned char)random;
    break;
  }
}

/* If `write` is not NULL, writes all elements of a leaf to `write`. Otherwise compares them with `read`, and returns
 * false if an element differs. */
static bool visit_elements(const tdict_tensor *t, int number, const model_rows *rows, char *write, const char *read) {
  const leaf *l = &leaves[number];
  const int64_t *strides = tdict_tensor_strides(t);
  const int64_t per_row = elements_of(l, rows->width), columns = l->ndim ? size_of(l, l->ndim - 1, rows->width) : 1;
  const size_t bytes = tdict_dtype_bytes(l->dtype);
  for (int64_t row = 0; row < rows->count; row++)
    for (int64_t i = 0; i < per_row; i++) {
      int64_t at = row * strides[0];
      if (l->ndim == 1) at += i * strides[1];
      if (l->ndim == 2) at += i / columns * strides[1] + i % columns * strides[2];
      char wanted[8];
      element_of(number, rows->stamps[row], i, wanted);
      if (write)
        memcpy(write + at * (int64_t)bytes, wanted, bytes);
      else if (memcmp(read + at * (int64_t)bytes, wanted, bytes) != 0)
        return false;
    }
  return true;
}

static tdict_status put_leaf(tdict_tree *td, int number, const model_rows *rows, tdict_error *err) {
  const leaf *l = &leaves[number];
  int64_t shape[3], turned[3];
  tdict_tensor *t = NULL, *view = NULL;
  shape_of(l, rows, shape);
  for (int d = 0; d <= l->ndim; d++) turned[d] = shape[l->ndim - d];
  tdict_status status = tdict_tensor_empty(l->dtype, l->ndim + 1, l->is_strided ? turned : shape, NULL, &t, err);
  if (status == TDICT_OK && l->is_strided) {
    status = tdict_tensor_permute(t, 3, (const int[]){2, 1, 0}, &view, err);
    tdict_tensor_release(t);
    t = view;
  }
  if (status != TDICT_OK) return status;
  if (tdict_tensor_numel(t)) visit_elements(t, number, rows, tdict_tensor_data(t), NULL);
  status = tdict_set(td, l->path, t, err);
  tdict_tensor_release(t);
  return status;
}

tdict_tree *model_tree(const model_rows *rows) {
  tdict_tree *td = NULL;
  bool is_ok = model_ok(tdict_create(1, &rows->count, &td, model_error()));
  for (int i = 0; is_ok && i < MODEL_NUM_LEAVES; i++) is_ok = model_ok(put_leaf(td, i, rows, model_error()));
  if (is_ok) return td;
  tdict_release(td);
  return NULL;
}

const tdict_field *model_fields(int64_t width) {
  static tdict_field fields[MODEL_NUM_LEAVES];
  static int64_t known_width = -1;
  if (width == known_width) return fields;
  for (int i = 0; i < MODEL_NUM_LEAVES; i++) {
    fields[i] = (tdict_field){.path = leaves[i].path, .dtype = leaves[i].dtype, .ndim = leaves[i].ndim};
    for (int d = 0; d < leaves[i].ndim; d++) fields[i].shape[d] = size_of(&leaves[i], d, width);
  }
  known_width = width;
  return fields;
}

tdict_tree *model_block(const model_rows *rows, tdict_memory *memory) {
  tdict_tree *td = NULL;
  if (!model_ok(
          tdict_create_from(model_fields(rows->width), MODEL_NUM_LEAVES, 1, &rows->count, memory, &td, model_error())))
    return NULL;
  model_true(model_write(td, rows));
  return td;
}

bool model_write_row(tdict_tree *td, int64_t row, model_stamp stamp, int64_t width) {
  for (int i = 0; i < MODEL_NUM_LEAVES; i++) {
    const int64_t per_row = elements_of(&leaves[i], width);
    const size_t bytes = tdict_dtype_bytes(leaves[i].dtype);
    if (!per_row) continue;
    char *data = tdict_data(td, leaves[i].path);
    if (!data) return false;
    for (int64_t k = 0; k < per_row; k++) element_of(i, stamp, k, data + (row * per_row + k) * (int64_t)bytes);
  }
  return true;
}

bool model_write(tdict_tree *td, const model_rows *rows) {
  for (int i = 0; i < MODEL_NUM_LEAVES; i++) {
    tdict_tensor *t = NULL;
    model_true(tdict_get(td, leaves[i].path, &t, NULL) == TDICT_OK);
    if (!tdict_tensor_numel(t)) continue;
    char *data = tdict_tensor_data(t);
    if (!data) return false;
    visit_elements(t, i, rows, data, NULL);
  }
  return true;
}

model_look model_plain_look(void) { return (model_look){.device = {TDICT_DEVICE_CPU, 0}, .is_pinned = 0}; }
model_look model_device_look(tdict_device device) {
  return (model_look){.device = device, .has_device = true, .is_contiguous = true, .is_pinned = 0};
}

size_t model_bytes(const model_rows *rows) {
  size_t bytes = 0;
  for (int i = 0; i < MODEL_NUM_LEAVES; i++)
    bytes += (size_t)(rows->count * elements_of(&leaves[i], rows->width)) * tdict_dtype_bytes(leaves[i].dtype);
  return bytes;
}

size_t model_block_bytes(const model_rows *rows) {
  size_t bytes = 0;
  for (int i = 0; i < MODEL_NUM_LEAVES; i++) {
    const size_t leaf_bytes =
        (size_t)(rows->count * elements_of(&leaves[i], rows->width)) * tdict_dtype_bytes(leaves[i].dtype);
    bytes = (bytes + 255) / 256 * 256 + leaf_bytes;
  }
  return bytes;
}

static void check_leaf(const tdict_tree *td, int number, const model_rows *rows, const model_look *look) {
  const leaf *l = &leaves[number];
  int64_t shape[3], numel = rows->count * elements_of(l, rows->width);
  tdict_tensor *t = NULL;
  shape_of(l, rows, shape);
  if (tdict_get(td, l->path, &t, NULL) != TDICT_OK) dst_fail("the tree has no leaf '%s'", l->path);
  bool is_right = tdict_has(td, l->path) && tdict_tensor_dtype(t) == l->dtype && tdict_tensor_ndim(t) == l->ndim + 1 &&
                  tdict_tensor_numel(t) == numel &&
                  tdict_tensor_bytes(t) == (size_t)numel * tdict_dtype_bytes(l->dtype) &&
                  memcmp(tdict_tensor_shape(t), shape, (size_t)(l->ndim + 1) * sizeof shape[0]) == 0;
  if (!is_right) dst_fail("the leaf '%s' has the wrong dtype or shape", l->path);
  if (!tdict_device_equal(tdict_tensor_device(t), look->device)) dst_fail("leaf '%s': wrong device", l->path);
  if (look->is_contiguous && !tdict_tensor_is_contiguous(t)) dst_fail("the leaf '%s' is not contiguous", l->path);
  if (look->is_pinned >= 0 && numel && tdict_tensor_is_pinned(t) != (look->is_pinned == 1))
    dst_fail("the leaf '%s' is%s pinned", l->path, look->is_pinned ? " not" : "");
}

static void check_node(const tdict_tree *root, const char *path, const model_rows *rows, const model_look *look) {
  tdict_tree *td = (tdict_tree *)root; /* the tree is only read */
  tdict_device device;
  if (path && tdict_get_tree(root, path, &td, NULL) != TDICT_OK) dst_fail("the tree has no child '%s'", path);
  const char *name = path ? path : "";
  if (tdict_get_device(td, &device) != look->has_device) dst_fail("tree '%s' wrongly has or lacks a device", name);
  if (look->has_device && !tdict_device_equal(device, look->device)) dst_fail("tree '%s': wrong device", name);
  if (tdict_is_locked(td) != look->is_locked)
    dst_fail("the tree '%s' is%s locked", name, look->is_locked ? " not" : "");
  if (!path && !look->is_mixed && (tdict_batch_ndim(td) != 1 || tdict_batch_size(td)[0] != rows->count))
    dst_fail("the batch size is not [%lld]", (long long)rows->count);
}

void model_check_shape(const tdict_tree *td, const model_rows *rows, const model_look *look) {
  static const char *const keys[] = {"a", "n", "e", "f"};
  if (tdict_num_keys(td) != 4 + look->num_extra) dst_fail("the tree has %zu keys", tdict_num_keys(td));
  for (size_t i = 0; i < 4 && !look->is_mixed; i++)
    if (strcmp(tdict_get_entry_at(td, i).key, keys[i]) != 0)
      dst_fail("key %zu is '%s'", i, tdict_get_entry_at(td, i).key);
  if (!look->num_extra) {
    if (tdict_num_leaves(td) != MODEL_NUM_LEAVES) dst_fail("the tree has %zu leaves", tdict_num_leaves(td));
    if (tdict_bytes(td) != model_bytes(rows)) dst_fail("the tree has %zu bytes", tdict_bytes(td));
    if (tdict_num_objects(td)) dst_fail("the tree has objects");
  }
  check_node(td, NULL, rows, look);
  check_node(td, "n", rows, look);
  check_node(td, "n.m", rows, look);
  for (int i = 0; i < MODEL_NUM_LEAVES; i++) check_leaf(td, i, rows, look);
}

/* Returns the number of the first leaf whose bytes differ, or MODEL_NUM_LEAVES. */
static int find_difference(const tdict_tree *td, const model_rows *rows) {
  for (int i = 0; i < MODEL_NUM_LEAVES; i++) {
    tdict_tensor *t = NULL;
    if (tdict_get(td, leaves[i].path, &t, NULL) != TDICT_OK) return i;
    if (!tdict_tensor_numel(t)) continue;
    const char *data = tdict_tensor_const_data(t);
    if (!data) dst_fail("the accessor of '%s' returns NULL", leaves[i].path);
    if (!visit_elements(t, i, rows, NULL, data)) return i;
  }
  return MODEL_NUM_LEAVES;
}

static void read_leaves(void *user) {
  const model_reader *r = user;
  const int64_t *stamps = tdict_sim_host_pointer(r->stream, r->first), width = r->rows.width;
  const int32_t *numbers = tdict_sim_host_pointer(r->stream, r->largest);
  model_true(stamps && numbers);
  for (int64_t i = 0; i < r->rows.count; i++)
    if (stamps[i] != r->rows.stamps[i]) dst_fail("stream read: stamp %lld is %lld", (long long)i, (long long)stamps[i]);
  for (int64_t i = 0; i < r->rows.count * width; i++)
    if (numbers[i] != model_int_of(r->rows.stamps[i / width], i % width))
      dst_fail("stream read: element %lld is %d", (long long)i, numbers[i]);
}
bool model_read_on(model_reader *r, const tdict_tree *td, tdict_stream stream, const model_rows *rows) {
  *r = (model_reader){stream, tdict_const_data(td, "a"), tdict_const_data(td, "n.m.d"), *rows};
  model_true((r->first && r->largest) || model_was_unlucky());
  return r->first && r->largest && model_ok(tdict_sim_launch(stream, read_leaves, r, model_error()));
}

static void write_leaves(void *user) {
  const model_writer *w = user;
  for (int i = 0; i < MODEL_NUM_LEAVES; i++)
    if (w->data[i]) visit_elements(w->leaves[i], i, &w->rows, tdict_sim_host_pointer(w->stream, w->data[i]), NULL);
}
bool model_write_on(model_writer *w, tdict_tree *td, tdict_stream stream, const model_rows *rows) {
  *w = (model_writer){.stream = stream, .rows = *rows};
  for (int i = 0; i < MODEL_NUM_LEAVES; i++) {
    model_true(tdict_get(td, leaves[i].path, &w->leaves[i], NULL) == TDICT_OK);
    if (!tdict_tensor_numel(w->leaves[i])) continue;
    w->data[i] = tdict_tensor_data(w->leaves[i]);
    model_true(w->data[i] || model_was_unlucky());
    if (!w->data[i]) return false;
  }
  return model_ok(tdict_sim_launch(stream, write_leaves, w, model_error()));
}

bool model_has(const tdict_tree *td, const model_rows *rows) { return find_difference(td, rows) == MODEL_NUM_LEAVES; }

int64_t model_generation(const tdict_tree *td) {
  const int64_t *stamps = tdict_const_data(td, "a");
  if (!stamps) dst_fail("the accessor of 'a' returns NULL");
  return stamps[0] / 1024;
}

void model_check(const tdict_tree *td, const model_rows *rows, const model_look *look) {
  model_check_shape(td, rows, look);
  const int wrong = find_difference(td, rows);
  if (wrong == MODEL_NUM_LEAVES) return;
  const int64_t *stamps = tdict_const_data(td, "a");
  dst_fail("the bytes of '%s' differ; the first row has stamp %lld, wanted %lld", leaves[wrong].path,
           (long long)(stamps ? stamps[0] : -1), (long long)rows->stamps[0]);
}

void model_check_device(model_world *w, const tdict_tree *td, const model_rows *rows, const model_look *look) {
  model_look host = model_plain_look();
  tdict_tree *back = NULL;
  model_check_shape(td, rows, look);
  model_calm(true);
  host.has_device = true;
  host.is_locked = look->is_locked;
  host.num_extra = look->num_extra;
  host.is_pinned = -1;
  tdict_status status = tdict_to_device(w->context, td, tdict_cpu(), NULL, &back, model_error());
  if (status != TDICT_OK) dst_fail("a tree on a device cannot be read: %s", last_error.message);
  model_check(back, rows, &host);
  tdict_release(back);
  model_calm(false);
}
