/* Tests tdict_save() with failing system calls and in processes that are killed: the old file or the new file stays, and
 * a call that fails leaves nothing else. The linker's --wrap sends the calls of the library through this file. */
#include "faults.h"

/* Names for CMake: __wrap_fsync __wrap_renameat __wrap_renameat2 __wrap_fchmod __wrap_fstatat __wrap_mkdirat
 * __wrap_unlinkat __wrap_ftruncate __wrap_openat __wrap_open __wrap_close __wrap_pwrite */

static tdict_tree *tree_of(float first) {
  tdict_tree *tree = NULL;
  tdict_tensor *t = NULL;
  const float values[] = {first, 2, 3, 4};
  const int order[] = {1, 0};
  tdict_tensor *turned = NULL;
  td_ok(tdict_create(0, NULL, &tree, err));
  td_ok(tdict_tensor_from_array(TDICT_F32, TDICT_SHAPE(2, 2), values, &t, err));
  td_ok(tdict_tensor_permute(t, 2, order, &turned, err));
  td_ok(tdict_set(tree, "a.b", t, err));
  td_ok(tdict_set(tree, "c", turned, err));
  td_ok(tdict_set_text(tree, "text", "words", err));
  tdict_tensor_release(turned);
  tdict_tensor_release(t);
  return tree;
}

static bool is_tree(const char *path, const tdict_tree *wanted) {
  tdict_tree *found = NULL;
  td_ok(tdict_open(path, NULL, &found, err));
  const bool same = *(const float *)tdict_const_data(found, "a.b") == *(const float *)tdict_const_data(wanted, "a.b");
  if (same) same_trees(found, wanted);
  tdict_release(found);
  return same;
}

typedef struct world {
  folder f;
  tdict_tree *old, *new;
  tdict_save_options o;
  char path[PATH_BYTES];
  int num_old; /* number of files of the old tree */
} world;

static world world_create(bool shards) {
  world w = {.f = folder_create(), .old = tree_of(-1), .new = tree_of(1), .o = tdict_save_options_default()};
  w.o.max_shard_bytes = shards ? 16 : 0;
  snprintf(w.path, sizeof w.path, "%s", in(&w.f, shards ? "m.safetensors.index.json" : "m.safetensors"));
  td_ok(tdict_save(NULL, w.path, w.old, &w.o, err));
  w.num_old = folder_count(&w.f, NULL);
  return w;
}
static void world_remove(world *w) {
  tdict_release(w->old);
  tdict_release(w->new);
  folder_remove(&w->f);
}

static tdict_status save_with_fault(world *w, fault what, int at, tdict_error *error) {
  begin_faults(what, at);
  tdict_status status = tdict_save(NULL, w->path, w->new, &w->o, error);
  chosen = FAULT_NONE;
  return status;
}

/* Each call fails once. A failed close() of a folder, and of a file that is removed, changes nothing. */
static void fail_each_call(bool shards, int code) {
  bool has_ended = false;
  int failures = 0;
  fault_errno = code;
  for (int at = 0; !has_ended; at++) {
    world w = world_create(shards);
    tdict_error error;
    memset(&error, 0, sizeof error);
    tdict_status status = save_with_fault(&w, FAULT_FAIL, at, &error);
    has_ended = !fault_call;
    const bool is_new = is_tree(w.path, w.new);
    if (status == TDICT_OK) {
      assert_true(is_new);
      assert_true(has_ended || strcmp(fault_call, "close") == 0);
    } else {
      failures++;
      assert_int_equal(status, TDICT_EIO);
      assert_int_equal(error.native, code);
      assert_string_equal(error.path, w.path);
      assert_non_null(strstr(error.message, strerror(code)));
      assert_true(is_new || is_tree(w.path, w.old));
      /* only a folder that cannot be flushed after the rename leaves the new file */
      if (is_new) assert_true(strcmp(fault_call, "fsync") == 0 && strstr(error.message, "all bytes are written"));
    }
    const int shards_kept = shards && is_new ? w.num_old - 1 : 0;
    assert_int_equal(folder_count(&w.f, NULL), w.num_old + shards_kept);
    world_remove(&w);
  }
  assert_true(failures >= (shards ? 15 : 8));
}

CASE(save_cleans_up_after_failing_calls) {
  fail_each_call(false, EIO);
  fail_each_call(false, ENOSPC);
}
CASE(save_cleans_up_after_failing_calls_of_shards) { fail_each_call(true, ENOSPC); }

CASE(save_continues_after_short_and_interrupted_writes) {
  world w = world_create(false);
  tdict_error error;
  writes_little = true;
  assert_int_equal(save_with_fault(&w, FAULT_NONE, 0, &error), TDICT_OK);
  writes_little = false;
  assert_true(is_tree(w.path, w.new));
  world_remove(&w);
}

/* A process is killed before and after each call. At most the temporary file, or the new shards, stay. */
static void kill_at_each_call(bool shards) {
  int killed = 0;
  for (int at = 0, ended = 0; !ended; at++) {
    for (int after = 0; after < 2; after++) {
      world w = world_create(shards);
      const pid_t child = fork();
      assert_true(child >= 0);
      if (child == 0) {
        tdict_error error;
        save_with_fault(&w, after ? FAULT_KILL_AFTER : FAULT_KILL_BEFORE, at, &error);
        _exit(0);
      }
      int status;
      assert_int_equal(waitpid(child, &status, 0), child);
      ended = WIFEXITED(status);
      killed += !ended;
      const bool is_new = is_tree(w.path, w.new);
      assert_true(is_new || is_tree(w.path, w.old));
      assert_true(!ended || is_new);
      char last[256];
      const int left = folder_count(&w.f, last) - w.num_old;
      assert_true(left >= 0 && left <= (shards ? w.num_old : 1));
      world_remove(&w);
    }
  }
  assert_true(killed >= 20);
}

CASE(save_killed_leaves_the_old_file_or_the_new_file) { kill_at_each_call(false); }
CASE(save_killed_leaves_the_old_index_or_the_new_index) { kill_at_each_call(true); }
