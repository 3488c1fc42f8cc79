/* Tests tuning files. A written table can be read back. For each kind of wrong line, the error names the file, the line
 * number and the wrong word. */
#include <sys/stat.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/plan/tuning_file.h"
#include "support/test.h"

typedef struct file {
  char path[32];
} file;
static file write_file(const char *text, size_t bytes) {
  file f = {"/tmp/tdict-tuning-XXXXXX"};
  int fd = mkstemp(f.path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, bytes), bytes);
  close(fd);
  return f;
}

#define HEAD "tdict-tuning 1\n"
#define IN "in max 4096 4096 1 2 0 0 50\n"
#define OUT "out max 4096 4096 2 2 0 0 50\n"

/* Checks that a file with `text` is refused. The message must begin with file name and line, and contain `words`. */
static void refused(const char *text, size_t bytes, int line, const char *words) {
  file f = write_file(text, bytes);
  tdict_tuning t, before;
  char machine[TDICT_TUNING_MACHINE] = "as it was", place[64];
  memset(&t, 0x5A, sizeof t);
  before = t;
  td_fails(TDICT_EFORMAT, words, tdict_tuning_read(f.path, &t, machine, err));
  snprintf(place, sizeof place, "%s:%d: ", f.path, line);
  if (strncmp(td_last_error.message, place, strlen(place)) != 0)
    fail_msg("'%s' does not begin with '%s'", td_last_error.message, place);
  assert_memory_equal(&t, &before, sizeof t); /* a refused file changes nothing */
  assert_string_equal(machine, "as it was");
  unlink(f.path);
}
#define REFUSED(text, line, words) refused(text, sizeof(text) - 1, line, words)

static void check_same_row(const tdict_tuning_row *a, const tdict_tuning_row *b) {
  assert_true(a->up_to_bytes == b->up_to_bytes && a->chunk_bytes == b->chunk_bytes && a->first_bytes == b->first_bytes);
  assert_true(a->workers == b->workers && a->slots == b->slots && a->streaming == b->streaming);
  assert_true(a->caller == b->caller && a->spin_us == b->spin_us);
}

CASE(tuning_file_round_trip) {
  tdict_tuning t = tdict_tuning_default(), back;
  char machine[TDICT_TUNING_MACHINE];
  file f = write_file("", 0);
  t.rows[TDICT_TUNING_OUT][0].spin_us = 77;
  td_ok(tdict_tuning_write(f.path, &t, "a GPU of that name, 8 cores", err));
  td_ok(tdict_tuning_read(f.path, &back, machine, err));
  for (int d = 0; d < TDICT_TUNING_DIRECTIONS; d++) {
    assert_int_equal(back.num_rows[d], t.num_rows[d]);
    for (int i = 0; i < t.num_rows[d]; i++) check_same_row(&back.rows[d][i], &t.rows[d][i]);
  }
  assert_string_equal(machine, "a GPU of that name, 8 cores");
  td_fails(TDICT_EINVAL, "must be one line", tdict_tuning_write(f.path, &t, "two\nlines", err));
  t.rows[0][0].workers = 0;
  td_fails(TDICT_EINVAL, "workers is 0", tdict_tuning_write(f.path, &t, "", err));
  td_ok(tdict_tuning_read(f.path, &back, NULL, err)); /* a refused table does not change the file */
  unlink(f.path);
}

CASE(tuning_file_accepts_comments_and_blanks) {
  static const char text[] = "# a comment\n\n  \t\n# tdict-tuning 7\ntdict-tuning\t 1 \r\nout max 512 256 3 1 1 1 0\n"
                             "machine   what is   written here \nin 1000 4096 256 1 9 0 0 10000\n"
                             " # blanks before\nin max 4096 4096 2 2 0 0 50";
  file f = write_file(text, sizeof text - 1);
  tdict_tuning t;
  char machine[TDICT_TUNING_MACHINE];
  td_ok(tdict_tuning_read(f.path, &t, machine, err));
  assert_int_equal(t.num_rows[TDICT_TUNING_IN], 2);
  assert_int_equal(t.rows[TDICT_TUNING_IN][0].up_to_bytes, 1000);
  assert_int_equal(t.rows[TDICT_TUNING_IN][0].slots, 9);
  assert_int_equal(t.rows[TDICT_TUNING_IN][0].spin_us, 10000);
  assert_int_equal(t.rows[TDICT_TUNING_OUT][0].first_bytes, 256);
  assert_int_equal(t.rows[TDICT_TUNING_OUT][0].streaming, 1);
  assert_true(t.rows[TDICT_TUNING_OUT][0].up_to_bytes == SIZE_MAX);
  assert_string_equal(machine, "what is   written here");
  tdict_tuning known = tdict_tuning_default(); /* rows of directions that the file lacks */
  for (int d = TDICT_TUNING_OUT_NEW; d <= TDICT_TUNING_HOST; d++) {
    assert_int_equal(t.num_rows[d], known.num_rows[d]);
    for (int i = 0; i < known.num_rows[d]; i++) check_same_row(&t.rows[d][i], &known.rows[d][i]);
  }
  unlink(f.path);
}

