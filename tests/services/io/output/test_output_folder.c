/* Tests src/services/io/output/output_folder.c: replacing directories, even if system calls fail or the process is
 * killed. See faults.h. */
#include "services/io/faults.h"
#include "services/io/output/output_folder.h"
#include "support/descriptors.h"

/* Names for CMake: __wrap_fsync __wrap_renameat __wrap_renameat2 __wrap_fchmod __wrap_fstatat __wrap_mkdirat
 * __wrap_unlinkat __wrap_flock __wrap_ftruncate __wrap_openat __wrap_open __wrap_close __wrap_pwrite */

static void write_text(const folder *f, const char *name, const char *text) {
  write_bytes(in(f, name), text, strlen(text));
}
static bool has_text(const folder *f, const char *name, const char *text) {
  size_t count;
  if (access(in(f, name), F_OK) != 0) return false;
  scoped_bytes bytes = read_bytes(in(f, name), &count);
  const bool same = count == strlen(text) && memcmp(bytes, text, count) == 0;
  return same;
}
static void remove_all(const folder *f) {
  assert_int_equal(system(td_text("chmod -R u+w %s && rm -r %s", f->path, f->path)), 0);
}
#define scoped_directory TD_SCOPED(remove_all, folder)

static const tdict_save_options without_gap = {.allows_gap = false}, with_gap = {.allows_gap = true};

static tdict_save_request request_of(const char *path, bool allows_gap) {
  return (tdict_save_request){.what = "test", .path = path, .options = allows_gap ? &with_gap : &without_gap};
}
static tdict_status write_one(const tdict_folder *to, const char *name, const char *text, tdict_error *error) {
  tdict_output file;
  tdict_status status = tdict_output_create(&file, to, name, error);
  if (status != TDICT_OK) return status;
  status = tdict_output_write(&file, text, strlen(text), error);
  if (status == TDICT_OK) status = tdict_output_close(&file, error);
  tdict_output_end(&file);
  return status;
}
/* Writes or replaces a directory with meta.json and child/x. */
static tdict_status save(const char *path, const char *text, bool allows_gap, tdict_error *error) {
  const tdict_save_request request = request_of(path, allows_gap);
  tdict_output_folder new;
  tdict_folder child;
  tdict_status status = tdict_output_folder_create(&new, &request, "meta.json", error);
  if (status != TDICT_OK) return status;
  status = tdict_output_folder_enter(&new.root, "child", &child, error);
  if (status == TDICT_OK) {
    status = write_one(&child, "x", text, error);
    if (status == TDICT_OK)
      status = tdict_output_folder_leave(&child, error);
    else
      tdict_folder_close(&child);
  }
  if (status == TDICT_OK) status = write_one(&new.root, "meta.json", text, error);
  if (status == TDICT_OK) return tdict_output_folder_replace(&new, error);
  tdict_output_folder_discard(&new);
  return status;
}
static bool is_saved(const folder *f, const char *text) {
  return has_text(f, "t/meta.json", text) && has_text(f, "t/child/x", text);
}

CASE(output_folder_is_created_and_replaced) {
  scoped_directory f = folder_create();
  struct stat info;
  const int descriptors = td_count_descriptors();
  td_ok(save(in(&f, "t"), "old", false, err));
  assert_true(is_saved(&f, "old"));
  assert_int_equal(chmod(in(&f, "t"), 0750), 0);
  write_text(&f, "t/trailing.memmap", "more");
  td_ok(save(in(&f, "t//"), "new", false, err));
  assert_true(is_saved(&f, "new"));
  assert_int_equal(access(in(&f, "t/trailing.memmap"), F_OK), -1);
  assert_int_equal(stat(in(&f, "t"), &info), 0);
  assert_int_equal(info.st_mode & 0777, 0750);
  assert_int_equal(folder_count(&f, NULL), 1);
  /* an empty directory is replaced, too */
  assert_int_equal(mkdir(in(&f, "e"), 0700), 0);
  td_ok(save(in(&f, "e"), "new", false, err));
  assert_true(has_text(&f, "e/child/x", "new"));
  assert_int_equal(td_count_descriptors(), descriptors);
}

