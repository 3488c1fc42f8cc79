/* Tests tdict_append(): random rows, checks before the first write, failing system calls, killed processes, and
 * TensorDict's rule for recovery. See faults.h. */
#include <sys/file.h>

#include "directory.h"
#include "faults.h"
#include "random_tree.h"

/* Names for CMake: __wrap_fsync __wrap_renameat __wrap_renameat2 __wrap_fchmod __wrap_fstatat __wrap_mkdirat
 * __wrap_unlinkat __wrap_flock __wrap_ftruncate __wrap_openat __wrap_open __wrap_close __wrap_pwrite */

static void add(dice *d, tdict_tree *tree, const char *path, tdict_dtype dtype, int64_t rows, int64_t columns) {
  scoped_tensor t = td_made(tensor, tdict_tensor_empty(dtype, TDICT_SHAPE(rows, columns), NULL, &made, err));
  td_fill_random(tdict_tensor_data(t), tdict_tensor_bytes(t), roll(d, 1u << 30));
  td_ok(tdict_set(tree, path, t, err));
}
/* Makes a tree with `rows` random rows, three levels, odd keys, an empty leaf and a value. */
static tdict_tree *make_rows(dice *d, int64_t rows) {
  tdict_tree *tree = td_made(tree, tdict_create(1, &rows, &made, err)), *child = NULL;
  td_ok(tdict_create(1, &rows, &child, err));
  add(d, tree, "x", TDICT_F32, rows, 3);
  td_put_tree(tree, "n", child);
  child = NULL;
  add(d, tree, "n.a/b c", TDICT_I8, rows, 1);
  td_ok(tdict_set_text(tree, "n.s", "é", err));
  td_put_tree(tree, "n.deep", td_made(tree, tdict_create(1, &rows, &made, err)));
  add(d, tree, "n.deep.z", TDICT_C64, rows, 2);
  add(d, tree, "empty", TDICT_U16, rows, 0);
  return tree;
}
static void save(const folder *f, const tdict_tree *tree) {
  const tdict_save_options o = save_as(TDICT_FORMAT_MEMMAP);
  td_ok(tdict_save(NULL, in(f, "x"), tree, &o, err));
}
/* Returns whether the directory has exactly the rows of the first `count` trees in `parts`. */
static bool holds(const folder *f, tdict_tree *const *parts, size_t count) {
  scoped_tree found = td_made(tree, tdict_open(in(f, "x"), NULL, &made, err)), wanted = NULL;
  td_ok(tdict_cat((const tdict_tree *const *)parts, count, NULL, NULL, &wanted, err));
  const bool same = tdict_batch_size(found)[0] == tdict_batch_size(wanted)[0];
  if (same) same_trees(found, wanted);
  return same;
}
static int count_temporary(const folder *f) {
  static const char *const folders[] = {"x", "x/n", "x/n/deep"};
  int count = 0;
  for (int i = 0; i < 3; i++) count += access(in(f, td_text("%s/.meta.json.append.tmp", folders[i])), F_OK) == 0;
  return count;
}
static void release_all(tdict_tree **trees, int count) {
  for (int i = 0; i < count; i++) tdict_release(trees[i]);
}

CASE(append_adds_rows) {
  scoped_directory f = folder_create();
  dice d = {3};
  static const int64_t rows[] = {0, 2, 0, 3, 1, 40};
  tdict_tree *parts[6], *old = NULL;
  for (int i = 0; i < 6; i++) parts[i] = make_rows(&d, rows[i]);
  save(&f, parts[0]);
  assert_int_equal(chmod(in(&f, "x/meta.json"), 0604), 0);
  td_ok(tdict_open(in(&f, "x"), NULL, &old, err));
  for (size_t i = 1; i < 6; i++) {
    tdict_append_options o = td_with(tdict_append_options, without_flush = i % 2);
    only_call = "fsync";
    begin_faults(FAULT_FAIL, -1); /* counts the calls, but makes none of them fail */
    td_ok(tdict_append(NULL, in(&f, "x"), parts[i], &o, err));
    assert_int_equal(calls > 0, !o.without_flush);
    begin_faults(FAULT_NONE, -1);
    only_call = NULL;
    assert_true(holds(&f, parts, i + 1));
    assert_int_equal(count_temporary(&f), 0);
    struct stat info;
    assert_int_equal(stat(in(&f, "x/meta.json"), &info), 0);
    assert_int_equal(info.st_mode & 0777, 0604);
  }
  same_trees(old, parts[0]); /* a tree that is already open keeps its number of rows */
  tdict_release(old);
  release_all(parts, 6);
}

