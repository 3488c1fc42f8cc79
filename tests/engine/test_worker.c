/* Tests transfers whose driver calls fail. A transfer must return the status and the path of the leaf, and release its
 * memory. The next transfer must be correct. */
#include <sys/mman.h>

#include "engine/transfer.h"
#include "engine/trees.h"
#include "engine/wrap.h"

enum { MOVE_IN, MOVE_OUT, MOVE_OUT_PINNED, COPY_IN, COPY_OUT, COPY_WITHIN, PIN, NUM_CALLS };

typedef struct field {
  place w;
  tdict_tree *src, *pinned, *there, *host_dst, *device_dst;
} field;

static tdict_tree *fault_tree(tdict_memory *memory) {
  tdict_tree *td = new_tree();
  for (int i = 0; i < 6; i++)
    td_put(td, td_text("leaf.f%d", i), random_tensor(TDICT_U8, SHAPE(70000 + 11111 * i), memory));
  return td;
}
static field open_field(void) {
  field f = {.w = open_wrapped(NULL), .src = fault_tree(NULL)};
  f.pinned = fault_tree(f.w.pinned);
  f.there = to_device(&f.w, f.src, f.w.device);
  f.host_dst = to_device(&f.w, f.there, tdict_cpu());
  f.device_dst = to_device(&f.w, f.src, f.w.device);
  return f;
}
static void close_field(field *f) {
  tdict_tree *trees[] = {f->src, f->pinned, f->there, f->host_dst, f->device_dst};
  for (size_t i = 0; i < 5; i++) tdict_release(trees[i]);
  place_close(&f->w);
  assert_int_equal(atomic_load(&wrap.pinned), 0);
}
#define scoped_field TD_SCOPED(close_field, field)

/* Makes one call and sets *out to its result. */
static tdict_status run_call(const field *f, int call, const way *v, tdict_tree **out, tdict_error *err) {
  const place *w = &f->w;
  const tdict_tree *src = call == MOVE_IN || call == COPY_IN ? (v->o.num_threads == 2 ? f->pinned : f->src) : f->there;
  tdict_transfer_options o = v->o;
  tdict_future *future = NULL;
  tdict_tree *dst = call == COPY_OUT ? f->host_dst : f->device_dst;
  tdict_status status;
  o.pinned_result = call == MOVE_OUT_PINNED;
  tdict_pin_options p = td_with(tdict_pin_options, num_threads = o.num_threads);
  if (call == PIN) return tdict_pin_memory(w->c, f->src, &p, out, err);
  bool moves = call < COPY_IN;
  const tdict_device device = call == MOVE_IN ? w->device : tdict_cpu();
  if (!v->async && moves) return tdict_to_device(w->c, src, device, &o, out, err);
  if (!v->async) {
    status = tdict_transfer_into(w->c, dst, src, &o, err);
    if (status == TDICT_OK) *out = tdict_retain(dst);
    return status;
  }
  status = moves ? tdict_to_device_async(w->c, src, device, &o, &future, err)
                 : tdict_transfer_into_async(w->c, dst, src, &o, &future, err);
  if (status != TDICT_OK) return status;
  status = tdict_future_wait(future, out, err);
  tdict_future_release(future);
  return status;
}
static const tdict_tree *expected_of(const field *f, int call, const way *v) {
  return (call == MOVE_IN || call == COPY_IN) && v->o.num_threads == 2 ? f->pinned : f->src;
}
static void check_field(const field *f, int call, const way *v, tdict_tree *out) {
  check_tree(&f->w, expected_of(f, call, v), out);
  spoil_tree(&f->w, out);
  tdict_release(out);
}

/* Makes the n-th driver call of a kind fail, for n = 1, 2 and so on, until the transfer makes fewer such calls. Returns
 * the number of failed transfers. */
