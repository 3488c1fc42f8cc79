/* Tests the names of statuses, and how error structs are filled. */
#include "support/test.h"

#include <unistd.h>

#include "core/base/error.h"
#include "tdict/tensor.h"
#include "tdict/try.h"

CASE(status_names) {
  static const char *names[] = {
      "TDICT_OK",         "TDICT_EINVAL",       "TDICT_ENOMEM",    "TDICT_ENOTFOUND", "TDICT_EEXIST",
      "TDICT_ETYPE",      "TDICT_ESHAPE",       "TDICT_EDTYPE",    "TDICT_EOVERFLOW", "TDICT_ELOCKED",
      "TDICT_EREADONLY",  "TDICT_EWRONGDEVICE", "TDICT_ENODEVICE", "TDICT_EDEVICE",   "TDICT_ELOST",
      "TDICT_ECANCELLED", "TDICT_ETIMEDOUT",    "TDICT_EDEADLOCK", "TDICT_EFORKED",   "TDICT_ECAPTURE",
      "TDICT_ECHANGED",   "TDICT_EHOOK",        "TDICT_EIO",       "TDICT_EFORMAT",   "TDICT_ENOTSUP"};
  int count = (int)(sizeof names / sizeof *names);
  for (int i = 0; i < count; i++) assert_string_equal(tdict_status_name((tdict_status)i), names[i]);
  assert_int_equal(TDICT_ENOTSUP, 24);
  for (int i = -1; i < 1000; i = i < 0 ? count : i + 1)
    assert_string_equal(tdict_status_name((tdict_status)i), "TDICT_?");
}

CASE(error_is_512_bytes) {
  assert_int_equal(sizeof(tdict_error), 512);
  assert_int_equal(offsetof(tdict_error, status), 0);
  assert_int_equal(offsetof(tdict_error, native), 4);
  assert_int_equal(offsetof(tdict_error, path), 8);
  assert_int_equal(offsetof(tdict_error, message), 256);
}

CASE(error_written_on_failure_only) {
  tdict_error err, before;
  memset(&err, 0xA5, sizeof err);
  before = err;
  int64_t shape[] = {2, 3};
  scoped_tensor t = NULL;
  tdict_device device;
  assert_int_equal(tdict_device_parse("cuda:1", &device, &err), TDICT_OK);
  assert_int_equal(tdict_tensor_empty(TDICT_F32, 2, shape, NULL, &t, &err), TDICT_OK);
  assert_memory_equal(&err, &before, sizeof err);
  shape[1] = -1;
  tdict_tensor *kept = t;
  assert_int_equal(tdict_tensor_empty(TDICT_F32, 2, shape, NULL, &t, &err), TDICT_EINVAL);
  assert_int_equal(err.status, TDICT_EINVAL);
  assert_int_equal(err.native, 0);
  assert_string_equal(err.path, "");
  assert_non_null(strstr(err.message, "-1"));
  assert_ptr_equal(t, kept);
  assert_int_equal(tdict_tensor_empty(TDICT_F32, 2, shape, NULL, &t, NULL), TDICT_EINVAL);
}

CASE(error_fail_fills) {
  tdict_error err;
  memset(&err, 0xA5, sizeof err);
  assert_int_equal(tdict_fail(&err, TDICT_ESHAPE, "wanted %d, found %s", 3, "none"), TDICT_ESHAPE);
  assert_int_equal(err.status, TDICT_ESHAPE);
  assert_int_equal(err.native, 0);
  assert_string_equal(err.path, "");
  assert_string_equal(err.message, "wanted 3, found none");
  assert_int_equal(tdict_fail_native(&err, TDICT_EDEVICE, 700, "copy: %s", "illegal address"), TDICT_EDEVICE);
  assert_int_equal(err.native, 700);
  assert_string_equal(err.message, "copy: illegal address");
  assert_int_equal(tdict_fail(NULL, TDICT_EIO, "%d", 1), TDICT_EIO);
  assert_int_equal(tdict_fail_native(NULL, TDICT_EIO, 5, "%d", 1), TDICT_EIO);
}

CASE(error_long_message_is_cut) {
  tdict_error err;
  char text[1000];
  memset(text, 'm', sizeof text - 1);
  text[sizeof text - 1] = 0;
  assert_int_equal(tdict_fail(&err, TDICT_EINVAL, "%s", text), TDICT_EINVAL);
  assert_int_equal(strlen(err.message), sizeof err.message - 1);
  text[sizeof err.message - 1] = 0;
  assert_string_equal(err.message, text);
}