CASE(append_ignores_bytes_after_the_rows) {
  scoped_directory f = folder_create();
  dice d = {5};
  tdict_tree *parts[] = {make_rows(&d, 2), make_rows(&d, 3)};
  save(&f, parts[0]);
  FILE *file = fopen(in(&f, "x/x.memmap"), "ab");
  fputs("rows of an append that was killed", file);
  fclose(file);
  td_ok(tdict_append(NULL, in(&f, "x"), parts[1], NULL, err));
  assert_true(holds(&f, parts, 2));
  release_all(parts, 2);
}

static void refuse_rows(const folder *f, const tdict_tree *rows, tdict_status status, const char *text,
                        const char *path) {
  td_fails(status, text, tdict_append(NULL, in(f, "x"), rows, NULL, err));
  if (path) assert_string_equal(td_last_error.path, path);
}

CASE(append_checks_everything_before_the_first_write) {
  scoped_directory f = folder_create();
  dice d = {7};
  tdict_tree *parts[] = {make_rows(&d, 2)}, *rows;
  const int64_t wide[] = {2, 1};
  save(&f, parts[0]);
  rows = make_rows(&d, 3);
  add(&d, rows, "n.deep.z", TDICT_C64, 3, 3);
  refuse_rows(&f, rows, TDICT_ESHAPE, "another shape than the saved rows", "n.deep.z");
  add(&d, rows, "n.deep.z", TDICT_F64, 3, 2);
  refuse_rows(&f, rows, TDICT_EDTYPE, "another dtype", "n.deep.z");
  td_ok(tdict_set_text(rows, "n.deep.z", "x", err));
  refuse_rows(&f, rows, TDICT_ETYPE, "the saved entry is a tensor", "n.deep.z");
  td_ok(tdict_delete(rows, "n.deep.z", err));
  refuse_rows(&f, rows, TDICT_ENOTFOUND, "the rows do not have this key", "n.deep.z");
  add(&d, rows, "n.deep.z", TDICT_C64, 3, 2);
  add(&d, rows, "n.deep.y", TDICT_C64, 3, 2);
  refuse_rows(&f, rows, TDICT_ENOTFOUND, "the rows have a key that the saved tree does not have", "n.deep");
  td_ok(tdict_delete(rows, "n.deep.y", err));
  td_ok(tdict_set_text(rows, "n.s", "e", err));
  refuse_rows(&f, rows, TDICT_EINVAL, "the saved value stays as it is", "n.s");
  add(&d, rows, "n.s", TDICT_C64, 3, 2);
  refuse_rows(&f, rows, TDICT_ETYPE, "the saved entry is a value", "n.s");
  td_release(rows);
  td_ok(tdict_create(0, NULL, &rows, err));
  refuse_rows(&f, rows, TDICT_ESHAPE, "rows need a first batch dimension", "");
  td_release(rows);
  td_ok(tdict_create(2, wide, &rows, err));
  refuse_rows(&f, rows, TDICT_ESHAPE, "the batch sizes differ beyond the first dimension", "");
  td_fails(TDICT_EINVAL, "rows is NULL", tdict_append(NULL, in(&f, "x"), NULL, NULL, err));
  td_fails(TDICT_EINVAL, "path is NULL", tdict_append(NULL, NULL, rows, NULL, err));
  td_fails(TDICT_EIO, "cannot be opened", tdict_append(NULL, in(&f, "absent"), rows, NULL, err));
  td_fails(TDICT_EFORMAT, "no directory", tdict_append(NULL, in(&f, "x/x.memmap"), rows, NULL, err));
  td_fails(TDICT_EFORMAT, "no meta.json", tdict_append(NULL, f.path, rows, NULL, err));
  td_fails(TDICT_ENOTSUP, "cannot grow", tdict_append(NULL, golden("lazy"), rows, NULL, err));
  tdict_release(rows);
  assert_true(holds(&f, parts, 1));
  release_all(parts, 1);
}

