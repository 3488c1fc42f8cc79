/* Tests src/services/io/output/temporary.c: files of killed processes are removed, and files that a living process is
 * writing are kept. See faults.h. */

#include "services/io/directory.h"
#include "services/io/faults.h"
#include "services/io/output/temporary.h"
#include "support/threads.h"

/* Names for CMake: __wrap_fsync __wrap_renameat __wrap_renameat2 __wrap_fchmod __wrap_fstatat __wrap_mkdirat
 * __wrap_unlinkat __wrap_flock __wrap_ftruncate __wrap_openat __wrap_open __wrap_close __wrap_pwrite */

static int open_folder(const folder *f) {
  const int fd = open(f->path, O_RDONLY | O_DIRECTORY);
  assert_true(fd >= 0);
  return fd;
}
static bool exists(const folder *f, const char *name) {
  struct stat info;
  return lstat(in(f, name), &info) == 0;
}
static void create(int at, const char *base, bool is_directory, tdict_temporary *out) {
  assert_int_equal(tdict_temporary_create(out, at, base, is_directory, is_directory ? 0700 : 0600), 0);
}

CASE(temporary_files_are_removed_if_their_writer_is_gone) {
  scoped_folder f = folder_create();
  const int at = open_folder(&f);
  for (int is_directory = 0; is_directory < 2; is_directory++) {
    tdict_temporary living, dead;
    create(at, "model", is_directory, &living);
    create(at, "model", is_directory, &dead);
    assert_int_equal(strncmp(dead.name, ".model.", 7), 0);
    assert_int_equal(strlen(dead.name), strlen(".model.0123456789abcdef.tmp"));
    if (is_directory) write_text_below(&f, "x/a/b", "text"); /* moved into the directory of the dead process */
    if (is_directory) assert_int_equal(renameat(at, "x", dead.fd, "x"), 0);
    /* the system also closes the files of a killed process */
    close(dead.fd);
    tdict_temporary_clean(at, "model", NULL);
    assert_true(exists(&f, living.name) && !exists(&f, dead.name));
    close(living.fd);
    tdict_temporary_clean(at, "mode", NULL);
    assert_true(exists(&f, living.name));
    tdict_temporary_clean(at, "model", NULL);
    assert_int_equal(folder_count(&f, NULL), 0);
  }
  close(at);
}

CASE(temporary_files_of_others_stay) {
  static const char *const names[] = {".model.0123456789abcdef.tmp1", ".model.0123456789abcde.tmp",
                                      ".model.0123456789ABCDEF.tmp",  "model.0123456789abcdef.tmp",
                                      ".model2.0123456789abcdef.tmp", ".model.0123456789abcdef.unlocked.tmp",
                                      ".model.0123456789abcdef.old",  ".model.0123456789abcdef"};
  enum { COUNT = sizeof names / sizeof *names };
  scoped_folder f = folder_create();
  const int at = open_folder(&f);
  for (int i = 0; i < COUNT; i++) write_bytes(in(&f, names[i]), "x", 1);
  assert_int_equal(symlink(names[0], in(&f, ".model.0000000000000001.tmp")), 0);
  assert_int_equal(mkfifo(in(&f, ".model.0000000000000002.tmp"), 0600), 0);
  tdict_temporary_clean(at, "model", NULL);
  assert_int_equal(folder_count(&f, NULL), COUNT + 2);
  close(at);
}

