/* Tests tdict_save() in each format, with failing system calls and in processes that are killed. The files must then
 * hold the old tree or the new tree, and a failed call must leave nothing else. The linker's --wrap redirects the
 * library's calls to faults.h. */
#include <grp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include "directory.h"
#include "faults.h"
#include "tdict/io.h"

/* Names for CMake: __wrap_fsync __wrap_renameat __wrap_renameat2 __wrap_fchmod __wrap_fstatat __wrap_mkdirat
 * __wrap_unlinkat __wrap_flock __wrap_ftruncate __wrap_openat __wrap_open __wrap_close __wrap_pwrite */

static tdict_tree *tree_of(float first) {
  scoped_tensor t = NULL;
  const float values[] = {first, 2, 3, 4};
  const int order[] = {1, 0};
  scoped_tensor turned = NULL;
  tdict_tree *tree = td_made(tree, tdict_create(0, NULL, &made, err));
  td_ok(tdict_tensor_from_array(TDICT_F32, TDICT_SHAPE(2, 2), values, &t, err));
  td_ok(tdict_tensor_permute(t, 2, order, &turned, err));
  td_ok(tdict_set(tree, "a.b", t, err));
  td_ok(tdict_set(tree, "c", turned, err));
  td_ok(tdict_set_text(tree, "text", "words", err));
  return tree;
}

/* Returns true if the files hold this tree. Safetensors files must also have the metadata of world_in(). */
static bool is_tree(const char *path, const tdict_tree *wanted) {
  scoped_tree found = NULL, metadata = NULL;
  td_ok(tdict_open(path, td_options(tdict_open_options, metadata = &metadata), &found, err));
  if (metadata) {
    const char *text = NULL;
    td_ok(tdict_get_text(metadata, "step", -1, &text, NULL, err));
    assert_string_equal(text, "7");
    td_release(metadata);
  }
  const bool same = *(const float *)tdict_const_data(found, "a.b") == *(const float *)tdict_const_data(wanted, "a.b");
  if (same) same_trees(found, wanted);
  return same;
}

typedef enum kind { ONE_FILE, SHARDS, CONSOLIDATED, TDZ, NPZ, MEMMAP, NUM_KINDS } kind;
static const char *const names[NUM_KINDS] = {"m.safetensors", "m.safetensors.index.json", "m", "m.tdz", "m.npz", "m/"};
typedef enum way { ON_CALLER, BY_THREADS, FROM_DEVICE, IN_BACKGROUND, NUM_SAVE_WAYS } way;
typedef struct world {
  folder f;
  way how;
  kind what;
  tdict_context *context; /* for BY_THREADS and FROM_DEVICE */
  tdict_tree *source;     /* the new tree, perhaps on a device */
  tdict_tree *old, *new, *metadata;
  tdict_save_options o;
  char path[PATH_BYTES];
  int num_old; /* number of files of the old tree; 1 for a directory */
} world;

/* Creates the context and the source. A process that will be killed calls this itself, because fork() does not copy
 * threads. */
static void world_start(world *w) {
  if (w->how == ON_CALLER) {
    w->source = tdict_retain(w->new);
    return;
  }
  tdict_context_options o =
      td_with(tdict_context_options, num_threads = 3, device = w->how >= FROM_DEVICE ? tdict_sim(0) : tdict_cpu());
  td_ok(tdict_context_create(&o, &w->context, err));
  td_ok(tdict_to_device(w->context, w->new, o.device, NULL, &w->source, err));
}
static world world_in(folder f, kind what, way how) {
  world w = {
      .f = f, .old = tree_of(-1), .new = tree_of(1), .o = tdict_save_options_default(), .how = how, .what = what};
  td_ok(tdict_create(0, NULL, &w.metadata, err));
  td_ok(tdict_set_text(w.metadata, "step", "7", err));
  if (what == ONE_FILE || what == SHARDS) w.o.metadata = w.metadata;
  w.o.max_shard_bytes = what == SHARDS ? 16 : 0;
  w.o.format = what == CONSOLIDATED ? TDICT_FORMAT_CONSOLIDATED : TDICT_FORMAT_AUTO;
  ignores_order = what == CONSOLIDATED;
  skips_flush = what != ONE_FILE;
  snprintf(w.path, sizeof w.path, "%s", in(&w.f, names[what]));
  if (what == NPZ) { /* an .npz file written by tdict cannot hold text leaves */
    td_ok(tdict_delete(w.old, "text", err));
    td_ok(tdict_delete(w.new, "text", err));
  }
  return w;
}
static world world_create(kind what, way how) {
  world w = world_in(folder_create(), what, how);
  td_ok(tdict_save(NULL, w.path, w.old, &w.o, err));
  w.num_old = folder_count(&w.f, NULL);
  return w;
}
static void world_remove(world *w) {
  td_release(w->source, w->context, w->old, w->new, w->metadata);
  remove_all(w->f.path);
}
#define scoped_world TD_SCOPED(world_remove, world)