/* A column, a ragged leaf and a leaf without batch dimensions cannot grow. */
CASE(append_refuses_leaves_that_cannot_grow) {
  scoped_directory f = folder_create();
  dice d = {7};
  static const char *const texts[] = {"a", "b"};
  for (int kind = 0; kind < 3; kind++) {
    const int64_t two = 2;
    scoped_tensor t = random_tensor(&d, TDICT_F32, 1, &two);
    scoped_tree tree = td_made(tree, tdict_create(1, &two, &made, err));
    if (kind == 0) td_ok(tdict_set_texts(tree, "k", texts, 2, err));
    if (kind == 1) add_random_ragged(&d, tree, "k");
    if (kind == 2) td_ok(tdict_set_unbatched(tree, "k", t, err));
    save(&f, tree);
    td_fails(kind == 2 ? TDICT_ENOTSUP : TDICT_ETYPE, "cannot grow", tdict_append(NULL, in(&f, "x"), tree, NULL, err));
    assert_string_equal(td_last_error.path, "k");
  }
}

CASE(append_refuses_a_second_writer) {
  scoped_directory f = folder_create();
  dice d = {8};
  tdict_tree *parts[] = {make_rows(&d, 2), make_rows(&d, 1)};
  save(&f, parts[0]);
  const int fd = open(in(&f, "x"), O_RDONLY | O_DIRECTORY);
  assert_int_equal(flock(fd, LOCK_EX), 0);
  td_fails(TDICT_EIO, "another call appends to the directory", tdict_append(NULL, in(&f, "x"), parts[1], NULL, err));
  assert_int_equal(td_last_error.native, EWOULDBLOCK);
  close(fd);
  td_ok(tdict_append(NULL, in(&f, "x"), parts[1], NULL, err));
  release_all(parts, 2);
}

/* Makes each system call fail in turn. After an error, the directory must have its old rows and no temporary files. */
CASE(append_that_fails_leaves_the_old_rows) {
  scoped_directory f = folder_create();
  dice d = {9};
  tdict_tree *parts[] = {make_rows(&d, 2), make_rows(&d, 3)};
  bool done = false;
  for (int n = 0; !done; n += SANITIZED_STEP) {
    tdict_error error;
    save(&f, parts[0]);
    begin_faults(FAULT_FAIL, n);
    const tdict_status status = tdict_append(NULL, in(&f, "x"), parts[1], NULL, &error);
    done = calls <= n;
    begin_faults(FAULT_NONE, -1);
    assert_true(status == TDICT_OK || status == TDICT_EIO);
    if (!holds(&f, parts, status == TDICT_OK ? 2 : 1)) fail_msg("call %d: the directory has wrong rows", n);
    assert_int_equal(count_temporary(&f), 0);
    assert_true(!done || status == TDICT_OK);
  }
  release_all(parts, 2);
}

/* Makes two system calls fail. The directory must have its old rows, and also after the next append, unless the error
 * says that the numbers of rows may differ. */
CASE(append_that_fails_twice_leaves_the_old_rows_or_says_so) {
  enum { PAIRS = 3, MOST_APART = 60 };
  scoped_directory f = folder_create();
  dice d = {15};
  tdict_tree *parts[] = {make_rows(&d, 2), make_rows(&d, 3)}, *none = make_rows(&d, 0);
  bool done = false;
  int num_restored = 0, num_mixed = 0;
  skips_flush = true;
  for (int n = 0; !done; n += SANITIZED_STEP) {
    for (int i = 0; i < PAIRS && !done; i++) {
      tdict_error error;
      save(&f, parts[0]);
      const int second = n + 1 + (int)roll(&d, MOST_APART);
      again_at = second;
      begin_faults(FAULT_FAIL, n);
      const tdict_status status = tdict_append(NULL, in(&f, "x"), parts[1], NULL, &error);
      done = calls <= n;
      const bool is_second = calls > second;
      begin_faults(FAULT_NONE, -1);
      again_at = -1;
      if (status == TDICT_OK) continue;
      assert_int_equal(status, TDICT_EIO);
      if (strstr(error.message, "numbers of rows may differ")) {
        assert_true(is_second);
        num_mixed++;
        remove_all(in(&f, "x"));
        continue;
      }
      if (!holds(&f, parts, 1)) fail_msg("calls %d and %d: the directory has wrong rows", n, second);
      td_ok(tdict_append(NULL, in(&f, "x"), none, NULL, err));
      if (!holds(&f, parts, 1)) fail_msg("calls %d and %d: wrong rows after the repair", n, second);
      assert_int_equal(count_temporary(&f), 0);
      num_restored += is_second;
    }
  }
  if (!THREAD_SANITIZED) assert_true(num_restored > 0 && num_mixed > 0); /* not certain with few rounds */
  skips_flush = false;
  tdict_release(none);
  release_all(parts, 2);
}