/* Uses names of 200 to 255 bytes. Names that differ only at their end have different temporary names. */
CASE(temporary_names_are_short_enough) {
  scoped_folder f = folder_create();
  const int at = open_folder(&f);
  char bases[2][256];
  for (size_t length = 200; length <= 255; length++) {
    for (int i = 0; i < 2; i++) {
      for (size_t k = 0; k + 1 < length; k++) bases[i][k] = "\xc3\xa9"[k % 2]; /* é: two bytes */
      if (length % 2 == 0) bases[i][length - 2] = 'z';
      memcpy(bases[i] + length - 1, i ? "a" : "b", 2);
    }
    tdict_temporary file;
    create(at, bases[0], false, &file);
    close(file.fd);
    tdict_temporary_clean(at, bases[1], NULL);
    assert_true(exists(&f, file.name));
    assert_non_null(strstr(file.name, "\xc3\xa9"));
    for (const char *c = file.name; *c; c++) /* no UTF-8 character is cut */
      if (*c == '\xc3') assert_true(*++c == '\xa9');
    tdict_temporary_clean(at, bases[0], NULL);
    assert_int_equal(folder_count(&f, NULL), 0);
  }
  close(at);
}

/* An old directory that was moved aside gets its name back if nothing else has the name. */
CASE(temporary_old_directories_get_their_names_back) {
  scoped_directory f = folder_create();
  const int at = open_folder(&f);
  char aside[TDICT_OUTPUT_NAME_BYTES], path[TDICT_OUTPUT_NAME_BYTES + 8];
  tdict_temporary_name_old(aside, "t");
  snprintf(path, sizeof path, "%s/file", aside);
  write_text_below(&f, path, "old");
  const int fd = openat(at, aside, O_RDONLY | O_DIRECTORY);
  assert_int_equal(tdict_temporary_lock(fd), 0);
  tdict_temporary_clean(at, "t", NULL);
  assert_true(exists(&f, path)); /* the process that holds the lock is alive */
  close(fd);
  write_bytes(in(&f, "t"), "x", 1);
  tdict_temporary_clean(at, "t", NULL);
  assert_true(exists(&f, path)); /* a file has the name, so this directory may be the only copy of a tree */
  assert_int_equal(remove(in(&f, "t")), 0);
  tdict_temporary_clean(at, "t", NULL);
  assert_true(exists(&f, "t/file") && !exists(&f, aside));
  write_text_below(&f, path, "older");
  tdict_temporary_clean(at, "t", NULL);
  assert_true(exists(&f, "t/file") && !exists(&f, aside));
  assert_int_equal(folder_count(&f, NULL), 1);
  close(at);
}

static void fail_flock(int code) {
  only_call = "flock";
  fault_errno = code;
  begin_faults(FAULT_FAIL, 0);
}
CASE(temporary_files_without_locks_stay) {
  scoped_folder f = folder_create();
  const int at = open_folder(&f);
  tdict_temporary file, later;
  fail_flock(ENOLCK);
  create(at, "m", false, &file);
  chosen = FAULT_NONE;
  assert_non_null(strstr(file.name, ".unlocked.tmp"));
  close(file.fd);
  create(at, "m", true, &later);
  close(later.fd);
  fail_flock(EOPNOTSUPP);
  tdict_temporary_clean(at, "m", NULL);
  chosen = FAULT_NONE;
  assert_true(exists(&f, file.name) && exists(&f, later.name));
  tdict_temporary_clean(at, "m", NULL);
  assert_true(exists(&f, file.name) && !exists(&f, later.name));
  /* the file system has locks, but another process holds this one */
  fail_flock(EWOULDBLOCK);
  create(at, "m", false, &later);
  chosen = FAULT_NONE;
  assert_null(strstr(later.name, "unlocked"));
  close(later.fd);
  only_call = NULL;
  close(at);
}

/* A failed removal of a file returns the system's error, and the file is not mistaken for a directory. */
CASE(temporary_errors_are_those_of_the_system) {
  scoped_folder f = folder_create();
  const int at = open_folder(&f);
  write_bytes(in(&f, "x"), "x", 1);
  only_call = "unlinkat";
  fault_errno = EPERM;
  begin_faults(FAULT_FAIL, 0);
  assert_int_equal(tdict_entry_remove(at, "x"), EPERM);
  chosen = FAULT_NONE;
  only_call = NULL;
  assert_int_equal(tdict_entry_remove(at, "x"), 0);
  assert_int_equal(tdict_entry_remove(at, "x"), 0); /* already removed */
  close(at);
}