CASE(output_folder_refuses_what_it_must_not_replace) {
  scoped_directory f = folder_create();
  tdict_error error;
  write_text(&f, "file", "text");
  assert_int_equal(mkdir(in(&f, "home"), 0700), 0);
  write_text(&f, "home/letter", "text");
  assert_int_equal(mkdir(in(&f, "odd"), 0700), 0);
  assert_int_equal(symlink("../file", in(&f, "odd/meta.json")), 0);
  assert_int_equal(symlink("home", in(&f, "link")), 0);
  assert_int_equal(mkfifo(in(&f, "fifo"), 0600), 0);
  static const char *const names[] = {"file", "home", "odd", "link", "link/", "fifo"};
  static const char *const words[] = {"file", "without 'meta.json'", "without 'meta.json'", "link", "link", "FIFO"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const char *path = td_text("%s", in(&f, names[i]));
    assert_int_equal(save(path, "new", true, &error), TDICT_EFORMAT);
    assert_non_null(strstr(error.message, words[i]));
    assert_string_equal(error.path, path);
  }
  assert_int_equal(save("/", "new", true, &error), TDICT_EINVAL);
  assert_int_equal(save("..", "new", true, &error), TDICT_EINVAL);
  assert_int_equal(save("", "new", true, &error), TDICT_EINVAL);
  assert_int_equal(save(in(&f, "none/t"), "new", true, &error), TDICT_EIO);
  assert_int_equal(error.native, ENOENT);
  assert_true(has_text(&f, "file", "text") && has_text(&f, "home/letter", "text"));
  assert_int_equal(folder_count(&f, NULL), 5);
}

/* A replacement removes links in the old directory, but not the files that they point to. */
CASE(output_folder_follows_no_links_when_it_removes) {
  scoped_directory f = folder_create();
  td_ok(save(in(&f, "t"), "old", false, err));
  assert_int_equal(mkdir(in(&f, "outside"), 0700), 0);
  write_text(&f, "outside/kept", "kept");
  assert_int_equal(symlink("../outside", in(&f, "t/folder")), 0);
  assert_int_equal(symlink("../../outside/kept", in(&f, "t/child/file")), 0);
  td_ok(save(in(&f, "t"), "new", false, err));
  assert_true(is_saved(&f, "new") && has_text(&f, "outside/kept", "kept"));
  assert_int_equal(folder_count(&f, NULL), 2);
}

CASE(output_folder_can_be_cancelled) {
  scoped_directory f = folder_create();
  _Atomic(bool) is_cancelled = true;
  char path[PATH_BYTES];
  tdict_save_request request = request_of(path, false);
  tdict_output_folder new;
  tdict_folder child;
  snprintf(path, sizeof path, "%s", in(&f, "t"));
  request.watch.is_cancelled = &is_cancelled;
  td_ok(save(in(&f, "t"), "old", false, err));
  for (int step = 0; step < 2; step++) {
    td_ok(tdict_output_folder_create(&new, &request, "meta.json", err));
    td_ok(tdict_output_folder_enter(&new.root, "child", &child, err));
    if (step == 0) td_fails(TDICT_ECANCELLED, "cancelled", write_one(&child, "x", "new", err));
    td_ok(tdict_output_folder_leave(&child, err));
    if (step == 0) tdict_output_folder_discard(&new);
    if (step == 1) td_fails(TDICT_ECANCELLED, "cancelled", tdict_output_folder_replace(&new, err));
    assert_true(is_saved(&f, "old"));
    assert_int_equal(folder_count(&f, NULL), 1);
  }
}