/* Kills the process at each system call in turn. The next append must repair the directory. */
static void kill_at_each_call(fault kind) {
  scoped_directory f = folder_create();
  dice d = {10};
  tdict_tree *parts[] = {make_rows(&d, 2), make_rows(&d, 3)}, *none = make_rows(&d, 0);
  bool done = false, saw[2] = {false, false}, saw_temporary = false;
  for (int n = 0; !done; n += SANITIZED_STEP) {
    int state;
    save(&f, parts[0]);
    const pid_t child = fork();
    if (child == 0) {
      begin_faults(kind, n);
      _exit(tdict_append(NULL, in(&f, "x"), parts[1], NULL, NULL) == TDICT_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &state, 0), child);
    done = WIFEXITED(state) && WEXITSTATUS(state) == 0;
    saw_temporary |= count_temporary(&f) > 0;
    td_ok(tdict_append(NULL, in(&f, "x"), none, NULL, err));
    const bool is_new = holds(&f, parts, 2);
    if (!is_new) assert_true(holds(&f, parts, 1));
    assert_int_equal(count_temporary(&f), 0);
    saw[is_new] = true;
  }
  assert_true(saw[0] && saw[1] && saw_temporary);
  tdict_release(none);
  release_all(parts, 2);
}
CASE(append_that_is_killed_before_a_call_is_repaired) { kill_at_each_call(FAULT_KILL_BEFORE); }
CASE(append_that_is_killed_after_a_call_is_repaired) { kill_at_each_call(FAULT_KILL_AFTER); }

/* Makes the states of interrupted appends that TensorDict's documentation describes. */
CASE(append_recovers_by_the_rule_of_tensordict) {
  scoped_directory f = folder_create();
  dice d = {11};
  tdict_tree *parts[] = {make_rows(&d, 2), make_rows(&d, 3)}, *none = make_rows(&d, 0), *broken = NULL;
  /* If the root has a temporary file, the append is undone, even if the file is not complete. */
  save(&f, parts[0]);
  write_text_below(&f, "x/.meta.json.append.tmp", "{\"sha");
  write_text_below(&f, "x/n/.meta.json.append.tmp", "");
  td_ok(tdict_append(NULL, in(&f, "x"), none, NULL, err));
  assert_true(holds(&f, parts, 1));
  assert_int_equal(count_temporary(&f), 0);
  /* If only folders below the root have temporary files, the append is completed. */
  td_ok(tdict_append(NULL, in(&f, "x"), parts[1], NULL, err));
  assert_int_equal(rename(in(&f, "x/n/meta.json"), in(&f, "x/n/.meta.json.append.tmp")), 0);
  assert_int_equal(rename(in(&f, "x/n/deep/meta.json"), in(&f, "x/n/deep/.meta.json.append.tmp")), 0);
  const tdict_save_options o = save_as(TDICT_FORMAT_MEMMAP);
  td_ok(tdict_save(NULL, in(&f, "old"), parts[0], &o, err));
  assert_int_equal(rename(in(&f, "old/n/meta.json"), in(&f, "x/n/meta.json")), 0);
  assert_int_equal(rename(in(&f, "old/n/deep/meta.json"), in(&f, "x/n/deep/meta.json")), 0);
  td_fails(TDICT_ESHAPE, "n", tdict_open(in(&f, "x"), NULL, &broken, err));
  td_ok(tdict_append(NULL, in(&f, "x"), none, NULL, err));
  assert_true(holds(&f, parts, 2));
  assert_int_equal(count_temporary(&f), 0);
  tdict_release(none);
  release_all(parts, 2);
}