static int folder_of_race;
/* Called between the creation and the locking of a file: cleans up, as another save would. */
static void clean_once(int fd) {
  (void)fd;
  look_at_file = NULL;
  tdict_temporary_clean(folder_of_race, "m", NULL);
}
CASE(temporary_files_that_were_removed_are_created_again) {
  scoped_folder f = folder_create();
  tdict_temporary file;
  folder_of_race = open_folder(&f);
  look_at_file = clean_once;
  create(folder_of_race, "m", false, &file);
  assert_null(look_at_file); /* clean_once() was called */
  assert_true(exists(&f, file.name));
  close(file.fd);
  close(folder_of_race);
}

/* Threads that create files run at the same time as threads that clean up. */
enum { NUM_WRITERS = 3, NUM_CLEANERS = 2, NUM_FILES = 300 };
typedef struct race {
  int at;
  bool is_directory;
  _Atomic(int) num_running;
  _Atomic(int) num_lost;
} race;
static void *write_files(void *user) {
  race *r = user;
  for (int i = 0; i < NUM_FILES; i++) {
    tdict_temporary file;
    struct stat info;
    create(r->at, "m", r->is_directory, &file);
    for (int k = 0; k < 3; k++) { /* no cleaner removes the file of a living writer */
      sched_yield();
      r->num_lost += fstatat(r->at, file.name, &info, 0) != 0;
    }
    char name[32];
    snprintf(name, sizeof name, "final.%llx", (unsigned long long)file.unique);
    r->num_lost += renameat(r->at, file.name, r->at, name) != 0;
    close(file.fd);
  }
  r->num_running--;
  return NULL;
}
static void *clean_files(void *user) {
  race *r = user;
  while (r->num_running) tdict_temporary_clean(r->at, "m", NULL);
  return NULL;
}
CASE(temporary_files_survive_saves_at_the_same_time) {
  for (int is_directory = 0; is_directory < 2; is_directory++) {
    scoped_directory f = folder_create();
    race r = {.at = open_folder(&f), .is_directory = is_directory, .num_running = NUM_WRITERS};
    pthread_t threads[NUM_WRITERS + NUM_CLEANERS];
    for (int i = 0; i < NUM_WRITERS + NUM_CLEANERS; i++)
      threads[i] = td_start(i < NUM_WRITERS ? write_files : clean_files, &r);
    for (int i = 0; i < NUM_WRITERS + NUM_CLEANERS; i++) pthread_join(threads[i], NULL);
    assert_int_equal(r.num_lost, 0);
    assert_int_equal(folder_count(&f, NULL), NUM_WRITERS * NUM_FILES);
    close(r.at);
  }
}

/* Directories that their owner may not write to are removed. Removing a missing entry is not an error. */
CASE(temporary_directories_of_any_mode_are_removed) {
  scoped_folder f = folder_create();
  tdict_temporary dead;
  const int at = open_folder(&f);
  create(at, "m", true, &dead);
  char path[TDICT_OUTPUT_NAME_BYTES + 16];
  snprintf(path, sizeof path, "%s/a/file", dead.name);
  write_text_below(&f, path, "text");
  snprintf(path, sizeof path, "%s/a", dead.name);
  assert_int_equal(chmod(in(&f, path), 0500), 0);
  assert_int_equal(fchmod(dead.fd, 0500), 0);
  close(dead.fd);
  const pid_t child = fork();
  if (child == 0) { /* root may write everywhere, so another user removes the files */
    if (getuid() == 0 && (system(td_text("chown -R 65534 %s", f.path)) != 0 || setuid(65534) != 0)) _exit(1);
    tdict_temporary_clean(at, "m", NULL);
    _exit(tdict_entry_remove(at, "none"));
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(folder_count(&f, NULL), 0);
  close(at);
}
