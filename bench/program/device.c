/* tdict-bench device: runs the workloads of device_*.c on request, so that bench/peers/compare-device can alternate
 * between libraries. Reads a JSON request from each line of standard input, and replies with a JSON line:
 *
 *   {"op": "hello"}    returns version, device, machine, line_bytes, simulated
 *   {"op": "prepare", "work": NAME, "leaves": [[COUNT, DTYPE, [SIZE, ...]], ...], ...}
 *                      makes trees with random elements, and returns total_bytes and the names of the ways
 *   {"op": "verify", "way": W}
 *                      makes new random elements, runs the workload and compares every byte of the result. As a
 *                      self-test, "corrupt": true changes a byte of each expected leaf before the comparison
 *   {"op": "run", "way": W, "warm": K, "count": N}
 *                      returns the seconds of N repetitions after K uncounted repetitions. "run" and "verify" accept
 *                      "max_queued_bytes", an option for the transfers of "own_copies"; -1: no limit
 *   {"op": "line", "count": N}  returns the seconds of N copies of line_bytes
 *   {"op": "finish"}   releases the trees
 *   {"op": "quit"}     ends the program
 *
 * device_main() owns the job. Thread rule: one thread. */
#include "device.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"
#include "serve.h"
#include "tdict/memory.h"

static const device_kind *const kinds[] = {&device_gather,  &device_join,       &device_clone,
                                           &device_fill,    &device_to_dtype,   &device_transfer,
                                           &device_convert, &device_own_copies, &device_images};

