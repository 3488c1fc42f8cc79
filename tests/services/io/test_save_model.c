/* Tests random trees in all formats with all options: an opened or loaded tree equals the saved tree. If a save or an
 * append is killed at any moment, the files hold the old or the new tree, and the next save removes all others.
 * usage: test_io_save_model CASE host [--count TREES] [--seed N] [--folder FOLDER] */
#include <inttypes.h>
#include <sys/time.h>

#include "directory.h"
#include "faults.h"
#include "random_tree.h"
#include "tdict/io.h"
#include "tdict/path.h"

/* Names for CMake: __wrap_fsync __wrap_renameat __wrap_renameat2 __wrap_fchmod __wrap_fstatat __wrap_mkdirat
 * __wrap_unlinkat __wrap_flock __wrap_ftruncate __wrap_openat __wrap_open __wrap_close __wrap_pwrite */

typedef enum kind { ONE_FILE, SHARDS, PLAIN, PLAIN_SHARDS, MEMMAP, GAP, CONSOLIDATED, TDZ, NPZ, NPY, NUM_KINDS } kind;
static const char *const names[NUM_KINDS] = {
    "m", "m.safetensors.index.json", "p", "p.safetensors.index.json", "d", "g", "c", "m.tdz", "m.npz", "m.npy"};
static bool is_sharded(kind k) { return k == SHARDS || k == PLAIN_SHARDS; }
static bool is_directory(kind k) { return k == MEMMAP || k == GAP; }
/* Returns true for formats that hold no batch sizes, text or values. */
static bool is_plain(kind k) { return k == PLAIN || k == PLAIN_SHARDS || k == NPZ || k == NPY; }

/* A folder with one file, directory or set of shards, and the tree that it holds. */
typedef struct world {
  folder f;
  kind what;
  char path[PATH_BYTES];
  tdict_save_options o;
  dice d;
  tdict_context *contexts[2]; /* for the CPU and for a simulated device */
  tdict_tree *now;            /* the tree in the files; NULL: none yet */
  char *kept;                 /* the contents of all indexes that were written; NULL: none */
} world;
static struct { uint64_t trees, killed, old, new, refused, gaps, left, loads, saves, appends, unreadable; } counts;

