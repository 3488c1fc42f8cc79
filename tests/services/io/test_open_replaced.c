/* Tests that a directory can be opened and loaded while another process replaces it. */
#include "directory.h"
#include "random_tree.h"

#include <fcntl.h>

int __real_openat(int at, const char *path, int flags, ...);
int __wrap_openat(int at, const char *path, int flags, ...);
static const folder *replaced; /* its directory x is replaced by y before call number `at_call` of openat() */
static int num_calls, at_call;

static void replace(void) {
  const folder *f = replaced;
  replaced = NULL;
  assert_int_equal(rename(in(f, "x"), in(f, "old")), 0);
  assert_int_equal(rename(in(f, "y"), in(f, "x")), 0);
  remove_all(in(f, "old"));
}

int __wrap_openat(int at, const char *path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if (replaced && ++num_calls == at_call) replace();
  return __real_openat(at, path, flags, mode);
}

static tdict_tree *make_tree(double number) {
  static const char *const paths[] = {"a", "b.c", "b.d", "e"};
  tdict_tree *tree = td_made(tree, tdict_create(0, NULL, &made, err));
  for (int i = 0; i < 4; i++) {
    scoped_tensor t = td_made(tensor, tdict_tensor_zeros(TDICT_F32, TDICT_SHAPE(3), NULL, &made, err));
    td_ok(tdict_set(tree, paths[i], t, err));
  }
  for (int i = 0; i < 4; i++) td_ok(tdict_fill(tree, paths[i], number, NULL, err));
  return tree;
}

/* Replaces the directory before each call of openat() in turn. Checks that tdict_open(), or tdict_load() if `c` is not
 * NULL, returns the old or the new tree. A load may fail with TDICT_EIO. Returns how often it was the new tree. */
static int replace_at_each_call(tdict_context *c) {
  scoped_folder f = folder_create();
  const tdict_save_options o = save_as(TDICT_FORMAT_MEMMAP);
  scoped_tree old = make_tree(1), new = make_tree(2);
  tdict_tree *tree = NULL;
  int num_new = 0;
  char path[PATH_BYTES]; /* replace() uses the buffers of in() */
  snprintf(path, sizeof path, "%s", in(&f, "x"));
  bool was_replaced = true;
  for (int at = 1; was_replaced; at++) {
    td_ok(tdict_save(NULL, in(&f, "x"), old, &o, err));
    td_ok(tdict_save(NULL, in(&f, "y"), new, &o, err));
    replaced = &f;
    num_calls = 0;
    at_call = at;
    tdict_error why;
    const tdict_status status =
        c ? tdict_load(c, path, tdict_cpu(), NULL, &tree, &why) : tdict_open(path, NULL, &tree, &why);
    if (status != TDICT_OK && !(c && status == TDICT_EIO)) fail_msg("call %d: %s %s", at, why.path, why.message);
    was_replaced = !replaced;
    replaced = NULL;
    if (status == TDICT_OK) {
      const bool is_new = *(const float *)tdict_const_data(tree, "a") > 1;
      same_trees(tree, is_new ? new : old);
      num_new += is_new;
      tdict_release(tree);
    }
    remove_all(in(&f, "x"));
    if (!was_replaced) remove_all(in(&f, "y"));
  }
  return num_new;
}

CASE(open_of_a_directory_that_is_replaced) { assert_true(replace_at_each_call(NULL) > 4); }

CASE(load_of_a_directory_that_is_replaced) {
  scoped_context c = td_context(NULL);
  assert_true(replace_at_each_call(c) > 4);
}
