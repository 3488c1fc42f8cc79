/* Tests pieces of leaves, which are gathered into slots, copied and submitted. The bytes must equal those of an
 * elementwise copy, however the line is divided into chunks. */
#include "engine/engine.h"
#include "engine/lanes.h"
#include "engine/pieces.h"
#include "engine/plan/collect.h"
#include "engine/trees.h"
#include "engine/wrap.h"

/* Makes a plan for copying one host tree into another, with chunks of this size. */
static tdict_plan plan_of(const place *w, const tdict_tree *src, const tdict_tree *dst, size_t chunk_bytes) {
  tdict_plan p;
  tdict_plan_request r = {.devices = tdict_context_engine(w->c)->config.devices, .dst = dst};
  td_ok(tdict_plan_collect(&(tdict_collected){.plan = &p}, &r, src, err));
  td_ok(tdict_plan_cut(&p, &(tdict_cut){.first_bytes = chunk_bytes, .chunk_bytes = chunk_bytes}, err));
  return p;
}

/* Returns the bytes of the plan's line: the elements of each leaf in C order, and zeros in the gaps. */
static unsigned char *line_of(const place *w, const tdict_plan *p) {
  unsigned char *line = td_zeros(1, p->line_bytes + 1);
  for (uint32_t i = 0; i < p->num_items; i++) {
    scoped_bytes elements = read_elements(w, p->items[i].src);
    memcpy(line + p->items[i].offset, elements, p->items[i].bytes);
  }
  return line;
}

static tdict_tree *random_tree(naive_random *r, tdict_tree **like) {
  tdict_tree *td = new_tree();
  *like = new_tree();
  for (int i = 0; i < 12; i++) {
    static const tdict_dtype dtypes[] = {TDICT_U8, TDICT_F16, TDICT_F32, TDICT_F64, TDICT_DTYPE(1, 8, 3), TDICT_C128};
    const tdict_dtype dtype = dtypes[naive_below(r, 6)];
    const char *path = td_text("r%d", i);
    naive_layout layouts[2];
    naive_shape(r, 4, &layouts[0]);
    layouts[1] = layouts[0];
    for (int side = 0; side < 2; side++) {
      naive_layout *l = &layouts[side];
      naive_strides(r, side == 0, l);
      tdict_tensor *below = random_tensor(dtype, SHAPE(l->end - l->low + 1), NULL);
      if (side) memset(tdict_tensor_data(below), POISON, tdict_tensor_bytes(below));
      td_put(side ? *like : td, path, restrided(below, -l->low, l->ndim, l->shape, l->strides));
    }
  }
  return td;
}

/* Gathers a chunk with the given kind of stores. Checks its bytes, and that the bytes after it are unchanged. */
static void check_gather(const tdict_plan *p, const tdict_chunk *c, const unsigned char *line, tdict_stream_kind kind) {
  enum { BEHIND = 64 };
  const size_t bytes = c->end - c->begin;
  scoped_bytes slot = td_alloc(bytes + BEHIND);
  memset(slot, POISON, bytes + BEHIND);
  td_ok(tdict_pieces_gather(p, c, (char *)slot, kind, NULL, err));
  assert_memory_equal(slot, line + c->begin, bytes);
  for (size_t k = bytes; k < bytes + BEHIND; k++) assert_int_equal(slot[k], POISON);
}

CASE(pieces_gather_and_scatter) {
  scoped_place w = open_place();
  naive_random r = {5};
  for (int round = 0; round < 60; round++) {
    scoped_tree dst = NULL, src = random_tree(&r, &dst);
    const size_t chunk_bytes = 256 * (size_t)(1 + naive_below(&r, 12));
    tdict_plan p = plan_of(&w, src, dst, chunk_bytes);
    unsigned char *line = line_of(&w, &p);
    for (uint32_t i = 0; i < p.num_chunks; i++) {
      const tdict_chunk *c = &p.chunks[i];
      check_gather(&p, c, line, round % 2 ? tdict_stream_best() : TDICT_STREAM_PLAIN);
      td_ok(tdict_pieces_scatter(&p, c, (const char *)line + c->begin, tdict_stream_best(), NULL, err));
    }
    check_tree(&w, src, dst);
    spoil_tree(&w, dst);
    for (uint32_t i = p.num_chunks; i > 0; i--)
      td_ok(tdict_pieces_copy(&p, &p.chunks[i - 1], tdict_stream_best(), NULL, err)); /* chunks in reverse order */
    check_tree(&w, src, dst);
    free(line);
    tdict_plan_reset(&p);
  }
}

/* Leaves of many lengths are gathered correctly, although copies prefetch the next bytes. */
CASE(pieces_gather_leaves_of_every_length) {
  static const int64_t lengths[] = {0,    1,    255,  256,  257,   4000,  4095,  4096,  4097,  4351, 4352,
                                    4353, 4608, 8191, 8192, 12287, 12288, 16384, 40000, 70001, 3};
  scoped_place w = open_place();
  scoped_tree src = new_tree(), dst = new_tree();
  for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
    const char *path = td_text("r%zu", i);
    td_put(src, path, random_tensor(TDICT_U8, SHAPE(lengths[i]), NULL));
    td_put(dst, path, random_tensor(TDICT_U8, SHAPE(lengths[i]), NULL));
  }
  static const size_t chunks[] = {4096, 4352, 8192, 9984, 33024, (size_t)1 << 20};
  for (size_t n = 0; n < sizeof chunks / sizeof chunks[0]; n++) {
    tdict_plan p = plan_of(&w, src, dst, chunks[n]);
    unsigned char *line = line_of(&w, &p);
    for (uint32_t i = 0; i < p.num_chunks; i++)
      for (int kind = 0; kind < TDICT_STREAM_KINDS; kind++)
        if (tdict_stream_has((tdict_stream_kind)kind)) check_gather(&p, &p.chunks[i], line, (tdict_stream_kind)kind);
    free(line);
    tdict_plan_reset(&p);
  }
}