/* Saves as on a file system without RENAME_EXCHANGE: the first renameat2() fails. */
static tdict_status save_without_exchange(const folder *f, int code, bool allows_gap, tdict_error *error) {
  only_call = "renameat2";
  fault_errno = code;
  begin_faults(FAULT_FAIL, 0);
  tdict_status status = save(in(f, "t"), "new", allows_gap, error);
  chosen = FAULT_NONE;
  only_call = NULL;
  return status;
}
CASE(output_folder_needs_consent_to_a_gap) {
  static const int codes[] = {EINVAL, ENOSYS};
  for (int i = 0; i < 2; i++) {
    scoped_directory f = folder_create();
    tdict_error error;
    td_ok(save_without_exchange(&f, codes[i], false, err)); /* there is no directory to replace */
    td_ok(save(in(&f, "t"), "old", false, err));
    assert_int_equal(save_without_exchange(&f, codes[i], false, &error), TDICT_ENOTSUP);
    assert_non_null(strstr(error.message, "allows_gap"));
    assert_int_equal(error.native, codes[i]);
    assert_true(is_saved(&f, "old"));
    assert_int_equal(folder_count(&f, NULL), 1);
    td_ok(save_without_exchange(&f, codes[i], true, err));
    assert_true(is_saved(&f, "new"));
    assert_int_equal(folder_count(&f, NULL), 1);
    /* after other errors, the save fails, although allows_gap is set */
    assert_int_equal(save_without_exchange(&f, EACCES, true, &error), TDICT_EIO);
    assert_int_equal(folder_count(&f, NULL), 1);
  }
}

/* Makes each system call fail once. */
static void fail_each_call(bool exists, int code) {
  int failures = 0;
  bool has_ended = false;
  fault_errno = code;
  for (int at = 0; !has_ended; at++) {
    scoped_directory f = folder_create();
    tdict_error error = {0};
    if (exists) td_ok(save(in(&f, "t"), "old", false, err));
    begin_faults(FAULT_FAIL, at);
    tdict_status status = save(in(&f, "t"), "new", false, &error);
    chosen = FAULT_NONE;
    has_ended = !fault_call;
    const bool is_new = is_saved(&f, "new"), is_old = exists && is_saved(&f, "old");
    const bool removing = !has_ended && strcmp(fault_call, "unlinkat") == 0;
    const bool cleaning = is_new && status != TDICT_OK && strstr(error.message, "cleaned up");
    if (status == TDICT_OK) {
      assert_true(is_new);
      assert_true(has_ended || removing || is_ignored(fault_call));
    } else {
      failures++;
      assert_int_equal(status, TDICT_EIO);
      assert_int_equal(error.native, code);
      assert_string_equal(error.path, in(&f, "t"));
      assert_non_null(strstr(error.message, strerror(code)));
      if (is_new) assert_true(cleaning || (!exists && strcmp(fault_call, "fsync") == 0));
      if (!is_new) assert_true(is_old || !exists);
    }
    /* no temporary directory is left, except one that cannot be removed */
    const int litter = folder_count(&f, NULL) - (is_new || is_old);
    assert_int_equal(litter, removing || cleaning ? litter : 0);
    assert_true(litter >= 0 && litter <= 1);
  }
  assert_true(failures >= (exists ? 18 : 11));
}
CASE(output_folder_cleans_up_after_failing_calls) {
  fail_each_call(false, ENOSPC);
  fail_each_call(true, EIO);
}

/* Kills a process before and after each call. A reader must then find one complete directory. */
CASE(output_folder_killed_leaves_the_old_or_the_new_directory) {
  int killed = 0;
  for (int at = 0, ended = 0; !ended; at++) {
    for (int after = 0; after < 2; after++) {
      scoped_directory f = folder_create();
      td_ok(save(in(&f, "t"), "old", false, err));
      const pid_t child = fork();
      assert_true(child >= 0);
      if (child == 0) {
        tdict_error error;
        begin_faults(after ? FAULT_KILL_AFTER : FAULT_KILL_BEFORE, at);
        save(in(&f, "t"), "new", false, &error);
        _exit(0);
      }
      int status;
      assert_int_equal(waitpid(child, &status, 0), child);
      ended = WIFEXITED(status);
      killed += !ended;
      const bool is_new = is_saved(&f, "new");
      assert_true(is_new || is_saved(&f, "old"));
      assert_true(!ended || is_new);
      assert_true(folder_count(&f, NULL) <= 2); /* the directory, and a temporary directory */
      /* the next save removes the temporary directory */
      td_ok(save(in(&f, "t"), "later", false, err));
      assert_true(is_saved(&f, "later"));
      assert_int_equal(folder_count(&f, NULL), 1);
    }
  }
  assert_true(killed >= 40);
}