static int sweep(const field *f, call_kind kind, int call, const way *v) {
  int failures = 0;
  for (int n = 1; n < 500; n++) {
    tdict_tree *const mark = f->src;
    tdict_tree *out = mark;
    tdict_error e = {0};
    tdict_memory_counts before = td_memory_counts(f->w.memory);
    tdict_memory_counts pinned_before = td_memory_counts(f->w.pinned);
    fail_call(kind, n);
    tdict_status status = run_call(f, call, v, &out, &e);
    bool failed = atomic_load(&wrap.fail_after[kind]) == 0;
    fail_call(kind, 0);
    if (status == TDICT_OK) {
      check_field(f, call, v, out); /* the transfer may not need the failed call */
    } else {
      failures++;
      assert_true(failed);
      assert_ptr_equal(out, mark);
      if (status != TDICT_EDEVICE && status != TDICT_ENOMEM) fail_msg("%s: %s", tdict_status_name(status), e.message);
      assert_int_equal(e.status, status);
      assert_int_equal(e.native, TDICT_CU_UNKNOWN);
      if (kind == CALL_COPY && strncmp(e.path, "leaf.f", 6) != 0) fail_msg("path '%s': %s", e.path, e.message);
      assert_int_equal(td_memory_counts(f->w.memory).live_bytes, before.live_bytes);
      assert_int_equal(td_memory_counts(f->w.pinned).live_bytes, pinned_before.live_bytes);
      out = NULL;
      td_ok(run_call(f, call, v, &out, err)); /* the next transfer is correct */
      check_field(f, call, v, out);
    }
    /* `there` is the destination of these calls and the source of others */
    if (call == COPY_WITHIN || call == COPY_IN) check_tree(&f->w, f->src, f->there);
    if (!failed) return failures;
  }
  fail_msg("the sweep does not end");
  return 0;
}

static void sweep_kind(call_kind kind, bool must_fail) {
  scoped_field f = open_field();
  int failures = 0;
  for (int call = 0; call < NUM_CALLS; call++)
    for (int i = 0; i < NUM_WAYS; i += SANITIZED ? 9 : 3) {
      const way v = way_at(i);
      int some = sweep(&f, kind, call, &v);
      bool blocking = v.o.mode != TDICT_MODE_NON_BLOCKING_PIN; /* other modes may wait for the stream */
      if (must_fail && call != PIN && !some && (kind == CALL_COPY || !blocking))
        fail_msg("call %d by way %d never fails", call, i);
      failures += some;
    }
  if (must_fail) assert_true(failures > 0);
}

GPU_CASE(work_survives_failing_copies) { sweep_kind(CALL_COPY, true); }
GPU_CASE(work_survives_failing_records) { sweep_kind(CALL_RECORD, true); }
GPU_CASE(work_survives_failing_waits_for_events) { sweep_kind(CALL_SYNC, false); }
GPU_CASE(work_survives_failing_waits_for_streams) { sweep_kind(CALL_STREAM_SYNC, false); }
GPU_CASE(work_survives_failing_wait_events) { sweep_kind(CALL_WAIT, false); }
GPU_CASE(work_survives_failing_allocations) { sweep_kind(CALL_ALLOC, false); }

/* Uses a new context for each run, because later transfers of a context reuse streams and events. */
static void sweep_fresh(call_kind kind) {
  scoped_context beside = td_context(NULL); /* keeps a GPU's primary context alive between the runs */
  int failures = 0;
  for (int call = 0; call < NUM_CALLS; call++)
    for (int n = 1 + sanitized_first(call); n < 60; n += SANITIZED_STEP) {
      field f = {.w = open_wrapped(NULL), .src = fault_tree(NULL), .pinned = fault_tree(NULL)};
      /* makes the device trees without transfers */
      f.there = new_tree(), f.device_dst = new_tree(), f.host_dst = fault_tree(NULL);
      leaf_list l = list_entries(f.src);
      for (size_t i = 0; i < l.count; i++) {
        if (!l.tensors[i]) continue;
        for (int k = 0; k < 2; k++) {
          tdict_tensor *t = NULL;
          td_ok(tdict_tensor_empty(TDICT_U8, 1, tdict_tensor_shape(l.tensors[i]), f.w.memory, &t, err));
          raw_write(f.w.raw, t->data, tdict_tensor_const_data(l.tensors[i]), tdict_tensor_bytes(t));
          td_put(k ? f.there : f.device_dst, l.paths[i], t);
        }
      }
      free_list(&l);
      const int round = n / SANITIZED_STEP;
      way v = way_at(round % 2);
      v.o.num_threads = round % 3;
      if (v.o.num_threads == 2) v.o.num_threads = 3;
      tdict_tree *out = NULL;
      tdict_error e = {0};
      fail_call(kind, n);
      tdict_status status = run_call(&f, call, &v, &out, &e);
      bool failed = atomic_load(&wrap.fail_after[kind]) == 0;
      fail_call(kind, 0);
      if (status != TDICT_OK) {
        failures++;
        assert_true(failed && (status == TDICT_EDEVICE || status == TDICT_ENOMEM));
        assert_null(out);
        td_ok(run_call(&f, call, &v, &out, err));
      }
      check_field(&f, call, &v, out);
      close_field(&f);
      if (!failed) break;
    }
  assert_true(failures > 0);
}
GPU_CASE(work_survives_failing_streams) { sweep_fresh(CALL_STREAM); }
GPU_CASE(work_survives_failing_events) { sweep_fresh(CALL_EVENT); }