/* Mixes bytes into a hash. digest() adds the hashes of keys, so their order does not matter. */
static uint64_t mix(uint64_t h, const void *bytes, size_t count) {
  const unsigned char *b = bytes;
  h += 0xcbf29ce484222325u + count * 0x9e3779b97f4a7c15u;
  for (size_t i = 0; i < count; i++) h = (h ^ b[i]) * 0x100000001b3u;
  return (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
}
static uint64_t digest_tensor(uint64_t h, const tdict_tensor *t) {
  const int ndim = tdict_tensor_ndim(t);
  const tdict_dtype dtype = tdict_tensor_dtype(t);
  scoped_bytes bytes = elements_of(t);
  h = mix(h, &dtype, sizeof dtype);
  h = mix(h, tdict_tensor_shape(t), (size_t)ndim * sizeof(int64_t));
  h = mix(h, bytes, tdict_tensor_bytes(t));
  return h;
}
static uint64_t digest_values(uint64_t h, const tdict_nontensor *values) {
  const int64_t *shape;
  const int ndim = tdict_nontensor_shape(values, &shape);
  int64_t count = 1;
  for (int d = 0; d < ndim; d++) count *= shape[d];
  h = mix(h, shape, (size_t)ndim * sizeof *shape);
  for (int64_t i = 0; i < count; i++) {
    tdict_value v;
    td_ok(tdict_nontensor_get(values, i, &v, err));
    h = mix(mix(mix(h, &v.kind, sizeof v.kind), &v.integer, sizeof v.integer), &v.real, sizeof v.real);
    if (v.text) h = mix(h, v.text, v.length);
  }
  return h;
}
static uint64_t digest(const tdict_tree *tree) {
  uint64_t sum = mix(1, tdict_batch_size(tree), (size_t)tdict_batch_ndim(tree) * sizeof(int64_t));
  for (size_t i = 0; i < tdict_num_keys(tree); i++) {
    tdict_entry e;
    e = tdict_get_entry_at(tree, i);
    uint64_t h = mix(2, e.key, strlen(e.key));
    if (e.tensor) {
      h = digest_tensor(h, e.tensor);
    } else if (e.tree) {
      const uint64_t below = digest(e.tree);
      h = mix(h, &below, sizeof below);
    } else if (e.type == tdict_nontensor_type()) {
      h = digest_values(h, e.object);
    } else if (e.type == tdict_ragged_type()) {
      h = digest_tensor(digest_tensor(h + 1, tdict_ragged_get_info(e.object).values),
                        tdict_ragged_get_info(e.object).offsets);
    } else {
      char path[PATH_BYTES];
      tdict_path_escape(e.key, path, sizeof path);
      tdict_tensor *t = td_made(tensor, tdict_get_unbatched(tree, path, &made, err));
      h = digest_tensor(h + 2, t);
    }
    sum += mix(3, &h, sizeof h);
  }
  return sum;
}

/* Makes a tree that the plain formats return unchanged: tensors whose keys have no dots. */
static tdict_tree *plain_tree(dice *d, kind what, int depth) {
  static const char *const keys[] = {"a", "b", "sp ace", "q\"uote", "t\tab", "é漢", "{", "0"};
  tdict_tree *tree = td_made(tree, tdict_create(0, NULL, &made, err));
  for (int i = 0, count = what == NPY ? 1 : 1 + (int)roll(d, 6); i < count; i++) {
    const char *key = what == NPY ? "arr_0" : keys[roll(d, 8)];
    if (i && depth < 4 && roll(d, 4) == 0) {
      scoped_tree child = plain_tree(d, what, depth + 1);
      td_ok(tdict_set_tree(tree, key, child, err));
    } else {
      scoped_tensor t = random_tensor(d, file_dtypes[roll(d, NUM_FILE_DTYPES)], 0, NULL);
      td_ok(tdict_set(tree, key, t, err));
    }
  }
  return tree;
}
static tdict_tree *next_tree(world *w) {
  int64_t batch[2] = {(int64_t)roll(&w->d, 4), (int64_t)roll(&w->d, 3)};
  counts.trees++;
  if (is_plain(w->what)) return plain_tree(&w->d, w->what, 0);
  uses_rare_keys = true;
  tdict_tree *tree = random_tree(&w->d, (int)roll(&w->d, 3), batch, 0);
  uses_rare_keys = false;
  return tree;
}

static world world_create(uint64_t seed, kind what, tdict_context *const contexts[2]) {
  const char *place = td_option("--folder");
  world w = {.what = what, .d = {seed}, .o = tdict_save_options_default(), .contexts = {contexts[0], contexts[1]}};
  snprintf(w.f.path, sizeof w.f.path, "%.40s/tdict-io.XXXXXX", place ? place : "/tmp");
  assert_non_null(mkdtemp(w.f.path));
  snprintf(w.path, sizeof w.path, "%s", in(&w.f, names[what]));
  w.o.max_shard_bytes = is_sharded(what) ? 1 + roll(&w.d, 300) : 0;
  w.o.without_structure = what == PLAIN || what == PLAIN_SHARDS;
  w.o.allows_gap = lacks_exchange = what == GAP;
  if (what == CONSOLIDATED) w.o.format = TDICT_FORMAT_CONSOLIDATED;
  if (is_directory(what)) w.o.format = TDICT_FORMAT_MEMMAP;
  ignores_order = what == CONSOLIDATED || is_plain(what);
  return w;
}
static void world_remove(world *w) {
  tdict_release(w->now);
  free(w->kept);
  remove_all(w->f.path);
}
#define scoped_world TD_SCOPED(world_remove, world)

static void same_as(const tdict_tree *found, const tdict_tree *wanted) {
  assert_true(digest(found) == digest(wanted));
  same_trees(found, wanted);
}
/* Loads the files with random options. */
static void check_load(world *w, const tdict_tree *wanted) {
  tdict_load_options o = tdict_load_options_default();
  tdict_tree *loaded = NULL, *host = NULL;
  const int i = (int)roll(&w->d, 2);
  o.open = roll(&w->d, 2) ? td_options(tdict_open_options, check_crc = roll(&w->d, 2)) : NULL;
  td_ok(tdict_load(w->contexts[i], w->path, i ? tdict_sim(0) : tdict_cpu(), &o, &loaded, err));
  td_ok(tdict_to_device(w->contexts[i], loaded, tdict_cpu(), NULL, &host, err));
  same_as(host, wanted);
  td_release(host, loaded);
  counts.loads++;
}

/* Adds the text of the current index to w->kept, because saves keep the shards of earlier saves. */
static void keep_shards(world *w) {
  size_t count, old = w->kept ? strlen(w->kept) : 0;
  if (!is_sharded(w->what) || !w->now) return;
  scoped_bytes text = read_bytes(w->path, &count);
  w->kept = realloc(w->kept, old + count + 1);
  memcpy(w->kept + old, text, count + 1);
}
/* Returns the number of files that belong neither to the current tree nor to shards of earlier saves. Checks that
 * shards among them are complete. */
static int count_left(const world *w) {
  DIR *dir = opendir(w->f.path);
  struct dirent *entry;
  int count = 0;
  tdict_open_options flat = td_with(tdict_open_options, flat = true);
  assert_non_null(dir);
  while ((entry = readdir(dir)) != NULL) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, names[w->what]) == 0) continue;
    if (w->kept && strstr(w->kept, name)) continue;
    count++;
    if (name[0] == '.') continue;
    scoped_tree shard = td_made(tree, tdict_open(in(&w->f, name), &flat, &made, err));
  }
  closedir(dir);
  return count;
}