CASE(append_follows_no_links) {
  scoped_directory f = folder_create();
  dice d = {12};
  tdict_tree *parts[] = {make_rows(&d, 2), make_rows(&d, 3)};
  save(&f, parts[0]);
  assert_int_equal(rename(in(&f, "x/x.memmap"), in(&f, "outside")), 0);
  assert_int_equal(symlink("../outside", in(&f, "x/x.memmap")), 0);
  td_fails(TDICT_EFORMAT, "a symbolic link", tdict_append(NULL, in(&f, "x"), parts[1], NULL, err));
  assert_int_equal(unlink(in(&f, "x/x.memmap")), 0);
  assert_int_equal(rename(in(&f, "outside"), in(&f, "x/x.memmap")), 0);
  assert_int_equal(rename(in(&f, "x/n"), in(&f, "n")), 0);
  assert_int_equal(symlink("../n", in(&f, "x/n")), 0);
  td_fails(TDICT_EFORMAT, "leads through a symbolic link", tdict_append(NULL, in(&f, "x"), parts[1], NULL, err));
  release_all(parts, 2);
}

/* An append changes only the row counts in a meta.json, even if it has unusual spaces and escapes. */
CASE(append_keeps_the_other_bytes_of_a_meta_json) {
  static const char saved[] =
      " { \"shape\" : [ 0 ] , \"x\":{\"shape\": [0\t, 2],\"dtype\":\"torch.\\u0069nt8\" , \"device\":\"cpu\"},\n"
      "\"other\":{\"a\":[1.50, 1e2 ,\"\\/\\u00e9é\"]}, \"\\u005ftype\":\"<class 'tensordict._td.TensorDict'>\" }\r\n";
  static const char wanted[] =
      " { \"shape\" : [ 3 ] , \"x\":{\"shape\": [3\t, 2],\"dtype\":\"torch.\\u0069nt8\" , \"device\":\"cpu\"},\n"
      "\"other\":{\"a\":[1.50, 1e2 ,\"\\/\\u00e9é\"]}, \"\\u005ftype\":\"<class 'tensordict._td.TensorDict'>\" }\r\n";
  scoped_directory f = folder_create();
  dice d = {15};
  scoped_tree rows = NULL, found = NULL;
  size_t count;
  const int64_t three = 3;
  td_ok(tdict_create(1, &three, &rows, err));
  add(&d, rows, "x", TDICT_I8, 3, 2);
  write_text_below(&f, "x/meta.json", saved);
  td_ok(tdict_append(NULL, in(&f, "x"), rows, NULL, err));
  scoped_bytes text = read_bytes(in(&f, "x/meta.json"), &count);
  assert_int_equal(count, strlen(wanted));
  assert_memory_equal(text, wanted, count);
  td_ok(tdict_open(in(&f, "x"), NULL, &found, err));
  same_trees(found, rows);
}

CASE(append_survives_enomem) {
  scoped_directory f = folder_create();
  dice d = {13};
  tdict_tree *parts[] = {make_rows(&d, 2), make_rows(&d, 1)};
  TD_SWEEP(s) {
    save(&f, parts[0]);
    const bool refused = td_refused(s, tdict_append(NULL, in(&f, "x"), parts[1], NULL, err));
    assert_true(holds(&f, parts, refused ? 1 : 2));
  }
  release_all(parts, 2);
}

GPU_CASE(append_copies_device_rows) {
  scoped_directory f = folder_create();
  dice d = {14};
  tdict_tree *parts[] = {make_rows(&d, 2), make_rows(&d, 3)}, *moved = NULL;
  tdict_context *context = td_context(NULL);
  td_ok(tdict_to_device(context, parts[1], td_device(), NULL, &moved, err));
  save(&f, parts[0]);
  td_fails(TDICT_EINVAL, "context is NULL", tdict_append(NULL, in(&f, "x"), moved, NULL, err));
  td_ok(tdict_append(context, in(&f, "x"), moved, NULL, err));
  assert_true(holds(&f, parts, 2));
  td_release(moved, context);
  release_all(parts, 2);
}
