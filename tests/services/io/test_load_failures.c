/* Tests tdict_load() with failing reads, truncated files, wrong arguments, little pinned memory and failing
 * allocations. The linker's --wrap redirects the library's reads to __wrap_pread in this file. */
#include <errno.h>
#include <stdatomic.h>

#include "raw_file.h"

/* What happens to a read. */
typedef enum fault { FAULT_NONE, FAULT_FAIL, FAULT_FAIL_ALL, FAULT_SHRINK, FAULT_INTERRUPT } fault;
static fault chosen;
static _Atomic(int) reads; /* number of reads of elements; the fault happens at read number fault_at */
static int fault_at;
static const char *shrunk; /* the file that FAULT_SHRINK truncates */
static off_t shrunk_to;

ssize_t __real_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset);
ssize_t __wrap_pread(int fd, void *to, size_t bytes, off_t offset) {
  const int number = atomic_fetch_add(&reads, 1);
  if (chosen == FAULT_INTERRUPT) {
    if (number % 2 == 0) {
      errno = EINTR;
      return -1;
    }
    return __real_pread(fd, to, bytes > 700 ? 700 : bytes, offset);
  }
  if ((number == fault_at && chosen == FAULT_FAIL) || chosen == FAULT_FAIL_ALL) {
    errno = EIO;
    return -1;
  }
  if (number == fault_at && chosen == FAULT_SHRINK && truncate(shrunk, shrunk_to) != 0) return -1;
  return __real_pread(fd, to, bytes, offset);
}
static void choose(fault f, int at) {
  chosen = f;
  fault_at = at;
  atomic_store(&reads, f == FAULT_INTERRUPT ? 0 : -1000);
}
/* Restarts the count at the first call of progress, because the number of reads of the header may change. */
static bool begin_counting(void *user, uint64_t done, uint64_t total) {
  (void)user, (void)total;
  if (!done) atomic_store(&reads, 0);
  return true;
}
static tdict_load_options counting(void) { return td_with(tdict_load_options, progress = begin_counting); }

static tdict_context *small_context(void) {
  tdict_context_options o = td_with(tdict_context_options, staging_bytes = 64 << 10);
  return td_context(&o);
}
/* Writes a file that needs several slots of a small ring. */
static raw_file *large_file(dice *d, const char *path) { return raw_file_create_large(d, path, 200 << 10); }
static bool is_leaf(const raw_file *f, const char *path) {
  for (int i = 0; i < f->count; i++)
    if (strcmp(f->tensors[i].name, path) == 0) return true;
  return false;
}

DEVICE_CASE(load_continues_after_short_and_interrupted_reads) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {4};
  scoped_raw_file f = large_file(&d, in(&home, "x"));
  choose(FAULT_INTERRUPT, 0);
  scoped_tree tree = td_made(tree, tdict_load(c, f->path, td_device(), NULL, &made, err));
  choose(FAULT_NONE, 0);
  raw_check(c, f, tree, td_device(), 0, -1);
}

/* Each read of elements fails once. The error names the leaf and the file. An error in the header names the file. */
DEVICE_CASE(load_reports_the_leaf_of_a_failed_read) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {4};
  scoped_raw_file f = large_file(&d, in(&home, "x"));
  const int descriptors = td_count_descriptors();
  const tdict_load_options o = counting();
  int at = 0;
  for (bool failed = true; failed; at++) {
    tdict_tree *tree = NULL;
    tdict_future *future = NULL;
    tdict_error error = {0};
    choose(FAULT_FAIL, at);
    tdict_status status = at % 2 ? tdict_load(c, f->path, td_device(), &o, &tree, &error)
                                 : tdict_load_async(c, f->path, td_device(), &o, &future, &error);
    if (future) status = tdict_future_wait(future, &tree, &error);
    tdict_future_release(future);
    failed = atomic_load(&reads) > at;
    assert_int_equal(status, failed ? TDICT_EIO : TDICT_OK);
    assert_true(!tree == failed);
    tdict_release(tree);
    if (!failed) continue;
    assert_int_equal(error.native, EIO);
    assert_true(is_leaf(f, error.path));
    assert_non_null(strstr(error.message, f->path));
    assert_non_null(strstr(error.message, "cannot be read"));
  }
  assert_true(at > 5);
  tdict_tree *none = NULL;
  choose(FAULT_FAIL_ALL, 0);
  td_fails_at(TDICT_EIO, "cannot be read", f->path, tdict_load(c, f->path, td_device(), NULL, &none, err));
  assert_true(td_count_descriptors() <= descriptors + 1);
  choose(FAULT_NONE, 0);
}