/* Checks that the files hold the old tree or `new`, and makes this tree the current tree. */
static void check_files(world *w, tdict_tree *new) {
  tdict_tree *found = NULL;
  tdict_error error = {0};
  tdict_status status = tdict_open(w->path, td_options(tdict_open_options, check_crc = roll(&w->d, 2)), &found, &error);
  if (status != TDICT_OK) {
    /* Nothing was saved yet, or the save was killed while no directory had the name. */
    if (status != TDICT_EIO || error.native != ENOENT || (w->now && w->what != GAP)) fail_msg("%s", error.message);
    counts.gaps += w->now != NULL;
    return;
  }
  const bool is_new = new &&digest(found) == digest(new);
  if (!is_new && !w->now) fail_msg("the files hold a tree other than the one that was being saved");
  same_as(found, is_new ? new : w->now);
  tdict_release(found);
  counts.new += is_new;
  counts.old += !is_new;
  if (is_new) {
    tdict_release(w->now);
    w->now = tdict_retain(new);
    keep_shards(w);
  }
}

static bool is_refused(tdict_status status) { return status == TDICT_ENOTSUP || status == TDICT_EEXIST; }

/* Saves in this process. The save must succeed unless the format cannot hold the tree. */
static void save(world *w) {
  scoped_tree tree = next_tree(w), source = NULL;
  const int way = (int)roll(&w->d, 16);
  tdict_context *context = way < 2 ? w->contexts[way] : NULL;
  tdict_error error = {0};
  if (context) td_ok(tdict_to_device(context, tree, way ? tdict_sim(0) : tdict_cpu(), NULL, &source, err));
  tdict_status status = TDICT_OK;
  if (context && roll(&w->d, 2)) {
    scoped_future saving = td_made(future, tdict_save_async(context, w->path, source, &w->o, &made, err));
    status = tdict_future_wait(saving, NULL, &error);
  } else {
    status = tdict_save(context, w->path, source ? source : tree, &w->o, &error);
  }
  counts.refused += is_refused(status);
  counts.saves += status == TDICT_OK;
  if (status != TDICT_OK && !is_refused(status)) fail_msg("%s", error.message);
  if (status == TDICT_OK) {
    tdict_release(w->now);
    w->now = tdict_retain(tree);
    keep_shards(w);
    if (count_left(w)) fail_msg("%d files of killed saves are left", count_left(w));
  }
  if (w->now) check_files(w, NULL);
  if (w->now && roll(&w->d, 3) == 0 && access(w->path, F_OK) == 0) check_load(w, w->now);
}