CASE(error_long_path_cut_in_middle) {
  char path[1000];
  for (size_t length = 0; length < sizeof path; length++) {
    tdict_error err;
    for (size_t i = 0; i < length; i++) path[i] = (char)('a' + (i * 7 + i / 26) % 26);
    path[length] = 0;
    (void)tdict_fail(&err, TDICT_ELOCKED, "locked");
    tdict_error before = err;
    assert_int_equal(tdict_error_at(&err, TDICT_ELOCKED, path), TDICT_ELOCKED);
    assert_string_equal(err.message, before.message);
    assert_int_equal(err.status, TDICT_ELOCKED);
    if (length < sizeof err.path) {
      assert_string_equal(err.path, path);
      continue;
    }
    assert_int_equal(strlen(err.path), sizeof err.path - 1);
    char *cut = strstr(err.path, "...");
    assert_non_null(cut);
    size_t head = (size_t)(cut - err.path), tail = strlen(cut + 3);
    assert_true(head >= 120 && tail >= 120);
    assert_memory_equal(err.path, path, head);
    assert_string_equal(cut + 3, path + length - tail);
  }
}

CASE(error_at_without_path_or_error) {
  tdict_error err;
  (void)tdict_fail(&err, TDICT_EIO, "x");
  assert_int_equal(tdict_error_at(&err, TDICT_EIO, NULL), TDICT_EIO);
  assert_string_equal(err.path, "");
  assert_int_equal(tdict_error_at(NULL, TDICT_EIO, "a.b"), TDICT_EIO);
}

CASE(error_print_writes_one_line) {
  static const struct {
    tdict_error err;
    const char *text;
  } errors[] = {
      {{TDICT_ENOTFOUND, 0, "obs.stat", "'stat' is not a key there"},
       "TDICT_ENOTFOUND obs.stat: 'stat' is not a key there\n"},
      {{TDICT_EDEVICE, 700, "", "the copy was refused"}, "TDICT_EDEVICE: the copy was refused [700]\n"},
      {{TDICT_EIO, 0, "", ""}, "TDICT_EIO\n"},
      {{-1, -1, "a", ""}, "TDICT_? a [-1]\n"},
  };
  scoped_chars text = NULL;
  size_t size = 0;
  FILE *file = open_memstream(&text, &size);
  assert_non_null(file);
  tdict_error_print(NULL, file);
  assert_int_equal(ftell(file), 0);
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
    rewind(file);
    tdict_error_print(&errors[i].err, file);
    fputc(0, file);
    fflush(file);
    assert_string_equal(text, errors[i].text);
  }
  fclose(file);
}

/* Calls `run` and stores its return value in *answer. Returns what `run` wrote to stderr; the caller frees it. */
static char *captured(int (*run)(tdict_status status, int *evaluated), tdict_status status, int *evaluated,
                      int *answer) {
  char *text = calloc(1, 4096);
  FILE *file = tmpfile();
  int kept = dup(STDERR_FILENO);
  assert_true(text && file && kept >= 0);
  fflush(stderr);
  assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
  *answer = run(status, evaluated);
  fflush(stderr);
  assert_true(dup2(kept, STDERR_FILENO) >= 0);
  close(kept);
  rewind(file);
  (void)!fread(text, 1, 4095, file);
  fclose(file);
  return text;
}

static tdict_status answer_with(tdict_status status, int *evaluated, tdict_error *err) {
  (*evaluated)++;
  return status == TDICT_OK ? status : tdict_error_at(err, tdict_fail(err, status, "that is why"), "a.b");
}

static int leave_by_goto(tdict_status status, int *evaluated) {
  tdict_error err = {0};
  TDICT_TRY(answer_with(status, evaluated, &err));
  *evaluated += 100; /* reached only if TDICT_TRY() did not jump to `done` */

done:
  return err.status;
}

static int leave_by_return(tdict_status status, int *evaluated) {
  tdict_error err = {0};
  TDICT_TRY_RETURN(answer_with(status, evaluated, NULL), -7);
  return err.status;
}

CASE(try_prints_and_goes_to_done) {
  int answer, evaluated = 0;
  scoped_chars text = captured(leave_by_goto, TDICT_EIO, &evaluated, &answer);
  assert_int_equal(answer, TDICT_EIO);
  assert_int_equal(evaluated, 1);
  assert_non_null(strstr(text, "test_error.c:"));
  assert_non_null(strstr(text, ": TDICT_EIO a.b: that is why\n"));
  free(text);
  text = captured(leave_by_goto, TDICT_OK, &evaluated, &answer);
  assert_int_equal(answer, TDICT_OK);
  assert_int_equal(evaluated, 102);
  assert_string_equal(text, "");
}

CASE(try_return_prints_and_returns) {
  int answer, evaluated = 0;
  scoped_chars text = captured(leave_by_return, TDICT_EIO, &evaluated, &answer);
  assert_int_equal(answer, -7);
  assert_int_equal(evaluated, 1);
  assert_non_null(strstr(text, ": TDICT_EIO\n")); /* the call got no error struct, so only the status is known */
  free(text);
  text = captured(leave_by_return, TDICT_OK, &evaluated, &answer);
  assert_int_equal(answer, TDICT_OK);
  assert_string_equal(text, "");
}