static tdict_status save_with_fault(world *w, fault what, int at, tdict_error *error) {
  begin_faults(what, at);
  tdict_status status;
  if (w->how == IN_BACKGROUND) {
    scoped_future saving = td_made(future, tdict_save_async(w->context, w->path, w->source, &w->o, &made, err));
    status = tdict_future_wait(saving, NULL, error);
  } else {
    status = tdict_save(w->context, w->path, w->source, &w->o, error);
  }
  chosen = FAULT_NONE;
  return status;
}

/* Checks the error of a failed save. Returns how many entries may be left: 1 if a directory could not be removed,
 * otherwise 0. */
static int check_failure(const world *w, const tdict_error *error, bool is_new) {
  const bool is_removing = strcmp(fault_call, "unlinkat") == 0;
  const bool is_litter = w->what == MEMMAP && (is_removing || (is_new && strstr(error->message, "cleaned up")));
  assert_string_equal(error->path, w->path);
  assert_non_null(strstr(error->message, strerror(fault_errno)));
  /* otherwise, the new tree is in place only if the folder could not be flushed after the rename */
  if (is_new && !is_litter)
    assert_true(strcmp(fault_call, "fsync") == 0 && strstr(error->message, "all bytes are written"));
  return is_litter;
}

/* Makes each system call fail once. */
static void fail_each_call(kind what, way how, int code) {
  bool has_ended = false;
  int failures = 0;
  fault_errno = code;
  for (int at = 0; !has_ended; at += SANITIZED_STEP) {
    scoped_world w = world_create(what, how);
    tdict_error error;
    int litter = 0;
    world_start(&w);
    memset(&error, 0, sizeof error);
    tdict_status status = save_with_fault(&w, FAULT_FAIL, at, &error);
    has_ended = !fault_call;
    const bool is_new = is_tree(w.path, w.new);
    if (status == TDICT_OK) {
      assert_true(is_new);
      litter = what == MEMMAP && !has_ended && strcmp(fault_call, "unlinkat") == 0;
      assert_true(has_ended || litter || is_ignored(fault_call));
    } else {
      failures++;
      assert_int_equal(status, TDICT_EIO);
      assert_int_equal(error.native, code);
      assert_true(is_new || is_tree(w.path, w.old));
      litter = check_failure(&w, &error, is_new);
    }
    const int shards_kept = what == SHARDS && is_new ? w.num_old - 1 : 0;
    const int left = folder_count(&w.f, NULL) - w.num_old - shards_kept;
    assert_true(left >= 0 && left <= litter);
  }
  assert_true(SANITIZED_STEP * failures >= (what == MEMMAP ? 30 : what == SHARDS ? 15 : 8));
}