/* Makes a child process call `work`, and kills it at a random system call or at a random time. Returns its exit status,
 * or -1 if it was killed. */
static int run_child(world *w, int (*work)(world *, tdict_tree *), tdict_tree *tree) {
  static int most[NUM_KINDS] = {40, 40, 40, 40, 40,
                                40, 40, 40, 40, 40}; /* estimates of the number of calls, corrected below */
  const int at = (int)roll(&w->d, (uint64_t)most[w->what]), micros = 1 + (int)roll(&w->d, 600);
  const bool by_time = roll(&w->d, 8) == 0, after = roll(&w->d, 2), little = roll(&w->d, 8) == 0;
  int status;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    writes_little = little;
    if (by_time)
      setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, micros}}, NULL); /* SIGALRM kills the process */
    if (!by_time) begin_faults(after ? FAULT_KILL_AFTER : FAULT_KILL_BEFORE, at);
    _exit(work(w, tree));
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  if (!by_time && !little) most[w->what] = WIFEXITED(status) ? (3 * most[w->what] + at + 5) / 4 : most[w->what] + 1;
  counts.killed += WIFSIGNALED(status);
  if (WIFSIGNALED(status)) assert_true(WTERMSIG(status) == SIGKILL || (by_time && WTERMSIG(status) == SIGALRM));
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}
static int save_in_child(world *w, tdict_tree *tree) {
  tdict_status status = tdict_save(NULL, w->path, tree, &w->o, NULL);
  return status == TDICT_OK ? 0 : is_refused(status) ? 3 : 4;
}
static void kill_save(world *w) {
  scoped_tree tree = next_tree(w);
  const int code = run_child(w, save_in_child, tree);
  assert_true(code <= 3);
  counts.refused += code == 3;
  check_files(w, tree);
  counts.left += count_left(w) > 0;
  if (code == 0) assert_true(w->now && digest(w->now) == digest(tree));
  if (w->now && roll(&w->d, 4) == 0 && access(w->path, F_OK) == 0) check_load(w, w->now);
}

static bool stop(void *user, uint64_t done, uint64_t total) {
  (void)done, (void)total;
  return (*(int *)user)++ == 0; /* the first call comes before the folder is opened */
}
/* Cancels a save. The save must restore the name of an old directory, and leave no other files. */
static void fail_save(world *w) {
  tdict_save_options o = w->o;
  scoped_tree tree = next_tree(w);
  int calls_of_stop = 0;
  o.progress = stop;
  o.user = &calls_of_stop;
  tdict_status status = tdict_save(NULL, w->path, tree, &o, NULL);
  assert_true(status == TDICT_ECANCELLED || is_refused(status));
  check_files(w, NULL);
  if (status == TDICT_ECANCELLED) assert_true(access(w->path, F_OK) == 0 && count_left(w) == 0);
}