/* The status that a callback returns is kept if it is a known code. Any other status becomes TDICT_EHOOK. */
CASE(callback_statuses_are_codes) {
  tdict_error said = {0};
  assert_int_equal(tdict_callback_status(TDICT_OK, "f", &said), TDICT_OK);
  assert_int_equal(said.status, TDICT_OK);
  for (int i = TDICT_EINVAL; i <= TDICT_ENOTSUP; i++) {
    memset(&said, 0, sizeof said);
    assert_true(tdict_status_is_known((tdict_status)i));
    assert_int_equal(tdict_callback_status((tdict_status)i, "f", &said), i);
    assert_int_equal(said.status, i);
    const char *silent = td_text("f returned %s without a message", tdict_status_name((tdict_status)i));
    assert_string_equal(said.message, silent);
    for (int k = 0; k < 3; k++) { /* the struct holds another status, 0, or the same status */
      said = (tdict_error){k == 0 ? TDICT_EIO : k == 1 ? 0 : i, 7, "where", "what it said"};
      assert_int_equal(tdict_callback_status((tdict_status)i, "f", &said), i);
      assert_int_equal(said.status, i);
      assert_int_equal(said.native, 7);
      assert_string_equal(said.path, "where");
      assert_string_equal(said.message, "what it said");
    }
    said = (tdict_error){0, 7, "where", ""}; /* if only the message is missing, `path` and `native` are kept */
    assert_int_equal(tdict_callback_status((tdict_status)i, "f", &said), i);
    assert_int_equal(said.native, 7);
    assert_string_equal(said.path, "where");
    assert_string_equal(said.message, silent);
    memset(said.message, 'm', sizeof said.message); /* the strings fill their arrays and are not terminated */
    memset(said.path, 'p', sizeof said.path);
    assert_int_equal(tdict_callback_status((tdict_status)i, "f", &said), i);
    assert_int_equal(strlen(said.message), sizeof said.message - 1);
    assert_int_equal(strlen(said.path), sizeof said.path - 1);
    assert_int_equal(tdict_callback_status((tdict_status)i, "f", NULL), i);
  }
  const int none[] = {-1, TDICT_ENOTSUP + 1, 99, INT32_MAX, INT32_MIN};
  for (int i = 0; i < 5; i++) {
    assert_false(tdict_status_is_known((tdict_status)none[i]));
    assert_int_equal(tdict_callback_status((tdict_status)none[i], "the function", &said), TDICT_EHOOK);
    assert_int_equal(said.status, TDICT_EHOOK);
    assert_non_null(strstr(said.message, "the function returned"));
    assert_int_equal(tdict_callback_status((tdict_status)none[i], "f", NULL), TDICT_EHOOK);
  }
}

CASE(error_set_fills_all_fields) {
  tdict_error e = {TDICT_EIO, 5, "old path", "old message"};
  assert_int_equal(tdict_error_set(&e, TDICT_EFORMAT, "a.b", "%s of %d", "sample", 7), TDICT_EFORMAT);
  assert_int_equal(e.status, TDICT_EFORMAT);
  assert_int_equal(e.native, 0);
  assert_string_equal(e.path, "a.b");
  assert_string_equal(e.message, "sample of 7");
  /* The arguments may point into the error struct that is written. */
  assert_int_equal(tdict_error_set(&e, TDICT_EIO, e.path, "after %s at %s", e.message, e.path), TDICT_EIO);
  assert_string_equal(e.path, "a.b");
  assert_string_equal(e.message, "after sample of 7 at a.b");
  assert_int_equal(tdict_error_set(&e, TDICT_EIO, NULL, "none"), TDICT_EIO);
  assert_string_equal(e.path, "");
  char text[600];
  memset(text, 'x', sizeof text - 1);
  text[sizeof text - 1] = 0;
  text[0] = 'b';
  text[sizeof text - 2] = 'e';
  (void)tdict_error_set(&e, TDICT_EIO, text, "%s", text);
  assert_int_equal(strlen(e.message), sizeof e.message - 1);
  assert_int_equal(strlen(e.path), sizeof e.path - 1);
  assert_int_equal(e.path[0], 'b');
  assert_int_equal(e.path[sizeof e.path - 2], 'e');
  assert_non_null(strstr(e.path, "..."));
  assert_int_equal(tdict_error_set(NULL, TDICT_ENOMEM, "a", "b"), TDICT_ENOMEM);
  /* Setting an error allocates nothing, so an error can also report that memory is exhausted. */
  tdict_error short_of_memory = {0};
  td_fail_alloc(0, true);
  (void)tdict_error_set(&short_of_memory, TDICT_EIO, text, "%s", text);
  assert_false(td_fail_alloc_stop());
  assert_memory_equal(&short_of_memory, &e, sizeof e);
}
