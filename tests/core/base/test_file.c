/* Tests opening files by path: regular files, other kinds of files, and missing files. */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/base/file.h"
#include "support/test.h"

static char folder[64], path[96];

static void make_folder(void) {
  snprintf(folder, sizeof folder, "/tmp/tdict-file-XXXXXX");
  assert_non_null(mkdtemp(folder));
  snprintf(path, sizeof path, "%s/one", folder);
}
static void remove_folder(void) {
  unlink(path);
  assert_int_equal(rmdir(folder), 0);
}

CASE(file_is_written_and_read) {
  FILE *file = NULL;
  int fd = -1;
  char text[8] = "";
  make_folder();
  for (int i = 0; i < 2; i++) { /* the second round must truncate the longer file of the first round */
    td_ok(tdict_file_stream_to_write("test", path, &file, err));
    assert_int_equal(fprintf(file, "%s", i ? "two" : "longer"), i ? 3 : 6);
    assert_int_equal(fcntl(fileno(file), F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(fcntl(fileno(file), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fclose(file), 0);
  }
  td_ok(tdict_file_stream_to_read("test", path, &file, err));
  assert_int_equal(fread(text, 1, sizeof text, file), 3);
  assert_string_equal(text, "two");
  assert_int_equal(fclose(file), 0);
  td_ok(tdict_file_open_to_read("test", path, &fd, err));
  assert_int_equal(fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
  assert_int_equal(close(fd), 0);
  td_ok(tdict_file_stream_to_write("test", "/dev/null", &file, err));
  assert_int_equal(fclose(file), 0);
  remove_folder();
}

static void refused(const char *at, bool reads, bool writes, tdict_status status, const char *text) {
  FILE *file = NULL;
  int fd = -1;
  alarm(30); /* a blocking open of a FIFO would wait forever for the other end */
  if (reads) td_fails(status, text, tdict_file_open_to_read("test", at, &fd, err));
  if (reads) assert_string_equal(td_last_error.path, at);
  if (reads) td_fails(status, text, tdict_file_stream_to_read("test", at, &file, err));
  if (writes) td_fails(status, text, tdict_file_stream_to_write("test", at, &file, err));
  alarm(0);
  assert_string_equal(td_last_error.path, at);
  assert_non_null(strstr(td_last_error.message, at));
  assert_null(file);
  assert_int_equal(fd, -1);
}

CASE(file_that_is_not_regular_is_refused) {
  make_folder();
  refused(path, true, false, TDICT_EIO, "cannot be opened");
  assert_int_equal(td_last_error.native, ENOENT);
  refused("/nowhere/at/all", true, true, TDICT_EIO, "cannot be opened");
  refused(folder, true, false, TDICT_EFORMAT, "is a directory, wanted a regular file");
  refused(folder, false, true, TDICT_EIO, "cannot be opened");
  refused("/dev/null", true, false, TDICT_EFORMAT, "is a character device, wanted a regular file");
  assert_int_equal(mkfifo(path, 0600), 0);
  refused(path, true, true, TDICT_EFORMAT, "is a FIFO, wanted a regular file");
  int reader = open(path, O_RDONLY | O_NONBLOCK); /* open() for writing succeeds on a FIFO that has a reader */
  assert_true(reader >= 0);
  refused(path, false, true, TDICT_EFORMAT, "is a FIFO, wanted a regular file");
  close(reader);
  unlink(path);
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
  refused(path, true, true, TDICT_EFORMAT, "is a socket, wanted a regular file");
  close(listener);
  remove_folder();
}

/* A file can be opened by its name in a folder that is already open. A symbolic link is followed only on request. */
CASE(file_opens_in_a_folder) {
  int fd = -1;
  FILE *file = NULL;
  make_folder();
  td_ok(tdict_file_stream_to_write("test", path, &file, err));
  assert_int_equal(fclose(file), 0);
  const int at = open(folder, O_RDONLY | O_DIRECTORY);
  assert_true(at >= 0);
  td_ok(tdict_file_open_in("test", at, "one", false, &fd, err));
  assert_int_equal(close(fd), 0);
  const char *link = td_text("%s/link", folder);
  assert_int_equal(symlink("one", link), 0);
  fd = -1;
  td_fails(TDICT_EFORMAT, "link is a symbolic link, wanted a regular file",
           tdict_file_open_in("test", at, "link", false, &fd, err));
  td_fails(TDICT_EIO, "none cannot be opened", tdict_file_open_in("test", at, "none", true, &fd, err));
  td_fails(TDICT_EFORMAT, ". is a directory", tdict_file_open_in("test", at, ".", true, &fd, err));
  assert_int_equal(fd, -1);
  td_ok(tdict_file_open_in("test", at, "link", true, &fd, err));
  assert_int_equal(close(fd), 0);
  close(at);
  unlink(link);
  remove_folder();
}
