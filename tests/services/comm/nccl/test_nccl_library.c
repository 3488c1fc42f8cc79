/* Tests services/comm/nccl/library.c and id.c: opening NCCL, ids, and id files. */
#include <errno.h>
#include <sys/stat.h>

#include "services/comm/nccl/ranks.h"
#include "support/threads.h"

static tdict_nccl_id id_of(uint64_t seed) {
  tdict_nccl_id id;
  td_fill_random(id.bytes, sizeof id.bytes, seed);
  return id;
}

CASE(nccl_ids_come_from_the_library) {
  char path[PATH_MAX];
  tdict_nccl_id one, two;
  fake_nccl_settings *fake = ranks_fake(path, "fake_nccl.so");
  td_ok(tdict_nccl_create_id(path, &one, err));
  td_ok(tdict_nccl_create_id(path, &two, err));
  for (size_t i = 1; i < sizeof one.bytes; i++) assert_int_equal(one.bytes[i], one.bytes[0]);
  assert_int_equal(two.bytes[127], one.bytes[0] + 1);
  td_fails(TDICT_EINVAL, "out is NULL", tdict_nccl_create_id(path, NULL, err));
  fake->id_result = 2;
  fake->last_error = "no interface\nsecond line";
  td_fails(TDICT_EDEVICE, "ncclGetUniqueId returned 2, fake system error: no interface",
           tdict_nccl_create_id(path, &two, err));
  assert_int_equal(td_last_error.native, 2);
  assert_null(strstr(td_last_error.message, "second"));
  fake->id_result = 99; /* an unknown result code, for which the fake has no name */
  fake->last_error = NULL;
  td_fails(TDICT_EDEVICE, "returned 99, ?", tdict_nccl_create_id(path, &two, err));
  assert_int_equal(two.bytes[0], one.bytes[0] + 1);
}

CASE(nccl_without_last_error_is_enough) {
  char path[PATH_MAX];
  tdict_nccl_id id;
  fake_nccl_settings *fake = ranks_fake(path, "fake_nccl_silent.so");
  td_ok(tdict_nccl_create_id(path, &id, err));
  fake->id_result = 3;
  td_fails(TDICT_EDEVICE, "returned 3, fake internal error", tdict_nccl_create_id(path, &id, err));
}

CASE(nccl_refuses_other_libraries) {
  char path[PATH_MAX];
  tdict_nccl_id id;
  td_fails(TDICT_ENOTSUP, "no NCCL library: /no/such/libnccl.so",
           tdict_nccl_create_id("/no/such/libnccl.so", &id, err));
  td_fails(TDICT_ENOTSUP, "libm.so.6 lacks ncclGetVersion", tdict_nccl_create_id("libm.so.6", &id, err));
  ranks_path(path, "fake_nccl_partial.so");
  td_fails(TDICT_ENOTSUP, "lacks ncclSend", tdict_nccl_create_id(path, &id, err));
  fake_nccl_settings *fake = ranks_fake(path, "fake_nccl.so");
  fake->version = 21799;
  td_fails(TDICT_ENOTSUP, "has version code 21799, wanted 21800 or newer", tdict_nccl_create_id(path, &id, err));
  fake->version = 21800;
  td_ok(tdict_nccl_create_id(path, &id, err));
  fake->version_result = 3;
  td_fails(TDICT_EDEVICE, "returned 3", tdict_nccl_create_id(path, &id, err));
  assert_int_equal(td_last_error.native, 3);
}

/* Creates a temporary folder. Writes and returns the path of a file in it, which does not exist yet. */
static char *file_in(char *folder, char *path) {
  strcpy(folder, "/tmp/tdict-nccl-XXXXXX");
  assert_non_null(mkdtemp(folder));
  sprintf(path, "%s/id", folder);
  return path;
}
static void write_bytes(const char *path, size_t count) {
  FILE *f = fopen(path, "wb");
  for (size_t i = 0; i < count; i++) fputc('x', f);
  fclose(f);
}