static int append_in_child(world *w, tdict_tree *rows) {
  return tdict_append(NULL, w->path, rows, NULL, NULL) == TDICT_OK ? 0 : 4;
}
/* Makes a tree with this number of rows. Equal dice make equal keys and shapes; `other_bytes` changes the elements. */
static tdict_tree *rows_tree(dice d, int depth, int64_t rows) {
  const int64_t batch[] = {rows, (int64_t)roll(&d, 3)};
  const int ndim = 1 + (int)roll(&d, 2);
  tdict_tree *tree = td_made(tree, tdict_create(ndim, batch, &made, err));
  for (int i = 0, count = 1 + (int)roll(&d, 4); i < count; i++) {
    const char *key = odd_keys[roll(&d, NUM_ODD_KEYS)];
    dice below = {roll(&d, 1u << 30)};
    if (depth < 3 && roll(&d, 3) == 0) {
      scoped_tree child = rows_tree(below, depth + 1, rows);
      (void)!tdict_set_tree(tree, key, child, NULL); /* fails if `child` has other batch dimensions */
    } else {
      scoped_tensor t = random_tensor(&below, file_dtypes[roll(&d, NUM_FILE_DTYPES)], ndim, batch);
      td_ok(tdict_set(tree, key, t, err));
    }
  }
  return tree;
}
/* Kills appends. The directory then has the old or the new rows, or cannot be opened until the next append. */
static void kill_appends(world *w) {
  const dice shape = {roll(&w->d, 1u << 30)};
  other_bytes = roll(&w->d, 1u << 30);
  tdict_tree *first = rows_tree(shape, 0, (int64_t)roll(&w->d, 4));
  td_ok(tdict_save(NULL, w->path, first, &w->o, err));
  tdict_release(w->now);
  w->now = first;
  for (int round = 0; round < 6; round++) {
    other_bytes = roll(&w->d, 1u << 30);
    tdict_tree *rows = rows_tree(shape, 0, (int64_t)roll(&w->d, 4)), *whole = NULL, *found = NULL;
    td_ok(tdict_cat((const tdict_tree *const[]){w->now, rows}, 2, NULL, NULL, &whole, err));
    counts.trees++;
    int code = round % 2 ? append_in_child(w, rows) : run_child(w, append_in_child, rows);
    tdict_error error = {0};
    tdict_status status = tdict_open(w->path, NULL, &found, &error);
    if (code == -1 && status != TDICT_OK) {
      if (status != TDICT_ESHAPE) fail_msg("%s", error.message);
      counts.unreadable++;
      other_bytes = 0; /* an append of no rows repairs the directory */
      tdict_tree *none = rows_tree(shape, 0, 0);
      td_ok(tdict_append(NULL, w->path, none, NULL, err));
      tdict_release(none);
      td_ok(tdict_open(w->path, NULL, &found, err));
    }
    assert_true(code == -1 || (code == 0 && status == TDICT_OK));
    const bool is_new = digest(found) == digest(whole);
    assert_true(is_new || code == -1);
    same_as(found, is_new ? whole : w->now);
    td_release(found, rows);
    tdict_release(is_new ? w->now : whole);
    if (is_new) w->now = whole;
    counts.appends++;
  }
  other_bytes = 0;
}

static void run_world(uint64_t seed, tdict_context *const contexts[2]) {
  scoped_world w = world_create(seed, (kind)(seed % NUM_KINDS), contexts);
  for (int round = 0; round < 10; round++) {
    const uint64_t what = roll(&w.d, 8);
    if (what < 5) kill_save(&w);
    if (what == 5 && w.now) fail_save(&w);
    if (what == 6 && is_directory(w.what)) kill_appends(&w);
    if (what >= 6) save(&w);
  }
  save(&w);
}

static int64_t seed;
static bool has_ended;
static void print_seed(void) {
  if (!has_ended) fprintf(stderr, "failed with --seed %" PRId64 "\n", seed);
}

CASE(save_killed_at_any_moment_leaves_one_of_two_trees) {
  const uint64_t count = (uint64_t)td_number("--count", 3000 / SANITIZED_STEP);
  tdict_context *contexts[2] = {NULL, NULL};
  tdict_context_options o = td_with(tdict_context_options, num_threads = 1, device = tdict_cpu());
  td_ok(tdict_context_create(&o, &contexts[0], err));
  o.device = tdict_sim(0);
  td_ok(tdict_context_create(&o, &contexts[1], err));
  skips_flush = true;
  atexit(print_seed);
  for (seed = td_number("--seed", 0); counts.trees < count; seed++) run_world((uint64_t)seed, contexts);
  has_ended = true;
  printf("trees %" PRIu64 " killed %" PRIu64 " old %" PRIu64 " new %" PRIu64 " refused %" PRIu64 " gaps %" PRIu64
         " left %" PRIu64 " loads %" PRIu64 " saves %" PRIu64 " appends %" PRIu64 " unreadable %" PRIu64 "\n",
         counts.trees, counts.killed, counts.old, counts.new, counts.refused, counts.gaps, counts.left, counts.loads,
         counts.saves, counts.appends, counts.unreadable);
  assert_true(counts.killed > count / 8 && counts.left > count / 16 && counts.saves > count / 16);
  assert_true(counts.refused < counts.trees / 4);
  td_release(contexts[0], contexts[1]);
}