CASE(tuning_file_refuses_each_wrong_line) {
  REFUSED("", 1, "wanted 'tdict-tuning 1', found the end");
  REFUSED("# only\n# comments\n", 3, "found the end");
  REFUSED(IN OUT, 1, "wanted 'tdict-tuning 1' first, found 'in'");
  REFUSED("tdict-tuning\n" IN OUT, 1, "wanted a version after");
  REFUSED("tdict-tuning 2\n" IN OUT, 1, "wanted version 1, found 2");
  REFUSED("tdict-tuning one\n" IN OUT, 1, "found 'one'");
  REFUSED(HEAD IN, 3, "wanted a last row of 'out'");
  REFUSED(HEAD OUT "in 4096 4096 4096 2 2 0 0 50\n", 4, "wanted a last row of 'in'");
  REFUSED(HEAD "inward max\n", 2, "wanted 'in', 'out', 'out_new', 'host', 'machine' or a comment, found 'inward'");
  REFUSED(HEAD IN OUT HEAD, 4, "found 'tdict-tuning'");
  REFUSED(HEAD "in max 4096 4096 2 2 0 0\n" OUT, 2, "wanted 8 numbers after 'in', found 7");
  REFUSED(HEAD "in max 4096 4096 2 2 0 0 50 1\n" OUT, 2, "found at least 9");
  REFUSED(HEAD IN IN OUT, 3, "for more bytes than the one before, found 'max'");
  REFUSED(HEAD "in 10 4096 4096 2 2 0 0 50\nin 10 4096 4096 2 2 0 0 50\n", 3, "found '10'");
  REFUSED(HEAD "in -1 4096 4096 2 2 0 0 50\n", 2, "found '-1'");
  REFUSED(HEAD "in 12x 4096 4096 2 2 0 0 50\n", 2, "found '12x'");
  REFUSED(HEAD "in max max 4096 2 2 0 0 50\n", 2, "found 'max'");
  REFUSED(HEAD "in 99999999999999999999999 4096 4096 2 2 0 0 50\n", 2, "found '99999999999999999999999'");
  REFUSED(HEAD "in max 4096 4096 4294967297 2 0 0 50\n", 2, "found '4294967297'");
  REFUSED(HEAD "in max 4000 4000 2 2 0 0 50\n", 2, "chunk_bytes is 4000");
  REFUSED(HEAD "in max 4096 8192 2 2 0 0 50\n", 2, "first_bytes is 8192");
  REFUSED(HEAD IN "out max 4096 4096 0 2 0 0 50\n", 3, "workers is 0");
  REFUSED(HEAD IN OUT "host 10 4096 4096 2 2 0 0 50\n", 5, "wanted a last row of 'host'");
  REFUSED(HEAD "in max 4096 4096 2 0 0 0 50\n", 2, "slots is 0");
  REFUSED(HEAD "in max 4096 4096 2 2 2 0 50\n", 2, "streaming is 2");
  REFUSED(HEAD "in max 4096 4096 2 2 0 0 10001\n", 2, "spin_us is 10001");
  REFUSED(HEAD IN "out \0max 4096 4096 2 2 0 0 50\n", 3, "zero byte");
  char rows[2048] = HEAD, name[700];
  for (int i = 1; i <= TDICT_TUNING_ROWS + 1; i++)
    snprintf(rows + strlen(rows), sizeof rows - strlen(rows), "in %d 4096 4096 2 2 0 0 50\n", i);
  refused(rows, strlen(rows), TDICT_TUNING_ROWS + 2, "wanted at most 16 rows of 'in'");
  snprintf(name, sizeof name, HEAD "machine %0300d\n", 1);
  refused(name, strlen(name), 2, "wanted a machine's name of at most 255 bytes, found 300");
  snprintf(name, sizeof name, HEAD "# %0600d\n", 1);
  refused(name, strlen(name), 2, "found a longer one");
}