uint16_t device_bf16(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

int64_t device_number(const device_job *job, const char *key, int64_t otherwise) {
  const json_t *value = json_object_get(job->work, key);
  return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

const char *device_word(const device_job *job, const char *key, const char *otherwise) {
  const char *text = json_string_value(json_object_get(job->work, key));
  return text ? text : otherwise;
}

bool device_on_host(const device_job *job) { return strcmp(device_word(job, "place", "device"), "host") == 0; }

tdict_memory *device_place_memory(const device_job *job) {
  return device_on_host(job) ? NULL : tdict_device_memory(job->place.context, job->place.device);
}

tdict_tensor *device_leaf(const device_job *job, const tdict_tree *tree, int64_t i) {
  tdict_tensor *leaf = NULL;
  return bench_ok("a leaf", tdict_get(tree, job->keys[i], &leaf, err)) ? leaf : NULL;
}

bool device_make_tree(const device_job *job, int ndim, const int64_t *batch, tdict_memory *memory, tdict_tree **out) {
  const bool is_separate = device_number(job, "separate", 0) != 0;
  const bench_form form = {job->fields, (size_t)job->num_leaves, ndim, batch, is_separate};
  return bench_ok("cannot make a tree", bench_make_tree(&form, memory, out, err));
}

static void fill_leaf(unsigned char *to, size_t bytes, tdict_dtype dtype, uint64_t below, uint64_t *state) {
  for (size_t at = 0; at < bytes; at += 8) {
    uint64_t word = bench_random(state);
    if (dtype == TDICT_BOOL) word &= UINT64_C(0x0101010101010101);
    if (dtype == TDICT_I64 && below) word %= below;
    if (dtype == TDICT_F32) { /* the word becomes two numbers from -1 to 1 */
      const float pair[2] = {(float)(int32_t)word * 0x1p-31f, (float)(int32_t)(word >> 32) * 0x1p-31f};
      memcpy(&word, pair, sizeof word);
    }
    memcpy(to + at, &word, bytes - at < 8 ? bytes - at : 8);
  }
}

enum { FILL_THREADS = 8 };
typedef struct fill_job {
  const device_job *job;
  tdict_tree *tree;
  uint64_t seed;
  bool good[FILL_THREADS];
} fill_job;

static void fill_part(void *user, int part, int parts) {
  fill_job *f = user;
  const uint64_t below = (uint64_t)device_number(f->job, "below", 0);
  f->good[part] = true;
  for (int64_t i = part; i < f->job->num_leaves && f->good[part]; i += parts) {
    uint64_t state = f->seed * UINT64_C(0x100000001b3) + (uint64_t)i;
    state = bench_random(&state);
    tdict_tensor *leaf = device_leaf(f->job, f->tree, i);
    f->good[part] = leaf != NULL;
    if (leaf) fill_leaf(tdict_tensor_data(leaf), tdict_tensor_bytes(leaf), tdict_tensor_dtype(leaf), below, &state);
  }
}

bool device_fill_tree(const device_job *job, tdict_tree *tree, uint64_t seed) {
  fill_job f = {job, tree, seed, {false}};
  bench_on_threads(FILL_THREADS, fill_part, &f);
  bool good = true;
  for (int t = 0; t < FILL_THREADS; t++) good = good && f.good[t];
  return good;
}

/* Reads "leaves" of the request: an array of [count, dtype, sizes]. Sets the fields, keys and num_leaves of the job. */
static bool read_fields(device_job *job) {
  static const tdict_dtype dtypes[] = {TDICT_BOOL, TDICT_U8, TDICT_U16, TDICT_I32, TDICT_I64, TDICT_F32, TDICT_BF16};
  const json_t *groups = json_object_get(job->work, "leaves");
  for (size_t g = 0; g < json_array_size(groups); g++)
    job->num_leaves += json_integer_value(json_array_get(json_array_get(groups, g), 0));
  job->fields = calloc((size_t)job->num_leaves + 1, sizeof *job->fields);
  job->keys = calloc((size_t)job->num_leaves + 1, sizeof *job->keys);
  if (!job->fields || !job->keys) return false;
  int64_t n = 0;
  for (size_t g = 0; g < json_array_size(groups); g++) {
    const json_t *group = json_array_get(groups, g), *sizes = json_array_get(group, 2);
    const char *name = json_string_value(json_array_get(group, 1));
    tdict_field field = {.ndim = (int32_t)json_array_size(sizes)};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes && name; d++)
      if (strcmp(tdict_dtype_name(dtypes[d]), name) == 0) field.dtype = dtypes[d];
    if (!field.dtype || field.ndim > 5) return false;
    for (int32_t d = 0; d < field.ndim; d++) field.shape[d] = json_integer_value(json_array_get(sizes, (size_t)d));
    for (json_int_t k = json_integer_value(json_array_get(group, 0)); k > 0; k--, n++) {
      snprintf(job->keys[n], DEVICE_KEY, "leaf%" PRId64, n);
      job->fields[n] = field;
      job->fields[n].path = job->keys[n];
    }
  }
  return n > 0;
}

static void finish_job(device_job *job) {
  tdict_tree *const trees[] = {job->host, job->tree, job->value, job->target};
  const device_job empty = {.place = job->place, .stream = job->stream};
  for (size_t i = 0; i < sizeof trees / sizeof *trees; i++) tdict_release(trees[i]);
  for (int i = 0; i < DEVICE_MOST_ITEMS; i++) {
    tdict_release(job->items[i]);
    tdict_release(job->views[i]);
  }
  own_copy_close(&job->own);
  tdict_tensor_release(job->list);
  tdict_tensor_release(job->mask);
  free(job->positions);
  free(job->fields);
  free(job->keys);
  json_decref(job->work);
  json_decref(job->more);
  if (job->place.context) {
    tdict_context_trim(job->place.context, job->place.device, 0);
    tdict_context_trim(job->place.context, tdict_cpu(), 0);
  }
  *job = empty;
}

static const device_way *first_way(const device_job *job) {
  return device_on_host(job) ? job->kind->host_ways : job->kind->ways;
}

static bool prepare_host_tree(device_job *job) {
  const json_t *batch = json_object_get(job->work, "batch");
  int64_t sizes[TDICT_MAX_BATCH_NDIM] = {0};
  const int ndim = (int)json_array_size(batch);
  for (int d = 0; d < ndim && d < TDICT_MAX_BATCH_NDIM; d++)
    sizes[d] = json_integer_value(json_array_get(batch, (size_t)d));
  const bool pinned = strcmp(device_word(job, "source", "pageable"), "pinned") == 0;
  tdict_memory *memory = pinned ? tdict_pinned_memory(job->place.context) : NULL;
  job->rows = ndim ? sizes[ndim - 1] : 1;
  return device_make_tree(job, ndim, sizes, memory, &job->host) && device_fill_tree(job, job->host, 1);
}

static json_t *answer_prepare(void *user, const json_t *request) {
  device_job *job = user;
  finish_job(job);
  job->work = json_deep_copy(request);
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
    if (strcmp(kinds[k]->name, device_word(job, "work", "")) == 0) job->kind = kinds[k];
  if (!job->kind) return serve_failure("there is no such work");
  if (!read_fields(job)) return serve_failure("the request has wrong leaves");
  if (!first_way(job)) return serve_failure("the work cannot run in this place");
  if (!prepare_host_tree(job) || !job->kind->prepare(job) || !job->kind->renew(job))
    return serve_failure("the trees could not be made");
  json_t *ways = json_array();
  for (const device_way *way = first_way(job); way->name; way++) json_array_append_new(ways, json_string(way->name));
  return json_pack("{s:b, s:o, s:I}", "ok", 1, "ways", ways, "total_bytes", (json_int_t)tdict_bytes(job->host));
}

/* Returns the way that the request names, or NULL. Sets job->limit to max_queued_bytes of the request, or 0. */
static const device_way *find_way(device_job *job, const json_t *request) {
  const char *name = json_string_value(json_object_get(request, "way"));
  const device_way *way = job->kind ? first_way(job) : NULL;
  job->limit = json_integer_value(json_object_get(request, "max_queued_bytes"));
  while (way && way->name && name && strcmp(way->name, name) != 0) way++;
  return way && way->name && name ? way : NULL;
}

/* Runs the workload once. If `keep` is NULL, the time includes the release of the result. Otherwise, *keep gets the
 * result. */
static bool do_once(device_job *job, const device_way *way, tdict_tree **keep, double *seconds) {
  tdict_error err;
  tdict_tree *out = NULL;
  job->seconds = -1;
  tdict_run o = td_with(tdict_run, stream = job->stream);
  job->run = way->on_stream ? &o : NULL;
  const double begin = bench_now();
  tdict_status status = way->run(job, &out, &err);
  if (status == TDICT_OK && way->on_stream) status = tdict_stream_synchronize(job->place.context, job->stream, &err);
  if (!keep) tdict_release(out);
  *seconds = job->seconds >= 0 ? job->seconds : bench_now() - begin;
  if (keep) *keep = out;
  job->run = NULL;
  return bench_has_worked(way->name, status, &err);
}

/* Compares leaf `i` of a result with the expected bytes. Returns their number. On failure, prints an error and returns
 * 0. */
static size_t compare_leaf(const device_job *job, const device_way *way, const tdict_tree *result, int64_t i,
                           bool corrupt) {
  const size_t bytes = job->kind->expect(job, way, i, NULL);
  scoped_bytes want = malloc(bytes + 1);
  unsigned char found = 0;
  const tdict_tensor *leaf = device_leaf(job, result, i);
  check_place place = job->place.check;
  size_t at = 0;
  int answer = BENCH_FAILED;
  if (leaf && want && tdict_tensor_bytes(leaf) == bytes && tdict_tensor_is_contiguous(leaf)) {
    place.device = tdict_tensor_device(leaf);
    job->kind->expect(job, way, i, want);
    if (corrupt) want[bytes / 2] ^= 1;
    answer = check_bytes(&place, tdict_tensor_const_data(leaf), bytes, want, &at, &found);
  }
  if (answer == BENCH_FAILED)
    bench_print_error("%s: leaf %" PRId64 " cannot be read, or has another size", way->name, i);
  if (answer == BENCH_DIFFERS)
    bench_print_error("%s: leaf %" PRId64 " differs at byte %zu: 0x%02x, wanted 0x%02x", way->name, i, at, found,
                      want[at]);
  return answer == BENCH_OK ? bytes : 0;
}

static json_t *answer_verify(void *user, const json_t *request) {
  device_job *job = user;
  const device_way *way = find_way(job, request);
  if (!way) return serve_failure("there is no such way");
  static const char failed[] = "the work failed";
  const uint64_t seed = (uint64_t)json_integer_value(json_object_get(request, "seed"));
  const bool corrupt = json_is_true(json_object_get(request, "corrupt"));
  tdict_tree *out = NULL;
  double seconds;
  if (!device_fill_tree(job, job->host, seed) || !job->kind->renew(job)) return serve_failure("no new elements");
  if (!do_once(job, way, &out, &seconds)) return serve_failure(failed);
  const tdict_tree *const results[] = {out, job->target, job->tree, NULL};
  size_t total = 0, bytes = 1;
  for (int64_t i = 0; results[way->result] && i < job->num_leaves && bytes > 0; i++)
    total += bytes = compare_leaf(job, way, results[way->result], i, corrupt);
  tdict_release(out);
  if (bytes == 0) return serve_failure("verification found a difference");
  return json_pack("{s:b, s:I}", "ok", 1, "verified_bytes", (json_int_t)total);
}

static json_t *answer_run(void *user, const json_t *request) {
  device_job *job = user;
  const device_way *way = find_way(job, request);
  const json_int_t warm = json_integer_value(json_object_get(request, "warm"));
  const json_int_t count = json_integer_value(json_object_get(request, "count"));
  if (!way) return serve_failure("there is no such way");
  json_t *seconds = json_array(), *more = json_array();
  bool good = true;
  for (json_int_t i = -warm; i < count && good; i++) {
    double one;
    good = do_once(job, way, NULL, &one);
    if (i >= 0) json_array_append_new(seconds, json_real(one));
    if (i >= 0 && job->more) json_array_append(more, job->more);
    json_decref(job->more);
    job->more = NULL;
  }
  if (good) return json_pack("{s:b, s:o, s:o}", "ok", 1, "seconds", seconds, "more", more);
  json_decref(seconds);
  json_decref(more);
  return serve_failure("a repetition failed");
}

static json_t *answer_finish(void *user, const json_t *request) {
  (void)request;
  finish_job(user);
  return serve_success();
}

static const serve_op device_ops[] = {{"prepare", answer_prepare}, {"verify", answer_verify}, {"run", answer_run},
                                      {"finish", answer_finish},   {"quit", answer_finish},   {0}};

int device_main(int argc, char **argv) {
  static const char doc[] = "Runs works on a device on request: reads JSON lines from standard input and writes JSON "
                            "lines to standard output. bench/peers/compare-device starts it.";
  common_options o = {.device = "auto", .repeats = 1};
  device_job job = {.kind = NULL};
  const bench_option options[] = {DEVICE_OPTION(&o.device), {0}};
  if (options_parse(argc, argv, doc, options, NULL, NULL) != BENCH_OK) return BENCH_USAGE;
  bool good = place_open(&job.place, o.device);
  const bool device = good && job.place.device.type != TDICT_DEVICE_CPU;
  if (device && !bench_ok("no stream", tdict_stream_create(job.place.context, job.place.device, &job.stream, err)))
    good = false;
  if (good && !device) bench_print_error("the scenario `device` needs a device");
  good = good && device;
  if (good) serve_requests(&(serve_desk){device_ops, &job, &job.place, "device", argc, argv});
  finish_job(&job);
  if (job.stream.handle) tdict_stream_destroy(job.place.context, job.stream);
  place_close(&job.place);
  return good ? BENCH_OK : BENCH_FAILED;
}