CASE(save_cleans_up_after_failing_calls) {
  fail_each_call(ONE_FILE, ON_CALLER, EIO);
  fail_each_call(ONE_FILE, ON_CALLER, ENOSPC);
}
CASE(save_cleans_up_after_failing_calls_of_threads) {
  fail_each_call(ONE_FILE, BY_THREADS, ENOSPC);
  fail_each_call(SHARDS, BY_THREADS, EIO);
}
CASE(save_cleans_up_after_failing_calls_of_device_trees) {
  fail_each_call(ONE_FILE, FROM_DEVICE, ENOSPC);
  fail_each_call(SHARDS, FROM_DEVICE, EIO);
}
CASE(save_cleans_up_after_failing_calls_in_the_background) {
  fail_each_call(ONE_FILE, IN_BACKGROUND, ENOSPC);
  fail_each_call(SHARDS, IN_BACKGROUND, EIO);
}
CASE(save_cleans_up_after_failing_calls_of_shards) { fail_each_call(SHARDS, ON_CALLER, ENOSPC); }
CASE(save_cleans_up_after_failing_calls_of_directories) {
  fail_each_call(MEMMAP, ON_CALLER, ENOSPC);
  fail_each_call(MEMMAP, FROM_DEVICE, EIO);
  fail_each_call(MEMMAP, IN_BACKGROUND, EIO);
}
CASE(save_cleans_up_after_failing_calls_of_other_files) {
  static const kind kinds[] = {CONSOLIDATED, TDZ, NPZ};
  for (int i = 0; i < 3; i++) {
    fail_each_call(kinds[i], ON_CALLER, ENOSPC);
    fail_each_call(kinds[i], FROM_DEVICE, EIO);
    fail_each_call(kinds[i], IN_BACKGROUND, EIO);
  }
}

CASE(save_continues_after_short_and_interrupted_writes) {
  for (way how = ON_CALLER; how < NUM_SAVE_WAYS; how++) {
    for (kind what = ONE_FILE; what < NUM_KINDS; what++) {
      scoped_world w = world_create(what, how);
      tdict_error error;
      world_start(&w);
      writes_little = true;
      assert_int_equal(save_with_fault(&w, FAULT_NONE, 0, &error), TDICT_OK);
      writes_little = false;
      assert_true(is_tree(w.path, w.new));
    }
  }
}

/* Checks that each shard with a final name is complete. */
static void check_shards(const world *w) {
  DIR *dir = opendir(w->f.path);
  struct dirent *entry;
  assert_non_null(dir);
  while ((entry = readdir(dir)) != NULL) {
    const size_t length = strlen(entry->d_name), end = strlen(".safetensors");
    if (length < end || strcmp(entry->d_name + length - end, ".safetensors") != 0) continue;
    tdict_release(td_made(tree, tdict_open(in(&w->f, entry->d_name), NULL, &made, err)));
  }
  closedir(dir);
}

/* Kills a process before and after each call. At most the temporary file, the new shards or one directory may remain
 * until the next save. */