/* Truncates the file before a read: by one byte before the first, or to a random size before one of the first 8. */
DEVICE_CASE(load_reports_a_file_that_is_shortened) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {4};
  scoped_raw_file f = large_file(&d, in(&home, "x"));
  tdict_load_options o = counting();
  tdict_transfer_options transfer = tdict_transfer_options_default();
  shrunk = f->path;
  o.transfer = &transfer;
  for (int i = 0; i < 24; i++) {
    tdict_tree *tree = NULL;
    transfer.num_threads = i % 4 - 1;
    write_bytes(f->path, f->bytes, f->size);
    shrunk_to = i % 3 ? (off_t)(f->size - 1) : (off_t)roll(&d, f->size);
    choose(FAULT_SHRINK, i % 3 ? 0 : i / 3);
    td_fails(TDICT_EIO, f->path, tdict_load(c, f->path, i < 12 ? td_device() : tdict_cpu(), &o, &tree, err));
    assert_true(is_leaf(f, td_last_error.path));
    const char *wanted = td_text("ends at byte %zu, wanted %zu bytes", f->size - 1, f->size);
    if (i % 3) assert_non_null(strstr(td_last_error.message, wanted));
    assert_int_equal(td_last_error.native, 0);
    assert_null(tree);
  }
  choose(FAULT_NONE, 0);
}

/* The bytes of the destination are lost after the error, and valid after the next load. */
DEVICE_CASE(load_into_loses_the_tree_if_a_read_fails) {
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  dice d = {4};
  scoped_raw_file f = large_file(&d, in(&home, "x"));
  tdict_tensor *t = NULL;
  scoped_tree tree = td_made(tree, tdict_load(c, f->path, td_device(), NULL, &made, err));
  choose(FAULT_FAIL, 1);
  const tdict_load_options o = counting();
  td_fails(TDICT_EIO, "cannot be read", td_load_into(c, tree, f->path, &o, err));
  choose(FAULT_NONE, 0);
  bool is_lost = false;
  for (int i = 0; i < f->count; i++) {
    td_ok(tdict_get(tree, f->tensors[i].name, &t, err));
    is_lost = is_lost || (f->tensors[i].bytes && !tdict_tensor_data(t));
  }
  assert_true(is_lost);
  td_ok(td_load_into(c, tree, f->path, NULL, err));
  raw_check(c, f, tree, td_device(), 0, -1);
}

/* A long path is shortened at its start, so the message still has the name of the file and the byte. */
CASE(load_names_files_with_long_paths) {
  static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
  scoped_folder home = folder_create();
  scoped_context c = td_context(NULL);
  char path[PATH_BYTES];
  tdict_tree *tree = NULL;
  const int length = snprintf(path, sizeof path, "%s", home.path);
  for (int i = length; i < 300; i += 2) memcpy(path + i, "/.", 3);
  strcpy(path + 300, "/name.safetensors");
  write_safetensors(path, header, sizeof header - 1, 3);
  const tdict_load_options o = counting();
  choose(FAULT_FAIL, 0);
  td_fails(TDICT_EIO, "byte 61 of ...", tdict_load(c, path, td_device(), &o, &tree, err));
  assert_non_null(strstr(td_last_error.message, "/name.safetensors cannot be read: Input/output error"));
  assert_string_equal(td_last_error.path, "a");
  choose(FAULT_NONE, 0);
}

CASE(load_refuses_wrong_arguments) {
  static const char header[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}";
  static const char *const patterns[] = {"a"};
  scoped_folder home = folder_create();
  scoped_context c = td_context(NULL);
  tdict_load_options o = tdict_load_options_default();
  tdict_transfer_options transfer = tdict_transfer_options_default();
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  tdict_tree *tree = NULL;
  tdict_future *future = NULL;
  const char *path = in(&home, "x");
  const int descriptors = td_count_descriptors();
  write_safetensors(path, header, sizeof header - 1, 3);
  td_fails(TDICT_EINVAL, "load: out is NULL", tdict_load(c, path, tdict_cpu(), NULL, NULL, err));
  td_fails(TDICT_EINVAL, "load: path is NULL", tdict_load(c, NULL, tdict_cpu(), NULL, &tree, err));
  td_fails(TDICT_EINVAL, "load: context is NULL", tdict_load(NULL, path, tdict_cpu(), NULL, &tree, err));
  td_fails(TDICT_EINVAL, "load_async: out is NULL", tdict_load_async(c, path, tdict_cpu(), NULL, NULL, err));
  td_fails(TDICT_EINVAL, "load_into_async: dst is NULL", tdict_load_into_async(c, NULL, path, NULL, &future, err));
  td_fails_at(TDICT_EIO, "", in(&home, "none"), tdict_load(c, in(&home, "none"), tdict_cpu(), NULL, &tree, err));
  td_fails(TDICT_ENODEVICE, "", tdict_load(c, path, tdict_sim(3), NULL, &tree, err));
  o.transfer = &transfer;
  transfer.keep = patterns;
  transfer.num_keep = 1;
  td_fails(TDICT_EINVAL, "load: transfer->keep must not be set", tdict_load(c, path, tdict_cpu(), &o, &tree, err));
  transfer.num_keep = 0;
  transfer.check_sources = true;
  td_fails(TDICT_EINVAL, "transfer->check_sources must not", tdict_load_async(c, path, tdict_cpu(), &o, &future, err));
  transfer.check_sources = false;
  transfer.stats = &stats;
  td_fails(TDICT_EINVAL, "stats must be NULL", tdict_load_async(c, path, tdict_cpu(), &o, &future, err));
  transfer.struct_size = 1;
  td_fails(TDICT_EINVAL, "transfer options", tdict_load(c, path, tdict_cpu(), &o, &tree, err));
  o.struct_size = 1;
  td_fails(TDICT_EINVAL, "load_options", tdict_load(c, path, tdict_cpu(), &o, &tree, err));
  assert_true(!tree && !future);
  assert_int_equal(td_count_descriptors(), descriptors);
}