/* Makes each host allocation of a transfer fail in turn. The caller does all the work, so no other thread allocates. */
GPU_CASE(transfer_survives_enomem) {
  scoped_field f = open_field();
  for (int call = 0; call < NUM_CALLS; call++)
    for (int async = 0; async < 2; async++) {
      way v = way_at(async);
      v.o.num_threads = 0;
      int refused = 0;
      TD_SWEEP(s) {
        tdict_tree *out = NULL;
        if (td_sweep_call(s, run_call(&f, call, &v, &out, err)) == TDICT_OK) {
          check_field(&f, call, &v, out);
          continue;
        }
        refused++;
        assert_null(out);
        assert_true(s.n < 500);
      }
      assert_true(refused > 3);
    }
}

/* If several leaves are in one slot, the error names the leaf whose copy failed. */
GPU_CASE(work_names_the_leaf_at_fault) {
  scoped_place w = open_wrapped(NULL);
  tdict_tree *src = new_tree(), *apart = new_tree();
  for (int i = 0; i < 7; i++) {
    const char *path = td_text("a.leaf%d", i);
    td_put(src, path, random_tensor(TDICT_U8, SHAPE(100 + i), NULL));
    td_put(apart, path, td_made(tensor, tdict_tensor_clone(td_leaf(src, path), w.memory, &made, err)));
  }
  tdict_tree *whole = to_device(&w, src, w.device), *home = to_device(&w, whole, tdict_cpu());
  for (int i = 0; i < 7; i++) {
    const char *path = td_text("a.leaf%d", i);
    fail_call(CALL_COPY, i + 1);
    td_fails_at(TDICT_EDEVICE, "", path, tdict_transfer_into(w.c, apart, src, NULL, err));
    td_ok(tdict_transfer_into(w.c, apart, src, NULL, err)); /* the lost leaves are valid again */
    fail_call(CALL_COPY, i + 1);
    td_fails_at(TDICT_EDEVICE, "", path, tdict_transfer_into(w.c, home, apart, NULL, err));
  }
  fail_call(CALL_COPY, 1); /* one copy moves all leaves, so the first is named */
  td_fails_at(TDICT_EDEVICE, "", "a.leaf0", tdict_transfer_into(w.c, whole, src, NULL, err));
  tdict_tree *trees[] = {src, apart, whole, home};
  for (size_t i = 0; i < 4; i++) tdict_release(trees[i]);
}

/* After a failure, the workers stop long before they reach the last chunk. */
GPU_CASE(work_stops_after_a_failure) {
  tdict_sim_options sim = tdict_sim_options_default();
  sim.h2d_bytes_per_second = 20e6; /* slow, because failures may be noticed late: 512 copies take 1.6 s */
  scoped_place w = open_wrapped(td_options(tdict_context_options, sim = &sim, staging_bytes = STAGING));
  scoped_tree src = bytes_tree("x", (int64_t)64 << 20, NULL), out = NULL;
  tdict_transfer_options o = threads(8);
  const int64_t before = atomic_load(&wrap.calls[CALL_COPY]);
  fail_call(CALL_COPY, 3);
  td_fails(TDICT_EDEVICE, "", tdict_to_device(w.c, src, w.device, &o, &out, err));
  assert_in_range(atomic_load(&wrap.calls[CALL_COPY]) - before, 3, 512); /* of 1024 copies */
  assert_null(out);
}

/* Returns true if the kernel provides huge pages to programs that request them. */
static bool has_huge_pages(void) {
  char text[128] = "";
  FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
  if (!file) return false;
  bool read = fgets(text, sizeof text, file) != NULL;
  fclose(file);
  return read && (strstr(text, "[always]") || strstr(text, "[madvise]"));
}
/* Returns true if the mapping that contains the address requests huge pages. The kernel need not have provided any. */
static bool asks_for_huge_pages(const void *address) {
  char line[512];
  bool here = false, asks = false;
  FILE *file = fopen("/proc/self/smaps", "r");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    unsigned long begin, end;
    if (sscanf(line, "%lx-%lx ", &begin, &end) == 2) here = (uintptr_t)address >= begin && (uintptr_t)address < end;
    if (here && strncmp(line, "VmFlags:", 8) == 0) asks = strstr(line, " hg") != NULL;
  }
  fclose(file);
  return asks;
}