CASE(nccl_id_files_return_the_id) {
  char folder[64], path[80], part[96];
  struct stat info;
  file_in(folder, path);
  sprintf(part, "%s.part", path);
  for (uint64_t seed = 1; seed < 20; seed++) { /* each write replaces the existing file */
    const tdict_nccl_id id = id_of(seed);
    tdict_nccl_id found;
    td_ok(tdict_nccl_write_id_file(path, &id, err));
    td_ok(tdict_nccl_read_id_file(path, 0, &found, err));
    assert_memory_equal(&found, &id, sizeof id);
    assert_int_not_equal(access(part, F_OK), 0);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, 128);
    assert_int_equal(info.st_mode & 0777, 0600);
  }
  unlink(path);
  rmdir(folder);
}

CASE(nccl_id_files_are_checked) {
  char folder[64], path[80];
  tdict_nccl_id id = id_of(1), before = id;
  file_in(folder, path);
  td_fails(TDICT_EINVAL, "path is NULL", tdict_nccl_write_id_file(NULL, &id, err));
  td_fails(TDICT_EINVAL, "id is NULL", tdict_nccl_write_id_file(path, NULL, err));
  td_fails(TDICT_EINVAL, "the path is empty", tdict_nccl_write_id_file("", &id, err));
  td_fails(TDICT_EIO, "open of /no/such/id failed", tdict_nccl_write_id_file("/no/such/id", &id, err));
  assert_int_equal(td_last_error.native, ENOENT);
  assert_string_equal(td_last_error.path, "/no/such/id");
  td_fails(TDICT_EIO, "rename", tdict_nccl_write_id_file(folder, &id, err)); /* a folder is not replaced */
  td_fails(TDICT_EINVAL, "path is NULL", tdict_nccl_read_id_file(NULL, 0, &id, err));
  td_fails(TDICT_EINVAL, "out is NULL", tdict_nccl_read_id_file(path, 0, NULL, err));
  td_fails(TDICT_EINVAL, "timeout_ns is -1", tdict_nccl_read_id_file(path, -1, &id, err));
  td_fails_at(TDICT_ETIMEDOUT, "does not exist", path, tdict_nccl_read_id_file(path, SECONDS(0.05), &id, err));
  for (size_t bytes = 127; bytes <= 129; bytes += 2) {
    write_bytes(path, bytes);
    td_fails_at(TDICT_EFORMAT, "bytes, wanted 128", path, tdict_nccl_read_id_file(path, 0, &id, err));
  }
  td_fails(TDICT_EFORMAT, "wanted a regular file", tdict_nccl_read_id_file(folder, 0, &id, err));
  strcat(path, "/more");
  td_fails(TDICT_EIO, "access", tdict_nccl_read_id_file(path, 0, &id, err)); /* ENOTDIR: the call does not wait */
  assert_memory_equal(&id, &before, sizeof id);
  path[strlen(path) - 5] = 0;
  unlink(path);
  assert_int_equal(rmdir(folder), 0); /* no other file is left */
}

typedef struct writer {
  const char *path;
  _Atomic(bool) stop;
  int failures;
} writer;
/* Keeps replacing the file. All bytes of an id are equal, so the reader can detect a mixture of two ids. */
static void *keep_writing(void *user) {
  writer *w = user;
  usleep(50000);
  for (int n = 0; !w->stop; n++) {
    tdict_nccl_id id;
    memset(&id, 'a' + n % 26, sizeof id);
    w->failures += tdict_nccl_write_id_file(w->path, &id, NULL) != TDICT_OK;
  }
  return NULL;
}
CASE(nccl_id_files_are_waited_for_and_whole) {
  char folder[64], path[80];
  writer w = {.path = file_in(folder, path)};
  pthread_t thread = td_start(keep_writing, &w);
  for (int n = 0; n < 2000; n++) { /* the first call waits for the file */
    tdict_nccl_id id = id_of(1);
    td_ok(tdict_nccl_read_id_file(path, n ? 0 : SECONDS(60), &id, err));
    for (size_t i = 0; i < sizeof id.bytes; i++) assert_int_equal(id.bytes[i], id.bytes[0]);
  }
  w.stop = true;
  pthread_join(thread, NULL);
  assert_int_equal(w.failures, 0);
  unlink(path);
  rmdir(folder);
}