/* Loading a file much larger than the staging ring needs no more pinned memory than the ring. */
GPU_CASE(load_needs_only_the_staging_ring) {
  enum { BYTES = 8 << 20 };
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  tdict_transfer_options transfer = tdict_transfer_options_default();
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  scoped_tree tree = NULL, back = NULL;
  char header[128];
  transfer.stats = &stats;
  const int length = snprintf(header, sizeof header,
                              "{\"a\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[0,%d]}}", BYTES, BYTES);
  write_safetensors(in(&home, "x"), header, (size_t)length, BYTES);
  td_ok(tdict_load(c, in(&home, "x"), td_device(), td_options(tdict_load_options, transfer = &transfer), &tree, err));
  assert_true(stats.peak_staging_bytes <= 64 << 10);
  assert_true(stats.peak_pinned_bytes <= 64 << 10);
  assert_int_equal(stats.staged_bytes, BYTES);
  td_ok(tdict_to_device(c, tree, tdict_cpu(), NULL, &back, err));
  const unsigned char *a = tdict_const_data(back, "a");
  for (int i = 0; i < BYTES; i++)
    if (a[i] != (unsigned char)i) fail_msg("byte %d is %d", i, a[i]);
}

/* A result in pinned memory that exceeds the context's limit is refused. The pinned staging ring does not count against
 * this limit. */
GPU_CASE(load_keeps_the_limit_of_pinned_memory) {
  scoped_folder home = folder_create();
  scoped_context c = td_context(td_options(tdict_context_options, staging_bytes = 64 << 10, pinned_bytes = 4096));
  dice d = {4};
  scoped_raw_file f = large_file(&d, in(&home, "x"));
  tdict_transfer_options transfer = tdict_transfer_options_default();
  scoped_tree tree = NULL;
  tdict_load_options o = td_with(tdict_load_options, transfer = &transfer);
  transfer.pinned_result = true;
  td_fails(TDICT_ENOMEM, "pinned", tdict_load(c, f->path, tdict_cpu(), &o, &tree, err));
  assert_null(tree);
  transfer.pinned_result = false;
  td_ok(tdict_load(c, f->path, td_device(), &o, &tree, err));
  raw_check(c, f, tree, td_device(), 0, -1);
}

static bool go_on(void *user, uint64_t done, uint64_t total) {
  (void)user;
  return done <= total;
}

DEVICE_CASE(load_survives_enomem) {
  static const char header[] =
      "{\"__metadata__\":{\"tensordict\":\"{\\\"version\\\":1,\\\"root\\\":{\\\"type\\\":\\\"TensorDict\\\","
      "\\\"batch_size\\\":[3],\\\"keys\\\":{\\\"a\\\":{\\\"tensor\\\":\\\"a\\\"},"
      "\\\"t\\\":{\\\"non_tensor\\\":\\\"x\\\"}}}}\"},"
      "\"a\":{\"dtype\":\"I16\",\"shape\":[3],\"data_offsets\":[0,6]}}";
  scoped_folder home = folder_create();
  scoped_context c = small_context();
  tdict_load_options o = tdict_load_options_default();
  scoped_tree tree = NULL;
  o.transfer = td_options(tdict_transfer_options, num_threads = 0);
  o.first_row = 1;
  o.progress = go_on;
  write_safetensors(in(&home, "x"), header, sizeof header - 1, 6);
  td_ok(tdict_load(c, in(&home, "x"), td_device(), &o, &tree, err)); /* creates the ring */
  const int descriptors = td_count_descriptors();
  for (int into = 0; into < 2; into++) {
    TD_SWEEP(s) {
      scoped_tree out = NULL;
      const tdict_status status = td_sweep_call(s, into ? td_load_into(c, tree, in(&home, "x"), &o, err)
                                                        : tdict_load(c, in(&home, "x"), td_device(), &o, &out, err));
      assert_true(into || !out == (status != TDICT_OK));
      if (out) assert_true(tdict_has(out, "a") && tdict_has(out, "t") && tdict_batch_size(out)[0] == 2);
      assert_int_equal(td_count_descriptors(), descriptors);
    }
  }
}