/* If leaves have the same offsets on the device as on the line, one copy moves all leaves and the gaps between them. */
GPU_CASE(pieces_submit_as_few_copies_as_can_be) {
  tdict_context_options o = tdict_context_options_default();
  place w = open_wrapped(&o); /* slots larger than the tree */
  tdict_tree *src = batch_tree(NULL), *there = to_device(&w, src, w.device), *apart = new_tree();
  leaf_list l = list_entries(src);
  for (size_t i = 0; i < l.count; i++) {
    if (!l.tensors[i]) continue;
    td_put(apart, l.paths[i], td_made(tensor, tdict_tensor_clone(l.tensors[i], w.memory, &made, err)));
  }
  free_list(&l);
  way v = way_at(0);
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  v.o.stats = &stats;
  atomic_store(&wrap.calls[CALL_COPY], 0);
  copy_tree(&w, src, there, &v);
  assert_true(stats.num_chunks < 7);
  assert_int_equal(atomic_load(&wrap.calls[CALL_COPY]), stats.num_chunks);
  copy_tree(&w, src, apart, &v);
  assert_in_range(atomic_load(&wrap.calls[CALL_COPY]), stats.num_chunks + 7, 2 * stats.num_chunks + 7);
  check_tree(&w, src, there);
  check_and_release(&w, src, apart);
  td_release(there, src);
  place_close(&w);
}

/* The copies that were queued, in order. */
static struct {
  tdict_cu_copy lines[16];
  int count;
} noted;
static tdict_cu note_h2d(tdict_driver *d, void *device, const void *host, size_t bytes, tdict_cu_stream s) {
  if (noted.count < 16) noted.lines[noted.count++] = (tdict_cu_copy){device, host, bytes};
  return wrap.real->copy_h2d_async(d, device, host, bytes, s);
}

/* Makes leaves of `bytes` bytes in one device tensor, `step` bytes apart. The gaps belong to the program. */
static tdict_tree *side_by_side(const place *w, int64_t bytes, int64_t step) {
  enum { LEAVES = 12 };
  const int64_t all = LEAVES * step, one = 1;
  tdict_tree *td = new_tree();
  scoped_tensor shared = td_made(tensor, tdict_tensor_empty(TDICT_U8, 1, &all, w->memory, &made, err));
  for (int i = 0; i < LEAVES; i++)
    td_put(td, td_text("r%d", i), restrided(tdict_tensor_retain(shared), i * step, 1, &bytes, &one));
  return td;
}

/* If a chunk is one copy, tdict_pieces_as_copy() returns the copy that tdict_pieces_submit() would queue. */
GPU_CASE(pieces_as_copy_is_the_copy_that_would_be_queued) {
  static const struct {
    int64_t bytes, step;
    size_t chunk;
    bool one; /* each chunk is one copy */
  } cases[] = {{1024, 1024, 4096, true},  {1000, 1024, 4096, false}, {1000, 1024, 512, true},
               {1024, 2048, 4096, false}, {1024, 2048, 1024, true},  {1024, 1024, 1 << 20, true}};
  scoped_place w = open_wrapped(NULL);
  wrap.ops.copy_h2d_async = note_h2d;
  tdict_gpu *gpu = gpu_of(&w);
  for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
    scoped_tree dst = side_by_side(&w, cases[n].bytes, cases[n].step), src = to_device(&w, dst, tdict_cpu());
    tdict_plan p;
    tdict_plan_request r = {
        .devices = tdict_context_engine(w.c)->config.devices, .dst = dst, .mode = TDICT_MODE_NON_BLOCKING_PIN};
    td_ok(tdict_plan_collect(&(tdict_collected){.plan = &p}, &r, src, err));
    td_ok(tdict_plan_cut(&p, &(tdict_cut){.first_bytes = cases[n].chunk, .chunk_bytes = cases[n].chunk}, err));
    tdict_gpu_scope scope;
    tdict_cu_stream stream;
    char *slot = td_zeros(1, 1 << 20);
    td_ok(tdict_gpu_enter(gpu, &scope, err));
    td_ok(tdict_gpu_take_stream(gpu, &stream, err));
    for (uint32_t i = 0; i < p.num_chunks; i++) {
      tdict_cu_copy line = {0};
      const bool one = tdict_pieces_as_copy(&p, &p.chunks[i], slot, &line);
      noted.count = 0;
      tdict_pieces_queue queue = {gpu, TDICT_CU_H2D, stream, slot, 0, NULL, 0};
      td_ok(tdict_pieces_submit(&p, &p.chunks[i], &queue, err));
      assert_int_equal(one, noted.count == 1);
      if (cases[n].one) assert_true(one);
      if (!one) continue;
      assert_ptr_equal(line.dst, noted.lines[0].dst);
      assert_ptr_equal(line.src, noted.lines[0].src);
      assert_int_equal(line.bytes, noted.lines[0].bytes);
    }
    assert_int_equal(gpu->driver->ops->stream_synchronize(gpu->driver, stream), TDICT_CU_SUCCESS);
    tdict_gpu_give_stream(gpu, stream);
    tdict_gpu_leave(gpu, &scope);
    free(slot);
    tdict_plan_reset(&p);
  }
}