static void kill_at_each_call(kind what, way how) {
  int killed = 0, num_left = 0;
  for (int at = 0, ended = 0; !ended; at += SANITIZED_STEP) {
    for (int after = 0; after < 2; after++) {
      scoped_world w = world_create(what, how);
      const pid_t child = fork();
      assert_true(child >= 0);
      if (child == 0) {
        tdict_error error;
        world_start(&w);
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
      check_shards(&w);
      const int num_shards = w.num_old - 1, left = folder_count(&w.f, NULL) - w.num_old - (is_new ? num_shards : 0);
      assert_true(left >= 0 && left <= w.num_old);
      num_left += left > 0;
      /* the next save succeeds and removes what is left, except the shards of complete saves */
      td_ok(tdict_save(NULL, w.path, w.new, &w.o, err));
      assert_true(is_tree(w.path, w.new));
      assert_int_equal(folder_count(&w.f, NULL), w.num_old + num_shards + (is_new ? num_shards : 0));
    }
  }
  assert_true(SANITIZED_STEP * killed >= (what == MEMMAP ? 60 : 20));
  assert_true(num_left > 0);
}

CASE(save_killed_leaves_the_old_file_or_the_new_file) { kill_at_each_call(ONE_FILE, ON_CALLER); }
CASE(save_killed_leaves_the_old_index_or_the_new_index) { kill_at_each_call(SHARDS, ON_CALLER); }
CASE(save_killed_while_threads_write) { kill_at_each_call(ONE_FILE, BY_THREADS); }
CASE(save_killed_in_the_background) { kill_at_each_call(ONE_FILE, IN_BACKGROUND); }
CASE(save_killed_while_a_device_tree_is_written) { kill_at_each_call(SHARDS, FROM_DEVICE); }
CASE(save_killed_leaves_the_old_directory_or_the_new_directory) {
  kill_at_each_call(MEMMAP, ON_CALLER);
  kill_at_each_call(MEMMAP, IN_BACKGROUND);
}
CASE(save_killed_while_other_files_are_written) {
  kill_at_each_call(CONSOLIDATED, ON_CALLER);
  kill_at_each_call(TDZ, ON_CALLER);
  kill_at_each_call(NPZ, ON_CALLER);
}

static bool stop_at_the_end(void *user, uint64_t done, uint64_t total) {
  (void)user;
  static int num_ends;
  return done < total || ++num_ends < 2; /* stops in the last call, before the index gets its name */
}
/* Kills a process while it removes the shards of a stopped save. */
CASE(save_killed_while_it_cleans_up_leaves_no_shards) {
  for (int at = 0, ended = 0; !ended; at++) {
    scoped_world w = world_create(SHARDS, ON_CALLER);
    int status;
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
      only_call = "unlinkat";
      begin_faults(FAULT_KILL_AFTER, at);
      w.o.progress = stop_at_the_end;
      _exit(tdict_save(NULL, w.path, w.new, &w.o, NULL) == TDICT_ECANCELLED ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    ended = WIFEXITED(status);
    if (ended) assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(is_tree(w.path, w.old));
    check_shards(&w);
    td_ok(tdict_save(NULL, w.path, w.new, &w.o, err));
    assert_int_equal(folder_count(&w.f, NULL), 2 * w.num_old - 1);
  }
}

/* Mounts a file system of 1 MiB at `path` if allowed. Otherwise limits the files of this process to 1 MiB. */
static void limit_disk(const char *path) {
  if (unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
      mount("none", path, "tmpfs", 0, "size=1m") == 0)
    return;
  signal(SIGXFSZ, SIG_IGN);
  const struct rlimit limit = {1 << 20, 1 << 20};
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}
/* Saves a tree that is too large for the disk, which must fail, then a smaller tree. Returns false if a check fails. */
static bool fill_disk(kind what, way how) {
  enum { FLOATS = 1 << 20 };
  folder f = folder_create();
  limit_disk(f.path);
  world w = world_in(f, what, how);
  tdict_error error;
  bool good = true;
  td_ok(tdict_save(NULL, w.path, w.old, &w.o, err));
  const int num_old = folder_count(&f, NULL);
  tdict_tensor *large = td_made(tensor, tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(FLOATS), NULL, &made, err));
  td_put(w.new, "large", large);
  world_start(&w);
  for (int round = 0; round < 2; round++) { /* the first save must leave nothing that fills the disk */
    good &= save_with_fault(&w, FAULT_NONE, 0, &error) == TDICT_EIO;
    good &= (error.native == ENOSPC || error.native == EFBIG) && strstr(error.message, strerror(error.native));
    good &= strcmp(error.path, w.path) == 0 && folder_count(&f, NULL) == num_old && is_tree(w.path, w.old);
  }
  td_ok(tdict_delete(w.new, "large", err));
  td_ok(tdict_save(w.context, w.path, w.new, &w.o, err));
  good &= is_tree(w.path, w.new);
  if (umount2(f.path, MNT_DETACH) != 0) remove_all(f.path);
  return (rmdir(f.path) == 0 || errno == ENOENT) && good;
}
/* Calls fill_disk() in a child process, so that the limit applies only to the child. */
static void check_full_disk(kind what, way how) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(fill_disk(what, how) ? 0 : 1);
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
CASE(save_reports_a_full_disk) {
  for (way how = ON_CALLER; how < NUM_SAVE_WAYS; how++) check_full_disk(ONE_FILE, how);
  for (kind what = SHARDS; what < NUM_KINDS; what++) check_full_disk(what, ON_CALLER);
}

static mode_t final_mode;
static int num_looked;
/* Checks that a new file never has more permissions than it finally gets. Its owner may always write. */
static void check_open_mode(int fd) {
  struct stat info;
  assert_int_equal(fstat(fd, &info), 0);
  assert_int_equal(info.st_mode & 0777 & ~(final_mode | 0600), 0);
  num_looked++;
}
static mode_t mode_of(const char *path) {
  struct stat info;
  assert_int_equal(lstat(path, &info), 0);
  return info.st_mode & 07777;
}
CASE(save_keeps_permissions_of_files) {
  static const mode_t modes[] = {0000, 0600, 0400, 0640, 0666, 0604, 0070};
  const mode_t mask = umask(0);
  for (kind what = ONE_FILE; what < MEMMAP; what++) {
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
      scoped_world w = world_create(what, ON_CALLER);
      assert_int_equal(chmod(w.path, modes[i]), 0);
      final_mode = modes[i];
      look_at_file = check_open_mode;
      td_ok(tdict_save(NULL, w.path, w.new, &w.o, err));
      look_at_file = NULL;
      assert_int_equal(mode_of(w.path), modes[i]);
      assert_int_equal(chmod(w.path, 0600), 0);
      assert_true(is_tree(w.path, w.new));
    }
  }
  assert_true(num_looked > 100);
  umask(mask);
}