CASE(tuning_file_refuses_files_it_cannot_read) {
  tdict_tuning t;
  td_fails(TDICT_EIO, "/nowhere/at/all cannot be opened", tdict_tuning_read("/nowhere/at/all", &t, NULL, err));
  assert_true(td_last_error.native != 0);
  td_fails(TDICT_EFORMAT, "/tmp is a directory, wanted a regular file", tdict_tuning_read("/tmp", &t, NULL, err));
  t = tdict_tuning_default();
  td_fails(TDICT_EIO, "/nowhere/at/all", tdict_tuning_write("/nowhere/at/all", &t, "", err));
  td_fails(TDICT_EIO, "/dev/full", tdict_tuning_write("/dev/full", &t, "", err));
}

/* Moves a leaf of 64 KiB, which must be cut into chunks of 4 KiB. No other table chooses this size. */
static void check_rows_are_used(tdict_context *c) {
  enum { BYTES = 64 << 10 };
  scoped_tree src = NULL, out = NULL;
  const int64_t shape[] = {BYTES};
  tdict_transfer_stats stats = tdict_transfer_stats_default();
  td_ok(tdict_create(0, NULL, &src, err));
  tdict_tensor *leaf = td_made(tensor, tdict_tensor_zeros(TDICT_U8, 1, shape, NULL, &made, err));
  td_put(src, "leaf", leaf);
  td_ok(tdict_to_device(c, src, td_device(), td_options(tdict_transfer_options, stats = &stats), &out, err));
  assert_int_equal(stats.num_chunks, BYTES / 4096);
  assert_int_equal(stats.num_threads, 1);
}

/* tdict_context_create() reads the file that its option tuning_file names. */
DEVICE_CASE(context_tuning_file) {
  file f = write_file(HEAD IN OUT, sizeof HEAD IN OUT - 1), bad = write_file(HEAD "in\n", sizeof HEAD "in\n" - 1);
  tdict_context *c = td_context(NULL); /* skips the case if there is no such device */
  tdict_context_destroy(c);
  tdict_context_options o = td_with(tdict_context_options, device = td_device(), tuning_file = f.path);
  td_ok(tdict_context_create(&o, &c, err));
  const tdict_tuning *t = &tdict_context_engine(c)->tuning;
  assert_int_equal(t->num_rows[TDICT_TUNING_IN], 1);
  assert_int_equal(t->rows[TDICT_TUNING_IN][0].workers, 1);
  if (td_device().type != TDICT_DEVICE_CPU) check_rows_are_used(c);
  td_release(c);
  o.tuning_file = bad.path;
  td_fails(TDICT_EFORMAT, "wanted 8 numbers after 'in', found 0", tdict_context_create(&o, &c, err));
  o.tuning_file = "/nowhere/at/all";
  td_fails(TDICT_EIO, "/nowhere/at/all", tdict_context_create(&o, &c, err));
  assert_null(c);
  unlink(f.path);
  unlink(bad.path);
}

CASE(tuning_file_refuses_a_fifo) {
  char path[] = "/tmp/tdict-tuning-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  unlink(path);
  assert_int_equal(mkfifo(path, 0600), 0);
  tdict_context *c = NULL;
  tdict_tuning t = tdict_tuning_default();
  tdict_context_options o = td_with(tdict_context_options, device = tdict_cpu(), tuning_file = path);
  alarm(30); /* a blocking open() would wait for a writer forever */
  td_fails_at(TDICT_EFORMAT, "is a FIFO, wanted a regular file", path, tdict_context_create(&o, &c, err));
  td_fails(TDICT_EFORMAT, "is a FIFO, wanted a regular file", tdict_tuning_write(path, &t, "", err));
  alarm(0);
  assert_null(c);
  unlink(path);
}