enum { LARGE = 64 << 20 };
SIM_CASE(work_new_results_lie_on_huge_pages) {
  if (!has_huge_pages()) td_skip("/sys/kernel/mm/transparent_hugepage/enabled is neither always nor madvise");
  scoped_place w = open_place();
  scoped_tree src = bytes_tree("x", LARGE, NULL);
  tdict_tree *there = to_device(&w, src, w.device), *home = to_device(&w, there, tdict_cpu());
  const char *data = tdict_const_data(home, "x");
  assert_int_equal((uintptr_t)data % (2 << 20), 0);
  for (size_t at = 0; at < LARGE; at += 2 << 20) assert_true(asks_for_huge_pages(data + at));
  check_and_release(&w, src, home);
  tdict_release(there);
}

/* The device is stopped and writes nothing, so pages of the result can be present only if a thread has touched them. */
SIM_CASE(work_touches_new_results_ahead) {
  scoped_place w = open_place();
  scoped_tree src = new_tree();
  unsigned char is_there = 0;
  td_put(src, "x", random_tensor(TDICT_U8, SHAPE(LARGE), NULL));
  scoped_tree there = to_device(&w, src, w.device);
  td_ok(tdict_sim_hold(w.c, err));
  tdict_future *f = move_async(&w, there, tdict_cpu(), NULL);
  while (!(is_there & 1)) { /* would never end if the page were not touched */
    usleep(100);
    assert_int_equal(mincore(((tdict_transfer *)f)->targets[0].storage->data, 4096, &is_there), 0);
  }
  td_ok(tdict_sim_resume(w.c, err));
  check_result(&w, src, f);
}

/* A large result reuses the memory of a freed result, because clearing new pages takes longer than copying into them.
 * The copies then use the tuning rows for existing memory. */
SIM_CASE(work_large_results_reuse_memory) {
  scoped_place w = open_place();
  tdict_engine *e = tdict_context_engine(w.c);
  for (int i = 0; i < e->tuning.num_rows[TDICT_TUNING_OUT]; i++) {
    tdict_tuning_row *row = &e->tuning.rows[TDICT_TUNING_OUT][i];
    row->chunk_bytes = row->first_bytes = e->rings.slot_bytes / 2;
  }
  scoped_tree src = bytes_tree("x", LARGE, NULL);
  scoped_tree there = to_device(&w, src, w.device);
  const void *data = NULL;
  tdict_transfer_stats stats[2] = {tdict_transfer_stats_default(), tdict_transfer_stats_default()};
  for (int i = 0; i < 2; i++) {
    tdict_tree *home = NULL;
    td_ok(tdict_to_device(w.c, there, tdict_cpu(), td_options(tdict_transfer_options, stats = &stats[i]), &home, err));
    if (i) assert_ptr_equal(tdict_const_data(home, "x"), data);
    data = tdict_const_data(home, "x");
    check_and_spoil(&w, src, home);
  }
  assert_int_equal(stats[1].num_chunks, 2 * stats[0].num_chunks);
}

static _Atomic(tdict_cu_stream) out_stream;
static atomic_bool has_other_stream;
static tdict_cu note_stream(tdict_driver *d, void *dst, const void *src, size_t bytes, tdict_cu_stream s) {
  tdict_cu_stream none = NULL;
  if (!atomic_compare_exchange_strong(&out_stream, &none, s) && none != s) atomic_store(&has_other_stream, true);
  return wrap_d2h(d, dst, src, bytes, s);
}

/* All threads queue their copies to the host on one stream, so that the copies end one after another. The device is
 * stopped until 5 copies are queued, so both threads have queued copies: one thread has at most 4 slots. */
SIM_CASE(work_copies_to_the_host_on_one_stream) {
  scoped_place w = open_wrapped(NULL);
  wrap.ops.copy_d2h_async = note_stream;
  scoped_tree src = bytes_tree("x", 16 * STAGING, NULL);
  scoped_tree there = to_device(&w, src, w.device);
  tdict_transfer_options o = threads(2);
  for (int i = 0; i < 3; i++) {
    atomic_store(&out_stream, NULL);
    td_ok(tdict_sim_hold(w.c, err));
    const int64_t before = num_copies();
    tdict_future *f = move_async(&w, there, tdict_cpu(), &o);
    while (num_copies() - before < 5) usleep(100);
    td_ok(tdict_sim_resume(w.c, err));
    check_result(&w, src, f);
    assert_non_null(atomic_load(&out_stream));
  }
  assert_false(atomic_load(&has_other_stream));
}