/* New files and directories get the permissions of the old ones with the same names. */
CASE(save_keeps_permissions_of_directories) {
  const mode_t mask = umask(022);
  world w = world_create(MEMMAP, ON_CALLER);
  struct stat info;
  const bool has_group = chown(w.path, (uid_t)-1, 1234) == 0; /* usually, only root may set a group that it is not in */
  assert_int_equal(chmod(w.path, 02750), 0);
  assert_int_equal(chmod(in(&w.f, "m/c.memmap"), 0600), 0);
  assert_int_equal(chmod(in(&w.f, "m/a"), 03711), 0);
  assert_int_equal(chmod(in(&w.f, "m/a/b.memmap"), 0444), 0);
  assert_int_equal(chmod(in(&w.f, "m/meta.json"), 0604), 0);
  tdict_tensor *more = td_made(tensor, tdict_tensor_zeros(TDICT_U8, TDICT_SHAPE(2), NULL, &made, err));
  td_ok(tdict_set(w.new, "more", more, err));
  td_ok(tdict_set(w.new, "d.more", more, err));
  final_mode = 0644;
  look_at_file = check_open_mode;
  td_ok(tdict_save(NULL, w.path, w.new, &w.o, err));
  look_at_file = NULL;
  assert_int_equal(mode_of(in(&w.f, "m")), 02750);
  assert_int_equal(mode_of(in(&w.f, "m/c.memmap")), 0600);
  assert_int_equal(mode_of(in(&w.f, "m/a")), 03711);
  assert_int_equal(mode_of(in(&w.f, "m/a/b.memmap")), 0444);
  assert_int_equal(mode_of(in(&w.f, "m/meta.json")), 0604);
  assert_int_equal(mode_of(in(&w.f, "m/more.memmap")), 0644);
  assert_int_equal(mode_of(in(&w.f, "m/d")), 02755); /* inherits the setgid bit of its parent folder */
  static const char *const inheritors[] = {"m", "m/more.memmap", "m/d/more.memmap"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(stat(in(&w.f, inheritors[i]), &info), 0);
    if (has_group) assert_int_equal(info.st_gid, 1234);
  }
  tdict_tensor_release(more);
  world_remove(&w);
  umask(mask);
}

/* If a process cannot give the file its old group, no user gets more permissions than before. */
CASE(save_gives_another_group_no_more_permissions) {
  scoped_world w = world_create(ONE_FILE, ON_CALLER);
  struct stat info;
  int status;
  if (getuid() == 0) {
    assert_int_equal(chown(w.f.path, 65534, 65534), 0);
    assert_int_equal(chown(w.path, 65534, 1234), 0);
    assert_int_equal(chmod(w.path, 0664), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
      _exit(tdict_save(NULL, w.path, w.new, &w.o, NULL) == TDICT_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_int_equal(stat(w.path, &info), 0);
    assert_int_equal(info.st_gid, 65534);
    assert_int_equal(info.st_mode & 0777, 0644);
    /* a save by root keeps the owner and the group */
    assert_int_equal(chown(w.path, 65534, 1234), 0);
    assert_int_equal(chmod(w.path, 0664), 0);
    td_ok(tdict_save(NULL, w.path, w.new, &w.o, err));
    assert_int_equal(stat(w.path, &info), 0);
    assert_true(info.st_uid == 65534 && info.st_gid == 1234 && (info.st_mode & 0777) == 0664);
  }
}
